"""Record a command in a terminal as an SVG, in which its lines appear when they did.

    python -m scripts.record_terminal docs/demo.svg emulate demo

The command runs in an empty folder, in a terminal of 80 columns. A viewer without animations shows
all lines at once.
"""

from __future__ import annotations

import os
import pty
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from rich.text import Text

COLUMNS = 80
FONT, LINE, MARGIN = 14, 20, 16
"""Sizes in pixels."""
WIDTH = round(COLUMNS * FONT * 0.602) + 2 * MARGIN
"""The usual monospaced fonts are this wide."""
COLOURS = {"color(1)": "#f38ba8", "color(2)": "#a6e3a1"}
"""Red and green."""
PROMPT = "$ "
CLEAR = "\x1b[K"
STYLE = """\
text { font: %dpx ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #cdd6f4;
  white-space: pre; animation: appear .15s both }
@keyframes appear { from { opacity: 0 } }
"""


def lines_of(command: Sequence[str], folder: Path) -> Iterator[tuple[float, str]]:
    """Run a command in a terminal; yield its lines, each with the seconds since its start."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"}
    env.pop("NO_COLOR", None)
    began = time.monotonic()
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, env=env
    )
    os.close(theirs)
    rest = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # its end has closed the terminal
            break
        *whole, rest = (rest + part).split(b"\n")
        for line in whole:
            # What is behind the last "clear the line" is what stays.
            yield time.monotonic() - began, line.decode().rstrip("\r").rpartition(CLEAR)[2]
    os.close(ours)
    if code := process.wait():
        sys.exit(f"{shlex.join(command)} ended with exit code {code}")


def svg(shown: Sequence[tuple[float, str]]) -> str:
    """Return the picture of lines, each with the seconds after which it appears."""
    height = len(shown) * LINE + 2 * MARGIN
    drawn = "".join(_line(number, *one) for number, one in enumerate(shown))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}">\n'
        f"<style>{STYLE % FONT}</style>\n"
        f'<rect width="100%" height="100%" rx="8" fill="#1e1e2e"/>\n{drawn}</svg>\n'
    )


def _line(number: int, at: float, line: str) -> str:
    text = Text.from_ansi(line)
    text.rstrip()
    if not text:
        return ""
    y = MARGIN + number * LINE + FONT
    ends = [end for span in text.spans for end in (span.start, span.end)]
    words = "".join(map(_part, text.divide(sorted({*ends} - {0, len(text)}))))
    return f'<text x="{MARGIN}" y="{y}" style="animation-delay:{at:.2f}s">{words}</text>\n'


def _part(text: Text) -> str:
    words = escape(text.plain, quote=False)
    colour = next((COLOURS[str(one.style)] for one in text.spans if str(one.style) in COLOURS), "")
    return f'<tspan style="fill:{colour}">{words}</tspan>' if colour else words


def main(target: Path, command: Sequence[str]) -> None:
    """Record a command, and write the picture."""
    with tempfile.TemporaryDirectory(prefix="recorded-") as folder:
        # The name of the folder says nothing to others.
        lines = lines_of(command, Path(folder))
        told = [(at, line.replace(folder, "/home/me")) for at, line in lines]
    shown = [(0.0, PROMPT + shlex.join(command)), *told]
    target.write_text(svg(shown), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
