"""Runs for the tests of reports: facts written by hand, and folders of runs."""

from __future__ import annotations

import base64
import gzip
import math
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from emulator.analysis import expectations as checks
from emulator.analysis.analyse import analyse
from emulator.analysis.explanation import Explanation
from emulator.analysis.why import why
from emulator.engines.memory import MemoryEngine, Scripts
from emulator.metrics.catalog import Usage
from emulator.metrics.samples import Sample
from emulator.planning.requested import RunOptions
from emulator.record.reader import Record
from emulator.report.data import Facts
from emulator.results import Result, RunCallbacks, summary
from emulator.runtime.clock import ManualClock
from emulator.session.run import up
from tests.asked import asked
from tests.histories import Told, began_again, ended, fault, happened, job, phase, step, timeline

BASE = "name: test\nframework: tensorflow\nimage: none\nprogram: {command: [train]}\n"
PREEMPT = "faults: [{preempt: worker-1, at: 5s, grace: 2s, down: 3s}]\n"


def preempted() -> list[Told]:
    """Worker 1 is preempted at 7 s, exits at 9, is restored at 13 and fails at 20."""
    exit_fields = {"exit_code": 143, "told_to_stop": False, "oom_killed": False, "fault": "0"}
    return [
        happened(0, "run"),
        *began_again(1, "worker-0", "worker-1"),
        happened(2, "all-running"),
        step(3, "worker-0", 1),
        *phase(4, 5, "worker-0", "checkpoint"),
        step(6, "worker-0", 31),
        fault(7, "worker-1", "triggered"),
        happened(9, "exit", "worker-1", **exit_fields),
        fault(9, "worker-1", "applied", exit_code=143, killed=True),
        *began_again(12, "worker-1"),
        fault(13, "worker-1", "healed"),
        step(14, "worker-1", 32),
        ended(20, "worker-0", 0),
        ended(20, "worker-1", 1),
        job(20),
    ]


def facts_of(
    events: Sequence[Told],
    cluster: str = "{worker: 2}",
    extra: str = PREEMPT,
    samples: Sequence[Sample] = (),
    **more: Any,
) -> Facts:
    """Return the facts of a record with these events."""
    replay = timeline(events, cluster, extra)
    analysis = analyse(replay)
    verdicts = checks.judge(replay.plan.scenario.expect, analysis, replay)
    said = Explanation(why(replay))
    defaults: dict[str, Any] = {
        "folder": Path("/runs/r"),
        "scenario": "name: s\n",
        "logs": {},
        "files": frozenset(),
        "running": False,
        "summary": summary(replay.plan, analysis, verdicts, (), said)
        | {"run_id": "r", "scenario": "s"},
        "verdicts": verdicts,
    }
    return Facts(timeline=replay, analysis=analysis, samples=samples, **{**defaults, **more})


def ran(
    out: Path,
    text: str,
    scripts: Scripts,
    sets: Sequence[str] = (),
    callbacks: RunCallbacks = RunCallbacks(),
    **options: Any,
) -> Result:
    """Return the result of a run on the memory engine, with samples; with options of a run."""
    clock = ManualClock()
    engine = MemoryEngine(clock, scripts, measured=True)
    how = RunOptions(out=out, **options)
    return up(asked(text).variant(sets), engine, how, callbacks=callbacks, clock=clock)


def a_run(out: Path, extra: str, scripts: Scripts, run_id: str = "run") -> Record:
    """Return the record of a run of BASE and more."""
    return Record(ran(out, BASE + extra, scripts, run_id=run_id).folder)


def step_line(number: int) -> str:
    """Return the line with which a program reports a step."""
    return f'{{"emulate": "step", "step": {number}, "examples": {number * 64}}}'


def embedded(html: str, name: str) -> bytes:
    """Return what a page has packed into a script element."""
    found = re.search(
        rf'(?s)<script type="text/plain" id="{name}">([A-Za-z0-9+/=]*)</script>', html
    )
    assert found
    return gzip.decompress(base64.b64decode(found[1]))


def long_run(tasks: int, seconds: int = 3600) -> Facts:
    """Return the facts of an hour of noisy samples, with steps and a loss of every task."""
    noise = random.Random(7)
    names = [f"worker-{n}" for n in range(tasks)]
    events = [happened(0, "run"), *began_again(1, *names), happened(2, "all-running")]
    for t in range(3, seconds, 2):
        for name in names:
            loss = 5 * math.exp(-t / 900) + noise.random()
            events.append(step(t + noise.random(), name, t, loss=loss, accuracy=1 / loss))
    events += [*(ended(seconds, name, 0) for name in names), job(seconds)]
    events.sort(key=lambda event: event.t)

    def used(t: int) -> Usage:
        counters = ("received", "sent", "read", "written")
        traffic = {key: int(2**20 * (t + noise.random())) for key in counters}
        return Usage(
            cpu=t + noise.random(),
            memory=int(2**29 * (1 + noise.random())),
            throttled=t / 2 + noise.random() / 4,
            processes=noise.randrange(40, 60),
            **traffic,
        )

    samples = [Sample(t, t, {name: used(t) for name in names}) for t in range(2, seconds)]
    return facts_of(events, f"{{worker: {tasks}}}", extra="", samples=samples)


def loss_line(number: int) -> str:
    """Return the line with which a program reports a step and its loss."""
    return f'{{"emulate": "step", "step": {number}, "loss": {1 / number}}}'
