"""`emulate exec`: a command in a task of a run under way, as people type it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.cli.typed import typed, write
from tests.conftest import Emulate


def test_a_command_runs_in_a_task_until_the_run_has_ended(emulate: Emulate, tmp_path: Path) -> None:
    script = "while [ ! -e $EMULATOR_SHARED/over ]; do sleep 0.1; done"
    path = write(tmp_path, script, name="sleeps", cluster={"worker": 2}, success="all-workers")
    out = ("--out", emulate.out)
    up = emulate("up", path, "-d", "--engine", "process", "--run-id", "sleeps-1", *out)
    assert up.returncode == 0, up.stderr
    runs = ("", "sleeps-1 ")
    named = [f"{run}worker-1{dashes}" for run in runs for dashes in ("", " --")]
    for words in (*named, "-r sleeps worker-1 --"):
        done = emulate("exec", *out, *words.split(), "sh", "-c", "echo $EMULATOR_TASK; exit 3")
        assert (done.returncode, done.stdout) == (3, "worker-1\n"), done.stderr
    # Without a command it is a shell; what it reads is what we give it.
    shell = [*emulate.command, "exec", *map(str, out), "worker-0"]
    asked = subprocess.run(shell, input="basename $PWD", capture_output=True, text=True)
    assert asked.stdout == "worker-0\n"
    ended = emulate("exec", *out, "worker-0", "--", "sh", "-c", "touch $EMULATOR_SHARED/over")
    assert ended.returncode == 0
    assert typed("wait", *out).returncode == 0
