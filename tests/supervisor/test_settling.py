"""What an engine is still making for a run whose emulator was just killed."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from emulator.engines.docker import DockerEngine
from emulator.engines.docker.container_request import FOLDER, HOST, RUN
from emulator.planning.planner import make_plan
from emulator.record.reader import Record
from emulator.record.writer import RunWriter
from emulator.runtime.clock import RealClock
from emulator.runtime.host import this_host
from emulator.scenario.loader import parse
from emulator.supervisor.cleanup import SETTLE_TIMEOUT, settles_at
from tests.conftest import Emulate, end, left, own, wait_for_line
from tests.histories import SITE, an_event

ID = own("settling")
TEXT = "name: settling\nframework: none\nprogram: {command: [a]}\ncluster: {worker: 1}\n"
Written = list[tuple[str, str, dict[str, Any]]]
RAN: Written = [("run", "", {}), ("prepared", "", {}), ("start", "worker-0", {"fresh": False})]


def killed(out: Path, written: Written) -> Record:
    """Return the record of a run whose emulator was killed after these events."""
    plan = make_plan(parse(TEXT), ID, SITE).model_copy(update={"engine": "docker"})
    folder = RunWriter(out / ID, plan, TEXT, RealClock())
    for event, task, data in written:
        folder.write(an_event(event, task, **data))
    folder.close()
    return Record(folder.path)


@pytest.mark.parametrize(
    ("written", "making"),
    [
        ([], True),  # the network was asked for, or is about to be
        (RAN[:1], True),
        (RAN[:2], False),
        (RAN, True),
        ([*RAN, ("running", "worker-0", {"id": "x"})], False),
    ],
)
def test_what_was_asked_for_and_not_answered_may_still_come(
    tmp_path: Path, written: Written, making: bool
) -> None:
    record = killed(tmp_path, written)
    assert bool(settles_at(record)) == making
    long_ago = settles_at(record) - 2 * SETTLE_TIMEOUT if making else 0.0
    for path in record.path.glob("*.json*"):
        os.utime(path, (long_ago, long_ago))
    assert settles_at(Record(record.path)) == 0.0
    ended = killed(tmp_path / "ended", written)
    (ended.path / "summary.json").write_text("{}")  # it has waited itself
    assert settles_at(ended) == 0.0


@pytest.mark.docker
@pytest.mark.parametrize("command", [["clean", "--engine", "docker"], ["down", ID]])
def test_a_container_that_comes_late_is_removed(
    emulate: Emulate, docker_engine: DockerEngine, tiny_image: str, command: list[str]
) -> None:
    """The engine creates it when the emulator that had asked for it is dead already."""
    record = killed(emulate.out, RAN)
    later = time.time() + 15  # so that it waits as much longer: a busy machine creates it slowly
    os.utime(record.path / "history.jsonl", (later, later))
    process = emulate.start(*command, "--out", emulate.out)
    wait_for_line(process, "the engine may still be making")
    labels = {RUN: ID, FOLDER: str(record.path), HOST: this_host()}
    docker_engine.api.create_container(tiny_image, "true", name=f"{ID}-worker-0", labels=labels)
    process.communicate(timeout=300)
    assert process.returncode == 0
    assert left("docker", ID) == []


def test_the_wait_is_ended_by_a_signal(emulate: Emulate) -> None:
    killed(emulate.out, RAN)
    process = emulate.start("clean", "--engine", "process", "--out", emulate.out)
    wait_for_line(process, "the engine may still be making")
    done = end(process, signal.SIGTERM)
    assert done.returncode == 130
    assert "interrupted by SIGTERM" in done.stderr
