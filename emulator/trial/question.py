"""A scenario for one's own program, as text: of a trial, or of a sweep of a command."""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from emulator.errors import UsageError
from emulator.faults.platform import lead_of, scale_in_words
from emulator.faults.platforms.presets import PRESETS
from emulator.faults.preempt import Preempt
from emulator.planning.requested import RequestedScenario
from emulator.scenario.frameworks.spec import FrameworkName
from emulator.scenario.given import Given
from emulator.scenario.program import parts
from emulator.trial.command import Program, look
from emulator.validation.units import parse_duration

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
    like: str | None = None
    """The preset of a platform, for the preemptions."""
    silent: bool = True
    """Where its preset cuts the power, so does the engine; else connections are closed."""
    lead: float = 10.0
    """Seconds from the notice of a preset to its end, at most: it is faster than the platform."""
    restarts: int = 3
    """As many at most."""
    verb: str = "try"
    """The command that asks."""

    @property
    def name(self) -> str:
        """The name of the scenario."""
        script = self.program.script
        words = (script.stem if script else self.program.command[0].rpartition("/")[2]).lower()
        stem = re.sub("[^a-z0-9]+", "-", words).strip("-") or "it"
        return f"{self.verb}-{stem}"[:30].rstrip("-")

    @property
    def targets(self) -> Sequence[str]:
        """The tasks of which each is preempted in a run: worker-0 last."""
        if self.fault is not None:
            return [""]
        return [f"worker-{number}" for number in reversed(range(self.program.workers))]

    def fault_at(self, target: str, at: Mapping[str, Any] | str) -> Mapping[str, Any]:
        """Return the fault of a run, as a scenario has it."""
        if self.like is None:
            return self.fault or {"preempt": target, "at": at, **FAULT}
        rest = {"down": FAULT["down"], "keep_away": "0s"}
        return {
            **{"preempt": target, "like": self.like, "at": at, **rest},
            **({"loss": "closed"} if self._is_closed else {}),
        }

    @property
    def speed(self) -> int:
        """By what the times of the preset are divided."""
        return max(1, math.ceil(lead_of(self._preset) / self.lead)) if self._preset else 1

    @property
    def different(self) -> str:
        """What is different from the platform, in words; empty: nothing is."""
        faster = f"its times are {scale_in_words(self.speed)}" if self.speed > 1 else ""
        closed = "connections are closed: only Docker can make them silent"
        return "; ".join(filter(None, [faster, closed if self._is_closed else ""]))

    @property
    def _is_closed(self) -> bool:
        return self._preset is not None and self._preset.is_silent and not self.silent

    @property
    def _preset(self) -> Preempt | None:
        """The fault of the platform; None: there is none, or none of this name."""
        if self.like not in PRESETS:
            return None
        return Preempt.model_validate({"preempt": "worker-0", "like": self.like, "at": "1s"})

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
            f"# Of `emulate {self.verb} -- {shlex.join(program.command)}`. Edit it, and run it",
            f"# again with `emulate up {NAME}`, or as a test with `pytest {NAME}`.",
            f"name: {self.name}",
            f"framework: {program.framework}" + _about(seen),
            f"image: {_inline(self.image or 'auto')}" + _about("where tasks are containers"),
            "program:",
            *inside,
            f"cluster: {{worker: {program.workers}}}" + _about(program.why),
            f"restart: {{policy: on-failure, scope: {scope}, limit: {self.restarts}, "
            "backoff: 500ms}",
            f"timeout: {self.timeout:g}s",
            *(
                [f"speed: {self.speed}" + _about("divides the times of the platform")]
                if self.speed > 1
                else []
            ),
            *([f"metrics: {_inline({'steps': self.steps})}"] if self.steps else []),
        ]
        if faults:
            lines += ["faults:" + _about(why), *(f"  - {_inline(dict(one))}" for one in faults)]
            lines += ["expect:", "  outcome: succeeded", "  never_from_scratch: true"]
        return "\n".join(lines) + "\n"

    def asked(
        self, folder: Path, faults: Sequence[Mapping[str, Any]] = (), *sets: str
    ) -> RequestedScenario:
        """Return the scenario as one that was asked for in a folder. Raises UsageError."""
        given = Given(folder / NAME, self.text(faults), title="the command")
        requested = RequestedScenario(given, None, last=sets, by_call=True)
        _ = requested.scenario  # raises here, not later
        return requested


def question_of(
    command: Sequence[str],
    path: str | None,
    *,
    workers: int | None = None,
    framework: FrameworkName | None = None,
    source: Path | None = None,
    timeout: str | None = None,
    **more: Any,  # noqa: ANN401  of Question
) -> Question:
    """Return what is asked of a command; None is what its script shows.

    `path` are the folders in which its program is looked for; None: it is in an image. Raises
    UsageError.
    """
    source = source or Path()
    folder = source if source.is_dir() else source.parent
    program = look(command, folder.absolute(), path)
    exclude = _ignored(folder)
    try:
        parts(source.absolute(), exclude)
    except ValueError as error:
        hint = "--source names another folder, or a file, that is copied for each worker."
        raise UsageError(f"{error}.", hint) from None
    if framework is not None:
        program = replace(program, framework=framework, imported="")
    if workers is not None:
        program = replace(program, workers=workers, why="as --workers says")
    try:
        seconds = parse_duration(timeout or "3m")
    except ValueError as error:
        raise UsageError(f"--timeout: {error}.") from None
    return Question(program=program, source=str(source), exclude=exclude, timeout=seconds, **more)


def path_for(python: str | None) -> str:
    """Return the folders in which a task finds programs: also those beside its Python."""
    beside = [] if python is None else [str(Path(python).parent)]
    return os.pathsep.join([*beside, os.environ.get("PATH", os.defpath)])


def _ignored(folder: Path) -> list[str]:
    """Return the patterns of a folder's .gitignore."""
    try:
        lines = (folder / ".gitignore").read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
    return [line.rstrip() for line in lines if line.strip() and not line.startswith("#")]


def _about(words: str) -> str:
    return f"   # {words}" if words else ""


def _inline(value: object) -> str:
    """Return a value as YAML on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000)
    return text.removesuffix("\n").removesuffix("\n...").strip()
