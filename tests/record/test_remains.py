"""What is left in a run folder: only what the run provably made is removed."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from emulator.errors import RecordError, UsageError
from emulator.record.lock import LOCK
from emulator.record.remains import (
    LOG,
    PORT,
    SOCKET,
    TEMPORARY,
    TOKEN,
    folder_of_socket,
    header,
    never_began,
    remains,
    remove_never_began,
    remove_remains,
)
from emulator.record.scratch import MARKER, Scratch, is_run_folder

RUN = "run-1"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run folder with its plan."""
    path = tmp_path / "runs" / RUN
    path.mkdir(parents=True)
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


def test_the_sockets_of_killed_emulators_are_removed_without_their_runs(temporary: Path) -> None:
    dead, earlier = (Path(tempfile.mkdtemp(prefix=TEMPORARY)) for _ in range(2))
    bound(dead / SOCKET)
    with folder_of_socket() as live, socket.socket(socket.AF_UNIX) as listens:
        assert sorted(temporary.iterdir()) == sorted([earlier, live])
        bound(live / SOCKET)  # it does not listen yet
        listens.bind(str(earlier / SOCKET))
        listens.listen(1)  # of an emulator that takes no lock
        with folder_of_socket() as second:
            assert sorted(temporary.iterdir()) == sorted([earlier, live, second])
        assert (live / SOCKET).is_socket()


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


# --- The folders of tasks ------------------------------------------------------------------------


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """A folder that is not ours, with a file in it."""
    path = tmp_path / "precious"
    (path / "worker-0").mkdir(parents=True)
    (path / "worker-0" / "file").write_text("years of work")
    return path


def untouched(precious: Path) -> bool:
    return (precious / "worker-0" / "file").read_text() == "years of work"


@pytest.mark.parametrize("later", [False, True])
def test_what_a_run_made_is_deleted_with_all_that_is_in_it(folder: Path, later: bool) -> None:
    """By the run itself, or by a later process."""
    scratch = Scratch.make(folder, RUN)
    (scratch.home("worker-0") / "deep").mkdir(parents=True)
    (folder / "shared" / "model").write_text("weights")
    os.mkfifo(folder / "work" / "worker-0.out")
    made = [folder / "work", folder / "shared"]
    assert remains(folder, RUN) == made
    assert remove_remains(folder, RUN) == made if later else scratch.remove() == 2
    assert sorted(os.listdir(folder)) == ["plan.json"]
    assert remains(folder, RUN) == []
    assert scratch.remove() == 0


@pytest.mark.parametrize("name", ["work", "shared", MARKER])
@pytest.mark.parametrize(
    "put",
    [
        lambda path, _: path.mkdir(),
        lambda path, _: path.write_text("mine"),
        lambda path, precious: path.symlink_to(precious),
        lambda path, _: path.symlink_to("nowhere"),
    ],
)
def test_what_was_there_before_the_run_is_refused_and_stays(
    folder: Path, precious: Path, name: str, put: Callable[[Path, Path], object]
) -> None:
    put(folder / name, precious)
    with pytest.raises(UsageError, match=f"{name} exists already, and this run did not"):
        Scratch.make(folder, RUN)
    assert remove_remains(folder, RUN) == []
    assert os.path.lexists(folder / name)
    assert sorted(os.listdir(folder)) == sorted(["plan.json", name])
    assert untouched(precious)


def another(file: Path) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), "run_id": "run-2"}))


def without_end(plan: Path) -> None:
    plan.write_bytes(b"")
    os.truncate(plan, 2**40)  # a hole: it takes no room on the disk


NO_PROOF: dict[str, tuple[str, Callable[[Path], object]]] = {
    "no plan": ("plan.json", Path.unlink),
    "a plan of another": ("plan.json", another),
    "a link": ("plan.json", lambda plan: plan.symlink_to(plan.rename(plan.parents[1] / "plan"))),
    "a pipe": ("plan.json", lambda plan: os.mkfifo(plan.rename(f"{plan}-2").with_name(plan.name))),
    "no end": ("plan.json", without_end),
    "no JSON": ("plan.json", lambda plan: plan.write_bytes(b"[" * 100_000)),
    "no marker": (MARKER, Path.unlink),
    "a marker of another": (MARKER, another),
}


@pytest.mark.parametrize(("name", "change"), NO_PROOF.values(), ids=NO_PROOF)
def test_without_proof_nothing_is_deleted(
    folder: Path, name: str, change: Callable[[Path], object]
) -> None:
    scratch = Scratch.make(folder, RUN)
    (folder / "shared" / "file").write_text("mine")
    change(folder / name)
    assert remains(folder, RUN) == []
    assert remove_remains(folder, RUN) == []
    assert scratch.remove() == 0
    assert (folder / "shared" / "file").read_text() == "mine"


def test_a_folder_that_was_renamed_or_copied_or_a_link_is_no_run(
    folder: Path, tmp_path: Path
) -> None:
    Scratch.make(folder, RUN)
    copy = folder.parent / "run-2"
    shutil.copytree(folder, copy)
    assert remove_remains(copy, "run-2") == []
    assert remove_remains(copy, RUN) == []
    elsewhere = folder.parent / "elsewhere" / RUN  # the name fits, the folders are others
    shutil.copytree(folder, elsewhere)
    assert remove_remains(elsewhere, RUN) == []
    assert (elsewhere / "work").is_dir()
    link = tmp_path / RUN
    link.symlink_to(folder)
    assert not is_run_folder(link, RUN)
    assert remove_remains(link, RUN) == []
    assert (folder / "work").is_dir()


@pytest.mark.parametrize("by", ["a link", "another"])
def test_a_folder_that_was_replaced_is_left_alone(folder: Path, precious: Path, by: str) -> None:
    scratch, work = Scratch.make(folder, RUN), folder / "work"
    work.rename(folder / "mine")
    work.symlink_to(precious) if by == "a link" else precious.rename(work)
    assert scratch.remove() == 1  # shared
    assert untouched(work)
    scratch.remove_home("worker-0")
    assert untouched(work)
    with pytest.raises(RecordError, match="work is not the folder that the run made"):
        scratch.home("worker-0")


def test_links_in_a_folder_are_deleted_and_what_they_lead_to_is_not(
    folder: Path, precious: Path
) -> None:
    scratch = Scratch.make(folder, RUN)
    (folder / "work" / "worker-0").symlink_to(precious)
    (folder / "shared" / "deep").mkdir()
    (folder / "shared" / "deep" / "link").symlink_to(precious / "worker-0")
    scratch.remove_home("worker-0")
    assert not os.path.lexists(folder / "work" / "worker-0")
    assert scratch.remove() == 2
    assert untouched(precious)
    assert shutil.rmtree.avoids_symlink_attacks  # this system deletes by open directories


def test_what_is_mounted_in_a_folder_is_not_emptied(folder: Path, precious: Path) -> None:
    scratch = Scratch.make(folder, RUN)
    point = folder / "shared" / "a point"
    point.mkdir()
    command = ["mount", "--bind", str(precious), str(point)]
    if os.geteuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a folder")
    try:
        for remove in (scratch.remove, lambda: remove_remains(folder, RUN)):
            with pytest.raises(RecordError, match=r"shared was not deleted: .*/a point\. Unmount"):
                remove()
        assert untouched(precious)
    finally:
        subprocess.run(["umount", str(point)], check=True)
    assert scratch.remove() == 1
    assert untouched(precious)


def test_a_working_directory_in_which_something_is_mounted_is_not_emptied(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = Scratch.make(folder, RUN)
    point = scratch.home("worker-0") / "point"
    point.mkdir(parents=True)
    mounts = [SimpleNamespace(mountpoint=str(point))]
    monkeypatch.setattr(psutil, "disk_partitions", lambda **_: mounts)
    with pytest.raises(RecordError, match=r"work/worker-0 was not deleted: .*/point\. Unmount"):
        scratch.remove_home("worker-0")
    assert point.is_dir()


def test_a_run_that_was_killed_while_it_made_its_folders_leaves_empty_ones(folder: Path) -> None:
    (folder / MARKER).write_text(json.dumps({"run_id": RUN}))  # as it is before they are made
    (folder / "work").mkdir()
    assert remains(folder, RUN) == [folder / "work"]
    assert remove_remains(folder, RUN) == [folder / "work"]
    (folder / "shared").mkdir()
    (folder / "shared" / "file").write_text("mine")
    assert remove_remains(folder, RUN) == []
    assert (folder / "shared" / "file").read_text() == "mine"
    (folder / "work").write_text("mine")  # a file that has got the inode of the folder
    inodes = {"work": (folder / "work").stat().st_ino}
    (folder / MARKER).write_text(json.dumps({"run_id": RUN, "inodes": inodes}))
    assert remains(folder, RUN) == remove_remains(folder, RUN) == []
    assert (folder / "work").read_text() == "mine"


@pytest.mark.parametrize("path", ["/", "/dev", "/proc/self", "gone", "a\0b"])
def test_any_path_may_be_asked_about(path: str) -> None:
    assert not is_run_folder(Path(path), RUN)
