"""TFJobs and PyTorchJobs as scenarios: what their fields become, and each mistake in a line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from emulator.errors import ScenarioError
from emulator.scenario.assembly import FORMATS, as_text, format_of
from emulator.scenario.given import Additions, read_scenario
from emulator.scenario.loader import parse
from emulator.scenario.manifests import Conversion, read_documents
from emulator.scenario.schema import Scenario
from emulator.validation.limits import SCENARIO_BYTES

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
    return format_of(documents, "job.yaml").convert(documents, options)


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
ROLES = "spec.pytorchReplicaSpecs"
C = f"{T}.containers[0]"
TYPES = "spec.tfReplicaSpecs"
TENSORFLOW = "{name: tensorflow, image: i}"
WORKER = f"{{template: {{spec: {{containers: [{TENSORFLOW}]}}}}}}"
NAME_OF_THE_POD = "{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}"
CPU, GPU = ".requests.cpu:", "[nvidia.com/gpu]:"
PATH, ELSEWHERE = "[0].mountPath:", "can't be mounted at"
OF_THE_JOB = [
    ("apiVersion", "kubeflow.org/v1beta2", ": kubeflow.org/v1beta2 is another version"),
    (
        "kind",
        "MPIJob",
        ": MPIJob of kubeflow.org/v1 can't run here (write a scenario: `framework: m",
    ),
    ("metadata", "~", ": is missing"),
    ("metadata", "5", ": 5 should be a mapping of keys and values"),
    ("metadata.name", "~", ": is missing"),
    ("metadata.name", "Job_1", ": 'Job_1' is not the name of a job"),
    ("metadata.namespace", "a.b", ": 'a.b' is not the name of a namespace"),
    ("metadata.lables", "{a: b}", ": unknown field (did you mean 'labels'?)"),
    ("spec.cleanPodPolicy", "All", ": unknown field (it belongs in spec.runP"),
    ("spec.runPolicy", "{backoffLimits: 3}", ".backoffLimits: unknown field (did"),
    ("spec.runPolicy", "{backoffLimit: '3'}", ".backoffLimit: '3' should be a whole"),
    ("spec.runPolicy", "{cleanPodPolicy: all}", ".cleanPodPolicy: 'all' is not al"),
    ("spec.runPolicy", "{managedBy: me}", ".managedBy: 'me' is not allowed"),
    ("spec.successPolicy", "Any", ": 'Any' is not allowed (known: AllWorkers)"),
    (TYPES, "{}", ": is empty"),
    (TYPES, f"{{Worker: {{replicas: 0, {WORKER[1:]}}}", ": has no replicas"),
    (f"{TYPES}.Wroker", "{}", ": a TFJob has no such replica"),
    (f"{TYPES}.worker", WORKER, ": is there twice, in another case"),
    (
        TYPES,
        f"{{Chief: {WORKER}, Master: {WORKER}}}",
        ".Master: there is Chief already (a TFJob has one of them)",
    ),
    (f"{TYPES}.Worker.replicas", "-1", ": -1 should"),
    (f"{TYPES}.Worker.replicas", "2147483648", ": 2147483648 should be from 0 to 2147483647"),
    (f"{TYPES}.Worker.restartPolicy", "Sometimes", ": 'Sometimes' is not allowed"),
]
OF_THE_POD = [
    ("containers", "~", ": is missing"),
    (
        "containers",
        f"[{TENSORFLOW[:-1]}, env: [{NAME_OF_THE_POD}], args: [a, '$$$(POD)']}}]",
        "[0].args[1]: has a dollar right before a variable",
    ),
    ("containers", "[]", ": is missing (one named tensorflow)"),
    (
        "containers",
        "[{name: a, image: i}, {name: b, image: i}]",
        ": has no container named tensorflow (the operator gives only that one its variables)",
    ),
    ("containers", f"[&c {TENSORFLOW}, *c]", "[1].name: there"),
    ("volumes", "[{emptyDir: {}}]", "[0].name: is missing"),
    ("volumes", "[{name: v}, {name: v}]", "[1].name: there are two volumes named v"),
    ("restartPolices", "Never", ": unknown field (did you mean 'rest"),
]
OF_THE_CONTAINER = [
    ("name", "main", ": 'main' should be 'tensorflow': the operator"),
    ("image", "~", ": is missing"),
    ("args", "[--n, 1]", '[1]: 1 should be text (write "1" in quotes)'),
    ("arg", "[a]", ": unknown field (did you mean 'args'?)"),
    (
        "env",
        "[{name: I, valueFrom: {fieldRef: {fieldPath: metadata.name}}}, {name: A, value: $$$(I)}]",
        ": has a dollar right before a variable, which can't be said here",
    ),
    ("restartPolicy", "Always", ": can only be Always, and on"),
    ("env", "[{name: A, value: 1}]", "[0].value: 1 should be text (w"),
    ("env", "[{value: '1'}]", "[0].name: is missing"),
    ("env", "[{name: A=B}]", "[0].name: 'A=B' is not the name of a v"),
    (
        "env",
        "[{name: A, valueFrom: {configMapKeyRef: {name: m, key: k}}}]",
        "[0].valueFrom.configMapKeyRef.name: there is no ConfigMap m in default (add it",
    ),
    (
        "env",
        "[{name: A, valueFrom: {fieldRef: {fieldPath: spec.x}}}]",
        "[0].valueFrom.fieldRef.fieldPath: there is no field 'spec.x' for a variable",
    ),
    (
        "env",
        "[{name: A, valueFrom: {}}]",
        "[0].valueFrom: has one of configMapKeyRef, secretKeyRef, fieldRef, resourceField",
    ),
    ("envFrom", "[{prefix: A_}]", "[0]: has neither configMapRef nor secretRef"),
    ("volumeMounts", "[{name: b, mountPath: /b}]", "[0].name: there is no volume b"),
    ("volumeMounts", "[{name: a, mountPath: /etc/../../x}]", f"{PATH} '/etc/../../x' {ELSEWHERE}"),
    ("volumeMounts", "[{name: a, mountPath: ../x}]", f"{PATH} '../x' {ELSEWHERE}"),
    ("volumeMounts", "[{name: a, mountPath: '/a:b'}]", f"{PATH} '/a:b' {ELSEWHERE}"),
    ("ports", "[{containerPort: 65536}]", "[0].containerPort: 65536 should be from 1 to 65535"),
    ("resources.limits", "{cpu: two}", ".cpu: 'two' is not a quantity, such as 500m, 2 or 4Gi"),
    ("resources.limits", "{cpu: 0.5}", '.cpu: 0.5 should be text; write "0.5" in quotes'),
    (
        "resources.limits",
        "{memory: 512m}",
        ".memory: 512m is less than a byte (write 512Mi; m is a thousandth)",
    ),
    ("resources.limits", "{cpus: 1}", ".cpus: there is no such resource (did you mean 'cpu'?)"),
    ("resources.limits", "{nvidia.com/gpu: 500m}", f"{GPU} 500m is not a whole number of GPUs"),
    (
        "resources",
        "{limits: {cpu: '1'}, requests: {cpu: '2'}}",
        f"{CPU} 2 is more than the limit, 1",
    ),
]
CASES = [
    *OF_THE_JOB,
    *((f"{T}.{path}", value, problem) for path, value, problem in OF_THE_POD),
    *((f"{T}.containers.0.{field}", value, problem) for field, value, problem in OF_THE_CONTAINER),
]
"""The path of a field, what is written there as YAML, and the problem, which follows the path."""


@pytest.mark.parametrize(("path", "value", "problem"), CASES)
def test_a_mistake_of_a_tfjob_is_a_line(path: str, value: str, problem: str) -> None:
    with_volume = changed(TFJOB, f"{T}.volumes", [{"name": "a", "emptyDir": {}}])
    (line,) = refused(changed(with_volume, path, yaml.safe_load(value)))
    place, _, rest = line.partition(": ")
    assert rest.startswith(path.replace(".0.", "[0].") + problem)
    assert place.startswith("job.yaml:")


def test_a_mistake_has_the_line_of_the_field() -> None:
    text = TFJOB.replace("name: tensorflow", "name: main")
    assert refused(text)[0].startswith(f"job.yaml:12: {C}.name: ")


def test_all_mistakes_are_told_at_once() -> None:
    text = changed(TFJOB, f"{T}.containers.0.name", "main")
    text = changed(text, "metadata.name", "Job")
    text = changed(text, "spec.tfReplicaSpecs.Worker.replica", 2)
    paths = ["metadata.name", f"{C}.name", "spec.tfReplicaSpecs.Worker.replica"]
    assert [line.split(": ")[1] for line in refused(text)] == paths


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (f"{ROLES}.Master.replicas", "~", ": must be 1 (write replicas: 1; the operator"),
        (f"{ROLES}.Worker.replicas", "0", ""),
        (f"{ROLES}.worker", "{}", ": a PyTorchJob has no such replica type (did you mean"),
        ("spec.nprocPerNode", "2", ': 2 should be text (write "2" in quotes)'),
        ("spec.nprocPerNode", "two", ": 'two' is no number of processes"),
        ("spec.nprocPerNode", "'12345678901'", ": '12345678901' is no number of processes"),
        ("spec.elasticPolicy", "{rdzvBackend: x}", ".rdzvBackend: 'x' is not"),
        (
            "spec.elasticPolicy",
            "{minReplicas: 3, maxReplicas: 2}",
            ".minReplicas: 3 is more than maxReplicas, 2",
        ),
        (
            f"{ROLES}.Master.template.spec.containers.0.name",
            "torch",
            ": 'torch' should be 'pytorch'",
        ),
    ],
)
def test_a_mistake_of_a_pytorchjob_is_a_line(path: str, value: str, problem: str) -> None:
    (line, *_) = refused(changed(PYTORCHJOB, path, yaml.safe_load(value)))
    assert line.partition(": ")[2].startswith(path.replace(".0.", "[0].") + problem)


def mounted(*paths: str, **configmap: Any) -> str:
    """Return a TFJob with the volume of a ConfigMap at these paths."""
    job = with_container(volumeMounts=[{"name": "v", "mountPath": path} for path in paths])
    volume = {"name": "v", "configMap": {"name": "m", **configmap}}
    return changed(job, f"{T}.volumes", [volume]) + CONFIGMAP


OF_A_KEY = {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}
ELASTIC = changed(PYTORCHJOB, "spec.elasticPolicy", {"maxReplicas": 2})
ITEMS = [{"key": "a", "path": "../../etc/passwd"}]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            changed(ELASTIC, f"{ROLES}.Worker", None),
            ": is missing (an elasticPolicy is about the workers)$",
        ),
        (
            f'{with_container(env=[OF_A_KEY])}{CONFIGMAP}binaryData: {{k: "/w=="}}\n',
            ": has bytes that are not the text of a variable$",
        ),
        (
            f"{TFJOB}---\n{PYTORCHJOB}",
            "^job.yaml:17: kind: there is a second job, of kind PyTorchJob; a file",
        ),
        (
            f'{TFJOB}{CONFIGMAP}data: {{"../../etc/passwd": x}}\n',
            "^job.yaml:19: data[../../etc/passwd]: can't be the name of a file "
            "(letters, digits, '-', '_' and '.')$",
        ),
        (
            f"{mounted('/m', items=ITEMS)}data: {{a: x}}\n",
            "volumes[0].configMap.items[0].path: '../../etc/passwd' leads elsewhere",
        ),
    ],
    ids=lambda text: text[-40:],
)
def test_a_mistake_of_several_parts_is_a_line(text: str, problem: str) -> None:
    (line,) = refused(text)
    assert problem in f"^{line}$"


def test_the_largest_number_of_tasks_is_left_to_the_scenario() -> None:
    text = changed(TFJOB, "spec.tfReplicaSpecs.Worker.replicas", 2**31 - 1)
    assert converted(text).scenario["cluster"] == {"worker": 2**31 - 1}


def test_options_that_nothing_uses_are_refused(tmp_path: Path) -> None:
    (line,) = refused(TFJOB, image={"tensorlow": "x"})
    assert line == (
        "--image tensorlow=x: there is no container, role or image tensorlow "
        "(did you mean 'tensorflow'?)"
    )
    (tmp_path / "a").write_text("1")
    (line,) = refused(TFJOB, configmap={"m": tmp_path / "a"})
    assert line.endswith(": no volume or variable of the job refers to m")
    (line,) = refused(TFJOB, configmap={"m": tmp_path / "b"})
    assert line.endswith("b: b: No such file or directory")


# --- What the fields become -----------------------------------------------------------------------

MAPS = """\
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {rate: "0.1", app.yaml: "a: 1\\n"}
binaryData: {model: /wA=}
---
apiVersion: v1
kind: Secret
metadata: {name: keys}
data: {token: aGVsbG8=}
stringData: {plain: "p${x}"}
"""


def worker(text: str, **options: Any) -> dict[str, Any]:
    """Return what all tasks of a converted job with one role have."""
    scenario = converted(text, **options).scenario
    (role,) = scenario["cluster"].values()
    role = role if isinstance(role, dict) else {"replicas": role}
    job = {key: scenario[key] for key in ("image", "mounts", "shm_size") if key in scenario}
    return {**job, **scenario["program"], **role}


def scenario_of(text: str, **options: Any) -> Scenario:
    """Return the scenario of a manifest, validated."""
    return parse(as_text(converted(text, **options).scenario))


def test_the_smallest_tfjob() -> None:
    found = converted(TFJOB)
    operator = {"kind": "TFJob", "job": "job", "namespace": "default"}
    assert found.scenario == {
        "name": "job",
        "framework": "tensorflow",
        "operator": {**operator, "restart": {"worker": "never"}},
        "image": "tf:1",
        "program": {"command": ["python", "train.py"], "entrypoint": "none"},
        "cluster": {"worker": 2},
    }
    assert found.notes == ()
    assert scenario_of(TFJOB).cluster["worker"].replicas == 2


def test_the_smallest_pytorchjob() -> None:
    found = converted(PYTORCHJOB).scenario
    assert found["framework"] == "pytorch"
    assert found["operator"]["restart"] == {"master": "on-failure", "worker": "on-failure"}
    assert found["cluster"] == {"master": 1, "worker": 2}
    assert scenario_of(PYTORCHJOB).rules


def test_a_long_name_is_cut_for_the_scenario_alone() -> None:
    name = "a" * 39 + "-" + "b" * 10
    found = converted(changed(TFJOB, "metadata.name", name))
    assert (found.scenario["name"], found.scenario["operator"]["job"]) == ("a" * 39, name)


def test_images() -> None:
    data = yaml.safe_load(PYTORCHJOB)
    specs = data["spec"]["pytorchReplicaSpecs"]
    specs["Worker"]["template"]["spec"]["initContainers"] = [{"name": "i", "image": "torch:1"}]
    text = yaml.dump(data)  # without an alias now
    found = converted(text, image={"torch:1": "a", "worker": "b"}).scenario
    assert [found["cluster"][role]["image"] for role in ("master", "worker")] == ["a", "b"]
    assert found["cluster"]["worker"]["init"][0]["image"] == "a"
    found = converted(PYTORCHJOB, image={"pytorch": "c"}).scenario
    assert found["image"] == "c"


def at_data(**what: Any) -> dict[str, Any]:
    return {"mounts": {"/data": what}}


PROJECTED = """\
projected:
  sources:
  - configMap: {name: settings, items: [{key: rate, path: r}]}
  - secret: {name: keys}
"""
ALL_FILES = {
    "/data/rate": {"text": "0.1", "mode": "0755"},
    "/data/app.yaml": {"text": "a: 1\n", "mode": "0755"},
    "/data/model": {"base64": "/wA=", "mode": "0755"},
}
PARTS = "[{key: rate, path: a/b}, {key: model, path: m, mode: 0400}]"
SHM = {"mountPath": "/dev/shm"}
CLAIM = "persistentVolumeClaim: {claimName: c}"


@pytest.mark.parametrize(
    ("source", "mount", "expected"),
    [
        ("emptyDir: {}", {}, at_data(scratch="v")),
        ("{}", {"readOnly": True}, at_data(scratch="v", writable=False)),
        ("emptyDir: {}", {"subPath": "a/b"}, at_data(scratch="v-a-b-f413cbcd")),
        ("emptyDir: {medium: Memory, sizeLimit: 64Mi}", {}, at_data(tmpfs="64m")),
        ("emptyDir: {medium: Memory}", {}, at_data(scratch="v")),
        ("emptyDir: {medium: Memory, sizeLimit: 2Gi}", SHM, {"shm_size": "2g"}),
        ("emptyDir: {sizeLimit: 0}", SHM, {"shm_size": "1g"}),
        ("emptyDir: {}", SHM, {"shm_size": "1g"}),
        (CLAIM, {}, at_data(volume="pvc-default-c")),
        (f"{CLAIM[:-1]}, readOnly: true}}", {}, at_data(volume="pvc-default-c", writable=False)),
        ("hostPath: {path: /}", {}, at_data(scratch="v")),
        ("hostPath: {path: /dev/shm/}", SHM, {"shm_size": "1g"}),
        ("hostPath: {path: /dev/shm}", {}, at_data(scratch="v")),
        ("nfs: {server: s, path: /}", {}, at_data(volume="pvc-default-v")),
        ("configMap: {name: settings, defaultMode: 0755}", {}, {"files": ALL_FILES}),
        (
            "configMap: {name: settings, defaultMode: 0644}",
            {"subPath": "rate"},
            {"files": {"/data": "0.1"}},
        ),
        (
            f"configMap: {{name: settings, items: {PARTS}}}",
            {},
            {"files": {"/data/a/b": "0.1", "/data/m": {"base64": "/wA=", "mode": "0400"}}},
        ),
        ("configMap: {name: none, optional: true}", {}, {}),
        (
            PROJECTED,
            {},
            {"files": {"/data/plain": "p${x}", "/data/token": "hello", "/data/r": "0.1"}},
        ),
    ],
)
def test_volumes(source: str, mount: dict[str, Any], expected: dict[str, Any]) -> None:
    text = with_container(volumeMounts=[{"name": "v", "mountPath": "/data/", **mount}])
    role = worker(changed(text, f"{T}.volumes", [{"name": "v", **yaml.safe_load(source)}]) + MAPS)
    kinds = ("mounts", "files", "shm_size")
    assert {kind: role[kind] for kind in kinds if kind in role} == expected


# --- Side-cars ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "more"), [("containers", {}), ("initContainers", {"restartPolicy": "Always"})]
)
def test_a_side_car_is_ignored_with_all_that_is_in_it(key: str, more: dict[str, Any]) -> None:
    main = {"name": "tensorflow", "image": "tf:1", "args": ["train"], "stdin": True}
    beside = {"name": "proxy", "image": "p", "tty": True, "livenessProbe": {"a": "b"}, **more}
    spec = {"containers": [main]}
    spec[key] = [*spec.get(key, []), beside]
    found = converted(changed(TFJOB, T, spec))
    assert found.scenario["cluster"] == {"worker": 2}
    side = 1 if key == "containers" else 0
    assert [str(note).removeprefix(f"{T}.") for note in found.notes] == [
        "containers[0].stdin is ignored: a task has no input",
        f"{key}[{side}] is ignored: no side-car runs: a task is its own container, and the init "
        "containers before it",
    ]


def test_what_is_noted_of_the_same_place_in_another_type_of_replica_stays() -> None:
    main = {"name": "tensorflow", "image": "tf:1", "args": ["train"], "stdin": True}
    beside = {"name": "proxy", "image": "p", "stdin": True}
    text = changed(TFJOB, T, {"containers": [main, beside]})
    servers = {"template": {"spec": {"containers": [beside, main]}}}
    found = converted(changed(text, "spec.tfReplicaSpecs.PS", servers))
    specs = "spec.tfReplicaSpecs"
    assert [note.path for note in found.notes] == [
        f"{specs}.Worker.template.spec.containers[0].stdin",
        f"{specs}.PS.template.spec.containers[1].stdin",
        f"{specs}.Worker.template.spec.containers[1]",
        f"{specs}.PS.template.spec.containers[0]",
    ]


# --- Limits, from both sides, and how such a file is recognised -----------------------------------


def test_names_of_volumes_are_cut_with_a_digest() -> None:
    names = ["x" * 63, "y" * 64, f"{'z' * 53}--a{'z' * 10}"]
    mounts = [{"name": name, "mountPath": f"/{number}"} for number, name in enumerate(names)]
    text = changed(TFJOB, f"{T}.containers.0.volumeMounts", mounts)
    found = converted(changed(text, f"{T}.volumes", [{"name": name} for name in names]))
    assert [mount["scratch"] for mount in found.scenario["mounts"].values()] == [
        "x" * 63,
        f"{'y' * 54}-ffbf30ab",
        f"{'z' * 53}-6c57e7f6",
    ]


@pytest.mark.parametrize("count", [200, 201])
def test_a_map_has_at_most_as_many_values_as_a_folder(count: int) -> None:
    text = f"{TFJOB}{CONFIGMAP}data: {{{', '.join(f'k{n}: v' for n in range(count))}}}\n"
    if count > 200:
        assert refused(text) == ["job.yaml:19: data: has 201 values; 200 are the most"]
    else:
        assert converted(text).notes == ()


@pytest.mark.parametrize("more", [0, 1])
def test_what_is_made_is_as_large_as_a_scenario_may_be(more: int, tmp_path: Path) -> None:
    path, file = tmp_path / "job.yaml", tmp_path / "a"
    text = changed(TFJOB, f"{T}.containers.0.volumeMounts", [{"name": "v", "mountPath": "/m"}])
    path.write_text(changed(text, f"{T}.volumes", [{"name": "v", "configMap": {"name": "m"}}]))
    added = Additions(own={"configmap": {"m": str(file)}})
    file.write_text("x")
    file.write_text("x" * (SCENARIO_BYTES - len(read_scenario(path, added).text) + 1 + more))
    if not more:
        assert len(read_scenario(path, added).text) == SCENARIO_BYTES
        return
    with pytest.raises(ScenarioError) as caught:
        read_scenario(path, added)
    assert str(caught.value) == (
        f"{path}: makes a scenario of 1 MiB (1 MiB are the most; mount large files as a folder)"
    )


@pytest.mark.parametrize(
    ("given", "processes"),
    [("auto", "auto"), ("cpu", "cpu"), ("gpu", "gpu"), ("1", 1)]
    + [(text, None) for text in ("0", "٣", "-1")],
)
def test_numbers_of_processes(given: str, processes: int | str | None) -> None:
    text = changed(PYTORCHJOB, "spec.nprocPerNode", given)
    if processes is None:
        assert "is no number of processes" in refused(text)[0]
        return
    assert converted(text).scenario["operator"]["nproc_per_node"] == processes
    policy = {"nProcPerNode": 2, "minReplicas": 2, "maxReplicas": 2}
    elastic = changed(text, "spec.elasticPolicy", policy)
    assert [line.partition(": ")[2] for line in refused(elastic)] == [
        "spec.elasticPolicy.nProcPerNode: must not be used with spec.nprocPerNode (leave it out)"
    ]


@pytest.mark.parametrize(
    ("text", "name"), [(TFJOB, "TFJob"), (PYTORCHJOB, "PyTorchJob"), ("kind: TFJob\n", "TFJob")]
)
def test_the_format_of_a_file(text: str, name: str) -> None:
    assert format_of(read_documents(text, "m"), "m").name == name
    assert [one.name for one in FORMATS[:2]] == ["TFJob", "PyTorchJob"]


def test_names_of_jobs() -> None:
    for name, is_one in {"a" * 63: True, "a" * 64: False, "1a": False, "a-": False}.items():
        text = changed(TFJOB, "metadata.name", name)
        assert converted(text).scenario["name"] == name[:40] if is_one else refused(text)
