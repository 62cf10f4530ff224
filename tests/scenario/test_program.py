"""The program that tasks run: what is copied, what is refused, and that both engines agree."""

from __future__ import annotations

import io
import os
import socket
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from emulator.engines.docker.container_request import program_archive
from emulator.errors import EngineError
from emulator.scenario import program
from emulator.scenario.program import Copied, parts, pattern_of
from emulator.validation import limits


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "program"
    for name in ("train.py", "pkg/data.csv", "pkg/__pycache__/x.pyc", ".git/HEAD", "pkg/.git/HEAD"):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(name)
    (made / ".venv" / "bin").mkdir(parents=True)  # as Python makes one
    (made / ".venv" / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (made / ".venv" / "bin" / "python").symlink_to("/usr/bin/env")
    (made / "empty").mkdir()
    (made / "tool").write_text("#!/bin/sh\n")
    (made / "tool").chmod(0o755)
    (made / "link").symlink_to("train.py")
    (made / "absolute").symlink_to(made.resolve() / "train.py")
    (made / "pkg" / "up").symlink_to("../empty")
    (made / "shared").symlink_to("pkg")
    return made


COPIED = [
    *("absolute", "empty", "link", "pkg", "pkg/data.csv", "pkg/up"),
    *("shared", "shared/data.csv", "shared/up", "tool", "train.py"),
]


def test_files_and_folders_are_copied_with_what_links_inside_lead_to(folder: Path) -> None:
    assert [part.name for part in parts(folder)] == COPIED
    paths = {part.name: part.path for part in parts(folder)}
    assert paths["link"] == paths["absolute"] == paths["train.py"] == folder.resolve() / "train.py"


def copied(home: Path) -> dict[str, tuple[bytes | None, bool]]:
    """Return what is in a folder: content, None of a folder, and whether it can be run."""
    return {
        str(path.relative_to(home)): (
            None if path.is_dir() else path.read_bytes(),
            path.is_file() and os.access(path, os.X_OK),
        )
        for path in home.rglob("*")
        if not path.is_symlink()
    }


def packed(archive: bytes) -> dict[str, tuple[bytes | None, bool]]:
    found: dict[str, tuple[bytes | None, bool]] = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for entry in tar:
            if entry.name not in ("job", "shared"):
                file = tar.extractfile(entry)
                runs = entry.isfile() and bool(entry.mode & 0o100)
                found[entry.name.removeprefix("job/")] = (
                    None if file is None else file.read(),
                    runs,
                )
    return found


@pytest.mark.parametrize("source", [".", "train.py", "tool"])
def test_processes_and_containers_get_the_same(folder: Path, tmp_path: Path, source: str) -> None:
    home = tmp_path / "work" / "worker-0"
    what = Copied(folder / source, ["data.csv", "/tool"])
    program.copy(what, home, tmp_path)
    assert copied(home) == packed(program_archive(what))
    assert copied(home)


@pytest.mark.parametrize(
    ("exclude", "left"),
    [
        (
            ["data.csv"],
            ["absolute", "empty", "link", "pkg", "pkg/up", "shared", "shared/up", "tool"],
        ),
        (["pkg/"], [one for one in COPIED if not one.startswith("pkg")]),
        (["*", "!train.py"], []),
        (["# a comment", "", "/tool"], [one for one in COPIED if one != "tool"]),
    ],
)
def test_what_is_excluded_is_not_copied(folder: Path, exclude: list[str], left: list[str]) -> None:
    assert {part.name for part in parts(folder, exclude)} == {*left, "train.py"}


@pytest.mark.parametrize("name", ["runs", "a [b]*", "in\\out?", "#1/!x", " y "])
def test_a_folder_is_excluded_by_its_pattern_and_no_other_is(folder: Path, name: str) -> None:
    runs = folder / name
    (runs / "one").mkdir(parents=True)
    (folder / "of" / name).mkdir(parents=True)
    names = {part.name for part in parts(folder, pattern_of(runs, folder))}
    assert f"of/{name}" in names
    assert not {name, f"{name}/one"} & names


def test_a_folder_outside_needs_no_pattern(folder: Path) -> None:
    assert pattern_of(folder, folder) == pattern_of(folder.parent, folder) == []


def test_what_is_excluded_does_not_count_for_the_size(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "pkg" / "weights.bin").write_bytes(b"x" * 5000)
    monkeypatch.setattr(program, "PROGRAM_BYTES", 4000)
    with pytest.raises(ValueError, match=r"contains more than .*, or `exclude` the data"):
        parts(folder)
    assert parts(folder, ["*.bin"])


def test_a_folder_that_is_the_shared_volume_is_a_link_and_not_a_copy(
    folder: Path, tmp_path: Path
) -> None:
    home, volume = tmp_path / "work" / "worker-0", tmp_path / "volume"
    volume.mkdir()
    what = Copied(folder, (), "pkg")
    program.copy(what, home, volume)
    assert (home / "pkg").resolve() == volume.resolve()
    with tarfile.open(fileobj=io.BytesIO(program_archive(what))) as tar:
        assert tar.getmember("job/pkg").linkname == "/shared"
        assert "job/pkg/data.csv" not in tar.getnames()


def test_a_file_with_two_names_is_packed_twice(folder: Path) -> None:
    os.link(folder / "train.py", folder / "again.py")
    found = packed(program_archive(Copied(folder)))
    assert found["again.py"] == found["train.py"] == (b"train.py", False)


def test_no_program_is_an_empty_folder(tmp_path: Path) -> None:
    program.copy(None, tmp_path / "work" / "worker-0", tmp_path)
    assert copied(tmp_path / "work") == {"worker-0": (None, False)}


def test_runs_beside_the_program_are_left_out_of_it(folder: Path) -> None:
    """They grow while they would be copied, and hold the copies of others."""
    run = folder / "runs" / "x-1"
    (run / "work" / "worker-0").mkdir(parents=True)
    for name in ("plan.json", "history.jsonl", "work/worker-0/train.py"):
        (run / name).write_text("{}")
    os.mkfifo(run / "work" / "worker-0.out")
    assert {part.name for part in parts(folder)} == {*COPIED, "runs"}
    program.copy(Copied(folder), run / "work" / "worker-1", run)
    assert list((run / "work" / "worker-1" / "runs").iterdir()) == []


def listening(path: Path) -> None:
    before = Path.cwd()
    os.chdir(path.parent)  # the path of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(before)


def leading(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(limits.PROGRAM_BYTES + 1)  # without a block on the disk


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (os.mkfifo, "pkg/odd is a named pipe; only files and folders can be copied"),
        (listening, "pkg/odd is a socket; only files and folders can be copied"),
        (leading("/dev/zero"), "pkg/odd is a link out of the folder; put a copy there"),
        (leading("/etc/hostname"), "pkg/odd is a link out of the folder"),
        (leading("../.."), "pkg/odd is a link out of the folder"),
        (leading(".."), "pkg/odd is a link to a folder that it is in"),
        (leading("."), "pkg/odd is a link to a folder that it is in"),
        (leading("odd"), "pkg/odd is a broken link"),
        (leading("nobody"), "pkg/odd is a broken link"),
        (
            huge,
            "contains more than 200 MiB; put the program into a folder of its own, without data",
        ),
    ],
)
def test_what_can_not_be_copied_is_refused_by_name(
    folder: Path, tmp_path: Path, make: Callable[[Path], None], why: str
) -> None:
    make(folder / "pkg" / "odd")
    with pytest.raises(ValueError, match=why):
        parts(folder)
    # What appears after the scenario was checked ends the run with a sentence.
    with pytest.raises(EngineError, match=why):
        program.copy(Copied(folder), tmp_path / "home", tmp_path)
    with pytest.raises(EngineError, match=why):
        program_archive(Copied(folder))


def test_links_that_multiply_are_refused_before_they_are_all_followed(tmp_path: Path) -> None:
    """Twenty folders with two links each to the next: a million ways to the last."""
    for number in range(21):
        (tmp_path / f"d{number}").mkdir()
    for number in range(20):
        for name in "ab":
            (tmp_path / f"d{number}" / name).symlink_to(f"../d{number + 1}")
    with pytest.raises(ValueError, match="contains more than 10,000 files"):
        parts(tmp_path)


def test_a_folder_of_very_many_files_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "PROGRAM_FILES", 100)
    for number in range(101):
        (tmp_path / f"f{number}").touch()
    with pytest.raises(ValueError, match=r"contains more than 100 files; put the program into a"):
        parts(tmp_path)
    (tmp_path / "f0").unlink()
    assert len(parts(tmp_path)) == 100


def test_folders_add_nothing_to_the_size_of_a_program(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    with (tmp_path / "pkg" / "data").open("wb") as file:
        file.truncate(limits.PROGRAM_BYTES)
    assert len(parts(tmp_path)) == 2
    (tmp_path / "one.byte").write_text("1")
    with pytest.raises(ValueError, match="contains more than 200 MiB"):
        parts(tmp_path)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("/dev/zero", "/dev/zero can't be copied: it is a device, not a file"),
        ("/proc/self", r"/proc/\d+ is a kernel folder, without ordinary files"),
        ("/proc/self/environ", "is a kernel file"),
        ("/sys", "/sys is a kernel folder, without ordinary files"),
        ("/dev", "/dev is a kernel folder, without ordinary files"),
        ("/nobody/here", "/nobody/here can't be read: No such file or directory"),
    ],
)
def test_what_the_kernel_shows_as_files_is_no_program(source: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parts(Path(source))
