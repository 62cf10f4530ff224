"""`emulate scenarios`, and the names of scenarios that come with the emulator."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.runtime.bundled import ROOT, scenario_path, scenarios
from tests.cli.typed import typed


def test_all_are_listed_by_theme() -> None:
    listed = typed("scenarios", "--json").json
    assert sorted(one["file"] for one in listed) == sorted(map(str, scenarios()))
    assert [one["theme"] for one in listed] == sorted(one["theme"] for one in listed)
    (quickstart,) = (one for one in listed if one["name"] == "quickstart")
    assert quickstart["theme"] == "strategies"
    assert quickstart["description"].startswith("Two workers train")


def test_a_theme_is_listed_alone() -> None:
    shown = typed("scenarios", "faults").ended().stdout
    assert "mwms-preemption" in shown
    assert "quickstart" not in shown


MWMS = ROOT / "scenarios" / "strategies" / "mwms.yaml"


@pytest.mark.parametrize(
    ("given", "found"),
    [
        *((name, MWMS) for name in ("mwms", "mwms.yaml")),
        *((f"scenarios/{name}", MWMS) for name in ("mwms.yaml", "strategies/mwms.yaml")),
        *((name, name) for name in ("mine/mwms", "/mwms", "../mwms", "mwmz", "n" * 300, "")),
        # As `emulate init mine` writes it.
        *((name, "mine/scenario.yaml") for name in ("mine", "mine/", "./mine")),
    ],
)
def test_a_bundled_scenario_has_a_name_and_a_folder_means_its_scenario(
    given: str, found: Path | str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "scenario.yaml").touch()
    monkeypatch.chdir(tmp_path)
    assert scenario_path(Path(given)) == Path(found)


def test_a_file_or_folder_here_goes_before_a_bundled_scenario(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("scenario.yaml").touch()
    assert scenario_path(Path()) == Path("scenario.yaml")
    Path("mwms").write_text("name: mine\n")
    assert scenario_path(Path("mwms")) == Path("mwms")
