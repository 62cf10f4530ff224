"""What `emulate init` writes: a scenario named after its folder, and the schema that it names."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from emulator.cli import setup
from emulator.scenario.schema import Scenario, json_schema
from emulator.scenario.starter import TEMPLATE_NAME, name_from


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("mine", "mine"),
        ("My model_2", "my-model-2"),
        ("2026-mnist", "mnist"),
        ("exp.v1-", "exp-v1"),
        ("Übung", "bung"),
        ("日本", TEMPLATE_NAME),
        ("42", TEMPLATE_NAME),
        ("", TEMPLATE_NAME),
        ("a" * 39 + "-b", "a" * 39),
    ],
)
def test_a_folder_gives_its_scenario_a_valid_name(folder: str, name: str) -> None:
    assert name_from(folder) == name
    (rule,) = (rule for rule in Scenario.model_fields["name"].metadata if hasattr(rule, "pattern"))
    assert re.fullmatch(rule.pattern, name)


def test_the_scenario_is_named_after_its_folder_and_names_its_schema(tmp_path: Path) -> None:
    setup.init(tmp_path / "My model")
    text = (tmp_path / "My model" / "scenario.yaml").read_text()
    assert yaml.safe_load(text)["name"] == "my-model"
    named = re.match(r"# yaml-language-server: \$schema=(\S+)\n", text)
    assert named
    schema = json.loads((tmp_path / "My model" / named[1]).read_text())
    assert schema == json_schema()


def test_the_current_folder_has_a_name_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "digits").mkdir()
    monkeypatch.chdir(tmp_path / "digits")
    setup.init(Path())
    assert yaml.safe_load(Path("scenario.yaml").read_text())["name"] == "digits"
