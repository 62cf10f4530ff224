"""Processes that outlive the command that started them, and are found again by it alone."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.kubernetes.errors import Problem

LAST_LINES = 8
STOPS_WITHIN = 3.0
"""Seconds that a process gets after SIGTERM; the API server would wait for those who watch."""


@dataclass(frozen=True)
class Process:
    """One process of the cluster; it runs in a session of its own."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] | None = None
    umask: int = 0o022

    def start(self, folder: Path) -> None:
        """Start it where it does not run; its output goes to `<name>.log` in the folder."""
        if is_running(folder, self.name):
            return
        with (folder / f"{self.name}.log").open("ab") as log:
            process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                env={**os.environ, **(self.environment or {})},
                start_new_session=True,
                umask=self.umask,
            )
        _pid_file(folder, self.name).write_text(f"{process.pid} {_born(process.pid)}\n")


def is_running(folder: Path, name: str) -> bool:
    """Say whether the process that was started under this name is still there."""
    return _pid(folder, name) is not None


def stop(folder: Path, name: str) -> None:
    """End a process, with SIGKILL if it does not go; do nothing if it is not there."""
    pid = _pid(folder, name)
    if pid is not None:
        _end(pid, name, folder)
    _pid_file(folder, name).unlink(missing_ok=True)


def last_words(folder: Path, name: str) -> str:
    """Return the last lines of a process' log."""
    with contextlib.suppress(OSError):
        lines = (folder / f"{name}.log").read_text(errors="replace").splitlines()
        return "\n".join(f"  {line}" for line in lines[-LAST_LINES:])
    return "  (it has said nothing)"


def _end(pid: int, name: str, folder: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        until = time.monotonic() + STOPS_WITHIN
        while time.monotonic() < until:
            if _pid(folder, name) is None:
                return
            time.sleep(0.05)
    raise Problem(f"{name} (pid {pid}) does not end.")


def _pid(folder: Path, name: str) -> int | None:
    """Return the pid under which it runs: the number alone may belong to another one by now."""
    with contextlib.suppress(OSError, ValueError):
        pid, born = _pid_file(folder, name).read_text().split()
        if _born(int(pid)) == born:
            return int(pid)
    return None


def _pid_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.pid"


def _born(pid: int) -> str:
    """Return when a process started, in ticks since the machine did; empty if it is not there."""
    with contextlib.suppress(OSError):
        # The name in brackets may have spaces; the state is the first field after it.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        if fields[0] != "Z":
            return fields[19]
    return ""
