"""A run that goes on as its page shows it, from its events and samples (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emulator.analysis.run_state import RunState
from emulator.analysis.steps_made import Stretch
from emulator.metrics.samples import Sample
from emulator.record.events import Entry, FaultEvent
from emulator.record.history import as_it_happened
from emulator.record.timeline import Timeline, all_states
from emulator.report.charts import Chart, short
from emulator.report.data import Facts
from emulator.report.text import printable
from emulator.report.timeline_chart import lanes
from emulator.results import judge_of
from emulator.ui.live.by_hand import as_scenario, is_by_hand
from emulator.ui.live.kept import Batches, KeptHistory, thinned

if TYPE_CHECKING:
    from emulator.planning.plan import Plan

LATE = 1.0
"""Seconds after which the steps of a moment have been reported: the curve of the rate ends then."""
RATES = ("job", "repeated")
"""The names of that curve's parts: steps that are new, and that were made before."""
LANE = 0.72
"""The width of a lane of states."""


class LiveRun:
    """A run, event by event, in memory that does not grow with its steps."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.state = plan, RunState(plan)
        self.history, self.samples = KeptHistory(), list[Sample]()
        self._batches = Batches()
        self.last = -1
        """The number of the last event."""
        self._reached: dict[str, int | None] = {}
        """By fault, the job's step when it was triggered."""

    def entry(self, entry: Entry) -> None:
        """Take the next event."""
        self.batch([entry])

    def batch(self, entries: Sequence[Entry]) -> None:
        """Take the next events, which came at once; of very many, some as one."""
        for entry in self._batches.merged(entries):
            self._entry(entry)

    def _entry(self, entry: Entry) -> None:
        if isinstance(entry, FaultEvent) and entry.stage == "triggered":
            self._reached.setdefault(entry.id, self.state.step)
        self.state.entry(entry)
        self.history.add(entry)
        self.last = entry.n

    def sample(self, sample: Sample) -> None:
        """Take the next sample of usage; one that was taken already is left out."""
        if self.state.sampled is None or sample.t > self.state.sampled:
            self.state.sample(sample)
            self.samples = thinned([*self.samples, sample])

    def tick(self, wall: float) -> None:
        """Set the time, in seconds since 1970."""
        if self.state.began is not None:
            self.state.tick(wall - self.state.began)

    def seen(self) -> Seen:
        """Return what is known now; it stays as it is."""
        history, samples = tuple(self.history.entries), tuple(self.samples)
        is_exact = self.history.is_exact and self._batches.is_exact
        return Seen(self.plan, history, samples, self.state.t, is_exact)

    def now(self) -> dict[str, Any]:
        """Return the numbers and states that change all the time, for the page."""
        state = self.state
        return {
            "t": round(state.t, 2),
            "state": state.state,
            "step": state.step,
            "rate": short(state.steps_per_second, 4),
            "tasks": {
                name: {"state": self._state_of(name), "step": task.step}
                for name, task in state.tasks.items()
            },
            "faults": [
                {
                    "id": fault.id,
                    "what": printable(f"{fault.kind} {fault.planned.target}"),
                    "tasks": list(fault.planned.tasks),
                    "stage": fault.stage,
                    "reason": printable(fault.reason),
                    "since": short(fault.since),
                    "in_force": fault.in_force,
                    "entry": as_scenario(
                        fault, self._reached.get(fault.id), state.timeline.all_running
                    )
                    if is_by_hand(fault)
                    else "",
                }
                for fault in state.faults.values()
                if is_by_hand(fault) or fault.in_force
            ],
        }

    def _state_of(self, name: str) -> str:
        task = self.state.tasks[name]
        if task.state == "running" and (faults := self.state.impairments(name)):
            return " and ".join(dict.fromkeys(fault.planned.spec.state for fault in faults))
        return task.state if task.state != "ended" else task.timeline.state

    def grown(self, chart: Chart) -> Chart:
        """Return the chart of the timeline as it is now, from that of some seconds ago.

        The states of tasks are as they are, and the curve of the rate goes on; all else is added
        when the chart is made anew.
        """
        end = max(self.state.t, 1e-3)
        layout = chart["layout"]
        names = layout["yaxis2"]["ticktext"]
        rows = {task: names.index(task) for task in self.state.tasks if task in names}
        known, last = set(all_states()), _last_rate(chart)
        fresh = list(lanes(self.state.timeline.states(end), rows, LANE, end))
        data: list[dict[str, Any]] = []
        for number, trace in enumerate(chart["data"]):
            if trace.get("orientation") == "h" and trace["name"] in known:
                data += fresh
                fresh = []
            else:
                data.append(_longer(trace, self.state.made, end) if number == last else trace)
        axes: dict[str, Any] = {"xaxis": layout["xaxis"] | {"range": [0, short(end)]}}
        if rates := [y for trace in data if _is_rate(trace) for y in trace["y"] if y is not None]:
            highest = max(layout["yaxis"]["range"][1], 1.15 * max(rates))
            axes["yaxis"] = layout["yaxis"] | {"range": [0, short(highest)]}
        return chart | {"data": [*data, *fresh], "layout": layout | axes}


def _is_rate(trace: Mapping[str, Any]) -> bool:
    return trace["name"] in RATES and trace["type"] == "scatter" and "yaxis" not in trace


def _last_rate(chart: Chart) -> int | None:
    """Return the place of the part of the curve that goes on."""
    places = [number for number, trace in enumerate(chart["data"]) if _is_rate(trace)]
    return places[-1] if places else None


def _longer(trace: Mapping[str, Any], made: Sequence[Stretch], end: float) -> dict[str, Any]:
    """Return the curve of the rate until now: new bins after those that it has."""
    xs, ys = trace["x"], trace["y"]
    if len(xs) < 2:
        return dict(trace)
    width = min(after - before for before, after in pairwise(xs))
    reported = made[0].begin if made else end
    # The last bins were made when not all of their steps had been reported.
    kept = [n for n, x in enumerate(xs) if x + width / 2 < max(reported, xs[-1] - LATE - width)]
    xs, ys = [xs[n] for n in kept], [ys[n] for n in kept]
    begin = xs[-1] + width / 2 if xs else 0.0
    for number, value in enumerate(in_bins(made, begin, width, int((end - LATE - begin) / width))):
        xs.append(short(begin + (number + 0.5) * width))
        ys.append(short(value, 5))
    return {**trace, "x": xs, "y": ys}


def in_bins(made: Sequence[Stretch], begin: float, width: float, bins: int) -> list[float]:
    """Return the steps per second in each bin of `width` seconds, if stretches are even."""
    steps = [0.0] * max(bins, 0)
    for one in made:
        if one.end < begin:
            continue
        first, last = (one.begin - begin) / width, (one.end - begin) / width
        if one.begin == one.end:
            if 0 <= first < bins:
                steps[int(first)] += one.steps
            continue
        for number in range(max(int(first), 0), min(int(last) + 1, bins)):
            inside = min(last, number + 1) - max(first, number)
            steps[number] += one.steps * max(inside, 0.0) / (last - first)
    return [value / width for value in steps]


@dataclass(frozen=True)
class Seen:
    """What is known of a run at one time."""

    plan: Plan
    history: Sequence[Entry]
    samples: Sequence[Sample]
    t: float
    """Seconds since the run began."""
    is_exact: bool
    """It has every step event of the record."""

    def facts(self, folder: Path, scenario: str, files: frozenset[str]) -> Facts:
        """Return what the report would say of the run if it ended now."""
        timeline = _Until(self.plan, as_it_happened(self.history), self.t)
        analysis, verdicts, summary = judge_of(timeline, self.samples, lambda task: ())
        return LiveFacts(
            folder,
            timeline,
            analysis,
            verdicts,
            summary | {"verdict": "running"},
            samples=self.samples,
            scenario=scenario,
            logs=dict.fromkeys(self.plan.printing, ()),
            files=files,
            running=True,
        )


class LiveFacts(Facts):
    """Those of a run that goes on."""

    @cached_property
    def outputs(self) -> Mapping[str, Sequence[str]]:
        """Nothing: the page follows what tasks print."""
        return {}


class _Until(Timeline):
    """A run until now, which may be after its last event."""

    def __init__(self, plan: Plan, history: Sequence[Entry], now: float) -> None:
        super().__init__(plan, history)
        self._now = max(now, max((entry.t for entry in history), default=0.0))

    @property
    def end(self) -> float:
        """Now."""
        return self._now
