"""Remove escape sequences from program output before it is shown (pure).

ECMA-48 defines the codes that control a terminal: CSI sequences (colours, cursor), OSC sequences
(window title, clipboard), and control characters. A task may print any of them. Logs keep them all;
on a terminal only colours are kept.
"""

from __future__ import annotations

import re

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")

# Colours (in the group) are kept. Incomplete sequences are removed too: the text after them would
# complete them on the terminal.
_ALL_BUT_COLOURS = re.compile(
    r"\x1b(?:(\[[0-9;:]*m)|\[[0-?]*[ -/]*[@-~]?|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-Z\\^-~]?)"
)
_REDRAWN = re.compile(r"[\r\b]+")
_TAB, _ESCAPE = 9, 27
_CONTROL = {n: None for n in (*range(32), 127, *range(128, 160)) if n not in (_TAB, _ESCAPE)}


def printable(text: str) -> str:
    """Return the text without escape sequences, control characters and lone surrogates."""
    return _UNPRINTABLE.sub("", _ESCAPES.sub("", text))


def shown_line(text: str) -> str:
    """Return the line as a terminal finally shows it: with colours, without other escapes.

    Of a redrawn progress bar, only the last state is left.
    """
    if text.isprintable():
        return text
    parts = [part for part in _REDRAWN.split(text) if part]
    shown = parts[-1] if parts else ""
    if "\x1b" in shown:
        shown = _ALL_BUT_COLOURS.sub(lambda match: "\x1b" + match[1] if match[1] else "", shown)
        shown += "\x1b[0m"
    return shown.translate(_CONTROL)
