"""The scenario of a trial, as text that its user goes on with (pure)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from emulator.trial.command import Program

NAME = "emulate-try.yaml"
FAULT: Mapping[str, Any] = {"grace": "10s", "down": "2s"}
"""What a preemption has beside its target and its moment."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is tried, and what the user has said of it."""

    program: Program
    source: str = "."
    exclude: Sequence[str] = ()
    """Patterns of what is not copied."""
    shared: str | None = None
    """The folder of the program that is the shared volume."""
    image: str | None = None
    steps: str | None = None
    """A pattern of `metrics.steps`."""
    timeout: float = 180.0
    """Seconds, of each run."""
    fault: Mapping[str, Any] | None = None
    """In place of the preemptions."""

    @property
    def name(self) -> str:
        """The name of the scenario."""
        script = self.program.script
        words = (script.stem if script else self.program.command[0].rpartition("/")[2]).lower()
        return f"try-{re.sub('[^a-z0-9]+', '-', words).strip('-') or 'it'}"[:30].rstrip("-")

    @property
    def targets(self) -> Sequence[str]:
        """The tasks of which each is preempted in a run: worker-0 last."""
        if self.fault is not None:
            return [""]
        return [f"worker-{number}" for number in reversed(range(self.program.workers))]

    def fault_at(self, target: str, at: Mapping[str, Any] | str) -> Mapping[str, Any]:
        """Return the fault of a run, as a scenario has it."""
        return self.fault or {"preempt": target, "at": at, **FAULT}

    def text(self, faults: Sequence[Mapping[str, Any]] = (), why: str = "") -> str:
        """Return the scenario; `why` says how the moment of its faults was chosen."""
        program = self.program
        seen = f"from {program.imported}" if program.imported else "none is imported"
        inside = ["  source: " + _inline(self.source) + _about("is copied for each task")]
        if self.exclude:
            listed = _inline(list(self.exclude))
            inside.append(f"  exclude: {listed}" + _about("is not copied, as .gitignore says"))
        if self.shared:
            inside.append(f"  shared: {_inline(self.shared)}" + _about("outlives a task"))
        inside.append(f"  command: {_inline(list(program.command))}")
        scope = "job" if program.is_distributed else "task"
        lines = [
            f"# Of `emulate try -- {shlex.join(program.command)}`. Edit it, and run it again with",
            f"# `emulate up {NAME}`, or as a test with `pytest {NAME}`.",
            f"name: {self.name}",
            f"framework: {program.framework}" + _about(seen),
            f"image: {_inline(self.image or 'auto')}" + _about("where tasks are containers"),
            "program:",
            *inside,
            f"cluster: {{worker: {program.workers}}}" + _about(program.why),
            f"restart: {{policy: on-failure, scope: {scope}, limit: 3, backoff: 500ms}}",
            f"timeout: {self.timeout:g}s",
            *([f"metrics: {_inline({'steps': self.steps})}"] if self.steps else []),
        ]
        if faults:
            lines += ["faults:" + _about(why), *(f"  - {_inline(dict(one))}" for one in faults)]
            lines += ["expect:", "  outcome: succeeded", "  never_from_scratch: true"]
        return "\n".join(lines) + "\n"


def _about(words: str) -> str:
    return f"   # {words}" if words else ""


def _inline(value: object) -> str:
    """Return a value as YAML on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000)
    return text.removesuffix("\n").removesuffix("\n...").strip()
