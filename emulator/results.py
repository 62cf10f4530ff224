"""What a run gives its caller: callbacks while it runs, a result when it has finished."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any, NamedTuple, cast

from emulator.analysis import expectations
from emulator.analysis.analyse import Analysis, TaskResult, analyse
from emulator.analysis.expectations import Status, Verdict
from emulator.analysis.explanation import NOTHING, Explanation, explain
from emulator.analysis.figures import FIGURES, put_in_summary, rounded
from emulator.analysis.same_as_uninterrupted import Ends
from emulator.analysis.throughput import Rate
from emulator.analysis.uninterrupted import RESULTS, UNINTERRUPTED
from emulator.metrics.samples import Sample, gpu_totals, totals
from emulator.planning.plan import Plan
from emulator.record.events import Entry, Outcome
from emulator.record.reader import Record, gc_paused
from emulator.record.timeline import Timeline
from emulator.record.version import header
from emulator.supervisor.job import JobEnd


@dataclass(frozen=True)
class RunCallbacks:
    """Functions that are called during a run."""

    say: Callable[[str], None] = lambda text: None
    """Progress of the emulator, such as building an image."""
    planned: Callable[[Plan, Path], None] = lambda plan, folder: None
    entry: Callable[[Entry], None] = lambda entry: None
    lines: Callable[[Sequence[tuple[str, str]]], None] = lambda lines: None
    """Gets lines that tasks printed: each its task and its text."""
    sample: Callable[[Sample], None] = lambda sample: None
    reachable: Callable[[], None] = lambda: None
    """The API answers; called on a thread of its own."""
    stoppable: Callable[[Callable[[], None]], None] = lambda stop: None
    """Gets a function that ends the job like Ctrl-C; its second call ends it at once."""
    hurried: bool = False
    """Whether `lines` and `entry` are to be called at once, and not a quarter of a second later."""


class ExpectationFailed(AssertionError):
    """Expectations of a scenario failed or could not be judged; the text has all of them."""


@dataclass(frozen=True)
class Result:
    """A finished run: its numbers and verdicts. Times are seconds; None: unknown."""

    folder: Path
    end: JobEnd
    analysis: Analysis
    verdicts: Sequence[Verdict]
    summary: dict[str, Any]
    reported: bool = True
    """Whether its reports could be written, if they were to be."""

    @property
    def run_id(self) -> str:
        """The name of the folder."""
        return self.folder.name

    @property
    def exit_code(self) -> int:
        """The exit code of `emulate up`; docs/results.md lists them."""
        return exit_code(self.end.outcome, self.verdicts) or (0 if self.reported else 4)

    @property
    def outcome(self) -> str:
        """How the job ended: succeeded, failed, timeout, interrupted."""
        return self.end.outcome

    @property
    def verdict(self) -> Status:
        """The worst verdict: ok, failed or unknown."""
        return expectations.overall(self.verdicts)

    @property
    def final_step(self) -> int | None:
        """The furthest step of any task."""
        return self.analysis.final_step

    @property
    def lost_steps(self) -> int | None:
        """Steps that were repeated after restarts and restores."""
        return self.analysis.lost_steps

    @property
    def restarts(self) -> int:
        """Restarts by the policy, without those after preemptions."""
        return self.analysis.restarts

    @property
    def goodput(self) -> float | None:
        """The productive share of the duration."""
        return self.analysis.goodput

    @property
    def steps_per_second(self) -> float | None:
        """The job's rate over the whole training."""
        return self.analysis.steps_per_second

    @property
    def examples_per_second(self) -> float | None:
        """The same in examples."""
        return self.analysis.examples_per_second

    @property
    def recovery(self) -> float | None:
        """The longest time from a failure to the next step; infinite if there was none."""
        return self.analysis.worst_recovery

    @property
    def accuracy(self) -> float | None:
        """The last one that was reported."""
        return self.analysis.accuracy

    @property
    def last_words(self) -> Mapping[str, Sequence[str]]:
        """The lines that say why tasks ended, by task; the one that settled the outcome first."""
        words: Mapping[str, Sequence[str]] = self.summary["last_words"]
        return words

    def __repr__(self) -> str:
        """Say in one line how the run ended."""
        rate, goodput = self.steps_per_second, self.goodput
        figures = [
            *([] if self.final_step is None else [f"step {self.final_step}"]),
            *([] if rate is None else [f"{rate:.3g} steps/s"]),
            *([] if goodput is None else [f"goodput {goodput:.0%}"]),
        ]
        parts = [self.outcome, f"verdict {self.verdict}", *figures]
        return f"<Result {self.run_id}: {', '.join(parts)}>"

    def _repr_html_(self) -> str | None:
        """Return the page of the run, in a frame, for a notebook; None if the run has no page."""
        try:
            page = (self.folder / "report.html").read_text(encoding="utf-8")
        except OSError:
            return None
        # Its links to its own sections stay in the frame, and its scripts have no access to the
        # notebook around it.
        page = page.replace("<head>", '<head><base href="about:srcdoc">', 1)
        may, style = "allow-scripts allow-downloads", "border:0;width:100%;height:600px"
        return f'<iframe sandbox="{may}" style="{style}" srcdoc="{escape(page)}"></iframe>'

    @property
    def steps(self) -> Any:  # noqa: ANN401  of pandas or pyarrow
        """The steps that tasks reported, as a data frame: `t` (s), `task`, `step`, `loss`, ...

        Like the other data frames: of pandas, or of pyarrow where that is installed alone;
        UsageError where neither is. docs/exports.md describes the columns.
        """
        return self._frame("steps")

    @property
    def samples(self) -> Any:  # noqa: ANN401
        """The usage of tasks, as a data frame: CPU, memory, network, disk."""
        return self._frame("samples")

    @property
    def gpus(self) -> Any:  # noqa: ANN401
        """The usage of GPUs, as a data frame."""
        return self._frame("gpus")

    @property
    def events(self) -> Any:  # noqa: ANN401
        """The history without the steps, as a data frame."""
        return self._frame("events")

    @property
    def faults(self) -> Any:  # noqa: ANN401
        """The faults and their effects, as a data frame; times are seconds after the trigger."""
        return self._frame("faults")

    @cached_property
    def _record(self) -> Record:
        return Record(self.folder)

    def _frame(self, name: str) -> Any:  # noqa: ANN401
        from emulator.analysis.run_tables import frame, tables

        record = self._record
        found = tables(record.in_time_order, record.samples, self.analysis.faults)
        about = {"run_id": self.run_id, "scenario": record.plan.scenario.name}
        return frame(next(table for table in found if table.name == name), about)

    def check(self) -> None:
        """Raise ExpectationFailed unless every verdict is ok."""
        __tracebackhide__ = True  # in a test, the traceback ends where it calls this
        wrong = [verdict for verdict in self.verdicts if verdict.status != "ok"]
        if wrong:
            texts = (
                f"{v.expectation} {v.status}: expected {v.expected}, got {v.actual}" for v in wrong
            )
            raise ExpectationFailed("; ".join(texts))


def exit_code(outcome: str, verdicts: Sequence[Verdict]) -> int:
    """Return the exit code for a run's outcome and verdicts."""
    return (
        130 if outcome == "interrupted" else expectations.EXIT_CODES[expectations.overall(verdicts)]
    )


class Judged(NamedTuple):
    """The results of `judge`, which runs once; reports get them."""

    analysis: Analysis
    verdicts: Sequence[Verdict]
    summary: dict[str, Any]


@gc_paused()
def judge(record: Record) -> Judged:
    """Judge a run from its folder alone."""
    timeline, samples = record.timeline, record.samples
    plan, analysis = timeline.plan, analyse(timeline, samples)
    expect, ends = plan.scenario.expect, Ends()
    if expect.same_as_uninterrupted is not None:
        ends = Ends(record.result(RESULTS), record.result(UNINTERRUPTED))
    verdicts = expectations.judge(expect, analysis, timeline, plan.reference, ends)
    why = explain(timeline, analysis, record.tail)
    data = summary(plan, analysis, verdicts, samples, why, conditions_of(timeline))
    return Judged(analysis, verdicts, data)


def load_result(record: Record) -> Result:
    """Return the result of a finished run, judged from its folder alone. Raises RecordError."""
    judged = judge(record)
    outcome = cast("Outcome", judged.analysis.outcome)
    end = JobEnd(outcome, judged.analysis.reason, record.timeline.ended_by)
    return Result(record.path, end, *judged)


# --- summary.json ---------------------------------------------------------------------------------


def summary(
    plan: Plan,
    analysis: Analysis,
    verdicts: Sequence[Verdict],
    samples: Sequence[Sample] = (),
    explanation: Explanation = NOTHING,
    conditions: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return the content of `summary.json`; docs/results.md explains every key."""
    result: dict[str, Any] = {
        **header(),
        "run_id": plan.run_id,
        "scenario": plan.scenario.name,
        "variant": plan.variant,
        "engine": plan.engine,
        "warm": [] if plan.warm is None else list(plan.warm.preload),
        "outcome": analysis.outcome,
        "reason": analysis.reason,
        "verdict": expectations.overall(verdicts),
        "verdicts": [asdict(verdict) for verdict in verdicts],
        **explanation.as_data(),
        "values": {name: dict(of) for name, of in analysis.values.items()},
        "bytes_per_step": {
            role: {key: round(value) for key, value in asdict(traffic).items()}
            for role, traffic in analysis.bytes_per_step.items()
        },
        "tasks": {name: _task(task) for name, task in analysis.tasks.items()},
        "helpers": {name: asdict(helper) for name, helper in analysis.helpers.items()},
        "throughput": {
            "step_time": _step_time(analysis.throughput.job),
            "tasks": {name: _rate(rate) for name, rate in analysis.throughput.tasks.items()},
        },
        "usage": {
            name: asdict(used)
            for name in analysis.tasks
            if (used := totals(samples, name)) is not None
        },
        "gpus": {uuid: asdict(gpu) for uuid, gpu in gpu_totals(samples).items()},
        "faults": [asdict(fault) for fault in analysis.faults],
        "notices": [asdict(notice) for notice in analysis.notices],
        "saves": list(analysis.saves),
        "recoveries": [rounded(seconds) for seconds in analysis.recoveries],
        "unrecovered": analysis.unrecovered,
        "time": dict(analysis.time),
    }
    for key, figure in FIGURES.items():
        put_in_summary(result, key, figure.value_in(analysis))
    if analysis.training_began is not None:
        result["startup"]["training"] = rounded(analysis.training_began)
    if conditions:
        result["conditions"] = conditions
    if plan.scenario.speed != 1:
        result["speed"] = plan.scenario.speed
    return result


def conditions_of(timeline: Timeline) -> list[dict[str, Any]]:
    """Return what the operator of a job says of it over time; nothing without one."""
    rules = timeline.plan.scenario.rules
    return [] if rules is None else rules.conditions(timeline)


def _task(task: TaskResult) -> dict[str, Any]:
    values = asdict(task)
    for name in ("first_step", "lost_steps", "lost_at_least", "counted_anew"):
        del values[name]
    return values


def _rate(rate: Rate) -> dict[str, Any]:
    return {
        "steps_per_second": rounded(rate.steps_per_second),
        "examples_per_second": rounded(rate.examples_per_second),
        "step_time": _step_time(rate),
    }


def _step_time(rate: Rate) -> dict[str, float] | None:
    """Return the step times, to the microsecond: steps may be that fast."""
    if rate.step_times is None:
        return None
    return {name: round(value, 6) for name, value in asdict(rate.step_times).items()}
