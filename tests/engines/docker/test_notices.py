"""Each task on a real engine asks at the addresses that users' code has, and is told of its own."""

from __future__ import annotations

import contextlib
import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from emulator.engines.base import Line, ResumePoint
from emulator.engines.docker import DockerEngine
from emulator.errors import EngineError, NotRunning
from emulator.faults.kinds import FAULTS
from emulator.faults.platforms.notices import Notice
from emulator.scenario.schema import Scenario
from tests.conftest import left
from tests.engines.inbox import EachLine
from tests.engines.stage import Stage, shells, staged
from tests.faults.platforms import clients
from tests.faults.platforms.told import Taken

pytestmark = pytest.mark.docker
TASKS = ("worker-0", "worker-1")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The clients and what they need: Python alone is in the image."""
    folder = tmp_path / "program"
    folder.mkdir()
    shutil.copy(clients.__file__, folder)
    for name in ("ec2_metadata", "urllib3"):
        spec = find_spec(name)
        assert spec is not None
        assert spec.submodule_search_locations
        shutil.copytree(
            spec.submodule_search_locations[0],
            folder / name,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    return folder


def scenario(image: str, program: Path, internet: bool) -> Scenario:
    asks = "at-once" if internet else "soon"
    platforms = ("gce", "ec2", "azure")
    return Scenario.model_validate(
        {
            "name": "notices",
            "framework": "none",
            "image": image,
            "program": {"source": program, "command": ["python3", "clients.py", asks]},
            "cluster": {"worker": 2},
            "network": {"internet": internet},
            "faults": [{"taken": "worker-0", "metadata": one, "at": "1h"} for one in platforms],
        }
    )


def until(s: Stage, task: str, **wanted: Any) -> dict[str, Any]:
    """Wait until a task is told this; return all that it is told then."""

    def holds(line: str) -> bool:
        assert "error" not in line
        told: dict[str, Any] = json.loads(line)
        return all(told[key] == value for key, value in wanted.items())

    found: dict[str, Any] = json.loads(s.until_found(task, holds))
    return found


def notice(platform: str, action: str, task: str = "worker-0") -> Notice:
    return Notice(platform, action, task, 1_700_000_000.0, 1_700_000_120.0)


@pytest.mark.parametrize("internet", [True, False])
def test_a_task_is_told_of_its_own_end_and_its_replacement_of_none(
    internet: bool,
    program: Path,
    tiny_image: str,
    docker_engine: DockerEngine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(FAULTS, Taken.kind, Taken)
    asked = scenario(tiny_image, program, internet)
    docker_engine.ensure_images(asked, lambda line: None)
    engine = DockerEngine()
    with staged(engine, asked, tmp_path) as s:
        with pytest.raises(NotRunning):
            engine.announce(notice("gce", "preempt"))
        for task in TASKS:
            s.start(task)
        nothing: dict[str, Any] = {"azure": [], "gce": "FALSE", "ec2": None}
        first = {task: until(s, task, **nothing) for task in TASKS}
        assert len({one["id"] for one in first.values()}) == 2

        engine.announce(notice("ec2", "terminate"))
        engine.announce(notice("gce", "preempt"))
        engine.announce(notice("azure", "preempt"))  # the last: who sees it could see the others
        own = until(s, "worker-0", azure=[["worker-0"]], gce="TRUE")
        assert own["ec2"] == ["terminate", 1_700_000_120.0]
        assert own["id"] == first["worker-0"]["id"]
        until(s, "worker-1", **{**nothing, "azure": [["worker-0"]]})

        engine.signal("worker-0", 9)
        s.until_exit("worker-0")
        engine.remove("worker-0")
        s.start("worker-0")
        other = until(s, "worker-0", **nothing)
        assert other["id"] not in {one["id"] for one in first.values()}
        until(s, "worker-1", **nothing)
        assert f"container {s.plan.run_id}.metadata" in left("docker", s.plan.run_id)


def test_the_next_supervisor_finds_the_server_and_tells_again(
    program: Path,
    tiny_image: str,
    docker_engine: DockerEngine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(FAULTS, Taken.kind, Taken)
    asked = scenario(tiny_image, program, internet=True)
    docker_engine.ensure_images(asked, lambda line: None)
    with staged(DockerEngine(), asked, tmp_path) as s:
        s.start("worker-0")
        s.engine.announce(notice("ec2", "terminate"))  # type: ignore[attr-defined]
        own = until(s, "worker-0", ec2=["terminate", 1_700_000_120.0])
        with contextlib.closing(DockerEngine()) as second:
            inbox = EachLine()
            lives = {task: ResumePoint([], 0.0) for task in TASKS}
            second.reattach(s.plan, s.folder, inbox, lives)
            second.announce(notice("ec2", "terminate"))
            second.announce(notice("gce", "preempt"))
            until(s, "worker-0", gce="TRUE", ec2=own["ec2"], id=own["id"])
            # The first life's replacement is the second machine, whoever starts it.
            second.signal("worker-0", 9)
            s.until_exit("worker-0")
            second.remove("worker-0")
            second.start(s.plan.task("worker-0"))
            while not isinstance(line := inbox.get(timeout=300), Line) or own["id"] in line.text:
                pass
            assert json.loads(line.text)["gce"] == "FALSE"


def test_a_run_without_such_a_fault_has_no_server_and_says_so(
    tiny_image: str, docker_engine: DockerEngine, tmp_path: Path
) -> None:
    engine = DockerEngine()
    with staged(engine, shells({"worker": "echo up; sleep 1000"}, tiny_image), tmp_path) as s:
        s.start(until="up")
        with pytest.raises(EngineError, match="the run has no metadata server"):
            engine.announce(notice("gce", "preempt"))
        engine.withdraw("worker-0")
        assert not [one for one in left("docker", s.plan.run_id) if "metadata" in one]
