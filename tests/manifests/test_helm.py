"""Helm values of two kinds as scenarios: what becomes of each key, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from emulator.engines.memory import MemoryEngine
from emulator.errors import ScenarioError, UsageError
from emulator.manifests import helm_jobs, helm_statefulsets
from emulator.manifests.convert import Additions, Given, load, read_scenario
from emulator.planning.plan import Plan
from emulator.planning.planner import make_plan
from emulator.runtime.clock import ManualClock
from emulator.scenario.document import read

JOBS = Path(__file__).parent / "jobs"
JOBS_MAP = """\
tfCluster:
  deploy: true
  service:
    name: tensorflow-cluster
    internalPort: 8080
    externalPort: 8080
    type: ClusterIP
  image:
    repo: team
    name: tf-models
    dockerTagCpu: train-0.11
    dockerTagGpu: train-0.11-gpu
  settings:
    isGpu: true
    nbGpuPerNode: 2
    jobs:
      ps: 8
      worker: 16
"""
STATEFULSETS = """\
worker:
  number: 2
  podManagementPolicy: Parallel
  image: {repository: team/distributed-tf, tag: 1.6.0-gpu}
  port: 9090
  gpuCount: 1
ps:
  number: 1
  image: {repository: team/distributed-tf, tag: 1.6.0, pullPolicy: IfNotPresent}
  port: 8080
  env: {LOG: 1}
hyperparams: {batchsize: 20, learningrate: 0.001, trainsteps: 10000}
"""


def converted(tmp_path: Path, text: str, name: str = "demo.yaml", **added: Any) -> Given:
    path = tmp_path / name
    path.write_text(text)
    return read_scenario(path, Additions(**added))


def data(given: Given) -> dict[str, Any]:
    found: dict[str, Any] = read(given.text).data
    return found


def problems(tmp_path: Path, text: str, **added: Any) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        converted(tmp_path, text, **added).parse()
    return [str(problem).removeprefix(f"{tmp_path}/") for problem in caught.value.problems]


# --- The map of jobs ------------------------------------------------------------------------------


def test_the_example_of_the_jobs_is_as_expected() -> None:
    added = Additions(images={"ps": "cpu", "worker": "cpu"}, faults=JOBS / "shards.faults.yaml")
    assert load(JOBS / "shards.values.yaml", added=added) == load(JOBS / "shards.expected.yaml")


def test_the_command_is_in_the_values_or_added(tmp_path: Path) -> None:
    text = JOBS_MAP.replace("    type: ClusterIP", """    command: '["/run.sh", "${X}"]'""")
    found = data(converted(tmp_path, text))
    assert found["program"] == {"command": ["/run.sh", "$${X}"], "entrypoint": "none"}
    images = {"ps": "cpu", "worker": "cpu"}
    assert problems(tmp_path, JOBS_MAP, images=images) == [
        "demo.yaml: it does not say what the tasks run (add --command 'python train.py', or write "
        "`program: {source: train.py, command: [python, train.py]}` in the file of --faults)"
    ]
    # Without isGpu the image is that for CPUs.
    text = text.replace("    isGpu: true\n", "").replace("    dockerTagGpu: train-0.11-gpu\n", "")
    assert data(converted(tmp_path, text))["image"] == "team/tf-models:train-0.11"
    given = converted(tmp_path, JOBS_MAP, images=images, command=("python", "a.py"))
    assert data(given)["program"] == {"command": ["python", "a.py"]}


OF_THE_MAP = [
    ("ps: 8", "ps: eight", "17: tfCluster.settings.jobs.ps: 'eight' should be a whole number"),
    ("ps: 8", "ps: -1", "17: tfCluster.settings.jobs.ps: -1 should be a whole number from 0"),
    ("ps: 8", f"ps: '{'8' * 5000}'", "17: tfCluster.settings.jobs.ps: '888"),
    ("ps: 8", "p: 8", "17: tfCluster.settings.jobs.p: is no role (did you mean 'ps'?)"),
    ("ps: 8", "master: 1", "17: tfCluster.settings.jobs.master: is no role (TF2 rejects"),
    ("ps: 8", "ps: {numbr: 8}", "17: tfCluster.settings.jobs.ps.numbr: unknown key (did you"),
    ("ps: 8", "workers: 8", "18: tfCluster.settings.jobs.worker: are tasks of the role worker"),
    ("nbGpuPerNode", "nbGpusPerNode", "15: tfCluster.settings.nbGpusPerNode: unknown key (did"),
    ("8080", "0", "5: tfCluster.service.internalPort: 0 is not a port"),
    ("isGpu: true", "isGpu: 1", "14: tfCluster.settings.isGpu: 1 should be true or false"),
    ("name: tf-models", "name: [a]", '10: tfCluster.image.name: ["a"] should be text'),
    ("team", "'{{ .Values.repo }}'", "9: tfCluster.image.repo: {{ .Values.repo }} is a templ"),
    (
        "jobs:\n      ps: 8\n      worker: 16",
        "jobs: {}",
        "16: tfCluster.settings.jobs: has no tasks (write `{ps: 8, worker: 16}`)",
    ),
    (
        "type: ClusterIP",
        "command: python",
        "7: tfCluster.service.command: 'python' is not a list of "
        'words (write [python, train.py], or \'["python", "train.py"]\')',
    ),
    (
        "type: ClusterIP",
        "command: []",
        "7: tfCluster.service.command: [] should be a list of words",
    ),
    ("type: ClusterIP", "command: 5", "7: tfCluster.service.command: 5 should be a list of words"),
    (
        "worker: 16",
        "worker: 16\n---\na: b",
        "20: is another document; values are one (leave it out)",
    ),
]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    OF_THE_MAP,
)
def test_a_mistake_in_the_values_has_its_line_and_path(
    tmp_path: Path, old: str, new: str, problem: str
) -> None:
    found = problems(tmp_path, JOBS_MAP.replace(old, new, 1))
    assert any(one.startswith(f"demo.yaml:{problem}") for one in found), found


# --- The chart distributed-tensorflow -------------------------------------------------------------


def test_a_command_for_all_where_roles_have_their_own_and_an_image_of_none_are_refused(
    tmp_path: Path,
) -> None:
    with pytest.raises(UsageError, match="--command is one for all tasks; worker has a command"):
        converted(tmp_path, STATEFULSETS, command=("python", "a.py"))
    (tmp_path / "f.yaml").write_text("cluster: null\n")
    assert problems(tmp_path, JOBS_MAP, command=("a",), faults=tmp_path / "f.yaml") == [
        "f.yaml:1: cluster: is missing (write `cluster: {worker: 2}`)"
    ]
    assert problems(tmp_path, JOBS_MAP, images={"wurker": "cpu"}) == [
        "--image wurker=cpu: there is no container, role or image wurker (did you mean 'worker'?)"
    ]


def test_values_of_arena_are_rendered_first(tmp_path: Path) -> None:
    assert problems(tmp_path, "workers: 2\nps: 1\nworkerImage: team/mnist:1.0\n") == [
        "demo.yaml:3: workerImage: is a value of Arena's chart (render it first, such as with "
        "`helm template`, and give the result)"
    ]


@pytest.mark.parametrize(
    ("text", "table"),
    [
        (JOBS_MAP, helm_jobs.KEYS),
        (STATEFULSETS, helm_statefulsets.KEYS),
    ],
)
def test_no_key_is_there_twice(text: str, table: Any, tmp_path: Path) -> None:
    paths = [key.path for key in table]
    assert len({*paths}) == len(paths)
    assert converted(tmp_path, text).parse()


def plan(given: Given) -> Plan:
    scenario = given.parse(["cluster.worker.gpus=0"])
    context = MemoryEngine(ManualClock()).plan_context("r", Path())
    return make_plan(scenario, "r", context, notes=given.warnings)


def test_values_of_stateful_sets(tmp_path: Path) -> None:
    given = converted(tmp_path, STATEFULSETS)
    worker = plan(given).task("worker-1")
    service = "demo-distributed-tensorflow"
    names = ("WORKER_HOSTS", "PS_HOSTS", "POD_NAME", "JOB_NAME")
    assert {key: worker.env[key] for key in names} == {
        "WORKER_HOSTS": f"demo-worker-0.{service}-worker:9090,demo-worker-1.{service}-worker:9090",
        "PS_HOSTS": f"demo-ps-0.{service}-ps:8080",
        "POD_NAME": "demo-worker-1",
        "JOB_NAME": "worker",
    }  # fmt: skip
    assert worker.command == (
        "python", "train_distributed.py", "--num_gpus", "1",
        "--learning_rate", "0.001", "--batch_size", "20",
    )  # fmt: skip
    scenario = given.parse()
    assert scenario.cluster["worker"].gpus.count == 1
    assert scenario.cluster["ps"].gpus.count == 0
    assert scenario.cluster["ps"].image == "team/distributed-tf:1.6.0"
    assert scenario.cluster["ps"].env["LOG"] == "1"
    assert given.warnings == (
        "hyperparams.trainsteps is ignored: the command of the chart does not get it",
    )
