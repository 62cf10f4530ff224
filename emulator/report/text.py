"""Text that programs print, made safe to show (pure).

What a terminal acts on is defined by ECMA-48: CSI sequences (colours, cursor), OSC sequences (the
window's title, the clipboard), and control characters. A program in a task may print any of them;
the logs keep them, and nothing that shows a line lets them through, except for colours.
"""

from __future__ import annotations

import re

__all__ = ["printable", "shown_line"]

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")

# Colours (in the group) may stay. Of the others a torn one goes as well: what follows it on the
# terminal would complete it.
_ALL_BUT_COLOURS = re.compile(
    r"\x1b(?:(\[[0-9;:]*m)|\[[0-?]*[ -/]*[@-~]?|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-Z\\^-~]?)"
)
_REDRAWN = re.compile(r"[\r\b]+")
_TAB, _ESCAPE = 9, 27
_CONTROL = {n: None for n in (*range(32), 127, *range(128, 160)) if n not in (_TAB, _ESCAPE)}


def printable(text: str) -> str:
    """Return text of several lines without colours, control characters and lone surrogates."""
    return _UNPRINTABLE.sub("", _ESCAPES.sub("", text.replace("\r\n", "\n")))


def shown_line(text: str) -> str:
    """Return what a terminal shows of a line in the end: with colours, without other escapes.

    Of a progress bar that is drawn over itself the last drawing is left.
    """
    if text.isprintable():
        return text
    parts = [part for part in _REDRAWN.split(text) if part]
    shown = parts[-1] if parts else ""
    if "\x1b" in shown:
        shown = _ALL_BUT_COLOURS.sub(lambda found: "\x1b" + found[1] if found[1] else "", shown)
        shown += "\x1b[0m"
    return shown.translate(_CONTROL)
