"""Any manifest is read or refused in lines: no other error comes out, whatever is in it."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emulator.errors import ScenarioError
from emulator.manifests.assembly import as_text
from emulator.manifests.documents import read_documents
from emulator.manifests.spec import Options
from emulator.manifests.table import format_of
from emulator.scenario.loader import parse

pytestmark = pytest.mark.slow

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
KINDS = {
    "TFJob": FULL.format(kind="TFJob", specs="tfReplicaSpecs", container="tensorflow"),
    "PyTorchJob": FULL.format(
        kind="PyTorchJob", specs="pytorchReplicaSpecs", container="pytorch"
    ).replace("  pytorchReplicaSpecs", "  elasticPolicy: {minReplicas: 1}\n  pytorchReplicaSpecs"),
}
Path = tuple[str | int, ...]


def paths(data: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the paths of all values."""
    inner = data.items() if isinstance(data, dict) else enumerate(data)
    for key, value in inner:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from paths(value, (*path, key))


def replaced(data: Any, path: Path, value: Any) -> None:
    for step in path[:-1]:
        data = data[step]
    if value == "delete":
        del data[path[-1]]
    else:
        data[path[-1]] = value


def outcome(text: str) -> str:
    """Return `converted`, or the mistakes; any other error is a defect."""
    try:
        documents = read_documents(text, "m.yaml")
        conversion = format_of(documents, "m.yaml").convert(documents, Options())
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


SEARCHING = settings.get_current_profile_name() == "search"


@pytest.mark.parametrize("kind", KINDS)
def test_the_whole_is_valid(kind: str) -> None:
    text = KINDS[kind].replace("mode: 256", "mode: 0400")
    assert outcome(text + MAP) == "converted"


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(
    max_examples=300 if SEARCHING else 25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
def test_no_field_breaks_the_reader(kind: str, data: st.DataObject) -> None:
    manifest = deepcopy(yaml.safe_load(yaml.dump(yaml.safe_load(KINDS[kind]))))
    for _ in range(data.draw(st.integers(1, 3))):
        every = list(paths(manifest))
        replaced(manifest, data.draw(st.sampled_from(every)), data.draw(ODD))
        if not isinstance(manifest, dict) or not manifest:
            return
    outcome(yaml.safe_dump(manifest, allow_unicode=True) + MAP)
