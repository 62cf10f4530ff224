"""The run without faults that a scenario is compared with, which is made once, beside its runs."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from emulator.analysis.same_as_uninterrupted import WHY
from emulator.analysis.uninterrupted import RESULTS, figures_of
from emulator.engines import choose
from emulator.engines.base import Engine, Identifying
from emulator.errors import RecordError
from emulator.planning.requested import RequestedScenario, RunOptions
from emulator.record.reader import Record
from emulator.record.version import header
from emulator.results import Result, RunCallbacks, load_result
from emulator.runtime.files import FOR_OWNER, cache_dir, os_errors
from emulator.runtime.waiting import pause
from emulator.scenario.matrix import to_overrides
from emulator.scenario.program import parts
from emulator.supervisor.cleanup import remove

if TYPE_CHECKING:
    from emulator.planning.plan import Plan

Up = Callable[[RequestedScenario, Engine, RunOptions, RunCallbacks], Result]


def compared(
    requested: RequestedScenario,
    engine: Engine,
    plan: Plan,
    options: RunOptions,
    callbacks: RunCallbacks,
    up: Up,
) -> RunOptions:
    """Return options with what a run without the faults shows, where that is expected to be alike.

    `plan` is that of the run, and `up` runs a scenario on another engine of the same name.
    """
    if requested.scenario.expect.same_as_uninterrupted is None or options.reads_results:
        return options
    engine.ensure_images(plan.scenario, callbacks.say)  # what they are is part of its name
    plain = without_faults(requested)
    name = f"{plan.scenario.name[:LONGEST]}-uninterrupted-{_identity(plain, plan, engine)}"
    with _alone(options.out / name, callbacks.say):
        name, result = _before(options.out, name, engine, callbacks.say)
        if result is None:
            callbacks.say(f"first a run without faults, to compare with: {name}")
            own = replace(options, run_id=name, reads_results=True, keep=False, variant="")
            with contextlib.closing(choose(engine.name)) as another:
                result = up(plain, another, own, RunCallbacks(say=callbacks.say))
    return replace(options, reads_results=True, uninterrupted=_shown(result))


LONGEST = 30
"""Characters of the scenario's name; those of a run id are limited."""
POLL = 0.4
"""Seconds after which one that waits looks again."""


@contextlib.contextmanager
def _alone(folder: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Let one process at a time make a run: the others find it when it has ended."""
    locks = cache_dir("uninterrupted")
    with os_errors(RecordError, f"Can't write to {locks}"):
        locks.mkdir(FOR_OWNER, parents=True, exist_ok=True)
    place = hashlib.sha256(str(folder.resolve()).encode("utf-8", "replace")).hexdigest()[:16]
    lock, has_waited = FileLock(locks / f"{place}.lock"), False
    while True:
        with contextlib.suppress(Timeout):
            lock.acquire(timeout=0)
            break
        if not has_waited:
            say(f"waiting for {folder.name}, which another emulate makes")
        has_waited = True
        pause(POLL)
    try:
        yield
    finally:
        lock.release()


def _before(
    out: Path, stem: str, engine: Engine, say: Callable[[str], None]
) -> tuple[str, Result | None]:
    """Return the result of the run that was made before, or the name of the one to be made.

    What a killed one has left is removed.
    """
    for attempt in itertools.count():
        name = f"{stem}-{attempt + 1}" if attempt else stem
        if not (out / name).exists():
            return name, None
        if (result := _ended(out / name)) is not None:
            return name, result
        remove(name, engine.name, out / name, say)
    raise AssertionError


def without_faults(requested: RequestedScenario) -> RequestedScenario:
    """Return a scenario without its faults, and without what it expects of them."""
    chosen = to_overrides({"faults": [], "expect": {}})
    return replace(requested, last=(*requested.last, *chosen))


def _shown(result: Result) -> dict[str, Any]:
    """Return what a run has shown, for `uninterrupted.json`."""
    if result.outcome != "succeeded":
        why = f"without a fault the job {result.outcome}: {result.end.reason}"
        return {**header(), "run": result.run_id, WHY: why}
    record = Record(result.folder)
    is_anew = any(task.counted_anew for task in result.analysis.tasks.values())
    figures = figures_of(record.timeline, record.result(RESULTS), is_anew=is_anew)
    return {**header(), "run": result.run_id, **figures.as_data()}


def _ended(folder: Path) -> Result | None:
    """Return the result of a run that was made before, and has ended by itself."""
    record = Record(folder)
    summary = record.result("summary.json")
    if summary is None or summary.get("outcome") in (None, "interrupted"):
        return None
    return load_result(record)


def _identity(plain: RequestedScenario, plan: Plan, engine: Engine) -> str:
    """Return what tells a run from others: the scenario, its programs, images and Python."""
    digest = hashlib.sha256(plain.scenario.to_yaml().encode())
    software = engine.software(plan) if isinstance(engine, Identifying) else {}
    known = {image: one.get("id", "") for image, one in software.items()}
    digest.update(json.dumps([engine.name, plan.python, known], sort_keys=True).encode())
    for content in _programs(plan):
        digest.update(content)
    return digest.hexdigest()[:8]


def _programs(plan: Plan) -> Iterator[bytes]:
    """Yield the files that are copied for tasks, each with its name."""
    copied = {task.copied for task in plan.everything if task.copied is not None}
    for one in sorted(copied, key=str):
        for part in parts(one.source, one.exclude):
            yield f"{part.name}\0".encode("utf-8", "replace")
            if not part.is_folder:
                yield part.path.read_bytes()
