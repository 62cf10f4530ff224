"""A run for tests, written by hand: a worker that is preempted, samples, a shared GPU."""

from __future__ import annotations

from emulator.metrics.catalog import GpuShare, GpuUsage, Usage
from emulator.metrics.samples import Sample
from emulator.planning.plan import Plan
from emulator.planning.planner import make_plan
from emulator.record.events import Entry
from emulator.scenario.loader import parse
from tests.histories import BEGAN, SITE, ended, fault, happened, history, job, phase, restart, step

TEXT = """\
name: test
program: {command: [a]}
cluster: {worker: 2, ps: 1}
faults:
  - {preempt: worker-1, at: 2s, grace: 1s, down: 2s}
"""
TASKS = ("worker-0", "worker-1", "ps-0")
DURATION = 10.0


def a_plan(text: str = TEXT) -> Plan:
    return make_plan(parse(text), "run-1", SITE)


def a_history() -> list[Entry]:
    """Return 10 s of training: worker-1 is down from 4 to 6, worker-0 fails for it and waits."""
    preempted = {"exit_code": 143, "told_to_stop": False, "oom_killed": False, "fault": "0"}
    return history(
        [
            happened(0, "run", run_id="run-1"),
            happened(0.5, "prepared"),
            *(happened(0.5, "start", task) for task in TASKS),
            *(happened(1, "running", task, id="x") for task in TASKS),
            happened(1, "all-running"),
            step(2, "worker-0", 10, examples=320, loss=2.5),
            step(2, "worker-1", 10, examples=320, loss=2),
            *phase(2.2, 2.8, "worker-0", "checkpoint", step=10),
            step(3, "worker-0", 20, examples=640, loss=1.5),
            fault(3, "worker-1", "triggered"),
            happened(3.5, "phase", "worker-1", phase="checkpoint", state="begin"),
            happened(4, "exit", "worker-1", **preempted),
            fault(4, "worker-1", "applied", exit_code=143, killed=False),
            ended(4.5, "worker-0", 1),
            restart(4.5, "worker-0"),
            happened(5.5, "start", "worker-0"),
            happened(5.6, "running", "worker-0", id="y"),
            happened(6, "start", "worker-1"),
            happened(6.5, "running", "worker-1", id="z"),
            fault(6.6, "worker-1", "healed"),
            step(8, "worker-0", 20, examples=640, loss=1.4, converged=True),
            step(9, "worker-0", 30, examples=960, loss=1, accuracy=0.75, note="ça va"),
            ended(9.8, "worker-0", 0),
            job(10),
            ended(10.5, "ps-0", 143, told=True),
            ended(10.5, "worker-1", 143, told=True),
            happened(11, "removed", count=5),
        ]
    )


def some_samples() -> list[Sample]:
    """Return samples at 2, 4 and 7 s; worker-1 is not there at 4, and was restarted by 7."""
    tasks = {"worker-0": GpuShare(2**30, 0.25), "worker-1": GpuShare(2**31)}
    gpus = [
        GpuUsage(0, "GPU-0", "H200", utilisation=0.5, memory=3 * 2**30, power=212.5, tasks=tasks)
    ]
    return [
        Sample(2, BEGAN + 2, {"worker-0": _used(1.5), "worker-1": _used(1.0)}, gpus),
        Sample(4, BEGAN + 4, {"worker-0": _used(3.5)}),
        Sample(7, BEGAN + 7, {"worker-0": _used(6.5), "worker-1": _used(0.5)}),
    ]


def _used(cpu: float) -> Usage:
    return Usage(
        cpu=cpu,
        memory=512 * 2**20,
        throttled=cpu / 10,
        received=int(cpu * 1000),
        cpus=2.0,
        memory_limit=2**30,
    )
