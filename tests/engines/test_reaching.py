"""To whom a signal goes: a task's own command alone, or all of its processes."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from emulator.engines.capabilities import capable
from emulator.engines.docker import DockerEngine
from emulator.engines.process import ProcessEngine
from emulator.faults.held import Pausing
from emulator.faults.signals import SignallingAll
from tests.engines.stage import Stage, shells, staged

SAYS = 'trap "echo {0} TERM" TERM; trap "echo {0} USR1" USR1; echo {0} up; while :; do {1}; done'
LEFT = SAYS.format("left", "sleep 0.1")
CHILD = SAYS.format("child", "sleep 0.1")
# The last has left its session and its parent, as a daemon.
FAMILY = (
    f"sh -c '{CHILD}' & (setsid sh -c '{LEFT}' &)\n"
    'trap "echo main TERM" TERM; trap "echo main USR1" USR1; echo main up\n'
    "while :; do wait; sleep 0.1; done"
)
NAMES = ("main", "child", "left")


@pytest.fixture(params=["process", pytest.param("docker", marks=pytest.mark.docker)])
def family(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    """A task with three processes that say which signals they get."""
    if request.param == "docker":
        request.getfixturevalue("docker_engine")
        image = request.getfixturevalue("tiny_image")
        engine: DockerEngine | ProcessEngine = DockerEngine()
    else:
        image, engine = "none", ProcessEngine()
    with staged(engine, shells({"worker": FAMILY}, image), tmp_path) as stage:
        stage.start()
        for name in NAMES:
            stage.until_line("worker-0", f"{name} up")
        yield stage


def got(stage: Stage) -> set[str]:
    """Return what the processes said of signals so far."""
    return {line for line in stage.lines["worker-0"] if line.endswith((" TERM", " USR1"))}


def test_a_signal_is_for_the_own_command_or_for_all(family: Stage) -> None:
    engine = capable(family.engine, SignallingAll)
    family.engine.signal("worker-0", signal.SIGTERM)
    family.until_line("worker-0", "main TERM")
    # SIGCONT is for who is stopped. What gets this has had SIGTERM before, if it ever gets it.
    reached = engine.signal_all("worker-0", [signal.SIGCONT, signal.SIGUSR1])
    for name in NAMES:
        family.until_line("worker-0", f"{name} USR1")
    assert got(family) == {"main TERM", *(f"{name} USR1" for name in NAMES)}
    assert reached is not None
    assert reached >= len(NAMES)  # and what sleeps for them

    pausing = capable(family.engine, Pausing)
    pausing.pause("worker-0")
    family.lines["worker-0"].clear()
    engine.signal_all("worker-0", [signal.SIGUSR1])
    family.until_quiet()
    assert got(family) <= {"left USR1"}  # with processes, it has left what is paused as well
    pausing.resume("worker-0")
    for name in NAMES:
        family.until_line("worker-0", f"{name} USR1")

    family.engine.signal("worker-0", signal.SIGKILL)
    family.until_exit()
    assert not engine.signal_all("worker-0", [signal.SIGTERM])
