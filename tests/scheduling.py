"""How the tests of one run are shared among xdist's workers, so that no core stands idle.

Long tests first, since one that begins last keeps a single core busy while the other waits. But
trainings compute, and ask for cores of their own, while most other tests wait for an engine, a
cluster or a command. So only some workers take trainings, some take tests on the cluster, and the
others take the rest meanwhile.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

ROOT = Path(__file__).parent.parent
TRAININGS = ("scenarios/", "tests/test_scenarios.py", "tests/test_readme.py")
"""Where tests train for as long as scenarios do; so do those in a file `test_jobs.py`."""
LANES = {"training": 2, "kubernetes": 1}
"""How many workers take tests of a kind. Two trainings with a core each fill a small machine."""


@functools.cache
def lane(nodeid: str) -> str:
    """Return the kind of a test of which only some workers take tests, or ""."""
    if nodeid.startswith(TRAININGS) or nodeid.partition("::")[0].endswith("/test_jobs.py"):
        return "training"
    on_a_cluster = "tests/plugins/kubernetes/"
    return "kubernetes" if nodeid.startswith(on_a_cluster) or "[kubernetes" in nodeid else ""


@functools.cache
def _shares(path: str) -> bool:
    """Return whether tests of a file share what is made for the file: a browser, or runs."""
    text = Path(ROOT, path).read_text() if path.endswith(".py") else ""
    return 'scope="module"' in text or "browser: Browser" in text


def unit(nodeid: str) -> str:
    """Return what goes to one worker as a whole: a file whose tests share something, or a test."""
    path = nodeid.partition("::")[0]
    return path if _shares(path) else nodeid


def chosen(waiting: Iterable[str], held: Mapping[Any, set[str]], worker: Any) -> str:
    """Return the unit that a worker gets next: the first of its own lane, or of one with room.

    `held` has the lanes of the units that each worker has now. If all lanes that have units left
    are full, a worker gets one of them nevertheless.
    """
    takers = Counter(name for other, lanes in held.items() if other != worker for name in lanes)
    units = list(waiting)
    if mine := held.get(worker, set()) - {""}:
        units.sort(key=lambda one: lane(one) not in mine)
        if lane(units[0]) in mine:
            return units[0]
    open_ = {"", *(name for name, width in LANES.items() if takers[name] < width)}
    return next((one for one in units if lane(one) in open_), units[0])


class Lanes(LoadScopeScheduling):  # type: ignore[misc]  # which has no types
    """xdist's scheduler of units, which asks `chosen` for each; they wait in the tests' order."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        held = {
            other: {lane(scope) for scope, tests in units.items() if not all(tests.values())}
            for other, units in self.assigned_work.items()
        }
        self.workqueue.move_to_end(chosen(self.workqueue, held, node), last=False)
        super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        # A worker needs one test beyond the one that it runs, and no more: it may run for minutes.
        if node.shutting_down or self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Lanes | None:
    """Use the lanes in a run with `--dist loadscope`."""
    return Lanes(config, log) if config.getvalue("dist") == "loadscope" else None


def rank(item: pytest.Item) -> tuple[int, float]:
    """Return the place of a test among others: trainings, cluster, what waits, what is quick.

    Of trainings, those with the longest timeout come first: they take the most, their authors say.
    """
    place = lane(item.nodeid)
    quick = item.get_closest_marker("quick") is not None
    return ("training", "kubernetes", "").index(place) + quick, -_minutes(
        item.path
    ) if place == "training" else 0.0


@functools.cache
def _minutes(path: Path) -> float:
    """Return the timeout of a scenario in a file; of a test in another file, as long as usual."""
    found = (
        re.search(r"^timeout: (\d+)m", path.read_text(), re.M) if path.suffix == ".yaml" else None
    )
    return float(found[1]) if found else 5.0
