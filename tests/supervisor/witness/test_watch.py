"""The program that watches folders, on real files."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emulator.supervisor.witness import watch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")


class Watching:
    """The program, with what it has told."""

    def __init__(self, folder: Path, text: str, since: float = 0.0) -> None:
        asked = json.dumps({"folders": {"shared": str(folder)}, "since": since})
        self._program = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", text, asked],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.told: list[dict[str, Any]] = []

    def until(self, saw: str, path: str = "") -> dict[str, Any]:
        """Wait until something is told."""
        assert self._program.stdout is not None
        for line in self._program.stdout:
            self.told.append(json.loads(line))
            if (self.told[-1]["saw"], self.told[-1].get("path", "")) == (saw, path):
                return self.told[-1]
        raise AssertionError((saw, path, self.told))

    def end(self) -> list[dict[str, Any]]:
        """End its input; return all that it has told."""
        output, _ = self._program.communicate(timeout=60)
        self.told += map(json.loads, output.splitlines())
        assert self._program.returncode == 0
        return self.told


TEXT = Path(watch.__file__).read_text("utf-8")


@pytest.fixture
def watching(tmp_path: Path) -> Iterator[Watching]:
    one = Watching(tmp_path, TEXT)
    one.until("watching")
    yield one
    one._program.kill()
    one._program.communicate()


def test_a_file_that_is_written_renamed_read_and_removed(
    watching: Watching, tmp_path: Path
) -> None:
    (tmp_path / "model.tmp").write_text("x" * 9)
    written = watching.until("written", "model.tmp")
    assert 0 < written["first"] <= written["at"]
    assert written["bytes"] == 9
    (tmp_path / "model.tmp").rename(tmp_path / "model.pt")
    assert watching.until("moved", "model.tmp")["to"] == "model.pt"
    (tmp_path / "model.pt").read_text()
    watching.until("read", "model.pt")
    (tmp_path / "model.pt").unlink()
    watching.until("removed", "model.pt")
    assert [one["saw"] for one in watching.end()] == [
        "watching", "open", "written", "moved", "read", "removed",
    ]  # fmt: skip


def test_folders_that_are_made_moved_and_removed(watching: Watching, tmp_path: Path) -> None:
    (tmp_path / "run/tmp-1/deep").mkdir(parents=True)
    (tmp_path / "run/tmp-1/deep/a.pt").write_text("a")  # before its folder is watched, or after
    watching.until("written", "run/tmp-1/deep/a.pt")
    (tmp_path / "run/tmp-1").rename(tmp_path / "run/step-1")
    assert watching.until("moved", "run/tmp-1")["folder"] is True
    (tmp_path / "run/step-1/deep/b.pt").write_text("b")
    watching.until("written", "run/step-1/deep/b.pt")
    (tmp_path / "run/step-1/deep/a.pt").read_text()
    watching.until("read", "run/step-1/deep/a.pt")
    for name in ("deep/a.pt", "deep/b.pt"):
        (tmp_path / "run/step-1" / name).unlink()
    (tmp_path / "run/step-1/deep").rmdir()
    assert watching.until("removed", "run/step-1/deep")["folder"] is True


def test_one_that_leaves_or_comes_from_elsewhere(watching: Watching, tmp_path: Path) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.write_text("123")
    outside.rename(tmp_path / "model.pt")
    assert watching.until("written", "model.pt")["bytes"] == 3
    (tmp_path / "model.pt").rename(outside)
    watching.until("removed", "model.pt")
    outside.unlink()


def test_one_that_comes_from_elsewhere_may_take_the_place_of_another(
    watching: Watching, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """As fsspec writes: to a file in /tmp, which is then moved."""
    outside = tmp_path_factory.mktemp("outside") / "x"
    for size in (9, 5):
        outside.write_text("x" * size)
        outside.rename(tmp_path / "last.ckpt")
        came = watching.until("written", "last.ckpt")
        assert (came["bytes"], came["renamed"], came["first"] <= came["at"]) == (size, True, True)


def test_a_file_that_is_open_is_written_when_it_is_closed(
    watching: Watching, tmp_path: Path
) -> None:
    with (tmp_path / "model.pt").open("w") as file:
        file.write("x" * 5)
        file.flush()
        watching.until("open", "model.pt")
        os.utime(tmp_path / "model.pt")  # no write
        file.write("y" * 5)
    assert watching.until("written", "model.pt")["bytes"] == 10
    with (tmp_path / "model.pt").open("a"):
        pass  # opened for writing, and not written
    (tmp_path / "end").write_text("e")
    watching.until("written", "end")
    assert [one.get("path") for one in watching.end()].count("model.pt") == 2


def test_of_what_was_there_only_what_the_run_wrote_is_told(tmp_path: Path) -> None:
    (tmp_path / "given.pt").write_text("g")
    os.utime(tmp_path / "given.pt", (1000, 1000))
    (tmp_path / "early.pt").write_text("e")
    os.utime(tmp_path / "early.pt", (3000, 3000))
    one = Watching(tmp_path, TEXT, since=2000.0)
    one.until("watching")
    (tmp_path / "given.pt").read_text()
    (tmp_path / "early.pt").read_text()
    one.until("read", "early.pt")
    told = one.end()
    assert [(each["saw"], each.get("path")) for each in told] == [
        ("written", "early.pt"), ("watching", None), ("read", "early.pt"),
    ]  # fmt: skip
    assert (told[0]["found"], told[0]["first"]) == (True, 3000.0)


def test_a_link_that_leads_out_is_not_followed(watching: Watching, tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("/usr")
    (tmp_path / "model.pt").symlink_to("/etc/passwd")
    (tmp_path / "end").write_text("e")
    watching.until("written", "end")
    assert {one.get("path") for one in watching.end()} <= {None, "end"}


def test_another_name_of_a_file_is_a_file(watching: Watching, tmp_path: Path) -> None:
    (tmp_path / "model.new").write_text("m")
    os.link(tmp_path / "model.new", tmp_path / "model.pt")
    assert watching.until("written", "model.pt")["bytes"] == 1
    (tmp_path / "empty.pt").touch()
    assert watching.until("written", "empty.pt")["bytes"] == 0


def test_the_folder_itself_may_be_removed(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    one = Watching(tmp_path / "shared", TEXT)
    one.until("watching")
    (tmp_path / "shared" / "a.pt").write_text("a")
    (tmp_path / "shared" / "a.pt").unlink()
    (tmp_path / "shared").rmdir()
    one.until("removed", "a.pt")
    assert one.until("blind")["why"] == "it was removed"
    one.end()


def test_more_folders_than_it_watches_are_said_to_be_unseen(tmp_path: Path) -> None:
    for n in range(4):
        (tmp_path / str(n)).mkdir()
    one = Watching(tmp_path, TEXT.replace("WATCHES = 2_000", "WATCHES = 3"))
    one.until("watching")
    for n in range(4, 8):
        (tmp_path / str(n)).mkdir()
    (tmp_path / "end").write_text("e")
    one.until("written", "end")
    (blind,) = [each for each in one.end() if each["saw"] == "blind"]  # of the first of them
    assert blind["why"] == "3 folders are watched already"
    assert watch._why(errno.ENOSPC).endswith("(fs.inotify.max_user_watches)")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everywhere")
def test_a_folder_that_may_not_be_read_is_said_to_be_unseen(tmp_path: Path) -> None:
    """See `tests/engines/test_files.py` for one that is of another user."""
    (tmp_path / "secret").mkdir(mode=0)
    one = Watching(tmp_path, TEXT)
    (blind,) = [each for each in one.end() if each["saw"] == "blind"]
    assert (blind["path"], blind["why"]) == ("secret", "it may not be read")


def test_ten_thousand_files_are_all_seen(tmp_path: Path) -> None:
    """Also if the kernel drops events of some, because nobody reads what is told of them."""
    for n in range(5_000):
        (tmp_path / f"{n}.pt").write_text("x")
    one = Watching(tmp_path, TEXT)
    one.until("watching")
    for n in range(5_000, 10_000):
        (tmp_path / f"{n}.pt").write_text("x")
    written = {each["path"] for each in one.end() if each["saw"] == "written"}
    assert written == {f"{n}.pt" for n in range(10_000)}


def test_a_folder_that_is_removed_and_made_again_is_watched_again(
    watching: Watching, tmp_path: Path
) -> None:
    for n in range(3):
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / f"{n}.pt").write_text("x")
        watching.until("written", f"run/{n}.pt")
        (tmp_path / "run" / f"{n}.pt").unlink()
        (tmp_path / "run").rmdir()
        watching.until("removed", "run")
    assert all(each["saw"] != "blind" for each in watching.end())


def test_what_the_kernel_drops_is_said(tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []
    one = watch.Watch(lambda what: told.append(dict(what)))
    one.add("shared", str(tmp_path))
    (tmp_path / "a.pt").write_text("a")
    one._take(watch.EVENT.pack(-1, watch.OVERFLOW, 0, 0), 5.0)
    assert told[0]["why"] == "more happened than the kernel keeps"
    assert (told[1]["path"], told[1]["found"]) == ("a.pt", True)


def test_of_a_network_file_system_it_is_blind(tmp_path: Path) -> None:
    kind = subprocess.check_output(["stat", "-f", "-c", "0x%t", tmp_path], text=True).strip()
    one = Watching(tmp_path, TEXT.replace("{0x6969,", f"{{{kind},"))
    assert one.until("blind")["why"] == "it is on a network file system, which tells nothing"
    assert one.until("watching")["folders"] == 1  # what this machine does there is seen
    one.end()


def test_a_file_system_of_this_machine_tells_what_happens(tmp_path: Path) -> None:
    assert not watch.is_networked(str(tmp_path))
    assert not watch.is_networked(str(tmp_path / "missing"))
