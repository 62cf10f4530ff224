"""The program that finds the latest checkpoint and breaks it, on real files.

recorded/checkpoints.txt has what real libraries save: seconds, bytes and path of each file, as
scripts/record_checkpoints.py has found them.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
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
    done = ask(tmp_path, "torn")
    assert done == {
        "checkpoint": "s-1",
        "format": "DCP",
        "number": 1,
        "path": "s-1/0.distcp",
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
    assert ask(tmp_path, "missing") == {
        "checkpoint": "2",
        "format": "Orbax",
        "number": 2,
        "path": "2",
        "before": 2,
        "after": None,
    }
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


@pytest.mark.parametrize(
    ("files", "made"),
    [
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
