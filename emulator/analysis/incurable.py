"""What a program has died of that starting it again can't heal (pure).

A module that is not installed, a syntax error, a command or a file of the program that is not
there: each start would end the same way. Only what is printed last counts, because a program may
report such an error and go on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from emulator.analysis.failed_output import exceptions

_MODULE = re.compile(r"ModuleNotFoundError: No module named .+")
_SYNTAX = re.compile(r"(?:SyntaxError|IndentationError|TabError): .+")
_PLACE = re.compile(r'\s*File "([^"]+)", line \d+')
# `python train.py` and `python -m train`, of what is not there.
_PYTHON = re.compile(
    r"\S*python[\d.]*: (?:can't open file .+ \[Errno 2\] .+"
    r"|No module named [\w.]+|Error while finding module specification for .+)"
)
_SHELL = re.compile(r"\S.*(?:not found|No such file or directory)")
_OPENED = re.compile(r"\S+: \d+: (?:cannot open|can't open) .+")
_COMMAND_NOT_FOUND = 127
# torchrun raises it where one of its processes has failed, below what that has printed.
_LAUNCHER = re.compile(r"(?:\S+\.)?ChildFailedError:.*")
_OF_LAUNCHER = re.compile(r"(?:[EWI]\d{4} \d\d:\d\d:|\[?\d{4}-\d\d-\d\d )")
SIGNALLED = 128
"""Exit codes from here on are those of signals."""
PLACES = 6
"""Lines above a syntax error in which its file is."""


def incurable(output: Sequence[str], exit_code: int) -> str:
    """Return the line that says what a program has died of, if no restart heals that."""
    if not 0 < exit_code < SIGNALLED:
        return ""
    lines = _of_program([line.rstrip() for line in output if line.strip()])
    if not lines:
        return ""
    last = lines[-1].strip()
    if exit_code == _COMMAND_NOT_FOUND and _SHELL.fullmatch(last):
        return last
    if _PYTHON.fullmatch(last) or _OPENED.fullmatch(last):
        return last
    if found := _MODULE.search(last):
        # With its traceback: others print this line and go on.
        raised = exceptions(lines)
        return found[0] if raised and raised[-1].line == len(lines) - 1 else ""
    if found := _SYNTAX.search(last):
        places = [one[1] for line in lines[-PLACES:] if (one := _PLACE.search(line))]
        # In `<string>` and the like it is one of data.
        return found[0] if places and not places[-1].startswith("<") else ""
    return ""


def _of_program(lines: Sequence[str]) -> Sequence[str]:
    """Return the lines without those that torchrun prints about a process that has failed."""
    for one in exceptions(lines):
        if _LAUNCHER.search(lines[one.line]):
            end = one.header
            while end and _OF_LAUNCHER.match(lines[end - 1]):
                end -= 1
            return lines[:end]
    return lines
