"""From what in the output the steps were read, and what else there was that counts (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from emulator.metrics.bars import TRAINER_LINES
from emulator.metrics.steps import JSON
from emulator.record.events import StepSource
from emulator.record.timeline import Timeline

EVENT_FILES = "event files"
"""The source where `metrics.events` names a folder."""
UNSAID = frozenset({JSON.words, EVENT_FILES})
"""Sources that are as certain as can be: reports don't mention them if there is nothing else."""


@dataclass(frozen=True)
class StepSources:
    """Each source with the tasks that had it, in the order in which they came."""

    used: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The steps are read from these."""
    seen: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """These are no steps of the training, as far as can be known, or something else was surer."""

    @property
    def has_trainer_lines(self) -> bool:
        """Whether Hugging Face's Trainer printed values before any step was read."""
        return TRAINER_LINES in self.seen

    def as_data(self) -> dict[str, list[dict[str, object]]]:
        """Return its part of `summary.json`."""
        return {
            name: [{"source": source, "tasks": list(tasks)} for source, tasks in sources.items()]
            for name, sources in (("used", self.used), ("seen", self.seen))
        }


def step_sources(timeline: Timeline) -> StepSources:
    """Return the sources of a run; a task without a note of its own printed steps as JSON."""
    by_event_file = timeline.plan.scenario.metrics.events is not None
    default = EVENT_FILES if by_event_file else JSON.words
    last: dict[str, str] = {}
    seen: dict[str, list[str]] = {}
    for entry in timeline.history:
        if not isinstance(entry, StepSource):
            continue
        if entry.counts:
            if entry.retracts:  # the steps before are not those of the training
                _add(seen, last.get(entry.task, default), entry.task)
            last[entry.task] = entry.source
        else:
            _add(seen, entry.source, entry.task)
    used: dict[str, list[str]] = {}
    for task in dict.fromkeys(step.task for _, step in timeline.steps):
        _add(used, last.get(task, default), task)
    unused = {source: tasks for source, tasks in seen.items() if source not in used}
    return StepSources(used, unused)


def _add(sources: dict[str, list[str]], source: str, task: str) -> None:
    tasks = sources.setdefault(source, [])
    if task not in tasks:
        tasks.append(task)
