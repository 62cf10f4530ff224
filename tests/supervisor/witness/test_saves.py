"""Which files are one save, when it is over, and what becomes of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from emulator.record.events import (
    CheckpointRead,
    CheckpointRemoved,
    CheckpointSaved,
    Entry,
    Witness,
)
from emulator.supervisor.witness import saves
from emulator.supervisor.witness.saves import QUIET, Saves

Told = dict[str, Any]
TASK = "worker-0"


def told(at: float, saw: str, path: str, of: str = "shared", **more: Any) -> Told:
    return {"at": at, "saw": saw, "in": of, "path": path, **more}


def save(at: float, path: str, took: float = 0.1, size: int = 9, of: str = "shared") -> list[Told]:
    """Return what is seen of a file that is written."""
    end = at + took
    return [told(at, "open", path, of), told(end, "written", path, of, first=at, bytes=size)]


def moved(at: float, path: str, to: str, **more: Any) -> Told:
    return told(at, "moved", path, to=to, **more)


def seen(what: Sequence[Told], until: float = math.inf) -> list[Entry]:
    """Return the events of what is seen, with a look at what is over before each."""
    watched = Saves([TASK])
    watched.runs(TASK, 0.0)
    found: list[Entry] = []
    for one in what:
        if watched.due <= one["at"]:
            found += watched.settle(one["at"])
        found += watched.see(one)
    return [*found, *watched.settle(until)]


def saved(wall: float, path: str, form: str = "torch", took: float = 0.1, **more: Any) -> Entry:
    files = more.pop("files", {path: 9})
    of = {"bytes": sum(files.values()), "count": len(files), "files": files, **more}
    return CheckpointSaved(wall=wall, path=path, format=form, seconds=took, **of)


def loaded(wall: float, path: str, **more: Any) -> Entry:
    return CheckpointRead(wall=wall, path=path, **{"files": [path], **more})


WRITTEN_AND_RENAMED = [*save(1, "model.pt.tmp"), moved(1.2, "model.pt.tmp", "model.pt", bytes=9)]
IN_A_FOLDER = [
    *save(1, "ck/step-9/__0_0.distcp", 0.4),
    *save(1.1, "ck/step-9/__1_0.distcp", 0.2),
    *save(1.5, "ck/step-9/.metadata", 0.1),
]
BUNDLE = [*save(1, "ckpt-3.data-00000-of-00001"), *save(1.2, "ckpt-3.index")]
BUNDLE += save(1.4, "checkpoint")


@pytest.mark.parametrize(
    ("what", "events"),
    [
        (save(1, "model.pt"), [saved(1.1, "model.pt")]),
        (WRITTEN_AND_RENAMED, [saved(1.2, "model.pt", took=0.2, renamed=True)]),
        (
            [*save(1, "model-1.pt"), *save(1.2, "model-2.pt")],
            [saved(1.3, "model-2.pt"), saved(1.1, "model-1.pt")],
        ),
        (
            [*save(1, "last.pt"), *save(3, "last.pt")],
            [saved(1.1, "last.pt"), saved(3.1, "last.pt")],
        ),
        ([told(1, "open", "last.pt")], []),
        (save(1, "losses.log"), []),
        (save(1, "model.pt.tmp"), []),
        (save(1, "ckpt-3_temp/part-00000-of-00001.index"), []),
        ([*save(1, "model.pt"), told(1.2, "removed", "model.pt")], []),
    ],
    ids=[
        *("a file", "renamed", "two at once", "the same name again", "never closed"),
        *("no checkpoint", "a temporary name", "of TensorFlow", "gone before it was over"),
    ],
)
def test_what_is_a_save(what: list[Told], events: list[Entry]) -> None:
    assert seen(what) == events


def test_a_folder_is_one_save_and_so_are_the_files_of_a_bundle() -> None:
    (folder,) = seen(IN_A_FOLDER)
    assert isinstance(folder, CheckpointSaved)
    assert (folder.path, folder.format, folder.count, folder.bytes) == ("ck/step-9", "DCP", 3, 27)
    assert (folder.wall, folder.seconds) == (1.6, 0.6)
    (bundle,) = seen(BUNDLE)
    assert isinstance(bundle, CheckpointSaved)
    assert (bundle.path, bundle.format, bundle.count) == ("ckpt-3", "TensorFlow", 2)


def test_a_folder_that_gets_its_name_when_it_is_whole() -> None:
    what = [*save(1, "tmp-checkpoint-20/model.safetensors"), *save(1, "tmp-checkpoint-20/state.pt")]
    what += [moved(1.3, "tmp-checkpoint-20", "checkpoint-20", folder=True)]
    (one,) = seen(what)
    assert isinstance(one, CheckpointSaved)
    assert (one.path, one.count, one.wall, one.seconds) == ("checkpoint-20", 2, 1.3, 0.3)


def test_what_another_rank_adds_later_is_told_again_with_all_of_it() -> None:
    late = save(5, "ck/step-9/__2_0.distcp")
    first, second = seen([*IN_A_FOLDER, *late])
    assert isinstance(first, CheckpointSaved)
    assert isinstance(second, CheckpointSaved)
    assert (first.count, second.count, second.wall) == (3, 4, 5.1)


def test_a_save_is_not_over_before_it_is_quiet_and_closed() -> None:
    watched = Saves([])
    assert watched.due == math.inf
    for one in save(1, "model.pt"):
        watched.see(one)
    assert watched.due == 1.1 + QUIET
    assert watched.settle(1.1 + QUIET / 2) == []
    # It is written again: what was there is over, whether it was quiet or not.
    assert watched.see(told(1.2, "open", "model.pt")) == [saved(1.1, "model.pt")]
    assert (watched.due, watched.settle(9)) == (math.inf, [])
    watched.see(told(9.5, "written", "model.pt", first=1.2, bytes=9))
    assert watched.settle(9.5 + QUIET) == [saved(9.5, "model.pt", took=8.3)]
    assert (watched.due, watched.settle(99)) == (math.inf, [])


READ = [told(3, "read", "ck/step-9/.metadata"), told(3.1, "read", "ck/step-9/__0_0.distcp")]


def test_a_load_is_one_event_and_counts_how_often_a_file_was_opened() -> None:
    (_, once) = seen([*IN_A_FOLDER, *READ])
    files = ["ck/step-9/.metadata", "ck/step-9/__0_0.distcp"]
    assert once == loaded(3, "ck/step-9", seconds=0.1, files=files)
    other = [replaced | {"at": replaced["at"] + 0.2} for replaced in READ]
    (_, twice) = seen([*IN_A_FOLDER, *READ, *other])
    assert twice == loaded(3, "ck/step-9", seconds=0.3, files=files, times=2)
    (_, first, second) = seen([*IN_A_FOLDER, *READ, told(9, "read", "ck/step-9/.metadata")])
    assert second == loaded(9, "ck/step-9", files=files[:1])
    assert first == once


def test_what_is_read_at_once_was_saved_before() -> None:
    events = seen([*save(1, "model.pt"), told(1.15, "read", "model.pt")])
    assert events == [saved(1.1, "model.pt"), loaded(1.15, "model.pt")]
    assert seen([told(1, "read", "model.pt")]) == []  # nobody has seen how it was written


def test_what_is_read_before_it_is_written_again_is_another_load() -> None:
    before, after = told(3, "read", "last.pt"), told(3.3, "read", "last.pt")
    events = seen([*save(1, "last.pt"), before, *save(3.1, "last.pt"), after])
    assert events[1:] == [loaded(3, "last.pt"), saved(3.2, "last.pt"), loaded(3.3, "last.pt")]
    while_written = told(3.15, "read", "last.pt")
    events = seen([*save(1, "last.pt"), *save(3.1, "last.pt")[:1], while_written])
    assert events[1:] == [loaded(3.15, "last.pt", unfinished=True)]


def test_what_comes_from_elsewhere_is_renamed_and_another_save_each_time() -> None:
    came = [
        told(at, "written", "last.pt", first=at - 0.5, bytes=9, renamed=True) for at in (2, 2.2)
    ]
    assert seen(came) == [saved(at, "last.pt", took=0.5, renamed=True) for at in (2, 2.2)]


def test_of_saves_in_quick_succession_not_all_are_told() -> None:
    events = seen([one for n in range(10) for one in save(1 + n / 50, "last.pt", took=0.01)])
    assert [event.wall for event in events] == pytest.approx([1.01, 1.11, 1.19])


def test_what_is_removed_is_told_with_what_is_left() -> None:
    gone = [told(3, "removed", "ck/step-9/.metadata")]
    assert seen([*IN_A_FOLDER, *gone])[1:] == [CheckpointRemoved(wall=3, path="ck/step-9", left=2)]
    all_ = [told(3, "removed", "ck/step-9", folder=True)]
    assert seen([*IN_A_FOLDER, *all_])[1:] == [CheckpointRemoved(wall=3, path="ck/step-9")]
    renamed = [*save(1, "last.pt"), moved(3, "last.pt", "old.pt", bytes=9)]
    first, *rest = seen(renamed)
    assert first == saved(1.1, "last.pt")
    assert CheckpointRemoved(wall=3, path="last.pt") in rest
    assert saved(3, "old.pt", took=2.0, renamed=True) in rest


def test_one_that_takes_the_place_of_another_is_saved_again() -> None:
    again = [*save(3, "model.pt.tmp"), moved(3.2, "model.pt.tmp", "model.pt", bytes=9)]
    first, second = seen([*WRITTEN_AND_RENAMED, *again])
    assert first == saved(1.2, "model.pt", took=0.2, renamed=True)
    assert second == saved(3.2, "model.pt", took=0.2, renamed=True)


def test_of_the_disk_of_a_task_counts_what_it_has_written_while_it_ran() -> None:
    watched = Saves([TASK])
    came = save(1, f"{TASK}/pretrained.pt", of="own")
    wrote = save(3, f"{TASK}/model.pt", of="own")
    other = save(3, "worker-9/model.pt", of="own")
    for one in came:
        assert watched.see(one) == []
    watched.runs(TASK, 2)
    for one in (*wrote, *other):
        assert watched.see(one) == []
    watched.ended(TASK)
    for one in save(5, f"{TASK}/pretrained.pt", of="own"):  # with a new disk
        watched.see(one)
    assert watched.settle(math.inf) == [replace(saved(3.1, "model.pt"), task=TASK)]


def test_what_it_can_not_see_is_said() -> None:
    blind = told(1, "blind", f"{TASK}/secret", "own", why="it may not be read")
    assert seen([{"at": 1, "saw": "watching", "folders": 1}, blind]) == [
        Witness(wall=1, sees=True),
        Witness(task=TASK, wall=1, sees=False, path="secret", reason="it may not be read"),
    ]


def test_files_that_are_followed_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saves, "FILES", 3)
    many = [one for n in range(5) for one in save(1, f"model-{n}.pt")]
    first, *rest = seen(many)
    assert first == Witness(wall=1, sees=False, reason="3 files are followed already")
    assert len(rest) == 3
