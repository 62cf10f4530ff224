"""Checks Kubernetes objects as an API server with strict field validation does."""

from __future__ import annotations

import functools
import gzip
import importlib.resources
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
from referencing import Registry, Resource

SCHEMAS = Path(__file__).parent / "plugins" / "kubeflow" / "manifests" / "schemas"
KUBERNETES = "v1.34.0"
"""The version of Kubernetes of which objects are checked."""
CUSTOM = {
    ("kubeflow.org/v1", "TFJob"): "tfjob",
    ("kubeflow.org/v1", "PyTorchJob"): "pytorchjob",
}


def check(document: dict[str, Any], version: str = KUBERNETES) -> None:
    """Raise an error for a field that is unknown, missing or of a wrong type in a version."""
    api, kind = document["apiVersion"], document["kind"]
    name = CUSTOM.get((api, kind))
    (_built_in(api, kind, version) if name is None else _custom(name)).validate(document)


@functools.cache
def _built_in(api: str, kind: str, version: str) -> jsonschema.Draft202012Validator:
    """Return the check of a kind of Kubernetes itself, from the schemas of kubernetes-validate."""
    group = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", api)
    schema = _shipped(f"{kind.lower()}-{group}.json", version)
    registry: Registry[Any] = (
        Resource.from_contents(_shipped("_definitions.json", version)) @ Registry()
    )
    return jsonschema.Draft202012Validator(schema, registry=registry)


@functools.cache
def _shipped(name: str, version: str) -> Any:
    folder = importlib.resources.files("kubernetes_validate") / "kubernetes-json-schema"
    return json.loads((folder / f"{version}-local-strict" / name).read_text())


@functools.cache
def _custom(name: str) -> jsonschema.Draft202012Validator:
    schema: dict[str, Any] = json.loads(gzip.decompress((SCHEMAS / f"{name}.json.gz").read_bytes()))
    text = {"type": "string"}
    texts = {"type": "object", "additionalProperties": text}
    metadata = {"name": text, "namespace": text, "labels": texts, "annotations": texts}
    required = {"type": "object", "properties": metadata, "required": ["name"]}
    schema["properties"]["metadata"] = required
    _close(schema)
    return jsonschema.Draft202012Validator(schema)


def _close(node: Any) -> None:
    """Allow only known fields, and text or a number where Kubernetes allows both."""
    if isinstance(node, list):
        for inner in node:
            _close(inner)
    if not isinstance(node, dict):
        return
    if node.pop("x-kubernetes-int-or-string", None) is True:
        node.pop("type", None)
        node.setdefault("anyOf", [{"type": "integer"}, {"type": "string"}])
    properties = node.get("properties")
    if isinstance(properties, dict) and "additionalProperties" not in node:
        if not node.get("x-kubernetes-preserve-unknown-fields"):
            node["additionalProperties"] = False
        for inner in properties.values():
            _close(inner)
    for key, inner in node.items():
        if key != "properties":
            _close(inner)
