#!/usr/bin/env python3
"""Write the tables of docs/reference/manifests.md: what is made of each field of a manifest.

Everything in them is read from the code that reads manifests. A test fails while the page differs
from what this writes (tests/plugins/kubeflow/test_field_table.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from emulator.plugins.kubeflow.kinds import OBJECTS
from emulator.plugins.kubeflow.manifests import helm_values
from emulator.plugins.kubeflow.manifests.fields import Fields
from emulator.plugins.kubeflow.manifests.helm_values import Key

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "manifests.md"
BEGIN, END = "<!-- {} made by scripts/write_field_table.py -->\n", "<!-- end -->\n"
CHARTS: Mapping[str, Sequence[Key]] = {"a map of jobs": helm_values.KEYS}
"""What is read of the values of each chart."""
KINDS = ("TFJob", "PyTorchJob", "ConfigMap", "Secret")
"""The documents, in their order."""
REPLICAS = ("tfReplicaSpecs", "pytorchReplicaSpecs")
"""Mappings from types of replicas to objects."""
SHORTER = (
    (r"^spec\.\w+ReplicaSpecs\.\*\.template", "template"),
    (r"^template\.spec\.(init)?[cC]ontainers\[\]", "containers[]"),
    (r"^template\.spec\.volumes\[\]", "volumes[]"),
)
"""What is left out of a path, as it is the same for all."""


def field_table() -> str:
    """Return the table of fields of Kubernetes as Markdown."""
    return _table("object", "fields", _rows())


def value_table() -> str:
    """Return the table of values of charts as Markdown."""
    return _table("chart", "values", _values())


def written(page: str) -> str:
    """Return the page with the tables as they are now."""
    for name, table in (("fields", field_table()), ("values", value_table())):
        begin = BEGIN.format(name)
        head, _, rest = page.partition(begin)
        page = f"{head}{begin}\n{table}\n{END}{rest.partition(END)[2]}"
    return page


def _table(first: str, second: str, rows: Iterator[tuple[str, str, str, str]]) -> str:
    lines = [f"| {first} | {second} | | |", "|---|---|---|---|"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def _values() -> Iterator[tuple[str, str, str, str]]:
    """Yield the cells of each row: the chart, its values, how, and what is done instead."""
    for chart, keys in CHARTS.items():
        found: dict[tuple[str, str], list[str]] = {}
        for key in keys:
            found.setdefault((key.how, key.text), []).append(key.path.replace("|", "\\|"))
        shown = chart
        for (how, text), paths in found.items():
            yield shown, ", ".join(f"`{path}`" for path in paths), how, text
            shown = ""


def _rows() -> Iterator[tuple[str, str, str, str]]:
    """Yield the cells of each row: the object, its fields, how, and what is done instead."""
    for where, fields in _objects().items():
        shown = where
        for (how, text), names in _alike(fields).items():
            yield shown, ", ".join(f"`{name}`" for name in names), how, text
            shown = ""


def _alike(fields: Fields) -> dict[tuple[str, str], list[str]]:
    """Return the names of fields of which the same is made, the honoured ones first."""
    found: dict[tuple[str, str], list[str]] = {}
    for how in ("honoured", "approximated", "ignored"):
        for name, field in fields.items():
            if field.how == how:
                found.setdefault((how, field.text), []).append(name)
    return found


def _objects() -> dict[str, Fields]:
    """Return the fields of every object by its place, from the outside to the inside.

    Objects with the same fields are one, such as a container and an init container.
    """
    places: dict[str, dict[str, list[str]]] = {}
    for kind in KINDS:
        for name, path in [(kind, kind), *_inside(kind, "")]:
            kinds = places.setdefault(name, {}).setdefault(path, [])
            if kind not in kinds:
                kinds.append(kind)
    known: list[tuple[Fields, dict[str, list[str]]]] = []
    for name, paths in places.items():
        same = next((merged for fields, merged in known if fields == OBJECTS[name]), None)
        if same is None:
            known.append((OBJECTS[name], dict(paths)))
        else:
            for path, kinds in paths.items():
                same[path] = [*dict.fromkeys((*same.get(path, ()), *kinds))]
    return {_place(paths, known): fields for fields, paths in known}


def _place(paths: Mapping[str, list[str]], known: list[tuple[Fields, dict[str, list[str]]]]) -> str:
    """Return the words for a place, with its kinds where another object has the same path."""
    shown = []
    for path, kinds in paths.items():
        is_alone = sum(path in others for _, others in known) == 1
        shown.append(f"`{path}`" if is_alone else f"`{path}` of {', '.join(kinds)}")
    return ", ".join(shown)


def _inside(kind: str, path: str) -> Iterator[tuple[str, str]]:
    """Yield the objects in an object, each with its path."""
    for name, field in OBJECTS[kind].items():
        inner = field.shape.strip("[]{}")
        if inner not in OBJECTS:
            continue
        there = f"{path}.{name}".lstrip(".")
        there += "[]" if field.shape.startswith("[") else ".*" * (name in REPLICAS)
        yield inner, _short(there)
        yield from _inside(inner, there)


def _short(path: str) -> str:
    for pattern, instead in SHORTER:
        path = re.sub(pattern, instead, path)
    return path


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
