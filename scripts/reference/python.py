"""docs/reference/python.md: the public names of the package, from their docstrings."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

import emulator
from emulator.scenario.schema import Scenario
from emulator.validation.fields import descriptions
from scripts.reference.markdown import code, page, table

INTRODUCTION = """
The names that `import emulator` has. Whatever is not listed here may change with any version. Times
are seconds. The fields of a class of a scenario are its [keys](scenario.md), where their types and
defaults are. [From Python](../python.md) begins with examples, [testing](../testing.md) shows the
fixtures of pytest, [by hand](../by-hand.md) a cluster that is under way.
"""


def written() -> str:
    """Return the page."""
    return page("Python", INTRODUCTION, *map(_entry, sorted(emulator.__all__, key=str.lower)))


def _entry(name: str) -> str:
    value = getattr(emulator, name)
    parts = [f"## {name}", _signature(name, value), _doc(value)]
    if inspect.isclass(value) and not issubclass(value, Exception):
        parts += _class(value)
    return "\n\n".join(part for part in parts if part)


def _class(kind: type) -> Iterator[str]:
    texts = descriptions(kind)
    names = getattr(kind, "model_fields", None) or getattr(kind, "__dataclass_fields__", {})
    if issubclass(kind, BaseModel):
        fields = kind.model_fields.items()
        named = ((code(name), texts.get(name) or field.description or "") for name, field in fields)
        yield table(("field", "meaning"), named)
        if kind is not Scenario:  # the rest of others is for the emulator itself
            return
    elif known := [(code(name), texts[name]) for name in names if name in texts]:
        yield table(("attribute", "meaning"), known)
    public = [(name, value) for name, value in _members(kind) if name not in names]
    if read := [(code(name), _doc(value)) for name, value in public if isinstance(value, property)]:
        yield table(("property", "meaning"), ((name, _first(doc)) for name, doc in read))
    for name, value in public:
        if not isinstance(value, property):
            function = getattr(value, "__func__", value)
            yield f"### {kind.__name__}.{name}\n\n{_signature(name, function)}\n\n{_doc(function)}"


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield what a class of ours and its bases of ours define for others."""
    found: dict[str, Any] = {}
    for one in reversed(kind.__mro__):
        if one.__module__.partition(".")[0] == "emulator":
            found |= vars(one)
    for name, value in found.items():
        documented = isinstance(value, property | classmethod | staticmethod) or callable(value)
        if not name.startswith("_") and documented and not inspect.isclass(value):
            yield name, value


def _signature(name: str, value: Any) -> str:  # noqa: ANN401  a function or a class
    if inspect.isclass(value) and (issubclass(value, Exception) or hasattr(value, "model_fields")):
        return ""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    kept = [one for one in found.parameters.values() if one.name not in ("self", "cls")]
    words = [_parameter(one) for one in kept]
    for n, one in enumerate(kept):
        if one.kind is one.KEYWORD_ONLY:
            words.insert(n, "*")
            break
    returned = (
        ""
        if inspect.isclass(value) or not found.return_annotation
        else (f" -> {_annotation(found.return_annotation)}")
    )
    line = f"{name}({', '.join(words)}){returned}"
    if len(line) > 88:
        line = f"{name}(\n" + "".join(f"    {word},\n" for word in words) + f"){returned}"
    return f"```python\n{line}\n```"


def _parameter(one: inspect.Parameter) -> str:
    stars: dict[object, str] = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}
    text = f"{stars.get(one.kind, '')}{one.name}"
    if one.annotation is not one.empty:
        text += f": {_annotation(one.annotation)}"
    if one.default is not one.empty:
        plain = isinstance(one.default, str | int | float | bool | tuple | None)
        text += f" = {one.default!r}" if plain else " = ..."
    return text


def _annotation(value: object) -> str:
    return value if isinstance(value, str) else getattr(value, "__name__", str(value))


def _doc(value: object) -> str:
    return inspect.getdoc(value) or ""


def _first(text: str) -> str:
    return " ".join(text.partition("\n\n")[0].split())
