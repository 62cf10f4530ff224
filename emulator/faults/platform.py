"""A preemption as a platform does it: its preset, and what it does when.

`emulator/faults/platforms/presets.py` has the values.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, WithJsonSchema

from emulator.faults.platforms.notices import ACTIONS
from emulator.faults.platforms.presets import PRESETS, TIMES
from emulator.validation.similar import suggestion
from emulator.validation.units import format_duration

if TYPE_CHECKING:
    from emulator.faults.preempt import Preempt

Metadata = Literal["gce", "ec2", "azure", "none"]
Action = Literal[
    "preempt",
    "terminate",
    "stop",
    "hibernate",
    "rebalance",
    "maintenance",
    "reboot",
    "redeploy",
    "freeze",
]
Loss = Literal["silent", "closed"]
Disk = Literal["fresh", "kept"]


def _known(name: str) -> str:
    if name not in PRESETS:
        raise ValueError(
            f"there is no preset {name!r}. {suggestion(name, PRESETS, 'Presets are')}".rstrip(".")
        )
    return name


Like = Annotated[str, AfterValidator(_known), WithJsonSchema({"enum": [*PRESETS]})]


# --- A preset -------------------------------------------------------------------------------------


def fill(fault: Preempt) -> None:
    """Give a preemption the values of its preset for what is not written."""
    _set(fault, 1.0)


def at_scale(fault: Preempt, scale: float) -> Preempt:
    """Return a preemption with the times of its preset divided; those that are written stay."""
    if fault.like is None:
        return fault
    scaled = fault.model_copy()
    _set(scaled, scale)
    return scaled


def _set(fault: Preempt, scale: float) -> None:
    """Set what is not written. It stays unwritten: the scenario is printed as it was given."""
    written, found = fault.model_fields_set, dict[str, float | str | bool]()
    preset = PRESETS[fault.like].values if fault.like else {}
    for name, value in preset.items():
        is_time = name in TIMES and isinstance(value, float)
        found[name] = round(value / scale, 6) if is_time and isinstance(value, float) else value
    given = {name: getattr(fault, name) for name in written}
    metadata = given.get("metadata", found.get("metadata", "none"))
    if metadata != found.get("metadata", "none"):
        found.pop("action", None)  # the word of another platform
    if metadata != "none":
        found.setdefault("action", ACTIONS[str(metadata)][0])
    if given.get("loss") == "silent" and found.get("disk") == "kept":
        found["disk"] = "fresh"
    for name, value in found.items():
        if name not in written:
            fault.__dict__[name] = value  # the model is immutable for all others


def conflicts(fault: Preempt) -> Iterator[str]:
    """Yield what of a preemption does not go together."""
    if fault.sends == "none" and "grace" in fault.model_fields_set:
        if fault.loss == "silent" and not fault.like and not fault.signal:
            yield "`loss: silent` comes without notice; leave `grace` out"
        yield "without a signal there is no `grace`; leave it out, or write `signal: SIGTERM`"
    if fault.loss == "silent" and fault.via:
        yield "`loss: silent` asks nobody; leave `via` out"
    if fault.loss == "silent" and fault.disk == "kept":
        yield "`loss: silent` takes the disk too; write `loss: closed` or leave `disk` out"
    if fault.action is not None and fault.metadata == "none":
        yield "`action` is what `metadata` says; write `metadata: gce`, `ec2` or `azure`"
    if fault.action is not None and fault.action not in ACTIONS.get(fault.metadata, ()):
        words = ", ".join(ACTIONS[fault.metadata])
        yield f"{fault.metadata} has no {fault.action}; its `action` is one of {words}"
    for name in ("wakes", "kill_wait"):
        if getattr(fault, name) and fault.sends == "none":
            yield f"`{name}` needs a signal; write `signal: SIGTERM`"


def needs_of(fault: Preempt) -> Iterator[tuple[str, str]]:
    """Yield what a platform's way needs of an engine, in words, each with its capability."""
    target = fault.target
    if not fault.fresh_disk:
        yield f"the old disk for {target}", "same-disk"
    if not fault.kills and fault.sends == "SIGTERM" and (fault.wakes or fault.kill_wait):
        what = "SIGCONT" if fault.wakes else fault.sends
        yield f"{what} to {target}", "signals"


def lead_of(fault: Preempt) -> float:
    """Return the seconds from the notice to the end of a target that does not end before."""
    return fault.notice + (0.0 if fault.kills else fault.grace + fault.kill_wait)


def scale_in_words(scale: float) -> str:
    """Return what `speed` does to times."""
    return f"divided by {scale:g} (speed)"


# --- In words -------------------------------------------------------------------------------------


def timeline(fault: Preempt) -> Iterator[tuple[float, str]]:
    """Yield what a preemption does to its target: seconds since it begins, and words.

    It is as late as it may be: a target that ends before is lost earlier.
    """
    now = 0.0
    told = f"{fault.metadata} metadata says {fault.action}" if fault.metadata != "none" else ""
    if fault.notice:
        yield now, told or "the platform knows; the task is not told"
        now += fault.notice
    elif told:
        yield now, told
    who = "all processes" if fault.to_all else "the task's own command"
    first = "SIGCONT and " if fault.wakes else ""
    if not fault.kills:
        yield now, f"{first}{fault.sends} to {who}"
        now += fault.grace
        if fault.kill_wait:
            yield now, f"{first}{fault.sends} to {who} again"
            now += fault.kill_wait
    silent = "power off; its peers get no packet, and its name stays"
    yield now, silent if fault.is_silent else "SIGKILL; its connections are closed"
    if fault.heals_after == math.inf:
        yield now, "it never comes back"
        return
    disk = "a fresh disk" if fault.fresh_disk else "its old disk"
    address = f", at {'its old' if fault.same_address else 'a new'} address" * bool(fault.address)
    kept = fault.keep_away > fault.down
    why = f" (kept away for {format_duration(fault.keep_away)})" if kept else ""
    yield now + fault.heals_after, f"back on {disk}{address}{why}"
