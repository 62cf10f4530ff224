"""docs/reference/scenario.md: every key of a scenario, from the JSON Schema that editors read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml
from pydantic import TypeAdapter

from emulator.scenario.schema import json_schema
from emulator.validation.fields import Duration, DurationOrForever, Rate, Size
from scripts.reference.markdown import anchor, code, page, table

Schema = Mapping[str, Any]

INTRODUCTION = """
Every key of a scenario file: its type, its default, what it means, and an example.
[Scenarios](../scenario.md) explains how keys work together. The same texts are in the JSON Schema
that `emulate schema` prints and `emulate init` puts beside a scenario, so an editor with a YAML
language server shows them at each key.

- **duration**: `500ms`, `5s`, `2m`, `1h`, `1m30s`, `3d`, `1y` (365 days); 0 needs no unit.
- **size**: bytes as `512m`, `1g` or `1.5g`, in powers of 1024.
- **rate**: bits per second as `100mbit` or `1gbit`, in powers of 1000.
- **share**: a number from 0 to 1, or `5%`.
- **ratio**: a share that may be more than the whole: `1.1` or `110%`.
- **path**: relative to the scenario file.
- A dash is no default: the key is left out. Unknown keys are errors.
"""


@cache
def units() -> dict[str, str]:
    """Return what types with a unit are called, by the text of their schema."""
    kinds: dict[str, Any] = {
        "duration": Duration,
        "duration or `forever`": DurationOrForever,
        "size": Size,
        "rate": Rate,
    }
    named = {}
    for name, kind in kinds.items():
        for one in _alternatives(TypeAdapter(kind).json_schema()):
            named[str(one.get("pattern", one))] = name
    return named


def written() -> str:
    """Return the page."""
    schema = json_schema()
    return page("Scenario keys", INTRODUCTION, *map(_section, sections(schema)))


@dataclass
class Section:
    """An object of the schema: the scenario, a part of it, or a kind of fault."""

    title: str
    schema: Schema
    paths: list[str]
    """Where in a scenario it is; an empty path is the scenario itself."""


def sections(schema: Schema) -> Iterator[Section]:
    """Yield all objects of the schema, in the order in which a reader meets them."""
    found = {"": Section("Scenario", schema, [""])}
    waiting = [""]
    while waiting:
        section = found[waiting.pop(0)]
        for path, name in _references(section):
            if name not in found:
                found[name] = Section(name, schema["$defs"][name], [])
                waiting.append(name)
            found[name].paths.append(path)
    yield from found.values()
    for fault in schema["properties"]["faults"]["items"]["anyOf"]:
        kind = next(key for key in fault["required"] if key not in ("for", "every", "cpus"))
        yield Section(f"Fault: {kind}", fault, ["faults[]"])


def _references(section: Section) -> Iterator[tuple[str, str]]:
    """Yield each object that a section refers to, with its path."""
    for key, one in section.schema.get("properties", {}).items():
        for below, name in _within(one):
            yield f"{section.paths[0]}.{key}{below}".lstrip("."), name


def _within(schema: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401  any part of a schema
    for one in _alternatives(schema):
        if "$ref" in one:
            yield "", str(one["$ref"]).rpartition("/")[2]
        if isinstance(inner := one.get("additionalProperties"), Mapping):
            yield from ((f".*{below}", name) for below, name in _within(inner))
        if isinstance(inner := one.get("items"), Mapping):
            yield from ((f"[]{below}", name) for below, name in _within(inner))
        # The kinds of faults have sections, but what they have in common is met here first.
        for key, inner in one.get("properties", {}).items():
            yield from ((f".{key}{below}", name) for below, name in _within(inner))


def _section(section: Section) -> str:
    schema = section.schema
    rows = [
        (code(key), kind(one), _default(key, one, schema), one["description"], _example(key, one))
        for key, one in schema.get("properties", {}).items()
    ]
    head = ("key", "type", "default", "meaning", "example")
    text = " ".join(schema.get("description", "").split())
    places = ", ".join(map(code, dict.fromkeys(filter(None, section.paths))))
    where = f" At {places}." if places else ""
    return f"## {section.title}\n\n{text}{where}\n\n{table(head, rows)}"


def _default(key: str, one: Schema, schema: Schema) -> str:
    if key in schema.get("required", ()):
        return "required"
    default = one.get("default")
    if default is None or default in ({}, [], "") or isinstance(default, dict):
        return "-"
    return code(_size(default) if isinstance(default, str) else _yaml(default))


def _size(text: str) -> str:
    """Write bytes of a default as a user would: `1073741824b` is `1g`."""
    if text.endswith("b") and text[:-1].isdigit():
        for unit, power in (("g", 30), ("m", 20)):
            if int(text[:-1]) % 2**power == 0:
                return f"{int(text[:-1]) >> power}{unit}"
    return text


def kind(schema: Schema) -> str:
    """Return the type of a value in words."""
    named = units()
    words: dict[str, None] = {}
    if any(str(one.get("pattern")).endswith("%$") for one in _alternatives(schema)):
        number = next(one for one in _alternatives(schema) if one.get("type") == "number")
        of_number = "share" if "maximum" in number else f"ratio{_bounds(number)}"
        fixed = [_single(one) for one in _alternatives(schema) if "const" in one]
        return " or ".join([*fixed, of_number])
    for one in _alternatives(schema):
        if (unit := named.get(str(one.get("pattern", one)))) is not None:
            words[unit] = None
        elif one.get("type") != "null":
            words[_single(one)] = None
    if "duration" in words:
        words.pop("`0`", None)
    return " or ".join(words) or "any"


def _alternatives(schema: Schema) -> list[Schema]:
    found = schema.get("anyOf") or schema.get("oneOf")
    return [inner for one in found for inner in _alternatives(one)] if found else [schema]


def _single(schema: Schema) -> str:
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        return f"[{name}](#{anchor(name)})"
    if "enum" in schema:
        return ", ".join(code(_yaml(value)) for value in schema["enum"])
    if "const" in schema:
        return code(_yaml(schema["const"]))
    match schema.get("type"):
        case "object":
            inner = schema.get("additionalProperties")
            return f"map of {kind(inner)}" if isinstance(inner, Mapping) else "map"
        case "array":
            faults = len(_alternatives(schema["items"])) > 5
            return "list of faults, below" if faults else f"list of {kind(schema['items'])}"
        case "integer":
            return f"integer{_bounds(schema)}"
        case "number":
            return f"number{_bounds(schema)}"
        case "boolean":
            return "`true`, `false`"
        case "string":
            return "path" if schema.get("format") == "path" else "text"
        case list() as kinds:
            return " or ".join("text" if one == "string" else str(one) for one in kinds)
    return "any"


def _bounds(schema: Schema) -> str:
    least = schema.get("minimum", schema.get("exclusiveMinimum"))
    most = schema.get("maximum", schema.get("exclusiveMaximum"))
    if least is None and most is None:
        return ""
    above = "more than" if "exclusiveMinimum" in schema else "at least"
    return f" {least} to {most}" if None not in (least, most) else f" ({above} {least})"


def _example(key: str, schema: Schema) -> str:
    value = example(schema)
    return "-" if value is None else code(f"{key}: {_yaml(value)}")


def example(schema: Schema) -> Any:  # noqa: ANN401  of any type
    """Return an example of a value; None for objects, which have a section of their own."""
    if schema.get("examples"):
        return schema["examples"][0]
    for one in _alternatives(schema):
        if one.get("examples"):
            return one["examples"][0]
        if others := [value for value in one.get("enum", ()) if value != schema.get("default")]:
            return others[0]
        if one.get("const"):
            return one["const"]
        if one.get("type") == "boolean":
            return not schema.get("default", False)
    return None


def _yaml(value: object) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=math.inf)
    return text.removesuffix("\n").removesuffix("\n...").replace("\n", " ")
