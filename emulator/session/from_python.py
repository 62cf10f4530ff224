"""`emulator.up` and `emulator.run`: scenarios from Python, without pytest.

with emulator.up("mwms.yaml", set={"cluster.worker": 3}) as cluster:
    cluster.wait_for(step=100)
    cluster.preempt("worker-1", grace=5)
    result = cluster.wait()
assert result.goodput > 0.5

Pytest's fixture `emulator` has the same functions, with the same arguments and errors.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from emulator.planning.requested import RequestedScenario, RunOptions
from emulator.report.live import view_for
from emulator.results import Result, RunCallbacks
from emulator.session.launch import (
    NO_IMAGES,
    ScenarioLike,
    Sets,
    additions,
    make_available,
    overrides,
    perform,
    read,
)
from emulator.session.threaded import Running, RunningCluster


def up(
    scenario: ScenarioLike,
    *,
    set: Sets = (),
    seed: int | None = None,
    engine: str | None = None,
    images: Mapping[str, str] = NO_IMAGES,
    faults: str | Path | None = None,
    out: str | Path = "runs",
    run_id: str | None = None,
    keep: bool = False,
    warm: bool = False,
    progress: bool | None = None,
) -> RunningCluster:
    """Start a cluster and return once all its tasks run, or the run has ended.

    The end of its `with` block stops the job, if it still runs, and removes the cluster. So do an
    exception in the block, Ctrl-C, and the end of the program. `cluster.wait()` returns the result.

    - `scenario`: a file, also a manifest such as a TFJob; the name of a bundled scenario; a dict
      with the keys of a scenario; or a `Scenario`. Paths in a dict are relative to the working
      directory.
    - `set` overrides keys as `--set` does: `{"cluster.worker": 3}`. `seed` is that of data order
      and weights.
    - `engine`: `docker`, `process`, `kubernetes`, or that of another package. None: Docker, or
      processes where no Docker is configured.
    - `images` replaces images of a manifest by name, and `faults` is a file as for `--faults`.
    - The run folder is `out`/`run_id`. `keep` leaves the cluster after the run.
    - `warm` forks tasks from processes that have imported their frameworks.
    - `progress` shows the run while it is under way. None: in a notebook only.

    Raises EmulatorError, whose text says what happened and what to try: UsageError for a scenario
    or an argument that is wrong (ScenarioError has all mistakes of a scenario), Unsupported,
    EngineMissing, EngineError. What the run had made is removed then.
    """
    requested = read(scenario, [Path.cwd()], overrides(set, seed), added=additions(images, faults))
    options = RunOptions(out=Path(out), run_id=run_id, keep=keep, warm=warm)
    folder, running = _prepared(requested, engine, options, progress)
    _under_way.add(running)
    try:
        running.begin()
        return RunningCluster(folder, running)
    except BaseException:
        running.stop()
        raise


def run(
    scenario: ScenarioLike,
    *,
    set: Sets = (),
    seed: int | None = None,
    engine: str | None = None,
    images: Mapping[str, str] = NO_IMAGES,
    faults: str | Path | None = None,
    out: str | Path = "runs",
    run_id: str | None = None,
    keep: bool = False,
    warm: bool = False,
    progress: bool | None = None,
) -> Result:
    """Run a scenario to its end, remove its cluster, and return the result.

    Arguments and errors are those of `up`. A job that failed, or an expectation that did, is a
    result like any other; `result.check()` raises for it.
    """
    requested = read(scenario, [Path.cwd()], overrides(set, seed), added=additions(images, faults))
    options = RunOptions(out=Path(out), run_id=run_id, keep=keep, warm=warm)
    _, running = _prepared(requested, engine, options, progress)
    return running.result()


def _prepared(
    requested: RequestedScenario, engine: str | None, options: RunOptions, progress: bool | None
) -> tuple[Path, Running]:
    """Return the folder of a run and the run, ready to begin: its images are built."""
    out, run_id = options.out.resolve(), options.named(requested.scenario)
    view = view_for(progress)
    callbacks = view.callbacks()
    with requested.placed():
        found, _ = make_available([requested], engine, out, callbacks.say)
    options = replace(options, out=out, run_id=run_id, variant=requested.label)

    def execute(callbacks: RunCallbacks) -> Result:
        with view:
            return perform(requested, found, options, callbacks)

    return out / run_id, Running(execute, callbacks)


# --- The end of the program -----------------------------------------------------------------------

_under_way: weakref.WeakSet[Running] = weakref.WeakSet()
"""Runs that `up` has started: a program may end without the end of their block."""


def before_threads_end(call: Callable[[], None]) -> None:
    """Have `call` called when the main thread has ended.

    Functions of `atexit` come too late: no pool of threads takes a call any more by then. Those of
    concurrent.futures, which forbid it, are registered where this registers, and earlier. A Python
    that has no such place any more, which a test would show, gets a function of `atexit`.
    """
    getattr(threading, "_register_atexit", atexit.register)(call)


def _stop_all() -> None:
    for running in list(_under_way):
        with contextlib.suppress(BaseException):
            running.stop()


before_threads_end(_stop_all)  # removal uses some
