"""Tasks that end before training, on real engines."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path

import pytest

from emulator.engines import choose
from emulator.execution import up
from emulator.record.events import FaultEvent, Restart, TaskExit, TaskStart
from emulator.record.reader import Record
from emulator.results import Result
from emulator.scenario.loader import parse
from tests.conftest import Emulate, wait_for_line

pytestmark = pytest.mark.slow

TEXT = """\
name: prepared
framework: none
image: {image}
program:
  command:
    - sh
    - -c
    - |
      cat "$EMULATOR_SHARED"/part-*
      echo '{{"emulate": "step", "step": 1}}'
cluster:
  ingest:
    replicas: 2
    before: training
    command:
      - sh
      - -c
      - |
        cd "$EMULATOR_SHARED"
        sleep {seconds}
        echo made by ${{task}} > part-${{index}}
        test ${{index}} = 1 || test -e failed || {{ touch failed; exit 3; }}
  worker: 2
success: all-workers
restart: {{policy: on-failure, backoff: 0.1s}}
timeout: 5m
"""
FAULT = """\
faults:
  - {preempt: ingest-1, at: 0.1s, grace: 0s, down: 0.2s}
"""


def check(folder: Path, *, preempted: int) -> None:
    """Both ingest tasks have succeeded before a worker was started, which found what they made."""
    record = Record(folder)
    history = record.history
    done = [e.n for e in history if isinstance(e, TaskExit) and e.task.startswith("ingest")]
    starts = [(e.n, e.task) for e in history if isinstance(e, TaskStart)]
    assert len(done) == 3 + preempted  # one fails once
    assert [task for n, task in starts if n > max(done)] == ["worker-0", "worker-1"]
    assert [task for _, task in starts].count("worker-0") == 1
    assert [e.task for e in history if isinstance(e, Restart)] == ["ingest-0"]
    stages = [e.stage for e in history if isinstance(e, FaultEvent)]
    assert stages == ["triggered", "applied", "healed"] * preempted
    for worker in ("worker-0", "worker-1"):
        assert record.log(worker)[:2] == ["made by ingest-0", "made by ingest-1"]


@pytest.mark.parametrize("engine", ["process", pytest.param("docker", marks=pytest.mark.docker)])
def test_training_begins_when_the_data_is_there(
    tmp_path: Path, engine: str, request: pytest.FixtureRequest
) -> None:
    image = request.getfixturevalue("tiny_image") if engine == "docker" else "none"
    text = TEXT.format(image=image, seconds=6) + FAULT  # so long that the fault is in time
    with contextlib.closing(choose(engine)) as chosen:
        result: Result = up(parse(text), chosen, text=text, out=tmp_path, reports=False)
        assert chosen.find(result.run_id) == []
    result.check()
    assert result.end.reason == "all tasks that count finished"
    check(result.folder, preempted=1)


@pytest.mark.docker
def test_a_take_over_before_training_begins_it_when_the_data_is_there(
    emulate: Emulate, tmp_path: Path, tiny_image: str
) -> None:
    scenario = tmp_path / "prepared.yaml"
    scenario.write_text(TEXT.format(image=tiny_image, seconds=3))
    first = emulate.start("up", scenario, "--json", "--out", emulate.out, "--engine", "docker")
    wait_for_line(first, "all tasks before training are running")
    first.send_signal(signal.SIGKILL)
    first.wait()
    (folder,) = emulate.out.iterdir()
    done = emulate("attach", folder.name, "--out", emulate.out)
    assert done.returncode == 0, done.stderr
    check(folder, preempted=0)
