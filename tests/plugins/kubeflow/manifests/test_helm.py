"""Helm values and the JSON of a cluster as scenarios, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from emulator.errors import ScenarioError, UsageError
from emulator.plugins.kubeflow.manifests import helm_values
from emulator.scenario.document import read
from emulator.scenario.given import Additions, Given, load, read_scenario

JOBS = Path(__file__).parents[1] / "jobs"
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
CLUSTER = """\
{
\t"ps": [
\t\t"ps-0.default.svc.cluster.local:8080",
\t\t"ps-1.default.svc.cluster.local:8080",
\t],
\t"worker": ["worker-0.default.svc.cluster.local:8080",],
}
"""


def converted(tmp_path: Path, text: str, name: str = "demo.yaml", **added: Any) -> Given:
    path = tmp_path / name
    path.write_text(text)
    return read_scenario(path, Additions(**added))


def data(given: Given) -> dict[str, Any]:
    found: dict[str, Any] = read(given.text).data
    return found


def problems(tmp_path: Path, text: str, name: str = "demo.yaml", **added: Any) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        converted(tmp_path, text, name, **added).parse()
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


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
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
        (
            "type: ClusterIP",
            "command: 5",
            "7: tfCluster.service.command: 5 should be a list of words",
        ),
        (
            "worker: 16",
            "worker: 16\n---\na: b",
            "20: is another document; values are one (leave it out)",
        ),
    ],
)
def test_a_mistake_in_the_values_has_its_line_and_path(
    tmp_path: Path, old: str, new: str, problem: str
) -> None:
    found = problems(tmp_path, JOBS_MAP.replace(old, new, 1))
    assert any(one.startswith(f"demo.yaml:{problem}") for one in found), found


def test_a_command_for_all_where_roles_have_their_own_and_an_image_of_none_are_refused(
    tmp_path: Path,
) -> None:
    faults = tmp_path / "f.yaml"
    faults.write_text("cluster: {worker: {command: [a]}}\n")
    with pytest.raises(UsageError, match="--command is one for all tasks; worker has a command"):
        converted(tmp_path, JOBS_MAP, command=("python", "a.py"), faults=faults)
    faults.write_text("cluster: null\n")
    assert problems(tmp_path, JOBS_MAP, command=("a",), faults=faults) == [
        "f.yaml:1: cluster: is missing (write `cluster: {worker: 2}`)"
    ]
    assert problems(tmp_path, JOBS_MAP, images={"wurker": "cpu"}) == [
        "--image wurker=cpu: there is no container, role or image wurker (did you mean 'worker'?)"
    ]


@pytest.mark.parametrize("role", ["ps", "worker", "workers"])
def test_values_of_stateful_sets_are_refused(tmp_path: Path, role: str) -> None:
    text = f"{role}:\n  number: 2\n  image: {{repository: team/tf}}\n"
    assert problems(tmp_path, text) == [
        f"demo.yaml:3: {role}.image: is a value of a chart of stateful sets, which is not read any "
        "more (write a scenario: `framework: none`, `cluster: {ps: 1, worker: 2}`, and its command)"
    ]


def test_values_of_arena_are_rendered_first(tmp_path: Path) -> None:
    assert problems(tmp_path, "workers: 2\nps: 1\nworkerImage: team/mnist:1.0\n") == [
        "demo.yaml:3: workerImage: is a value of Arena's chart (render it first, such as with "
        "`helm template`, and give the result)"
    ]


def test_no_key_is_there_twice(tmp_path: Path) -> None:
    paths = [key.path for key in helm_values.KEYS]
    assert len({*paths}) == len(paths)
    command = ("python", "a.py")
    assert converted(tmp_path, JOBS_MAP, command=command).parse()


# --- The JSON of a cluster ------------------------------------------------------------------------


def of_json(tmp_path: Path, text: str, **added: Any) -> Given:
    return converted(tmp_path, text, "cluster.json", command=("python", "a.py"), **added)


@pytest.mark.parametrize(
    "workers",
    [
        '["10.0.0.1:2222", "10.0.0.2:2222"]',
        '["worker-0:2222", "worker-1:2223"]',
        '["worker-1:2222", "worker-0:2222"]',
        '["worker-0.a:2222", "worker-1.b:2222"]',
    ],
)
def test_addresses_without_a_pattern_are_replaced_with_a_note(tmp_path: Path, workers: str) -> None:
    given = of_json(tmp_path, f'{{"worker": {workers}}}')
    assert "addresses" not in data(given)
    why = "the tasks have other addresses, since these follow no pattern such as ps-0.name:2222"
    assert given.warnings == (f"worker[0] is approximated: {why}",)
    assert given.parse().cluster["worker"].replicas == 2


def test_images_are_by_role(tmp_path: Path) -> None:
    found = data(of_json(tmp_path, CLUSTER, images={"worker": "cpu"}))
    assert found["cluster"] == {"ps": 2, "worker": {"replicas": 1, "image": "cpu"}}
    found = data(of_json(tmp_path, CLUSTER, images={"worker": "cpu", "ps": "cpu"}))
    assert (found["image"], found["cluster"]) == ("cpu", {"ps": 2, "worker": 1})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"worker": ["worker-0"]}', "1: worker[0]: 'worker-0' is not an address"),
        ('{"worker": [":22"]}', "1: worker[0]: ':22' is not an address"),
        ('{"worker": ["a:99999"]}', "1: worker[0]: 'a:99999' is not an address"),
        ('{"worker": [1]}', "1: worker[0]: 1 is not an address"),
        ('{"worker": ["a:1"],\n"ps": "b:1"}', "2: ps: is not a list of addresses"),
        ('{"worker": ["a:1"], "p": ["b:1"]}', "1: p: is no role (did you mean 'ps'?)"),
        ('{"master": ["a:1"]}', "1: master: is no role (TF2 rejects 'master'; write"),
        ('{"worker": []}', "1: has no tasks"),
        ('{"cluster": [], "task": {}}', "1: cluster: is not a mapping of roles"),
        ('{"worker": ["a:1",,]}', "1: not valid YAML"),
        ('{"worker": ["{{ $job }}-0:1"]}', "1: worker[0]: {{ $job }} is a template"),
        ('{"worker": [' + '"a:1",' * 501 + "]}", "1: has more than 500 tasks"),
    ],
)
def test_what_is_no_cluster_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    found = problems(tmp_path, text, "cluster.json", command=("python", "a.py"))
    assert found[0].startswith(f"cluster.json:{problem}"), found
