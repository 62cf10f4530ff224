"""Which tasks a name or glob means, and how many things a fault does (pure)."""

from __future__ import annotations

import fnmatch
import functools
import re
from collections import Counter
from collections.abc import Callable, Sequence

from emulator.limits import GLOBS
from emulator.scenario.strikes import Fault, Strike

__all__ = ["is_glob", "link_count", "matches", "strike_count"]


@functools.lru_cache(maxsize=GLOBS)
def _glob(pattern: str) -> Callable[[str], object]:
    """Return what says whether a glob means a task; fnmatch would compile it again and again."""
    return re.compile(fnmatch.translate(pattern)).match


def is_glob(pattern: str) -> bool:
    """Say whether a text may mean several tasks."""
    return any(char in pattern for char in "*?[")


def matches(pattern: str, tasks: Sequence[str]) -> list[str]:
    """Return the tasks that a name or glob means."""
    if not is_glob(pattern):
        return [pattern] if pattern in tasks else []
    means = _glob(pattern)
    return [task for task in tasks if means(task)]


def strike_count(fault: Fault, tasks: Sequence[str]) -> int:
    """Return how many strikes a fault makes at most: as many as tasks are struck."""
    if fault.trace is not None:
        rows = Counter(row.target for row in fault.trace)
        return sum(times * len(matches(target, tasks)) for target, times in rows.items())
    if fault.random is not None:
        return fault.max
    return 1 if fault.kind in ("partition", "shape") else len(matches(fault.target, tasks))


def link_count(strike: Strike, tasks: Sequence[str]) -> int:
    """Return between how many ordered pairs of tasks a strike changes the network, at most."""
    if strike.partition is not None:
        groups = [sum(len(matches(name, tasks)) for name in names) for names in strike.partition]
        apart = sum(groups) ** 2 - sum(size**2 for size in groups)
        return groups[0] * sum(groups[1:]) if strike.oneway else apart
    if strike.shape is None:
        return 0
    towards = len(matches(strike.to, tasks)) if strike.to else len(tasks)
    return len(matches(strike.shape, tasks)) * towards * (1 if strike.oneway else 2)
