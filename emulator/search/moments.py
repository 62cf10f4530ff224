"""The moments of a sweep: the list of `--at` as a value (pure).

    steps 10..200 by 10, phase checkpoint, every write of *.pt, each rename, times 5s..60s by 5s

What is `every` call of a save becomes moments only when a save was recorded (`saves.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, get_args

from emulator.errors import UsageError, shown
from emulator.faults.spec import CALLS, Phase
from emulator.validation.limits import VARIANTS
from emulator.validation.units import parse_duration

KNOWN = (
    "each call of a save, every write of a save, each rename, every write of *.pt, "
    "steps 10..200 by 10, step 50, phase checkpoint, times 5s..60s by 5s, 40s"
)
_RANGE = re.compile(r"(\S+?)\s*\.\.\s*(\S+?)(?:\s+by\s+(\S+))?")
_CALL = re.compile(r"(?:every|each)\s+(\w+)(?:\s+of\s+(\S+))?(?:\s+of\s+a\s+save)?")
_OF_A_SAVE = re.compile(r"\s+of\s+a\s+save$")


ALL = "*"
"""The target of a moment at which all tasks are killed."""
ANY = "call"
"""A call of whichever kind."""
EACH_CALL = "each call of a save"
"""Unless it is said."""


@dataclass(frozen=True)
class Whole:
    """The newest save that was whole when a fault happened."""

    step: int
    earlier: int = 0
    """The step of the save before it; 0: there was none."""
    is_exact: bool = True
    """The step was reported; else it is the last that was seen before, about."""

    def is_newer_than(self, resumed: int) -> bool:
        """Return whether a training that went on from a step has gone on from an older one."""
        if self.is_exact:
            return resumed < self.step
        return 2 * resumed <= self.earlier + self.step


@dataclass(frozen=True)
class Moment:
    """When the faults of one run happen."""

    words: str
    """As tables call it."""
    at: dict[str, Any]
    """Its trigger, as a scenario has it."""
    target: str = ""
    """The task that the fault is on, or ALL; empty: the fault says it."""
    whole: Whole | None = None
    """The save that is whole then, where a run without a fault has shown it."""
    during: int | None = None
    """The last step that is made before it, if that was shown."""


@dataclass(frozen=True)
class Asked:
    """What `--at` asks for."""

    moments: tuple[Moment, ...] = ()
    """Those that are known without a run."""
    calls: tuple[CallsOfSave, ...] = ()


@dataclass(frozen=True)
class CallsOfSave:
    """Every call of a kind that a save makes."""

    kind: str
    """Of CALLS, or ANY."""
    of: str = field(default="*")
    """The files that are meant, as the trigger's `of`."""

    def means(self, call: str) -> bool:
        """Return whether a kind of call is meant."""
        return self.kind in (ANY, call)


def joined(at: str | Sequence[str]) -> str:
    """Return several lists of moments as one."""
    return at if isinstance(at, str) else ", ".join(at)


def parse(text: str) -> Asked:
    """Return what a list of moments asks for. Raises UsageError."""
    parts = [part.strip() for part in text.split(",")]
    if not any(parts):
        raise UsageError("--at has no moments.", f"For example: --at '{KNOWN}'.")
    moments: dict[str, Moment] = {}
    calls: dict[CallsOfSave, None] = {}
    for part in filter(None, parts):
        for one in _parsed(" ".join(part.split())):
            if isinstance(one, Moment):
                moments.setdefault(one.words, one)
            else:
                calls[one] = None
        if len(moments) > VARIANTS:
            raise UsageError(f"--at makes more than {VARIANTS:,} moments.", "Use a wider `by`.")
    return Asked(tuple(moments.values()), tuple(calls))


def _parsed(part: str) -> Iterator[Moment | CallsOfSave]:
    """Yield the moments of one entry of the list."""
    word, _, rest = part.partition(" ")
    if word in ("steps", "step") and rest:
        for step in _steps(rest, part):
            yield Moment(f"step {step}", {"step": step})
    elif word == "phase" and rest:
        if rest not in get_args(Phase):
            raise _unknown(part, f"phases are {', '.join(get_args(Phase))}")
        yield Moment(part, {"phase": rest})
    elif word in ("every", "each"):
        yield _calls(part)
    elif word in ("times", "time") and rest:
        yield from _times(rest, part)
    elif part[:1].isdigit():
        yield from _times(part, part)
    else:
        raise _unknown(part, f"known are: {KNOWN}")


def _calls(part: str) -> CallsOfSave:
    found = _CALL.fullmatch(_OF_A_SAVE.sub("", part))
    if found is None:
        raise _unknown(part, "for example `every write of *.pt` or `each rename`")
    if found[1] not in (ANY, *CALLS):
        raise _unknown(part, f"calls are {', '.join(CALLS)}; `{ANY}` is each of these")
    return CallsOfSave(found[1], found[2] or "*")


def _steps(text: str, part: str) -> Sequence[int]:
    if text.isdecimal():
        return [int(text)]
    found = _RANGE.fullmatch(text)
    if found is None or not all(one is None or one.isdecimal() for one in found.groups()):
        raise _unknown(part, "steps are numbers: `step 50`, `steps 10..200 by 10`")
    first, last, by = int(found[1]), int(found[2]), int(found[3] or 1)
    if last < first or not by:
        raise _unknown(part, "a range goes up, by 1 or more")
    if (last - first) // by >= VARIANTS:
        raise UsageError(f"--at makes more than {VARIANTS:,} moments.", "Use a wider `by`.")
    return range(first, last + 1, by)


def _times(text: str, part: str) -> Iterator[Moment]:
    hint = "times have a unit: `40s`, `times 5s..60s by 5s`"
    found = _RANGE.fullmatch(text)
    words = [text] if found is None else [found[1], found[2], found[3] or found[1]]
    try:
        times = [Decimal(str(parse_duration(word))) for word in words]
    except ValueError:
        raise _unknown(part, hint) from None
    if len(times) == 1:
        yield _at_time(times[0])
        return
    first, last, by = times
    if last < first or by <= 0:
        raise _unknown(part, "a range goes up, by more than 0s")
    if (last - first) / by >= VARIANTS:
        raise UsageError(f"--at makes more than {VARIANTS:,} moments.", "Use a wider `by`.")
    while first <= last:
        yield _at_time(first)
        first += by


def _at_time(seconds: Decimal) -> Moment:
    whole = seconds == seconds.to_integral_value()
    text = f"{int(seconds)}s" if whole else f"{float(seconds) * 1000:g}ms"
    return Moment(text, {"time": text})


def _unknown(part: str, known: str) -> UsageError:
    return UsageError(f"--at: {shown(part)!r} is no moment.", f"{known[0].upper()}{known[1:]}.")


def spread(moments: Sequence[Moment], most: int) -> list[Moment]:
    """Return at most so many of them, evenly spread, with the first and the last."""
    count = len(moments)
    if count <= most:
        return list(moments)
    if most == 1:
        return [moments[0]]
    return [moments[round(place * (count - 1) / (most - 1))] for place in range(most)]
