"""Pages of docs/gallery: what stands between two marks is written from runs (pure).

<!-- runs: mwms mwms-loop | columns: scenario, throughput.steps_per_second as steps/s -->
<!-- block: bubbles -->
<!-- end -->
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.gallery.runs import Run, chosen
from emulator.analysis.figures import FIGURES
from emulator.validation.units import format_number

_BLOCK = re.compile(r"<!-- (runs|block): (.*?) -->\n(?:.*?\n)??<!-- end -->", re.DOTALL)
_PICTURE = re.compile(r"!\[([^\]]*)\]\((pictures/([-a-z0-9]+)\.png)\)")
_BY_PATH = {figure.path: figure for figure in FIGURES.values()}


def filled(text: str, runs: Sequence[Run], blocks: Mapping[str, str]) -> str:
    """Return a page with its tables. Raises LookupError for a run or block that is missing."""

    def fill(match: re.Match[str]) -> str:
        kind, content = match.groups()
        if kind == "block":
            if content not in blocks:
                raise LookupError(f"there is no block {content}")
            body = blocks[content].strip()
        else:
            patterns, _, columns = content.partition("|")
            body = table(list(chosen(runs, patterns)), columns.replace("columns:", "").split(","))
        return "\n".join(filter(None, [f"<!-- {kind}: {content} -->", body, "<!-- end -->"]))

    return _BLOCK.sub(fill, text)


def table(runs: Sequence[Run], columns: Sequence[str]) -> str:
    """Return a table with a row for each run. A column is `KEY` or `KEY as TITLE`."""
    split = [column.strip().partition(" as ") for column in columns]
    titles = [
        title or (_BY_PATH[key].column if key in _BY_PATH else key) for key, _, title in split
    ]
    rows = [[cell(run, key) for key, _, _ in split] for run in runs]
    return markdown(titles, rows)


def markdown(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(run: Run, key: str) -> str:
    """Return what a run has under a dotted key of its summary, as text."""
    if key == "scenario":
        return f"`{run.scenario}`"
    if key == "variant":
        return ", ".join(_short(part) for part in run.variant.split(" ") if part)
    value: Any = run.summary
    for part in key.split("."):
        if isinstance(value, list):
            value = dict(enumerate(value)).get(int(part))
        else:
            value = value.get(part) if isinstance(value, Mapping) else None
    if key in _BY_PATH and not isinstance(value, Mapping):
        return _BY_PATH[key].text(value)
    return written(value)


def written(value: object) -> str:
    """Return a value as text; values of several tasks as their range, words as they are."""
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, Mapping):
        numbers = [one for one in value.values() if isinstance(one, int | float)]
        low, high = min(numbers, default=None), max(numbers, default=None)
        return written(low) if low == high else f"{written(low)} to {written(high)}"
    if value is None:
        return "—"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or value == 0 or not math.isfinite(value):
        return str(value)
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return format_number(value, min(digits, 6))


def _short(assignment: str) -> str:
    """Return `N=2` of `program.env.N=2`."""
    key, _, value = assignment.partition("=")
    return f"{key.rsplit('.', 1)[-1]}={value}"


def pictures(text: str) -> list[str]:
    """Return the names of a page's pictures."""
    return [name for _, _, name in _PICTURE.findall(text)]


CHAPTERS: Mapping[str, Sequence[str]] = {
    "Data parallelism in TensorFlow": (
        "mirrored",
        "central-storage",
        "multi-worker-mirrored",
        "parameter-server",
    ),
    "Graphs of TensorFlow 1": ("in-graph-replication", "between-graph-replication"),
    "Data parallelism in PyTorch and JAX": (
        "ddp",
        "fsdp",
        "torchrun-elastic",
        "torchft",
        "launchers",
        "jax",
    ),
    "One model on several tasks": ("model-parallelism", "pipeline-parallelism"),
    "What is faster": ("synchronous-asynchronous", "communication", "input-pipelines"),
    "What survives, and what it costs": ("recovery-ladder", "formats", "costs"),
    "Preempted as a platform does it": (
        "preemptions",
        "preempted-tensorflow",
        "preempted-torchrun",
        "preempted-lightning",
        "preempted-transformers",
        "preempted-orbax",
    ),
    "Without a framework": ("any-image",),
}
"""The pages by chapter, in the order of the index."""


def index(pages: Mapping[str, str]) -> str:
    """Return the index: of each page its title, its first sentence and its first picture."""
    chapters = []
    for chapter, names in CHAPTERS.items():
        rows = [_entry(f"{name}.md", pages[f"{name}.md"]) for name in names]
        chapters.append("\n".join([f"### {chapter}", "", "| | |", "|---|---|", *rows]))
    return "\n\n".join(chapters)


def _entry(file: str, text: str) -> str:
    title = re.search(r"^# (.+)$", text, re.MULTILINE)
    after = text[title.end() :] if title else text
    paragraph = next((p for p in after.split("\n\n") if p.strip()[:1].isalnum()), "").strip()
    sentence = re.split(r"(?<=[.!?])\s", " ".join(paragraph.split()))[0]
    entry = f"**[{title[1] if title else file}]({file})**<br>{sentence}"
    shown = _PICTURE.search(text)
    picture = (
        f'<a href="{file}"><img src="{shown[2]}" alt="{shown[1]}" width="400"></a>' if shown else ""
    )
    return f"| {picture} | {entry} |"
