"""Leftovers in a run folder besides the tasks' folders: the API's files, a log without a run."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emulator.record.lock import LOCK
from emulator.record.remains import (
    LOG,
    PORT,
    SOCKET,
    TEMPORARY,
    TOKEN,
    header,
    never_began,
    remains,
    remove_never_began,
    remove_remains,
)

RUN = "run-1"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / RUN
    path.mkdir()
    (path / "plan.json").write_text(json.dumps({"run_id": RUN}))
    return path


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where temporary folders are made; as short as a socket's path must be."""
    with tempfile.TemporaryDirectory() as short:
        monkeypatch.setattr(tempfile, "tempdir", short)
        yield Path(short)


def mine(path: Path, text: str = "mine") -> Path:
    """Put a file of the user's there, in place of one that is there."""
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_text(text)
    return path


def bound(path: Path) -> Path:
    """Leave a socket as a killed process does."""
    with socket.socket(socket.AF_UNIX) as one:
        # A short path to it, however deep the folder lies.
        here = os.open(path.parent, os.O_RDONLY)
        one.bind(f"/proc/self/fd/{here}/{path.name}")
        os.close(here)
    return path


def test_the_files_of_the_api_are_removed(folder: Path) -> None:
    bound(folder / SOCKET)
    (folder / PORT).write_text("4000")
    (folder / TOKEN).write_text("secret")
    there = [folder / SOCKET, folder / PORT, folder / TOKEN]
    assert remains(folder, RUN) == there
    assert remove_remains(folder, RUN) == there
    assert os.listdir(folder) == ["plan.json"]


def test_they_stay_in_a_folder_that_is_no_runs_and_so_does_what_has_their_names(
    folder: Path,
) -> None:
    (folder / SOCKET).write_text("mine")
    (folder / PORT).mkdir()
    (folder / TOKEN).symlink_to("plan.json")
    assert (remains(folder, RUN), remove_remains(folder, RUN)) == ([], [])
    assert sorted(os.listdir(folder)) == sorted(["plan.json", SOCKET, PORT, TOKEN])
    (folder / SOCKET).unlink()
    bound(folder / SOCKET)
    (folder / "plan.json").unlink()
    assert remove_remains(folder, RUN) == []
    assert os.path.lexists(folder / SOCKET)


def test_a_long_paths_socket_goes_with_its_temporary_folder(folder: Path, temporary: Path) -> None:
    short = Path(tempfile.mkdtemp(prefix=TEMPORARY))
    (folder / SOCKET).symlink_to(bound(short / SOCKET))
    assert remove_remains(folder, RUN) == [folder / SOCKET]
    assert os.listdir(folder) == ["plan.json"]
    assert os.listdir(temporary) == []


CHANGES_OF_WHAT_IS_OURS: dict[str, Callable[[Path], object]] = {
    "more in it": lambda short: mine(short / "file"),
    "open to others": lambda short: short.chmod(0o755),
    "no socket": lambda short: mine(short / SOCKET),
    "a link": lambda short: short.symlink_to(short.rename(f"{short}-2")),
}


@pytest.mark.parametrize("change", CHANGES_OF_WHAT_IS_OURS.values(), ids=CHANGES_OF_WHAT_IS_OURS)
def test_what_a_link_leads_to_is_removed_only_where_it_looks_like_ours(
    folder: Path, temporary: Path, change: Callable[[Path], object]
) -> None:
    short = Path(tempfile.mkdtemp(prefix=TEMPORARY))
    (folder / SOCKET).symlink_to(bound(short / SOCKET))
    change(short)
    assert remove_remains(folder, RUN) == [folder / SOCKET]
    assert os.path.lexists(short / SOCKET)


@pytest.mark.parametrize("name", ["other-x", TEMPORARY])
def test_a_link_to_somewhere_else_is_removed_alone(
    folder: Path, temporary: Path, tmp_path: Path, name: str
) -> None:
    # Another name in the right place, or the right name in another place.
    elsewhere = (temporary if name == "other-x" else tmp_path) / name
    elsewhere.mkdir(mode=0o700)
    (folder / SOCKET).symlink_to(bound(elsewhere / SOCKET))
    assert remove_remains(folder, RUN) == [folder / SOCKET]
    assert (elsewhere / SOCKET).is_socket()


# --- Runs that never began ----------------------------------------------------------------------


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """What `up -d` leaves that was killed before there was a plan."""
    path = tmp_path / "runs" / RUN
    path.mkdir(parents=True)
    (path / LOG).write_text(header(RUN) + "building an image\n")
    return path


def test_a_folder_that_up_made_and_where_nothing_began_is_removed(begun: Path) -> None:
    (begun / "logs").mkdir()
    for name in (LOCK, "history.jsonl", "scenario.yaml", "plan.partial"):
        (begun / name).touch()
    assert never_began(begun.parent) == [begun]
    assert remove_never_began(begun)
    assert os.listdir(begun.parent) == []


OTHERS: dict[str, Callable[[Path], object]] = {
    "no log": lambda begun: (begun / LOG).unlink(),
    "another log": lambda begun: mine(begun / LOG, "mine\n"),
    "the log of another": lambda begun: mine(begun / LOG, header("run-2")),
    "a link to the log": lambda begun: (begun / LOG).symlink_to(
        (begun / LOG).rename(begun.parent / LOG)
    ),
    "a plan": lambda begun: mine(begun / "plan.json", "{}"),
    "a file": lambda begun: mine(begun / "notes"),
    "the log of a task": lambda begun: mine(begun / "logs" / "worker-0.log"),
    "a history": lambda begun: mine(begun / "history.jsonl", "{}\n"),
    "a folder by the name": lambda begun: (begun / LOCK).mkdir(),
    "a name that is no run's": lambda begun: mine(begun / LOG, header("Run_1")).parent.rename(
        begun.parent / "Run_1"
    ),
}


@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS)
def test_any_other_folder_stays_as_it_is(begun: Path, change: Callable[[Path], object]) -> None:
    change(begun)
    (folder,) = (path for path in begun.parent.iterdir() if path.is_dir())
    before = sorted(path.name for path in folder.rglob("*"))
    removed = [path for path in never_began(begun.parent) if remove_never_began(path)]
    assert removed == []
    assert sorted(path.name for path in folder.rglob("*")) == before


def test_a_folder_that_is_in_use_stays(begun: Path) -> None:
    with (begun / LOG).open() as log:
        fcntl.flock(log, fcntl.LOCK_EX)  # `up -d` has it until its run is over
        assert never_began(begun.parent) == []
        assert not remove_never_began(begun)
    assert remove_never_began(begun)
