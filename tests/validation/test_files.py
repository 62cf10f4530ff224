"""Files that users name: regular ones of a bounded size are read, nothing else is even opened."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from emulator.validation import files
from emulator.validation.files import is_unreal, kind_of, readable, reason, text_of


def test_a_file_of_just_the_size_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("grüße", encoding="utf-8")
    assert text_of(tmp_path / "a", 7) == "grüße"
    with pytest.raises(ValueError, match="it has 7 B; 6 B is the most"):
        text_of(tmp_path / "a", 6)


def test_a_link_to_a_file_is_the_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("b")
    (tmp_path / "link").symlink_to("a")
    assert text_of(tmp_path / "link", 10) == "b"


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/dev/zero", "it is a device, not a file"),
        ("/dev/null", "it is a device, not a file"),
        ("/proc/self/status", "is a kernel file"),
        ("/proc/kmsg", "is a kernel file"),
        ("/", "it is a folder, not a file"),
        ("/does/not/exist", "No such file or directory"),
        ("/etc/hostname/x", "Not a directory"),
        ("x" * 5000, "File name too long"),
        ("pipe", "it is a named pipe, not a file"),
        ("ring", r"[Ss]ymlink loop|[Tt]oo many levels of symbolic links"),
        ("bytes", "it is not text: line 2 is not UTF-8"),
    ],
)
def test_what_is_no_file_of_text_is_refused_at_once(tmp_path: Path, path: str, why: str) -> None:
    os.mkfifo(tmp_path / "pipe")  # without a writer
    (tmp_path / "ring").symlink_to("ring")
    (tmp_path / "bytes").write_bytes(b"\nb\xff\n")
    with pytest.raises(ValueError, match=why):
        text_of(tmp_path / path, 2**20)


def test_what_this_user_may_not_read_is_refused_before_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_text("b")
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # as of all but root
    with pytest.raises(ValueError, match="Permission denied"):
        readable(tmp_path / "a", 10)


def test_shared_memory_has_ordinary_files(tmp_path: Path) -> None:
    there = Path("/dev/shm")
    if not os.access(there, os.W_OK):
        pytest.skip("there is no /dev/shm to write to")
    file = there / f"emulator-test-{os.getpid()}"
    try:
        file.write_text("a")
        assert text_of(file, 10) == "a"
    finally:
        file.unlink()


def test_a_file_that_was_replaced_since_it_was_checked_is_refused_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "readable", lambda path, most: None)
    (tmp_path / "a").write_text("1234567")
    os.mkfifo(tmp_path / "pipe")
    assert text_of(tmp_path / "a", 7) == "1234567"
    for name, why in {
        "a": "it has more than 6 B",
        "b": "No such file or directory",
        "pipe": "it is a named pipe, not a file",
    }.items():
        with pytest.raises(ValueError, match=f"^{why}$"):
            text_of(tmp_path / name, 6)


def test_kinds_places_and_reasons() -> None:
    kinds = (stat.S_IFSOCK, stat.S_IFBLK, stat.S_IFCHR, stat.S_IFLNK, stat.S_IFREG | 0o777)
    assert [kind_of(kind) for kind in kinds] == ["a socket", "a device", "a device", "a link", ""]
    places = ("/dev", "/sys/a", "/proc/1/a", "/dev/shm", "/dev/shm/a", "/device/a", "/home/dev/a")
    assert [is_unreal(Path(place)) for place in places] == [True] * 4 + [False] * 3
    errors = (OSError(2, "No such file"), RuntimeError("a ring"), RuntimeError())
    assert list(map(reason, errors)) == ["No such file", "a ring", "RuntimeError"]
