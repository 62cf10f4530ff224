"""`emulate scenarios`, and the names of scenarios that come with the emulator."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.bundled import ROOT, scenario_path, scenarios
from tests.cli.typed import typed


def test_all_are_listed_by_theme() -> None:
    listed = typed("scenarios", "--json").json
    assert sorted(one["file"] for one in listed) == sorted(map(str, scenarios()))
    assert [one["theme"] for one in listed] == sorted(one["theme"] for one in listed)
    (quickstart,) = (one for one in listed if one["name"] == "quickstart")
    assert quickstart["theme"] == "strategies"
    assert quickstart["description"].startswith("Two workers train")


def test_a_theme_is_listed_alone() -> None:
    done = typed("scenarios", "faults")
    assert done.returncode == 0
    assert "mwms-preemption" in done.stdout
    assert "quickstart" not in done.stdout


MWMS = ROOT / "scenarios" / "strategies" / "mwms.yaml"


@pytest.mark.parametrize(
    "given", ["mwms", "mwms.yaml", "scenarios/mwms.yaml", "scenarios/strategies/mwms.yaml"]
)
def test_a_bundled_scenario_has_a_name(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert scenario_path(Path(given)) == MWMS


@pytest.mark.parametrize("given", ["mine/mwms", "/mwms", "../mwms", "mwmz", "n" * 300, ""])
def test_other_names_stay_what_they_are(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert scenario_path(Path(given)) == Path(given)


@pytest.mark.parametrize("given", ["mine", "mine/", "./mine", "."])
def test_a_folder_means_its_scenario(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `emulate init mine` writes it."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "scenario.yaml").touch()
    monkeypatch.chdir(folder if given == "." else tmp_path)
    assert scenario_path(Path(given)) == Path(given, "scenario.yaml")


def test_a_file_here_goes_before_a_bundled_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mwms").write_text("name: mine\n")
    assert scenario_path(Path("mwms")) == Path("mwms")
