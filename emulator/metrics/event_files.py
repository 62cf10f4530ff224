"""Print the scalars in TensorBoard's event files, as they are written: a program of its own.

It runs next to a job as a helper, where the shared volume is, from a copy of this one file: it
needs only the standard library of Python 3.8 or later. What it prints is read by `event_steps.py`:

    {"emulate": "scalars", "task": "worker-0", "file": "train/events.out.tfevents.1...",
     "begun": 1700000000.1, "wall": 1700000003.5, "step": 12, "values": {"loss": 0.41}}

An event file is a sequence of records, each a length, the CRC of the length, a protobuf `Event` and
its CRC (tensorflow/core/lib/io/record_writer.h, tensorflow/core/util/event.proto). Only the CRC of
the length is checked: without it a damaged length would lead astray. In pure Python, the CRC of the
data would cost more than all the rest, and a record that is not whole yet shows in its length.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import stat
import struct
import sys
import time
from collections.abc import Iterator, Sequence

POLL = 0.25
"""Seconds between two looks at the files; more where a look takes long, up to LONGEST_POLL."""
LONGEST_POLL = 5.0
SHARE = 10
"""A look that takes a second is followed by so many seconds of sleep."""
PIECE = 2**20
"""Bytes that are read at once; a longer record (images, graphs) is skipped."""
FILES = 1000
"""Event files that are read."""
ENTRIES = 20_000
"""Files and folders that are looked at."""
DEPTH = 10
"""Levels of folders."""
TAGS = 50
"""Different scalars of one line."""
TAG_LENGTH = 200
"""Bytes of a scalar's name."""

_HEADER = struct.Struct("<QI")
_FOOTER = 4
_FLOAT, _DOUBLE = 1, 2  # DataType, tensorflow/core/framework/types.proto
_PROCESS = re.compile(r"\.([0-9]{1,10})\.[0-9]{1,10}(?:\.v2)?$")


# --- Records ------------------------------------------------------------------------------------


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)  # Castagnoli, reversed
        table.append(byte)
    return table


_CRC = _crc_table()


def masked_crc(data: bytes) -> int:
    """Return the masked CRC-32C, as in tensorflow/core/lib/hash/crc32c.h."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return the integer at a position and the position after it. Raises ValueError."""
    value = 0
    for number in range(10):
        if at + number >= len(data):
            break
        byte = data[at + number]
        value |= (byte & 0x7F) << 7 * number
        if byte < 0x80:
            return value, at + number + 1
    raise ValueError("not a varint")


def _fields(data: memoryview) -> Iterator[tuple[int, int, memoryview]]:
    """Yield each field's number, its value if it is a varint, and its bytes. Raises ValueError.

    Nothing is copied, and each byte is looked at once for each level of messages.
    """
    at, empty = 0, data[:0]
    while at < len(data):
        key, at = _varint(data, at)
        kind, value = key & 7, 0
        if kind == 0:
            value, at = _varint(data, at)
            yield key >> 3, value, empty
            continue
        if kind == 2:
            size, at = _varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError("not a field of these messages")
        if at + size > len(data):
            raise ValueError("a field is longer than its message")
        yield key >> 3, 0, data[at : at + size]
        at += size


class Event:
    """One event: its time in seconds since 1970, its step, and its scalars by tag."""

    def __init__(self, data: memoryview) -> None:
        """Parse an `Event`. Raises ValueError."""
        self.wall, self.step = 0.0, 0
        self.scalars: dict[str, float] = {}
        for number, value, content in _fields(data):
            if number == 1 and len(content) == 8:
                (self.wall,) = struct.unpack("<d", content)
            elif number == 2:
                self.step = value - 2**64 if value >= 2**63 else value
            elif number == 5:  # Summary
                for inner, _, part in _fields(content):
                    if inner == 1 and len(self.scalars) < TAGS:
                        self._add(part)

    def _add(self, data: memoryview) -> None:
        """Add a `Summary.Value`, if it is a scalar."""
        tag, scalar = "", None
        for number, _, content in _fields(data):
            if number == 1 and len(content) <= TAG_LENGTH:
                tag = bytes(content).decode("utf-8", "replace")
            elif number == 2 and len(content) == 4:  # simple_value
                scalar = _float(content)
            elif number == 8:
                scalar = _tensor(content)
        if tag and scalar is not None:
            self.scalars[tag] = scalar


def _float(content: memoryview | bytes) -> float:
    """Return a 32-bit float as it was meant: 0.9, not 0.89999998."""
    return float(f"{struct.unpack('<f', content)[0]:.7g}")


def _tensor(data: memoryview) -> float | None:
    """Return the number in a `TensorProto` that has just one."""
    kind = 0
    contents: dict[int, memoryview] = {}
    for key, value, content in _fields(data):
        if key == 1:
            kind = value
        elif key in (4, 5, 6):  # tensor_content, float_val, double_val
            contents[key] = content
    number = contents.get(4) or contents.get(5 if kind == _FLOAT else 6) or b""
    if kind == _FLOAT and len(number) == 4:
        return _float(number)
    if kind == _DOUBLE and len(number) == 8:
        return float(struct.unpack("<d", number)[0])
    return None


# --- Files --------------------------------------------------------------------------------------


class EventFile:
    """One event file, as far as it has been read."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.begun: float | None = None
        """The time of its first scalar, in seconds since 1970. That of the first event of all is
        a whole second in TensorFlow, which may be before the program began."""
        self.damage = ""
        """Why it is not read any further."""
        self._offset = 0
        self._seen = (0, 0)

    def has_changed(self, status: os.stat_result) -> bool:
        """Return whether there may be more to read since the last time this was asked."""
        before, self._seen = self._seen, (status.st_size, status.st_mtime_ns)
        return before != self._seen and status.st_size > self._offset and not self.damage

    def read(self) -> list[Event] | None:
        """Return the next events with scalars; None: there is nothing more for now.

        Raises OSError.
        """
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with open(os.open(self.path, flags), "rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or self.damage:
                return None
            file.seek(self._offset)
            piece = file.read(PIECE)
        return self._records(piece, status.st_size)

    def _records(self, piece: bytes, size: int) -> list[Event] | None:
        found: list[Event] = []
        view, at, begin = memoryview(piece), 0, self._offset
        while len(piece) - at >= _HEADER.size:
            length, crc = _HEADER.unpack_from(piece, at)
            whole = _HEADER.size + length + _FOOTER
            if masked_crc(piece[at : at + 8]) != crc:
                if any(view[at : at + _HEADER.size]):  # else not written yet
                    self.damage = f"damaged at byte {self._offset}; the rest is not read"
                break
            if self._offset + whole > size:
                break  # not whole yet
            if at + whole > len(piece):
                if whole > PIECE:
                    self._offset += whole
                break
            self._offset += whole
            self._read_record(view[at + _HEADER.size : at + whole - _FOOTER], found)
            at += whole
        return found if self._offset > begin else None

    def _read_record(self, record: memoryview, found: list[Event]) -> None:
        try:
            event = Event(record)
        except ValueError:  # of another kind, or damaged
            return
        if event.scalars:
            self.begun = event.wall if self.begun is None else self.begun
            found.append(event)


def event_files(root: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the path and the status of each event file below a folder; links are not followed."""
    folders, entries, files = [(root, 0)], 0, 0
    while folders:
        folder, depth = folders.pop()
        # An error: it is not made yet, or removed.
        with contextlib.suppress(OSError), os.scandir(folder) as found:
            for entry in found:
                entries += 1
                if entries > ENTRIES or files >= FILES:
                    return
                if entry.is_dir(follow_symlinks=False):
                    if depth < DEPTH:
                        folders.append((entry.path, depth + 1))
                elif "tfevents" in entry.name and entry.is_file(follow_symlinks=False):
                    files += 1
                    yield entry.path, entry.stat(follow_symlinks=False)


# --- The program --------------------------------------------------------------------------------


class Reader:
    """Reads all event files below a folder."""

    def __init__(self, root: str, run: str, leader: str, tasks: Sequence[str]) -> None:
        self.files: dict[str, EventFile] = {}
        self._root, self._run, self._leader, self._tasks = root, run, leader, frozenset(tasks)
        self._writers: dict[str, str] = {}

    def lines(self) -> Iterator[str]:
        """Yield a line for each step with scalars that has been written since the last call."""
        for path, status in sorted(event_files(self._root)):
            if path not in self.files:
                if len(self.files) >= FILES:
                    continue
                self.files[path] = EventFile(path)
                self._writers[path] = self.task_of(path)
            file = self.files[path]
            if file.has_changed(status):
                yield from self._lines_of_file(file)

    def _lines_of_file(self, file: EventFile) -> Iterator[str]:
        name = os.path.relpath(file.path, self._root)
        try:
            while (events := file.read()) is not None:
                for event in _by_step(events):
                    yield json.dumps(
                        {
                            "emulate": "scalars",
                            "task": self._writers[file.path],
                            "file": name,
                            "begun": file.begun,
                            "wall": event.wall,
                            "step": event.step,
                            "values": event.scalars,
                        }
                    )
        except OSError as error:
            yield f"{name!a}: {error.strerror}"
        if file.damage:
            yield f"{name!a}: {file.damage}"

    def task_of(self, path: str) -> str:
        """Return the task that writes a file.

        In this order: the folder that has a task's name; the process whose id is in the file's
        name, if it is one of this run; the host name in it; else the leading task.
        """
        *folders, name = os.path.relpath(path, self._root).split(os.sep)
        host = name.partition("tfevents.")[2].partition(".")[2].partition(".")[0]
        for one in (*folders, self._task_of_process(name), host):
            if one in self._tasks:
                return one
        return self._leader

    def _task_of_process(self, name: str) -> str:
        """Return the EMULATOR_TASK of the process that made a file, where this can be known."""
        process = _PROCESS.search(name)
        try:
            with open(f"/proc/{process[1] if process else 0}/environ", "rb") as file:
                return task_in(file.read(PIECE), self._run)
        except OSError:
            return ""


def task_in(environ: bytes, run: str) -> str:
    """Return the EMULATOR_TASK of a process of a run, by its variables; else an empty text."""
    variables = dict(one.partition(b"=")[::2] for one in environ.split(b"\0"))
    found = variables.get(b"EMULATOR_TASK", b"").decode("utf-8", "replace")
    return found if variables.get(b"EMULATOR_RUN") == run.encode() else ""


def _by_step(events: Sequence[Event]) -> Iterator[Event]:
    """Yield successive events of one step as one."""
    before: Event | None = None
    for event in events:
        if before is not None and before.step == event.step and len(before.scalars) < TAGS:
            before.scalars.update(event.scalars)
            before.wall = event.wall
            continue
        if before is not None:
            yield before
        before = event
    if before is not None:
        yield before


def main(arguments: Sequence[str]) -> None:
    """Print lines until SIGTERM, and then what is left."""
    woken, wake = os.pipe()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os.write(wake, b"."))
    folder, leader, *tasks = arguments
    shared = os.path.realpath(os.environ["EMULATOR_SHARED"])
    root = os.path.normpath(os.path.join(shared, folder))
    reader = Reader(root, os.environ["EMULATOR_RUN"], leader, tasks)
    stopping = False
    while True:
        began = time.monotonic()
        if os.path.realpath(root) == root:  # no link on the way leads elsewhere
            for line in reader.lines():
                sys.stdout.write(line + "\n")
        sys.stdout.flush()
        if stopping:
            break
        took = time.monotonic() - began
        pause = min(max(POLL, took * SHARE), LONGEST_POLL)
        stopping = bool(select.select([woken], [], [], pause)[0])
    if not reader.files:
        sys.stdout.write(f"no event file (*tfevents*) was found in {root!a}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
