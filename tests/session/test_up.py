"""`emulator.up` and `emulator.run`: what they take, what they return, and what they leave."""

from __future__ import annotations

import inspect
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import emulator
from emulator.errors import EngineLost, ScenarioError, Unsupported, UsageError
from emulator.pytest_plugin.harness import Emulator
from emulator.record.events import RunStarted
from emulator.results import RunCallbacks
from emulator.runtime.waiting import Event, for_event
from emulator.scenario.schema import Scenario
from emulator.session.launch import read
from emulator.session.threaded import Running, RunningCluster
from tests.conftest import left
from tests.session.conftest import FOREVER, shell


def test_a_cluster_is_used_and_gives_its_result(tmp_path: Path) -> None:
    scenario = shell(FOREVER, restart={"policy": "on-failure"})
    with emulator.up(scenario, engine="process", out=tmp_path) as cluster:
        cluster.wait_for(step=5, task="worker-0")
        for timeout in (0.1, "100ms"):
            with pytest.raises(TimeoutError, match=r"that did not happen within 0\.1 s"):
                cluster.wait_for(step=10**6, timeout=timeout)
        with ThreadPoolExecutor(1) as another:  # where no signal arrives, a stream is read directly
            late = another.submit(cluster.wait_for, step=10**6, timeout=0.1)
        assert isinstance(late.exception(), TimeoutError)
        (fault,) = cluster.kill("worker-0")
        cluster.wait_for(fault=fault, timeout="60s")
        cluster.stop()
        result = cluster.wait()
    assert (result.outcome, result.final_step) == ("interrupted", 5)
    assert result.folder.parent == tmp_path
    assert left("process", result.run_id) == []


def test_a_file_a_dict_and_a_scenario_are_the_same_run(tmp_path: Path) -> None:
    (tmp_path / "shell.yaml").write_text(json.dumps(shell()))
    given: list[Any] = [tmp_path / "shell.yaml", shell(), emulator.load(tmp_path / "shell.yaml")]
    results = [
        emulator.run(
            one, set={"cluster.worker": 2}, seed=7, engine="process", out=tmp_path / "runs"
        )
        for one in given
    ]
    plans = [emulator.Record(result.folder).plan for result in results]
    assert [len(plan.tasks) for plan in plans] == [2, 2, 2]
    assert {plan.scenario.seed for plan in plans} == {7}
    assert plans[0].scenario == plans[1].scenario == plans[2].scenario
    assert [result.verdict for result in results] == ["ok"] * 3
    assert {plan.variant for plan in plans} == {"cluster.worker=2 seed=7"}
    firsts = [emulator.Record(result.folder).history[0] for result in results]
    commands = [(one.origin or {}).get("command") for one in firsts if isinstance(one, RunStarted)]
    again = f"emulate up {tmp_path}/shell.yaml --engine=process --set=cluster.worker=2 --set=seed=7"
    assert commands == [again, None, None]  # the others have no file


def test_a_failed_job_is_a_result(tmp_path: Path) -> None:
    result = emulator.run(shell("exit 3"), engine="process", out=tmp_path, run_id="it-fails")
    assert (result.run_id, result.outcome, result.exit_code) == ("it-fails", "failed", 1)
    with pytest.raises(AssertionError, match="outcome failed"):
        result.check()


def test_an_exception_in_the_block_removes_the_cluster(tmp_path: Path) -> None:
    cluster = emulator.up(shell(FOREVER), engine="process", out=tmp_path)
    assert left("process", cluster.run_id) != []
    with pytest.raises(ZeroDivisionError), cluster:
        raise ZeroDivisionError
    assert left("process", cluster.run_id) == []
    assert emulator.Record(cluster.folder).timeline.outcome == "interrupted"


PAUSED = {"pause": "worker-9", "at": "1s", "for": "1s"}
WRONG: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
    ("nowhere", {}, UsageError, "There is no scenario nowhere"),
    ("quickstrat", {}, UsageError, "Did you mean 'quickstart'?"),
    (shell(cluster={"worker": "two"}, tiemout="5s"), {}, ScenarioError, "cluster.worker"),
    ({"name": "x"}, {}, ScenarioError, r"^the scenario: cluster: is missing"),
    (shell(), {"set": {"cluster.worker": "x"}}, ScenarioError, r'^set\["cluster.worker"\]: '),
    (shell(), {"set": {"name.x": 1}}, UsageError, r'^set\["name.x"\]: there is nothing to set'),
    (shell(), {"engine": "dokcer"}, UsageError, "no engine 'dokcer'"),
    (shell(), {"run_id": "A/b"}, UsageError, "can't be a run id"),
    (shell(faults=[PAUSED]), {}, ScenarioError, "worker-9"),
    (shell(network={"delay": "5ms"}), {}, Unsupported, "network delay"),
    ({"name": object()}, {}, UsageError, "can't contain"),
]


@pytest.mark.parametrize(
    ("scenario", "options", "error", "says"), WRONG, ids=[says for *_, says in WRONG]
)
def test_what_is_wrong_is_said_before_anything_is_made(
    tmp_path: Path, scenario: Any, options: dict[str, Any], error: type[Exception], says: str
) -> None:
    for start in (emulator.up, emulator.run):
        with pytest.raises(error, match=says):
            start(scenario, **{"engine": "process", "out": tmp_path / "runs", **options})
    assert not (tmp_path / "runs").exists()


def test_a_folder_means_its_scenario_and_a_file_with_another_suffix_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "scenario.yaml").write_text(Scenario.model_validate(shell()).to_yaml())
    (mine / "crash.yaml").touch()
    monkeypatch.chdir(tmp_path)
    assert read("mine", [tmp_path]).path == mine / "scenario.yaml"
    with pytest.raises(UsageError, match=r"Did you mean 'mine/crash.yaml'\?"):
        emulator.run("mine/crash.yml", engine="process")


def test_the_fixture_takes_the_same_arguments() -> None:
    for of_module, of_fixture in ((emulator.up, Emulator.up), (emulator.run, Emulator.run)):
        theirs = dict(inspect.signature(of_module).parameters)
        for name, parameter in inspect.signature(of_fixture).parameters.items():
            assert name == "self" or theirs[name] == parameter


# --- A run that fails in the meantime -------------------------------------------------------------


@pytest.fixture
def lost() -> Iterator[tuple[Running, Event]]:
    """A run that loses its engine when the event is set."""
    now = Event()

    def perform(callbacks: RunCallbacks) -> emulator.Result:
        callbacks.reachable()
        for_event(now)
        raise EngineLost("The engine is gone.")

    running = Running(perform, RunCallbacks())
    running.begin()
    yield running, now
    now.set()


def test_the_end_of_the_block_raises_what_ended_the_run(
    lost: tuple[Running, Event], tmp_path: Path
) -> None:
    running, now = lost
    with pytest.raises(EngineLost, match="gone"), RunningCluster(tmp_path, running):
        now.set()
    running.settle()  # it was raised once


def test_but_it_does_not_hide_an_exception_in_the_block(
    lost: tuple[Running, Event], tmp_path: Path
) -> None:
    running, now = lost
    now.set()
    with pytest.raises(ZeroDivisionError), RunningCluster(tmp_path, running):
        raise ZeroDivisionError


# --- Programs that end early ----------------------------------------------------------------------

PROGRAM = """\
import emulator
cluster = emulator.up({scenario!r}, engine="process", out={out!r}, run_id="early")
print("up", flush=True)
{then}
"""


def program(tmp_path: Path, then: str) -> subprocess.Popen[str]:
    text = PROGRAM.format(scenario=shell(FOREVER), out=str(tmp_path), then=then)
    return subprocess.Popen(
        [sys.executable, "-c", text],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.parametrize("then", ["", "raise SystemExit(3)", "1 / 0"])
def test_a_program_that_ends_leaves_nothing(tmp_path: Path, then: str) -> None:
    ended = program(tmp_path, then)
    out, errors = ended.communicate(timeout=300)
    assert out == "up\n", errors
    assert left("process", "early") == []
    assert emulator.Record(tmp_path / "early").timeline.outcome == "interrupted"
    assert "cannot schedule" not in errors


def test_ctrl_c_leaves_nothing_and_is_raised(tmp_path: Path) -> None:
    ended = program(tmp_path, "with cluster:\n    cluster.wait()")
    assert ended.stdout is not None
    assert ended.stdout.readline() == "up\n"
    ended.send_signal(signal.SIGINT)
    _, errors = ended.communicate(timeout=300)
    assert "KeyboardInterrupt" in errors
    assert left("process", "early") == []
    assert emulator.Record(tmp_path / "early").timeline.outcome == "interrupted"
