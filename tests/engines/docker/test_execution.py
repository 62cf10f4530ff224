"""What runs a command in a container: the docker command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from emulator.engines.docker.exec import command_line, docker_exec
from emulator.errors import EngineError, UsageError
from emulator.planning.planner import make_plan
from emulator.scenario.loader import parse
from tests.planning.test_plan import SITE

PLAN = make_plan(
    parse("{name: t, program: {command: [train]}, cluster: {worker: {env: {A: '1', B: '2'}}}}"),
    "run-1",
    SITE,
)


class Api:
    """An engine with one container, or with none."""

    def __init__(self, *env: str, runs: bool = True) -> None:
        self._env, self._runs = env, runs

    def containers(self, filters: Any) -> list[dict[str, str]]:
        assert filters == {
            "label": ["emulator.run=run-1", "emulator.task=worker-0"],
            "status": "running",
        }
        return [{"Id": "c0"}] if self._runs else []

    def inspect_container(self, container: str) -> dict[str, Any]:
        return {"Config": {"Env": list(self._env)}}


def asked(api: Api, *, terminal: bool = False) -> Sequence[str]:
    api_of_docker: Any = api
    return command_line(api_of_docker, PLAN, "worker-0", ["ls"], terminal=terminal).arguments


def test_a_command_gets_what_its_container_lacks_and_a_terminal_where_there_is_one() -> None:
    (env,) = (dict(task.env) for task in PLAN.tasks)
    all_but = [f"{name}={value}" for name, value in env.items() if name != "B"]
    assert asked(Api(*all_but)) == ["docker", "exec", "-i", "-e", "B=2", "c0", "ls"]
    found = docker_exec("c0", ["sh", "-c", "ls -l"], [], terminal=True)
    assert found == ["docker", "exec", "-it", "c0", "sh", "-c", "ls -l"]
    words = " ".join(asked(Api(*all_but, "B=3"), terminal=True))
    assert words == "docker exec -it -e B=2 c0 ls"


def test_it_takes_a_container_that_runs_and_the_docker_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="worker-0 of run-1 is not running"):
        asked(Api(runs=False))
    with pytest.raises(EngineError, match="needs the command docker, which is not on"):
        asked(Api())
