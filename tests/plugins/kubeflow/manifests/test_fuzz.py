"""Whatever is in a file is read or refused in lines: no other error comes out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emulator.errors import ScenarioError, UsageError
from emulator.scenario.assembly import as_text, format_of
from emulator.scenario.given import Additions, read_scenario
from emulator.scenario.loader import parse
from emulator.scenario.manifests import read_documents
from tests.plugins.kubeflow.manifests.test_convert import SCENARIO
from tests.plugins.kubeflow.manifests.test_helm import JOBS_MAP

pytestmark = pytest.mark.slow

SEARCHING = settings.get_current_profile_name() == "search"
EVERY = settings(
    max_examples=500 if SEARCHING else 60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
FULL = """\
apiVersion: kubeflow.org/v1
kind: {kind}
metadata:
  name: job
  namespace: team
  labels: {{a: b}}
  annotations: {{a.b/c: d}}
spec:
  runPolicy: {{cleanPodPolicy: All, backoffLimit: 3, activeDeadlineSeconds: 60, suspend: true}}
  {specs}:
    Master: &spec
      replicas: 1
      restartPolicy: OnFailure
      template:
        metadata: {{labels: {{a: b}}}}
        spec:
          initContainers:
          - {{name: init, image: i, args: [x], volumeMounts: [{{name: v0, mountPath: /w}}]}}
          containers:
          - name: {container}
            image: tf:1
            command: [python, "$(A)"]
            args: [--rank, "$(RANK) $(TF_CONFIG)"]
            workingDir: /w
            env:
            - {{name: A, value: "1"}}
            - {{name: B, valueFrom: {{configMapKeyRef: {{name: m, key: k}}}}}}
            - {{name: C, valueFrom: {{fieldRef: {{fieldPath: metadata.name}}}}}}
            - {{name: D, valueFrom: {{resourceFieldRef: {{resource: limits.cpu}}}}}}
            envFrom: [{{prefix: P_, configMapRef: {{name: m}}}}]
            ports: [{{name: tfjob-port, containerPort: 2222}}]
            resources: {{limits: {{cpu: 500m, memory: 1Gi}}, requests: {{cpu: 100m}}}}
            volumeMounts:
            - {{name: v0, mountPath: /w, subPath: a}}
            - {{name: v1, mountPath: /c, readOnly: true}}
            - {{name: v2, mountPath: /dev/shm}}
            - {{name: v3, mountPath: /p}}
          - {{name: log, image: l}}
          volumes:
          - {{name: v0, emptyDir: {{}}}}
          - {{name: v1, configMap: {{name: m, items: [{{key: k, path: a/b, mode: 256}}]}}}}
          - {{name: v2, emptyDir: {{medium: Memory, sizeLimit: 1Gi}}}}
          - {{name: v3, projected: {{sources: [{{configMap: {{name: m}}}}]}}}}
    Worker: *spec
"""
MAP = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: m, namespace: team}\ndata: {k: v}\n"
TFJOB = FULL.format(kind="TFJob", specs="tfReplicaSpecs", container="tensorflow")
PYTORCHJOB = FULL.format(kind="PyTorchJob", specs="pytorchReplicaSpecs", container="pytorch")
ELASTIC = "spec:\n  elasticPolicy: {minReplicas: 1}\n  runPolicy"
KINDS = {"TFJob": TFJOB, "PyTorchJob": PYTORCHJOB.replace("spec:\n  runPolicy", ELASTIC, 1)}
Place = tuple[str | int, ...]


def paths(data: Any, path: Place = ()) -> Iterator[Place]:
    """Yield the paths of all values."""
    inner = data.items() if isinstance(data, dict) else enumerate(data)
    for key, value in inner:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from paths(value, (*path, key))


def replaced(data: Any, path: Place, value: Any) -> None:
    for step in path[:-1]:
        data = data[step]
    if value == "delete":
        del data[path[-1]]
    else:
        data[path[-1]] = value


def changed(manifest: Any, data: st.DataObject) -> str:
    """Return a manifest with up to three odd values in it."""
    for _ in range(data.draw(st.integers(1, 3))):
        replaced(manifest, data.draw(st.sampled_from(list(paths(manifest)))), data.draw(ODD))
        if not isinstance(manifest, dict) or not manifest:
            break
    return yaml.safe_dump(manifest, allow_unicode=True)


ODD = st.one_of(
    st.just("delete"),
    st.none(),
    st.booleans(),
    st.integers(-3, 70_000),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", "..", "/", "/dev/shm", "/shared", "$(A)$(A)", "${x}", "a b", "ü", "1Gi"]),
    st.text(max_size=6),
    st.lists(st.none(), max_size=2),
    st.dictionaries(st.sampled_from(["name", "key", "x"]), st.just("m"), max_size=2),
)

FILES = {
    "jobs": JOBS_MAP,
    "plain": "ps: 8\nworkers: {replicas: 2}\nimage: {name: a, tag: 1}\n",
    "cluster": '{"ps": ["ps-0.a:1"], "worker": ["worker-0.a:1", "worker-1.a:1"]}',
    "tf_config": '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}',
    "scenario": SCENARIO,
}


def outcome(folder: Path, text: str, faults: str = "") -> str:
    """Return `read`, or why it was refused; any other error is a defect."""
    path = folder / "file.yaml"
    path.write_text(text)
    (folder / "faults.yaml").write_text(faults)
    added = Additions(faults=folder / "faults.yaml" if faults else None)
    try:
        read_scenario(path, added).parse()
    except ScenarioError as error:
        for problem in error.problems:
            assert problem.place.startswith((str(folder), "--")), problem
        return str(error)
    except UsageError as error:
        return str(error)
    return "read"


@pytest.mark.parametrize("name", FILES)
@given(data=st.data())
@EVERY
def test_no_value_breaks_the_reader(name: str, data: st.DataObject, tmp_path: Path) -> None:
    outcome(tmp_path, changed(yaml.safe_load(FILES[name]), data))


def of_a_job(text: str) -> str:
    """Return `converted`, or the mistakes; any other error is a defect."""
    try:
        documents = read_documents(text, "m.yaml")
        conversion = format_of(documents, "m.yaml").convert(documents, {})
    except ScenarioError as error:
        return str(error)
    written = as_text(conversion.scenario)
    for note in conversion.notes:
        assert note.text, note.path
    try:
        parse(written)
    except ScenarioError as error:
        # What is left to the scenario's own checks has a place in the manifest.
        for problem in error.problems:
            section = problem.path.split(".")[0]
            assert any(str(path[0]) == section for path in conversion.origins), problem
    return "converted"


@pytest.mark.parametrize("kind", KINDS)
def test_the_whole_is_valid(kind: str) -> None:
    text = KINDS[kind].replace("mode: 256", "mode: 0400")
    assert of_a_job(text + MAP) == "converted"


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(EVERY, max_examples=300 if SEARCHING else 25)
def test_no_field_breaks_the_reader_of_jobs(kind: str, data: st.DataObject) -> None:
    manifest = yaml.safe_load(yaml.dump(yaml.safe_load(KINDS[kind])))
    of_a_job(changed(manifest, data) + MAP)


WORDS = st.sampled_from(["cluster", "worker", "program", "command", "faults", "kill", "at", "x"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=12,
)


@given(patch=st.dictionaries(st.sampled_from(["cluster", "program", "faults", "name"]), JSON))
@EVERY
def test_no_file_of_faults_breaks_the_reader(patch: Mapping[str, Any], tmp_path: Path) -> None:
    outcome(tmp_path, SCENARIO, json.dumps(patch))


@pytest.mark.parametrize(
    ("faults", "problem"),
    [
        ('{"a": ' * 900 + "1" + "}" * 900, "nested too deeply"),
        (json.dumps({"x": list(range(6000))}), "it has more than 5,000 keys and values"),
        ('{"seed": 1e999}', "seed"),
        ('{"name": "\\ud800"}', "half of a character"),
        ('{"name": "\\u0000"}', "a control character"),
        ('{"name": NaN}', "name"),
        ('{"program": {"source": "/dev/zero"}}', "/dev/zero"),
    ],
)
def test_a_file_of_faults_that_goes_too_far_is_refused(
    tmp_path: Path, faults: str, problem: str
) -> None:
    found = outcome(tmp_path, SCENARIO, faults)
    assert found.startswith(f"{tmp_path}/faults.yaml:1: ")
    assert problem in found


def test_devices_folders_and_large_files_are_refused(tmp_path: Path) -> None:
    for path in (Path("/dev/zero"), tmp_path):
        with pytest.raises(UsageError, match="Can't read"):
            read_scenario(path)
    large = tmp_path / "large.yaml"
    large.write_text("ps: 1\n" + "#" * 3 * 2**20)
    with pytest.raises(UsageError, match="is the most"):
        read_scenario(large)
