"""The tables and the chart of docs/gallery/input-pipelines.md."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from benchmarks.gallery.pages import markdown, written
from benchmarks.gallery.runs import Run

SCENARIO, CHART = "input-pipeline", "input-pipelines"
EXAMPLES = 1437
"""Of the digits, those for training."""
TEXTS = {
    "plain": "plain: one file after the other",
    "prefetch": "+ prefetch",
    "interleave": "+ interleave of 8 files",
    "map": "+ map of 8 batches at once",
    "repeat": "+ repeat: one iterator for all epochs",
    "cache": "cache instead of repeat",
    "autotune": "AUTOTUNE for all numbers",
    "autotune_by_cores": "the same, without threads of its own",
}


POLICIES = {"FILE": "`FILE`", "DATA": "`DATA`", "OFF": "`OFF`"}
POSITIONS = {
    "forget": "from its beginning (`forget`)",
    "skip": "after skipping what was trained (`skip`)",
    "save": "with the saved iterator (`save`)",
}


@dataclass(frozen=True)
class Costs:
    """Seconds that an epoch spends with reading, preparing and training, one after the other."""

    read: float
    prepare: float
    train: float
    at_once: float
    """How many files are read, or batches prepared, at the same time."""

    @property
    def whole(self) -> float:
        """Seconds of an epoch if nothing overlaps."""
        return self.read + self.prepare + self.train

    def at_best(self) -> Mapping[str, float]:
        """Return the fewest seconds of an epoch with each pipeline.

        What overlaps takes as long as the longest part of it, and what runs eight times at once an
        eighth. The time until the first batch is left out, so no epoch is as fast.
        """
        read, prepare = self.read / self.at_once, self.prepare / self.at_once
        return {
            "plain": self.whole,
            "prefetch": max(self.read + self.prepare, self.train),
            "interleave": max(read + self.prepare, self.train),
            "map": max(read, prepare, self.train),
            "repeat": max(read, prepare, self.train),
            "cache": self.train,
            "autotune": max(read, prepare, self.train),
        }


def costs_of(ingest: Sequence[str], program: Sequence[str]) -> Costs:
    """Return the costs that follow from the commands of the two tasks of a run."""
    given = dict(word.removeprefix("--").split("=") for word in (*ingest, *program) if "=" in word)
    value = {name: float(text) for name, text in given.items()}
    shards = value["shards"]
    blocks = shards * math.ceil(EXAMPLES / shards / value["block"])
    batches = math.ceil(EXAMPLES / value["batch"])
    return Costs(
        shards * value["open-cost"] + blocks * value["read-cost"],
        batches * value["map-cost"],
        batches * value["step-cost"],
        value["at-once"],
    )


def the_run(runs: Sequence[Run], scenario: str) -> Run:
    """Return the run of a scenario. Raises LookupError if there is none."""
    run = next((run for run in runs if run.scenario == scenario), None)
    if run is None:
        raise LookupError(f"there is no run of {scenario}")
    return run


def speedups(runs: Sequence[Run]) -> list[tuple[str, float | None, float]]:
    """Return each pipeline with its speed-up over the plain one, at best and measured."""
    run = the_run(runs, SCENARIO)
    plan = json.loads((run.folder / "plan.json").read_text(encoding="utf-8"))
    commands = {task["name"]: task["command"] for task in plan["tasks"]}
    costs = costs_of(commands["ingest-0"], commands["worker-0"])
    best = {name: costs.whole / seconds for name, seconds in costs.at_best().items()}
    measured = run.summary["values"]
    return [(name, best.get(name), measured[f"times_{name}"]["worker-0"]) for name in TEXTS]


def counted(run: Run, texts: Mapping[str, str], kinds: Sequence[str]) -> list[list[str]]:
    """Return a row for each name: what was counted of each kind, such as `missing_FILE`."""
    values = run.summary["values"]
    return [
        [text, *(written(values[f"{kind}_{name}"]) for kind in kinds)]
        for name, text in texts.items()
    ]


def blocks(runs: Sequence[Run]) -> dict[str, str]:
    """Return the tables of pipelines, of policies and of positions."""
    rows = [
        [TEXTS[name], "—" if best is None else f"{best:.1f}", written(measured)]
        for name, best, measured in speedups(runs)
    ]
    heads = ["pipeline", "epochs in the time of a plain one, at best", "measured"]
    seen = ["seen by no worker", "seen more than once"]
    policies = counted(the_run(runs, "input-sharding"), POLICIES, ["missing", "doubled"])
    kinds = ["missing", "doubled", "kilobytes"]
    positions = counted(the_run(runs, "input-position"), POSITIONS, kinds)
    return {
        "speedups": markdown(heads, rows),
        "policies": markdown(["policy", *seen], policies),
        "positions": markdown(
            ["the epoch continues", "never seen", "seen twice", "checkpoint, kB"], positions
        ),
    }


def charts(runs: Sequence[Run]) -> dict[str, go.Figure]:
    """Return the same as bars."""
    names, best, measured = zip(*speedups(runs), strict=True)
    texts = [TEXTS[name] for name in names]
    figure = go.Figure(
        [
            go.Bar(name="at best", x=texts, y=best, marker_color="#c8ccd4"),
            go.Bar(name="measured", x=texts, y=measured, marker_color="#2a6fdb"),
        ]
    )
    figure.update_layout(
        barmode="group", yaxis_title="epochs in the time of a plain one", legend={"x": 0.02}
    )
    return {CHART: figure}
