"""The table of fields: all of the operator's schemas, the reader that follows it, and its page."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emulator.plugins.kubeflow.kinds import MOVED, OBJECTS
from emulator.plugins.kubeflow.manifests.fields import Findings, Reader
from emulator.scenario.manifests import read_documents
from scripts import write_field_table as page

SCHEMAS = Path(__file__).parent / "manifests" / "schemas"
TYPES = {"text": "string", "integer": "integer", "boolean": "boolean", "object": "object"}
DUMPED = {("PodMetadata", "creationTimestamp")}
"""Not in the schemas, but in what many clients write, as null."""


def differences(schema: Any, kind: str, seen: set[str]) -> Iterator[str]:
    """Yield how an object of the table differs from that of a schema, and those in it."""
    properties, fields = schema.get("properties", {}), OBJECTS[kind]
    if not properties or kind in seen:
        return
    seen.add(kind)
    known = {key for key in fields if (kind, key) not in DUMPED}
    yield from (f"{kind}.{key}" for key in properties.keys() ^ known)
    required = {key for key, field in fields.items() if field.required}
    yield from (f"{kind}.{key} is required" for key in {*schema.get("required", ())} - required)
    for key in properties.keys() & known:
        shape, inner = fields[key].shape, properties[key]
        if shape[0] in "[{":
            if (inner["type"] == "array") != (shape[0] == "["):
                yield f"{kind}.{key} is {inner['type']}"
            inner = inner.get("items") or inner["additionalProperties"]
            shape = shape[1:-1]
        if shape in OBJECTS:
            yield from differences(inner, shape, seen)
        elif shape == "quantity" and not inner.get("x-kubernetes-int-or-string"):
            yield f"{kind}.{key} is no quantity"
        elif TYPES.get(shape, inner.get("type")) != inner.get("type"):
            yield f"{kind}.{key} is {inner.get('type')}"


@pytest.mark.parametrize("kind", ["TFJob", "PyTorchJob"])
def test_the_fields_are_those_of_the_schema(kind: str) -> None:
    schema = json.loads(gzip.decompress((SCHEMAS / f"{kind.lower()}.json.gz").read_bytes()))
    seen = set[str]()
    assert list(differences(schema, kind, seen)) == []
    assert {"Container", "EnvVar", "Volume", "VolumeMount", "RunPolicy", "PodSpec"} <= seen


def test_the_comparison_with_a_schema_finds_what_is_missing() -> None:
    schema = {"properties": {"key": {"type": "integer"}, "more": {"type": "string"}}}
    assert sorted(differences(schema, "RdzvConf", set())) == [
        "RdzvConf.key is integer",
        "RdzvConf.more",
        "RdzvConf.value",
    ]


def test_moved_fields_are_unknown_where_they_were() -> None:
    for name in MOVED:
        kind, _, field = name.partition(".")
        assert field not in OBJECTS[kind]


def test_nulls_are_fields_that_are_left_out() -> None:
    (document,) = read_documents("metadata: null\nspec: {containers: null}\n", "m.yaml")
    findings = Findings(document)
    assert Reader(OBJECTS, MOVED).read(findings, "PodTemplate") == {}
    assert [str(problem) for problem in findings.problems()] == [
        "m.yaml:2: spec.containers: is missing"
    ]


# --- docs/reference/manifests.md ------------------------------------------------------------------


def test_the_table_of_fields_is_up_to_date() -> None:
    text = page.PAGE.read_text()
    assert text == page.written(text), "run scripts/write_field_table.py"


def test_every_field_is_in_the_table_with_what_is_made_of_it_and_why() -> None:
    lines = page.field_table().splitlines()
    for name, fields in OBJECTS.items():
        for key, field in fields.items():
            assert field.how == "honoured" or field.text, f"{name}.{key}"
            end = f"| {field.how} | {field.text} |"
            assert any(f"`{key}`" in line and line.endswith(end) for line in lines), (name, key)


def test_every_value_of_a_chart_is_in_the_table() -> None:
    lines = page.value_table().splitlines()
    for keys in page.CHARTS.values():
        for key in keys:
            path, end = key.path.replace("|", r"\|"), f"| {key.how} | {key.text} |"
            assert any(f"`{path}`" in line and line.endswith(end) for line in lines), key


def test_a_note_of_several_types_is_one() -> None:
    (document,) = read_documents("spec: {}\n", "m.yaml")
    findings = Findings(document)
    for role in ("PS", "Worker"):
        path = ("spec", "tfReplicaSpecs", role, "template", "spec", "affinity")
        findings.note(path, "ignored", "there is one machine")
    findings.note(("spec", "tfReplicaSpecs", "PS", "template", "x"), "ignored", "why")
    assert [str(note) for note in findings.all_notes()] == [
        "spec.tfReplicaSpecs.*.template.spec.affinity is ignored: there is one machine",
        "spec.tfReplicaSpecs.PS.template.x is ignored: why",
    ]
