"""The program that finds the latest checkpoint and breaks it, on real files.

recorded/checkpoints.txt has what real libraries save: seconds, bytes and path of each file, as
scripts/record_checkpoints.py has found them.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import json
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from emulator.faults import saved_files
from emulator.faults.saved_files import File

RECORDED = Path(__file__).parent / "recorded" / "checkpoints.txt"


def recorded(folder: str) -> list[File]:
    rows = [line.split(" ", 2) for line in RECORDED.read_text().splitlines()]
    files = [File(path, int(size), int(float(at) * 1e9)) for at, size, path in rows]
    inside = [one for one in files if one.path.startswith(f"{folder}/")]
    return [one._replace(path=one.path[len(folder) + 1 :]) for one in inside]


def test_a_list_has_the_checkpoints_and_the_other_files_the_latest_first() -> None:
    numbered = [File(f"model-{n}.pt", 7, n * 10**9) for n in range(1, 12)]
    others = [File("state.json", 2, 5 * 10**9), File("run", 0, 6 * 10**9, True), File("log", 1, 1)]
    told = saved_files.listed([*numbered, *others])
    assert told["saved"][0] == {"path": "model-11.pt", "format": "torch", "bytes": 7, "wall": 11.0}
    assert len(told["saved"]) == saved_files.SHOWN
    assert told["others"] == ["state.json", "log"]
    assert saved_files.listed([]) == {"saved": [], "others": []}


@pytest.mark.parametrize(
    ("folder", "form", "names", "files"),
    [
        ("tf-manager", "TensorFlow", ["ckpt-20", "ckpt-10", "ckpt-0"], 2),
        ("tf-prefix", "TensorFlow", ["ckpt-2", "ckpt-1"], 2),
        ("backup-tf_keras", "TensorFlow", ["chief/ckpt-4"], 2),
        ("backup", "HDF5", ["latest.weights.h5"], 1),
        ("keras", "Keras", ["epoch-02.keras", "epoch-01.keras"], 1),
        ("weights", "HDF5", ["w2.weights.h5", "w1.weights.h5"], 1),
        ("saved", "SavedModel", ["1"], 4),
        ("torch", "torch", ["model_200.pt", "model_100.pt"], 1),
        ("dcp", "DCP", ["step-20", "step-10"], 2),
        ("dcp-plain", "DCP", ["latest"], 2),
        ("hf", "folder", ["checkpoint-1000", "checkpoint-500"], 3),
        ("orbax", "Orbax", ["3", "2", "1"], 9),
        ("orbax-plain", "Orbax", ["final"], 8),
    ],
)
def test_what_libraries_save_is_found_the_latest_first(
    folder: str, form: str, names: Sequence[str], files: int
) -> None:
    found = saved_files.checkpoints(recorded(folder))
    assert [(one.format, one.name) for one in found] == [(form, name) for name in names]
    assert len(found[0].files) == files


def test_what_is_not_finished_is_no_checkpoint_and_of_two_formats_the_later_counts() -> None:
    paths = ["a/model-1.pt", "a/model-2.pt.tmp", "a/.tmp-model-3.pt", "a/notes.txt", "b/m.keras"]
    paths += ["o/7.orbax-checkpoint-tmp-1/d/x", "a/ckpt-9.tempstate123.index", "c/.cache/x.pt"]
    found = saved_files.checkpoints([File(path, 1, n) for n, path in enumerate(paths)])
    assert [one.name for one in found] == ["b/m.keras", "a/model-1.pt"]


# --- Which number is the step ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("epoch=3-step=200.ckpt", 200),
        ("epoch=03-val_loss=0.25.ckpt", 3),
        ("model-epoch=03-val_loss=0.25-step=200.ckpt", 200),
        ("weights.05-0.32.hdf5", 5),
        ("weights.05.keras", 5),
        ("ep0-ba200-rank0.pt", 200),
        ("step200_G.pth", 200),
        ("ckpt_200_rank_1.pth", 200),
        ("checkpoint_1_200.pt", 200),
        ("llama2-7b-step200.pt", 200),
        ("step_200_fp16.pt", 200),
        ("checkpoint-0200.msgpack", 200),
        ("1e-4_step200.pt", 200),
        ("model--val_loss=1.00-step=200-consumed_samples=800.0", 200),
        ("step-20270101.pt", 20270101),
        ("globalStep200.pt", 200),
        ("exp/seed_1/step_10", 10),
        ("lightning_logs/version_3/checkpoints/epoch=0-step=100.ckpt", 100),
        ("0/model-10.pt", 10),
        ("7", 7),
        ("model_v2.pt", None),
        ("resnet50.pt", None),
        ("bert_fp16.pt", None),
        ("pytorch_model-00001-of-00002.bin", None),
        ("mp_rank_00_model_states.pt", None),
        ("20261129-055800.pt", None),
        ("snapshot.pt", None),
        ("latest.weights.h5", None),
    ],
)
def test_the_step_of_one_name_is_what_its_words_say(name: str, step: int | None) -> None:
    assert saved_files.steps_of([f"out/{name}"]) == [step]


@pytest.mark.parametrize(
    ("names", "steps"),
    [
        (["w1.weights.h5", "w2.weights.h5"], [1, 2]),
        (["resnet50-1.pt", "resnet50-2.pt"], [1, 2]),
        (["1/m-10.pt", "0/m-10.pt", "0/m-20.pt", "1/m-20.pt"], [10, 10, 20, 20]),
        (["100_0.pt", "100_1.pt", "200_0.pt", "200_1.pt"], [100, 100, 200, 200]),
        # After a restart, steps are saved again.
        (["epoch=0-step=10.ckpt", "epoch=1-step=20.ckpt", "epoch=0-step=15.ckpt"], [10, 20, 15]),
        (["a-1.pt", "b-200.pt"], [1, 200]),
        (["step_5/m-10.pt", "step_5/m-20.pt"], [10, 20]),  # as if that were a seed
        (["step_5/m_0.pt", "step_5/m_1.pt"], [5, 5]),
        (["m-5.pt", "m-6.5.pt", "m-20261129.pt"], [5, None, None]),
        (["1_999999999999999.pt", "0_7.pt"], [999999999999999, 7]),
    ],
)
def test_of_several_numbers_the_one_counts_that_grows_by_saves(
    names: Sequence[str], steps: Sequence[int]
) -> None:
    assert saved_files.steps_of(names) == steps


# --- What is one save -----------------------------------------------------------------------------


def written(*names: str) -> list[File]:
    """Return files that were written in this order, with their folders."""
    files = [File(name, 100, 10**9 * n) for n, name in enumerate(names, 1)]
    parents = {str(parent) for name in names for parent in Path(name).parents} - {"."}
    return [*files, *(File(parent, 0, 0, True) for parent in parents)]


@pytest.mark.parametrize(
    ("files", "saves"),
    [
        # Folders with a number that hold saves are none.
        (
            [f"lightning_logs/version_0/{name}" for name in ("hparams.yaml", "metrics.csv")]
            + [f"lightning_logs/version_0/checkpoints/epoch={n}-step={n}00.ckpt" for n in (1, 2)],
            [f"lightning_logs/version_0/checkpoints/epoch={n}-step={n}00.ckpt" for n in (2, 1)],
        ),
        (["multirun/0/train.log", "multirun/0/m-10.pt"], ["multirun/0/m-10.pt"]),
        (["42/step_10/m.pt", "42/step_20/m.pt"], ["42/step_20", "42/step_10"]),
        (["e_1/step_10/m.pt", "e_1/step_20/m.pt"], ["e_1/step_20", "e_1/step_10"]),
        (["epoch_1/step_10/m.pt", "epoch_1/step_20/m.pt"], ["epoch_1/step_20", "epoch_1/step_10"]),
        (["0/last.pt", "1/last.pt", "0/best.pt"], ["0/best.pt", "1/last.pt", "0/last.pt"]),
        (["ckpt_1/m-10.pt", "ckpt_1/m-20.pt"], ["ckpt_1/m-20.pt", "ckpt_1/m-10.pt"]),
        (["step_5/m-5.pt", "step_5/m-10.pt"], ["step_5/m-10.pt", "step_5/m-5.pt"]),
        # Others are one each.
        (["checkpoint-100/global_step100/mp_rank_00_states.pt"], ["checkpoint-100"]),
        (["step_20/shard_00017.bin", "step_20/shard_00093.bin"], ["step_20"]),
        (["step_20/model.pt", "step_20/model_1.pt", "step_20/epoch=1-step=20.ckpt"], ["step_20"]),
        (["7/model.pt", "7/optimizer.pt", "8/model.pt"], ["8", "7"]),
        (["snapshot_1/.snapshot_metadata", "snapshot_1/0/model/w"], ["snapshot_1"]),
        (["e/s--loss=1.00-step=9-n=8.0/weights/.metadata", "e/s--loss=1.00-step=9-n=8.0/c/i.json"],
         ["e/s--loss=1.00-step=9-n=8.0"]),
        # Parts of one save.
        (["s100-rank0.pt", "s100-rank1.pt", "s200-rank1.pt"], ["s200-rank1.pt", "s100-rank*.pt"]),
        (["0/m-10.pt", "1/m-10.pt", "0/m-20.pt", "1/m-20.pt"], ["*/m-20.pt", "*/m-10.pt"]),
        (["model-00001-of-00002.bin", "model-00002-of-00002.bin"], ["model-0000*-of-00002.bin"]),
        (["step1_G.pth", "step1_D.pth", "step2_G.pth"], ["step2_G.pth", "step1_*.pth"]),
        (["epoch_1.pdparams", "epoch_1.pdopt"], ["epoch_1.pd*"]),
        (["m-1.pt", "m-2.pt", "optim-1.pt"], ["optim-1.pt", "m-2.pt", "m-1.pt"]),  # not together
        (["m-1.pt", "best-1.pt"], ["best-1.pt", "m-1.pt"]),
        # Nothing else is a checkpoint.
        (["tmp-checkpoint-20/model.safetensors", "step_1/__0_0.distcp", "a.tmp/m-1.pt"], []),
        (["tokens.npz", "train.bin", "history.pkl", "metrics.csv", "events.out.tfevents.1"], []),
        (["data/train_000.bin", "data/train_001.bin", "mnist/processed/training.pt"], []),
        (["a.npz", "x-10.npz", "x-20.npz"], ["x-20.npz", "x-10.npz"]),
        (["train_state.npz", "model.bin", "notes.txt", "model_10.txt"],
         ["model_10.txt", "model.bin", "train_state.npz"]),
        (["model_100.ubj"], ["model_100.ubj"]),
        (["test-10.pt", "test/net.pt", "data/net.pt"], ["test/net.pt", "test-10.pt"]),
        (["batch_32/model-10.pt", "batch_32/log.txt"], ["batch_32/model-10.pt"]),
    ],
)  # fmt: skip
def test_what_was_saved_together_is_one_save(files: Sequence[str], saves: Sequence[str]) -> None:
    assert [one.name for one in saved_files.checkpoints(written(*files))] == saves


def test_folders_with_a_number_alone_are_saves_only_if_each_was_written_at_once() -> None:
    ranks = written("0/a.pt", "1/a.pt", "0/b.pt", "1/b.pt")
    assert "folder" not in {one.format for one in saved_files.checkpoints(ranks)}
    steps = written("0/a.pt", "0/b.pt", "1/a.pt", "1/b.pt")
    assert [one.name for one in saved_files.checkpoints(steps)] == ["1", "0"]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.pt", ["a/b/model-2.pt", "model-1.pt"]),
        ("/*.pt", ["model-1.pt"]),
        ("a/*", ["a/b", "a/x[1].bin"]),
        ("**/model-[!1].pt", ["a/b/model-2.pt"]),
        ("a/x[[]1].bin", ["a/x[1].bin"]),
        ("a/**", ["a/b/model-2.pt", "a/b", "a/x[1].bin"]),
        ("model-?.pt", ["a/b/model-2.pt", "model-1.pt"]),
        ("model", []),
    ],
)
def test_a_glob_matches_names_or_paths_the_newest_first(pattern: str, names: Sequence[str]) -> None:
    files = [File("model-1.pt", 5, 1), File("a", is_folder=True), File("a/x[1].bin", 5, 2)]
    files += [File("a/b", is_folder=True), File("a/b/model-2.pt", 5, 3)]
    assert [one.name for one in saved_files.matching(files, pattern)] == names


# --- What is done to files ------------------------------------------------------------------------


def ask(folder: Path, how: str, of: str = "latest", **more: Any) -> dict[str, Any]:
    return saved_files.answer({"folder": str(folder), "how": how, "of": of, **more})


def save(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files, each a second later than the one before."""
    for number, (name, content) in enumerate(files.items(), 1):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        os.utime(path, (number, number))


def contents(folder: Path) -> dict[str, bytes]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


TWO = {"m-1.pt": b"older", "m-2.pt": b"\x00" * 9}


def test_torn_cuts_the_largest_file_to_half(tmp_path: Path) -> None:
    save(tmp_path, {"s-1/.metadata": b"abc", "s-1/0.distcp": b"12345678"})
    file = (tmp_path / "s-1/0.distcp").stat()
    began = time.time()
    done = ask(tmp_path, "torn")
    assert began <= done.pop("at") <= time.time()
    assert done == {
        "checkpoint": "s-1",
        "format": "DCP",
        "number": 1,
        "path": "s-1/0.distcp",
        "inode": file.st_ino,
        "written": file.st_mtime,
        "before": 8,
        "after": 4,
    }
    assert contents(tmp_path) == {"s-1/.metadata": b"abc", "s-1/0.distcp": b"1234"}


def test_one_bit_is_flipped_and_the_time_of_writing_stays(tmp_path: Path) -> None:
    save(tmp_path, TWO)
    done = ask(tmp_path, "bitflip")
    assert (done["path"], done["byte"], done["bit"]) == ("m-2.pt", 4, 6)
    assert contents(tmp_path)["m-2.pt"] == b"\x00\x00\x00\x00\x40\x00\x00\x00\x00"
    assert (tmp_path / "m-2.pt").stat().st_mtime == 2
    ask(tmp_path, "bitflip")
    assert contents(tmp_path) == TWO


def test_missing_removes_all_files_of_the_latest_and_its_folder(tmp_path: Path) -> None:
    save(tmp_path, {"1/_CHECKPOINT_METADATA": b"a", "2/_CHECKPOINT_METADATA": b"b", "2/d/x": b"c"})
    done = ask(tmp_path, "missing")
    assert (done["checkpoint"], done["format"], done["number"]) == ("2", "Orbax", 2)
    assert (done["path"], done["before"], done["after"], done["written"]) == ("2", 2, None, 3)
    assert contents(tmp_path) == {"1/_CHECKPOINT_METADATA": b"a"}
    assert not (tmp_path / "2").exists()


def test_stale_puts_the_content_of_the_one_before_under_its_name(tmp_path: Path) -> None:
    save(tmp_path, {"c-10.index": b"i", "c-10.data-00000-of-00001": b"older"})
    save(tmp_path, {"other-15.pt": b"", "c-20.index": b"I!", "c-20.data-00000-of-00001": b"new"})
    done = ask(tmp_path, "stale")
    assert (done["path"], done["version"]) == ("c-20", "c-10")
    assert (done["before"], done["after"]) == (5, 6)
    found = contents(tmp_path)
    assert (found["c-20.index"], found["c-20.data-00000-of-00001"]) == (b"i", b"older")


def test_what_is_saved_under_one_name_is_kept_and_put_back_after_the_next_save(
    tmp_path: Path,
) -> None:
    save(tmp_path, {"latest.weights.h5": b"first"})
    waits = threading.Event()
    answers: list[Mapping[str, Any]] = []

    def look(seconds: float) -> None:
        waits.set()
        time.sleep(seconds)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(saved_files, "time", SimpleNamespace(monotonic=time.monotonic, sleep=look))
        asking = threading.Thread(target=lambda: answers.append(ask(tmp_path, "stale")))
        asking.start()
        assert waits.wait(60)
        save(tmp_path, {"next": b"the second"})
        (tmp_path / "next").rename(tmp_path / "latest.weights.h5")
        asking.join(60)
    (done,) = answers
    assert (done["version"], done["before"], done["after"]) == ("latest.weights.h5", 10, 5)
    assert contents(tmp_path) == {"latest.weights.h5": b"first"}


@pytest.mark.parametrize("of", ["latest", "s200-*", "*rank0.pt"])
def test_each_part_becomes_that_of_the_save_before(tmp_path: Path, of: str) -> None:
    parts = {
        f"s{step}-rank{rank}.pt": b"%d/%d" % (step, rank) for step in (1, 200) for rank in (1, 0)
    }
    save(tmp_path, parts)
    if of == "s200-*":
        assert "was not saved again" in str(ask_at_once(tmp_path, "stale", of)["error"])
        return
    done = ask(tmp_path, "stale", of)
    rank = "rank0" if "rank0" in of else "rank*"
    assert (done["path"], done["version"]) == (f"s200-{rank}.pt", f"s1-{rank}.pt")
    both = {**parts, "s200-rank0.pt": b"1/0"} | ({} if "0" in of else {"s200-rank1.pt": b"1/1"})
    assert contents(tmp_path) == both


def ask_at_once(folder: Path, how: str, of: str) -> dict[str, Any]:
    """Ask, and wait for no further save."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(saved_files, "NEXT_SAVE", -1)
        return ask(folder, how, of)


def test_the_files_of_the_newest_saves_are_cut_to_nothing_and_keep_their_times(
    tmp_path: Path,
) -> None:
    files = {f"epoch{n}/{name}": b"1234" for n in (2, 4, 6) for name in ("m.pt", "o.pt")}
    save(tmp_path, files)
    done = ask(tmp_path, "zeroed", newest=2)
    assert (done["path"], done["saves"], done["before"]) == ("epoch6", ["epoch6", "epoch4"], 16)
    assert contents(tmp_path) == {**files, **dict.fromkeys([*files][2:], b"")}
    assert (tmp_path / "epoch4/m.pt").stat().st_mtime == 3
    assert ask(tmp_path, "zeroed")["error"] == "epoch6 is empty"
    why = "there are only 3 of the newest 4: epoch6"
    assert ask(tmp_path, "zeroed", newest=4) == {"error": why}


@pytest.mark.parametrize(
    ("files", "made"),
    [
        (
            {"epoch=03-val_loss=0.25.ckpt": b"a", "epoch=04-val_loss=0.01.ckpt": b"b"},
            {"epoch=05-val_loss=0.01.ckpt": b""},
        ),
        (
            {f"s{step}-rank{rank}.pt": b"a" for step in (5, 10) for rank in (0, 1)},
            {"s15-rank0.pt": b"", "s15-rank1.pt": b""},
        ),
        ({"20261129-055800.pt": b"a"}, {"20261129-055801.pt": b""}),
        ({"m-100.pt": b"a", "m-200.pt": b"b"}, {"m-300.pt": b""}),
        ({"m_007.pt": b"a"}, {"m_008.pt": b""}),
        (
            {"ckpt-1.index": b"i", "ckpt-1.data-00000-of-00001": b"d"},
            {"ckpt-2.index": b"", "ckpt-2.data-00000-of-00001": b""},
        ),
        ({"3/_CHECKPOINT_METADATA": b"a"}, {}),
    ],
)
def test_a_newer_name_without_content_is_made(
    tmp_path: Path, files: Mapping[str, bytes], made: Mapping[str, bytes]
) -> None:
    save(tmp_path, files)
    done = ask(tmp_path, "empty-newer")
    assert (done["before"], done["after"]) == (None, 0)
    assert contents(tmp_path) == {**files, **made}
    assert made or [*(tmp_path / done["path"]).iterdir()] == []
    assert done["path"] != "3"


@pytest.mark.parametrize("how", ["torn", "bitflip", "missing", "stale"])
def test_a_file_that_somebody_has_open_is_left_until_it_is_closed(tmp_path: Path, how: str) -> None:
    save(tmp_path, TWO)
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as opened:
        opened.enter_context((tmp_path / "m-2.pt").open("ab"))
        times = iter([0.0, saved_files.PATIENCE + 1])
        patch.setattr(saved_files, "time", SimpleNamespace(monotonic=lambda: next(times)))
        why = "m-2.pt was open all the time: it is being written or read"
        assert ask(tmp_path, how) == {"error": why}
        assert contents(tmp_path) == TWO
        clock = SimpleNamespace(monotonic=time.monotonic, sleep=lambda seconds: opened.close())
        patch.setattr(saved_files, "time", clock)
        assert ask(tmp_path, how)["checkpoint"] == "m-2.pt"
    assert contents(tmp_path) != TWO


@pytest.mark.parametrize("has", [True, False])
def test_a_file_is_left_where_the_kernel_does_not_say_whether_it_is_open(
    tmp_path: Path, has: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, TWO)
    if has:

        def refuse(*_: object) -> None:
            raise PermissionError(errno.EACCES, "Permission denied")

        monkeypatch.setattr(fcntl, "fcntl", refuse)
    else:
        monkeypatch.delattr(fcntl, "F_SETLEASE")
    why = "the kernel does not say whether m-2.pt is open "
    assert ask(tmp_path, "torn")["error"].startswith(why)
    assert contents(tmp_path) == TWO
    assert ask(tmp_path, "torn", even_open=True)["after"] == 4


def test_a_file_that_is_open_is_changed_where_that_is_asked_for(tmp_path: Path) -> None:
    save(tmp_path, TWO)
    with (tmp_path / "m-2.pt").open("ab"):
        assert ask(tmp_path, "torn", even_open=True)["after"] == 4


def test_a_task_that_is_held_is_not_waited_for(tmp_path: Path) -> None:
    save(tmp_path, {"m.pt": TWO["m-2.pt"]})
    said = ask(tmp_path, "stale", even_open=True, held=True)
    assert said == {"error": "m.pt has no older version, and is not saved again before the change"}


def test_whoever_opens_what_is_being_changed_waits(tmp_path: Path) -> None:
    save(tmp_path, TWO)
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    folder = saved_files.Folder(str(tmp_path))
    with folder.alone("m-2.pt", even_open=False), pytest.raises(BlockingIOError):
        os.open(tmp_path / "m-2.pt", os.O_WRONLY | os.O_NONBLOCK)


# --- Once -----------------------------------------------------------------------------------------


def plan_of(folder: Path, how: str, *, then: bool) -> dict[str, Any]:
    """Ask, and return what was told before the change, which is made or not."""
    talk = saved_files.talk({"folder": str(folder), "how": how, "of": "latest"})
    plan = next(talk)
    if then:
        with pytest.raises(StopIteration):
            next(talk)
    talk.close()
    told: dict[str, Any] = json.loads(json.dumps(plan))
    return told


@pytest.mark.parametrize("then", [True, False])
@pytest.mark.parametrize("how", saved_files.HOW)
def test_a_change_that_is_asked_for_twice_is_made_once(
    tmp_path: Path, how: str, then: bool
) -> None:
    save(tmp_path, {"m-1.pt": b"first of all", **TWO})
    plan = plan_of(tmp_path, how, then=then)
    made = contents(tmp_path)
    assert (made != {"m-1.pt": b"first of all", **TWO}) == then
    done = ask(tmp_path, how, plan=plan)
    assert {**done, **plan["done"]} == done
    assert contents(tmp_path) == made or not then
    after = contents(tmp_path)
    ask(tmp_path, how, plan=plan)
    assert contents(tmp_path) == after != {"m-1.pt": b"first of all", **TWO}


@pytest.mark.parametrize("how", saved_files.HOW)
def test_of_a_file_that_was_saved_again_it_is_not_known(tmp_path: Path, how: str) -> None:
    save(tmp_path, TWO)
    plan = plan_of(tmp_path, how, then=True)
    (tmp_path / "new").write_bytes(b"saved again")
    (tmp_path / "new").rename(tmp_path / plan["aims"][0]["path"])
    before = contents(tmp_path)
    why = "was changed is not known: the emulator was killed meanwhile, and it has been written"
    assert why in ask(tmp_path, how, plan=plan)["error"]
    assert contents(tmp_path) == before
    if how in ("torn", "bitflip", "stale", "zeroed"):
        (tmp_path / plan["aims"][0]["path"]).unlink()
        assert ask(tmp_path, how, plan=plan)["error"].endswith("and it is gone now")


def test_nothing_is_changed_by_the_program_unless_it_is_told_to_go_on(tmp_path: Path) -> None:
    save(tmp_path, TWO)
    asked = {"folder": str(tmp_path), "how": "torn", "of": "latest", "waits": True}
    plan = run(asked, "").rstrip("\n")
    assert contents(tmp_path) == TWO
    assert (json.loads(plan)["plan"]["done"]["before"], run(asked, "")) == (9, plan + "\n")
    told = run(asked, "go\n").splitlines()
    assert (told[0], json.loads(told[1])["after"]) == (plan, 4)
    again = run({**asked, "again": True}, json.dumps(json.loads(plan)["plan"]) + "\ngo\n")
    assert json.loads(again.splitlines()[1])["after"] == 4
    assert contents(tmp_path)["m-2.pt"] == b"\x00" * 4


def run(request: Mapping[str, Any], said: str) -> str:
    """Run the program on its own, in this process."""
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.setattr("sys.stdin", io.StringIO(said))
        saved_files.main([json.dumps(request)])
    return printed.getvalue()


# --- What is not the run's ------------------------------------------------------------------------


@pytest.mark.parametrize("how", saved_files.HOW)
def test_a_file_with_a_second_name_is_left_alone(tmp_path: Path, how: str) -> None:
    save(tmp_path, {"shared/m-1.pt": b"1", "shared/m-2.pt": b"12", "mine/m-9.pt": b"of the user"})
    shared = tmp_path / "shared"
    os.link(tmp_path / "mine/m-9.pt", shared / "m-9.pt")
    why = "m-9.pt is left alone: it has 2 names (hard links), and may be another's as well"
    assert ask(shared, how, "m-*.pt") == {"error": why}
    done = ask(shared, how)
    assert (done["checkpoint"], done["left_out"]) == ("m-2.pt", ["m-9.pt"])
    assert (tmp_path / "mine/m-9.pt").read_bytes() == b"of the user"
    for path in shared.glob("m-[!9]*.pt"):
        path.unlink()
    assert ask(shared, how) == {"error": why}


@pytest.mark.skipif(
    not os.path.ismount("/dev/shm"), reason="it needs a mount that anybody can write to"
)
def test_a_file_on_another_mount_is_changed_only_where_an_absolute_pattern_names_it() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        save(Path(name), TWO)
        why = f"{name[5:]}/m-2.pt is left alone: it is on another mount"
        assert ask(Path("/dev"), "torn", f"{name[5:]}/*.pt") == {"error": why}
        assert contents(Path(name)) == TWO
        assert ask(Path("/proc"), "torn", f"{name}/*.pt", anywhere=True)["after"] == 4


def test_what_is_older_than_the_run_came_with_the_program(tmp_path: Path) -> None:
    save(tmp_path, TWO)
    why = "there are no files; older than the run, and not saved by it: m-2.pt, m-1.pt"
    assert ask(tmp_path, "torn", since=2.5)["error"].endswith(why)
    assert ask(tmp_path, "torn", since=1.5)["path"] == "m-2.pt"


# --- What can't be done ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "how", "of", "why"),
    [
        ({}, "torn", "latest", "there is no checkpoint in {}: there are no files"),
        ({"a.txt": b""}, "torn", "latest", "there is no checkpoint in {}: there is a.txt"),
        (TWO, "torn", "*.h5", "nothing matches *.h5 in {}: there are m-2.pt, m-1.pt"),
        ({"m.pt": b""}, "bitflip", "latest", "m.pt is empty"),
        ({"m.pt": b""}, "torn", "latest", "m.pt is empty"),
        (
            {"m.pt": b"a"},
            "empty-newer",
            "latest",
            "m.pt has no number in its name, so that none is newer",
        ),
    ],
)
def test_it_says_why_nothing_was_done_and_what_is_there(
    tmp_path: Path, files: Mapping[str, bytes], how: str, of: str, why: str
) -> None:
    save(tmp_path, files)
    assert ask(tmp_path, how, of) == {"error": why.format(tmp_path)}
    assert contents(tmp_path) == files


def test_of_many_files_it_says_some(tmp_path: Path) -> None:
    save(tmp_path, {f"f{number}": b"" for number in range(12)})
    assert ask(tmp_path, "torn")["error"].endswith("f11, f10, f9, f8, f7, f6, f5, f4 and 4 more")


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A folder that is none of the task's."""
    save(tmp_path / "outside", {"secret-1.pt": b"not yours", "1/_CHECKPOINT_METADATA": b"nor this"})
    before = contents(tmp_path / "outside")
    yield tmp_path / "outside"
    assert contents(tmp_path / "outside") == before


@pytest.mark.parametrize("of", ["latest", "*.pt", "**", "../outside/*", "link/*", "/../outside/*"])
@pytest.mark.parametrize("how", saved_files.HOW)
def test_no_link_leads_out_of_the_folder(tmp_path: Path, outside: Path, of: str, how: str) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "link").symlink_to(outside)
    (inside / "link-2.pt").symlink_to(outside / "secret-1.pt")
    assert "error" in ask(inside, how, of)


def test_a_folder_that_becomes_a_link_meanwhile_is_not_followed(
    tmp_path: Path, outside: Path
) -> None:
    folder = saved_files.Folder(str(tmp_path))
    (tmp_path / "run").symlink_to(outside)
    with pytest.raises(NotADirectoryError), folder.opened("run/secret-1.pt", os.O_RDWR):
        raise AssertionError


def test_a_pipe_in_its_place_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m-1.pt")
    folder = saved_files.Folder(str(tmp_path))
    no_file = pytest.raises(saved_files.Failure, match=r"m-1\.pt is no file any more")
    with no_file, folder.opened("m-1.pt", os.O_RDWR):
        raise AssertionError


def test_an_absolute_pattern_of_a_task_is_searched_where_it_begins(tmp_path: Path) -> None:
    save(tmp_path, {"run/deep/m-1.pt": b"1234", "run/m-2.pt": b"12"})
    pattern = f"{tmp_path}/run/*.pt"
    assert ask(Path("/proc"), "torn", pattern, anywhere=True)["path"] == "m-2.pt"
    assert contents(tmp_path) == {"run/deep/m-1.pt": b"1234", "run/m-2.pt": b"1"}
    assert saved_files.split_absolute("/a/b.pt") == ("/a", "/b.pt")
    assert saved_files.split_absolute("/*/b.pt") == ("/", "/*/b.pt")
