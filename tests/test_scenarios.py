"""The scenarios that come with the emulator, where more is to be said than that they are ok.

That each earns its verdict in Docker is what `pytest scenarios/` runs; the `conftest.py` at the top
looks at what every run must be like, and `stricter.py` has what runs of some scenarios must show.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from emulator.engines.docker import DockerEngine
from emulator.planning.claims import Need
from emulator.pytest_plugin.harness import Emulator, recover
from emulator.results import Result
from emulator.scenario.loader import load
from tests.clusters import ForTest
from tests.conftest import Emulate
from tests.gallery.this_session import result_of

ROOT = Path(__file__).parent.parent
SMALL = ["quickstart", "mwms"]
PATIENT = ("--set", "timeout=20m")


def pip(*words: str | Path) -> str:
    """Have pip do something, with patience; return what it prints."""
    command = [sys.executable, "-m", "pip", "--quiet", "--retries", "10", "--timeout", "60", *words]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


@pytest.fixture
def core(
    request: pytest.FixtureRequest, emulator: Emulator, docker_engine: DockerEngine
) -> Iterator[None]:
    """A core of the machine, for a test whose work asks for none itself: what trains beside it may
    have its rates compared.
    """
    with emulator.untimed():
        lease = emulator.broker.acquire(
            request.node.nodeid, Need(cpus=1), docker_engine.capacity(), recover=recover
        )
    with lease:
        yield


@pytest.mark.tensorflow
@pytest.mark.usefixtures("host_tensorflow")
@pytest.mark.parametrize("name", SMALL)
def test_a_scenario_trains_as_processes(emulator: Emulator, name: str) -> None:
    emulator.run(name, engine="process").check()


@pytest.mark.tensorflow
@pytest.mark.usefixtures("host_tensorflow")
@pytest.mark.scenario("ps-worker-preemption", engine="process")
def test_a_training_of_processes_survives_as_well(run: Result) -> None:
    assert [fault.status for fault in run.analysis.faults] == ["applied"]


@pytest.mark.kubernetes
@pytest.mark.usefixtures("core")
@pytest.mark.parametrize(("name", "workers"), [("mwms-preemption", 2), ("ddp-preemption", 1)])
def test_a_cluster_gives_the_verdicts_that_docker_gives(
    emulate: Emulate,
    kubernetes_cluster: ForTest,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    workers: int,
) -> None:
    """In Docker, `pytest scenarios/` runs them: there all expectations are met."""
    monkeypatch.setenv("KUBECONFIG", str(kubernetes_cluster.kubeconfig))
    # Pods that ask for nothing get a core only when nothing else wants it.
    group = f"cluster.worker={{replicas: {workers}, cpus: 0.9}}"
    (path,) = ROOT.glob(f"scenarios/*/{name}.yaml")
    expected = load(path).expect.model_fields_set
    patient = list(PATIENT)
    if "recovers_within" in expected:  # 60 s; a node whose cores others have took 66 s
        patient += ["--set", "expect.recovers_within=5m"]
    done = emulate.up(name, *patient, "--set", group, *kubernetes_cluster.arguments)
    assert done.returncode == 0, done.stderr[-3000:]
    verdicts = {one["expectation"]: one["status"] for one in done.json["verdicts"]}
    assert verdicts == dict.fromkeys(("outcome", "faults", *expected), "ok")
    assert [fault["status"] for fault in done.json["faults"]] == ["applied"]


@pytest.mark.docker
@pytest.mark.usefixtures("docker_engine")
def test_a_training_without_checkpoints_loses_everything_and_is_said_to(emulator: Emulator) -> None:
    run = result_of(emulator, "careless-tensorflow", check=False)
    statuses = {verdict.expectation: verdict.status for verdict in run.verdicts}
    assert statuses == {
        "outcome": "ok",
        "faults": "ok",
        "final_step": "ok",
        "max_lost_steps": "failed",
    }
    assert run.exit_code == 1
    assert run.lost_steps is not None
    assert run.lost_steps > 500
    assert run.analysis.time["wasted"] > 1


@pytest.mark.docker
@pytest.mark.usefixtures("core")
@pytest.mark.parametrize("options", [["--rdzv_backend=c10d"], []], ids=["c10d", "static"])
def test_torchrun_finds_the_other_tasks(
    emulate: Emulate, docker_engine: DockerEngine, options: list[str]
) -> None:
    """With c10d and no endpoint, each would wait for the other on its own localhost."""
    command = ["torchrun", *options, "ddp.py", "--steps", "200"]
    done = emulate.up(
        "pytorch", "--engine", "docker", *PATIENT, "--set", f"program.command={command}"
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "only used for static" not in done.stderr


@pytest.mark.docker
@pytest.mark.usefixtures("core")
def test_a_model_that_learns_nothing_is_noticed(
    emulate: Emulate, docker_engine: DockerEngine
) -> None:
    """One step is no training: what each scenario expects must be able to fail."""
    command = "program.command=[python, quickstart.py, --steps, '1']"
    done = emulate.up("quickstart", "--engine", "docker", *PATIENT, "--set", command)
    assert done.returncode == 1
    statuses = {verdict["expectation"]: verdict["status"] for verdict in done.json["verdicts"]}
    assert statuses["outcome"] == "ok"
    assert statuses["final_step"] == statuses["accuracy"] == "failed"


@pytest.mark.docker
@pytest.mark.usefixtures("core")
def test_an_installed_wheel_has_the_same_images_and_runs_the_bundled_scenarios(
    docker_engine: DockerEngine, tmp_path: Path
) -> None:
    wheels, own = tmp_path / "wheels", tmp_path / "environment"
    pip("wheel", "--no-deps", "--no-build-isolation", "-w", wheels, ROOT)
    (wheel,) = wheels.glob("*.whl")
    assert wheel.name.startswith("training_emulator-")
    venv.EnvBuilder(symlinks=True).create(own)  # empty: what the wheel needs, it says
    pip("--python", own, "install", wheel)
    (site,) = own.glob("lib/python*/site-packages")
    suite = Path("images", "suite", ".github", "workflows", "training.yml")
    assert (site / "emulator" / "bundled" / suite).read_text() == (ROOT / suite).read_text()

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [own / "bin" / "emulate", *words],
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert run("--version").stdout == f"emulate {version}\n"
    assert run("init", "mine").returncode == 0
    assert run("plan", "mine/scenario.yaml").returncode == 0
    done = run("demo")  # with what the wheel asks for and nothing else
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "mended    preempted at step " in done.stdout
    shutil.rmtree(tmp_path / "runs")
    done = run("up", "quickstart", "--engine", "docker", "--json")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "building" not in done.stderr  # the checkout's image is the wheel's
    plan = json.loads(next((tmp_path / "runs").glob("*/plan.json")).read_text())
    assert plan["tasks"][0]["source"].startswith(str(site))
    assert len(list((tmp_path / "runs").glob("*/report.html"))) == 1


@pytest.mark.docker
@pytest.mark.usefixtures("core")
def test_the_requirements_of_the_gpu_image_resolve(docker_engine: DockerEngine) -> None:
    """The image has 7 GB and is not built here; that what it asks for exists is cheap to see."""
    requirements = ROOT / "images" / "requirements" / "gpu.txt"
    how = ("--dry-run", "--ignore-installed", "--report", "-", "-r", requirements)
    # Of its wheels, 3 GB, only what they require is read.
    report = json.loads(pip("--use-feature", "fast-deps", "install", *how))
    chosen = {item["metadata"]["name"] for item in report["install"]}
    assert {"tensorflow", "tf_keras", "numpy", "nvidia-cudnn-cu12"} <= chosen
