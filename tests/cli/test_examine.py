"""What `emulate doctor` says of engines, against what `emulate up` does with them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from emulator.cli.examine import auto, examine_engine
from emulator.engines.base import Finding, Status
from emulator.engines.process import doctor
from emulator.scenario.loader import parse
from tests.cli.typed import typed, write
from tests.conftest import Emulate

TEXT = "name: a\nframework: {}\nprogram: {{command: [{}]}}\ncluster: {{worker: 2}}\n"


@pytest.mark.parametrize(
    ("docker", "status", "found"),
    [
        ("ok", "ok", "docker"),
        ("missing", "ok", "process: no Docker engine is configured"),
        ("fatal", "fatal", "docker, which is configured and does not answer"),
    ],
)
def test_the_engine_that_auto_takes_is_named(docker: Status, status: Status, found: str) -> None:
    """Decided as `engines.choose` does; tests/engines/docker/test_connection.py runs both."""
    finding = auto(Finding("Docker engine", docker, "", ""))
    assert (finding.status, finding.found) == (status, found)


@pytest.mark.parametrize(
    ("framework", "command", "looks_at"),
    [
        ("pytorch", "python, train.py", "PyTorch"),
        ("pytorch", "/usr/bin/torchrun, train.py", "PyTorch"),
        ("jax", "python3, train.py", "JAX"),
        ("tensorflow", "python, train.py", "TensorFlow"),
        ("pytorch", "sh, train.sh", None),  # which may start anything
        ("none", "python, train.py", None),
        ("mpi", "python, train.py", None),
    ],
)
@pytest.mark.parametrize("installed", [True, False])
def test_processes_need_the_framework_of_the_scenario(
    framework: str,
    command: str,
    looks_at: str | None,
    installed: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor, "has_module", lambda python, module: installed)
    findings = examine_engine("process", parse(TEXT.format(framework, command)))
    frameworks = {one.what: one.status for one in findings if one.what in TITLES}
    assert frameworks == ({looks_at: "ok" if installed else "fatal"} if looks_at else {})


TITLES = {title for title, _ in doctor.FRAMEWORKS.values()}


def test_without_a_scenario_any_framework_may_be_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "has_module", lambda python, module: False)
    findings = {one.what: one for one in examine_engine("process", None)}
    assert {findings[title].status for title in TITLES} == {"optional"}
    assert "-m pip install torch." in findings["PyTorch"].advice


# --- `emulate exec`: a command in a task of a run under way, as people type it --------------------


def test_a_command_runs_in_a_task_until_the_run_has_ended(emulate: Emulate, tmp_path: Path) -> None:
    script = "while [ ! -e $EMULATOR_SHARED/over ]; do sleep 0.1; done"
    path = write(tmp_path, script, name="sleeps", cluster={"worker": 2}, success="all-workers")
    out = ("--out", emulate.out)
    emulate("up", path, "-d", "--engine", "process", "--run-id", "sleeps-1", *out).ended()
    runs = ("", "sleeps-1 ")
    named = [f"{run}worker-1{dashes}" for run in runs for dashes in ("", " --")]
    for words in (*named, "-r sleeps worker-1 --"):
        done = emulate("exec", *out, *words.split(), "sh", "-c", "echo $EMULATOR_TASK; exit 3")
        assert done.ended(3).stdout == "worker-1\n"
    # Without a command it is a shell; what it reads is what we give it.
    shell = [*emulate.command, "exec", *map(str, out), "worker-0"]
    asked = subprocess.run(shell, input="basename $PWD", capture_output=True, text=True)
    assert asked.stdout == "worker-0\n"
    emulate("exec", *out, "worker-0", "--", "sh", "-c", "touch $EMULATOR_SHARED/over").ended()
    typed("wait", *out).ended()
