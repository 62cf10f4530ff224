"""How a kubelet starts a container again in its pod: later each time (pure).

Source: kubernetes/pkg/kubelet, doBackOff. A restart after a long run, or in a new pod, is at once.
"""

from __future__ import annotations

from collections.abc import Iterable

from emulator.record.timeline import Incarnation
from emulator.scenario.restart import Restart
from emulator.supervisor.restart_policy import BACKOFF_CEILING

BACKOFF = 10.0
"""Seconds before the second restart in a row; the first is at once."""
RESET = 600.0
"""Seconds after which a container that ran is restarted at once again."""


def crashes_after(crashes: int, ran: float) -> int:
    """Return the restarts in a row that count after the container has run for some seconds."""
    return 0 if ran >= RESET else crashes


def crashes_of(incarnations: Iterable[Incarnation]) -> int:
    """Return the restarts in a row of a task's latest pod, by its history."""
    crashes = 0
    for one in incarnations:
        if one.start is not None and one.start.fresh:
            crashes = 0
        if one.exit is not None:
            ran = one.exit.wall - (one.start.wall if one.start else 0.0)
            crashes = crashes_after(crashes, ran)
        if one.restart is not None:
            crashes += 1
    return crashes


def crash_delay(crashes: int, restart: Restart) -> float:
    """Return the seconds that the kubelet waits: none, then the backoff, then twice that."""
    if crashes == 0:
        return 0.0
    first = BACKOFF if restart.backoff is None else restart.backoff
    return min(first * 2.0 ** min(crashes - 1, 64), BACKOFF_CEILING)
