"""`emulate` in pytest's own process, for all that needs no process of its own; its scenarios."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from emulator import __main__
from tests.conftest import Finished
from tests.session.conftest import STEPS, shell

NO_DOCKER = {"DOCKER_HOST": "unix:///nowhere/docker.sock"}


def typed(
    *words: str | Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: str | None = None,
) -> Finished:
    """Do what `emulate` does with these words, without its handling of signals and streams."""
    stdout, stderr = io.StringIO(), io.StringIO()
    with (
        tempfile.TemporaryFile("w+") as piped,
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
    ):
        patch.setattr(sys, "argv", ["emulate", *map(str, words)])
        patch.setattr(sys, "excepthook", sys.excepthook)  # Typer sets its own
        patch.setitem(sys.modules, "__main__", ModuleType("__main__"))  # else `python -m pytest`
        for name, value in (env or {}).items():
            patch.setenv(name, value)
        if cwd is not None:
            patch.chdir(cwd)
        if stdin is not None:
            piped.write(stdin)
            piped.seek(0)
            patch.setattr(sys, "stdin", piped)
        code = __main__._run()
    assert code is None or isinstance(code, int)
    return Finished(code or 0, stdout.getvalue(), stderr.getvalue())


def refusal(*words: str | Path, cwd: Path | None = None, stdin: str | None = None) -> str:
    """Return the one line with which these words are refused as a mistake."""
    done = typed(*words, cwd=cwd, stdin=stdin).ended(2)
    assert done.stdout == ""
    assert done.stderr.startswith("emulate: ")
    (line,) = done.stderr.splitlines()
    return line.removeprefix("emulate: ")


def completed(words: str, cwd: Path | None = None) -> list[str]:
    """Return what the shell shows for the last of these words."""
    count = str(len(words.split(" ")))
    of_shell = {"_EMULATE_COMPLETE": "complete_bash", "COMP_WORDS": f"emulate {words}"}
    return typed(env={**of_shell, "COMP_CWORD": count}, cwd=cwd).stdout.split()


def write(folder: Path, script: str = STEPS, /, **keys: Any) -> Path:
    """Write scenario.yaml: one worker that runs a script of a shell, unless `keys` differ."""
    path = folder / "scenario.yaml"
    path.write_text(json.dumps(shell(script, **keys)))
    return path
