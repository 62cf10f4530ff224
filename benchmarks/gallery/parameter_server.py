"""What docs/gallery/parameter-server.md computes: faults by role, and the evaluator's delay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.gallery.pages import markdown
from benchmarks.gallery.preemptions import preemptions
from benchmarks.gallery.runs import Run, chosen
from emulator.record.events import Entry, Step
from emulator.record.reader import Record

BY_ROLE = "ps-fit ps-partitioned chief-preemption ps-evaluator"


def blocks(runs: Sequence[Run]) -> dict[str, str]:
    """Return the tables of the page. Raises LookupError if one of the runs is missing."""
    (run,) = chosen(runs, "ps-evaluator")
    return {
        "preemptions": preemptions(list(chosen(runs, BY_ROLE))),
        "evaluations": evaluations(Record(run.folder).in_time_order),
    }


def evaluations(history: Sequence[Entry]) -> str:
    """Return a row for each checkpoint that the evaluator read, in the order of time."""
    titles = ["checkpoint of step", "accuracy", "steps that training was ahead"]
    rows = [[str(step), f"{accuracy:.3f}", str(ahead)] for step, accuracy, ahead in _read(history)]
    return markdown(titles, rows)


def _read(history: Sequence[Entry]) -> Iterator[tuple[int, float, int]]:
    """Yield of each evaluation its step, its accuracy and how much further the chief was."""
    done = 0
    for event in history:
        if not isinstance(event, Step):
            continue
        if event.task == "evaluator-0":
            yield event.step, float(event.values["accuracy"]), done - event.step
        else:
            done = max(done, event.step)
