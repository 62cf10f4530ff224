"""docs/kubeflow.md says of each field of a manifest what is made of it, as the reader has it."""

from __future__ import annotations

from emulator.manifests.kubernetes_fields import OBJECTS
from scripts import write_field_table as page


def test_the_table_of_fields_is_up_to_date() -> None:
    text = page.PAGE.read_text()
    assert text == page.written(text), "run scripts/write_field_table.py"


def test_every_field_is_in_the_table_with_what_is_made_of_it() -> None:
    lines = page.field_table().splitlines()
    for name, fields in OBJECTS.items():
        for key, field in fields.items():
            end = f"| {field.how} | {field.text} |"
            assert any(f"`{key}`" in line and line.endswith(end) for line in lines), (name, key)


def test_every_value_of_a_chart_is_in_the_table() -> None:
    lines = page.value_table().splitlines()
    for keys in page.CHARTS.values():
        for key in keys:
            path, end = key.path.replace("|", r"\|"), f"| {key.how} | {key.text} |"
            assert any(f"`{path}`" in line and line.endswith(end) for line in lines), key


def test_what_is_not_honoured_says_why() -> None:
    for name, fields in OBJECTS.items():
        for key, field in fields.items():
            assert field.how == "honoured" or field.text, f"{name}.{key}"
