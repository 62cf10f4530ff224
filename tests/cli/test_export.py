"""`emulate export SCENARIO --to FORMAT`, beside the exports of runs."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.cli.typed import refusal, typed

SCENARIO = """
name: train
program: {source: train.py, command: [python, train.py]}
cluster: {worker: 2}
faults: [{preempt: worker-1, at: 5s}]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text("print('hello')\n")
    (tmp_path / "s.yaml").write_text(SCENARIO)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def export(*words: str) -> str:
    return typed("export", *words).ended().stdout


def test_a_file_in_another_folder(folder: Path) -> None:
    (folder / "out").mkdir()
    assert export("s.yaml", "--to", "compose", "-o", "out/compose.yaml") == ""
    services = yaml.safe_load((folder / "out" / "compose.yaml").read_text())["services"]
    assert services["worker-0"]["volumes"][0]["source"] == "../train.py"


@pytest.mark.usefixtures("folder")
def test_standard_output_and_what_is_different() -> None:
    sets = ("--set", "cluster.worker=3", "--image", "cpu=r/t:1")
    text = export("s.yaml", "--to", "kubernetes", *sets)
    jobs = [one for one in yaml.safe_load_all(text) if one["kind"] == "Job"]
    assert [one["spec"]["completions"] for one in jobs] == [3]
    assert text.startswith("# Written by `emulate export train --to kubernetes`")
    assert "# - /job is a ConfigMap" in text
    left_out = "# Faults and expectations are not in it: keep the scenario.\n"
    assert left_out in text
    assert left_out not in export("s.yaml", "--to", "kubernetes", "--set", "faults=[]")
    more = ("--set", "faults=[]", "--set", "expect.final_step=9")
    assert left_out in export("s.yaml", "--to", "kubernetes", *more)


def test_only_exports_are_replaced(folder: Path) -> None:
    for _ in range(2):
        export("s.yaml", "--to", "compose", "-o", "compose.yaml")
    refused = typed("export", "s.yaml", "--to", "compose", "-o", "s.yaml").ended(2)
    assert "s.yaml exists already" in refused.stderr
    assert (folder / "s.yaml").read_text() == SCENARIO


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("s.yaml", "--to", "nomad"), "There is no format nomad. Formats: "),
        (("s.yaml", "--to", "helm-values", "--set", "framework=none"), "--to helm-values is for"),
        (("s.yaml", "--to", "compose", "--csv", "d"), "--csv is for a run, not with --to."),
        (("last", "--csv", "d", "-o", "f"), "-o needs --to: it is for a scenario."),
        (("s.yaml", "--to", "compose", "--image", "cpu"), "--image cpu is not NAME=REF."),
        (("none.yaml", "--to", "compose"), "Can't read"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_mistakes(words: tuple[str, ...], message: str) -> None:
    assert message in refusal("export", *words)
