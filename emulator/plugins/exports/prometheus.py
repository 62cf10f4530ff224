"""`GET /metrics`: a run as it is now, in Prometheus' formats.

It is made from the record, like every report: the events since the last request are fed to a
`RunState`. So the supervisor is not involved, and a run that is not scraped pays nothing. The first
request to a run of a day reads its history, which takes some seconds of another thread.

Names follow Prometheus' rules: base units, `_total` for counters. Counters of a task's usage start
at 0 when the task is started again, like those of any process; `rate()` and `increase()` handle
that. Those of starts, restarts and steps do not start again. `metrics/catalog.py` has the names of
the metrics of usage and GPUs.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import get_args

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric

from emulator.analysis.run_state import LiveTask, RunState
from emulator.metrics import catalog, sample_file
from emulator.metrics.catalog import GPU, GPU_SHARE, USAGE
from emulator.metrics.samples import from_json
from emulator.planning.plan import Plan
from emulator.record.events import FaultStage, entry_of
from emulator.record.task_log import whole_lines

STATES = ("pending", "starting", "running", "backoff", "down", "ended")
PHASES = ("starting", "running", "ending")
STAGES = (
    "waiting",
    *(one for one in get_args(FaultStage) if one not in ("planned", "found", "reapplied")),
)
OUTCOMES = ("succeeded", "failed", "timeout", "interrupted", "error")


class Metrics:
    """The page of one run; may be called on any thread."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self._folder = folder
        self._live = RunState(plan)
        self._offsets: dict[str, int] = {}
        self._one_at_a_time = threading.Lock()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def text(self, accept: str = "") -> tuple[bytes, str]:
        """Return the page and its type: OpenMetrics if `accept` asks for it, else the text one."""
        encode, kind = choose_encoder(accept)
        with self._one_at_a_time:
            self._read_on()
            return encode(self._registry), kind

    def collect(self) -> Iterable[Metric]:
        """Yield every metric; called by the registry."""
        return collect(self._live)

    def _read_on(self) -> None:
        for line in whole_lines(self._folder / "history.jsonl", "history", self._offsets):
            self._live.entry(entry_of(json.loads(line)))
        for line in whole_lines(self._folder / sample_file.NAME, "samples", self._offsets):
            sample = from_json(json.loads(line))
            if self._live.sampled is None or sample.t > self._live.sampled:  # else thinned
                self._live.sample(sample)


def collect(live: RunState) -> Iterator[Metric]:
    """Yield a run as metrics; unknown values are left out."""
    run = {"run": live.plan.run_id}
    yield from _run_metrics(live, run)
    yield from _fault_metrics(live, run)
    tasks = [({**run, "task": t.name, "role": t.task.role}, t) for t in live.tasks.values()]
    yield from _task_metrics(tasks)
    yield from _measured(USAGE, "task", [(la, t.usage) for la, t in tasks if t.usage is not None])
    gpus = [({**run, "gpu": str(g.index), "uuid": g.uuid, "name": g.name}, g) for g in live.gpus]
    yield from _measured(GPU, "gpu", gpus)
    yield from _measured(GPU_SHARE, "task", _gpu_shares(live, tasks))


Labels = Mapping[str, str]
Values = Iterable[tuple[Labels, float | None]]
GAUGE, COUNTER = GaugeMetricFamily, CounterMetricFamily


def _family(
    kind: type[GaugeMetricFamily] | type[CounterMetricFamily], name: str, text: str, values: Values
) -> Iterator[Metric]:
    """Yield a metric with its known values, nothing if there are none; a counter is a `_total`."""
    known = [(labels, value) for labels, value in values if value is not None]
    if known:
        family = kind(f"emulator_{name}", text, labels=list(known[0][0]))
        for labels, value in known:
            family.add_metric(list(labels.values()), value)
        yield family


def _one_of(labels: Labels, key: str, kinds: Sequence[str], now: str | None) -> Values:
    """Return 1 for the current kind, 0 for the others."""
    return [({**labels, key: kind}, float(kind == now)) for kind in kinds]


def _run_metrics(live: RunState, run: Labels) -> Iterator[Metric]:
    plan = live.plan
    about = {
        **run,
        "scenario": plan.scenario.name,
        "engine": plan.engine,
        "framework": str(plan.scenario.framework),
        "variant": plan.variant,
    }
    yield InfoMetricFamily("emulator_run", "What is run, and where.", value=about)
    phases = _one_of(run, "phase", PHASES, live.state)
    outcomes = _one_of(run, "outcome", OUTCOMES, live.outcome)
    text = "1 for the phase: tasks start, all run, the run ends."
    yield from _family(GAUGE, "run_phase", text, phases)
    text = "1 for how the job ended, once that is settled."
    yield from _family(GAUGE, "run_outcome", text, outcomes)
    estimate = live.eta()
    for name, text, value in (
        ("run_start_time_seconds", "When the run began, since 1970.", live.began),
        ("job_step", "The furthest step that any task reported.", live.step),
        ("job_final_step", "The step that the scenario expects.", estimate.target),
        ("job_steps_per_second", "Of the job, over the last 10 s.", live.steps_per_second),
        ("job_examples_per_second", "Of the job, over the last 10 s.", live.examples_per_second),
        ("job_remaining_seconds", "Until the final step, if it is known.", estimate.seconds),
        ("job_recovering", "1 from a failure until its loss is made up.", float(live.recovering)),
    ):
        yield from _family(GAUGE, name, text, [(run, value)])
    text = "Restarts by the policy, of a task or of all."
    yield from _family(COUNTER, "job_restarts_total", text, [(run, live.restarts)])


def _fault_metrics(live: RunState, run: Labels) -> Iterator[Metric]:
    faults = live.faults.values()
    stages = Counter(fault.stage for fault in faults)
    counts = [({**run, "stage": stage}, float(stages[stage])) for stage in STAGES]
    yield from _family(GAUGE, "faults", "How many faults are at which stage.", counts)
    labels = [{**run, "fault": f.id, "kind": f.kind, "target": f.planned.target} for f in faults]
    in_force = [float(fault.in_force) for fault in faults]
    text = "1 from the trigger of a fault until it is over."
    yield from _family(GAUGE, "fault_in_force", text, zip(labels, in_force, strict=True))


def _task_metrics(tasks: Sequence[tuple[Labels, LiveTask]]) -> Iterator[Metric]:
    states = [one for labels, task in tasks for one in _one_of(labels, "state", STATES, task.state)]
    yield from _family(GAUGE, "task_state", "1 for the state that a task is in.", states)
    for name, text, value in (
        ("restarts", "Restarts by the policy, with those of the whole job.", "restarts"),
        ("starts", "All starts: the first, restarts, replacements after a preemption.", "starts"),
        ("oom_kills", "How often the kernel killed it for its memory.", "oom_kills"),
        ("steps", "Steps reported after the first of each start, redone ones too.", "steps"),
    ):
        values = [(labels, float(getattr(task, value))) for labels, task in tasks]
        yield from _family(COUNTER, f"task_{name}_total", text, values)
    examples = [(labels, task.examples or None) for labels, task in tasks]
    text = "Examples that it reported, or steps times the examples of a step."
    yield from _family(COUNTER, "task_examples_total", text, examples)
    for name, text, value in (
        ("step", "The last step that it reported.", "step"),
        ("steps_per_second", "Steps over the last 10 seconds.", "steps_per_second"),
        ("exit_code", "Of its last end; 128 + N is signal N.", "exit_code"),
    ):
        values = [(labels, getattr(task, value)) for labels, task in tasks]
        yield from _family(GAUGE, f"task_{name}", text, values)


def _measured(
    metrics: Iterable[catalog.Metric], of: str, measured: Sequence[tuple[Labels, object]]
) -> Iterator[Metric]:
    """Yield the metrics of the catalogue that have a name in Prometheus."""
    for metric in metrics:
        if metric.prometheus:
            kind = COUNTER if metric.counter else GAUGE
            values = [(labels, getattr(one, metric.key)) for labels, one in measured]
            scaled = [(la, None if v is None else float(v) * metric.base) for la, v in values]
            about = f"{metric.about[0].upper()}{metric.about[1:]}."
            yield from _family(kind, f"{of}_{metric.prometheus}", about, scaled)


def _gpu_shares(
    live: RunState, tasks: Sequence[tuple[Labels, LiveTask]]
) -> Sequence[tuple[Labels, object]]:
    indexes = {gpu.uuid: str(gpu.index) for gpu in live.gpus}
    return [
        ({**labels, "gpu": indexes[uuid], "uuid": uuid}, share)
        for labels, task in tasks
        for uuid, share in task.gpus.items()
    ]
