"""What the fields of a model mean: the texts below them in the source, for its JSON schema.

pydantic reads such texts itself (`use_attribute_docstrings`), but when a class is made, which every
command would wait for. Only a schema needs them.
"""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache
from itertools import pairwise
from typing import Annotated, Any

from pydantic import BaseModel, TypeAdapter


def describe(model: type[BaseModel], schema: dict[str, Any]) -> None:
    """Add to each property of a model's schema what it lacks of a description.

    Defaults become what users would write: `30s` instead of 30.0.
    """
    texts = descriptions(model)
    for name, field in model.model_fields.items():
        found = schema.get("properties", {}).get(field.alias or name, {})
        if name in texts:
            found.setdefault("description", texts[name])
        if isinstance(found.get("default"), int | float) and field.metadata:
            written: Any = Annotated[field.annotation, *field.metadata]
            kind: TypeAdapter[Any] = TypeAdapter(written)
            found["default"] = kind.dump_python(field.default, mode="json")


def descriptions(model: type) -> dict[str, str]:
    """Return the text below each annotated name of a class and of its bases, in one line each."""
    found: dict[str, str] = {}
    for one in reversed(model.__mro__):
        if one.__module__.partition(".")[0] == "emulator":
            found |= _fields_of_module(one.__module__).get(one.__qualname__, {})
    return found


@cache
def _fields_of_module(name: str) -> dict[str, dict[str, str]]:
    tree = ast.parse(inspect.getsource(sys.modules[name]))
    classes = (node for node in tree.body if isinstance(node, ast.ClassDef))
    return {node.name: dict(_fields_of_class(node)) for node in classes}


def _fields_of_class(node: ast.ClassDef) -> list[tuple[str, str]]:
    return [
        (field.target.id, " ".join(inspect.cleandoc(text.value.value).split()))
        for field, text in pairwise(node.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    ]
