"""Whatever has happened to the files of a record: reading it ends with a result or a sentence.

Each example takes a run folder, changes a file or two in it, and has commands read it: in this
process, as users call them. None may raise anything but an error for users, and none may change the
record. The examples are the same each time; `--hypothesis-profile search` tries others, and more.
"""

from __future__ import annotations

import contextlib
import copy
import io
import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emulator.cli import app
from emulator.errors import EmulatorError, RecordError
from emulator.metrics import sample_file
from emulator.record.events import Step, entry_of, line_of
from emulator.record.reader import Record
from emulator.record.task_log import LogWriter
from emulator.record.version import header
from emulator.results import judge
from tests.runs import a_history, a_plan, some_samples

pytestmark = pytest.mark.slow

SEARCHING = settings.get_current_profile_name() == "search"
fuzz = settings(
    max_examples=2000 if SEARCHING else 10,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
COMMANDS: Sequence[Sequence[str]] = (
    ["runs"],
    ["runs", "--json"],
    ["ps", "run-1"],
    ["ps", "run-1", "-o", "wide"],
    ["check", "run-1"],
    ["check", "run-1", "--json"],
    ["report", "run-1", "--html", "../page.html"],
    ["logs", "run-1", "-t", "-n", "3"],
    ["logs", "run-1", "--since", "1970-01-01"],
    ["compare", "run-1", "whole"],
    ["export", "run-1", "--csv", "../csv", "--trace", "../trace.json"],
    ["export", "run-1", "--tensorboard", "../tensorboard", "--parquet", "../parquet"],
)
"""Commands that read a record; an engine has no part in them."""


def write_record(folder: Path) -> None:
    """Write the whole record of a run that is over, with what may be in one."""
    (folder / "logs").mkdir(parents=True)
    plan = {**header(), **a_plan().model_dump(mode="json"), "run_id": folder.name}
    (folder / "plan.json").write_text(json.dumps(plan, default=str))
    (folder / "scenario.yaml").write_text("name: test\n")
    merged = Step(
        n=99, t=11.0, wall=1011.0, task="worker-0", step=40, coalesced={"first": 31, "count": 5}
    )
    events = [*a_history(), merged]
    (folder / "history.jsonl").write_text("".join(f"{line_of(one)}\n" for one in events))
    samples = sample_file.SampleFile(folder / sample_file.NAME)
    for one in some_samples():
        samples.append(one)
    samples.close()
    for task in ("worker-0", "worker-1", "ps-0"):
        log = LogWriter(folder / "logs" / f"{task}.log", 2**20)
        log.write((f"line {n} of {task}: ValueError: no", 1000.0 + n) for n in range(6))
        log.close()
    judged = judge(Record(folder))
    (folder / "summary.json").write_text(json.dumps(judged.summary, default=str))
    (folder / "verdicts.json").write_text("[]")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the runs `run-1` and `whole`, never changed."""
    out = tmp_path_factory.mktemp("record") / "runs"
    for name in ("run-1", "whole"):
        write_record(out / name)
    return out


def contents(folder: Path) -> dict[str, Any]:
    """Return what is in a folder; of what is no ordinary file only that it is there."""

    def content(path: Path) -> object:
        small = path.is_file() and path.stat().st_size <= 2**20
        return path.read_bytes() if small else os.lstat(path).st_mode

    return {str(path.relative_to(folder)): content(path) for path in folder.rglob("*")}


def reads(out: Path, command: Sequence[str]) -> int:
    """Have a command read; return its exit code. An error that is none for users is raised."""
    with (
        contextlib.chdir(out),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        try:
            app([*command, "--out", "."])
        except EmulatorError as error:
            return error.exit_code
        except SystemExit as leaving:
            return int(leaving.code or 0)
    return 0


Garbling = Callable[[Path], None]


@contextlib.contextmanager
def garbled(whole: Path, garblings: Sequence[Garbling]) -> Iterator[Path]:
    """Yield a copy of the runs in which something happened to the first."""
    out = whole.parent / "garbled"
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(whole, out)
    for garble in garblings:
        with contextlib.suppress(
            OSError, ValueError, IndexError, ZeroDivisionError, AttributeError
        ):
            garble(out / "run-1")
    yield out


def sound(whole: Path, *garblings: Garbling) -> None:
    with garbled(whole, garblings) as out:
        before = contents(out)
        codes = {" ".join(command): reads(out, command) for command in COMMANDS}
        assert contents(out) == before
    assert set(codes.values()) <= {0, 1, 2, 3, 4}
    # Other runs are listed as ever, whatever this one is like.
    assert codes["runs"] == codes["runs --json"] == 0


# --- What may happen to a file ------------------------------------------------------------------

FILES = (
    "plan.json",
    "history.jsonl",
    "samples.jsonl",
    "summary.json",
    "logs/worker-0.log",
    "logs/worker-0.times",
)
LARGE = 3 * 2**30


def sparse(path: Path, content: bytes = b"") -> None:
    path.write_bytes(content)
    os.truncate(path, LARGE)


BECOMES: dict[str, Callable[[Path, bytes], object]] = {
    "a folder": lambda path, _: path.mkdir(),
    "a loop": lambda path, _: path.symlink_to(path.name),
    "a pipe": lambda path, _: os.mkfifo(path),
    "a device": lambda path, _: path.symlink_to("/dev/zero"),
    "sparse": lambda path, _: sparse(path),
    "a sparse end": sparse,
    "nested": lambda path, _: path.write_bytes(b'{"a":' + b"[" * 100_000 + b"\n"),
    "a nested line": lambda path, old: path.write_bytes(
        old + b"[" * 100_000 + b"]" * 100_000 + b"\n"
    ),
    "text": lambda path, _: path.write_bytes(b'"x"\n'),
    "empty": lambda path, _: path.write_bytes(b""),
    "gone": lambda path, _: None,
}
"""What is done where a file was, with what was in it."""
KINDS = list(itertools.product(FILES, BECOMES))


@pytest.mark.parametrize(("name", "kind"), KINDS if SEARCHING else KINDS[::5])
def test_a_file_that_is_another_kind_of_thing(whole: Path, name: str, kind: str) -> None:
    def become(run: Path) -> None:
        content = (run / name).read_bytes()
        (run / name).unlink()
        BECOMES[kind](run / name, content)

    sound(whole, become)


# --- Values of another type ---------------------------------------------------------------------

ODD: list[Any] = [
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 10**30, 10**400, 0.5, -0.5, 1e308, -1e308, 1e300),
    *(float("inf"), float("-inf"), float("nan"), "", "x", "0", "1e5", "\0", "\ud800", "../../x"),
    *("worker-0", "ps-0", "job", "task", "preempt", "kill", "x" * 5000, [], {}, [[]], [1], [None]),
    *({"": None}, {"a": 1}, {"first": 1}, {"first": "a", "count": 10**400}, {"time": 1}, [0] * 50),
]
EVENTS = [json.loads(line_of(one)) for one in a_history()]
KEYS = sorted({key for one in EVENTS for key in one} | {"coalesced", "plan", "signal", "name"})


def places(data: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to every value."""
    items = list(data.items()) if isinstance(data, dict) else []
    items += enumerate(data) if isinstance(data, list) else []
    for key, value in items:
        yield (*here, key)
        yield from places(value, (*here, key))


GONE = object()


def replaced(data: Any, path: Sequence[Any], value: object) -> Any:
    made = copy.deepcopy(data)
    inside = made
    for key in path[:-1]:
        inside = inside[key]
    if value is GONE:
        del inside[path[-1]]
    else:
        inside[path[-1]] = value
    return made


@st.composite
def odd_values(draw: st.DrawFn) -> Garbling:
    """Return the replacement of a value in a file of JSON, or in a line of one."""
    name = draw(st.sampled_from(["plan.json", "history.jsonl", "samples.jsonl", "summary.json"]))
    which, where = draw(st.integers(0, 10**6)), draw(st.integers(0, 10**6))
    value = draw(st.sampled_from([*ODD, GONE]))

    def garble(run: Path) -> None:
        text = (run / name).read_text()
        lines = text.splitlines() if name.endswith("l") else [text]
        number = which % len(lines)
        data = json.loads(lines[number])
        ways = list(places(data))
        lines[number] = json.dumps(replaced(data, ways[where % len(ways)], value))
        (run / name).write_text("\n".join(lines) + "\n")

    return garble


@st.composite
def other_events(draw: st.DrawFn) -> Garbling:
    """Return a change of the order of lines, or one with an additional field."""
    how = draw(st.sampled_from(["swap", "repeat", "drop", "field", "reverse", "only"]))
    one, two = draw(st.integers(0, 10**6)), draw(st.integers(0, 10**6))
    key, value = draw(st.sampled_from(KEYS)), draw(st.sampled_from(ODD))
    name = draw(
        st.sampled_from(["history.jsonl", "history.jsonl", "samples.jsonl", "logs/worker-0.times"])
    )

    def garble(run: Path) -> None:
        lines = (run / name).read_text().splitlines()
        first, second = one % len(lines), two % len(lines)
        match how:
            case "swap":
                lines[first], lines[second] = lines[second], lines[first]
            case "repeat":
                lines[first:first] = [lines[second]] * 3
            case "drop":
                del lines[min(first, second) : max(first, second)]
            case "reverse":
                lines.reverse()
            case "only":
                lines = [lines[first]]
            case "field" if name != "logs/worker-0.times":
                lines[first] = json.dumps({**json.loads(lines[first]), key: value})
        (run / name).write_text("\n".join(lines) + "\n")

    return garble


TOKENS = (
    *(b"", b"\0", b"\n", b"\xff", b"{", b"}", b"[", b'"', b",", b":", b"-"),
    *(b"1e999", b"9" * 30, b"9" * 5000, b"NaN"),
)


@st.composite
def other_bytes(draw: st.DrawFn) -> Garbling:
    """Return a change of bytes: pieces cut out, put in, and repeated."""
    name = draw(st.sampled_from(FILES))
    edit = st.tuples(
        st.integers(0, 10**6), st.integers(0, 30), st.sampled_from(TOKENS), st.integers(0, 3)
    )
    edits = draw(st.lists(edit, min_size=1, max_size=5))

    def garble(run: Path) -> None:
        content = (run / name).read_bytes()
        for begin, length, token, times in edits:
            at = begin % (len(content) + 1)
            piece, rest = content[at : at + length], content[at + length :]
            content = content[:at] + piece * times + token + rest
        (run / name).write_bytes(content)

    return garble


@fuzz
@given(st.lists(odd_values() | other_events() | other_bytes(), min_size=1, max_size=3))
def test_a_record_that_something_has_changed(whole: Path, garblings: list[Garbling]) -> None:
    sound(whole, *garblings)


def test_a_whole_record_is_read(whole: Path) -> None:
    """What is changed above is sound before."""
    with garbled(whole, []) as out:
        codes = [reads(out, command) for command in COMMANDS]
    assert codes.count(0) == len(COMMANDS)
    assert entry_of(EVENTS[0]) == a_history()[0]


def changed(name: str, event: str, key: str, value: object) -> Garbling:
    """Return another value of a key in all lines of a file that are of the event, or of none."""

    def garble(run: Path) -> None:
        lines = [json.loads(line) for line in (run / name).read_text().splitlines()]
        odd = [one | {key: value} if one.get("event", event) == event else one for one in lines]
        (run / name).write_text("".join(f"{json.dumps(one)}\n" for one in odd))

    return garble


@pytest.mark.parametrize(
    ("name", "key", "value"), [("history.jsonl", "task", "1e5"), ("samples.jsonl", "t", 1e308)]
)
def test_what_an_export_found_odd(whole: Path, name: str, key: str, value: object) -> None:
    """A step of a task that the plan does not have, and moments that no event file can have."""
    with garbled(whole, [changed(name, "step", key, value)]) as out:
        assert reads(out, COMMANDS[-1]) in (0, 4)


@pytest.mark.parametrize(
    ("event", "key", "value", "says"),
    [
        ("job", "outcome", "../../x", "outcome: input should be 'succeeded'"),
        ("fault", "kind", "../../x", "there is no kind of fault ../../x"),
        ("exit", "task", "../../x", "it has events of ../../x, which the plan does not have"),
        ("job", "t", 1e308, "t and wall: one is no time of a run"),
        ("job", "wall", -1e300, "t and wall: one is no time of a run"),
    ],
)
def test_what_a_page_found_odd(whole: Path, event: str, key: str, value: object, says: str) -> None:
    garble = changed("history.jsonl", event, key, value)
    with garbled(whole, [garble]) as out, pytest.raises(RecordError) as refused:
        judge(Record(out / "run-1"))
    assert says in str(refused.value)
    sound(whole, garble)
