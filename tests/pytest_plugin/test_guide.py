"""docs/testing.md, as a reader follows it: its files are written, its commands are run."""

from __future__ import annotations

import re
import shlex
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from emulator.scenario.schema import Scenario
from tests.docs.test_tutorial import BLOCK
from tests.pytest_plugin.conftest import Suite
from tests.shown import missing

ROOT = Path(__file__).parent.parent.parent
GUIDE = (ROOT / "docs" / "testing.md").read_text()


@dataclass(frozen=True)
class Session:
    """Commands of one block, and what the folder holds by then."""

    files: dict[str, str]
    text: str

    def commands(self) -> Iterator[tuple[list[str], list[str]]]:
        """Yield the arguments of pytest, and the lines that the guide shows below."""
        for part in self.text.split("$ pytest")[1:]:
            command, *shown = part.splitlines()
            yield shlex.split(command), shown


def sessions() -> list[Session]:
    files: dict[str, str] = {}
    found = []
    for block in BLOCK.finditer(GUIDE):
        if block["file"]:
            files = {**files, block["file"]: block["text"]}
        elif block["language"] == "console":
            found.append(Session(files, block["text"]))
    return found


STEP = "time.sleep(0.03)"
LONG_STEP = "time.sleep(0.15)"
"""On a busy machine the tasks of a run start seconds apart: none may be over before all run."""


def follow(suite: Suite, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = suite.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        assert name != "train.py" or STEP in text
        path.write_text(text.replace(STEP, LONG_STEP))


@pytest.mark.parametrize("session", sessions(), ids=lambda s: s.text.splitlines()[0].lstrip("$ "))
def test_commands_of_the_guide_say_what_it_shows(suite: Suite, session: Session) -> None:
    follow(suite, session.files)
    commands = list(session.commands())
    assert commands
    for arguments, shown in commands:
        done = suite.run("-W", "error", *arguments, apart=True)
        assert missing(shown, done.stdout.lines) == []


def test_tables_of_the_guide_have_every_option_and_key_and_no_other(suite: Suite) -> None:
    help = suite.run("--help").stdout.str()
    options = set(re.findall(r"(?m)^ +.*?(--emulator-[\w-]+|--vary)\b", help))
    options |= set(re.findall(r"(--emulator-[\w-]+|--vary)=", help))
    assert len(options) > 5
    assert _first_column("| option | |", "--") == options
    keys = set(re.findall(r"(?m)^  (emulator_\w+) \(", help))
    assert len(keys) > 1
    assert _first_column("| in the ini file | |", "") == keys
    for name in set(re.findall(r"--emulator-[\w-]+|emulator_scenarios", GUIDE)):
        assert re.search(rf"{name}\b", help), name
    of_scenarios = {*Scenario.model_fields, "expect.throughput"}
    assert _first_column("| in a scenario | |", "") <= of_scenarios


def test_junit_has_the_properties_that_the_guide_lists(suite: Suite) -> None:
    follow(suite, sessions()[0].files)
    suite.run("scenarios", "--junitxml=junit.xml", passed=1)
    properties = ET.parse(suite.path / "junit.xml").getroot().iter("property")
    assert {one.attrib["name"] for one in properties} == _first_column("| property | is |", "")


def test_the_workflow_of_the_guide_is_that_of_the_suite_that_init_writes() -> None:
    name = ".github/workflows/training.yml"
    shown = next(block["text"] for block in BLOCK.finditer(GUIDE) if block["file"] == name)
    assert shown == (ROOT / "images" / "suite" / name).read_text()


def _first_column(head: str, prefix: str) -> set[str]:
    """Return the names in the first column of a table: of an option without its value."""
    table = GUIDE.partition(f"\n{head}\n")[2].partition("\n\n")[0]
    names = [
        cell
        for line in table.splitlines()[1:]
        for cell in re.findall("`(.+?)`", line.split("|")[1])
    ]
    assert names, head
    return {name.split()[0] for name in names if name.startswith(prefix)}
