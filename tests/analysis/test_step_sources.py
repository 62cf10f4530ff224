"""Of what the steps of a run were read."""

from __future__ import annotations

import pytest

from emulator.analysis.step_sources import StepSources, step_sources
from emulator.metrics.bars import TRAINER_LINES
from tests.histories import Told, happened, step, timeline


def source(task: str, words: str, *, counts: bool = True, retracts: bool = False) -> Told:
    about = {"source": words, "counts": counts, "retracts": retracts}
    return happened(1, "step-source", task, **about)


@pytest.mark.parametrize(
    ("extra", "default"), [("", "lines of JSON"), ("metrics: {events: logs}", "event files")]
)
def test_sources_are_told_of_with_their_tasks(extra: str, default: str) -> None:
    told = [
        source("worker-0", "a bar", counts=False),
        source("worker-0", "a bar", counts=False),
        source("worker-1", "a bar", counts=False),
        source("worker-0", "the format"),
        source("worker-1", "a loss", retracts=True),  # its steps were those of the default
        source("worker-1", "the format", retracts=True),
        source("worker-2", "the format", counts=False),
        *(step(2, f"worker-{n}", 1) for n in (2, 0, 1)),
    ]
    found = step_sources(timeline(told, "{worker: 3}", extra))
    # Of one that is used by some task, it is not said that another has it too.
    used = {default: ["worker-2"], "the format": ["worker-0", "worker-1"]}
    seen = {"a bar": ["worker-0", "worker-1"], "a loss": ["worker-1"]}
    assert found == StepSources(used, seen)
    assert not found.has_trainer_lines
    assert found.as_data()["seen"][1] == {"source": "a loss", "tasks": ["worker-1"]}


def test_lines_of_a_trainer_are_noticed() -> None:
    told = [source("worker-0", TRAINER_LINES, counts=False)]
    found = step_sources(timeline(told))
    assert found == StepSources({}, {TRAINER_LINES: ["worker-0"]})
    assert found.has_trainer_lines
