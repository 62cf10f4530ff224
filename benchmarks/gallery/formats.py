"""docs/gallery/formats.md: what comes back from a save that was broken, by its format (pure).

`benchmarks.gallery.clinic` measures it and writes formats.json; tables and chart of the page
are made from that file alone.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from plotly.graph_objects import Figure, Heatmap

from benchmarks.gallery.pages import markdown
from benchmarks.gallery.runs import Run
from emulator.record.events import Phase
from emulator.record.timeline import FaultTimeline, Incarnation, Timeline

STORED = Path(__file__).parents[2] / "docs" / "gallery" / "formats.json"

_EXCEPTION = re.compile(r"(?:\w+\.)*(\w+(?:Error|Exception)\b.*)")

SWEPT = ("passed", "lost work", "failed", "silently different", "undecided")
"""The words of `emulate sweep` for a moment at which a save was killed."""
WORDS: Mapping[str, str] = {
    "newest": "newest",
    "before": "one before",
    "scratch": "from scratch",
    "error": "error",
    "hangs": "hangs",
    "wrong": "SILENTLY WRONG",
    "unknown": "unknown",
    **{word: word for word in SWEPT},
}
"""What came back, from the best to the worst, with the word of the table."""
COLOURS: Mapping[str, str] = {
    "newest": "#2a9d8f",
    "before": "#8ab17d",
    "scratch": "#e9c46a",
    "error": "#f4a261",
    "hangs": "#e76f51",
    "wrong": "#d62828",
    "unknown": "#adb5bd",
    "passed": "#2a9d8f",
    "lost work": "#e9c46a",
    "failed": "#f4a261",
    "silently different": "#d62828",
    "undecided": "#adb5bd",
}
NOT_KNOWN = {"unknown", "undecided"}


@dataclass(frozen=True)
class Format:
    """One format of the clinic."""

    title: str
    scenario: str
    """The bundled scenario whose program saves it."""
    mended: str
    """What makes a kill at any call of a save harmless."""
    numbered: bool = True
    """Each save has a name of its own, with a number."""


RENAME = "write beside it, then `os.replace`"
COMPLETE = "resume from the newest folder whose `trainer_state.json` is whole"
MANAGER = "save with `CheckpointManager`"
NOTHING = "nothing to mend"
WHOLE = "resume from the newest file that is a whole zip file"
FORMATS: Mapping[str, Format] = {
    "torch": Format("`torch.save`", "formats-torch", RENAME, numbered=False),
    "torch-rename": Format("`torch.save`, then a rename", "formats-torch", NOTHING, numbered=False),
    "dcp": Format("DCP, one folder", "formats-torch", "a folder a save", numbered=False),
    "dcp-steps": Format("DCP, a folder a save", "formats-torch", NOTHING),
    "lightning": Format("Lightning, `last.ckpt`", "formats-torch", WHOLE, numbered=False),
    "lightning-whole": Format(
        "Lightning, newest whole file", "formats-torch", NOTHING, numbered=False
    ),
    "trainer": Format("Hugging Face `Trainer`", "formats-torch", COMPLETE),
    "trainer-complete": Format("`Trainer`, newest complete folder", "formats-torch", NOTHING),
    "manager": Format("TF `CheckpointManager`", "formats-tensorflow", NOTHING),
    "backup": Format("Keras `BackupAndRestore`", "formats-tensorflow", MANAGER, numbered=False),
    "weights": Format("Keras `.weights.h5`", "formats-tensorflow", RENAME),
    "orbax": Format("Orbax `CheckpointManager`", "formats-jax", NOTHING),
}
"""By what the programs call it, in the order of the page."""

CALLS = "calls"
"""The way that is a sweep: a save is killed before each of its calls to the kernel."""
BROKEN = ("torn", "bitflip", "missing", "stale", "empty-newer")
"""What is done to the newest save; also kinds of the fault `checkpoint`."""
DISK = ("full", "readonly")
"""What the disk does during a save, where there is the fault `disk`."""
WAYS: Mapping[str, str] = {
    "between": "killed between saves",
    CALLS: "killed at each call",
    "torn": "torn",
    "bitflip": "bit flipped",
    "missing": "missing",
    "stale": "stale",
    "empty-newer": "empty newer one",
    "full": "disk full",
    "readonly": "disk read-only",
}
"""What is done to a save, with the title of its column."""
NO_NUMBER = "no number in its name"
NOT_MEASURED = "not measured"


def applies(format: Format, way: str) -> bool:
    """Return whether a way makes sense for a format: a newer name needs a number."""
    return format.numbered or way != "empty-newer"


@dataclass(frozen=True)
class Seen:
    """What one run showed."""

    came_back: str
    """A key of WORDS."""
    step: int | None = None
    """The step from which training resumed."""
    words: str = ""
    """The error, or why it is unknown."""
    at: str = ""
    """What had been done when it was killed, or before which call."""
    save: int | None = None
    """The step of the save in which it was killed."""


def seen(timeline: Timeline, last_words: Sequence[str] = ()) -> Seen:
    """Return what the first restart of the one task showed.

    A save that was begun counts as the newest, whole or not: whoever loads it and gets what had
    been saved lost nothing. `last_words` are the lines that say why the task failed.
    """
    faults = [*timeline.faults.values()]
    failed = [one for one in faults if one.stage not in ("applied", "healed")]
    if failed or not faults:
        last = failed[0].last if failed else None
        reason = last.reason if last is not None else None
        return Seen("unknown", words=reason or "the fault did not happen")
    lives = timeline.tasks["worker-0"].incarnations
    begun = {
        report.step: report.values.get("digest")
        for report in _phases(lives[0], "checkpoint")
        if report.step is not None
    }
    if not all(_was_in_time(one, lives[0]) for one in faults):
        return Seen("unknown", words="the disk was whole at the second save")
    at = "; ".join(filter(None, map(_what, faults)))
    where = Seen("unknown", at=at, save=_open_save(lives[0]))
    if len(lives) < 2:
        if timeline.outcome == "timeout":
            return replace(where, came_back="hangs", words=error_in(last_words))
        return replace(where, words="it was not started again")
    return _resumed(lives[1], begun, last_words, where)


def _resumed(
    life: Incarnation, begun: Mapping[int, Any], last_words: Sequence[str], where: Seen
) -> Seen:
    exited = life.exit
    error = error_in(last_words)
    loaded = [one for one in _phases(life, "restore") if one.state == "end" and one.step]
    if not loaded and not life.steps:
        if exited is None or exited.told_to_stop:
            return replace(where, words="it neither resumed nor failed")
        return replace(where, came_back="error", words=error)
    step = (loaded[0].step or 0) if loaded else 0
    found = replace(where, step=step)
    if loaded and loaded[0].values.get("digest") != begun.get(step):
        return replace(found, came_back="wrong")
    if exited is None or exited.exit_code:
        return replace(found, came_back="error", words=f"after it had resumed: {error}")
    if not step:
        return replace(found, came_back="scratch")
    return replace(found, came_back="newest" if step == max(begun, default=0) else "before")


def error_in(lines: Sequence[str]) -> str:
    """Return the first line of an exception, from which others may follow, or else the last line.

    What a library says at the exit of Python may be an exception as well.
    """
    found = (match[1] for line in lines if (match := _EXCEPTION.match(line)))
    return next(found, next((line for line in reversed(lines) if line.strip()), ""))


def _phases(life: Incarnation, name: str) -> list[Phase]:
    return [one for one in life.reports if isinstance(one, Phase) and one.phase == name]


def _was_in_time(fault: FaultTimeline, life: Incarnation) -> bool:
    """Return whether a save began while the disk was broken, if that is the fault."""
    applied, healed = (fault.stages.get(stage) for stage in ("applied", "healed"))
    begins = [one.t for one in _phases(life, "checkpoint") if one.state == "begin"]
    since = float("inf") if applied is None else applied.t
    return fault.kind != "disk" or within(begins, since, None if healed is None else healed.t)


def within(moments: Iterable[float], since: float, until: float | None) -> bool:
    """Return whether one of these is between two moments; None: there is no second one."""
    return any(since <= one and (until is None or one < until) for one in moments)


def _open_save(life: Incarnation) -> int | None:
    last = next(reversed(_phases(life, "checkpoint")), None)
    return last.step if last is not None and last.state == "begin" else None


def _what(fault: FaultTimeline) -> str:
    triggered, applied = (fault.stages.get(stage) for stage in ("triggered", "applied"))
    if applied is not None and applied.changed:
        return applied.effect or ""
    return (triggered.effect or "").partition("about to make ")[2] if triggered else ""


# --- What is stored -------------------------------------------------------------------------------

Results = dict[str, dict[str, list[Seen]]]
"""By format and way: one run, or one for each call of a save."""


def read(path: Path = STORED) -> Results:
    """Return what was measured."""
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {
        name: {way: [Seen(**one) for one in runs] for way, runs in ways.items()}
        for name, ways in found.items()
    }


def stored(results: Results) -> str:
    """Return the text of the file, in the order of the page."""
    ordered = {
        name: {
            way: [asdict(one) for one in results[name][way]] for way in WAYS if way in results[name]
        }
        for name in FORMATS
        if name in results
    }
    return json.dumps(ordered, indent=1) + "\n"


# --- The page -------------------------------------------------------------------------------------


def blocks(runs: Sequence[Run]) -> dict[str, str]:
    """Return the tables of the page; they are of what is stored, not of these runs."""
    del runs
    results = read()
    return {"formats": table(results), "sweeps": sweeps(results), "errors": errors(results)}


def charts(runs: Sequence[Run]) -> dict[str, Figure]:
    """Return the chart of the page."""
    del runs
    return {"formats": chart(read())}


def columns(results: Results) -> list[str]:
    """Return the ways that were measured of any format, in order."""
    return [way for way in WAYS if any(way in ways for ways in results.values())]


def cell(results: Results, name: str, way: str) -> str:
    """Return what came back, in words: of several runs how often each."""
    if not applies(FORMATS[name], way):
        return NO_NUMBER
    runs = results.get(name, {}).get(way)
    if runs is None:
        return NOT_MEASURED
    counted = Counter(one.came_back for one in runs)
    found = [(key, counted[key]) for key in WORDS if counted[key]]
    if way != CALLS:
        return WORDS[found[0][0]]
    return ", ".join(f"{WORDS[key]} {count}" for key, count in found)


def worst(runs: Iterable[Seen]) -> str | None:
    """Return the worst of what came back; what is unknown counts where nothing else is known."""
    order, keys = [*WORDS], {one.came_back for one in runs}
    return max(keys - NOT_KNOWN or keys, key=order.index, default=None)


def table(results: Results) -> str:
    """Return a row for each format, and a column for each way."""
    ways = columns(results)
    rows = [
        [format.title, *(_marked(cell(results, name, way)) for way in ways)]
        for name, format in FORMATS.items()
    ]
    unknown = sum(row.count(NOT_MEASURED) for row in rows)
    note = f"\n\n{unknown} cells are not measured yet." if unknown else ""
    return markdown(["", *(WAYS[way] for way in ways)], rows) + note


def _marked(text: str) -> str:
    wrong = WORDS["wrong"]
    return text.replace(wrong, f"**{wrong.lower()}**")


def sweeps(results: Results) -> str:
    """Return how often each word was said of the moments of a save, and which was the worst."""
    rows = []
    for name, format in FORMATS.items():
        runs = results.get(name, {}).get(CALLS, [])
        counted = Counter(one.came_back for one in runs)
        bad = next((one for one in runs if one.came_back == worst(runs) != "passed"), Seen(""))
        numbers = [f"{counted[word]}" if counted[word] else "" for word in SWEPT]
        where = f"{bad.came_back}: {bad.at}" if bad.at else ""
        rows.append([format.title, *numbers, where, format.mended])
    heads = ["", *SWEPT, "the worst moment", "mended by"]
    return markdown(heads, [[_marked(text) for text in row] for row in rows])


def errors(results: Results) -> str:
    """Return the errors that broken files cause."""
    rows = [
        [format.title, WAYS[way], f"`{shortened(seen.words)}`"]
        for name, format in FORMATS.items()
        for way in WAYS
        for seen in results.get(name, {}).get(way, [])[-1:]
        if seen.came_back == "error" and seen.words
    ]
    return markdown(["", "", "last words"], rows)


def shortened(words: str, most: int = 110) -> str:
    """Return an error in a cell of a table."""
    text = " ".join(words.split()).replace("|", "/").replace("`", "'")
    return text if len(text) <= most else f"{text[:most]}…"


ROW = 44
"""Points of a row with three lines."""


def chart(results: Results) -> Figure:
    """Return the table as colours: of several runs the worst."""
    ways, keys = columns(results), [*WORDS]
    found = [[worst(results.get(name, {}).get(way, [])) for way in ways] for name in FORMATS]
    number = [[None if key is None else keys.index(key) for key in row] for row in found]
    text = [[_lines(cell(results, name, way)) for way in ways] for name in FORMATS]
    share = 1 / len(keys)
    scale = [
        (edge, COLOURS[key])
        for place, key in enumerate(keys)
        for edge in (place * share, (place + 1) * share)
    ]
    figure = Figure(
        Heatmap(
            z=number,
            x=[WAYS[way].replace(" ", "<br>") for way in ways],
            y=[format.title.replace("`", "") for format in FORMATS.values()],
            text=text,
            texttemplate="%{text}",
            textfont={"size": 10},
            zmin=-0.5,
            zmax=len(keys) - 0.5,
            colorscale=scale,
            showscale=False,
            xgap=2,
            ygap=2,
        )
    )
    figure.update_layout(height=150 + ROW * len(FORMATS))
    figure.update_yaxes(autorange="reversed", automargin=True, showgrid=False)
    figure.update_xaxes(side="top", tickangle=0, automargin=True, showgrid=False)
    return figure


def _lines(text: str) -> str:
    lines = text.replace(", ", "<br>").replace("SILENTLY WRONG", "SILENTLY<br>WRONG")
    lines = lines.replace("silently different", "different")
    return lines.replace(NO_NUMBER, "no number").replace(NOT_MEASURED, "not<br>measured")
