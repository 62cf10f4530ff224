"""The rules of Google's Trace Event Format, as far as the traces use it.

From the format's own page ("Trace Event Format", by the authors of chrome://tracing).
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any, NoReturn

__all__ = ["problems", "read"]

PHASES = {
    "M": {"name", "pid", "args"},
    "X": {"name", "cat", "pid", "tid", "ts", "dur", "args"},
    "i": {"name", "s", "pid", "tid", "ts", "args"},
    "C": {"name", "pid", "ts", "args"},
    "s": {"name", "cat", "id", "pid", "tid", "ts"},
    "f": {"name", "cat", "id", "pid", "tid", "ts", "bp"},
}
"""Kind of event -> its fields, besides `ph`."""


def read(text: str) -> dict[str, Any]:
    """Read strictly: NaN and infinity are no JSON to a browser."""

    def no_json(word: str) -> NoReturn:
        raise ValueError(f"{word} is no JSON")

    value: dict[str, Any] = json.loads(text, parse_constant=no_json)
    return value


def problems(events: list[dict[str, Any]]) -> list[str]:
    """Return what a viewer would refuse, drop or draw wrongly; empty: nothing."""
    found = [f"{event}: fields" for event in events if PHASES.get(event["ph"]) != fields(event)]
    rules = (_names, _times, _nesting, _values, _flows)
    return found or [problem for rule in rules for problem in rule(events)]


def fields(event: dict[str, Any]) -> set[str]:
    if event["ph"] == "M" and event["name"].startswith("thread_"):
        return event.keys() - {"ph", "tid"}
    return event.keys() - {"ph"}


def _names(events: list[dict[str, Any]]) -> list[str]:
    processes = [e["pid"] for e in events if e["ph"] == "M" and e["name"] == "process_name"]
    rows = [(e["pid"], e["tid"]) for e in events if e["ph"] == "M" and e["name"] == "thread_name"]
    found = [f"two names for {one}" for one in processes if processes.count(one) > 1]
    found += [f"two names for {one}" for one in rows if rows.count(one) > 1]
    for event in events:
        if event["pid"] not in processes:
            found.append(f"{event}: a process without a name")
        if event["ph"] in "Xisf" and (event["pid"], event["tid"]) not in rows:
            found.append(f"{event}: a row without a name")
    return found


def _times(events: list[dict[str, Any]]) -> list[str]:
    timed = [event for event in events if event["ph"] != "M"]
    wrong = [e for e in timed if not isinstance(e["ts"], int) or e["ts"] < 0]
    wrong += [e for e in timed if not isinstance(e.get("dur", 0), int) or e.get("dur", 0) < 0]
    return [f"{event}: time" for event in wrong]


def _nesting(events: list[dict[str, Any]]) -> list[str]:
    """Slices of a row lie apart or inside each other."""
    rows = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            rows[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    return [
        f"{one} and {two} overlap in row {tid}"
        for tid, spans in rows.items()
        for one in spans
        for two in spans
        if one[0] < two[0] < one[1] < two[1]
    ]


def _values(events: list[dict[str, Any]]) -> list[str]:
    found = []
    for event in events:
        if event["ph"] == "C" and not all(type(v) in (int, float) for v in event["args"].values()):
            found.append(f"{event}: a counter counts numbers")
        if event["ph"] == "i" and event["s"] not in ("g", "p", "t"):
            found.append(f"{event}: scope")
    return found


def _flows(events: list[dict[str, Any]]) -> list[str]:
    """An arrow has one start and one end, in this order, each inside a slice of its row."""
    arrows = defaultdict(list)
    for event in events:
        if event["ph"] in "sf":
            arrows[event["id"]].append(event)
    found = [
        f"arrow {name}"
        for name, ends in arrows.items()
        if [end["ph"] for end in ends] != ["s", "f"]
        or ends[0]["ts"] > ends[1]["ts"]
        or not isinstance(name, int)  # Perfetto reads other text as no id at all
    ]
    slices = [event for event in events if event["ph"] == "X"]
    for end in (end for ends in arrows.values() for end in ends):
        if not any(
            s["tid"] == end["tid"] and s["ts"] <= end["ts"] <= s["ts"] + s["dur"] for s in slices
        ):
            found.append(f"{end} is bound to no slice")
    return found
