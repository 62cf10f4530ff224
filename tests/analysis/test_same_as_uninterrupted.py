"""The expectation that a run ends as one without its faults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from emulator.analysis.same_as_uninterrupted import WHY, Ends, answers
from emulator.analysis.uninterrupted import figures_of
from emulator.record.events import Entry, Samples
from emulator.scenario.loader import parse
from emulator.scenario.schema import SameAsUninterrupted
from tests.histories import fault, happened, step, timeline

FAULT = "faults: [{kill: worker-0, at: 5s}]\n"
KILLED = [
    fault(5, "worker-0", "triggered", "kill"),
    fault(5.1, "worker-0", "applied", "kill", exit_code=137, seconds=0.1),
]


Files = Mapping[str, tuple[Any, Any]]
NO_FILES: Files = {}


def run(before: Sequence[float], after: Sequence[float], first: int = 3) -> list[Entry]:
    """Return a history with the losses of steps before a fault, and from a step on after it."""
    start = happened(0, "start", "worker-0")
    early = [step(n, "worker-0", n, loss=loss) for n, loss in enumerate(before, 1)]
    late = [step(5 + n, "worker-0", n, loss=loss) for n, loss in enumerate(after, first)]
    return [start, *early, *KILLED, *late]


def ends(losses: Sequence[float] = (), files: Files = NO_FILES) -> Ends:
    """Return what a run without a fault has shown, and what this one has left."""
    steps = [step(n, "worker-0", n, loss=loss) for n, loss in enumerate(losses, 1)]
    twin = figures_of(timeline(steps), {"files": {k: one for k, (one, _) in files.items()}})
    return Ends({"files": {k: other for k, (_, other) in files.items()}}, twin.as_data())


def answer(history: Sequence[Entry], left: Ends, **expect: Any) -> tuple[str, str]:
    seen = timeline(history, "{worker: 1}", FAULT)
    wanted = SameAsUninterrupted.model_validate(expect)
    (found,) = answers(wanted, seen, left, is_anew=False)
    assert found.name.startswith("same_as_uninterrupted.")
    return found.status, found.actual


@pytest.mark.parametrize(
    ("before", "after", "loss", "status", "actual"),
    [
        ([4, 3], [2, 1], "exact", "ok", "the same: loss of 2 steps of worker-0"),
        ([4, 3], [2, 1.00001], 1e-4, "ok", "the same: loss of 2 steps of worker-0"),
        (
            [4, 3],
            [2, 1.00001],
            "exact",
            "failed",
            "loss of step 4 of worker-0 is 1.00001, and without a fault 1",
        ),
        ([4, 3], [2], "exact", "failed", "it ended with step 3, and without a fault with 4"),
        (
            [4, 3.5],
            [2, 1],
            "exact",
            "unknown",
            "loss of step 2 of worker-0 is 3.5, and without a fault 3, before the first fault: it "
            "is not repeatable",
        ),
        ([4, 3, 2, 1], [], "exact", "unknown", "there is nothing to compare"),
    ],
)
def test_losses_after_the_first_fault(
    before: Sequence[float], after: Sequence[float], loss: Any, status: str, actual: str
) -> None:
    assert answer(run(before, after), ends([4, 3, 2, 1]), loss=loss) == (status, actual)


def test_only_losses_count_where_there_are_some() -> None:
    def with_accuracy(accuracy: float) -> list[Entry]:
        return [step(n, "worker-0", n, loss=1.0, accuracy=accuracy) for n in (1, 2)]

    twin = Ends(None, figures_of(timeline(with_accuracy(0.5)), None).as_data())
    history = [*KILLED, *with_accuracy(0.6)]
    assert answer(history, twin, loss="exact")[0] == "ok"


def test_results_are_those_that_match() -> None:
    same = {"digest": "a"}, {"digest": "a"}
    other = {"digest": "a"}, {"digest": "b"}
    left = ends(files={"/shared/ckpt/a.pt": same, "/shared/log.csv": other})
    assert answer(KILLED, left, result="*.pt") == ("ok", "the same: /shared/ckpt/a.pt")
    assert answer(KILLED, left, result="/shared/**") == (
        "failed",
        "/shared/log.csv has other bytes than without a fault",
    )
    assert answer(KILLED, left, result="*.npz")[0] == "unknown"
    gone = ends(files={"worker-0/job/a.pt": same})
    gone = Ends({"files": {}}, gone.uninterrupted)
    assert answer(KILLED, gone, result="/job/*.pt") == ("unknown", "worker-0/job/a.pt is not there")


def test_samples_are_those_of_the_next_step_or_of_the_one_that_is_named() -> None:
    def reading(*digests: str) -> list[Entry]:
        return [
            one
            for number, digest in enumerate(digests, 1)
            for one in (read(9 + number, digest), step(9.5 + number, "worker-0", number))
        ]

    def read(t: float, digest: str, of: int | None = None) -> Entry:
        return Samples(t=t, task="worker-0", digest=digest, step=of)

    twin = Ends(None, figures_of(timeline(reading("a", "b")), None).as_data())
    assert answer([*KILLED, *reading("a", "b")], twin, samples=True) == (
        "ok",
        "the same: samples of 2 steps of worker-0",
    )
    assert answer([*KILLED, *reading("a", "c")], twin, samples=True) == (
        "failed",
        "worker-0 has read other samples for step 2 than without a fault",
    )
    named = [*KILLED, read(9, "b", of=2)]
    assert answer(named, twin, samples=True)[0] == "ok"
    # Of what a task had read when it was killed, nothing became a step.
    lost = [read(1, "x"), *KILLED, happened(6, "start", "worker-0")]
    assert answer([*lost, *reading("a", "b")], twin, samples=True)[0] == "ok"


def test_without_a_run_to_compare_with_it_is_not_known() -> None:
    history = run([4], [3])
    assert answer(history, Ends(), loss="exact") == (
        "unknown",
        "there was no run without a fault",
    )
    failed = Ends(None, {WHY: "without a fault the job failed: worker-0"})
    assert answer(history, failed, loss="exact")[1] == "without a fault the job failed: worker-0"


@pytest.mark.parametrize(
    "wrong", ["{}", "{loss: -1}", "{loss: about}", "{loss: .nan}", "{results: '*'}"]
)
def test_what_says_nothing_is_refused(wrong: str) -> None:
    text = "name: a\nprogram: {command: [a]}\ncluster: {worker: 1}\n"
    for loss, tolerance in (("exact", 0.0), ("1e-4", 1e-4), ("0.1", 0.1)):
        found = parse(f"{text}expect: {{same_as_uninterrupted: {{loss: {loss}}}}}")
        assert found.expect.same_as_uninterrupted is not None
        assert found.expect.same_as_uninterrupted.tolerance == tolerance
    with pytest.raises(Exception, match="same_as_uninterrupted"):
        parse(f"{text}expect: {{same_as_uninterrupted: {wrong}}}")
