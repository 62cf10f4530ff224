"""The clinics' page: what a run showed, as a cell, and that the page shows what is stored."""

from __future__ import annotations

import pytest

from benchmarks import clinics as page
from benchmarks.clinics import CLINICS, Seen, blocks, cells, presets, read, resumed_from, stored
from benchmarks.gallery.pages import filled
from emulator.cli.clinics import names
from emulator.record.events import Entry
from tests.histories import happened, step, timeline


def test_the_page_shows_what_is_stored() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert filled(text, [], blocks(read())) == text
    assert page.STORED.read_text(encoding="utf-8") == stored(read())


def test_every_clinic_has_a_table_on_the_page() -> None:
    assert sorted(CLINICS) == names()
    text = page.PAGE.read_text(encoding="utf-8")
    assert [name for name in CLINICS if f"<!-- block: {name} -->" not in text] == []


def test_what_is_stored_is_of_ways_and_presets_that_there_are() -> None:
    for name, ways in read().items():
        assert set(ways) <= set(CLINICS[name].ways)
        for runs in ways.values():
            assert set(runs) <= set(presets(name))


def test_two_frameworks_show_a_difference_that_a_user_would_act_on() -> None:
    """The same preset, another way to react: steps are lost, or not."""
    lost = {
        (name, way): one.lost
        for name, ways in read().items()
        for way, runs in ways.items()
        if (one := runs.get("kubernetes")) is not None
    }
    assert (lost["plain", "no handler"] or 0) > (lost["plain", "handler of SIGTERM"] or 0)
    backup = lost["tensorflow-backup", "a backup every 50 steps"] or 0
    assert backup > (lost["tensorflow-preemption-handler", "as its documentation has it"] or 0)


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (None, "not measured"),
        (Seen("unknown", words="it had ended"), "unknown: it had ended"),
        (Seen("failed", words="worker-0 failed"), "**the job failed**: worker-0 failed"),
        (Seen("succeeded", resumed=0, lost=61), "**61 lost**, from scratch; no save"),
        (
            Seen("succeeded", resumed=50, lost=15, saving=2.5),
            "**15 lost**, from step 50; a save was cut off after 2.5 s",
        ),
        (
            Seen("succeeded", resumed=50, lost=11, notice=False),
            "**11 lost**, from step 50; no notice",
        ),
        (
            Seen("succeeded", resumed=61, lost=0, saved=0.31, left=2.69),
            "**0 lost**, from step 61; saved after 0.3 s, 2.7 s left",
        ),
    ],
)
def test_a_cell(one: Seen | None, text: str) -> None:
    assert page.text(one) == text


def test_how_a_task_ended() -> None:
    assert page.ran_on(Seen("succeeded", exit_code=143)) == "ended by itself, exit 143"
    assert page.ran_on(Seen("succeeded", killed=True)) == "killed"
    both = Seen("succeeded", killed=True, ran_on=["torchrun", "python"])
    assert page.ran_on(both) == "killed: torchrun, python"


def test_what_is_missing_is_measured() -> None:
    done = {"plain": {"no handler": {"gke": Seen("succeeded")}}}
    left = [*cells(["plain"], done, ["gke"], missing=True)]
    assert ("plain", "no handler", "gke") not in left
    assert len(left) == len(CLINICS["plain"].ways) - 1
    assert len([*cells(["plain"], done, ["gke"], missing=False)]) == len(CLINICS["plain"].ways)


def life(t: float, *then: Entry) -> list[Entry]:
    return [happened(t, "start", "worker-0"), happened(t, "running", "worker-0"), *then]


@pytest.mark.parametrize(
    ("second", "found"),
    [
        ([], None),
        ([step(9, "worker-0", 1)], 0),
        (
            [
                happened(8, "phase", "worker-0", phase="restore", state="end", step=50),
                step(9, "worker-0", 51),
            ],
            50,
        ),
    ],
)
def test_from_which_step_it_went_on(second: list[Entry], found: int | None) -> None:
    first = life(0, step(1, "worker-0", 60), happened(2, "exit", "worker-0", exit_code=137))
    assert resumed_from(timeline([*first, *life(7, *second)], "{worker: 1}")) == found
