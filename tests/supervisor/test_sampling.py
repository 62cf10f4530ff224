"""Sampling on the manual clock: at its interval, without delaying the run."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import pytest

from emulator.engines.memory import MemoryEngine, Script
from emulator.engines.process import ProcessEngine
from emulator.errors import EngineError, RecordError
from emulator.metrics.catalog import GpuUsage, Usage
from emulator.metrics.gpu import Gpu, GpuInventory
from emulator.metrics.samples import Sample, series
from emulator.planning.requested import RunOptions
from emulator.record.events import fields_of
from emulator.record.reader import Record
from emulator.results import Result, RunCallbacks
from emulator.runtime.clock import AtOnce, ManualClock
from emulator.session.run import up
from emulator.supervisor import watchdog
from tests.asked import asked
from tests.supervisor.in_memory import BASE, SERVES, Job, run_on


def run(
    tmp_path: Path, engine: MemoryEngine, extra: str = "cluster: {worker: 1}\n"
) -> tuple[Result, list[Sample]]:
    heard: list[Sample] = []
    callbacks = RunCallbacks(sample=heard.append)
    return run_on(engine, tmp_path, extra, callbacks=callbacks), heard


def test_every_task_is_sampled_at_the_interval_while_it_runs(tmp_path: Path) -> None:
    scripts = {
        "worker-0": Script(exits_at=10.5, cpus=0.5, memory=100),
        "worker-1": Script(exits_at=4.5, cpus=2.0),
    }
    engine = MemoryEngine(ManualClock(), scripts, measured=True)
    extra = "cluster: {worker: 2}\nsuccess: all-workers\nmetrics: {interval: 2s}\n"
    result, heard = run(tmp_path, engine, extra)
    samples = Record(result.folder).samples
    assert list(samples) == heard
    assert [sample.t for sample in samples] == [2, 4, 6, 8, 10]
    both, one = ["worker-0", "worker-1"], ["worker-0"]
    assert [sorted(sample.tasks) for sample in samples] == [both, both, one, one, one]
    assert [rates.cpu for _, rates in series(samples, "worker-0")][1:] == [0.5] * 4
    assert samples[0].tasks["worker-1"] == Usage(4.0, 0, processes=1)


def test_the_history_says_once_what_is_sampled(tmp_path: Path) -> None:
    engine = MemoryEngine(ManualClock(), {"*": Script(exits_at=5)}, measured=True)
    result, _ = run(tmp_path, engine)
    (started,) = [e for e in Record(result.folder).history if e.event == "sampling"]
    assert fields_of(started)["interval"] == 1.0
    assert set(fields_of(started)) >= {"gpus", "driver", "why_no_gpus"}
    assert bool(fields_of(started)["gpus"]) != bool(fields_of(started)["why_no_gpus"])


def test_a_run_that_ends_before_the_first_moment_has_none(tmp_path: Path) -> None:
    engine = MemoryEngine(ManualClock(), {"*": Script(exits_at=0.5)}, measured=True)
    result, heard = run(tmp_path, engine)
    assert result.exit_code == 0
    assert heard == []
    assert Record(result.folder).samples == ()


class Failing(MemoryEngine):
    """Can't measure from the second moment to the fourth."""

    asked = 0
    error: Callable[[int], Exception] = staticmethod(lambda moment: EngineError("It can't."))

    def usage(self) -> Mapping[str, Usage]:
        self.asked += 1
        if 2 <= self.asked <= 4:
            raise self.error(self.asked)
        return super().usage()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (lambda moment: EngineError("The daemon does not say."), "The daemon does not say."),
        (lambda moment: ValueError("a defect of ours"), "ValueError('a defect of ours')"),
        # Worded differently each time.
        (lambda moment: ValueError(f"<call {moment}>"), "ValueError('<call 2>')"),
    ],
)
def test_a_failing_measurement_is_recorded_once_and_training_continues(
    tmp_path: Path, error: Callable[[int], Exception], reason: str
) -> None:
    engine = Failing(ManualClock(), {"*": Script(exits_at=6.5, cpus=1.0)}, measured=True)
    engine.error = error
    result, heard = run(tmp_path, engine)
    assert result.exit_code == 0
    assert [sample.t for sample in heard] == [1, 5, 6]
    failed = [e for e in Record(result.folder).history if e.event == "sampling-failed"]
    assert [(e.t, fields_of(e)["reason"]) for e in failed] == [(2, reason), (5, "")]


def test_what_is_sampled_is_recorded_as_soon_as_it_is_known(tmp_path: Path) -> None:
    engine = Failing(ManualClock(), {"*": Script(exits_at=6.5)}, measured=True)
    engine.asked = 1
    result, _ = run(tmp_path, engine)
    (started,) = [e for e in Record(result.folder).history if e.event == "sampling"]
    assert started.t == 4
    assert "gpus" in fields_of(started)


def test_an_engine_that_can_not_measure_is_not_asked(tmp_path: Path) -> None:
    engine = Failing(ManualClock(), {"*": Script(exits_at=6.5)}, measured=False)
    result, heard = run(tmp_path, engine)
    assert (result.exit_code, heard, engine.asked) == (0, [], 0)
    assert not (result.folder / "samples.jsonl").exists()


def test_a_measurement_that_begins_after_the_run_is_not_made(tmp_path: Path) -> None:
    """Until the one under way has ended, no other begins, whatever the interval."""
    kept: list[Callable[[], object]] = []

    class Late(AtOnce):
        def aside(self, call: Callable[[], object], /) -> None:
            kept.append(call)

    engine = Failing(ManualClock(), {"*": Script(exits_at=6.5)}, measured=True)
    here = Job(tmp_path, f"{BASE}cluster: {{worker: 1}}\n", engine)
    assert here.begin(workers=Late()) == "succeeded"
    (call,) = kept
    call()
    assert engine.asked == 0


def test_what_can_not_be_stored_ends_the_run_with_a_sentence(tmp_path: Path) -> None:
    engine = MemoryEngine(ManualClock(), {"*": SERVES}, measured=True)
    in_the_way = tmp_path / "taken" / "samples.jsonl"
    callbacks = RunCallbacks(entry=lambda entry: in_the_way.mkdir(exist_ok=True))
    with pytest.raises(RecordError, match="Is a directory"):
        run_on(engine, tmp_path, "cluster: {worker: 1}\n", run_id="taken", callbacks=callbacks)
    assert engine.find() == []


class Hanging(ProcessEngine):
    """Never comes back from measuring; leaves a file once it was asked to."""

    def __init__(self, asked: Path) -> None:
        super().__init__()
        self.asked, self.released = asked, threading.Event()

    def usage(self) -> Mapping[str, Usage]:
        self.asked.touch()
        self.released.wait()
        return {}


def test_a_measurement_that_hangs_does_not_keep_the_run_from_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emulator.supervisor.sampling.GIVE_UP", 0.01)
    measured = tmp_path / "measured"
    until_asked = f"until [ -e {measured} ]; do sleep 0.05; done"
    text = BASE.replace("['true']", json.dumps(["sh", "-c", until_asked])) + (
        "cluster: {worker: 1}\nmetrics: {interval: 100ms}\ntimeout: 5m\n"
    )
    engine = Hanging(measured)
    try:
        result = up(asked(text), engine, RunOptions(out=tmp_path))
        assert result.exit_code == 0
        assert Record(result.folder).samples == ()
    finally:
        engine.released.set()
        engine.close()


class Mute(MemoryEngine):
    """Can't measure tasks."""

    def usage(self) -> Mapping[str, Usage]:
        raise EngineError("Nobody may ask.")

    def pids(self) -> Mapping[str, Collection[int]]:
        return {}


class OneGpu:
    """A driver with a device."""

    found, unavailable = GpuInventory((Gpu(0, "GPU-a", "T4", 16),)), MappingProxyType({"xid": "no"})

    def sample(self, pids: object) -> Sequence[GpuUsage]:
        return [GpuUsage(0, "GPU-a", "T4", utilisation=0.5)]

    def close(self) -> None:
        pass


def test_gpus_are_sampled_also_where_tasks_can_not_be_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emulator.metrics.gpu.sampler.GpuSampler", OneGpu)
    engine = Mute(ManualClock(), {"*": Script(exits_at=3.5)}, measured=True)
    result, heard = run(tmp_path, engine)
    assert [(sample.tasks, [gpu.utilisation for gpu in sample.gpus]) for sample in heard] == [
        ({}, [0.5])
    ] * 3
    said = [fields_of(e) for e in Record(result.folder).history if e.event.startswith("sampling")]
    assert (said[0]["gpus"][0]["uuid"], said[0]["lacking"]) == ("GPU-a", {"xid": "no"})
    assert [one["reason"] for one in said if "reason" in one] == ["Nobody may ask."]


class Elsewhere(MemoryEngine):
    """Runs its tasks on other machines."""

    why_no_gpus = "tasks run far away"


def test_gpus_of_this_machine_are_not_sampled_where_tasks_run_on_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emulator.metrics.gpu.sampler.GpuSampler", None)
    engine = Elsewhere(ManualClock(), {"*": Script(exits_at=3.5)}, measured=True)
    result, heard = run(tmp_path, engine)
    assert [([*sample.tasks], sample.gpus) for sample in heard] == [(["worker-0"], ())] * 3
    (said,) = [fields_of(e) for e in Record(result.folder).history if e.event == "sampling"]
    assert (said["gpus"], said["why_no_gpus"]) == ([], "tasks run far away")


# --- A run ends before one of its disks is full ---------------------------------------------------


class Ticking(ManualClock):
    """Passes for the machine's own."""

    is_real = True


class Storing(MemoryEngine):
    """Keeps containers in a folder of its own."""

    def storage(self) -> Sequence[Path]:
        return [Path("/containers")]


@pytest.mark.parametrize("full", ["run", "containers"])
def test_the_disks_of_the_run_and_of_its_engine_are_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: str
) -> None:
    clock = Ticking()

    def is_nearly_full(folder: Path) -> int | None:
        return 2**20 if folder.name == full and clock.now() >= clock.BEGAN + 3.2 else None

    monkeypatch.setattr(watchdog, "is_nearly_full", is_nearly_full)
    here = Job(tmp_path, f"{BASE}cluster: {{worker: 1}}\n", Storing(clock, {"*": SERVES}))
    folder = here.folder if full == "run" else "/containers"
    with pytest.raises(RecordError, match=f"^The disk of {folder} has 1 MiB left: the run ends"):
        here.begin()
    assert clock.now() == clock.BEGAN + 3.5
