"""Freezing and squeezing containers, asked of engines that have other things to do."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import requests
from docker.errors import APIError

from emulator.engines.docker.faults import ATTEMPTS, BALLOON, freeze, is_awake, oom_kill
from emulator.errors import EngineError

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
        # The same, of one that goes on: the signal has thawed it.
        ("Cannot unpause container 01c5: cannot resume a running process: unknown", True),
        ("Container 01c5 is not paused", True),
        ("Cannot unpause container 01c5: freezer: read-only file system", False),
    ],
)
def test_what_is_not_frozen_need_not_be_thawed(refusal: str, awake: bool) -> None:
    assert is_awake(APIError("500 Server Error", explanation=refusal)) is awake


# --- Memory ---------------------------------------------------------------------------------------

LIMIT = 2**28


class Engine:
    """Reports the exit of a container some seconds late, or its next start before that."""

    def __init__(self, late: float, restarts: bool = False) -> None:
        self.limits: list[int] = []
        self._late, self._restarts = late, restarts
        self._starts = 1

    def exec_create(self, container: str, command: list[str], **rest: Any) -> dict[str, Any]:
        return {"Id": command[-1]}

    def exec_start(self, script: str) -> bytes:
        if script == BALLOON and self._restarts:
            self._starts += 1
        return b"1000"

    def inspect_container(self, container: str) -> dict[str, Any]:
        return {"State": {"StartedAt": f"start {self._starts}"}}

    def update_container(self, container: str, mem_limit: int, memswap_limit: int) -> None:
        self.limits.append(mem_limit)

    def wait(self, container: str, timeout: float) -> None:
        if timeout < self._late:
            raise requests.ReadTimeout


@pytest.mark.parametrize(
    ("engine", "dies"),
    [
        (Engine(late=0), True),
        (Engine(late=20), True),  # it is busy
        (Engine(late=1e9, restarts=True), True),  # it runs again already
        (Engine(late=1e9), False),
    ],
)
def test_a_task_that_survives_is_an_error_and_its_limit_is_restored(
    engine: Any, dies: bool
) -> None:
    survives = pytest.raises(EngineError, match="did not kill worker-0")
    with contextlib.nullcontext() if dies else survives:
        oom_kill(engine, "worker-0", "c", LIMIT)
    assert engine.limits[-1] == LIMIT
