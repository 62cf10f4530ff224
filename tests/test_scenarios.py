"""The scenarios that come with the emulator, on real engines with real TensorFlow.

Each must earn its verdict, and leave nothing behind.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from emulator.engines.docker import DockerEngine
from emulator.engines.process import ProcessEngine
from tests.conftest import Emulate
from tests.test_recount import agrees

ROOT = Path(__file__).parent.parent
SMALL = ["quickstart", "single", "mwms", "parameter-server"]


def trained(emulate: Emulate, name: str, engine: str) -> dict[str, Any]:
    done = emulate.up(ROOT / "scenarios" / f"{name}.yaml", "--engine", engine)
    assert done.returncode == 0, done.stderr[-6000:]
    summary = done.json
    assert (summary["outcome"], summary["verdict"]) == ("succeeded", "ok")
    assert summary["accuracy"] >= 0.9
    assert 0 < summary["startup"]["all_running"] < summary["startup"]["first_step"]
    assert summary["throughput"]["steps_per_second"] > 0
    assert sum(summary["time"].values()) == pytest.approx(summary["duration"], abs=1e-4)
    assert 0 < summary["time"]["productive"] < summary["duration"]
    agrees(emulate.out / summary["run_id"], summary)
    engines = {"docker": DockerEngine, "process": ProcessEngine}
    assert engines[engine]().find(summary["run_id"]) == []
    left = sorted(path.name for path in (emulate.out / summary["run_id"]).iterdir())
    assert [name for name in left if not name.endswith(".lock")] == [
        "history.jsonl",
        "junit.xml",
        "logs",
        "plan.json",
        "report.html",
        "report.md",
        "samples.jsonl",
        "scenario.yaml",
        "summary.json",
        "verdicts.json",
    ]
    return dict(summary)


@pytest.mark.docker
@pytest.mark.parametrize("name", [*SMALL, "pytorch", "cluster-25"])
def test_a_scenario_trains_in_docker(
    emulate: Emulate, docker_engine: DockerEngine, name: str
) -> None:
    trained(emulate, name, "docker")


@pytest.mark.tensorflow
@pytest.mark.parametrize("name", SMALL)
def test_a_scenario_trains_as_processes(emulate: Emulate, host_tensorflow: None, name: str) -> None:
    trained(emulate, name, "process")


@pytest.mark.docker
@pytest.mark.parametrize(
    ("name", "restarts"),
    [
        ("mwms-preemption", 1),
        ("mwms-kill-during-checkpoint", 1),
        ("ps-loss", 1),
        ("chief-preemption", 0),
        ("spot-market", 0),
        ("spot-trace", 0),
        ("rolling-restart", 0),
    ],
)
def test_a_training_survives_its_faults(
    emulate: Emulate, docker_engine: DockerEngine, name: str, restarts: int
) -> None:
    summary = trained(emulate, name, "docker")
    assert summary["restarts"] == restarts
    assert summary["faults"]
    for fault in summary["faults"]:
        assert fault["status"] == "applied"
        assert fault["exit_code"] in (137, 143)
        assert 0 < fault["gone"] < fault["back"] <= fault["stepped"]


@pytest.mark.docker
def test_a_partition_stops_synchronous_training_until_it_is_healed(
    emulate: Emulate, docker_engine: DockerEngine
) -> None:
    summary = trained(emulate, "partition-heals", "docker")
    (fault,) = summary["faults"]
    assert fault["status"] == "applied"
    assert fault["rate_during"] < 0.3 * fault["rate_before"]
    assert (summary["restarts"], summary["steps"]["lost"]) == (0, 0)
    assert summary["time"]["stall"] > 1


@pytest.mark.docker
def test_a_replaced_worker_is_used_at_a_new_and_at_its_old_address(
    emulate: Emulate, docker_engine: DockerEngine
) -> None:
    path = ROOT / "scenarios" / "ps-worker-preemption.yaml"
    vary = "faults.0.address=new,same"
    done = emulate.up(path, "--engine", "docker", "--vary", vary)
    assert done.returncode == 0, done.stderr[-6000:]
    for summary in done.json:
        (fault,) = summary["faults"]
        assert (fault["status"], fault["exit_code"]) == ("applied", 143)
        assert 0 < fault["gone"] < fault["back"] <= fault["stepped"]
        assert summary["restarts"] == 0


@pytest.mark.docker
def test_workers_that_are_told_to_leave_save_together_and_lose_no_step(
    emulate: Emulate, docker_engine: DockerEngine
) -> None:
    summary = trained(emulate, "mwms-grace", "docker")
    (fault,) = summary["faults"]
    assert (fault["status"], fault["exit_code"], fault["killed"]) == ("applied", 42, False)
    assert (summary["restarts"], summary["steps"]["lost"]) == (1, 0)
    lines = (emulate.out / summary["run_id"] / "history.jsonl").read_text().splitlines()
    history = [json.loads(line) for line in lines]
    assert [e["exit_code"] for e in history if e["event"] == "exit"] == [42, 42, 0, 0]
    told = [e for e in history if e["event"] == "phase" and e["state"] == "end"]
    for worker in ("worker-0", "worker-1"):
        first, last = (e["step"] for e in told if (e["task"], e["phase"]) == (worker, "checkpoint"))
        restored = [e["step"] for e in told if (e["task"], e["phase"]) == (worker, "restore")]
        assert 200 < first < last < 600  # at the notice, and at the end of the grace period
        assert restored == [last]


@pytest.mark.docker
def test_a_straggler_slows_synchronous_training_and_not_asynchronous(
    emulate: Emulate, docker_engine: DockerEngine
) -> None:
    shares = {}
    for name in ("straggler", "straggler-async"):
        (fault,) = trained(emulate, name, "docker")["faults"]
        shares[name] = fault["rate_during"] / fault["rate_before"]
    assert shares["straggler"] < shares["straggler-async"]


@pytest.mark.tensorflow
def test_a_training_of_processes_survives_as_well(emulate: Emulate, host_tensorflow: None) -> None:
    assert trained(emulate, "ps-worker-preemption", "process")["faults"][0]["status"] == "applied"


@pytest.mark.docker
def test_a_training_without_checkpoints_loses_everything_and_is_said_to(
    emulate: Emulate, docker_engine: DockerEngine
) -> None:
    done = emulate.up(ROOT / "scenarios" / "naive-loses-everything.yaml", "--engine", "docker")
    assert done.returncode == 1
    statuses = {verdict["expectation"]: verdict["status"] for verdict in done.json["verdicts"]}
    assert statuses == {
        "outcome": "ok",
        "faults": "ok",
        "final_step": "ok",
        "max_lost_steps": "failed",
    }
    assert done.json["steps"]["lost"] > 1000
    assert done.json["time"]["wasted"] > 1


@pytest.mark.docker
def test_a_model_that_learns_nothing_is_noticed(
    emulate: Emulate, docker_engine: DockerEngine
) -> None:
    """One step is no training: what each scenario expects must be able to fail."""
    command = "program.command=[python, quickstart.py, --steps, '1']"
    done = emulate.up("quickstart", "--engine", "docker", "--set", command)
    assert done.returncode == 1
    statuses = {verdict["expectation"]: verdict["status"] for verdict in done.json["verdicts"]}
    assert statuses["outcome"] == "ok"
    assert statuses["final_step"] == statuses["accuracy"] == "failed"


@pytest.mark.docker
def test_the_starter_runs_as_it_is(
    emulate: Emulate, docker_engine: DockerEngine, tmp_path: Path
) -> None:
    assert emulate("init", tmp_path / "mine").returncode == 0
    done = emulate.up(tmp_path / "mine" / "scenario.yaml", "--engine", "docker")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "learned y = 3.00 x + 2.00" in done.stderr


@pytest.mark.docker
def test_an_installed_wheel_has_the_same_images_and_runs_the_bundled_scenarios(
    docker_engine: DockerEngine, tmp_path: Path
) -> None:
    pip = [sys.executable, "-m", "pip", "--quiet"]
    wheels, site = tmp_path / "wheels", tmp_path / "site"
    subprocess.run(
        [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", wheels, ROOT], check=True
    )
    (wheel,) = wheels.glob("*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", site, wheel], check=True)
    done = subprocess.run(
        [sys.executable, "-m", "emulator", "up", "quickstart", "--engine", "docker", "--json"],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(site), "HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "building" not in done.stderr  # the checkout's image is the wheel's
    plan = json.loads(next((tmp_path / "runs").glob("*/plan.json")).read_text())
    assert plan["tasks"][0]["source"].startswith(str(site))
    assert len(list((tmp_path / "runs").glob("*/report.html"))) == 1


@pytest.mark.docker
def test_the_requirements_of_the_gpu_image_resolve(docker_engine: DockerEngine) -> None:
    """The image has 7 GB and is not built here; that what it asks for exists is cheap to see."""
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
    done = subprocess.run(
        [*pip, "--report", "-", "-r", str(ROOT / "images" / "requirements" / "gpu.txt")],
        capture_output=True,
        text=True,
        check=True,
    )
    chosen = {item["metadata"]["name"] for item in json.loads(done.stdout)["install"]}
    assert {"tensorflow", "tf_keras", "numpy", "nvidia-cudnn-cu12"} <= chosen
