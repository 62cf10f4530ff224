"""docs/reference/ is what the code says, and the code says all that it needs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, get_args

import pytest
from pydantic import BaseModel, TypeAdapter

from emulator.analysis.explanation import NO_STEP
from emulator.analysis.failed_output import DOCS
from emulator.faults.kinds import entries
from emulator.record.events import KINDS
from emulator.report.terminal import _BY_STEPS
from emulator.scenario.schema import Scenario, json_schema
from scripts.reference import events, scenario
from scripts.reference.__main__ import FOLDER, PAGES
from tests.documents import of_all_plugins

ROOT = Path(__file__).parents[2]


@of_all_plugins
@pytest.mark.parametrize("name", sorted(PAGES))
def test_the_page_is_up_to_date(name: str) -> None:
    assert (FOLDER / name).read_text() == PAGES[name](), "run `python -m scripts.reference`"


def test_every_page_is_linked_and_written() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {*PAGES, "README.md", "manifests.md"}
    assert all(f"]({name})" in (FOLDER / "README.md").read_text() for name in PAGES)


def test_no_help_names_a_page_that_a_wheel_lacks() -> None:
    assert "docs/" not in PAGES["commands.md"]()
    assert "docs/" not in f"{NO_STEP} {_BY_STEPS}"


def test_no_message_names_a_page_that_a_wheel_lacks() -> None:
    """Only a hint does, and says where it is: in the emulator's repository."""
    found = {
        (path.name, node.value)
        for path in (ROOT / "emulator").rglob("*.py")
        for node in without_docstrings(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant) and re.search(r"docs/\S*\.md", str(node.value))
    }
    assert found == {("failed_output.py", DOCS)}


def without_docstrings(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the nodes of a module; a text that is a statement documents something."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        inner = ast.iter_child_nodes(node)
        waiting += [one for one in inner if not isinstance(one, ast.Expr) or not is_text(one)]


def is_text(statement: ast.Expr) -> bool:
    return isinstance(statement.value, ast.Constant)


# --- Scenarios ------------------------------------------------------------------------------------


def keys() -> list[tuple[str, str, dict[str, Any]]]:
    """Return every key of the schema with the title of its section."""
    return [
        (section.title, key, one)
        for section in scenario.sections(json_schema())
        for key, one in section.schema.get("properties", {}).items()
    ]


def test_every_model_of_a_scenario_has_a_section() -> None:
    titles = {section.title for section in scenario.sections(json_schema())}
    kinds = {f"Fault: {kind}" for kind in entries()}
    assert titles == {"Scenario", *json_schema()["$defs"], *kinds}


def test_every_key_says_what_it_means() -> None:
    """Write a text below the field, or a `description`."""
    texts = {(title, key): one.get("description", "") for title, key, one in keys()}
    assert [key for key, text in texts.items() if len(text) < 12 or not text.endswith(".")] == []


def test_every_key_has_an_example_unless_it_has_a_section() -> None:
    """Write `Field(examples=[...])`."""
    plain = [(title, key, one) for title, key, one in keys() if "$ref" not in str(one)]
    assert len(plain) > 150
    assert [(t, key) for t, key, one in plain if scenario.example(one) is None] == []


def test_a_key_that_is_a_share_may_be_a_percentage() -> None:
    """A number between 0 and 1, or one that is called a share, has the type Share or Ratio."""
    shares = {key for _, key, one in keys() if scenario.kind(one).startswith(("share", "ratio"))}
    assert {"accuracy", "min_goodput", "at_least", "at_most", "loss"} <= shares
    numbers = [(t, key, one) for t, key, one in keys() if scenario.kind(one).startswith("number")]
    assert [
        (title, key)
        for title, key, one in numbers
        if "share" in one["description"] or scenario.kind(one).endswith("0 to 1")
    ] == []


def models(found: dict[type[BaseModel], None], *annotations: Any) -> dict[type[BaseModel], None]:
    for one in annotations:
        if isinstance(one, type) and issubclass(one, BaseModel) and one not in found:
            found[one] = None
            models(found, *(field.annotation for field in one.model_fields.values()))
        models(found, *get_args(one))
    return found


def test_examples_are_valid(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("time,target,down\n1,worker-1,2\n")
    context = {"stored": True, "folder": str(tmp_path)}
    tried = 0
    for model in models({}, Scenario, *entries().values()):
        schema = TypeAdapter(model).json_schema()
        own = schema["$defs"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
        for name, field in model.model_fields.items():
            written: Any = Annotated[field.annotation, model.__name__, *field.metadata]
            kind: TypeAdapter[Any] = TypeAdapter(written)
            for value in own.get("properties", {}).get(field.alias or name, {}).get("examples", ()):
                kind.validate_python(value, context=context)
                tried += 1
    assert tried > 100


def test_defaults_are_as_users_write_them() -> None:
    schema = json_schema()
    assert schema["$defs"]["Metrics"]["properties"]["interval"]["default"] == "1s"
    assert schema["$defs"]["Role"]["properties"]["replicas"]["default"] == 1


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (("timeout",), "duration"),
        (("shm_size",), "size"),
        (("seed",), "integer"),
        (("success",), "`auto`, `chief`, `all-workers`"),
        (("program",), "[Program](#program)"),
        (("cluster",), "map of [Role](#role) or integer 1 to 500"),
        (("parametrize",), "map of list of any"),
    ],
)
def test_types_in_words(path: tuple[str, ...], words: str) -> None:
    assert scenario.kind(json_schema()["properties"][path[0]]) == words


# --- Events ---------------------------------------------------------------------------------------


def test_every_field_of_an_event_says_what_it_means() -> None:
    texts = {
        (name, key): text
        for name, kind in KINDS.items()
        for key, (_, text) in events.fields(kind).items()
    }
    assert [key for key, text in texts.items() if len(text) < 5] == []
