"""Squeezing the memory of a container on an engine that has other things to do."""

from __future__ import annotations

from typing import Any

import pytest
import requests

from emulator.engines.docker.faults import BALLOON, oom_kill
from emulator.errors import EngineError

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
    "engine",
    [Engine(late=0), Engine(late=20), Engine(late=1e9, restarts=True)],
    ids=["at once", "a busy engine", "it runs again already"],
)
def test_a_task_that_the_kernel_has_killed_is_known_to_be_dead(engine: Any) -> None:
    oom_kill(engine, "worker-0", "c", LIMIT)
    assert engine.limits[-1] == LIMIT


def test_a_task_that_survives_is_an_error_and_its_limit_is_restored() -> None:
    engine: Any = Engine(late=1e9)
    with pytest.raises(EngineError, match="did not kill worker-0"):
        oom_kill(engine, "worker-0", "c", LIMIT)
    assert engine.limits[-1] == LIMIT
