"""Which Python tasks run in, where they are processes."""

from __future__ import annotations

import io
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from emulator.engines.memory import MemoryEngine
from emulator.engines.process import ProcessEngine
from emulator.engines.process.interpreter import has_module, named, of_caller, versions
from emulator.errors import UsageError
from emulator.planning.requested import RunOptions
from emulator.report.plan_tables import print_plan
from emulator.runtime.clock import ManualClock
from emulator.session.ready import make_ready
from tests.asked import asked
from tests.engines.stage import staged

LEAST = "name: a\nframework: none\nprogram: {command: [python, a.py]}\ncluster: {worker: 1}\n"
OWN = "/opt/tools/bin/python3"


@pytest.mark.parametrize(
    ("environ", "missing", "python"),
    [
        ({}, "", OWN),
        ({"VIRTUAL_ENV": "/home/me/env"}, "", "/home/me/env/bin/python"),
        ({"CONDA_PREFIX": "/conda"}, "", "/conda/bin/python"),
        ({"VIRTUAL_ENV": "/a", "CONDA_PREFIX": "/b"}, "", "/a/bin/python"),
        ({"VIRTUAL_ENV": "/a", "CONDA_PREFIX": "/b"}, "/a/bin/python", "/b/bin/python"),
        ({"VIRTUAL_ENV": "/a"}, "/a/bin/python", OWN),
        ({"VIRTUAL_ENV": "", "CONDA_PREFIX": ""}, "", OWN),
        ({"VIRTUAL_ENV": "/opt/tools"}, "", OWN),  # that in which it is installed
    ],
)
def test_tasks_run_in_the_active_environment(
    environ: dict[str, str], missing: str, python: str
) -> None:
    assert of_caller(environ, OWN, lambda path: path != missing) == python


def another(folder: Path) -> str:
    """Return the Python of another environment, which has a module of its own."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "env"], check=True)
    (packages,) = (folder / "env" / "lib").glob("*/site-packages")
    (packages / "only_there.py").touch()
    return str(folder / "env" / "bin" / "python")


def test_another_python_is_asked_what_it_has(tmp_path: Path) -> None:
    python = another(tmp_path)
    assert has_module(python, "only_there")
    assert not has_module(python, "no_such_module")
    assert versions(python) == {"python": platform.python_version()}
    assert has_module(sys.executable, "json")
    assert not has_module(sys.executable, "only_there")
    assert has_module(str(tmp_path / "none"), "a")  # nothing is known of it
    assert versions(str(tmp_path / "none")) == {}


def test_tasks_run_in_the_python_that_the_plan_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = another(tmp_path)
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "env"))
    says = "[python3, -c, 'import only_there, sys; print(sys.executable)']"
    scenario = asked(LEAST.replace("[python, a.py]", says)).scenario
    with staged(ProcessEngine(), scenario, tmp_path) as stage:
        assert stage.plan.python == python
        stage.start()
        assert stage.until_exit().exit_code == 0
        assert stage.lines["worker-0"] == [python]


def test_a_python_is_named_by_path_or_by_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "bin" / "python3.99"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    assert named("bin/python3.99") == str(python)
    monkeypatch.setenv("PATH", str(python.parent))
    assert named("python3.99") == str(python)
    with pytest.raises(UsageError, match="no such program"):
        named("bin/pythn")


def test_the_plan_has_the_python_that_is_named(tmp_path: Path) -> None:
    options = RunOptions(out=tmp_path, python=sys.executable)
    plan, _ = make_ready(asked(LEAST), ProcessEngine(), options)
    assert plan.python == sys.executable
    printed = io.StringIO()
    print_plan(plan, (), Console(file=printed, width=200))
    assert f"Python of the tasks: {sys.executable}" in printed.getvalue()


def test_an_engine_with_images_refuses_it() -> None:
    with pytest.raises(UsageError, match="their image has the Python"):
        make_ready(asked(LEAST), MemoryEngine(ManualClock()), RunOptions(python=sys.executable))
