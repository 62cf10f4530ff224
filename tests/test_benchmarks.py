"""How figures of the benchmarks are compared and shown."""

from __future__ import annotations

from pathlib import Path

from benchmarks.bench import BENCHMARKS
from benchmarks.figures import Figure, tables, worse

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"


def test_a_figure_got_worse_if_it_grew_by_more_than_a_tenth() -> None:
    now = {"a": 1.11, "b": 1.09, "c": 0.5, "new": 9.0}
    figures = [Figure(key, key.upper(), value, "s") for key, value in now.items()]
    assert worse({"a": 1.0, "b": 1.0, "c": 1.0}, figures) == ["a (A): 1 -> 1.11 s"]


def test_a_table_says_which_goals_were_reached() -> None:
    figures = [
        {"key": "a", "title": "A", "value": 0.1234, "unit": "s", "goal": 0.15},
        {"key": "b", "title": "B", "value": 2.0, "unit": "ms", "goal": 1.0},
        {"key": "c", "title": "C", "value": 2.0, "unit": "ms", "goal": None},
    ]
    table = {"command": "x", "commit": "c0", "date": "d", "machine": "m", "figures": figures}
    assert tables({"one": table})["one"].splitlines() == [
        "`x` at c0, d; m.",
        "",
        "| | measured | goal | reached |",
        "|---|---|---|---|",
        "| A | 0.123 s | 0.15 | yes |",
        "| B | 2 ms | 1 | **no** |",
        "| C | 2 ms |  |  |",
    ]


def test_every_benchmark_has_its_place_on_the_page() -> None:
    page = PAGE.read_text()
    for name in BENCHMARKS:
        assert f"<!-- {name} -->\n" in page
        assert f"<!-- end of {name} -->\n" in page
