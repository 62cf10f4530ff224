"""A freeze that runc gave up is asked for again (pure: no engine answers here)."""

from __future__ import annotations

import pytest
from docker.errors import APIError

from emulator.engines.docker.freezing import ATTEMPTS, freeze, is_awake

GAVE_UP = "Cannot pause container 5ce3: OCI runtime pause failed: unable to freeze: unknown"
"""As an engine said it on a busy machine."""


class Container:
    """Refuses to be frozen with these sentences, one a request, and then is frozen."""

    def __init__(self, *refusals: str) -> None:
        self.refusals = list(refusals)
        self.requests = 0

    def pause(self) -> None:
        self.requests += 1
        if self.refusals:
            raise APIError("500 Server Error", explanation=self.refusals.pop(0))


def test_a_freeze_that_was_given_up_is_asked_for_again() -> None:
    container = Container(GAVE_UP, GAVE_UP)
    freeze(container.pause)
    assert container.requests == 3


def test_it_is_refused_when_it_is_given_up_every_time() -> None:
    container = Container(*[GAVE_UP] * ATTEMPTS)
    with pytest.raises(APIError, match="500"):
        freeze(container.pause)
    assert container.requests == ATTEMPTS


def test_another_refusal_counts_at_once() -> None:
    container = Container("Container 5ce3 is not running")
    with pytest.raises(APIError):
        freeze(container.pause)
    assert container.requests == 1


def test_what_is_frozen_already_is_frozen() -> None:
    container = Container(GAVE_UP, "Container 5ce3 is already paused")
    freeze(container.pause)
    assert container.requests == 2


@pytest.mark.parametrize(
    "refusal",
    [
        # Docker 20.10, of a container that a signal sent while it was frozen has just ended.
        "Cannot unpause container 01c5: cannot resume a stopped container: unknown",
        "Container 01c5 is not paused",
    ],
)
def test_what_is_not_frozen_need_not_be_thawed(refusal: str) -> None:
    assert is_awake(APIError("500 Server Error", explanation=refusal))


def test_another_refusal_to_thaw_counts() -> None:
    refusal = "Cannot unpause container 01c5: freezer: read-only file system"
    assert not is_awake(APIError("500 Server Error", explanation=refusal))
