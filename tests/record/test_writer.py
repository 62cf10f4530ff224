"""The run folder: what was written is read back, whatever happened on the way."""

from __future__ import annotations

import contextlib
import gc
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from filelock import FileLock

import emulator
from emulator.analysis.listing import listed
from emulator.engines.base import Inbox
from emulator.engines.memory import Script
from emulator.errors import RecordError, UsageError
from emulator.metrics.catalog import Usage
from emulator.metrics.samples import Sample
from emulator.planning.planner import make_plan
from emulator.record.events import LogCut, RunStarted, Step
from emulator.record.lock import LOCK, is_live
from emulator.record.reader import Record, gc_paused
from emulator.record.task_log import Printed, parts_of
from emulator.record.version import FORMAT
from emulator.record.writer import RunWriter
from emulator.results import judge
from emulator.runtime.clock import ManualClock
from emulator.scenario.loader import parse
from tests.histories import SITE, an_event
from tests.report.runs import a_run

BEGAN = ManualClock.BEGAN

TEXT = "name: test\nprogram: {command: [a]}\ncluster: {worker: 1}\n# as it was written\n"
PLAN = make_plan(parse(TEXT), "run-1", SITE)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(wall=1000.0)


@pytest.fixture
def folder(tmp_path: Path, clock: ManualClock) -> Iterator[RunWriter]:
    writing = RunWriter(tmp_path / "runs" / "run-1", PLAN, TEXT, clock)
    yield writing
    writing.close()


def test_plan_and_scenario_are_there_before_anything_happens(folder: RunWriter) -> None:
    record = Record.open(folder.path)
    assert (record.run_id, record.plan) == ("run-1", PLAN)
    assert (folder.path / "scenario.yaml").read_text() == TEXT
    assert (record.history, record.log("worker-0")) == ((), [])
    assert record.result("summary.json") is None
    folder.close()
    with contextlib.closing(RunWriter.reopen(record, ManualClock())) as again:
        assert again.t == 0


def test_events_are_numbered_timed_and_read_back(folder: RunWriter, clock: ManualClock) -> None:
    clock.call_at(BEGAN + 2.5000014, lambda: None)
    began = RunStarted(run_id="run-1", scenario="test", engine="fake", pid=7)
    first = folder.write(began)
    clock.next_event(Inbox(), until=BEGAN + 2.5000014)
    second = folder.write(Step(task="worker-0", step=3, values={"loss": 0.5}), wall=1001.5000014)
    assert first == replace(began, n=0, t=0.0, wall=1000.0)
    t, wall = 2.500001, 1001.500001
    assert second == Step(n=1, t=t, wall=wall, task="worker-0", step=3, values={"loss": 0.5})
    assert Record(folder.path).history == (first, second)
    lines = (folder.path / "history.jsonl").read_text().splitlines()
    assert json.loads(lines[0]) == {"n": 0, "t": 0.0, "wall": 1000.0, "event": "run"} | {
        **{"run_id": "run-1", "scenario": "test", "engine": "fake", "pid": 7},
        **{"format": 2, "emulator_version": emulator.__version__},
    }
    head = {"n": 1, "t": t, "wall": wall, "event": "step", "task": "worker-0"}
    assert json.loads(lines[1]) == head | {"step": 3, "loss": 0.5}
    sample = folder.sample(BEGAN + 2.5000014, 1001.5000014, {"worker-0": Usage(1.5)})
    assert sample == Sample(t, wall, {"worker-0": Usage(1.5)})


class Interrupted(ManualClock):
    """A clock whose reader loses its CPU for so long each time between its next readings."""

    def __init__(self, waits: Sequence[float]) -> None:
        super().__init__(wall=1000.0)
        self._waits = list(waits)

    def now(self) -> float:
        now = super().now()
        if self._waits:
            self._now += self._waits.pop(0)
        return now


@pytest.mark.parametrize(
    ("waits", "off"),
    [
        ([], 0.0),
        ([0.3, 0.3, 0.3, 0.0, 0.0], 0.0),  # read again: now there is nothing between them
        ([0.3, 0.0, 0.0004], 0.0004),
        ([0.3, 0.0, 0.002, 0.0] * 50, 0.002),  # never at once: the best readings count
    ],
)
def test_the_two_times_of_an_event_are_of_one_moment(
    tmp_path: Path, waits: Sequence[float], off: float
) -> None:
    """Else every stamp of an engine would be early by what was between them."""
    clock = Interrupted([0.0, *waits])  # the first reading is that of the beginning
    with contextlib.closing(RunWriter(tmp_path / "run-1", PLAN, TEXT, clock)) as writing:
        event = writing.write(an_event("run"))
    assert event.wall - event.t == pytest.approx(1000.0 + off, abs=1e-9)


@pytest.mark.parametrize(
    "rest",
    [
        b'{"n": 2, "t": 1.0, "wal',
        b'{"n": 2, "t": 1.0, "wall": 5, "event": "step"}',
        # The disk was full for a moment, and the next line was written behind the torn one.
        b'{"n": 2, "t": 1.0, "wal{"n": 3, "t": 1.0, "wall": 5, "event": "removed"}\n',
        b'{"n": 2}\n',
        b"\x00\x00\x00\xff\n",
    ],
)
def test_a_torn_line_and_all_after_it_are_left_out(folder: RunWriter, rest: bytes) -> None:
    written = (folder.write(an_event("run")), folder.write(an_event("prepared")))
    with (folder.path / "history.jsonl").open("ab") as history:
        history.write(rest)
    assert Record(folder.path).history == written
    # A whole line that no run writes is no torn one.
    (folder.path / "history.jsonl").write_text('{"n": 0, "t": 1.0, "wall": 5, "event": "step"}\n')
    with pytest.raises(RecordError, match=r"Can't read /.*/history\.jsonl, line 1: "):
        _ = Record(folder.path).history


def test_a_log_keeps_what_was_printed_byte_for_byte(folder: RunWriter) -> None:
    for line in ("first", "gr\u00fcn \u4e2d\ttab", "raw \udcff byte"):
        folder.log("worker-0", line)
    folder.log("ps-0", "other", wall=999.5)  # as the engine has stamped it
    written = (folder.path / "logs" / "worker-0.log").read_bytes()
    assert written == "first\ngr\u00fcn \u4e2d\ttab\n".encode() + b"raw \xff byte\n"
    record = Record(folder.path)
    assert record.log("worker-0")[:2] == ["first", "gr\u00fcn \u4e2d\ttab"]
    assert [*record.printed(["ps-0"])] == [Printed("ps-0", "other", 999.5)]
    assert record.log("ps-0") == ["other"]


def test_a_log_that_reaches_its_limit_says_so_once(tmp_path: Path) -> None:
    limited = PLAN.scenario.model_copy(update={"log_limit": 800})
    plan = PLAN.model_copy(update={"scenario": limited})
    writer = RunWriter(tmp_path / "run", plan, TEXT, ManualClock(wall=7.0))
    for number in range(80):
        writer.log("worker-0", f"{number:09}")
        assert Record(writer.path).history == ()
    for number in (80, 81):
        writer.log("worker-0", f"{number:09}")
        assert Record(writer.path).history == (LogCut(n=0, wall=7, task="worker-0", limit=800),)
    *_, last = parts_of(tmp_path / "run" / "logs" / "worker-0.log")
    os.utime(last.path, (6, 6))
    assert writer.printed_until("worker-0") == 6
    writer.close()


def test_results_are_written_whole_and_a_torn_one_is_none(folder: RunWriter) -> None:
    folder.write_result("summary.json", {"verdict": "ok", "folder": folder.path})
    found = Record(folder.path).result("summary.json")
    assert found == {"verdict": "ok", "folder": str(folder.path)}
    text = (folder.path / "summary.json").read_text()
    assert text == f'{{\n  "verdict": "ok",\n  "folder": "{folder.path}"\n}}\n'
    assert not list(folder.path.glob("*.partial"))
    (folder.path / "summary.json").write_text('{"verdict": ')
    assert Record(folder.path).result("summary.json") is None


# --- One writer ---------------------------------------------------------------------------------


@pytest.mark.parametrize("ended", [False, True])
def test_a_run_is_live_as_long_as_its_writer_and_a_second_is_refused_and_harms_nothing(
    folder: RunWriter, ended: bool
) -> None:
    record = Record(folder.path)
    folder.write(an_event("run"))
    if ended:
        folder.close()
    with pytest.raises(UsageError, match=r"There is a run in .*run-1 already") as refused:
        RunWriter(folder.path, PLAN, "other", ManualClock())
    assert "--run-id" in refused.value.hint
    assert record.live is not ended
    assert is_live(folder.path) is not ended  # looking takes nothing away
    assert record.live is not ended
    assert (folder.path / "scenario.yaml").read_text() == TEXT
    assert len(Record(folder.path).history) == 1


def test_a_link_and_a_folder_of_the_user_are_no_run_folders_and_stay(tmp_path: Path) -> None:
    for name in ("mine", "real"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "mine" / "scenario.yaml").write_text("mine\n")
    for name, says in (
        ("link", r"^/.*/link is a link\."),
        ("mine", r"is something else in .*mine already"),
    ):
        with pytest.raises(UsageError, match=says):
            RunWriter(tmp_path / name, PLAN, TEXT, ManualClock())
    names = sorted(path.name for path in tmp_path.rglob("*"))
    assert names == ["link", "mine", "real", "scenario.yaml"]
    assert (tmp_path / "mine" / "scenario.yaml").read_text() == "mine\n"


def test_a_writer_that_comes_between_lock_and_plan_is_refused(tmp_path: Path) -> None:
    with (
        FileLock(tmp_path / LOCK),
        pytest.raises(UsageError, match="Another emulate process"),
    ):
        RunWriter(tmp_path, PLAN, TEXT, ManualClock())
    assert not (tmp_path / "plan.json").exists()


# --- Going on after a kill ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "torn",
    [
        b"",
        b'{"n": 2, "t"',
        b'{"n": 2, "t": 1.0, "wall{"n": 3, "t": 1.0, "wall": 5, "event": "x"}\n{"n": 4, "t"',
        b'\x00\xff\n{"n": 3, "t": 1.0, "wall": 5, "event": "removed"}\n',
    ],
)
def test_a_reopened_folder_continues_after_its_last_readable_line(
    folder: RunWriter, clock: ManualClock, torn: bytes
) -> None:
    early = Record(folder.path)
    assert early.history == ()
    folder.write(an_event("run"))
    clock.next_event(Inbox(), until=BEGAN + 7.0)
    written = folder.write(an_event("prepared"))
    for line in ("whole", "gr\u00fcn"):
        folder.log("worker-0", line)
    folder.close()
    for file, rest in (("history.jsonl", torn), ("logs/worker-0.log", b"torn \xff")):
        with (folder.path / file).open("ab") as appending:
            appending.write(rest)
    clock.next_event(Inbox(), until=BEGAN + 10.0)
    assert len(Record(folder.path).history) == 2
    with contextlib.closing(RunWriter.reopen(early, clock)) as again:  # read before it grew
        assert (again.printed("worker-0"), again.printed("ps-0")) == (["whole", "gr\u00fcn"], [])
        assert again.t == pytest.approx(10.0)
        entry = again.write(an_event("attached"))
        again.log("worker-0", "more")
        assert is_live(folder.path)
    assert (entry.n, entry.t) == (written.n + 1, 10.0)
    assert Record(folder.path).history[-1] == entry
    assert [e.n for e in Record(folder.path).history] == [0, 1, 2]
    assert Record(folder.path).log("worker-0") == ["whole", "gr\u00fcn", "more"]


def test_time_goes_on_after_an_event_with_the_stamp_of_an_engine(
    folder: RunWriter, clock: ManualClock
) -> None:
    """It was read 2 s after it had happened."""
    folder.write(an_event("run"))
    clock.next_event(Inbox(), until=BEGAN + 7.0)
    folder.write(Step(task="worker-0", step=1), wall=clock.wall() - 2)
    folder.close()
    clock.next_event(Inbox(), until=BEGAN + 10.0)
    with contextlib.closing(RunWriter.reopen(Record(folder.path), clock)) as again:
        assert again.write(an_event("attached")).t == 10.0


def test_time_never_goes_back_when_the_wall_clock_has(folder: RunWriter) -> None:
    folder._clock = clock = ManualClock(wall=5000.0)
    clock.next_event(Inbox(), until=BEGAN + 3.0)
    last = folder.write(an_event("run"))
    folder.close()
    slow = ManualClock(wall=10.0)
    with contextlib.closing(RunWriter.reopen(Record(folder.path), slow)) as again:
        assert again.write(an_event("attached")).t == last.t


def test_a_folder_with_a_writer_is_not_reopened(folder: RunWriter) -> None:
    folder.write(an_event("run"))
    folder.log("worker-0", "here")
    with (folder.path / "history.jsonl").open("ab") as history:
        history.write(b"half a line")  # that the writer is about to finish
    with pytest.raises(UsageError, match="Another emulate process is using"):
        RunWriter.reopen(Record(folder.path), ManualClock())
    assert (folder.path / "history.jsonl").read_bytes().endswith(b"half a line")
    assert is_live(folder.path)


# --- What the disk refuses ----------------------------------------------------------------------


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_reported_in_a_sentence(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(RecordError, match="Permission denied"):
        RunWriter(tmp_path / "run-1", PLAN, TEXT, ManualClock())


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has a disk always full")
def test_a_full_disk_is_reported_in_a_sentence(tmp_path: Path) -> None:
    folder = RunWriter(tmp_path, PLAN, TEXT, ManualClock())
    (tmp_path / "logs" / "worker-0.log").symlink_to("/dev/full")
    history = str((tmp_path / "history.jsonl").resolve())
    descriptors = (int(name) for name in os.listdir("/proc/self/fd"))
    (written,) = (n for n in descriptors if os.path.realpath(f"/proc/self/fd/{n}") == history)
    with open("/dev/full", "wb") as full:
        os.dup2(full.fileno(), written)
    with pytest.raises(RecordError, match=r"Can't write .*: No space left on device\."):
        folder.write(an_event("run"))
    with pytest.raises(RecordError, match=r"Can't write .*: No space left on device\."):
        folder.log("worker-0", "hello")
    folder.close()


@pytest.mark.usefixtures("small_files")
def test_a_run_that_a_full_disk_refuses_leaves_no_folder(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    for path in (tmp_path / "run-1", tmp_path / "mine"):
        with pytest.raises(RecordError, match=r"Can't write .*: File too large\."):
            RunWriter(path, PLAN, TEXT + "#" * 100_000, ManualClock())
    assert os.listdir(tmp_path) == ["mine"]  # which was there before
    assert os.listdir(tmp_path / "mine") == []


# --- Reading ------------------------------------------------------------------------------------


def test_a_folder_without_a_plan_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is no run folder: it has no plan\.json") as refused:
        Record.open(tmp_path)
    assert "emulate ps --all" in refused.value.hint


OTHER_VERSION = "The plan in {} is none of this version: "


@pytest.mark.parametrize(
    ("content", "begins"),
    [
        (b'{"format": 2, "run_id": "x"}', f"{OTHER_VERSION}engine: Field required"),
        (b'{"run_id": ', f"{OTHER_VERSION}plan.json: Invalid JSON"),
        (b"\xff\xfe", f"{OTHER_VERSION}plan.json: Invalid JSON"),
        (b'{"run_id": "run-1"}', "The record in {} has format ? of emulator ?; this is emulator"),
    ],
)
def test_a_plan_that_can_not_be_read_is_reported_in_a_sentence(
    tmp_path: Path, content: bytes, begins: str
) -> None:
    (tmp_path / "plan.json").write_bytes(content)
    with pytest.raises(RecordError) as refused:
        _ = Record.open(tmp_path).plan
    assert refused.value.message.startswith(begins.format(tmp_path))
    assert "\n" not in refused.value.message


@pytest.mark.parametrize("file", ["plan.json", "history.jsonl", "summary.json"])
def test_a_record_of_another_format_is_refused_in_a_sentence(tmp_path: Path, file: str) -> None:
    record = a_run(tmp_path, "cluster: {worker: 1}\n", {"*": Script(exits_at=1.0)}, "run-1")
    # As another version would have written it:
    text = (record.path / file).read_text()
    head, end, rest = (text, "", "") if file.endswith(".json") else text.partition("\n")
    header = json.loads(head)
    assert (header["format"], header["emulator_version"]) == (FORMAT, emulator.__version__)
    header |= {"format": 3, "emulator_version": "9.9"}
    (record.path / file).write_text(json.dumps(header) + end + rest)
    wrong = (
        f"The record in {record.path} has format 3 of emulator 9.9; "
        f"this is emulator {emulator.__version__}, which reads format 2."
    )
    with pytest.raises(RecordError) as refused:
        _ = getattr(record, file.partition(".")[0])
    assert refused.value.message == wrong
    if file != "summary.json":  # which is never read to judge
        with pytest.raises(RecordError, match="has format 3"):
            judge(Record(record.path))
    row = listed(Record(record.path))
    assert row.run_id == "run-1"
    assert row.outcome == ("other format" if file == "summary.json" else "succeeded")
    (record.path / "summary.json").unlink()
    row = listed(Record(record.path))
    assert row.outcome == ("other format" if file == "plan.json" else "crashed")


@pytest.mark.parametrize("at_work", [True, False])
def test_reading_leaves_the_collector_as_it_was(at_work: bool) -> None:
    (gc.enable if at_work else gc.disable)()
    try:
        with contextlib.suppress(KeyError), gc_paused():
            assert not gc.isenabled()
            raise KeyError
        assert gc.isenabled() == at_work
    finally:
        gc.enable()
