"""The reader of event files, with files that real libraries wrote."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.metrics import event_files
from emulator.metrics.event_files import Event, EventFile, Reader, masked_crc, task_in
from emulator.metrics.event_steps import EventSteps, Reported, unwritten

RECORDED = Path(__file__).parent / "recorded_events"
TASKS = ("worker-0", "worker-1")
STARTS: Mapping[str, Sequence[float]] = {task: [0.0] for task in TASKS}
ORIGINAL = next((RECORDED / "torch").glob("events*"))


def reader(root: Path) -> Reader:
    return Reader(str(root), "run", "worker-0", TASKS)


def steps(lines: Sequence[str], starts: Mapping[str, Sequence[float]] = STARTS) -> list[Reported]:
    reads = EventSteps()
    return [one for line in lines if (one := reads.read(line, starts))]


def seen(name: str) -> list[Mapping[str, object]]:
    return [one.seen.data for one in steps([*reader(RECORDED / name).lines()])]


def with_loss(lines: Sequence[str]) -> list[object]:
    return [one.seen.data["step"] for one in steps(lines) if "loss" in one.seen.data]


def record(payload: bytes) -> bytes:
    length = struct.pack("<Q", len(payload))
    return length + struct.pack("<I", masked_crc(length)) + payload + b"\0\0\0\0"


def varint(number: int) -> bytes:
    more = number >> 7
    return bytes([number & 0x7F | 0x80]) + varint(more) if more else bytes([number])


def field(number: int, content: bytes | int) -> bytes:
    """Return a field of a protobuf: a varint, or bytes with their length."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def fixed(number: int, form: str, content: float) -> bytes:
    """Return a field of four or eight bytes."""
    return varint(number << 3 | (5 if form == "f" else 1)) + struct.pack(f"<{form}", content)


def value(*parts: bytes, tag: str = "loss") -> bytes:
    return field(5, field(1, field(1, tag.encode()) + b"".join(parts)))


def event(step: int, tag: str = "loss", wall: float = 5.0, scalar: float = 0.5) -> bytes:
    return record(fixed(1, "d", wall) + field(2, step) + value(fixed(2, "f", scalar), tag=tag))


def file_of(folder: Path, content: bytes, name: str = "events.out.tfevents.1.vm") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(content)
    return path


# --- What libraries write -----------------------------------------------------------------------


def test_torch() -> None:
    found = steps([*reader(RECORDED / "torch").lines()])
    assert {one.task for one in found} == {"worker-1"}  # the host name in the file's name
    training = [one.seen.data for one in found if one.seen.data.get("loss")]
    assert [data["step"] for data in training] == list(range(1, 31))
    assert training[9] == {"step": 10, "loss": 0.1, "val_loss": 0.15}
    # By epoch in the program: these are values of the last step.
    accuracies = [one.seen.data for one in found if "val_accuracy" in one.seen.data]
    by_step = [(data["step"], data["accuracy"]) for data in accuracies]
    assert by_step == [(10, 0.6), (20, 0.7), (30, 0.8)]
    assert all(1795353047 < one.wall < 1795353049 for one in found)


@pytest.mark.parametrize(
    ("name", "numbers", "value"),
    [
        ("tf-summary", range(1, 21), {"step": 10, "loss": 0.1, "accuracy": 0.6}),
        ("tf1", range(100, 600, 100), {"step": 500, "loss": 0.2, "accuracy": 0.5}),
    ],
)
def test_tensorflow(name: str, numbers: Sequence[int], value: Mapping[str, object]) -> None:
    found = seen(name)
    assert [data["step"] for data in found] == [*numbers]
    assert value in found


def test_keras_2_which_writes_epochs_only() -> None:
    found = seen("keras2")
    assert [data["step"] for data in found if "loss" in data] == [0, 1, 2]
    assert [data["val_accuracy"] for data in found if "val_accuracy" in data] == [0.4375] * 4
    assert found[2] == {"step": 2, "loss": 0.8573461, "accuracy": 0.2291667}


def line(step: int, begun: float = 1.0, wall: float = 2.0, path: str = "e", **tags: object) -> str:
    of = {"emulate": "scalars", "task": "worker-0", "file": path, "begun": begun, "wall": wall}
    return json.dumps({**of, "step": step, "values": tags})


def test_of_several_accuracies_the_plain_one_counts() -> None:
    tags: dict[str, Any] = {
        "loss": 0.5,
        "top_5_accuracy": 0.9,
        "accuracy": 0.6,
        "top_1_accuracy": 0.7,
    }
    found = steps([line(1, **{tag: value}) for tag, value in tags.items()])  # each by itself
    assert found[-1].seen.data["accuracy"] == 0.6
    # So does a loss, then the total of several; what is neither is no value of the training.
    for tags in ({"net/aux_loss": 2, "net/total_loss": 3}, {"loss": 3, "net/total_loss": 2}):
        one_by_one: list[dict[str, Any]] = [{tag: value} for tag, value in tags.items()]
        found = steps([line(1, **one) for one in (*one_by_one, {"lr": 9})])
        assert found[-1].seen.data == {"step": 1, "loss": 3}
    lines = [line(1, loss=0.5, accuracy=0.6), line(2, loss=0.4, val_accuracy=0.9)]
    assert steps(lines)[1].seen.data == {"step": 2, "loss": 0.4, "val_accuracy": 0.9}


# --- Files that grow, and others -----------------------------------------------------------------


def test_a_file_that_grows_is_read_as_it_grows(tmp_path: Path) -> None:
    """Cut anywhere, also within a record."""
    content = ORIGINAL.read_bytes()
    reads, found = reader(tmp_path), list[str]()
    (tmp_path / "worker-1").mkdir()
    with (tmp_path / "worker-1" / "events.out.tfevents.1.x").open("wb", buffering=0) as file:
        for at in range(0, len(content), 101):
            file.write(content[at : at + 101])
            found += reads.lines()
    whole = [line for line in reader(RECORDED / "torch").lines() if "hparam" not in line]
    assert with_loss(found) == with_loss(whole)
    assert [*reads.lines()] == []


def test_pieces_that_are_smaller_than_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(ORIGINAL, tmp_path)
    whole = [*reader(tmp_path).lines()]
    monkeypatch.setattr(event_files, "PIECE", 1000)  # also skips the images
    pieces = [*reader(tmp_path).lines()]
    assert with_loss(pieces) == with_loss(whole)
    longest = event(2, "a long name of a loss")
    monkeypatch.setattr(event_files, "PIECE", len(longest))
    file_of(tmp_path / "exact", event(1) + longest)
    assert [json.loads(line)["step"] for line in reader(tmp_path / "exact").lines()] == [1, 2]


def test_after_a_damaged_length_nothing_is_read_and_zeros_are_not_written_yet(
    tmp_path: Path,
) -> None:
    damaged, path = bytearray(event(2)), file_of(tmp_path, event(1) + bytes(99))
    reads = reader(tmp_path)
    assert with_loss([*reads.lines()]) == [1]
    path.write_bytes(event(1) + event(2) + bytes(98))
    assert with_loss([*reads.lines()]) == [2]
    damaged[8] ^= 1
    path.write_bytes(event(1) * 2 + damaged + event(3))
    name = "events.out.tfevents.1.vm"
    (said,) = reads.lines()
    assert said == f"{name!r}: damaged at byte {2 * len(event(1))}; the rest is not read"
    path.write_bytes(event(1) * 4)
    assert [*reads.lines()] == []


def test_a_record_of_gigabytes_is_skipped(tmp_path: Path) -> None:
    length = 3 * 2**30
    header = struct.pack("<Q", length)
    path = file_of(tmp_path, event(1) + header + struct.pack("<I", masked_crc(header)))
    reads = reader(tmp_path)
    assert len([*reads.lines()]) == 1
    with path.open("r+b") as file:
        file.seek(len(event(1)) + 12 + length + 4)
        file.write(event(2))
    (line,) = reads.lines()
    assert json.loads(line)["step"] == 2


def test_files_folders_and_levels_are_limited(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for number, folder in enumerate(("", "a", "a/b", "a/b/c")):
        file_of(tmp_path / folder, b"", f"tfevents.{number}")

    def found(**limits: int) -> int:
        for name, limit in {"FILES": 9, "ENTRIES": 9, "DEPTH": 9, **limits}.items():
            monkeypatch.setattr(event_files, name, limit)
        return len([*event_files.event_files(str(tmp_path))])

    assert [found(), found(FILES=4), found(FILES=2)] == [4, 4, 2]
    assert [found(DEPTH=3), found(DEPTH=2), found(DEPTH=0)] == [4, 3, 1]
    assert [found(ENTRIES=7), found(ENTRIES=6), found(ENTRIES=0)] == [4, 3, 0]


def test_more_scalars_of_a_step_than_a_line_has_are_in_another(tmp_path: Path) -> None:
    file_of(tmp_path, b"".join(event(1, f"loss{n}", n) for n in range(51)))
    first, second = map(json.loads, reader(tmp_path).lines())
    assert (len(first["values"]), first["wall"], first["begun"]) == (50, 49, 0)
    assert second == {**first, "wall": 50, "values": {"loss50": 0.5}}


def test_links_pipes_and_other_files_are_not_opened(tmp_path: Path) -> None:
    outside = file_of(tmp_path / "outside", event(1))
    inside = tmp_path / "logs"
    file_of(inside, event(1), "checkpoint")
    (inside / "tfevents").mkdir()  # a folder, whatever its name
    (inside / "events.out.tfevents.2.vm").symlink_to(outside)
    (inside / "folder").symlink_to(outside.parent)
    os.mkfifo(inside / "events.out.tfevents.3.vm")
    reads = reader(inside)
    assert [*reads.lines()] == []
    assert reads.files == {}
    with pytest.raises(OSError, match="symbolic links"):
        EventFile(str(inside / "events.out.tfevents.2.vm")).read()
    assert EventFile(str(inside / "events.out.tfevents.3.vm")).read() is None


def tensor(kind: int, *parts: bytes) -> bytes:
    return value(field(8, field(1, kind) + b"".join(parts)))


HALVES, WHOLE = struct.pack("<2f", 0.9, 0.5), struct.pack("<d", 0.9)
SIMPLE = fixed(2, "f", 0.9)
LONG = "x" * 200


@pytest.mark.parametrize(
    ("parts", "wall", "step", "scalars"),
    [
        ([fixed(1, "d", 7.5), field(2, 300), value(SIMPLE)], 7.5, 300, {"loss": 0.9}),
        ([field(2, 2**63 - 1)], 0, 2**63 - 1, {}),
        ([field(2, 2**63)], 0, -(2**63), {}),
        ([field(2, 2**64 - 3), field(1, b"\0\0\0")], 0, -3, {}),
        # Fields of other kinds and numbers are passed over; the last of one number counts.
        ([fixed(9, "d", 1), fixed(9, "f", 1), field(3, b"brain"), field(2, 4)], 0, 4, {}),
        ([field(5, field(2, field(1, b"loss") + SIMPLE))], 0, 0, {}),
        ([value(SIMPLE), value(fixed(2, "f", 0.25))], 0, 0, {"loss": 0.25}),
        # Without a name or a number, or with a long name.
        ([value(SIMPLE, tag=LONG), value(SIMPLE, tag=LONG + "x")], 0, 0, {LONG: 0.9}),
        ([value(SIMPLE, tag=""), value(tag="a"), value(field(2, b"0.9"), tag="b")], 0, 0, {}),
        ([value(SIMPLE, tag=f"{n}") for n in range(51)], 0, 0, {f"{n}": 0.9 for n in range(50)}),
        # Tensors of one number: float or double, by themselves or as raw bytes.
        ([tensor(1, field(5, HALVES[:4]))], 0, 0, {"loss": 0.9}),
        ([tensor(1, field(4, HALVES[:4]))], 0, 0, {"loss": 0.9}),
        ([tensor(2, field(6, WHOLE))], 0, 0, {"loss": 0.9}),
        ([tensor(2, field(4, WHOLE))], 0, 0, {"loss": 0.9}),
        ([tensor(1, field(5, HALVES[:4]), field(6, WHOLE))], 0, 0, {"loss": 0.9}),
        ([tensor(2, field(5, HALVES[4:]), field(6, WHOLE))], 0, 0, {"loss": 0.9}),
        *(
            ([tensor(kind, *parts)], 0, 0, {})
            for kind, parts in [
                *((1, [field(5, HALVES)]), (1, [field(6, WHOLE)]), (1, []), (2, [])),
                *((2, [field(6, HALVES[:4])]), (2, [field(5, WHOLE)]), (3, [field(4, WHOLE)])),
                (1, [field(7, HALVES[:4])]),
            ]
        ),
    ],
)
def test_an_event_has_the_scalars_of_its_bytes(
    parts: Sequence[bytes], wall: float, step: int, scalars: Mapping[str, float]
) -> None:
    found = Event(memoryview(b"".join(parts)))
    assert (found.wall, found.step, found.scalars) == (wall, step, scalars)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x10", "not a varint"),
        (b"\x10\x80", "not a varint"),
        (b"\x10" + b"\x80" * 10 + b"\x01", "not a varint"),  # of eleven bytes
        (b"\x12\x03ab", "a field is longer than its message"),
        (b"\x15abc", "a field is longer than its message"),
        (b"\x09abcdefg", "a field is longer than its message"),
        (b"\x13", "not a field of these messages"),
        (field(5, b"\x12\x03ab"), "a field is longer than its message"),
    ],
)
def test_bytes_of_something_else_are_refused(data: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=f"^{why}$"):
        Event(memoryview(data))


@given(st.binary(max_size=300))
def test_any_bytes_are_parsed_or_refused(data: bytes) -> None:
    try:
        event = Event(memoryview(data))
    except ValueError:
        return
    assert all(isinstance(value, float) for value in event.scalars.values())


@given(st.data())
def test_a_damaged_file_never_fails(data: st.DataObject) -> None:
    content = bytearray(ORIGINAL.read_bytes()[:3000])
    for at in data.draw(st.lists(st.integers(0, 2999), max_size=5)):
        content[at] = data.draw(st.integers(0, 255))
    file = EventFile("x")
    while file._records(bytes(content[file._offset :]), len(content)) is not None:
        pass


# --- Whose file it is ----------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
def test_a_process_of_the_run_is_known_by_its_id(tmp_path: Path) -> None:
    for run, task in (("run", "worker-1"), ("another", "worker-0")):
        env = {**os.environ, "EMULATOR_RUN": run, "EMULATOR_TASK": "worker-1"}
        pipe = subprocess.PIPE
        with subprocess.Popen(["cat"], stdin=pipe, stdout=pipe, env=env) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(b"\n")
            process.stdin.flush()
            process.stdout.readline()  # it runs
            name = f"/logs/events.out.tfevents.1.laptop.{process.pid}.0.v2"
            assert reader(Path("/logs")).task_of(name) == task


@pytest.mark.parametrize(
    ("environ", "task"),
    [
        (b"A=1\0EMULATOR_RUN=run\0EMULATOR_TASK=worker-1\0", "worker-1"),
        (b"EMULATOR_TASK=\xffa=b\0EMULATOR_RUN=run", "\ufffda=b"),
        (b"EMULATOR_RUN=run\0XEMULATOR_TASK=worker-1", ""),
        (b"EMULATOR_RUN=run-2\0EMULATOR_TASK=worker-1", ""),
        (b"", ""),
    ],
)
def test_the_variables_of_a_process_of_the_run_say_its_task(environ: bytes, task: str) -> None:
    assert task_in(environ, "run") == task
    name = f"/logs/events.out.tfevents.1.laptop.{os.getpid()}.0"  # of no run
    assert reader(Path("/logs")).task_of(name) == "worker-0"


# --- The program ---------------------------------------------------------------------------------


def test_the_program_prints_what_is_left_when_it_is_stopped(tmp_path: Path) -> None:
    source = Path(event_files.__file__)
    program = shutil.copy(source, tmp_path)  # alone, as in a container
    command = [sys.executable, "-I", program, "logs", "worker-0", *TASKS]
    env = {"EMULATOR_SHARED": str(tmp_path), "EMULATOR_RUN": "run"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=env, text=True) as process:
        assert process.stdout is not None
        path = file_of(tmp_path / "logs", event(1))
        assert json.loads(process.stdout.readline())["step"] == 1
        with path.open("ab") as file:
            file.write(event(2) + event(3)[:-5])
        process.send_signal(signal.SIGTERM)
        rest = process.stdout.read().splitlines()
    assert [json.loads(line)["step"] for line in rest] == [2]
    assert process.returncode == 0


def run_program(
    monkeypatch: pytest.MonkeyPatch, shared: Path, folder: str, then: Callable[[], object]
) -> list[str]:
    """Return what it prints: after its first look `then` is done, and it is told to stop."""
    before = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)}

    class Out(io.StringIO):
        looks = 0

        def flush(self) -> None:
            self.looks += 1
            if self.looks == 1:
                then()
                signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(sys, "stdout", out := Out())
    monkeypatch.setenv("EMULATOR_SHARED", str(shared))
    monkeypatch.setenv("EMULATOR_RUN", "run")
    try:
        event_files.main([folder, "worker-1", *TASKS])
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    assert out.looks >= 2
    return out.getvalue().splitlines()


def test_it_looks_once_more_when_it_is_told_to_stop(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = file_of(tmp_path / "logs", event(1))
    more = event(1) + event(2) + event(3)[:-5]
    printed = run_program(monkeypatch, tmp_path, "x/../logs", lambda: path.write_bytes(more))
    found = [json.loads(line) for line in printed]
    assert [(one["task"], one["step"]) for one in found] == [("worker-1", 1), ("worker-1", 2)]


@pytest.mark.parametrize("folder", ["nowhere", "link", "link/inner"])
def test_it_says_that_there_is_no_file_and_follows_no_link(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folder: str
) -> None:
    file_of(tmp_path / "outside" / "inner", event(1))
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "link").symlink_to(tmp_path / "outside")
    (said,) = run_program(monkeypatch, tmp_path / "shared", folder, lambda: None)
    where = str(tmp_path / "shared" / folder)
    assert said == f"no event file (*tfevents*) was found in {where!r}"


# --- Steps ---------------------------------------------------------------------------------------


def test_scalars_of_validation_are_no_steps() -> None:
    lines = [line(1, val_loss=1.0), line(5, loss=0.5)]
    lines += [line(9, path="Loss_test/e", loss=0.7), line(9, path="run_test_1/e", loss=0.4)]
    seen = [{"step": 5, "loss": 0.5}, {"step": 5, "val_loss": 0.7}, {"step": 9, "loss": 0.4}]
    assert [one.seen.data for one in steps(lines)] == seen


def test_other_scalars_count_until_there_is_a_loss() -> None:
    lines = [line(1, rate=0.1), line(2, rate=0.1, loss=1.0), line(640, examples=5), line(3, loss=1)]
    assert [one.seen.data["step"] for one in steps(lines)] == [1, 2, 3]
    lines = [line(1, rate=0.1), line(5, lr=1).replace("lr", "hparam/lr"), line(3, rate=0.2)]
    assert [one.seen.data["step"] for one in steps(lines)] == [1, 3]


def test_a_program_that_starts_again_may_go_back() -> None:
    reads = EventSteps()
    starts = {"worker-0": [0.5]}
    assert reads.read(line(20, loss=1.0), starts)
    starts["worker-0"].append(3.0)
    assert reads.read(line(21, loss=1.0), starts) is None  # of a process that has ended
    again = reads.read(line(11, begun=4.0, wall=5.0, loss=1.0), starts)
    assert again is not None
    assert again.seen.data["step"] == 11


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[1]",
        '{"emulate": "scalars"}',
        line(-1, loss=1.0),
        line(1, loss=1.0).replace("worker-0", "worker-9"),
        line(1, loss=1.0).replace('"wall": 2.0', '"wall": NaN'),
        line(2**70, loss=1.0),
    ],
)
def test_other_lines_are_no_steps(text: str) -> None:
    assert steps([text]) == []


def test_what_is_written_is_found_in_what_was_printed() -> None:
    found = steps([line(n, wall=10.0 + n, loss=1.0) for n in range(1, 6)])
    assert unwritten(found, (3, 13.0)) == found[3:]
    assert unwritten(found, (5, 15.0)) == []
    assert unwritten(found, None) == found
    assert unwritten(found, (9, 9.0)) == ()
