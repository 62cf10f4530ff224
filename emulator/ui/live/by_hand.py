"""Faults by button: what they are, and the entry of a scenario that repeats one (pure)."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from emulator.faults.kinds import FAULTS
from emulator.faults.schedule import MANUAL
from emulator.faults.spec import LastingFault
from emulator.record.timeline import FaultTimeline
from emulator.scenario.dump import dump


@dataclass(frozen=True)
class Button:
    """A fault that a press injects."""

    kind: str
    """Of FAULTS."""
    label: str
    needs_other: bool = False
    """It takes a second task."""


BUTTONS = (
    Button("preempt", "preempt"),
    Button("kill", "kill"),
    Button("pause", "pause"),
    Button("throttle", "slow"),
    Button("partition", "partition from", needs_other=True),
)
"""Those of each lane, besides `heal`."""
GIVEN = {"cpus": "0.2"}
"""What the page proposes for options without a default."""


DURATIONS = frozenset({"for", "grace", "down", "notice"})
"""Options that are seconds."""


def options() -> list[dict[str, str]]:
    """Return the options of the buttons' kinds: key, what it is, proposed value, kinds."""
    keys = ("for", "grace", "down", "cpus")
    found = []
    for key in keys:
        kinds = [b for b in BUTTONS if key in FAULTS[b.kind].key_fields()]
        first = FAULTS[kinds[0].kind]
        about = first.model_fields[first.key_fields()[key]].description or key
        found.append(
            {
                "key": key,
                "about": about.partition("\n")[0],
                "value": GIVEN.get(key, ""),
                "kinds": " ".join(b.kind for b in kinds),
                "labels": ", ".join(b.label for b in kinds),
            }
        )
    return found


def refused(capabilities: Collection[str], engine: str) -> dict[str, str]:
    """Return which buttons an engine can't do, and why; pressed, the run says so itself."""
    return {
        button.kind: f"The engine {engine} can't do this."
        for button in BUTTONS
        if (needed := FAULTS[button.kind].capability) and needed not in capabilities
    }


def asked(kind: str, target: str, other: str, given: Mapping[str, str]) -> dict[str, Any]:
    """Return a press as an entry of `faults:`, as `emulate fault` makes it of its arguments."""
    spec = FAULTS.get(kind)
    if spec is None:
        return {kind: target}  # which the run refuses in words
    keys = spec.key_fields().keys() - {kind, "at", "name"}
    units = spec.with_units()
    entry: dict[str, Any] = {kind: [[target], [other]] if spec.lists_groups else target}
    for key in keys & given.keys():
        if text := given[key].strip():
            entry[key] = text if key in units else _number(text)
    if spec.lasting:
        entry.setdefault("for", "forever")
    return entry


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def is_by_hand(fault: FaultTimeline) -> bool:
    """Return whether somebody injected a fault."""
    return fault.id.startswith(MANUAL)


def as_scenario(fault: FaultTimeline, step: int | None, all_running: float | None) -> str:
    """Return the entry of `faults:` that would repeat a fault, as YAML.

    It has the step that the job had reached when the fault was triggered; without steps the time
    since all tasks ran. One that lasts until it is healed by hand lasts as long as it did.
    """
    spec = fault.planned.spec
    written = spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    for key in ("at", "name"):
        written.pop(key, None)
    applied, healed = fault.stages.get("applied"), fault.stages.get("healed")
    for key in DURATIONS & written.keys():
        if isinstance(written[key], int | float):
            written[key] = f"{written[key]:g}s"
    key = "for" if isinstance(spec, LastingFault) else "down"
    if key in spec.key_fields() and spec.heals_after == math.inf:
        lasted = None if applied is None or healed is None else healed.t - applied.t
        written[key] = "forever" if lasted is None else f"{lasted:.2f}s"
    since = (fault.triggered or 0.0) - (all_running or 0.0)
    at: object = f"{max(0.0, since):.2f}s" if step is None else {"step": step}
    return dump([{**written, "at": at}], short=True)


def target_of(fault: FaultTimeline) -> Sequence[str]:
    """Return the tasks in whose lanes a fault is shown."""
    return fault.planned.tasks or (fault.planned.target,)
