"""A freeze that runc gave up is asked for again (pure: no engine answers here)."""

from __future__ import annotations

import contextlib

import pytest
from docker.errors import APIError

from emulator.engines.docker.faults import ATTEMPTS, freeze, is_awake

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


@pytest.mark.parametrize(
    ("refusals", "requests", "is_refused"),
    [
        ([GAVE_UP, GAVE_UP], 3, False),  # it is asked for again,
        ([GAVE_UP] * ATTEMPTS, ATTEMPTS, True),  # and not for ever
        (["Container 5ce3 is not running"], 1, True),  # which counts at once
        ([GAVE_UP, "Container 5ce3 is already paused"], 2, False),
    ],
)
def test_a_freeze_that_was_given_up_is_asked_for_again(
    refusals: list[str], requests: int, is_refused: bool
) -> None:
    container = Container(*refusals)
    with pytest.raises(APIError, match="500") if is_refused else contextlib.nullcontext():
        freeze(container.pause)
    assert container.requests == requests


@pytest.mark.parametrize(
    ("refusal", "awake"),
    [
        # Docker 20.10, of a container that a signal sent while it was frozen has just ended.
        ("Cannot unpause container 01c5: cannot resume a stopped container: unknown", True),
        ("Container 01c5 is not paused", True),
        ("Cannot unpause container 01c5: freezer: read-only file system", False),
    ],
)
def test_what_is_not_frozen_need_not_be_thawed(refusal: str, awake: bool) -> None:
    assert is_awake(APIError("500 Server Error", explanation=refusal)) is awake
