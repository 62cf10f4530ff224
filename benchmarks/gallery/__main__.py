"""Write docs/gallery from a folder of runs: `python -m benchmarks.gallery runs/gallery`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from plotly.graph_objects import Figure

from benchmarks.gallery.pages import filled, index, pictures
from benchmarks.gallery.pictures import of_charts, of_report, page
from benchmarks.gallery.runs import Run, read_runs

PAGES = Path(__file__).parents[2] / "docs" / "gallery"
INDEX = "README.md"


def main() -> int:
    """Write the pages that were named, or all; return the exit code: 1 if something is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, help="the folder of run folders")
    parser.add_argument("names", nargs="*", metavar="PAGE", help="such as fsdp; all without")
    given = parser.parse_args()
    runs = read_runs(given.runs)
    problems = [
        f"{run.name}: its verdict is {run.summary['verdict']}"
        for run in runs
        if run.summary["verdict"] != "ok" and not run.scenario.startswith("careless")
    ]
    chosen = [f"{name}.md" for name in given.names] or [p.name for p in sorted(PAGES.glob("*.md"))]
    for name in chosen:
        if name != INDEX:
            problems += [f"{name}: {problem}" for problem in write(PAGES / name, runs)]
    write_index()
    print("\n".join(problems) or f"wrote {len(chosen)} pages")
    return 1 if problems else 0


def write(path: Path, runs: list[Run]) -> list[str]:
    """Write a page's tables and take its pictures; return what is missing."""
    text, module = path.read_text(encoding="utf-8"), _module(path.stem)
    problems: list[str] = []
    charts: Mapping[str, Figure] = {}
    try:
        blocks = module.blocks(runs) if module and hasattr(module, "blocks") else {}
        path.write_text(filled(text, runs, blocks), encoding="utf-8")
        charts = module.charts(runs) if module and hasattr(module, "charts") else {}
    except LookupError as error:
        problems.append(str(error.args[0]))
    folder = PAGES / "pictures"
    folder.mkdir(exist_ok=True)
    with page() as browser_page:
        of_charts(browser_page, charts, folder)
        for name in pictures(text):
            run = next((run for run in runs if run.scenario == name), None)
            if run is not None:
                of_report(browser_page, run.folder / "report.html", folder / f"{name}.png")
            elif name not in charts:
                problems.append(f"there is no run {name} to take a picture of")
    return problems


def write_index() -> None:
    """Write the list of all pages."""
    path = PAGES / INDEX
    pages = {p.name: p.read_text(encoding="utf-8") for p in sorted(PAGES.glob("*.md"))}
    del pages[INDEX]
    text = filled(path.read_text(encoding="utf-8"), [], {"index": index(pages)})
    path.write_text(text, encoding="utf-8")


def _module(page: str) -> ModuleType | None:
    name = f"benchmarks.gallery.{page.replace('-', '_')}"
    return import_module(name) if find_spec(name) else None


if __name__ == "__main__":
    sys.exit(main())
