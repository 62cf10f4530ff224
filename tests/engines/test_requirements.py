"""Engines by name; what a scenario asks of one, and which key of it does."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from emulator import engines
from emulator.engines.base import Measuring
from emulator.engines.capabilities import capabilities, capable
from emulator.engines.docker import DockerEngine
from emulator.engines.memory import MemoryEngine
from emulator.engines.process import ProcessEngine
from emulator.engines.requirements import (
    machine_needs,
    needs_of_keys,
    require,
    require_of,
)
from emulator.errors import EngineMissing, Misfit, Unsupported, UsageError
from emulator.faults.held import Pausing, Throttling
from emulator.planning.claims import Capacity
from emulator.planning.requested import RunOptions
from emulator.runtime.clock import ManualClock
from emulator.scenario.loader import parse, placed
from emulator.scenario.manifests import ConversionNote
from emulator.session.ready import make_ready
from emulator.session.run import up
from emulator.supervisor.cleanup import find_all
from tests.asked import asked
from tests.conftest import Emulate, own

TEXT = """\
name: a
framework: none
image: none
program: {command: [python, train.py]}
cluster:
  worker:
    replicas: 2
    cpus: 0.5
faults:
  - {pause: worker-0, at: 1s, for: 1s}
  - {throttle: worker-1, cpus: 0.1, at: 5s, for: 1s}
network: {internet: false}
"""


def refusal(text: str, *sets: str) -> Unsupported:
    with pytest.raises(Unsupported) as refused, placed(text, "w.yaml", sets):
        require(parse(text, sets=sets), ProcessEngine())
    return refused.value


def test_what_an_engine_lacks_has_its_line() -> None:
    """As every other mistake in a scenario, all at once and in the order of the file."""
    lacks, hint = "the process engine can't do this:", "(use --engine docker, or leave these out)"
    assert refusal(TEXT).message.splitlines() == [
        f"w.yaml:8: cluster.worker.cpus: {lacks} a CPU limit for worker {hint}",
        f"w.yaml:11: faults.1: {lacks} throttling worker-1 {hint}",
        f"w.yaml:12: network.internet: {lacks} a network without internet {hint}",
    ]
    assert refusal(TEXT).lacks == {"docker"}


def test_what_an_option_asks_for_is_not_said_of_the_file() -> None:
    said = refusal(TEXT, "network.delay=5ms", "network.internet=true").message
    assert "--set network.delay=5ms: network.delay: the process engine can't do this" in said
    assert "w.yaml:12" not in said


LEAST = "name: a\nprogram: {command: [b]}\n"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("framework: ray\ncluster: {head: 1}", "framework"),
        ("framework: none\ncluster: {a: 1}\nshm_size: 1g", "shm_size"),
        ("framework: none\ncluster: {a: {replicas: 2, ports: [8]}}", "cluster"),
        ("framework: none\ncluster: {a: {gpus: 1}}", "cluster.a.gpus"),
    ],
)
def test_the_key_is_named_that_asks_for_something(text: str, key: str) -> None:
    with pytest.raises(Unsupported) as refused:
        require(parse(LEAST + text), ProcessEngine())
    assert [".".join(map(str, path)) for path, _ in refused.value.keys] == [key]


RICH = """\
name: a
framework: none
image: none
shm_size: 1g
ulimits: {nofile: 100}
mounts: {/data: {tmpfs: 1g}}
program: {command: [], working_dir: /there, files: {/a.txt: hi}}
cluster:
  worker:
    replicas: 2
    cpus: 1
    memory: 1GiB
    processes: 16
    gpus: 1
    ports: [8]
    shm_size: 1g
    mounts:
      /etc: {path: /etc, writable: true}
      /usr: {path: /usr}
      /own: {path: /etc, writable: true}
      /s: {scratch: s}
    init:
      - {name: fetch, command: [c], processes: 16, mounts: {/m: {path: /etc, writable: true}}}
      - {name: check, command: [c], processes: 16}
      - {name: log, command: [c]}
  ps:
    replicas: 1
    command: [c]
    ports: [{port: 9, host_port: 10}, {port: 11, host_port: 11}]
    working_dir: /w
    files: {/b.txt: hi}
    ulimits: {nofile: 100}
helpers:
  board: {command: [], ports: [8], cpus: 1}
  other: {command: [c]}
network: {metadata: closed, delay: 5ms, bandwidth: 1Gbit}
faults: [{pause: worker-0, at: 1s, for: 1s}]
"""
ASKED = """\
mounts scratch: a mount at /data for every task
shm_size limits: a size of /dev/shm for every task
ulimits process-limits: ulimits for every task
cluster.worker.mounts mounts: a mount at /usr for worker
cluster.worker.mounts mounts: a mount at /own for worker
cluster.worker.mounts scratch: a mount at /s for worker
cluster.worker.shm_size limits: a size of /dev/shm for worker
cluster.worker.cpus limits: a CPU limit for worker
cluster.worker.memory limits: a memory limit for worker
cluster.worker.processes process-limits: a limit of processes for worker
cluster.worker.ports ports: published ports of worker
cluster.worker.gpus gpus: GPUs for worker
cluster.worker.command pods: the image's own command for worker
cluster.worker.working_dir pods: the working directory /there for worker
cluster.worker.files pods: files for worker
cluster.worker.init pods: init steps for worker
cluster.worker.mounts mounts: a mount at /m for fetch of worker
cluster.worker.processes process-limits: a limit of processes for fetch of worker
cluster.worker.processes process-limits: a limit of processes for check of worker
cluster.ps.ulimits process-limits: ulimits for ps
cluster.ps.working_dir pods: the working directory /w for ps
cluster.ps.files pods: files for ps
cluster.ps.ports ports: published ports of ps
cluster.ps.ports port-mapping: port 9 of ps at another port, 10
helpers.board.cpus limits: a CPU limit for board
helpers.board.ports ports: published ports of board
helpers.board.command pods: the image's own command for board
cluster port-mapping: port 8 for 3 tasks
network.metadata isolation: a closed metadata address
network.delay network: network delay
network.bandwidth network: limited bandwidth
faults.0 pause: pausing worker-0
"""
BARE = "framework: none\ncluster: {a: 1, b: {replicas: 1, ports: [7]}}\nnetwork: {metadata: open}\n"


def test_everything_that_a_scenario_can_ask_for_has_its_capability() -> None:
    found = [
        f"{'.'.join(map(str, path))} {capability}: {what}"
        for path, what, capability in needs_of_keys(parse(RICH))
    ]
    assert found == ASKED.splitlines()
    ports = (("cluster", "b", "ports"), "published ports of b", "ports")
    assert list(needs_of_keys(parse(LEAST + BARE))) == [ports]


class Small(MemoryEngine):
    """It can do little, and has little memory; whether that was asked for is noted."""

    def __init__(self, *lacking: str) -> None:
        super().__init__(ManualClock(), {})
        self.capabilities = self.capabilities - {*lacking}
        self.asked = 0

    def capacity(self) -> Capacity:
        self.asked += 1
        return Capacity(1, 2**30)


def test_a_machine_has_the_memory_of_each_limit_or_the_scenario_is_refused() -> None:
    engine = Small()
    cluster = "framework: none\ncluster: {{a: {{replicas: 1{}}}}}\n"
    require(parse(LEAST + cluster.format("")), engine)
    assert engine.asked == 0
    require(parse(LEAST + cluster.format(", memory: 1GiB")), engine)
    assert engine.asked == 1
    for text, path in (
        (cluster.format(", memory: 2GiB"), "cluster.a.memory"),
        (cluster.format("") + "helpers: {b: {command: [c], memory: 2GiB}}", "helpers.b.memory"),
    ):
        with pytest.raises(Misfit, match=f"^{path}: 2.0 GiB is more than the 1.0 GiB that the"):
            require(parse(LEAST + text), engine)


def test_each_key_is_named_of_what_an_engine_lacks_and_of_nothing_else(tmp_path: Path) -> None:
    text = LEAST + BARE.replace("{metadata: open", "{metadata: closed, delay: 5ms")
    with pytest.raises(Unsupported) as refused:
        require(parse(text), Small("isolation", "ports"))
    assert refused.value.keys == (
        (("cluster", "b", "ports"), "the memory engine can't do this: published ports of b"),
        (("network", "metadata"), "the memory engine can't do this: a closed metadata address"),
    )
    assert str(refused.value) == (
        "The memory engine can't do this: published ports of b; a closed metadata address. "
        "Use --engine docker, or leave these out."
    )
    with pytest.raises(Unsupported):
        make_ready(asked(text), Small("isolation"), RunOptions(out=tmp_path))
    options = RunOptions(out=tmp_path, run_id="run-1", gpus=["a"])
    bare, note = asked(LEAST + BARE), ConversionNote("spec.a", "ignored", "why")
    noted = replace(bare, given=replace(bare.given, notes=(note,)))
    plan, folder = make_ready(noted, Small(), options)
    assert (plan.run_id, folder) == ("run-1", tmp_path / "run-1")
    assert "spec.a is ignored: why" in plan.warnings
    with pytest.raises(UsageError, match=r"bytes that are not text\. Choose"):
        make_ready(bare, Small(), RunOptions(out=Path(f"{tmp_path}/\udcff")))
    needs = [(name, name) for name in DockerEngine.capabilities]  # no engine has to have more
    with pytest.raises(Unsupported, match="Use --engine docker, or leave these out") as refused:
        require_of(Small(*DockerEngine.capabilities), needs)
    assert refused.value.lacks == {"docker", "gpu", "network"}
    assert machine_needs(DockerEngine, ["gpus", "network", "pods"]) == {"docker", "gpu", "network"}
    assert machine_needs(DockerEngine, ["pods"]) == {"docker"}


# --- The capacity of engines; the contract suite tests it for all of them -------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the cores of a process")
def test_only_the_cores_that_this_process_may_use_count() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert ProcessEngine().capacity().cpus == 1
    finally:
        os.sched_setaffinity(0, before)
    has = ProcessEngine().capacity()
    assert (has.cpus, has.gpus) == (len(before), ())
    assert has.memory == psutil.virtual_memory().total


def test_the_engine_in_memory_has_plenty_and_the_gpus_it_was_made_with() -> None:
    has = MemoryEngine(ManualClock(), gpus=("a", "b")).capacity()
    assert (has.cpus >= 1000, has.memory >= 2**40, has.gpus) == (True, True, ("a", "b"))


# --- Engines by name: ours, and one that another package brings -----------------------------------

MODULE = """
from emulator.engines.process import ProcessEngine


class CloudEngine(ProcessEngine):
    name = "cloud"
    capabilities = ProcessEngine.capabilities | {"oom"}
"""

FAR = (
    "name: far\nframework: none\nimage: none\nprogram: {command: ['true']}\ncluster: {worker: 1}\n"
)
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Return what installs a distribution with an engine: into a folder on the path."""
    folder = tmp_path / "site"

    def write(place: str = "cloud_engine:CloudEngine", name: str = "cloud") -> None:
        info = folder / "cloud_engine-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: cloud-engine\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[emulator.engines]\n{name} = {place}\n")
        (folder / "cloud_engine.py").write_text(MODULE)
        monkeypatch.syspath_prepend(folder)
        path = os.environ.get("PYTHONPATH", "")
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(folder), path])))

    yield write
    sys.modules.pop("cloud_engine", None)


def test_our_engines_are_known_without_an_entry_point(install: Install) -> None:
    assert engines.names()[:2] == ("docker", "process")
    assert engines.engine_class("docker") is DockerEngine
    install(name="process")  # and no other package takes its place
    assert engines.engine_class("process") is ProcessEngine


@pytest.mark.parametrize("kind", [*engines.engine_classes(), MemoryEngine(ManualClock())])
def test_an_engine_has_the_methods_of_each_capability_that_it_names(
    kind: type[ProcessEngine],
) -> None:
    assert kind.capabilities <= set(capabilities())
    assert set(kind.machine_needs) <= kind.capabilities
    for name in kind.capabilities:
        if protocol := capabilities()[name]:
            methods = {one for one in vars(protocol) if not one.startswith("_")}
            assert methods, protocol
            assert all(hasattr(kind, method) for method in methods), name


def test_the_methods_of_a_capability_are_for_engines_that_name_it() -> None:
    engine = MemoryEngine(ManualClock(), measured=False)
    assert capable(engine, Pausing) is engine
    with pytest.raises(Unsupported, match="memory engine lacks the capability usage"):
        capable(engine, Measuring)
    with pytest.raises(Unsupported, match="process engine lacks the capability throttle"):
        capable(ProcessEngine(), Throttling)


def test_an_engine_of_another_package_is_chosen_by_its_name(install: Install) -> None:
    install()
    assert {*engines.names()} >= {"docker", "process", "cloud"}
    with contextlib.closing(engines.choose("cloud")) as engine:
        assert engine.name == "cloud"
    with pytest.raises(
        UsageError,
        match=r"no engine 'clout'\. Did you mean 'cloud'\? Engines: .*process, .*cloud",
    ):
        engines.choose("clout")


@pytest.mark.parametrize("name", ["process", "memory"])
def test_what_an_engine_refuses_names_one_that_can(install: Install, name: str) -> None:
    engine = ProcessEngine() if name == "process" else MemoryEngine(ManualClock())
    engine.capabilities -= {"oom"}
    with pytest.raises(Unsupported, match="Use --engine docker, or leave these out") as refused:
        require_of(engine, [("running worker-0 out of memory", "oom")])
    assert refused.value.lacks == {"docker"}
    with pytest.raises(Unsupported, match=r"Leave these out\.") as refused:
        require_of(engine, [("travel in time", "time-travel")])
    assert refused.value.lacks == set()


def test_what_only_another_package_s_engine_can_do_names_that(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install()
    monkeypatch.setattr(DockerEngine, "capabilities", DockerEngine.capabilities - {"oom"})
    with pytest.raises(Unsupported, match="Use --engine cloud") as refused:
        require_of(ProcessEngine(), [("running worker-0 out of memory", "oom")])
    assert refused.value.lacks == {"cloud"}


def test_a_machine_needs_more_than_docker_for_some_of_it() -> None:
    with pytest.raises(Unsupported) as refused:
        require_of(ProcessEngine(), [("GPUs for worker", "gpus"), ("network delay", "network")])
    assert refused.value.lacks == {"docker", "gpu", "network"}


def test_an_engine_that_can_not_be_imported_breaks_nothing_else(
    install: Install, tmp_path: Path
) -> None:
    install("no_such_module:Engine")
    with pytest.raises(EngineMissing, match="engine cloud can't be loaded from no_such_module"):
        engines.choose("cloud")
    assert {one.name for one in engines.engine_classes()} >= {"docker", "process"}
    lines: list[str] = []
    find_all(tmp_path, lines.append)
    assert not [text for text in lines if "no_such_module" in text]  # no run was there


def test_a_run_does_not_close_an_engine_that_it_did_not_open(tmp_path: Path) -> None:
    clock = ManualClock()

    class Watched(MemoryEngine):
        closed = 0

        def close(self) -> None:
            self.closed += 1

    engine = Watched(clock)
    assert up(asked(FAR), engine, RunOptions(out=tmp_path), clock=clock).exit_code == 0
    assert engine.closed == 0


def test_answering_yields_open_engines_and_closes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []
    monkeypatch.setattr(ProcessEngine, "close", lambda engine: closed.append(engine.name))
    for engine in engines.answering(engines.AUTO, lambda error: None):
        assert engine.name not in closed
    assert "process" in closed


def test_the_commands_know_an_engine_of_another_package(
    install: Install, emulate: Emulate, tmp_path: Path
) -> None:
    install()
    path = tmp_path / "scenario.yaml"
    path.write_text(FAR)
    run_id = own("far")
    done = emulate("up", path, "--engine", "cloud", "--run-id", run_id, "--out", emulate.out)
    assert done.returncode == 0, done.stderr
    assert json.loads((emulate.out / run_id / "plan.json").read_text())["engine"] == "cloud"
    again = emulate("up", path, "--engine", "clout", "--out", emulate.out)
    assert again.returncode == 2
    assert "Engines: auto, docker, process, kubernetes, cloud." in again.stderr
