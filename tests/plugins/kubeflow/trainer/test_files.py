"""A TrainJob with its runtime in another file: from the files to the end of a run."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from emulator.errors import ScenarioError, UsageError
from emulator.scenario.given import Additions, read_scenario
from tests.conftest import Emulate
from tests.plugins.kubeflow.trainer.test_trainer import STEP, job_of, runtime, train_job


def written(folder: Path) -> tuple[Path, Path]:
    """Write a TrainJob, and its runtime, whose tasks look up the first of them."""
    # One that has ended has no name any more: each stays until the other has looked up too.
    lookup = """
        [ "$JOB_COMPLETION_INDEX" = "$EMULATOR_INDEX" ] && getent hosts "$FIRST" || exit
        touch "$EMULATOR_SHARED/$EMULATOR_INDEX"
        until [ -e "$EMULATOR_SHARED/$((1 - EMULATOR_INDEX))" ]; do sleep 0.1; done
    """
    first = {"name": "FIRST", "value": "mnist-node-0-0.mnist"}
    trainer = {"numNodes": 2, "command": ["sh", "-c", lookup], "env": [first]}
    job, own = folder / "job.yaml", folder / "runtime.yaml"
    job.write_text(yaml.dump(train_job("own", trainer=trainer)))
    own.write_text(yaml.dump(runtime(job_of())))
    return job, own


def test_the_runtime_may_be_in_another_file_which_is_kept_with_the_run(tmp_path: Path) -> None:
    job, own = written(tmp_path)
    with pytest.raises(ScenarioError, match="there is no ClusterTrainingRuntime own"):
        read_scenario(job, Additions(images={"node": "i"}))
    given = read_scenario(job, Additions(others=(own,)))
    assert given.parse().cluster["node"].replicas == 2
    assert [*given.kept] == ["manifest.yaml", "manifest-1.yaml"]
    assert f"--with={own}" in Additions(others=(own,)).again(job, "docker", [])


def test_a_mistake_in_the_other_file_is_reported_there(tmp_path: Path) -> None:
    job, own = written(tmp_path)
    own.write_text(own.read_text().replace(f"{STEP}: trainer", "other: trainer"))
    with pytest.raises(ScenarioError, match=r"runtime.yaml:\d+: spec.template.spec.replicatedJobs"):
        read_scenario(job, Additions(others=(own,)))
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text("name: a\nprogram: {command: [a]}\ncluster: {worker: 1}\n")
    with pytest.raises(UsageError, match="--with is for manifests"):
        read_scenario(scenario, Additions(others=(own,)))


def test_a_train_job_runs_to_its_end(
    emulate: Emulate, either_engine: tuple[str, str], tmp_path: Path
) -> None:
    engine, image = either_engine
    job, own = written(tmp_path)
    part = tmp_path / "part.yaml"
    part.write_text("expect: {steps: none}\ntimeout: 5m\n")
    options = ("--with", own, "--image", f"node={image}", "--faults", part)
    done = emulate.up(job, "--engine", engine, *map(str, options))
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.json["verdict"] == "ok"
