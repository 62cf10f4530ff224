"""Engines by name: ours, and one that another package brings."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emulator import engines
from emulator.engines.base import Measuring
from emulator.engines.capabilities import capabilities, capable
from emulator.engines.docker import DockerEngine
from emulator.engines.kubernetes import KubernetesEngine
from emulator.engines.memory import MemoryEngine
from emulator.engines.process import ProcessEngine
from emulator.engines.requirements import require_of
from emulator.errors import EngineMissing, Unsupported, UsageError
from emulator.faults.pause import Pausing
from emulator.faults.throttle import Throttling
from emulator.planning.requested import RunOptions
from emulator.runtime.clock import ManualClock
from emulator.session.execution import up
from emulator.supervisor.cleanup import find_all
from tests.asked import asked
from tests.conftest import Emulate, own

MODULE = """
from emulator.engines.process import ProcessEngine


class CloudEngine(ProcessEngine):
    name = "cloud"
    capabilities = ProcessEngine.capabilities | {"oom"}
"""

TEXT = (
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


@pytest.mark.parametrize(
    "kind", [DockerEngine, ProcessEngine, KubernetesEngine, MemoryEngine(ManualClock())]
)
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
    assert engines.names() == ("docker", "process", "kubernetes", "cloud")
    with contextlib.closing(engines.choose("cloud")) as engine:
        assert engine.name == "cloud"
    with pytest.raises(
        UsageError,
        match=r"no engine 'clout'\. Did you mean 'cloud'\? Engines: .*process, kubernetes, cloud",
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
    assert any("no_such_module" in text and "not looked at" in text for text in lines)


def test_a_run_does_not_close_an_engine_that_it_did_not_open(tmp_path: Path) -> None:
    clock = ManualClock()

    class Watched(MemoryEngine):
        closed = 0

        def close(self) -> None:
            self.closed += 1

    engine = Watched(clock)
    assert up(asked(TEXT), engine, RunOptions(out=tmp_path), clock=clock).exit_code == 0
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
    path.write_text(TEXT)
    run_id = own("far")
    done = emulate("up", path, "--engine", "cloud", "--run-id", run_id, "--out", emulate.out)
    assert done.returncode == 0, done.stderr
    assert json.loads((emulate.out / run_id / "plan.json").read_text())["engine"] == "cloud"
    again = emulate("up", path, "--engine", "clout", "--out", emulate.out)
    assert again.returncode == 2
    assert "Engines: auto, docker, process, kubernetes, cloud." in again.stderr
