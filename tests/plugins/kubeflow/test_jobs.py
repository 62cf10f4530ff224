"""Manifests as people write them, each with the scenario that it should be, and run to its end."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from emulator.planning.context import PlanContext
from emulator.planning.planner import make_plan
from emulator.scenario.given import Additions, load
from tests.cluster_objects import check
from tests.conftest import Emulate

JOBS = Path(__file__).parent / "jobs"
PROGRAMS = Path(__file__).parents[3] / "images" / "programs"
DATA = ("digits.py", "digits.csv.gz")


@dataclass(frozen=True)
class Job:
    """A manifest, and what it is run with."""

    manifest: str
    image: tuple[str, ...]
    configmap: str = ""
    """The name of the ConfigMap with its program."""
    files: tuple[str, ...] = ()
    """What that has."""
    place: str = ""
    """Where the files are in its containers."""
    conditions: Sequence[str] = ("Created", "Running", "Restarting", "Running", "Succeeded")
    """What the operator says of it, where one of its pods is preempted."""

    @property
    def name(self) -> str:
        return self.manifest.partition(".")[0]

    def expected(self) -> Path:
        return JOBS / f"{self.name}.expected.yaml"

    def faults(self) -> Path:
        return JOBS / f"{self.name}.faults.yaml"

    def configmaps(self, folder: Path) -> dict[str, Path]:
        """Make the ConfigMap as a folder with a file for each key."""
        if not self.configmap:
            return {}
        for file in self.files:
            shutil.copy(PROGRAMS / file, folder)
        return {self.configmap: folder}


ALL = [
    Job(
        "between-graph.yaml", ("tensorflow=cpu",), "graphs", ("graphs.py", *DATA), "/programs",
    ),
    Job("mwms.yaml", ("tensorflow=cpu",), "mwms", ("mwms.py", "events.py", *DATA), "/programs"),
    Job(
        "ddp.yaml",
        ("pytorch=pytorch", "programs=pytorch"),
        "ddp",
        ("ddp.py", "events.py", *DATA),
        "/given",
        ("Created", "Running", "Succeeded"),
    ),
    Job(
        "elastic.yaml", ("pytorch=pytorch",), "elastic", ("elastic.py", "events.py", *DATA),
        "/programs",
    ),
    Job("shards.values.yaml", ("ps=cpu", "worker=cpu"), conditions=()),
]  # fmt: skip
SITE = PlanContext("docker", lambda name: (name, 2222), str, lambda: (), "/shared", named=True)


@pytest.mark.parametrize("job", ALL, ids=lambda job: job.name)
def test_a_manifest_is_the_scenario_that_it_should_be(job: Job, tmp_path: Path) -> None:
    images = dict(pair.split("=") for pair in job.image)
    added = Additions(
        images,
        job.faults(),
        own={"configmap": {n: str(at) for n, at in job.configmaps(tmp_path).items()}},
    )
    made, meant = load(JOBS / job.manifest, added=added), load(job.expected())
    planned, expected = (make_plan(one, "job-1", SITE) for one in (made, meant))
    assert planned.tasks == expected.tasks
    assert (made.name, made.rules) == (meant.name, meant.rules)
    roles = made.cluster.values()
    containers: list[Any] = [made.program, *roles, *(step for role in roles for step in role.init)]
    files = {path for container in containers for path in container.files}
    assert files == {f"{job.place}/{name}" for name in job.files}


@pytest.mark.parametrize("job", ALL, ids=lambda job: job.name)
def test_the_page_has_the_command_that_runs_it(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (JOBS.parents[3] / "docs" / "kubeflow.md").read_text()
    (line,) = re.findall(rf"(?m)^emulate up {re.escape(job.manifest)} (.*)$", page)
    words = line.split()
    given = list(zip(words[::2], words[1::2], strict=True))
    images = [value for option, value in given if option == "--image"]
    maps = dict(value.split("=") for option, value in given if option == "--configmap")
    assert images == list(job.image)
    assert list(maps) == list(job.configmaps(tmp_path))
    monkeypatch.chdir(JOBS)
    folders = {name: Path(folder).resolve() for name, folder in maps.items()}
    assert set(folders.values()) <= {PROGRAMS}
    added = Additions(
        dict(pair.split("=") for pair in images),
        job.faults(),
        own={"configmap": {name: str(folder) for name, folder in folders.items()}},
    )
    assert load(Path(job.manifest), added=added).name == load(job.expected()).name
    assert dict(given)["--faults"] == job.faults().name


@pytest.mark.parametrize("job", ALL[:4], ids=lambda job: job.name)
def test_a_cluster_would_take_the_manifest(job: Job) -> None:
    documents = list(yaml.safe_load_all((JOBS / job.manifest).read_text()))
    check(next(one for one in documents if one["kind"].endswith("Job")))


@pytest.mark.parametrize(
    ("kind", "field"), [("TFJob", "tfReplicaSpecs"), ("PyTorchJob", "pytorchReplicaSpecs")]
)
def test_the_check_finds_unknown_fields(kind: str, field: str) -> None:
    document = {"apiVersion": "kubeflow.org/v1", "kind": kind, "metadata": {"name": "a"}}
    check({**document, "spec": {field: {}}})
    with pytest.raises(Exception, match="backofLimit"):
        check({**document, "spec": {field: {}, "backofLimit": 1}})


@pytest.mark.docker
@pytest.mark.usefixtures("docker_engine")
@pytest.mark.parametrize("job", ALL, ids=lambda job: job.name)
def test_a_manifest_runs_to_its_end(emulate: Emulate, job: Job, tmp_path: Path) -> None:
    folder = tmp_path / "configmap"
    folder.mkdir()
    arguments: Sequence[str] = [
        *(f"--image={pair}" for pair in job.image),
        *(f"--configmap={name}={path}" for name, path in job.configmaps(folder).items()),
        f"--faults={job.faults()}",
        *("--set", "timeout=20m"),
    ]
    done = emulate.up(JOBS / job.manifest, "--engine", "docker", *arguments)
    assert done.returncode == 0, done.stderr[-3000:]
    summary = done.json
    assert summary["verdict"] == "ok"
    (run,) = emulate.out.iterdir()
    kept = next(path for path in run.iterdir() if path.name.startswith("manifest."))
    assert kept.read_text() == (JOBS / job.manifest).read_text()
    conditions = [condition["type"] for condition in summary.get("conditions", [])]
    assert tuple(conditions) == job.conditions
