"""What a preempted program has shown, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from emulator.record.events import Entry
from emulator.record.timeline import Timeline
from emulator.trial.answer import Answer, answer_of, in_sentences, is_answered, saved_outside
from tests.histories import ended, fault, happened, history, job, restart, step, timeline

FAULT = "faults: [{preempt: worker-0, at: {step: 11}}]"
BEGAN = [
    happened(0.5, "start", "worker-0"),
    happened(1, "running", "worker-0", id="x"),
    happened(1, "all-running"),
    happened(1, "witness", sees=True, own=True),
    *(step(1 + n / 10, "worker-0", n) for n in range(1, 12)),
]
PREEMPTED = [
    fault(2.2, "worker-0", "triggered"),
    happened(2.3, "exit", "worker-0", exit_code=143, fault="0"),
    fault(2.3, "worker-0", "applied", exit_code=143, killed=False),
    happened(4, "start", "worker-0", fresh=True),
    happened(4.2, "running", "worker-0", id="y"),
    fault(4.2, "worker-0", "healed"),
]


def save(t: float, task: str, path: str) -> Entry:
    about: dict[str, Any] = {"format": "torch", "bytes": 9, "seconds": 0.1, "count": 1}
    return happened(t, "checkpoint-saved", task, path=path, files={path: 9}, renamed=True, **about)


def went_on(first: int) -> list[Entry]:
    steps = [step(5 + n / 10, "worker-0", first + n) for n in range(30)]
    return [*steps, happened(8.5, "exit", "worker-0", exit_code=0), job(9)]


def told(*parts: Sequence[Entry], cluster: str = "{worker: 1}") -> Timeline:
    return timeline(
        sorted((one for part in parts for one in part), key=lambda one: one.t), cluster, FAULT
    )


def answered(*parts: Sequence[Entry], **given: Any) -> Answer:
    return answer_of(told(*parts), **{"stopped": False, "reads_steps": True, **given})


def test_a_program_that_goes_on_from_its_save_has_survived() -> None:
    found = answered(BEGAN, [save(2.05, "", "last.pt")], PREEMPTED, went_on(11))
    assert (found.state, found.lost, found.target) == ("survived", 1, "worker-0")
    assert found.what == "was preempted at step 11: back in 2.80s, 1 step made again"
    assert in_sentences(found) == [
        f"Survived: worker-0 {found.what}.",
        "It cost 1 step and 2.80s.",
    ]


def test_to_begin_again_from_a_save_at_the_start_says_nothing() -> None:
    read = happened(4.5, "checkpoint-read", path="a.pt", files=["a.pt"])
    early = save(1.15, "", "a.pt")
    found = answered(BEGAN, [early, read], PREEMPTED, went_on(1))
    assert (found.state, found.lost) == ("unknown", 11)
    assert found.what.endswith("it began again, as it would from its only save, of step 1")
    assert found.advice.startswith(
        "Preempt it after a later save, with a step or a time: `--fault '{pree"
    )
    late = answered(BEGAN, [save(2.05, "", "a.pt"), read], PREEMPTED, went_on(1))
    assert late.state == "lost"


@pytest.mark.parametrize(
    ("saves", "advice"),
    [
        ([], "No save was seen: save every so many steps"),
        (
            [save(2.05, "worker-0", "last.pt")],
            "last.pt lay on the disk of the node that was taken ",
        ),
        ([save(2.05, "worker-0", "run/1/last.pt")], "run/1/last.pt lay on the disk of"),
        (
            [save(2.05, "", "last.pt")],
            "last.pt was there, on storage that outlives a node, and was",
        ),
    ],
)
def test_one_that_begins_again_has_lost_all_and_is_told_why(
    saves: list[Entry], advice: str
) -> None:
    found = answered(BEGAN, saves, PREEMPTED, went_on(1))
    assert (found.state, found.lost) == ("lost", 11)
    assert found.what.endswith(": it began again, and lost 11 steps")
    assert found.advice.startswith(advice)
    assert ("`--shared run`" in found.advice) == ("run/1" in advice)
    assert in_sentences(found)[0].startswith("Not survived: worker-0 was preempted at step 11")


@pytest.mark.parametrize(
    ("path", "advice"),
    [
        (
            "/job/ckpt/a.pt",
            "ckpt/a.pt lay on the disk of the node that was taken away. `--shared c",
        ),
        ("/data/a.pt", "/data/a.pt lay on the disk of the node that was taken away. Save in $EMUL"),
    ],
)
def test_a_disk_that_nobody_watched_is_looked_at_after_the_fault(path: str, advice: str) -> None:
    there = happened(4, "saved-files", "worker-0", saved=[{"path": path}], removed=True)
    found = answered(BEGAN, [there], PREEMPTED, went_on(1))
    assert found.advice.startswith(advice)


def test_a_save_on_the_disk_of_another_task_was_not_taken_away() -> None:
    found = answered(BEGAN, [save(2.05, "worker-1", "a.pt")], PREEMPTED, went_on(1))
    assert found.advice.startswith("a.pt is on the disk of worker-1 alone, where worker-0 does not")


def test_what_it_writes_elsewhere_makes_a_success_unknown() -> None:
    parts = (BEGAN, [save(2.05, "", "last.pt")], PREEMPTED, went_on(11))
    found = answered(*parts, outside=["/home/me/ckpt/last.pt"])
    assert found.state == "unknown"
    assert "but it wrote outside its folder (/home/me/ckpt/last.pt)" in found.what
    assert "--shared" in found.advice


def test_a_job_that_fails_has_not_survived() -> None:
    failed = [ended(5, "worker-0", 1), job(5.1, "failed", reason="worker-0 failed")]
    found = answered(BEGAN, PREEMPTED, failed)
    assert (found.state, found.what) == ("failed", "was preempted at step 11: worker-0 failed")
    late = answered(BEGAN, PREEMPTED, [job(60, "timeout", reason="not done")])
    assert (late.state, late.what) == (
        "failed",
        "was preempted at step 11: it did not come to its end any more",
    )


def test_a_job_that_was_stopped_when_it_had_caught_up_has_survived() -> None:
    stop = [*went_on(11)[:-2], job(8.6, "interrupted", reason="stopped")]
    found = answered(BEGAN, [save(2.05, "", "a.pt")], PREEMPTED, stop, stopped=True)
    assert found.state == "survived"


def test_a_fault_that_did_not_happen_shows_nothing() -> None:
    found = answered(BEGAN, [ended(2.5, "worker-0", 0), job(3)])
    assert found.state == "unknown"
    assert found.what == "was not preempted: the job ended before it was due"


def test_without_steps_it_is_said_what_became_of_the_save() -> None:
    silent = [one for one in BEGAN if one.event != "step"]
    over = [happened(8.5, "exit", "worker-0", exit_code=0), job(9)]
    gone = answered(silent, [save(2.05, "worker-0", "a.pt")], PREEMPTED, over, reads_steps=False)
    assert (gone.state, gone.what) == (
        "lost",
        "was preempted: what it had saved was gone with its disk",
    )
    read = happened(4.5, "checkpoint-read", path="a.pt", files=["a.pt"])
    kept = answered(silent, [save(2.05, "", "a.pt"), read], PREEMPTED, over, reads_steps=False)
    assert (kept.state, kept.what) == (
        "unknown",
        "was preempted: it ended well and read a.pt, but no step was read",
    )


def test_files_that_libraries_make_again_are_no_saves_elsewhere() -> None:
    paths = ["/home/me/.cache/x", "/tmp/torch_abc", "/tmp/tmpa1b2c3d4/x", "/dev/shm/x"]
    paths += ["/tmp/ckpt/state.json", "/data/out.csv"]
    calls = [
        happened(2, "kernel-call", "worker-0", call="write", path=path, bytes=1) for path in paths
    ]
    assert saved_outside(told(BEGAN, calls), "/runs/a") == ["/tmp/ckpt/state.json", "/data/out.csv"]


@pytest.mark.parametrize(("removed", "is_save"), [(2.01, False), (4.0, True)])
def test_a_file_that_is_removed_at_once_is_no_save(removed: float, is_save: bool) -> None:
    calls = [
        happened(t, "kernel-call", "worker-0", call=call, path="/tmp/r7ud48h3")
        for t, call in ((2.0, "write"), (removed, "unlink"))
    ]
    assert bool(saved_outside(told(BEGAN, calls), "/runs/a")) is is_save


def test_a_file_that_is_moved_into_the_folder_is_a_save_there() -> None:
    calls = [
        happened(2.0, "kernel-call", "worker-0", call="write", path="/data/part", bytes=1),
        happened(2.1, "kernel-call", "worker-0", call="rename", path="/data/part", to="/runs/a/x"),
    ]
    assert saved_outside(told(BEGAN, calls), "/runs/a") == []
    assert saved_outside(told(BEGAN, calls), "/runs/b") == ["/runs/a/x"]


def test_where_steps_come_at_the_end_alone_the_files_tell() -> None:
    silent = [one for one in BEGAN if one.event != "step"]
    over = [step(8.4, "worker-0", 30), happened(8.5, "exit", "worker-0", exit_code=0), job(9)]
    found = answered(silent, [save(2.05, "", "a.pt")], PREEMPTED, over, reads_steps=False)
    assert (found.state, found.lost) == ("lost", None)
    late = [happened(3.9, "witness", sees=False, path="", reason="", own=False)]
    blind = answered(silent, [save(2.05, "", "a.pt")], PREEMPTED, late, over, reads_steps=False)
    assert blind.state == "unknown"
    cut = [one for one in over if one.event == "step"]
    stopped = answered(
        silent, [save(2.05, "", "a.pt")], PREEMPTED, cut, reads_steps=False, stopped=True
    )
    assert stopped.state == "unknown"  # it may not have come to loading it
    soon = answered(silent, PREEMPTED, over, reads_steps=False, saves="a.pt")
    assert (soon.state, soon.what) == (
        "unknown",
        "was preempted before a.pt was saved, which was earlier without a fault",
    )
    assert found.what == "was preempted: it loaded nothing of what it had saved"
    assert found.advice.startswith("a.pt was there, on storage that outlives a node, and was not")


@pytest.mark.parametrize(
    ("more", "now", "is_enough"),
    [
        ([], 5.0, False),
        ([step(5, "worker-0", 11)], 5.0, False),
        ([step(5, "worker-0", 17)], 5.0, True),
        ([], 35.0, True),
    ],
)
def test_a_job_that_goes_on_is_stopped_when_it_has_caught_up(
    more: list[Entry], now: float, is_enough: bool
) -> None:
    assert is_answered(history([*BEGAN, *PREEMPTED, *more]), now) is is_enough
    assert not is_answered(history([*BEGAN, *more]), now)


def test_all_peers_that_were_started_again_count() -> None:
    other = [restart(2.6, "worker-1"), happened(4, "running", "worker-1", id="z")]
    entries = sorted([*BEGAN, *PREEMPTED, *other], key=lambda one: one.t)
    assert not is_answered(history(entries), 5.0)
