"""Init steps of a task, as an engine that only notes what it is told sees them."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import requests
from docker.errors import APIError

from emulator.engines.base import Exited
from emulator.engines.docker.task_groups import TaskGroups
from emulator.errors import EngineError
from tests.engines.docker.test_container_request import COMMON, a_plan

pytestmark = pytest.mark.usefixtures("in_a_folder")

TASKS = """\
framework: none
cluster:
  w: {init: [{name: a, command: [x]}, {name: b, command: [x]}]}
  v: {mounts: {/d: {scratch: d}}}
"""


class Noting:
    """The engine's API and what reads the output, with a program's ends as they are given."""

    def __init__(self) -> None:
        self.done: list[tuple[str, ...]] = []
        self.ends: dict[str, list[int]] = {}
        self.followed: dict[str, Callable[[Exited], None]] = {}
        self.refuses = requests.Response()
        self.volumes: dict[str, dict[str, str]] = {}

    def create_container_from_config(self, body: dict[str, Any], name: str) -> dict[str, str]:
        self.done.append(("create", name, body["Labels"]["emulator.disk"]))
        return {"Id": name}

    def put_archive(self, container: str, path: str, data: bytes) -> None:
        assert path == "/"

    def start(self, container: str) -> None:
        self.done.append(("start", container))

    def kill(self, container: str, signal: str) -> None:
        if self.refuses.status_code:
            raise APIError("no", self.refuses)
        self.done.append((signal, container))
        name = container.removeprefix("run-1-")
        if name in self.followed and name not in self.ends:
            self.followed[name](Exited(name, 2.0, 143))

    def remove_container(self, container: str, **options: bool) -> None:
        self.done.append(("remove", container))

    def create_volume(self, name: str, labels: dict[str, str]) -> dict[str, dict[str, str]]:
        return {"Labels": self.volumes.setdefault(name, labels)}

    def inspect_volume(self, name: str) -> dict[str, dict[str, str]]:
        return {"Labels": self.volumes[name]}

    def remove_volume(self, name: str) -> None:
        del self.volumes[name]

    def follow(
        self, name: str, container: str, then: Callable[[Exited], None], *, drawings: bool
    ) -> None:
        assert (container, drawings) == (f"run-1-{name}", False)
        self.followed[name] = then
        if self.ends.get(name):
            then(Exited(name, 1.0, self.ends[name].pop(0)))

    def forget(self, name: str) -> None:
        self.done.append(("forget", name))

    def expect_kill(self, container: str) -> None:
        self.done.append(("expected", container))

    def told(self) -> list[str]:
        done, self.done = self.done, []
        return [" ".join(one).replace("run-1-", "") for one in done]


@pytest.fixture
def engine() -> Noting:
    return Noting()


@pytest.fixture
def pods(engine: Noting) -> TaskGroups:
    both: Any = engine
    return TaskGroups(both, both, a_plan(TASKS, Path()), COMMON)


def initialised(pods: TaskGroups, engine: Noting, *codes: int, told: int = 0) -> int | None:
    """Run the init steps of w-0, the second with these ends; return its exit code, if it ended."""
    task = a_plan(TASKS).task("w-0")
    engine.ends = {"w-0.a": [0], "w-0.b": list(codes)}
    with pods.starting(task) as start:
        start.told = told
        end = pods.initialise(task, start, lambda name: "")
    return end.exit_code if end else None


def test_a_step_that_has_succeeded_is_not_repeated_on_the_same_disk(
    pods: TaskGroups, engine: Noting
) -> None:
    ended = partial(initialised, pods, engine)

    def step(name: str, disk: int = 1) -> list[str]:
        return [f"create {name} {disk}", f"start {name}", f"remove {name}", f"forget {name}"]

    assert (ended(7), engine.told()) == (7, [*step("w-0.a"), *step("w-0.b")])
    assert (ended(0), engine.told()) == (None, step("w-0.b"))
    assert (ended(), engine.told()) == (None, [])
    assert (ended(told=15), engine.told()) == (143, [])  # before its own container runs
    assert (pods.remove(a_plan(TASKS).task("w-0")), pods.disk("w-0")) == (0, 2)
    assert (ended(0), engine.told()) == (None, [*step("w-0.a", 2), *step("w-0.b", 2)])


def test_a_signal_reaches_the_step_that_runs_and_no_other_begins(
    pods: TaskGroups, engine: Noting
) -> None:
    assert not pods.signal("w-0", signal.SIGTERM)
    with pods.starting(a_plan(TASKS).task("w-0")) as start:
        assert pods.signal("w-0", signal.SIGTERM)
        assert (start.told, engine.told()) == (signal.SIGTERM, [])
        start.container = "c"
        assert pods.signal("w-0", signal.SIGTERM)
        assert pods.signal("w-0", signal.SIGKILL)
        assert engine.told() == ["SIGTERM c", "expected c", "SIGKILL c"]
    assert (initialised(pods, engine, told=signal.SIGTERM), engine.told()) == (143, [])
    pods.close()
    assert (initialised(pods, engine), engine.told()) == (137, [])


def test_a_signal_to_a_container_that_has_just_ended_is_no_error(
    pods: TaskGroups, engine: Noting
) -> None:
    with pods.starting(a_plan(TASKS).task("w-0")) as start:
        start.container = "c"
        for status in (404, 409):
            engine.refuses.status_code = status
            assert pods.signal("w-0", signal.SIGTERM)
        engine.refuses.status_code = 500
        with pytest.raises(APIError):
            pods.signal("w-0", signal.SIGTERM)


def waits(what: Callable[[], None], until: Callable[[], object]) -> None:
    """Do something on another thread, which must not end before `until` was called."""
    thread = threading.Thread(target=what)
    thread.start()
    thread.join(0.1)
    assert thread.is_alive()
    until()
    thread.join(300)
    assert not thread.is_alive()


def test_the_end_waits_for_what_is_being_made(pods: TaskGroups) -> None:
    with ExitStack() as making:
        assert making.enter_context(pods.making())
        waits(pods.close, making.close)


def test_each_disk_of_a_task_has_its_own_scratch_volume(pods: TaskGroups, engine: Noting) -> None:
    task = a_plan(TASKS).task("v-0")
    pods.make_scratches(task)
    assert engine.volumes == {"run-1-v-0.d.1": {**COMMON, "emulator.disk": "1"}}
    assert (pods.remove(task), engine.volumes) == (1, {})
    engine.volumes = {"run-1-v-0.d.2": {}}
    with pytest.raises(EngineError, match=r"has a volume run-1-v-0\.d\.2 already"):
        pods.make_scratches(task)
    assert (pods.remove(task), len(engine.volumes)) == (0, 1)  # it is not the run's
    pods.close()
    pods.make_scratches(task)
    assert len(engine.volumes) == 1


def test_what_another_supervisor_has_made_is_taken_over(pods: TaskGroups, engine: Noting) -> None:
    def adopt(name: str, **labels: str) -> None:
        shown = {f"emulator.{key}": value for key, value in labels.items()}
        pods.adopt({"Id": f"run-1-{name}", "Labels": shown})

    adopt("w-0", task="w-0", disk="3")
    adopt("w-0.a", part="w-0.a", disk="3")
    adopt("v-0", task="v-0")
    assert (pods.disk("w-0"), pods.disk("v-0"), engine.told()) == (3, 1, ["remove w-0.a"])
