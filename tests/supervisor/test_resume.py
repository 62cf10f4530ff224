"""A supervisor is killed after any of its events; the next one finishes the run."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from emulator.engines.memory import MemoryEngine, Script, Scripts
from emulator.engines.requirements import make_ready
from emulator.record.events import Entry, fields_of
from emulator.record.reader import Record
from emulator.record.writer import RunWriter
from emulator.results import RunCallbacks, load_result
from emulator.runtime.clock import ManualClock
from emulator.scenario.loader import parse
from emulator.supervisor.history import HistoryWriter
from emulator.supervisor.job import JobEnd
from emulator.supervisor.supervisor import Supervisor
from emulator.supervisor.takeover import RecoveredState, recover_run

BASE = "name: resumed\nframework: none\nimage: none\nprogram: {command: ['true']}\n"


class Killed(BaseException):
    """The supervisor does nothing more; what it has written is there."""


def trains(start: int = 1) -> Script:
    lines = [(float(n), f'{{"emulate": "step", "step": {n}}}') for n in range(1, 21)]
    return Script(lines=lines, exits_at=21.0)


def fails_once(start: int) -> Script:
    return Script(exits_at=4.5, exit_code=1) if start == 1 else trains()


def supervise(folder: Path, extra: str, scripts: Scripts, killed_after: int) -> JobEnd:
    """Run a scenario, kill its supervisor after that event, and take the run over."""
    clock = ManualClock()
    engine = MemoryEngine(clock, scripts, nodes=("n1", "n2") if "drain" in extra else ())
    plan, path = make_ready(parse(BASE + extra), engine, out=folder)

    def kill(entry: Entry) -> None:
        if entry.n == killed_after:
            raise Killed

    def supervisor(
        record: RunWriter, callbacks: RunCallbacks, recovered: RecoveredState | None = None
    ) -> Supervisor:
        history, workers = HistoryWriter(record, callbacks), clock.workers()
        return Supervisor(plan, engine, history, clock=clock, workers=workers, recovered=recovered)

    record = RunWriter(path, plan, BASE + extra, clock)
    with contextlib.suppress(Killed):
        end = supervisor(record, RunCallbacks(entry=kill)).run()
        record.close()
        return end
    record.close()
    record = RunWriter.reopen(Record(path), clock)
    recovered = recover_run(plan, record, clock.now() - record.t)
    end = supervisor(record, RunCallbacks(), recovered).run()
    record.close()
    return end


def history(folder: Path) -> list[Entry]:
    (run,) = folder.iterdir()
    return list(Record(run).history)


RUNS: dict[str, tuple[str, Scripts]] = {
    "restarts": (
        "cluster: {worker: 2}\nsuccess: all-workers\nrestart: {policy: on-failure, backoff: 3s}\n",
        {"worker-0": trains, "worker-1": fails_once},
    ),
    "restarts of the job": (
        "cluster: {worker: 2}\nsuccess: all-workers\n"
        "restart: {policy: on-failure, backoff: 3s, scope: job}\n",
        {"worker-0": trains, "worker-1": fails_once},
    ),
    "preemptions": (
        "cluster: {worker: 2, ps: 1}\nsuccess: all-workers\nfaults:\n"
        "- {preempt: worker-1, at: 3s, grace: 2s, down: 4s}\n"
        "- {preempt: worker-0, at: {recovery: '0'}, grace: 1s, down: 1s, address: same}\n",
        {
            "ps-*": Script(exits_at=None),
            "worker-1": Script(trains().lines, exits_at=21.0, on_sigterm=None),
            "worker-0": trains,
        },
    ),
    "what lasts": (
        "cluster: {worker: 2}\nsuccess: all-workers\nfaults:\n"
        "- {pause: worker-1, at: 2s, for: 3s}\n"
        "- {partition: [[worker-0], [worker-1]], at: 4s, for: 5s}\n"
        "- {partition: [[worker-0], [worker-1]], at: 12s, for: forever}\n"
        "- {throttle: worker-0, at: 6s, for: 1s, cpus: 0.5}\n",
        {"*": trains},
    ),
    "ends of the task": (
        "cluster: {worker: 2}\nsuccess: all-workers\nrestart: {policy: on-failure, backoff: 0}\n"
        "faults:\n- {kill: worker-0, at: 2s}\n- {oom: worker-1, at: 3s}\n"
        "- {terminate: worker-0, at: 4s}\n",
        {"*": trains},
    ),
    "nodes": (
        "cluster: {worker: 3}\nsuccess: all-workers\nfaults:\n"
        "- {drain: worker-2, at: 3s, grace: 2s, for: 4s}\n"
        "- {cordon: worker-1, at: 9s, for: 2s}\n"
        "- {preempt: worker-1, at: {recovery: '0'}, grace: 1s, down: 1s, via: eviction}\n",
        {"worker-2": Script(trains().lines, exits_at=21.0, on_sigterm=None), "*": trains},
    ),
    "tasks before training": (
        "cluster: {worker: 2, ingest: {replicas: 2, before: training}}\nsuccess: all-workers\n"
        "restart: {policy: on-failure, backoff: 3s, scope: job}\nfaults:\n"
        "- {preempt: ingest-0, at: 2s, grace: 1s, down: 2s}\n",
        {
            "ingest-0": Script(exits_at=4.0, on_sigterm=None),
            "ingest-1": lambda n: Script(exits_at=3.5, exit_code=int(n == 1)),
            "worker-0": trains,
            "worker-1": fails_once,
        },
    ),
    "helpers": (
        "cluster: {worker: 2}\nsuccess: all-workers\nhelpers:\n"
        "  board: {command: [board], ports: [6006]}\n"
        "  sink: {command: [sink]}\n"
        "  deaf: {command: [deaf]}\n",
        {
            "board": Script(lines=[(0.5, "serving")], exits_at=None),
            "sink": Script(lines=[(1.0, "oh no")], exits_at=5.5, exit_code=3),
            "deaf": Script(exits_at=None, on_sigterm=None),
            "*": trains,
        },
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_is_taken_over_ends_as_it_would_have(tmp_path: Path, name: str) -> None:
    extra, scripts = RUNS[name]
    whole = supervise(tmp_path / "whole", extra, scripts, killed_after=-1)
    undisturbed = history(tmp_path / "whole")
    first = next(entry.n for entry in undisturbed if entry.event == "prepared")
    for killed in range(first, len(undisturbed)):
        folder = tmp_path / str(killed)
        end = supervise(folder, extra, scripts, killed_after=killed)
        entries = history(folder)
        where = f"killed after {undisturbed[killed]}"
        assert end == whole, where
        assert [entry.n for entry in entries] == list(range(len(entries))), where
        for kept, before in zip(entries[: killed + 1], undisturbed, strict=False):
            assert (kept.event, kept.task, kept.t) == (before.event, before.task, before.t)
        assert stages(entries) == stages(undisturbed), where
        assert [e.n for e in entries if e.event == "attached"] == [killed + 1]
        assert ends_of_helpers(entries) == ends_of_helpers(undisturbed), where
        once = {"exit", "restart", "job", "before-training", "training", "all-running"}
        assert counted(entries, once) == counted(undisturbed, once), where


def stages(entries: list[Entry]) -> dict[str, list[str]]:
    """Return the stages of each fault."""
    found: dict[str, list[str]] = {}
    for entry in entries:
        if entry.event == "fault":
            found.setdefault(fields_of(entry)["id"], []).append(fields_of(entry)["stage"])
    return found


def ends_of_helpers(entries: list[Entry]) -> Counter[tuple[str, str, int]]:
    return Counter(
        (e.task, fields["stage"], fields["exit_code"])
        for e in entries
        if e.event == "helper" and (fields := fields_of(e))["stage"] in ("ended", "failed")
    )


def counted(entries: list[Entry], events: set[str]) -> Counter[tuple[str, str]]:
    return Counter((e.event, e.task) for e in entries if e.event in events)


def test_a_failed_task_has_the_same_last_words_after_a_take_over(tmp_path: Path) -> None:
    trace = ["Traceback (most recent call last):", '  File "a.py", line 1', "ValueError: no"]
    output = [*trace, *(f"noise {n}" for n in range(50))]
    lines = [(1 + number / 10, line) for number, line in enumerate(output)]
    scripts: Scripts = {"*": Script(lines=lines, exits_at=20.0, exit_code=1)}

    def words(killed_after: int) -> Mapping[str, Sequence[str]]:
        folder = tmp_path / str(killed_after)
        assert supervise(folder, "cluster: {worker: 1}\n", scripts, killed_after).task == "worker-0"
        (path,) = folder.iterdir()
        return load_result(Record(path)).last_words

    without = words(-1)
    assert without["worker-0"][:4] == ["ValueError: no", "noise 0", "noise 1", "…"]
    assert without["worker-0"][-1] == "noise 49"
    for killed_after in range(8):
        assert words(killed_after) == without
