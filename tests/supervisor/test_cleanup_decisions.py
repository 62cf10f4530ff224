"""What `clean`, `down` and `find_all` tell an engine, and what they leave alone: none is real."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from emulator import engines
from emulator.engines.base import Resource, Warming
from emulator.errors import EngineError, EngineLost, EngineMissing, InUse, RecordError, UsageError
from emulator.planning.plan import WarmStart
from emulator.planning.planner import make_plan
from emulator.record.events import Entry
from emulator.record.lock import acquire, in_use, locked, release
from emulator.record.reader import Record
from emulator.record.remains import LOG, header, remove_never_began, remove_remains
from emulator.record.writer import RunWriter
from emulator.runtime.clock import RealClock
from emulator.runtime.host import this_host
from emulator.scenario.loader import parse
from emulator.scenario.schema import Scenario
from emulator.supervisor import cleanup
from tests.histories import SITE, an_event

HERE = this_host()
MISSING = EngineMissing("It does not answer.", configured=True)
NOT_LOOKED_AT = "It does not answer. What runs have left on it is not looked at."


class Noting:
    """Has what it is given, and notes what it is told."""

    def __init__(self, *things: Resource, fails: Mapping[str, Exception] | None = None) -> None:
        self.things, self.fails, self.told = list(things), dict(fails or {}), list[str]()
        self.name = "process"

    def find(self, run_id: str | None = None) -> list[Resource]:
        if "find" in self.fails:
            raise self.fails["find"]
        return [one for one in self.things if run_id in (None, one.run_id)]

    def tear_down(self, run_id: str) -> int:
        self.told.append(f"tear down {run_id}")
        if run_id in self.fails:
            raise self.fails[run_id]
        return len(self.find(run_id))

    def close(self) -> None:
        self.told.append("close")


class Far(Noting):
    """One of a network, which has settings of a scenario."""

    def configure(self, scenario: Scenario) -> None:
        self.told.append(f"configure {scenario.name}")
        if scenario.name in self.fails:
            raise self.fails[scenario.name]

    @staticmethod
    def place_of(scenario: Scenario) -> Hashable:
        return scenario.name.partition("-")[0]


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> dict[str, Noting | EngineMissing]:
    """The engines by name: all that there are."""
    known: dict[str, Noting | EngineMissing] = {"process": Noting()}

    def opened(name: str) -> Noting:
        if isinstance(one := known[name], EngineMissing):
            raise one
        one.name = name
        return one

    monkeypatch.setattr(engines, "names", lambda: tuple(known))
    local = {"process": ""}
    for module in (engines, cleanup):
        monkeypatch.setattr(module, "BUILT_IN", local)
    monkeypatch.setattr(engines, "engine_class", lambda name: lambda: opened(name))
    return known


def thing(run: Path, name: str = "c", host: str = HERE) -> Resource:
    return Resource(run.name, "container", name, "running", str(run), host)


def a_run(
    path: Path, *events: Entry, engine: str = "process", name: str = "test", warm: str = ""
) -> Record:
    """Write the record of a run that ended long ago."""
    text = f"name: {name}\nframework: none\nprogram: {{command: [a]}}\ncluster: {{worker: 1}}\n"
    plan = make_plan(parse(text), path.name, SITE)
    has = {"engine": engine, "warm": WarmStart(cluster=warm, preload={}) if warm else None}
    folder = RunWriter(path, plan.model_copy(update=has), text, RealClock())
    for event in events:
        folder.write(event, wall=event.wall)
    folder.close()
    for file in path.glob("*.json*"):
        os.utime(file, (1, 1))
    return Record(path)


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Have the lock of a run, as its supervisor does."""
    folder.mkdir(exist_ok=True)
    lock = acquire(folder)
    try:
        yield
    finally:
        release(lock)


def clean(
    out: Path, *, say: Callable[[str], object] | None = None, engine: str = "process", **how: Any
) -> tuple[int, list[str]]:
    """Clean; return the number of things, and what was said."""
    said: list[str] = []

    def tell(text: str) -> None:
        said.append(text)
        if say is not None:
            say(text)

    options = {"dry_run": False, **how}
    return cleanup.clean(out, engine_name=engine, say=tell, **options), said


WARM = "warm-1 waits for a warm run; `emulate clean --warm` removes it"
FAR = (
    "what runs of the host far have is left alone; once they are over, "
    "`emulate clean --host far` removes it"
)
STRANGE = r"not ours, for what they are labelled with is no run id: container c\x1b, container d"


@pytest.mark.parametrize(
    ("how", "count", "said", "removed"),
    [
        ({}, 4, [STRANGE, WARM, FAR, "a c", "a d", "b c", "e c"], "abe"),
        ({"dry_run": True}, 4, [STRANGE, WARM, FAR, "a c", "a d", "b c", "e c"], ""),
        ({"warm": True}, 5, [STRANGE, FAR, "a c", "a d", "b c", "e c", "w c"], "abew"),
        ({"over": {"far", HERE}}, 5, [STRANGE, WARM, "a c", "a d", "b c", "e c", "o c"], "abeo"),
    ],
)
def test_clean_removes_what_no_live_run_of_this_host_has(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    known: dict[str, Noting],
    how: Mapping[str, Any],
    count: int,
    said: list[str],
    removed: str,
) -> None:
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    out.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    warm, waited = elsewhere / "warm-1", elsewhere / "early-1"
    ids = {"a": "a-1", "b": "b-1", "e": "early-1", "w": "warm-1", "o": "other-1"}
    waits = {"waits": staticmethod(lambda folder: folder == warm)}
    engine = known["process"] = type("Warm", (Noting, Warming), waits)(
        # Some labels are no folder of a run, though one is live where this process happens to be.
        *(replace(thing(elsewhere / "b-1"), folder="live-1"), thing(elsewhere / "a-1")),
        replace(thing(elsewhere / "a-1", "d"), folder="/\0"),
        *(thing(elsewhere / "live-1"), thing(warm), thing(waited)),
        *(
            thing(elsewhere / "other-1", host="far"),
            thing(elsewhere / "No id", "c\x1b"),
            thing(elsewhere / "No", "d"),
        ),
    )
    verb = "found" if how.get("dry_run") else "removing"
    whole = [one if len(one) > 3 else f"{verb} container {one[2:]}" for one in said]
    with held(elsewhere / "live-1"):
        assert clean(out, **how) == (count, whole)
    assert engine.told == [*(f"tear down {ids[one]}" for one in removed), "close"]


@pytest.mark.parametrize(
    ("dry_run", "doing"), [(False, ("removing", "uncordoning")), (True, ("found", "found"))]
)
def test_a_node_is_not_said_to_be_removed(
    tmp_path: Path, known: dict[str, Noting], dry_run: bool, doing: tuple[str, str]
) -> None:
    pod = thing(tmp_path / "a-1")
    known["process"] = Noting(pod, replace(pod, kind="node", name="n1", state="cordoned"))
    assert clean(tmp_path, dry_run=dry_run) == (
        1,
        [f"{doing[0]} container c", f"{doing[1]} node n1, which a run has cordoned; it stays"],
    )


def test_a_run_that_fails_or_is_used_by_now_keeps_no_other_from_being_removed(
    tmp_path: Path, known: dict[str, Noting]
) -> None:
    runs = [a_run(tmp_path / name).path for name in ("a-1", "b-1", "c-1", "d-1")]
    error, later = EngineError("It is stuck."), EngineError("It is stuck as well.")
    engine = known["process"] = Noting(*map(thing, runs), fails={"a-1": error, "c-1": later})
    with contextlib.ExitStack() as stack:
        said: list[str] = []

        def say(text: str) -> None:
            said.append(text)
            if len(said) == 1:
                with pytest.raises(InUse), locked(runs[0], make=True):
                    """It is removed under its lock."""
                stack.enter_context(held(runs[1]))

        with pytest.raises(EngineError) as raised:
            clean(tmp_path, say=say)
    assert raised.value is error
    assert engine.told == [*(f"tear down {name}-1" for name in "acd"), "close"]
    removing = "removing container c"
    busy = "b-1 is left alone: another emulate is at work on it by now"
    assert said == [removing, error.message, busy, removing, later.message, removing]
    engine.fails["a-1"], engine.told[:] = EngineLost("It is gone."), []
    with pytest.raises(EngineLost):  # then no other can be removed either
        clean(tmp_path)
    assert engine.told == ["tear down a-1", "close"]


def test_clean_waits_for_who_removes_a_run_and_looks_again(
    tmp_path: Path, known: dict[str, Noting]
) -> None:
    runs = [a_run(tmp_path / name).path for name in ("a-1", "b-1")]
    engine = known["process"] = Noting(thing(runs[0]))
    port = runs[1] / "api.port"
    port.write_text("1")
    with contextlib.ExitStack() as stack:
        stack.enter_context(locked(runs[0], make=True))

        def say(text: str) -> None:
            if "that removes" in text:
                stack.close()
            if "that removes a-1" in text:
                engine.things = [thing(tmp_path / "c-1")]
                stack.enter_context(locked(runs[1], make=True))

        assert clean(tmp_path, say=say, dry_run=True) == (1, [f"found {port}"])
        waiting = "waiting for another emulate process that removes"
        done = [f"{waiting} a-1", "removing container c", f"{waiting} b-1", f"removing {port}"]
        assert clean(tmp_path, say=say) == (2, done)


def test_folders_of_dead_runs_lose_what_is_no_record(
    tmp_path: Path, known: dict[str, Noting], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("dead-1", "live-1", "busy-1", "bad-1", "bare-1")
    dead, live, busy, bad, _ = (a_run(tmp_path / name).path for name in names)
    for number, folder in enumerate((dead, live, busy, bad)):
        (folder / "api.port").write_text("1")
        os.utime(folder / "plan.json", (number + 2, number + 2))
    early, kept = tmp_path / "early-1", tmp_path / "kept-1"
    for folder in (early, kept):
        folder.mkdir()
        (folder / LOG).write_text(header(folder.name))

    (dead / "supervisor.lock").unlink()

    def remove(folder: Path, run_id: str) -> list[Path]:
        if folder == bad:
            raise RecordError("A disk is mounted.")
        with pytest.raises(InUse), locked(folder, make=True):
            """It is removed under its lock."""
        return remove_remains(folder, run_id)

    def lock(folder: Path, *, make: bool) -> contextlib.AbstractContextManager[None]:
        if folder == busy:
            raise in_use(folder)
        return locked(folder, make=make)

    monkeypatch.setattr(cleanup, "remove_remains", remove)
    monkeypatch.setattr(
        cleanup, "remove_never_began", lambda path: path == early and remove_never_began(path)
    )
    monkeypatch.setattr(cleanup, "locked", lock)
    ports = [folder / "api.port" for folder in (dead, busy, bad)]
    begun = [f"{folder}, of a run that never began" for folder in (early, kept)]
    with held(live):
        assert clean(tmp_path, dry_run=True) == (
            5,
            [*(f"found {one}" for one in ports), *(f"found {one}" for one in begun)],
        )
        assert clean(tmp_path) == (
            3,
            [
                f"removing {ports[0]}",
                "busy-1 is left alone: another emulate is at work on it by now",
                f"removing {ports[2]}",
                "A disk is mounted.",
                f"removing {begun[0]}",
            ],
        )
    there = [(one / "api.port").exists() for one in (dead, live, busy, bad)]
    assert there == [False, True, True, True]
    assert (early.exists(), kept.exists()) == (False, True)


def test_auto_looks_at_each_engine_and_place_that_answers(
    tmp_path: Path, known: dict[str, Noting | EngineMissing]
) -> None:
    near, far = Noting(thing(tmp_path / "a-1"), thing(tmp_path / "No id")), Far()
    known |= {"process": near, "kubernetes": far}
    said: list[str] = []
    assert cleanup.find_all(tmp_path, said.append) == near.things[:1]
    assert far.told == []  # no run was there
    names = ("x-1", "x-2", "gone-1", "y-1")
    for number, name in enumerate(names):
        run = a_run(tmp_path / f"far-{number}", engine="kubernetes", name=name)
        os.utime(run.path / "plan.json", (number + 2, number + 2))
    a_run(tmp_path / "over-1", an_event("removed"), engine="kubernetes", name="z")
    a_run(tmp_path / "near-1", name="z")
    (a_run(tmp_path / "bad-1", engine="kubernetes").path / "plan.json").write_text("{")
    far.things, far.fails = [thing(tmp_path / "b-1")], {"gone-1": MISSING}
    assert cleanup.find_all(tmp_path, said.append) == [near.things[0], *far.things * 2]
    assert far.told == ["configure x-2", "configure gone-1", "configure y-1", "close"]
    assert said == [NOT_LOOKED_AT]
    far.told.clear()
    removing = "removing container c"
    done = (3, [removing, removing, NOT_LOOKED_AT, removing])  # and wherever it looks by itself
    assert clean(tmp_path, engine="kubernetes") == done
    told = ["tear down b-1", "configure x-2", "tear down b-1", "configure gone-1", "configure y-1"]
    assert far.told == [*told, "tear down b-1", "close"]


@pytest.mark.parametrize("found_late", [False, True])
@pytest.mark.parametrize("configured", [False, True])
def test_an_engine_that_does_not_answer_is_said_where_it_should(
    tmp_path: Path, known: dict[str, Noting | EngineMissing], configured: bool, found_late: bool
) -> None:
    error = EngineMissing("It does not answer.", configured=configured)
    engines.BUILT_IN.pop("process")
    engines.BUILT_IN.update(docker="", process="")
    known |= {"docker": Noting(fails={"find": error}) if found_late else error}
    known["process"] = Noting(thing(tmp_path / "a-1"))
    said: list[str] = []
    assert len(cleanup.find_all(tmp_path, said.append)) == 1
    assert said == [NOT_LOOKED_AT] * configured
    assert sorted(clean(tmp_path, engine="auto")[1]) == [NOT_LOOKED_AT, "removing container c"]
    with pytest.raises(EngineMissing):
        clean(tmp_path, engine="docker")


def test_an_engine_is_configured_as_the_run_has_used_it(
    tmp_path: Path, known: dict[str, Noting]
) -> None:
    far = known["kubernetes"] = Far(fails={"gone": MISSING})
    record = a_run(tmp_path / "far-1", engine="kubernetes", name="here")
    assert cleanup.open_for(record) is far  # type: ignore[comparison-overlap]
    assert far.told == ["configure here"]
    far.told.clear()
    with pytest.raises(EngineMissing):
        cleanup.open_for(a_run(tmp_path / "far-2", engine="kubernetes", name="gone"))
    assert far.told == ["configure gone", "close"]
    far.told.clear()
    assert cleanup.remove("far-3", "kubernetes", tmp_path / "far-3") == 0  # its folder is gone
    assert cleanup.remove("far-1", "kubernetes", tmp_path / "far-1") == 0
    ended = ["tear down far-3", "close", "configure here", "tear down far-1", "close"]
    assert far.told == ended
    near = known["process"]
    assert cleanup.open_for(a_run(tmp_path / "near-1")) is near  # type: ignore[comparison-overlap]


def test_down_removes_what_a_dead_run_left_and_the_warm_cluster_that_it_used(
    tmp_path: Path, known: dict[str, Noting]
) -> None:
    record = a_run(tmp_path / "run-1", warm="warm-1")
    (record.path / "api.port").write_text("1")
    warm = tmp_path / "warm-1"
    things = [*(thing(record.path, name) for name in "cd"), thing(warm)]
    engine = known["process"] = Noting(*things)
    with held(warm):
        assert cleanup.stop_or_remove(record) == "removed 3 things of run-1"
    assert engine.told == ["tear down run-1", "close", "close"]
    engine.told.clear()
    assert cleanup.stop_or_remove(record) == "removed 3 things of run-1"
    assert engine.told == ["tear down run-1", "close", "tear down warm-1", "close"]
    engine.things = []
    assert cleanup.stop_or_remove(record) == "nothing was left"
    engine.things = [thing(tmp_path / "other" / "run-1"), *things]
    (tmp_path / "other").mkdir()
    with held(tmp_path / "other" / "run-1"), pytest.raises(UsageError, match="is under way, in"):
        cleanup.stop_or_remove(record)
    assert cleanup.stop_or_remove(record) == "removed 4 things of run-1"
    with held(record.path), pytest.raises(InUse):  # it has no supervisor that could be told
        cleanup.stop_or_remove(record)
    record.path.rename(tmp_path / "run-2")
    with pytest.raises(UsageError, match="under another name"):
        cleanup.stop_or_remove(Record(tmp_path / "run-2"))


def test_down_tells_the_supervisor_of_a_live_run_to_end_and_waits(
    tmp_path: Path, known: dict[str, Noting], monkeypatch: pytest.MonkeyPatch
) -> None:
    record = a_run(tmp_path / "run-1")
    sent: list[int] = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(held(record.path))

        class Supervisor:
            def send_signal(self, number: int) -> None:
                sent.append(number)
                stack.close()

        monkeypatch.setattr(cleanup, "_supervisor_of", lambda record: Supervisor())
        assert cleanup.stop_or_remove(record) == "run-1 was stopped"
        assert cleanup.stop_or_remove(record) == "nothing was left"  # no longer live
    assert sent == [signal.SIGTERM]


def test_a_supervisor_is_the_last_process_that_had_the_run_if_it_is_that_process(
    tmp_path: Path,
) -> None:
    parent = os.getppid()

    def found(*events: tuple[str, int, float]) -> int | None:
        entries = (an_event(name, pid=pid, wall=wall) for name, pid, wall in events)
        record = a_run(tmp_path / f"run-{len(os.listdir(tmp_path))}", *entries)
        process = cleanup._supervisor_of(record)
        return process.pid if process else None

    now = time.time() + 10
    assert found() is None
    assert found(("run", parent, now)) == parent
    assert found(("run", os.getpid(), now), ("attached", parent, now)) == parent
    assert found(("run", parent, now), ("attached", os.getpid(), now)) is None  # this process
    assert found(("run", parent, 1.0)) is None  # another has its pid by now
    assert found(("run", 2**22 + 1, now)) is None  # gone


def test_a_wait_is_as_long_as_the_last_engine_may_need(
    tmp_path: Path, known: dict[str, Noting], monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [a_run(tmp_path / f"run-{number}") for number in range(3)]
    until = {"run-0": time.time() + 5_000, "run-2": time.time() + 9_000}
    paused, said = [0.0], list[str]()
    monkeypatch.setattr(cleanup, "settles_at", lambda record: until.get(record.run_id, 0.0))
    monkeypatch.setattr(cleanup, "pause", lambda seconds, check: paused.append(seconds))
    cleanup.let_settle(records, said.append)
    assert paused[1:] == [pytest.approx(9_000, abs=1_000)]
    assert said == ["waiting a moment for what the engine may still be making for run-0, run-2"]
    cleanup.let_settle(records[1:2], said.append)
    assert len(said) == 1
    assert len(paused) == 2
    until.pop("run-2")
    assert clean(tmp_path, dry_run=True) == (0, [])
    assert clean(tmp_path) == (0, [said[0].removesuffix(", run-2")])
