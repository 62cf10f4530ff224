"""Freeze a container, although runc now and then gives up.

With cgroup v1, runc asks the kernel again and again until all processes of a container are frozen.
On a busy machine it may give up ("unable to freeze"); it then thaws what it had frozen, so that the
request can be made again.
"""

from __future__ import annotations

from collections.abc import Callable

from docker.errors import APIError

ATTEMPTS = 5
"""Requests before the refusal counts. One refusal in some thousand pauses was seen, at load 10."""


def freeze(pause: Callable[[], None]) -> None:
    """Call `pause` until the container is frozen. Raises the engine's last refusal."""
    for attempt in range(ATTEMPTS):
        try:
            return pause()
        except APIError as error:
            if is_frozen(error):
                return None
            if not may_succeed_later(error) or attempt == ATTEMPTS - 1:
                raise


def is_frozen(refusal: APIError) -> bool:
    """Whether the engine refuses because the container is frozen already."""
    return "already paused" in str(refusal.explanation)


def may_succeed_later(refusal: APIError) -> bool:
    """Whether runc gave up, and nothing speaks against another attempt."""
    return "unable to freeze" in str(refusal.explanation)
