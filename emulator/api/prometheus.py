"""`GET /metrics`: a run as it is now, in Prometheus' formats.

It is read from the record, as everything else that is reported of a run: the events since the
last request are fed to a `RunState`. So the supervisor is not involved, and a run that is not
scraped pays nothing. The first request to a run of a day reads its history, which takes some
seconds of another thread.

Names follow Prometheus' rules: base units, `_total` for what only grows. Counters of a task's usage
begin at 0 when the task is started again, as those of any process; `rate()` and `increase()` know
that. What counts starts, restarts and steps goes on.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric

from emulator.analysis.run_state import LiveTask, RunState
from emulator.metrics import sample_file
from emulator.metrics.samples import GpuUsage, Usage, from_json
from emulator.plan import Plan
from emulator.record.events import entry_of
from emulator.record.tail import whole_lines

__all__ = ["Page", "collect"]

STATES = ("pending", "starting", "running", "backoff", "down", "ended")
PHASES = ("starting", "running", "ending")
STAGES = ("waiting", "preparing", "triggered", "applied", "healed", "skipped", "failed")
OUTCOMES = ("succeeded", "failed", "timeout", "interrupted", "error")
MEGA = 1e6


class Page:
    """The page of one run; may be asked on any thread."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self._folder = folder
        self._live = RunState(plan)
        self._offsets: dict[str, int] = {}
        self._one_at_a_time = threading.Lock()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def text(self, accept: str = "") -> tuple[bytes, str]:
        """Return the page and its type: OpenMetrics where it is asked for, else the older text."""
        encode, kind = choose_encoder(accept)
        with self._one_at_a_time:
            self._read_on()
            return encode(self._registry), kind

    def collect(self) -> Iterable[Metric]:
        """Yield every metric, as the registry wants it."""
        return collect(self._live)

    def _read_on(self) -> None:
        for line in whole_lines(self._folder / "history.jsonl", "history", self._offsets):
            self._live.entry(entry_of(json.loads(line)))
        for line in whole_lines(self._folder / sample_file.NAME, "samples", self._offsets):
            sample = from_json(json.loads(line))
            if self._live.sampled is None or sample.t > self._live.sampled:  # else thinned
                self._live.sample(sample)


def collect(live: RunState) -> Iterator[Metric]:
    """Yield a run as metrics; what is not known is left out."""
    run = {"run": live.plan.run_id}
    yield from _of_run(live, run)
    yield from _of_faults(live, run)
    tasks = [({**run, "task": t.name, "role": t.task.role}, t) for t in live.tasks.values()]
    yield from _of_tasks(tasks)
    yield from _of_usage([(labels, t.usage) for labels, t in tasks if t.usage is not None])
    gpus = [({**run, "gpu": str(g.index), "uuid": g.uuid, "name": g.name}, g) for g in live.gpus]
    yield from _of_gpus(gpus)
    yield from _of_gpu_shares(live, tasks)


Labels = Mapping[str, str]
Values = Iterable[tuple[Labels, float | None]]


def _family(
    kind: type[GaugeMetricFamily] | type[CounterMetricFamily], name: str, text: str, values: Values
) -> Iterator[Metric]:
    """Yield a metric with the values that are known; nothing where none is."""
    known = [(labels, value) for labels, value in values if value is not None]
    if known:
        family = kind(f"emulator_{name}", text, labels=list(known[0][0]))
        for labels, value in known:
            family.add_metric(list(labels.values()), value)
        yield family


def _gauge(name: str, text: str, values: Values) -> Iterator[Metric]:
    return _family(GaugeMetricFamily, name, text, values)


def _counter(name: str, text: str, values: Values) -> Iterator[Metric]:
    """`name` has its `_total`, as it is asked for."""
    return _family(CounterMetricFamily, name, text, values)


def _one_of(labels: Labels, key: str, kinds: Sequence[str], now: str | None) -> Values:
    """Yield 1 for what is the case, and 0 for everything else that could be."""
    return [({**labels, key: kind}, float(kind == now)) for kind in kinds]


def _of_run(live: RunState, run: Labels) -> Iterator[Metric]:
    plan = live.plan
    about = {
        **run,
        "scenario": plan.scenario.name,
        "engine": plan.engine,
        "framework": str(plan.scenario.framework),
        "variant": plan.variant,
    }
    yield InfoMetricFamily("emulator_run", "What is run, and where.", value=about)
    yield from _gauge(
        "run_start_time_seconds", "When the run began, since 1970.", [(run, live.began)]
    )
    yield from _gauge(
        "run_phase",
        "1 for how far the run is: not all tasks run yet, they do, or it is being ended.",
        _one_of(run, "phase", PHASES, live.state),
    )
    yield from _gauge(
        "run_outcome",
        "1 for how the job ended, once that is settled.",
        _one_of(run, "outcome", OUTCOMES, live.outcome),
    )
    estimate = live.eta()
    yield from _gauge("job_step", "The furthest step that any task told of.", [(run, live.step)])
    yield from _gauge(
        "job_final_step", "The step that the scenario expects.", [(run, estimate.target)]
    )
    yield from _gauge(
        "job_steps_per_second",
        "By how many steps the job came further, over the last 10 seconds.",
        [(run, live.steps_per_second)],
    )
    yield from _gauge(
        "job_examples_per_second",
        "The same in examples, where the scenario says how many a step has.",
        [(run, live.examples_per_second)],
    )
    yield from _gauge(
        "job_remaining_seconds",
        "Estimate until the final step; absent while nobody can say.",
        [(run, estimate.seconds)],
    )
    yield from _gauge(
        "job_recovering",
        "1 from a failure until the job is further than ever before.",
        [(run, float(live.recovering))],
    )
    yield from _counter(
        "job_restarts_total", "Restarts by the policy, of a task or of all.", [(run, live.restarts)]
    )


def _of_faults(live: RunState, run: Labels) -> Iterator[Metric]:
    faults = live.faults.values()
    count = {stage: sum(fault.stage == stage for fault in faults) for stage in STAGES}
    yield from _gauge(
        "faults",
        "How many faults are at which stage.",
        [({**run, "stage": stage}, float(n)) for stage, n in count.items()],
    )
    yield from _gauge(
        "fault_in_force",
        "1 from the trigger of a fault until it is over.",
        [
            (
                {**run, "fault": f.id, "kind": f.kind, "target": f.planned.target},
                float(f.in_force),
            )
            for f in faults
        ],
    )


def _of_tasks(tasks: Sequence[tuple[Labels, LiveTask]]) -> Iterator[Metric]:
    yield from _gauge(
        "task_state",
        "1 for the state that a task is in.",
        [one for labels, task in tasks for one in _one_of(labels, "state", STATES, task.state)],
    )
    for name, text, value in (
        ("restarts", "Restarts by the policy, with those of the whole job.", "restarts"),
        ("starts", "All starts: the first, restarts, replacements after a preemption.", "starts"),
        ("oom_kills", "How often the kernel killed it for its memory.", "oom_kills"),
        ("steps", "Steps that it told of beyond the first of each life, redone ones too.", "steps"),
    ):
        values = [(labels, float(getattr(task, value))) for labels, task in tasks]
        yield from _counter(f"task_{name}_total", text, values)
    yield from _counter(
        "task_examples_total",
        "Examples that it told of, or steps times those of a step.",
        [(labels, task.examples or None) for labels, task in tasks],
    )
    for name, text, value in (
        ("step", "The last step that it told of.", "step"),
        ("steps_per_second", "Steps over the last 10 seconds.", "steps_per_second"),
        ("exit_code", "Of its last end; 128 + N is signal N.", "exit_code"),
    ):
        yield from _gauge(f"task_{name}", text, [(la, getattr(t, value)) for la, t in tasks])


USAGE = (
    ("cpu_seconds_total", "Core-seconds since it was started.", "cpu"),
    ("cpu_throttled_seconds_total", "Held back for its CPU limit since its start.", "throttled"),
    ("network_receive_bytes_total", "Without loopback, since its start.", "received"),
    ("network_transmit_bytes_total", "Without loopback, since its start.", "sent"),
    ("disk_read_bytes_total", "From disks, since its start.", "read"),
    ("disk_written_bytes_total", "To disks, since its start.", "written"),
    ("cpu_limit_cores", "The limit in force.", "cpus"),
    ("memory_bytes", "In use now.", "memory"),
    ("memory_limit_bytes", "The limit in force.", "memory_limit"),
    ("processes", "Processes; with threads where the kernel counts those.", "processes"),
)
"""Name, help, and what it is in `Usage`."""


def _of_usage(usages: Sequence[tuple[Labels, Usage]]) -> Iterator[Metric]:
    for name, text, key in USAGE:
        make = _counter if name.endswith("_total") else _gauge
        yield from make(f"task_{name}", text, [(la, getattr(usage, key)) for la, usage in usages])


GPU = (
    ("utilization_ratio", "Share of the time in which a kernel ran.", "utilisation", 1.0),
    ("memory_used_bytes", "In use now.", "memory", 1.0),
    ("memory_total_bytes", "All of it.", "memory_total", 1.0),
    ("power_watts", "What it draws.", "power", 1.0),
    ("temperature_celsius", "Of the chip.", "temperature", 1.0),
    ("sm_clock_hertz", "Of its multiprocessors.", "sm_clock", MEGA),
    ("memory_clock_hertz", "Of its memory.", "memory_clock", MEGA),
    ("ecc_errors_total", "Uncorrected, since the driver was loaded.", "ecc_errors", 1.0),
    ("last_xid", "The last critical error that the driver told of (NVIDIA's Xid).", "xid", 1.0),
    ("lost", "1 where the device no longer answers.", "lost", 1.0),
)
"""Name, help, what it is in `GpuUsage`, and its unit in base units."""


def _of_gpus(gpus: Sequence[tuple[Labels, GpuUsage]]) -> Iterator[Metric]:
    for name, text, key, unit in GPU:
        make = _counter if name.endswith("_total") else _gauge
        found = [(labels, getattr(gpu, key)) for labels, gpu in gpus]
        values = [(labels, None if v is None else float(v) * unit) for labels, v in found]
        yield from make(f"gpu_{name}", text, values)


def _of_gpu_shares(live: RunState, tasks: Sequence[tuple[Labels, LiveTask]]) -> Iterator[Metric]:
    indexes = {gpu.uuid: str(gpu.index) for gpu in live.gpus}
    shares = [
        ({**labels, "gpu": indexes[uuid], "uuid": uuid}, share)
        for labels, task in tasks
        for uuid, share in task.gpus.items()
    ]
    yield from _gauge(
        "task_gpu_utilization_ratio",
        "Share of the time in which the task's kernels ran on a device.",
        [(labels, share.utilisation) for labels, share in shares],
    )
    yield from _gauge(
        "task_gpu_memory_bytes",
        "Of a device, in use by the task.",
        [(labels, share.memory) for labels, share in shares],
    )
