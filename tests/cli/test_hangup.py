"""A terminal that is closed while a command runs: as SIGTERM, and nothing is left."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emulator.record.reader import Record
from tests.cli.test_interrupts import scenario, whole
from tests.cli.typed import typed
from tests.conftest import Emulate, left, own
from tests.session.conftest import FOREVER, STEPS
from tests.terminals import PATIENCE, Terminal

pytestmark = pytest.mark.usefixtures("default_hangup")

STEADY = "while :; do echo tick; sleep 0.02; done"
"""Always about to print when the terminal goes."""

Open = Callable[..., Terminal]


@pytest.fixture
def opened() -> Iterator[Open]:
    """Run a command in a terminal, at whose end it is ended."""
    terminals: list[Terminal] = []

    def start(*command: str | Path) -> Terminal:
        terminals.append(Terminal(list(map(str, command))))
        return terminals[-1]

    yield start
    for terminal in terminals:
        terminal.close()


def up(emulate: Emulate, path: Path, *more: str) -> list[str]:
    named = [f"--out={emulate.out}", f"--run-id={own('hung')}"]
    return [*emulate.command, "up", str(path), *named, *more]


def test_a_run_whose_terminal_is_closed_is_stopped_and_removed(
    emulate: Emulate, tmp_path: Path, opened: Open, either_engine: tuple[str, str]
) -> None:
    engine, image = either_engine
    path = scenario(tmp_path, STEADY, image=image)
    how = "-v" if engine == "docker" else "--plain"
    terminal = opened(*up(emulate, path, f"--engine={engine}", how))
    terminal.see("worker-0 | tick", "worker-1 | tick")
    terminal.hang_up()
    assert terminal.process.wait(PATIENCE) == 130
    summary = whole(emulate.out / own("hung"))
    assert summary["outcome"] == "interrupted"
    assert "SIGHUP" in summary["reason"]
    assert left(engine, own("hung")) == []


def test_nohup_is_kept_to(emulate: Emulate, tmp_path: Path, opened: Open) -> None:
    """What it prints goes nowhere then, and its exit code is that of the job."""
    gate = tmp_path / "gate"
    path = scenario(tmp_path, f"echo up; until [ -e {gate} ]; do sleep 0.05; done; {STEPS}")
    # As a shell's `nohup`, but with the terminal still at its output, as after `trap '' HUP`.
    command = up(emulate, path, "--engine=process")
    terminal = opened("sh", "-c", "trap '' HUP; exec \"$@\"", "sh", *command)
    terminal.see("worker-0 | up", "worker-1 | up")
    terminal.hang_up()
    terminal.process.send_signal(signal.SIGHUP)
    gate.touch()
    assert terminal.process.wait(PATIENCE) == 0
    assert whole(emulate.out / own("hung"))["verdict"] == "ok"


def test_up_d_outlives_its_terminal(emulate: Emulate, tmp_path: Path, opened: Open) -> None:
    command = up(emulate, scenario(tmp_path, FOREVER), "--engine=process", "-d")
    terminal = opened("sh", "-c", '"$@"; exec cat', "sh", *command)
    terminal.see("is up; ")
    terminal.hang_up()
    assert terminal.process.wait(PATIENCE) == -signal.SIGHUP
    assert Record(emulate.out / own("hung")).live
    typed("down", own("hung"), "--out", emulate.out).ended()
    assert left("process", own("hung")) == []


@pytest.mark.parametrize(
    ("command", "code"),
    [("top", 130), ("logs -f", 130), ("attach", 130), ("exec", -signal.SIGHUP)],
)
def test_who_only_looks_leaves_and_the_run_stays(
    emulate: Emulate, tmp_path: Path, opened: Open, command: str, code: int
) -> None:
    """`exec` is what it runs, which has the same terminal."""
    name, *options = command.split()
    path = scenario(tmp_path, STEADY)
    run = emulate.start(*up(emulate, path, "--engine=process", "-q")[1:], unread=True)
    while not (emulate.out / own("hung") / "api.sock").exists():
        assert run.poll() is None
    tail = ["worker-0", "--", "sh", "-c", "echo tick; exec sleep 600"] if name == "exec" else []
    terminal = opened(*(*emulate.command, name, "--out", emulate.out, own("hung"), *options, *tail))
    terminal.see("tick")
    terminal.hang_up()
    assert terminal.process.wait(PATIENCE) == code
    assert Record(emulate.out / own("hung")).live
    run.send_signal(signal.SIGTERM)
    assert run.wait(PATIENCE) == 130
