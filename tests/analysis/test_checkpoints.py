"""Saves and loads that were seen, joined with what tasks report: which step, which were whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from emulator.analysis.analyse import analyse
from emulator.analysis.checkpoints import Checkpoints
from emulator.analysis.explanation import explain
from emulator.analysis.notices import notices, saved_within_grace
from emulator.analysis.observed import Observed
from emulator.analysis.promises import (
    PROMISES,
    loads_what_was_saved,
    ranks_agree,
    restores_only_complete,
)
from tests.histories import (
    BEGAN,
    Told,
    began_again,
    ended,
    fault,
    happened,
    in_time,
    phase,
    restart,
    restored,
    step,
    timeline,
)

ON = happened(0.5, "witness", sees=True, own=True)
BREAKING = "faults: [{checkpoint: torn, at: 5s}, {kill: worker-0, at: 6s}]\n"


def wrote(t: float, path: str, size: int = 9, took: float = 0.1, **more: Any) -> Told:
    """Return the event of a save; it is told half a second later."""
    files = more.pop("files", {path: size})
    of = {"format": "torch", "bytes": sum(files.values()), "count": len(files), "files": files}
    of |= {"seconds": took, "path": path, **more}
    return happened(t + 0.5, "checkpoint-saved", of.pop("task", ""), late=-0.5, **of)


def read(t: float, path: str, *files: str, task: str = "", **more: Any) -> Told:
    of = {"path": path, "files": files or (path,), **more}
    return happened(t + 0.5, "checkpoint-read", task, late=-0.5, **of)


def gone(t: float, path: str) -> Told:
    return happened(t + 0.5, "checkpoint-removed", path=path, late=-0.5)


def trains(since: float, first: int, last: int, task: str = "worker-0") -> list[Told]:
    return [step(since + (n - first) / 10, task, n) for n in range(first, last + 1)]


def reported(t: float, number: int, task: str = "worker-0") -> list[Told]:
    return phase(t - 0.05, t + 0.01, task, "checkpoint", step=number)


def changed(
    t: float,
    path: str,
    how: str = "torn",
    do: str = "half",
    *,
    seen: bool = True,
    on: str = "shared",
) -> list[Told]:
    """Return what a fault does to a file, and that the witness sees it."""
    aim = {"path": path, "do": do, "then": 4, "mtime_ns": int((BEGAN + t - 0.4) * 1e9)}
    about = {"aims": [aim], "done": {"path": path}}
    done = {"how": how, "path": path, "number": 0, "at": BEGAN + t}
    told = [
        fault(t - 0.1, "", "triggered", "checkpoint", target=on),
        fault(t - 0.05, "", "found", "checkpoint", target=on, changed=about),
        fault(t + 0.3, "", "applied", "checkpoint", target=on, changed=done),
    ]
    task = "" if on == "shared" else on
    return [*told, wrote(t + 0.005, path, 4, 0.001, task=task)] if seen else told


def killed(t: float, task: str = "worker-0", *, back: float) -> list[Told]:
    return [
        fault(t, task, "triggered", "kill", id="1"),
        fault(t + 0.1, task, "applied", "kill", id="1", exit_code=137, seconds=0.1),
        ended(t + 0.1, task, 137),
        restart(t + 0.2, task),
        *began_again(back, task),
    ]


START = [*began_again(0, "worker-0"), ON, *trains(1, 1, 20)]


def seen(*events: Told, cluster: str = "{worker: 1}", extra: str = BREAKING) -> Checkpoints:
    return Checkpoints(timeline(in_time([*START, *events]), cluster, extra))


# --- Steps ----------------------------------------------------------------------------------------


def steps(*events: Told) -> list[tuple[int | None, bool]]:
    return [(save.step, save.is_exact) for save in seen(*events).saves]


def test_the_step_of_a_save_is_what_was_reported_while_it_was_the_last() -> None:
    counted = [wrote(1.5, "ckpt-1.pt"), wrote(2.5, "ckpt-2.pt")]
    assert steps(*counted, *reported(1.5, 5), *reported(2.5, 15)) == [(5, True), (15, True)]
    same = [wrote(1.5, "last.pt"), wrote(2.5, "last.pt")]
    assert steps(*same, *reported(1.5, 5), *reported(2.5, 15)) == [(5, True), (15, True)]
    # Only the beginning was reported; only the first was.
    assert steps(*same, reported(2.5, 15)[0]) == [(5, False), (15, False)]
    # Two were reported: it is the one in its name.
    both = [*reported(1.5, 5), *reported(1.55, 6)]
    assert steps(wrote(1.5, "model-5.pt"), *both) == [(5, True)]


@pytest.mark.parametrize(
    ("paths", "found"),
    [
        (("model-5.pt", "model-15.pt"), [(5, True), (15, True)]),
        # Numbers of saves, or of epochs, are no steps; those of a run are in all names.
        (("ckpt-1.pt", "ckpt-2.pt"), [(5, False), (15, False)]),
        (("epoch=1-loss=0.25.ckpt", "epoch=2-loss=0.1.ckpt"), [(5, False), (15, False)]),
        (("seed-5/a-5.pt", "seed-5/a-15.pt"), [(5, True), (15, True)]),
        (("last.pt", "last.pt"), [(5, False), (15, False)]),
    ],
)
def test_without_a_report_it_is_the_number_in_its_name_if_that_is_a_step(
    paths: tuple[str, str], found: list[tuple[int, bool]]
) -> None:
    assert steps(wrote(1.5, paths[0]), wrote(2.5, paths[1])) == found


# --- Whole ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("last", "whole"),
    [
        (wrote(6.05, "model-20.pt", 4), False),
        (wrote(6.05, "model-20.pt", 9), True),  # as many bytes as the one before
        (wrote(6.05, "model-20.pt", 12), None),
        (wrote(6.05, "model-20.pt", 4, renamed=True), True),
        (wrote(5.9, "model-20.pt", 4), True),  # closed before anybody killed it
    ],
)
def test_what_a_killed_task_had_open_is_not_whole(last: Told, whole: bool | None) -> None:
    found = seen(wrote(2, "model-10.pt"), last, *killed(6, back=8)).saves[-1]
    assert (found.whole, bool(found.why)) == (whole, not whole)


def test_a_save_whose_end_was_reported_is_whole_and_one_with_fewer_files_may_not_be() -> None:
    end = happened(6.02, "phase", "worker-0", phase="checkpoint", state="end", step=20)
    found = seen(wrote(2, "a-10.pt"), wrote(6.05, "a-20.pt", 4), end, *killed(6, back=8))
    assert found.saves[-1].whole
    two = {"a-10-rank0.pt": 9, "a-10-rank1.pt": 9}
    one = {"a-20-rank0.pt": 9}
    fewer = seen(wrote(2, "a-10-rank*.pt", files=two), wrote(3, "a-20-rank*.pt", files=one))
    assert (fewer.saves[-1].whole, fewer.saves[-1].why) == (None, "it has 1 of 2 files")
    # Of a folder that nobody was cutting off the number may vary.
    folder = {"a-10/x.pt": 9, "a-10/y.pt": 9}
    varies = seen(wrote(2, "a-10", files=folder), wrote(3, "a-20", files={"a-20/x.pt": 9}))
    assert varies.saves[-1].whole
    cut = seen(wrote(2, "a-10", files=folder), wrote(6.05, "a-20", 9), *killed(6, back=8))
    assert cut.saves[-1].whole is False


@pytest.mark.parametrize(
    ("weights", "state", "whole"),
    [
        (20_000, 769, True),  # its step has a digit more
        (20_000, 768, True),
        (20_001, 767, None),
        (20_000, 900, None),
        (12_000, 769, False),
    ],
)
def test_a_save_whose_step_has_a_digit_more_is_as_large_as_the_one_before(
    weights: int, state: int, whole: bool | None
) -> None:
    before = wrote(2, "a-90", files={"a-90/model": 20_000, "a-90/state": 768})
    last = wrote(6.05, "a-100", files={"a-100/model": weights, "a-100/state": state})
    assert seen(before, last, *killed(6, back=8)).saves[-1].whole is whole


# --- What was loaded ------------------------------------------------------------------------------

SAVES = [wrote(1.5, "model-5.pt"), wrote(2, "model-10.pt"), *reported(1.5, 5), *reported(2, 10)]
BACK = killed(6, back=8)
PAIR = "{worker: 2}"
TORN = "which fault 0 had broken (torn)"


def load(number: int | None, *paths: str, first: int | None = None) -> list[Told]:
    """Return how worker-0 goes on: what is read, what it reports, and its steps."""
    told = [read(9.5 + n / 100, path) for n, path in enumerate(paths)]
    told += [] if number is None else [restored(9.6, "worker-0", number)]
    return [*told, *trains(10, (number or 0) + 1 if first is None else first, 30)]


@pytest.mark.parametrize(
    ("events", "verdict"),
    [
        (load(10, "model-10.pt"), "ok"),
        ([*changed(5, "model-10.pt"), *load(10, "model-10.pt")], TORN),
        # The program says nothing: its steps do.
        ([*changed(5, "model-10.pt"), *load(None, "model-10.pt", first=11)], TORN),
        # What it has rejected is not what it has loaded.
        ([*changed(5, "model-10.pt"), *load(5, "model-10.pt", "model-5.pt")], "ok"),
        ([*changed(5, "model-10.pt"), *load(None, "model-10.pt", "model-5.pt", first=6)], "ok"),
        ([*changed(5, "model-10.pt"), *load(None, "model-10.pt", first=1)], ""),
        # The other one was broken; one that the witness did not see; a file that is no save.
        ([*changed(5, "model-5.pt"), *load(10, "model-10.pt")], "ok"),
        ([*changed(5, "model-10.pt", seen=False), *load(10, "model-10.pt")], TORN),
        ([*changed(5, "metrics.csv", seen=False), *load(10, "model-10.pt")], "ok"),
        ([*changed(5, "model-10.pt", "stale", "write"), *load(5, "model-10.pt")],
         "which fault 0 had broken (stale)"),
        # Saved again since then, under the same name.
        ([*changed(5, "model-10.pt"), wrote(5.9, "model-10.pt"), *reported(5.9, 10),
          *load(10, "model-10.pt")], "ok"),
        # Made by the fault.
        ([*changed(5, "model-15.pt", "empty-newer", "make"), *load(15, "model-15.pt")],
         "model-15.pt, which fault 0 had broken (empty-newer)"),
        # The end of a save is reported after the fault: it was over before.
        ([*reported(5.5, 10), *changed(5, "model-10.pt"), *load(10, "model-10.pt")], TORN),
        ([wrote(6.05, "model-20.pt", 4), *load(20, "model-20.pt")],
         "which was not whole: worker-0 ended as it was written, 4 of 9 bytes"),
        ([wrote(9.6, "model-10.pt"), read(9.55, "model-10.pt", unfinished=True), *load(10)],
         "which was being written then"),
        # It counts from 0; it goes on from elsewhere than from the one that was read.
        ([*changed(5, "model-10.pt"), *load(None, "model-10.pt", "model-5.pt", first=10)], TORN),
        ([*changed(5, "model-10.pt"), *load(None, "model-10.pt", first=16)], None),
        # What is reported and what was seen contradict each other.
        (load(50, "model-10.pt", first=1), None),
        ([*changed(5, "model-10.pt"), *load(50, "model-10.pt", first=11)], TORN),
        (load(10), None),
        (load(50, "model-10.pt", "model-5.pt"), None),
    ],
)  # fmt: skip
def test_what_is_loaded_was_saved_whole(events: list[Told], verdict: str | None) -> None:
    run = timeline(in_time([*START, *SAVES, *BACK, *events]), "{worker: 1}", BREAKING)
    found = restores_only_complete(run)
    if verdict is None:
        assert (found.count, found.violations, len(found.undecided)) == (1, [], 1)
    elif verdict in ("ok", ""):
        assert (found.count, found.violations, found.undecided) == (bool(verdict), [], [])
    else:
        assert len(found.violations) == 1
        assert found.violations[0].endswith(verdict)


def test_what_was_broken_on_the_disk_of_another_task_is_whole_here() -> None:
    own = [wrote(2, "m-10.pt", task=task) for task in ("worker-0", "worker-1")]
    told = [
        *own,
        *changed(5, "m-10.pt", on="worker-1"),
        *BACK,
        read(9.5, "m-10.pt", task="worker-0"),
    ]
    on = BREAKING.replace("torn,", "torn, on: worker-1,")
    run = timeline(in_time([*START, *told, restored(9.6, "worker-0", 10)]), PAIR, on)
    found = restores_only_complete(run)
    assert (found.count, found.violations, found.undecided) == (1, [], [])


def test_a_read_before_the_change_had_the_whole_file() -> None:
    events = [read(4.99, "model-10.pt"), *changed(5, "model-10.pt"), read(5.02, "model-10.pt")]
    before, after = seen(*SAVES, *events).reads
    assert (before.broken, [*after.broken]) == ({}, ["model-10.pt"])


RANKS = {"s-10-rank0.pt": 9, "s-10-rank1.pt": 9}
TWO = [
    *began_again(0, "worker-1"),
    *trains(1, 1, 20, "worker-1"),
    wrote(2, "s-10-rank*.pt", files=RANKS),
]
ONE_BROKEN = changed(5, "s-10-rank1.pt")


def together(*names: str, extra: Sequence[Told] = ()) -> Observed:
    told = [one for name in names for one in killed(6, name, back=8)]
    told += [restored(9.6, name, 10) for name in names]
    told += [one for name in names for one in trains(10, 11, 20, name)]
    events = in_time([*START, *TWO, *ONE_BROKEN, *told, *extra])
    run = timeline(events, PAIR, BREAKING)
    return restores_only_complete(run)


def test_each_rank_loads_its_own_part() -> None:
    both = read(9.5, "s-10-rank*.pt", *RANKS)
    found = together("worker-0", "worker-1", extra=[both])
    assert found.violations == ["worker-1 restored step 10, which fault 0 had broken (torn)"]
    other = read(9.5, "s-10-rank*.pt", "s-10-rank0.pt")
    assert together("worker-0", extra=[other]).violations == []


def test_where_two_tasks_may_have_read_it_nothing_is_certain() -> None:
    """Each has a folder: nothing in the names says whose."""
    told = [wrote(2, "x/m-10.pt"), wrote(2.01, "y/m-10.pt"), *changed(5, "y/m-10.pt")]
    told += [*killed(6, back=8), read(9.5, "x/m-10.pt"), read(9.51, "y/m-10.pt")]
    run = timeline(in_time([*START, *told, restored(9.6, "worker-0", 10)]), PAIR, BREAKING)
    found = restores_only_complete(run)
    assert (found.violations, len(found.undecided)) == ([], 1)


def test_ranks_that_report_nothing_agree_if_they_have_read_one_save() -> None:
    def read_by(second: str) -> Observed:
        told = [*SAVES, *began_again(0, "worker-1"), *killed(6, back=8)]
        told += [*killed(6, "worker-1", back=8), *trains(10, 11, 20)]
        told += [*trains(10, 11 if second == "model-10.pt" else 6, 20, "worker-1")]
        told += [read(9.5, "model-10.pt"), read(9.51, second)]
        run = timeline(in_time([*START, *told]), PAIR, BREAKING)
        return ranks_agree(run)

    assert (read_by("model-10.pt").count, read_by("model-10.pt").violations) == (1, [])


# --- Without a witness ----------------------------------------------------------------------------


@pytest.mark.parametrize("promise", PROMISES.values())
def test_a_check_of_nothing_does_not_crash(promise: Any) -> None:
    run = timeline(in_time([*START, *SAVES, *BACK]), "{worker: 1}", BREAKING)
    assert promise(run).violations == []


def test_where_nothing_was_seen_the_answer_says_so() -> None:
    told = [one for one in [*START, *reported(2, 10), *BACK, *load(10)] if one is not ON]
    run = timeline(in_time(told), "{worker: 1}", BREAKING)
    found = restores_only_complete(run)
    assert (found.of, found.undecided) == ("loads, as tasks reported them", [])


def test_in_a_container_what_is_said_of_the_own_disk_is_believed() -> None:
    """But not of a save that was seen on /shared, and that nobody has read."""
    blind = happened(0.5, "witness", sees=True)

    def said(number: int) -> Observed:
        told = [blind if one is ON else one for one in [*START, *SAVES, *BACK, *load(number)]]
        told += reported(2.5, 12)
        return restores_only_complete(timeline(in_time(told), "{worker: 1}", BREAKING))

    assert (said(12).of, said(12).undecided) == ("loads, as tasks reported them", [])
    assert said(10).undecided == ["worker-0 restored step 10, as it reports, and no save was read"]


@pytest.mark.parametrize(
    ("more", "sees"),
    [
        ([], True),
        ([happened(7, "attached")], False),
        ([happened(7, "attached"), happened(7.5, "witness", sees=True, own=True)], True),
        ([happened(7, "attached"), happened(8.5, "witness", sees=True, own=True)], False),
        ([happened(7, "witness", sees=False, path="x", reason="it may not be read")], False),
        ([happened(7, "witness", "worker-1", sees=False, reason="full")], True),
        ([happened(7, "witness", sees=True)], False),
    ],
)
def test_when_all_is_seen(more: list[Told], sees: bool) -> None:
    assert seen(*more).sees("worker-0", 8, 9) is sees


# --- From scratch, and content --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("events", "violated", "count"),
    [
        (load(None, first=1), 1, 1),
        (load(None, "model-10.pt", first=11), 0, 1),
        # What faults have taken could not be loaded.
        ([*changed(5, "model-10.pt"), *changed(5.1, "model-5.pt"), *load(None, first=1)], 1, 1),
        ([gone(3, "model-5.pt"), *changed(5, "model-10.pt"), *load(None, first=1)], 0, 0),
        ([gone(3, "model-5.pt"), *changed(5, "model-10.pt", "missing", "remove", seen=False),
          gone(5, "model-10.pt"), *load(None, first=1)], 0, 0),
        # What a save in place has destroyed had been there; so had what it says that it restored.
        ([wrote(2, "last.pt"), gone(3, "model-5.pt"), gone(3, "model-10.pt"),
          wrote(6.05, "last.pt", 4), *load(None, first=1)], 1, 1),
        (load(10, first=1), 1, 1),
        # It may have been before the first step, but it was not read.
        ([wrote(0.8, "init.pt"), *load(None, first=1)], 1, 1),
        ([wrote(0.8, "init.pt"), *load(None, "init.pt", first=1)], 0, 1),
    ],
)  # fmt: skip
def test_no_start_from_scratch(events: list[Told], violated: int, count: int) -> None:
    run = timeline(in_time([*START, *SAVES[:2], *BACK, *events]), "{worker: 1}", BREAKING)
    found = PROMISES["never_from_scratch"](run)
    assert (len(found.violations), found.count) == (violated, count)


def test_what_is_read_was_not_changed_and_digests_are_a_tasks_own() -> None:
    def loads(*events: Told) -> Observed:
        run = timeline(in_time([*START, *SAVES, *BACK, *events]), "{worker: 2}", BREAKING)
        return loads_what_was_saved(run)

    assert loads(*load(10, "model-10.pt")).count == 1
    assert loads(*changed(5, "model-10.pt"), *load(10, "model-10.pt")).violations == [
        f"worker-0 restored step 10, {TORN}"
    ]
    (cut,) = loads(wrote(6.05, "model-20.pt", 4), *load(20, "model-20.pt")).violations
    assert cut.startswith("worker-0 restored step 20, which was not whole: worker-0 ended")

    def digest(t: float, what: str, task: str, value: object) -> list[Told]:
        return phase(t, t, task, what, step=20, digest=value)

    own = [*digest(3, "checkpoint", "worker-0", ["a"]), *digest(3, "checkpoint", "worker-1", ["b"])]
    (other,) = loads(*own, *digest(9, "restore", "worker-0", ["b"])).violations
    assert other == 'worker-0 restored ["b"], which is the save of step 20 of worker-1'
    assert loads(*own, *digest(9, "restore", "worker-0", ["a"])).violations == []


# --- Within the grace period ----------------------------------------------------------------------

GRACE = "faults: [{preempt: worker-0, at: 5s, grace: 5s}]"
NOTICED = [
    fault(6, "worker-0", "triggered"),
    fault(8, "worker-0", "applied", exit_code=0, seconds=2.0),
    ended(8, "worker-0", 0, fault="0"),
]


@pytest.mark.parametrize(
    ("events", "violations", "undecided"),
    [
        ([wrote(2, "model-10.pt"), wrote(7, "model-20.pt")], 0, 0),
        ([wrote(2, "model-10.pt")], 1, 0),
        ([wrote(2, "model-10.pt"), *reported(7, 20)], 0, 1),  # and nothing was written
        ([wrote(2, "model-10.pt"), wrote(8.02, "model-20.pt")], 0, 0),  # just before its end
        (reported(7, 20), 0, 0),  # whatever it writes looks like no save
        ([], 0, 1),
    ],
)
def test_what_was_saved_in_the_grace_period_is_seen(
    events: list[Told], violations: int, undecided: int
) -> None:
    run = timeline(in_time([*START, *NOTICED, *events]), "{worker: 1}", GRACE)
    found = saved_within_grace(run, notices(run))
    assert (len(found.violations), len(found.undecided)) == (violations, undecided)


# --- What is said of it ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("events", "warning"),
    [
        (
            [*changed(5, "model-10.pt"), wrote(5.3, "model-20.pt"), *BACK],
            "Fault 0 (torn model-10.pt): a newer save, model-20.pt, was there 0.30s later, and "
            "nothing read what was broken.",
        ),
        (
            changed(5, "model-10.pt"),
            "Fault 0 (torn model-10.pt): nothing was started again after that, and nothing read "
            "what was broken.",
        ),
        ([*changed(5, "model-10.pt"), *BACK, *load(10, "model-10.pt")], ""),
        ([*changed(5, "model-10.pt"), *BACK, *load(None, first=1)], ""),  # `why` tells of it
    ],
)
def test_a_fault_whose_file_was_never_needed_is_a_warning(events: list[Told], warning: str) -> None:
    run = timeline(in_time([*START, *SAVES, *events]), "{worker: 1}", BREAKING)
    found = explain(run, analyse(run), lambda _: ()).warnings
    assert [one for one in found if one.startswith("Fault 0 (torn")] == [warning] * bool(warning)


OVER = happened(20, "job", outcome="succeeded", reason="done")
ON_DISK = {"saved": [{"path": "/app/model-20.pt", "wall": BEGAN + 2}]}


@pytest.mark.parametrize(
    ("events", "warned"),
    [
        ([OVER, happened(21, "saved-files", "worker-0", **ON_DISK)], True),
        ([wrote(2, "a.pt"), OVER, happened(21, "saved-files", "worker-0", **ON_DISK)], False),
        ([OVER, happened(21, "saved-files", "evaluator-0", **ON_DISK)], False),
        ([happened(19, "saved-files", "worker-0", **ON_DISK), OVER], False),  # and then gone
    ],
)
def test_saves_on_own_disks_alone_are_a_warning(events: list[Told], warned: bool) -> None:
    run = timeline(in_time([*START, *events]), "{worker: 1, evaluator: 1}", "")
    said = [line for line in explain(run, analyse(run), lambda _: ()).warnings if "own" in line]
    assert said == warned * [
        "Nothing was saved on /shared, and /app/model-20.pt is on the own disk of worker-0, which "
        "a preemption takes away. Save in $EMULATOR_SHARED, which all tasks see and which outlives "
        "them."
    ]
