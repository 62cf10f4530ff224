"""The clinic of formats: what a record says of a broken save, and the page."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gallery import formats as page
from benchmarks.gallery.clinic import measure, seen_in, ways
from benchmarks.gallery.formats import (
    BROKEN,
    CALLS,
    FORMATS,
    WAYS,
    WORDS,
    Seen,
    applies,
    blocks,
    cell,
    chart,
    columns,
    error_in,
    errors,
    read,
    seen,
    stored,
    sweeps,
    table,
    within,
    worst,
)
from benchmarks.gallery.pages import filled
from emulator.pytest_plugin.harness import Emulator
from emulator.record.events import Entry
from emulator.results import Result
from emulator.search.moments import Moment
from emulator.search.outcomes import Outcome
from emulator.search.points import Point, SweepResult
from tests.histories import happened, step, timeline

PAGE = Path(__file__).parents[2] / "docs" / "gallery" / "formats.md"
KILL = "faults: [{kill: worker-0, at: {write: 4}}]"
EFFECT = "worker-0 was about to make write 4 of 99 bytes: /shared/saves/model.pt"


def phase(t: float, name: str, state: str, **values: Any) -> Entry:
    return happened(t, "phase", "worker-0", phase=name, state=state, **values)


def first_life(*, whole: bool = False) -> list[Entry]:
    """Return two saves, and a kill: in the second of them, or after it."""
    second = [phase(4, "checkpoint", "begin", step=20, digest="b")]
    if whole:
        second.append(phase(5, "checkpoint", "end", step=20, digest="b"))
    return [
        happened(0, "start", "worker-0"),
        happened(1, "running", "worker-0"),
        step(2, "worker-0", 1),
        phase(2, "checkpoint", "begin", step=10, digest="a"),
        phase(3, "checkpoint", "end", step=10, digest="a"),
        *second,
        happened(6, "fault", "worker-0", kind="kill", effect=EFFECT),
        happened(6, "exit", "worker-0", exit_code=137),
        happened(6, "fault", "worker-0", kind="kill", stage="applied"),
        happened(7, "start", "worker-0"),
        happened(8, "running", "worker-0"),
    ]


def seen_after(*second: Entry, whole: bool = False, words: list[str] | None = None) -> Seen:
    events = [*first_life(whole=whole), *second]
    return seen(timeline(events, "{worker: 1}", KILL), words or [])


def resumed(number: int, digest: str, exit_code: int = 0) -> list[Entry]:
    return [
        phase(9, "restore", "end", step=number, digest=digest),
        step(10, "worker-0", number + 1),
        happened(11, "exit", "worker-0", exit_code=exit_code),
    ]


@pytest.mark.parametrize(
    ("number", "digest", "came_back"),
    [(20, "b", "newest"), (10, "a", "before"), (20, "a", "wrong"), (10, "x", "wrong")],
)
def test_what_was_loaded_is_compared_with_what_was_saved(
    number: int, digest: str, came_back: str
) -> None:
    found = seen_after(*resumed(number, digest))
    assert (found.came_back, found.step, found.save) == (came_back, number, 20)
    assert found.at == "write 4 of 99 bytes: /shared/saves/model.pt"


def test_a_kill_after_a_save_is_in_no_save() -> None:
    assert seen_after(*resumed(20, "b"), whole=True).save is None


def test_who_loads_nothing_begins_from_scratch() -> None:
    found = seen_after(step(9, "worker-0", 1), happened(11, "exit", "worker-0"))
    assert (found.came_back, found.step) == ("scratch", 0)


def test_who_can_not_load_ends_with_an_error() -> None:
    end = happened(9, "exit", "worker-0", exit_code=1)
    found = seen_after(end, words=["Traceback", "EOFError: ended", ""])
    assert (found.came_back, found.words) == ("error", "EOFError: ended")


def test_who_never_ends_hangs() -> None:
    broken = [one for one in first_life() if one.t < 7][:-2]  # it was not killed
    over = [*broken, happened(6, "fault", "worker-0", kind="kill", stage="applied")]
    found = seen(timeline([*over, happened(300, "job", outcome="timeout")], "{worker: 1}", KILL))
    assert found.came_back == "hangs"
    assert seen(timeline(over, "{worker: 1}", KILL)).came_back == "unknown"


def test_of_several_exceptions_the_first_is_the_reason() -> None:
    lines = ["  File x", "a.b.DataLossError: bad", "RuntimeError: loop is closed", "at exit"]
    assert error_in(lines) == "DataLossError: bad"
    assert error_in(["Segmentation fault", ""]) == "Segmentation fault"


def test_who_fails_after_it_has_resumed_has_not_come_back() -> None:
    found = seen_after(*resumed(10, "a", exit_code=1), words=["ValueError: step 20 is there"])
    assert found.came_back == "error"
    assert found.words == "after it had resumed: ValueError: step 20 is there"


def test_nothing_is_known_of_what_did_not_happen_or_did_not_end() -> None:
    failed = [*first_life()[:6], happened(6, "fault", kind="kill", stage="failed", reason="late")]
    found = seen(timeline(failed, "{worker: 1}", KILL))
    assert (found.came_back, found.words) == ("unknown", "late")
    assert seen(timeline(first_life()[:6], "{worker: 1}", KILL)).came_back == "unknown"
    assert seen_after().words == "it neither resumed nor failed"


@pytest.mark.parametrize(("until", "hit"), [(5.0, True), (None, True), (4.0, False)])
def test_a_disk_counts_that_was_broken_when_a_save_began(until: float | None, hit: bool) -> None:
    assert within([2.0, 4.0], 3.0, until) == hit


# --- Sweeps ---------------------------------------------------------------------------------------


def test_a_moment_of_a_sweep_has_its_word_and_the_step_that_came_back() -> None:
    moment = Moment("write 4 of /shared/a.pt", {"write": 4})
    point = Point(moment, Outcome("failed", "it did not train again", resumed=0), "ok", None)
    assert seen_in(point) == Seen("failed", 0, "it did not train again", moment.words)


# --- The page -------------------------------------------------------------------------------------

RESULTS = {
    "torch": {
        "calls": [
            Seen("passed", 10, at="truncate 1"),
            Seen("failed", words="EOFError", at="write 1"),
            Seen("failed", words="x | y", at="write 2"),
        ],
        "torn": [Seen("error", words="x | y")],
        "bitflip": [Seen("wrong", 20)],
    },
    "manager": {"bitflip": [Seen("unknown", words="late")], "torn": [Seen("newest", 20)]},
}


def test_a_cell_says_how_often_each_came_back() -> None:
    assert cell(RESULTS, "torch", "calls") == "passed 1, failed 2"
    assert cell(RESULTS, "torch", "torn") == "error"
    assert cell(RESULTS, "torch", "bitflip") == "SILENTLY WRONG"
    assert cell(RESULTS, "orbax", "bitflip") == "not measured"
    assert cell(RESULTS, "torch", "empty-newer") == "no number in its name"


def test_the_table_has_the_ways_that_were_measured_and_the_chart_its_colours() -> None:
    assert columns(RESULTS) == ["calls", "torn", "bitflip"]
    line = "| `torch.save` | passed 1, failed 2 | error | **silently wrong** |"
    assert line in table(RESULTS).splitlines()
    assert table(RESULTS).endswith("\n\n31 cells are not measured yet.")
    (heatmap,) = chart(RESULTS).data
    assert [*heatmap.z[0]] == [[*WORDS].index(one) for one in ("failed", "error", "wrong")]
    assert "| `torch.save` | torn | `x / y` |" in errors(RESULTS)


def test_the_table_of_sweeps_has_the_words_and_the_first_of_the_worst_moments() -> None:
    lines = sweeps(RESULTS).splitlines()
    assert lines[2].startswith("| `torch.save` | 1 |  | 2 |  |  | failed: write 1 | write beside")


def test_the_worst_counts_and_what_is_unknown_only_alone() -> None:
    assert worst([Seen("before"), Seen("unknown")]) == "before"
    assert worst([Seen("unknown")]) == "unknown"
    assert worst([]) is None


def test_what_is_stored_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "formats.json"
    assert read(path) == {}
    path.write_text(stored(RESULTS), encoding="utf-8")
    assert read(path) == RESULTS


def test_the_page_shows_what_is_stored() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert filled(text, [], blocks([])) == text
    assert page.STORED.read_text(encoding="utf-8") == stored(read())


def test_all_that_can_be_broken_at_rest_is_measured() -> None:
    results = read()
    missing = [
        (name, way)
        for name in FORMATS
        for way in ("between", CALLS, *BROKEN)
        if applies(FORMATS[name], way) and way not in results[name]
    ]
    assert missing == []


# --- Measured again -------------------------------------------------------------------------------


@pytest.mark.gallery
@pytest.mark.docker
@pytest.mark.parametrize(("name", "came_back"), [("manager", "error"), ("orbax", "wrong")])
def test_checksums_find_a_flipped_bit_and_nothing_else_does(
    emulator: Emulator, name: str, came_back: str
) -> None:
    (found,) = measured(emulator, name, "bitflip")
    assert found.came_back == came_back


@pytest.mark.gallery
@pytest.mark.docker
@pytest.mark.long
@pytest.mark.parametrize("way", [*WAYS])
@pytest.mark.parametrize("name", [*FORMATS])
def test_the_same_comes_back_as_on_the_page(emulator: Emulator, name: str, way: str) -> None:
    expected = read()[name].get(way)
    if expected is None:
        pytest.skip("the page does not have it")
    found = measured(emulator, name, way)
    if way == CALLS:  # threads may write in another order, and so many calls more or less
        assert worst(found) == worst(expected)
    else:
        assert Counter(one.came_back for one in found) == Counter(one.came_back for one in expected)


def measured(emulator: Emulator, name: str, way: str) -> list[Seen]:
    assert way in ways()

    def run(scenario: str, changed: dict[str, Any]) -> Result:
        return emulator.run(scenario, set=changed, engine="docker")

    def sweep(scenario: str, changed: dict[str, Any]) -> SweepResult:
        kill = {"kill": "worker-0"}
        return emulator.sweep(scenario, fault=kill, set=changed, engine="docker")

    return measure(name, way, run, sweep)
