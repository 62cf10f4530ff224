"""What one needs to repeat a run: the command, and what it ran on and in."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from emulator.record.events import RunStarted
from emulator.report.data import Facts

_SAYS = {"id": "Its id", "base": "Its base"}
"""What is known of an image besides versions."""


def command(facts: Facts) -> str:
    """Return the command that runs it again; of older records one that finds no file by itself."""
    started = _started(facts)
    if started is not None and (given := (started.origin or {}).get("command")):
        return given
    sets = [word for one in facts.plan.variant.split() for word in ("--set", one)]
    return shlex.join(["emulate", "up", "scenario.yaml", "--engine", facts.plan.engine, *sets])


def rows(facts: Facts) -> list[tuple[str, str]]:
    """Return names and texts of what is known."""
    started, program = _started(facts), facts.plan.scenario.program
    origin = {} if started is None else started.origin or {}
    machine = " ".join(origin[key] for key in ("system", "machine") if key in origin)
    cores = f"{origin['cores']} cores" if "cores" in origin else ""
    found = [
        ("Emulator", "" if started is None else started.emulator_version),
        ("Engine", facts.plan.engine),
        *_software(facts, {} if started is None else started.software or {}),
        ("Seed", str(facts.plan.scenario.seed)),
        ("Program", "" if program.source is None else str(program.source)),
        ("Its commit", origin.get("commit", "")),
        ("Machine", ", ".join(filter(None, (machine, cores)))),
        ("Python of the emulator", origin.get("python", "")),
    ]
    return [(name, text) for name, text in found if text]


def _software(facts: Facts, software: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield each image with what is known of it, or what this machine has without images."""
    for image in dict.fromkeys(task.image for task in facts.plan.everything):
        known = software.get(image, {})
        if image:
            yield "Image", image
        yield from ((head, known.get(key, "")) for key, head in _SAYS.items())
        versions = [f"{name} {text}" for name, text in known.items() if name not in _SAYS]
        yield "Its versions" if image else "Versions", ", ".join(versions)


def _started(facts: Facts) -> RunStarted | None:
    return next((e for e in facts.timeline.history if isinstance(e, RunStarted)), None)
