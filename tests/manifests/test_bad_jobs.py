"""Mistakes in TFJobs and PyTorchJobs: each in a line, with its place and the path of the field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from emulator.errors import ScenarioError
from emulator.manifests.documents import read_documents
from emulator.manifests.spec import Conversion, Options
from emulator.manifests.table import format_of

TFJOB = """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata:
  name: job
spec:
  tfReplicaSpecs:
    Worker:
      replicas: 2
      template:
        spec:
          containers:
          - name: tensorflow
            image: tf:1
            command: [python, train.py]
"""
PYTORCHJOB = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: job
spec:
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      template: &template
        spec:
          containers:
          - name: pytorch
            image: torch:1
            command: [python, train.py]
    Worker:
      replicas: 2
      template: *template
"""


def converted(text: str, **options: Any) -> Conversion:
    documents = read_documents(text, "job.yaml")
    return format_of(documents, "job.yaml").convert(documents, Options(**options))


def refused(text: str, **options: Any) -> list[str]:
    with pytest.raises(ScenarioError) as error:
        converted(text, **options)
    return [str(problem) for problem in error.value.problems]


def changed(text: str, path: str, value: object) -> str:
    """Return a manifest with the value at a path, which is written with dots, replaced."""
    data = yaml.safe_load(text)
    *above, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    target: Any = data
    for step in above:
        target = target.setdefault(step, {}) if isinstance(target, dict) else target[step]
    if value is None:
        del target[last]
    elif last == "+":
        target.append(value)
    else:
        target[last] = value
    return yaml.dump(data, sort_keys=False)


def with_container(**fields: object) -> str:
    """Return a TFJob with fields of its container set."""
    text = TFJOB
    for key, value in fields.items():
        text = changed(text, f"{T}.containers.0.{key}", value)
    return text


CONFIGMAP = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\n"
T = "spec.tfReplicaSpecs.Worker.template.spec"
P = "spec.pytorchReplicaSpecs.Worker.template.spec"
M = "spec.pytorchReplicaSpecs.Master.template.spec"
C = f"{T}.containers[0]"
WORKER = "{template: {spec: {containers: [{name: tensorflow, image: i}]}}}"
OF_THE_JOB = [
    ("apiVersion", "kubeflow.org/v1beta2", "apiVersion: kubeflow.org/v1beta2 is another version"),
    ("kind", "MPIJob", "kind: MPIJob of kubeflow.org/v1 can't run here (known: TFJob, PyTorchJob"),
    ("metadata.name", "~", "metadata.name: is missing"),
    ("metadata.name", "Job_1", "metadata.name: 'Job_1' is not the name of a job"),
    ("metadata.namespace", "a.b", "metadata.namespace: 'a.b' is not the name of a namespace"),
    ("metadata.lables", "{a: b}", "metadata.lables: unknown field (did you mean 'labels'?)"),
    ("spec.cleanPodPolicy", "All", "spec.cleanPodPolicy: unknown field (it belongs in spec.runP"),
    ("spec.runPolicy", "{backoffLimits: 3}", "spec.runPolicy.backoffLimits: unknown field (did"),
    ("spec.runPolicy", "{backoffLimit: '3'}", "spec.runPolicy.backoffLimit: '3' should be a whole"),
    ("spec.runPolicy", "{cleanPodPolicy: all}", "spec.runPolicy.cleanPodPolicy: 'all' is not al"),
    ("spec.runPolicy", "{managedBy: me}", "spec.runPolicy.managedBy: 'me' is not allowed"),
    ("spec.successPolicy", "Any", "spec.successPolicy: 'Any' is not allowed (known: AllWorkers)"),
    ("spec.tfReplicaSpecs", "{}", "spec.tfReplicaSpecs: is empty"),
    ("spec.tfReplicaSpecs.Wroker", "{}", "spec.tfReplicaSpecs.Wroker: a TFJob has no such replica"),
    (
        "spec.tfReplicaSpecs.worker",
        WORKER,
        "spec.tfReplicaSpecs.worker: is there twice, in another case",
    ),
    (
        "spec.tfReplicaSpecs",
        f"{{Chief: {WORKER}, Master: {WORKER}}}",
        "spec.tfReplicaSpecs.Master: there is Chief already (a TFJob has one of them)",
    ),
    ("spec.tfReplicaSpecs.Worker.replicas", "-1", "spec.tfReplicaSpecs.Worker.replicas: -1 should"),
    (
        "spec.tfReplicaSpecs.Worker.replicas",
        "2147483648",
        "spec.tfReplicaSpecs.Worker.replicas: 2147483648 should be from 0 to 2147483647",
    ),
    ("spec.tfReplicaSpecs.Worker.restartPolicy", "Sometimes", "spec.tfReplicaSpecs.Worker.restart"),
]
OF_THE_POD = [
    ("containers", "~", "containers: is missing"),
    ("containers", "[]", "containers: is missing (one named tensorflow)"),
    ("containers.+", "{name: tensorflow, image: x}", "containers[1].name: there"),
    ("volumes", "[{emptyDir: {}}]", "volumes[0].name: is missing"),
    ("volumes", "[{name: v}, {name: v}]", "volumes[1].name: there are two volumes named v"),
    ("restartPolices", "Never", "restartPolices: unknown field (did you mean 'rest"),
]
OF_THE_CONTAINER = [
    ("name", "main", "name: 'main' should be 'tensorflow': the operator"),
    ("image", "~", "image: is missing"),
    ("args", "[--n, 1]", 'args[1]: 1 should be text (write "1" in quotes)'),
    ("arg", "[a]", "arg: unknown field (did you mean 'args'?)"),
    ("restartPolicy", "Always", "restartPolicy: can only be Always, and on"),
    ("env", "[{name: A, value: 1}]", "env[0].value: 1 should be text (w"),
    ("env", "[{value: '1'}]", "env[0].name: is missing"),
    ("env", "[{name: A=B}]", "env[0].name: 'A=B' is not the name of a v"),
    (
        "env",
        "[{name: A, valueFrom: {configMapKeyRef: {name: m, key: k}}}]",
        "env[0].valueFrom.configMapKeyRef.name: there is no ConfigMap m in default (add it",
    ),
    (
        "env",
        "[{name: A, valueFrom: {fieldRef: {fieldPath: spec.x}}}]",
        "env[0].valueFrom.fieldRef.fieldPath: there is no field 'spec.x' for a variable",
    ),
    (
        "env",
        "[{name: A, valueFrom: {}}]",
        "env[0].valueFrom: has one of configMapKeyRef, secretKeyRef, fieldRef, resourceField",
    ),
    ("envFrom", "[{prefix: A_}]", "envFrom[0]: has neither configMapRef nor secretRef"),
    ("volumeMounts", "[{name: b, mountPath: /b}]", "volumeMounts[0].name: there is no volume b"),
    *(
        (
            "volumeMounts",
            f"[{{name: a, mountPath: '{path}'}}]",
            f"volumeMounts[0].mountPath: '{path}' can't be mounted at",
        )
        for path in ("/etc/../../x", "../x", "/a:b")
    ),
]
OF_RESOURCES = [
    ("{limits: {cpu: two}}", "limits.cpu: 'two' is not a quantity, such as 500m, 2 or 4Gi"),
    ("{limits: {cpu: 0.5}}", 'limits.cpu: 0.5 should be text; write "0.5" in quotes'),
    (
        "{limits: {memory: 512m}}",
        "limits.memory: 512m is less than a byte (write 512Mi; m is a thousandth)",
    ),
    (
        "{limits: {cpu: '1'}, requests: {cpu: '2'}}",
        "requests.cpu: 2 is more than the limit, 1",
    ),
    (
        "{limits: {nvidia.com/gpu: 500m}}",
        "limits[nvidia.com/gpu]: 500m is not a whole number of GPUs",
    ),
    ("{limits: {cpus: 1}}", "limits.cpus: there is no such resource (did you mean 'cpu'?)"),
]
CASES = [
    *OF_THE_JOB,
    *((f"{T}.{path}", value, f"{T}.{problem}") for path, value, problem in OF_THE_POD),
    *(
        (f"{T}.containers.0.{field}", value, f"{C}.{problem}")
        for field, value, problem in OF_THE_CONTAINER
    ),
    *(
        (f"{T}.containers.0.resources", value, f"{C}.resources.{problem}")
        for value, problem in OF_RESOURCES
    ),
]


@pytest.mark.parametrize(("path", "value", "problem"), CASES, ids=[case[2] for case in CASES])
def test_a_mistake_of_a_tfjob_is_a_line(path: str, value: str, problem: str) -> None:
    with_volume = changed(TFJOB, f"{T}.volumes", [{"name": "a", "emptyDir": {}}])
    (line,) = refused(changed(with_volume, path, yaml.safe_load(value)))
    place, _, rest = line.partition(": ")
    assert rest.startswith(problem)
    assert place.startswith("job.yaml:")


def test_a_mistake_has_the_line_of_the_field() -> None:
    text = TFJOB.replace("name: tensorflow", "name: main")
    assert refused(text)[0].startswith(f"job.yaml:12: {C}.name: ")


def test_all_mistakes_are_told_at_once() -> None:
    text = changed(TFJOB, f"{T}.containers.0.name", "main")
    text = changed(text, "metadata.name", "Job")
    text = changed(text, "spec.tfReplicaSpecs.Worker.replica", 2)
    assert [line.split(": ")[1] for line in refused(text)] == [
        "metadata.name",
        f"{C}.name",
        "spec.tfReplicaSpecs.Worker.replica",
    ]


ROLES = "spec.pytorchReplicaSpecs"


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (
            f"{ROLES}.Master.replicas",
            "~",
            f"{ROLES}.Master.replicas: must be 1 (write replicas: 1; the operator",
        ),
        (f"{ROLES}.Worker.replicas", "0", f"{ROLES}.Worker.replicas"),
        (
            f"{ROLES}.worker",
            "{}",
            f"{ROLES}.worker: a PyTorchJob has no such replica type (did you mean",
        ),
        ("spec.nprocPerNode", "2", 'spec.nprocPerNode: 2 should be text (write "2" in quotes)'),
        ("spec.nprocPerNode", "two", "spec.nprocPerNode: 'two' is no number of processes"),
        ("spec.elasticPolicy", "{rdzvBackend: x}", "spec.elasticPolicy.rdzvBackend: 'x' is not"),
        (
            "spec.elasticPolicy",
            "{minReplicas: 3, maxReplicas: 2}",
            "spec.elasticPolicy.minReplicas: 3 is more than maxReplicas, 2",
        ),
        (f"{P}.containers.0.name", "torch", f"{M}.containers[0].name: 'torch' should be 'pytorch'"),
    ],
)
def test_a_mistake_of_a_pytorchjob_is_a_line(path: str, value: str, problem: str) -> None:
    (line, *_) = refused(changed(PYTORCHJOB, path, yaml.safe_load(value)))
    assert line.partition(": ")[2].startswith(problem)


def test_two_documents_where_one_is_meant() -> None:
    (line,) = refused(f"{TFJOB}---\n{PYTORCHJOB}")
    assert line.startswith("job.yaml:17: kind: there is a second job, of kind PyTorchJob; a file")


def test_a_key_that_leads_elsewhere_is_refused() -> None:
    (line,) = refused(f'{TFJOB}{CONFIGMAP}data: {{"../../etc/passwd": x}}\n')
    assert line == (
        "job.yaml:19: data[../../etc/passwd]: can't be the name of a file "
        "(letters, digits, '-', '_' and '.')"
    )
    items = [{"key": "a", "path": "../../etc/passwd"}]
    volume = {"name": "a", "configMap": {"name": "m", "items": items}}
    job = with_container(volumeMounts=[{"name": "a", "mountPath": "/m"}])
    (line,) = refused(f"{changed(job, f'{T}.volumes', [volume])}{CONFIGMAP}data: {{a: x}}\n")
    assert "volumes[0].configMap.items[0].path: '../../etc/passwd' leads elsewhere" in line


def test_variables_that_double_each_other_are_refused() -> None:
    env = [{"name": "A0", "value": "x" * 10}]
    env += [{"name": f"A{n}", "value": f"$(A{n - 1})$(A{n - 1})"} for n in range(1, 40)]
    (line, *_) = refused(with_container(env=env))
    assert "].value: has more than 100,000 characters with its variables" in line


def test_what_is_referred_to_again_and_again_has_a_limit() -> None:
    big = {"name": "BIG", "value": "x" * 99_000}
    (line,) = refused(with_container(env=[big], args=["$(BIG)"] * 2000))
    assert f"{C}.args[20]: makes a scenario of more than 2 MiB" in line
    (line,) = refused(with_container(env=[big], args=["$(BIG)$(BIG)"]))
    assert f"{C}.args[0]: has more than 100,000 characters with its variables" in line
    env = [big, *({"name": f"A{n}", "value": "$(BIG)"} for n in range(100))]
    (line,) = refused(with_container(env=env))
    assert f"{C}.env[21]: makes a scenario of more than 2 MiB" in line
    mounts = [{"name": "v", "mountPath": f"/{n}"} for n in range(500)]
    text = with_container(volumeMounts=mounts)
    text = changed(text, f"{T}.volumes", [{"name": "v", "configMap": {"name": "m"}}])
    (line,) = refused(f"{text}{CONFIGMAP}data: {{a: {'x' * 10**6}}}\n")
    assert "volumes[0].configMap: makes a scenario of more than 2 MiB (mount large files" in line


def test_the_largest_number_of_tasks_is_left_to_the_scenario() -> None:
    text = changed(TFJOB, "spec.tfReplicaSpecs.Worker.replicas", 2**31 - 1)
    assert converted(text).scenario["cluster"] == {"worker": 2**31 - 1}


def test_options_that_nothing_uses_are_refused(tmp_path: Path) -> None:
    (line,) = refused(TFJOB, images={"tensorlow": "x"})
    assert line == (
        "--image tensorlow=x: there is no container, role or image tensorlow "
        "(did you mean 'tensorflow'?)"
    )
    (tmp_path / "a").write_text("1")
    (line,) = refused(TFJOB, configmaps={"m": tmp_path / "a"})
    assert line.endswith(": no volume or variable of the job refers to m")
    (line,) = refused(TFJOB, configmaps={"m": tmp_path / "b"})
    assert line.endswith("b: b: No such file or directory")
