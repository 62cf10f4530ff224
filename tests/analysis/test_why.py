"""What interrupted a training, from where it went on and why there, in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from emulator.analysis.ends import LISTED
from emulator.analysis.why import SAVE_THERE, why, why_lost
from emulator.faults.kinds import FAULTS
from tests.histories import (
    BEGAN,
    Told,
    began_again,
    ended,
    fault,
    happened,
    in_time,
    job,
    phase,
    preempted,
    restart,
    restored,
    steps_of,
    timeline,
)

ONE = "faults: [{preempt: worker-1, at: {step: 150}}]"
BEGUN = [
    happened(0, "run"),
    *began_again(0, "worker-0", "worker-1"),
    *steps_of("worker-0", {2: 1, 3: 100, 4: 150}),
    *steps_of("worker-1", {2: 1, 3: 100, 4: 150}),
]
ALONE = [*BEGUN, *preempted(5, "worker-1", back=6)]
TOGETHER = [*ALONE, ended(5.1, "worker-0", 1), restart(5.2, "worker-0", "job")]
TOGETHER += began_again(5.5, "worker-0")
"""The loss of one ends the other, and all are restarted."""


def said(told: Sequence[Told], faults: str = ONE) -> list[str]:
    extra = f"{faults}\nrestart: {{policy: on-failure}}\n"
    return why(timeline(in_time([*told, job(9)]), extra=extra))


def anew(*names: str, at: float = 7, reached: float = 8.5) -> list[Told]:
    """Return the steps of tasks that begin at the first one again."""
    return [one for name in names for one in steps_of(name, {at: 1, reached: 150})]


def disk(
    t: float, *saved: str, task: str = "", removed: bool = False, written: float = 4, **more: Any
) -> Told:
    """Return a look at the disk of a task, or at /shared, with files that were written then."""
    files = [{"path": p, "format": "torch", "bytes": 9, "wall": BEGAN + written} for p in saved]
    return happened(t, "saved-files", task, saved=files, removed=removed, **more)


def seen_save(t: float, path: str) -> Told:
    """Return a save that the witness saw."""
    of: dict[str, Any] = {
        "format": "torch",
        "bytes": 9,
        "seconds": 0.1,
        "files": {path: 9},
        "count": 1,
    }
    return happened(t, "checkpoint-saved", path=path, **of)


SEES = happened(1, "witness", sees=True, own=True)


@pytest.mark.parametrize(
    ("then", "sentence"),
    [
        (
            [restored(7, "worker-1", 100), *steps_of("worker-1", {7.5: 101, 8: 150})],
            "worker-1 was preempted at step 150; it restored step 100 and went on after 2.50s. "
            "50 steps were done twice (1.00s).",
        ),
        (
            [restored(7, "worker-1", 149), *steps_of("worker-1", {7.5: 150})],
            "worker-1 was preempted at step 150; it restored step 149 and went on after 2.50s. "
            "1 step was done twice (0.50s).",
        ),
        (
            [restored(7, "worker-1", 150), *steps_of("worker-1", {7.5: 160})],
            "worker-1 was preempted at step 150; it restored step 150 and went on after 2.50s; no "
            "step was done twice.",
        ),
        (
            steps_of("worker-1", {7.5: 101, 8: 140}),
            "worker-1 was preempted at step 150; it went on from step 100 after 2.50s. 50 steps "
            "were lost.",
        ),
        (
            [],
            "worker-1 was preempted at step 150; it ran again, and no step of the training "
            "followed.",
        ),
    ],
    ids=["some", "one", "none", "not reached again", "never back"],
)
def test_what_it_cost(then: list[Told], sentence: str) -> None:
    assert said([*ALONE, *then]) == [sentence]


@pytest.mark.parametrize(
    ("seen", "cause", "advice"),
    [
        ([], "no checkpoint had been reported", ""),
        ([disk(5.6)], "no checkpoint on /shared", ""),
        (
            [disk(5.6, others=["a.json", "b", "c", "d"])],
            "nothing on /shared looks like a checkpoint (there is a.json, b, c and others)",
            "",
        ),
        (
            [disk(5.6, "last.pt")],
            "last.pt was on /shared, and was not loaded; whether it was broken, or not looked "
            "for, is not known",
            "",
        ),
        (
            [disk(5.6), disk(5.6, "ckpt/last.pt", task="worker-1", removed=True)],
            "ckpt/last.pt was on its own disk, which was removed with it",
            SAVE_THERE,
        ),
        (
            [disk(5.6), disk(5.6, "ckpt/last.pt", task="worker-0")],
            "ckpt/last.pt is on the own disk of worker-0, which it does not see",
            SAVE_THERE,
        ),
        (
            [disk(5.6), disk(5.6, "last.pt", task="worker-1")],
            "last.pt was on its disk, and was not loaded; whether it was broken, or not looked "
            "for, is not known",
            "",
        ),
        (
            phase(3.5, 4, "worker-0", "checkpoint", step=120),
            "although a checkpoint of step 120 had been saved",
            "",
        ),
        ([disk(5.6, "last.pt", written=8)], "", ""),
        (
            [SEES, seen_save(4, "last.pt")],
            "last.pt was on /shared, saved whole, and nothing read it",
            "",
        ),
        (
            [SEES, seen_save(4, "last.pt"), happened(6.5, "checkpoint-read", path="last.pt")],
            "last.pt was on /shared and was read, and the steps began again all the same",
            "",
        ),
        (
            [
                *(SEES, seen_save(3, "last.pt"), disk(5.6)),
                happened(4, "checkpoint-removed", path="last.pt"),
            ],
            "no checkpoint on /shared",
            "",
        ),
        ([SEES, seen_save(7, "last.pt"), disk(5.6)], "no checkpoint on /shared", ""),
        # Where a read may have been missed, nothing is said of it.
        (
            [SEES, seen_save(4, "last.pt"), happened(4.5, "attached"), disk(5.6)],
            "no checkpoint on /shared",
            "",
        ),
        (
            [SEES, seen_save(4, "last.pt"), happened(3, "witness", sees=False), disk(5.6)],
            "no checkpoint on /shared",
            "",
        ),
    ],
    ids=[
        *("not looked", "nothing", "other files", "not loaded", "own disk", "the disk of another"),
        *("own disk, kept", "reported", "written since"),
        *("seen, not read", "seen and read", "seen and removed", "seen since"),
        *("another emulator since", "a blind witness"),
    ],
)
def test_why_from_there(seen: list[Told], cause: str, advice: str) -> None:
    (text,) = said([*ALONE, *seen, *anew("worker-1")])
    begin = "worker-1 was preempted at step 150; it began again at step 1 after 2.00s"
    cost = "150 steps were done twice (1.50s)."
    parts = [f"{begin}: {cause}." if cause else f"{begin}.", cost, advice and f"{advice}."]
    assert text == " ".join(filter(None, parts))


def test_a_checkpoint_that_a_fault_has_broken_is_the_cause() -> None:
    both = "faults: [{preempt: worker-1, at: {step: 150}}, {checkpoint: torn, at: 3s}]"
    broken = fault(3, "shared", "applied", "checkpoint", id="1", effect="last.pt is cut")
    (text,) = said([broken, *ALONE, disk(5.6, "last.pt"), *anew("worker-1")], both)
    assert "after 2.00s: a fault had broken a checkpoint (last.pt is cut). 150 steps" in text


@pytest.mark.parametrize(
    ("then", "who"),
    [
        (anew("worker-0", "worker-1"), "all tasks began again at step 1 after 2.00s"),
        (
            [*anew("worker-1"), restored(6.5, "worker-0", 150), *steps_of("worker-0", {7: 151})],
            "all tasks were restarted, and it began again at step 1 after 2.00s",
        ),
        (
            [*anew("worker-0"), *steps_of("worker-1", {7: 151})],
            "all tasks were restarted, and worker-0 began again at step 1 after 2.00s",
        ),
    ],
    ids=["all", "itself", "another"],
)
def test_who_began_again(then: list[Told], who: str) -> None:
    (text,) = said([*TOGETHER, *then])
    assert text.startswith(f"worker-1 was preempted at step 150; {who}: ")


def test_a_task_that_fails_by_itself_interrupts_too() -> None:
    told = [*BEGUN, ended(5, "worker-1", 1), restart(5.1, "worker-1"), *began_again(6, "worker-1")]
    assert said([*told, *steps_of("worker-1", {8: 151})]) == [
        "worker-1 ended with exit code 1 at step 150; it went on from step 150 after 3.00s; no "
        "step was done twice."
    ]


def test_one_that_goes_back_while_it_runs() -> None:
    told = [*BEGUN, restored(5, "worker-0", 20), *steps_of("worker-0", {6: 21, 7: 150})]
    assert said(told) == [
        "worker-0 went back while it ran, at step 150; it restored step 20. 130 steps were done "
        "twice (2.00s)."
    ]


def test_faults_of_one_moment_are_one_interruption() -> None:
    two = "faults: [{preempt: worker-1, at: {step: 150}}, {kill: worker-0, at: {step: 150}}]"
    killed = [
        fault(5.1, "worker-0", "triggered", "kill", id="1"),
        ended(5.2, "worker-0", 137, fault="1"),
        fault(5.2, "worker-0", "applied", "kill", id="1", exit_code=137),
        *began_again(5.3, "worker-0"),
    ]
    (text,) = said([*ALONE, *killed, *anew("worker-0", "worker-1")], two)
    assert text.startswith(
        "worker-1 was preempted at step 150; worker-0 was killed; all tasks began again at step 1"
    )


def test_of_many_the_costliest_are_told_and_the_others_counted() -> None:
    told, now = [*BEGUN], 5.0
    for lost in (10, 40, 20, 30, 0):
        told += [ended(now, "worker-1", 1), restart(now, "worker-1")]
        told += began_again(now, "worker-1")
        told += [restored(now + 1.1, "worker-1", 150 - lost)]
        told += steps_of("worker-1", {now + 1.2: 151 - lost, now + 1.3: 150})
        now += 2
    texts = said(told)
    assert [text.split(" and went on")[0].split()[-1] for text in texts[:-1]] == [
        "110",
        "130",
        "120",
    ]
    assert len(texts) == LISTED + 1
    assert texts[-1] == "And 2 more interruptions."


def test_before_the_first_step_and_without_any() -> None:
    told = [happened(0, "run"), *began_again(0, "worker-1"), *preempted(5, "worker-1", back=6)]
    assert said(told) == [
        "worker-1 was preempted; it ran again, and no step of the training followed."
    ]
    assert said([*told, *steps_of("worker-1", {7: 1})]) == [
        "worker-1 was preempted before its first step; the training went on after 2.00s; no step "
        "was done twice."
    ]


def test_a_task_that_failed_is_named_also_after_the_job_had_succeeded() -> None:
    assert said([*BEGUN, ended(8, "worker-1", 3)]) == ["worker-1 ended with exit code 3 at 8.00s."]
    assert said([*BEGUN, ended(9.9, "worker-1", 1)]) == [
        "worker-1 ended with exit code 1 0.90s after the job had succeeded."
    ]


def test_nothing_is_said_of_a_run_that_nothing_interrupted() -> None:
    assert said(BEGUN) == []
    assert why_lost(timeline(BEGUN)) == ""


def test_each_fault_that_ends_its_target_has_words_for_it() -> None:
    for kind in FAULTS.values():
        assert kind.ended != "{} was ended" or not kind.ends_target, kind.kind
