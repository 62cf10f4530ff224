"""A real pseudo-terminal with a program in it, and what its user sees."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyte

PATIENCE = 60.0
"""Seconds after which a test says that something never showed."""


def _fits(what: str | re.Pattern[str] | Callable[[str], object], shown: str) -> bool:
    if isinstance(what, str):
        return what in shown
    return bool(what.search(shown) if isinstance(what, re.Pattern) else what(shown))


class Terminal:
    """Runs a command in a terminal of its own; reads it with a terminal emulator."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        columns: int = 80,
        rows: int = 24,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.screen = pyte.HistoryScreen(columns, rows, history=100_000, ratio=1.0)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self._master, slave = pty.openpty()
        self.resize(columns, rows)
        self.before = termios.tcgetattr(slave)
        known = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**known, "TERM": "xterm-256color", **(env or {})},
            cwd=cwd,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        self._slave = slave  # kept open: what was set on the terminal is looked at in the end

    def resize(self, columns: int, rows: int) -> None:
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)
        if self.screen.columns != columns or self.screen.lines != rows:
            self.screen.resize(rows, columns)

    def press(self, keys: str) -> None:
        """Type; `\\x03` is Ctrl-C, which the terminal turns into a signal."""
        os.write(self._master, keys.encode())

    def hang_up(self) -> None:
        """Close it, as a dropped ssh or the end of a terminal's window does."""
        os.close(self._master)
        self._master = -1

    @property
    def shown(self) -> str:
        """The screen, without blanks at the ends."""
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip()

    @property
    def all(self) -> str:
        """What has scrolled away, and the screen."""
        past = (
            "".join(line[column].data for column in range(self.screen.columns)).rstrip()
            for line in self.screen.history.top
        )
        return "\n".join([*past, self.shown])

    @property
    def attributes(self) -> list[object]:
        """How the terminal is set now."""
        return list(termios.tcgetattr(self._slave))

    def see(self, *what: str | re.Pattern[str] | Callable[[str], object]) -> str:
        """Wait until the screen has texts and patterns and fulfils conditions; return it.

        All of them at once: what comes may end in the middle of a picture, so that nothing else is
        surely there.
        """
        deadline = time.monotonic() + PATIENCE
        while missing := [one for one in what if not _fits(one, self.shown)]:
            if not self._read(deadline):
                raise AssertionError(f"never seen: {missing}; the screen at the end:\n{self.all}")
        return self.shown

    def finish(self) -> int:
        """Read on until the program has ended; return its exit code."""
        deadline = time.monotonic() + PATIENCE
        while self._read(deadline):
            pass
        return self.process.wait(PATIENCE)

    def _read(self, deadline: float) -> bool:
        """Feed what comes next; False once the program has ended and all of it was read."""
        over = self.process.poll() is not None
        if not select.select([self._master], [], [], 0.2 if over else 0.05)[0]:
            return not over and time.monotonic() < deadline
        try:
            new = os.read(self._master, 65536)
        except OSError:
            return False
        self.raw += new
        self._stream.feed(new)
        return bool(new)

    def close(self) -> None:
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        if self._master >= 0:
            os.close(self._master)
        os.close(self._slave)
