"""What the fixture asks of runs, leases and engines; the runs are those of the memory engine."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from emulator.broker import Broker, Capacity, Claim, Lease, Need
from emulator.broker.claims import Run
from emulator.engines.docker import DockerEngine
from emulator.engines.memory import MemoryEngine
from emulator.errors import EmulatorError, EngineLost, EngineMissing, InUse, Unsupported
from emulator.execution import up
from emulator.planning.baseline import ThroughputReference
from emulator.pytest_plugin import harness
from emulator.pytest_plugin.harness import Emulator
from emulator.pytest_plugin.settings import Settings
from emulator.record.reader import Record
from emulator.results import Result, RunCallbacks
from emulator.runtime.clock import ManualClock
from emulator.scenario.loader import parse
from emulator.session import launch
from emulator.session.running import Running
from emulator.session.source import RequestedScenario
from tests.supervisor.in_memory import trains

TEXT = """\
name: text
framework: none
image: none
program: {command: [a]}
cluster: {worker: {replicas: 1, cpus: 2, memory: 1GiB, gpus: 1}}
"""
SCENARIO = {
    "name": "mine",
    "framework": "none",
    "image": "none",
    "program": {"command": ["a"]},
    "cluster": {"worker": {"replicas": 1, "cpus": 2, "memory": "1GiB"}},
}
COMPARED = {
    "expect": {"throughput": {"at_least": 0.5, "of": "reference"}},
    "reference": {"cluster.worker": {"replicas": 1, "cpus": 1, "memory": "2GiB", "gpus": 1}},
}


class Machine:
    """An engine that has run everything, and what it was asked for."""

    def __init__(self) -> None:
        self.made: list[tuple[list[str], str]] = []
        self.asked: list[dict[str, Any]] = []
        self.stored: list[str] = []
        self.leases: list[tuple[Lease, bool]] = []
        self.refuses_warm = self.fails = False

    def make_available(
        self, scenarios: list[Any], name: str, out: Path, say: object
    ) -> tuple[str, Capacity]:
        self.made.append(([one.name for one in scenarios], name))
        return "docker", Capacity(8, 2**33, ("GPU-0",))

    def perform(
        self,
        requested: RequestedScenario,
        engine: str,
        callbacks: RunCallbacks,
        **how: Any,
    ) -> Result:
        self.asked.append({"engine": engine, **how})
        if how.get("warm") and self.refuses_warm:
            raise Unsupported("None can start warm.")
        if self.fails:
            raise EngineLost("It is gone.")
        how = {key: value for key, value in how.items() if key not in ("warm", "gpus")}
        clock = ManualClock()
        memory = MemoryEngine(clock, {"*": trains(3)}, gpus=("GPU-0",))
        return up(
            requested.scenario,
            memory,
            text="",
            callbacks=callbacks,
            clock=clock,
            reports=False,
            **how,
        )


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(harness, "make_available", machine.make_available)
    monkeypatch.setattr(launch, "perform", machine.perform)
    monkeypatch.setattr(
        harness, "store", lambda result, requested, expected: machine.stored.append(result.run_id)
    )
    return machine


@pytest.fixture
def harnessed(request: pytest.FixtureRequest, tmp_path: Path) -> Emulator:
    settings = Settings(
        engine="auto",
        image=None,
        out=tmp_path,
        keep=False,
        warm=False,
        require=frozenset(),
        sets=(),
        varied=(),
        folders=(),
        cpus=None,
        memory=None,
        update_baseline=False,
        root=tmp_path,
    )
    broker = Broker(tmp_path / "claims")
    return Emulator(request.node, settings, "auto", None, tmp_path / "runs", broker=broker)


def having(one: Emulator, **settings: Any) -> Emulator:
    """Change settings."""
    one.settings = replace(one.settings, **settings)
    return one


def test_a_run_is_of_the_engine_that_was_available(harnessed: Emulator, machine: Machine) -> None:
    result = having(harnessed, cpus=4.0, memory=2**31).run(SCENARIO)
    assert result.final_step == 3
    assert machine.made == [(["mine"], "auto")]
    (asked,) = machine.asked
    out = harnessed.out
    assert asked == {
        "engine": "docker",
        "out": out,
        "run_id": result.run_id,
        "reference": None,
        "gpus": None,
        "keep": False,
        "warm": False,
    }
    (run,) = harnessed.runs()
    assert (run.folder, run.engine, run.is_reference, run.kept) == (
        out / result.run_id,
        "docker",
        False,
        False,
    )
    assert run.result is run.running.finished is result
    assert run.command == run.requested.command("docker")
    assert harnessed._leases == [run.lease]
    assert run.lease.need == Need(2.0, 2**30, 0)
    assert machine.stored == []
    harnessed.broker.acquire("next", Need(), Capacity(1, 1), recover=print).release()
    assert run.lease.pipe is not None
    assert run.lease.pipe.closed
    assert harnessed.run(SCENARIO, engine="process", seed=7).final_step == 3
    assert machine.made[-1] == (["mine"], "process")
    assert harnessed.runs()[-1].requested.scenario.seed == 7
    assert harnessed.run(SCENARIO, set={"seed": 8}).final_step == 3
    assert harnessed.runs()[-1].requested.scenario.seed == 8
    having(harnessed, require=frozenset({"gpu", "process"})).run(SCENARIO)
    assert machine.made[-1] == (["mine"], "process")
    harnessed.image = "other"
    harnessed.run(SCENARIO)
    assert harnessed.runs()[-1].requested.scenario.image == "other"
    harnessed.close(failed=False)


@pytest.mark.parametrize(
    ("given", "share"),
    [
        ({}, Capacity(8, 2**33, ("GPU-0",))),
        ({"cpus": 4.0}, Capacity(4, 2**33, ("GPU-0",))),
        ({"memory": 2**31}, Capacity(8, 2**31, ("GPU-0",))),
    ],
)
def test_scenarios_share_what_the_engine_has_or_the_session_says(
    harnessed: Emulator,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    given: Mapping[str, Any],
    share: Capacity,
) -> None:
    acquire, asked, said = Broker.acquire, list[Any](), list[str]()

    def noting(broker: Broker, name: str, need: Need, capacity: Capacity, **how: Any) -> Lease:
        asked.append((name, need, capacity, how["recover"]))
        how["waiting"]([Claim(1, "a", 7, need, capacity), Claim(2, "b", 8, need, capacity)])
        return acquire(broker, name, need, capacity, **how)

    monkeypatch.setattr(Broker, "acquire", noting)
    entered: list[str] = []

    @contextlib.contextmanager
    def untimed() -> Iterator[None]:
        entered.append("untimed")
        yield

    harnessed.say, harnessed.untimed = said.append, untimed
    result = having(harnessed, **given).run({**SCENARIO, **COMPARED})
    assert entered == ["untimed"]
    name = harnessed.item.nodeid
    assert asked == [(name, Need(2.0, 2**31, 1), share, harness.recover)]
    assert said == [
        f"{name} waits for its share of the machine, after a (process 7), b (process 8)"
    ]
    ran, reference = harnessed.runs()
    assert (ran.is_reference, reference.is_reference) == (False, True)
    assert ran.lease is reference.lease
    first, second = machine.asked
    assert (first["run_id"], first["reference"], first["gpus"]) == (
        reference.folder.name,
        None,
        ("GPU-0",),
    )
    assert (second["run_id"], second["gpus"]) == (result.run_id, None)
    compared = second["reference"]
    assert isinstance(compared, ThroughputReference)
    assert compared.reference_run == reference.folder.name
    assert machine.stored == [result.run_id]
    assert machine.made == [(["mine", "mine"], "auto")]


@pytest.mark.parametrize(
    ("settings", "refuses", "warm"),
    [
        ({}, False, [False]),
        ({"warm": True}, False, [True]),
        ({"warm": True}, True, [True, None]),
        ({"warm": True, "keep": True}, False, [False]),
    ],
)
def test_tasks_start_warm_where_that_is_asked_for_and_can_be(
    harnessed: Emulator,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    settings: Mapping[str, Any],
    refuses: bool,
    warm: list[bool | None],
) -> None:
    machine.refuses_warm = refuses
    result = having(harnessed, **settings).run(SCENARIO)
    assert [one.get("warm") for one in machine.asked] == warm
    keep = bool(settings.get("keep"))
    (run,) = harnessed.runs()
    assert (run.kept, [one["keep"] for one in machine.asked]) == (keep, [keep] * len(warm))
    assert run.lease.pipe is not None
    assert run.lease.pipe.closed != keep  # what is kept keeps its share until the end
    removed: list[Any] = []
    monkeypatch.setattr(harness, "remove", lambda *what: removed.append(what))
    harnessed.close(failed=False)
    assert run.lease.pipe.closed
    assert removed == [(result.run_id, "docker", run.folder)] * keep
    assert not run.kept
    assert not DockerEngine.capabilities.isdisjoint({"warm"})


def test_a_cluster_is_up_until_its_test_is_over(harnessed: Emulator, machine: Machine) -> None:
    with harnessed.up(SCENARIO) as cluster:
        assert cluster.wait().final_step == 3
    assert harnessed._clusters == [cluster]
    machine.fails = True
    with pytest.raises(EngineLost):
        harnessed.run(SCENARIO)
    assert len(harnessed._runs) == 2
    assert len(harnessed.runs()) == 1  # the other was never recorded
    failed = harnessed._runs[1]
    assert not failed.has_record
    failed.kept = True
    failed.remove()  # no engine is asked
    assert not failed.kept
    harnessed.close(failed=True)
    left = [claim.runs for claim in claims(harnessed.broker)]
    assert left == [(Run(failed.folder.name, "docker", failed.folder),)]


def claims(broker: Broker) -> list[Claim]:
    """Return the claims of owners that are gone; forget them."""
    found: list[Claim] = []
    broker.recover_dead(found.append)
    return found


class Part(SimpleNamespace):
    """A run, its lease or its cluster: it notes what it is told."""

    def __getattr__(self, name: str) -> Any:
        def noted(*what: object) -> None:
            self.told.append(" ".join([name, self.name, *map(str, what)]))
            if name in self.fails:
                raise EmulatorError(f"{name} {self.name}")

        return noted


@pytest.mark.parametrize("fails", [(), ("stop", "close", "settle", "release")])
@pytest.mark.parametrize(
    ("keep", "failed"), [(False, False), (False, True), (True, False), (True, True)]
)
def test_at_the_end_all_clusters_are_asked_to_stop_first_and_each_is_ended(
    harnessed: Emulator,
    monkeypatch: pytest.MonkeyPatch,
    keep: bool,
    failed: bool,
    fails: tuple[str, ...],
) -> None:
    told: list[str] = []

    def part(name: str, **more: Any) -> Any:
        return Part(name=name, told=told, fails=fails, **more)

    removed = SimpleNamespace(remove=lambda *what: told.append(f"remove {what[0]}"))
    monkeypatch.setattr(harness, "remove", removed.remove)
    leases = [part("lease-0"), part("lease-1")]
    runs = [part("a", over=False, error=None), part("b", over=True, error=OSError())]
    runs.append(part("c", over=False, error=None))
    for running, lease in zip(runs, (leases[0], leases[1], leases[1]), strict=True):
        folder = harnessed.out / running.name
        folder.mkdir(parents=True)
        (folder / "plan.json").touch()
        requested: Any = None
        run = harness.TestRun(requested, folder, "docker", running, lease, False, keep)
        harnessed._runs.append(run)
    harnessed._leases += leases
    harnessed._clusters += [part("cluster-0"), part("cluster-1")]
    with pytest.raises(EmulatorError) if fails else contextlib.nullcontext():
        having(harnessed, keep=keep).close(failed=failed)
    ends = [f"{what} {name}" for name in "cba" for what in ("remove", "settle")]
    lease = "release lease-1" if keep and failed else "abandon lease-1 ['b']"
    assert told == [
        *("ask_to_stop a", "ask_to_stop c", "stop c", "stop b", "stop a"),
        *("close cluster-1", "close cluster-0"),
        *(one for one in ends if (keep and not failed) or not one.startswith("remove")),
        *(lease, "release lease-0"),
    ]


GPU = "cluster: {worker: {replicas: 1, gpus: 1}}"


@pytest.mark.parametrize(
    ("error", "required", "says"),
    [
        (EngineMissing("No Docker."), "", None),
        (EngineMissing("No Docker."), "network process", None),
        (EngineMissing("No Docker."), "docker", "docker"),
        (EngineMissing("No Docker."), "gpu docker process", "docker,gpu"),
        (Unsupported("No Docker.", lacks={"gpu"}), "docker", None),
        (Unsupported("No Docker.", lacks={"gpu", "docker"}), "gpu network docker", "docker,gpu"),
    ],
)
def test_a_test_is_skipped_where_the_machine_lacks_what_is_not_required(
    error: EmulatorError, required: str, says: str | None
) -> None:
    if isinstance(error, EngineMissing):
        error.engine = "docker"
    kind = pytest.skip.Exception if says is None else pytest.fail.Exception
    needed = frozenset(required.split())
    with pytest.raises(kind) as raised, harness.skipping([parse(TEXT)], needed):
        raise error
    wanted = "No Docker." if says is None else f"--emulator-require {says}, but: No Docker."
    assert raised.value.msg == wanted
    assert raised.value.pytrace == (says is None)


def test_an_engine_that_is_missing_skips_the_test(
    harnessed: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*what: object) -> None:
        error = EngineMissing("No Docker.")
        error.engine = "docker"
        raise error

    monkeypatch.setattr(harness, "make_available", missing)
    with pytest.raises(pytest.skip.Exception, match=r"No Docker\."):
        harnessed.run(SCENARIO)
    with pytest.raises(pytest.fail.Exception, match=r"--emulator-require docker, but: No Docker\."):
        having(harnessed, require=frozenset({"docker"})).up(SCENARIO)


def test_what_is_left_of_killed_tests_is_removed_and_what_is_used_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    removed: list[Any] = []

    def remove(*what: object) -> None:
        removed.append(what)
        if what[0] == "b":
            raise InUse("Another has it.")
        if what[0] == "c":
            raise EmulatorError("It does not answer.")

    monkeypatch.setattr(harness, "remove", remove)
    runs = tuple(Run(name, "docker", tmp_path / name) for name in "abcd")
    with caplog.at_level(logging.INFO, "emulator"):
        harness.recover(Claim(1, "t", 1, Need(), Capacity(1, 1), runs=runs))
    assert removed == [(one.run_id, one.engine, one.folder) for one in runs]
    assert [(one.levelname, one.getMessage()) for one in caplog.records] == [
        ("INFO", "b is not removed: another emulator uses it"),
        ("WARNING", "the resources of c are not removed: It does not answer."),
    ]
    caplog.clear()
    swept: list[Any] = []

    def recover_dead(broker: Broker, recover: object) -> None:
        swept.append(recover)
        if len(swept) > 1:
            raise EmulatorError("No disk.")

    monkeypatch.setattr(Broker, "recover_dead", recover_dead)
    harness.sweep()
    harness.sweep()
    assert swept == [harness.recover] * 2
    assert [one.getMessage() for one in caplog.records] == [
        "the resources of killed tests are not removed: No disk."
    ]


def test_the_warm_clusters_of_a_session_are_removed_from_engines_that_have_them(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[str] = []

    def remove_waiting(session: str) -> int:
        asked.append(session)
        if len(asked) > 1:
            raise EmulatorError("It does not answer.")
        return 1

    monkeypatch.setattr(DockerEngine, "remove_waiting", remove_waiting)
    harness.remove_waiting("one")
    harness.remove_waiting("two")
    assert asked == ["one", "two"]
    assert [one.getMessage() for one in caplog.records] == [
        "the warm clusters of this session are not removed: It does not answer."
    ]


def test_the_result_of_a_run_that_was_cut_off_is_that_of_its_folder(
    harnessed: Emulator, machine: Machine
) -> None:
    result = harnessed.run(SCENARIO)
    (run,) = harnessed.runs()
    again = replace(run, running=Running(lambda callbacks: result, RunCallbacks()))
    assert again.has_record
    assert again.result.final_step == 3
    assert again.result is not result
    assert Record(again.folder).run_id == result.run_id
    assert not replace(run, folder=run.folder / "no").has_record
