"""The pages of the gallery: how they are written, and that none is missing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.gallery.pages import CHAPTERS, cell, filled, index, pictures, written
from benchmarks.gallery.runs import Run, chosen, read_runs
from emulator.runtime.bundled import ROOT, scenarios

PAGES = ROOT / "docs" / "gallery"


def a_run(scenario: str, variant: str = "", **summary: Any) -> Run:
    return Run(scenario, variant, summary, Path())


COLUMNS = "columns: variant, values.bubble as bubble, lost_steps"
RUNS = [
    a_run("pipe", "program.env.M=2", values={"bubble": {"worker-0": 0.25, "worker-1": 0.375}}),
    a_run("pipe", "program.env.M=8", values={"bubble": {"worker-0": 0.125}}, lost_steps=3),
    a_run("plain", lost_steps=0),
]


def test_what_stands_between_marks_is_written_and_nothing_else() -> None:
    page = (
        f"# Pipes\n\n<!-- runs: pipe[*] | {COLUMNS} -->\n"
        "old\nnumbers\n<!-- end -->\ntext\n<!-- block: theory -->\n<!-- end -->\n"
    )
    once = filled(page, RUNS, {"theory": "(p-1)/(m+p-1)\n"})
    assert once == (
        f"# Pipes\n\n<!-- runs: pipe[*] | {COLUMNS} -->\n"
        "| variant | bubble | lost_steps |\n| --- | --- | --- |\n"
        "| M=2 | 0.250 to 0.375 | — |\n| M=8 | 0.125 | 3 |\n<!-- end -->\ntext\n"
        "<!-- block: theory -->\n(p-1)/(m+p-1)\n<!-- end -->\n"
    )
    assert filled(once, RUNS, {"theory": "(p-1)/(m+p-1)"}) == once


@pytest.mark.parametrize("mark", ["runs: nothing | columns: variant", "block: nothing"])
def test_a_missing_run_is_an_error_and_no_empty_table(mark: str) -> None:
    with pytest.raises(LookupError, match="nothing"):
        filled(f"<!-- {mark} -->\n<!-- end -->", RUNS, {})


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        ("plain pipe[*]", ["plain", "pipe[program.env.M=2]", "pipe[program.env.M=8]"]),
        ("pipe[*=8]", ["pipe[program.env.M=8]"]),
    ],
)
def test_runs_are_named_by_scenario_and_variant(patterns: str, names: list[str]) -> None:
    assert [run.name for run in chosen(RUNS, patterns)] == names


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "—"),
        (3, "3"),
        (0.0123456, "0.0123"),
        (1234.7, "1235"),
        ({"a": 1, "b": 1}, "1"),
        (["sh", "python3"], "sh, python3"),
        ([], "none"),
    ],
)
def test_numbers_have_three_digits(value: object, text: str) -> None:
    assert written(value) == text


def test_figures_are_written_as_everywhere() -> None:
    run = a_run("plain", goodput=0.5, throughput={"steps_per_second": 9.87654})
    assert (cell(run, "goodput"), cell(run, "throughput.steps_per_second")) == ("50%", "9.88")


def test_a_number_in_a_key_is_a_place_in_a_list() -> None:
    run = a_run("plain", notices=[{"left": 2.5, "at_the_kill": ["sh"]}])
    assert [cell(run, f"notices.{key}") for key in ("0.left", "0.at_the_kill", "1.left")] == [
        "2.50",
        "sh",
        "—",
    ]


def test_the_latest_run_of_a_variant_counts(tmp_path: Path) -> None:
    for number, engine in enumerate(("docker", "docker", "process")):
        folder = tmp_path / "gw0" / f"run-{number}"
        folder.mkdir(parents=True)
        summary = {"scenario": "plain", "variant": "", "engine": engine, "n": number}
        (folder / "summary.json").write_text(json.dumps(summary))
    assert [run.summary["n"] for run in read_runs(tmp_path)] == [1]


def test_the_index_has_title_sentence_and_picture_of_each_page() -> None:
    page = "# Pipes\n\nA model in\nparts. More.\n\n![stages](pictures/pipe.png)\n"
    assert pictures(page) == ["pipe"]
    text = index({f"{name}.md": page for names in CHAPTERS.values() for name in names})
    assert (
        '| <a href="fsdp.md"><img src="pictures/pipe.png" alt="stages" width="400"></a> '
        "| **[Pipes](fsdp.md)**<br>A model in parts. |"
    ) in text.splitlines()


# --- What is there --------------------------------------------------------------------------------


def pages() -> dict[str, str]:
    found = {path.name: path.read_text(encoding="utf-8") for path in sorted(PAGES.glob("*.md"))}
    del found["README.md"]
    return found


def test_each_scenario_of_the_gallery_is_on_a_page() -> None:
    marks = {
        path.stem: yaml.safe_load(path.read_text(encoding="utf-8")).get("marks", [])
        for path in scenarios()
    }
    assert len(marks) == len(scenarios())  # `emulate up NAME` finds one
    text = "\n".join(pages().values())
    names = [name for name, found in marks.items() if "gallery" in found]
    assert [name for name in names if not re.search(rf"\b{name}\b", text)] == []


def test_each_picture_is_there_and_each_page_has_one() -> None:
    shown = {name: pictures(text) for name, text in pages().items()}
    assert [name for name, found in shown.items() if not found] == []
    there = {path.stem for path in (PAGES / "pictures").glob("*.png")}
    assert there == {name for found in shown.values() for name in found}


def test_no_table_is_empty_and_each_page_is_in_one_chapter_and_in_the_index() -> None:
    assert sorted(f"{name}.md" for names in CHAPTERS.values() for name in names) == sorted(pages())
    unfilled = [name for name, text in pages().items() if re.search(r"-->\n<!-- end", text)]
    assert unfilled == []
    text = (PAGES / "README.md").read_text(encoding="utf-8")
    assert text == filled(text, [], {"index": index(pages())})
