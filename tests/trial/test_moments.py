"""When a worker is preempted, by what a run without a fault has shown."""

from __future__ import annotations

from typing import Any

import pytest

from emulator.trial.moments import Seen, is_seen, moment, seen_in
from tests.histories import happened, history, job, step, timeline

SAVE = {"format": "torch", "bytes": 9, "seconds": 0.1, "count": 1}


def saved(t: float, path: str) -> Any:
    return happened(t, "checkpoint-saved", "worker-0", path=path, files={path: 9}, **SAVE)


@pytest.mark.parametrize(
    ("seen", "at", "why"),
    [
        (
            {"last_step": 100, "save": "a.pt", "safe_step": 31},
            {"step": 31},
            "just after a.pt was saved",
        ),
        ({"last_step": 100}, {"step": 20}, "no save was seen before"),
        ({"last_step": 12}, {"step": 6}, "half-way"),
        ({"last_step": 100, "sees_own": False}, {"step": 50}, "saves on own disks are not seen"),
        ({"last_step": 12, "ended": False}, {"step": 20}, "no save was seen before"),
        ({"last_step": 1}, {"step": 1}, "half-way"),
        ({"save": "a.pt", "save_at": 4.2}, "7200ms", "just after a.pt was saved"),
        ({"first_output": 0.5}, "3500ms", "3 s after the first output"),
        ({"first_output": 0.5, "lasted": 4.0}, "2000ms", "half-way"),
        ({"first_output": 0.5, "lasted": 4.0, "ended": False}, "3500ms", "3 s after"),
        ({}, "3000ms", "3 s after the first output"),
    ],
)
def test_a_worker_is_preempted_when_there_is_something_to_lose(
    seen: dict[str, Any], at: object, why: str
) -> None:
    found = moment(Seen(**{"lasted": 60.0, "ended": True, **seen}))
    assert found.at == at
    assert why in found.why


def test_a_worker_that_reports_its_steps_is_preempted_at_its_own() -> None:
    seen = Seen(60.0, ended=True, last_step=100, safe_step=31, reporting={"worker-0"})
    assert moment(seen, "worker-0").at == {"step": 31, "task": "worker-0"}
    assert moment(seen, "worker-1").at == {"step": 31}


def test_the_first_save_that_more_steps_follow_counts() -> None:
    entries = [happened(0.5, "all-running"), *(step(1 + n, "worker-0", n) for n in range(1, 9))]
    entries += [saved(4.5, "ckpt/a.pt"), saved(8.5, "ckpt/b.pt"), job(10)]
    seen = seen_in(timeline(entries, "{worker: 1}"), 1.5)
    assert (seen.save, seen.save_step, seen.safe_step) == ("ckpt/a.pt", 3, 4)
    assert (seen.save_at, moment(seen).at) == (4.0, {"step": 4})
    assert (seen.last_step, seen.lasted, seen.first_output) == (8, 9.5, 1.0)
    assert not seen.sees_own
    assert seen.words == "8 steps in 9.50s; it saved ckpt/a.pt at step 3"


@pytest.mark.parametrize(("steps", "path"), [(8, "b.pt"), (0, "b.pt"), (2, "a.pt")])
def test_a_save_at_the_very_start_is_left_out_where_there_is_another(steps: int, path: str) -> None:
    """To go on from it can't be told from beginning again."""
    entries = [happened(0.5, "all-running"), *(step(1 + n, "worker-0", n) for n in range(steps))]
    saves = [saved(1.5, "a.pt"), *([saved(7.5, "b.pt")] if steps != 2 else [])]
    seen = seen_in(
        timeline(sorted([*entries, *saves, job(10)], key=lambda e: e.t), "{worker: 1}"), 1
    )
    assert seen.save == path


@pytest.mark.parametrize("outcome", ["succeeded", "interrupted"])
def test_steps_that_come_at_the_end_alone_tell_no_moment(outcome: str) -> None:
    end = job(9, outcome=outcome)
    late = step(8.9 if outcome == "succeeded" else 9.5, "worker-0", 30)
    entries = sorted(
        [happened(0.5, "all-running"), saved(4.5, "a.pt"), end, late], key=lambda e: e.t
    )
    seen = seen_in(timeline(entries, "{worker: 1}"), 1.5)
    assert (seen.last_step, seen.reads_steps, seen.save) == (30, False, "a.pt")
    assert moment(seen).at != {"step": 20}


def test_what_is_saved_at_the_end_alone_is_no_save_to_go_on_from() -> None:
    entries = [happened(0.5, "all-running"), *(step(n, "worker-0", n) for n in range(1, 9))]
    entries += [saved(9, "model.pt"), job(10)]
    seen = seen_in(timeline(entries, "{worker: 1}"), None)
    assert (seen.save, seen.saves_at_end) == ("", "model.pt")
    assert seen.words.endswith("only at its end it saved model.pt")
    assert moment(seen).at == {"step": 4}


@pytest.mark.parametrize(("now", "is_enough"), [(10, False), (13.1, True)])
def test_a_run_that_goes_on_is_stopped_some_time_after_its_first_save(
    now: float, is_enough: bool
) -> None:
    assert is_seen(history([saved(3, "a.pt")]), now) is is_enough
    assert not is_seen([], now)
