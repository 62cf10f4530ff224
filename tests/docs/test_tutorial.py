"""The tutorials, as a reader follows them: files are written, commands run, outputs compared."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.shown import missing

ROOT = Path(__file__).parents[2]
TUTORIAL, WITH_PYTORCH, READING = (
    (ROOT / "docs" / f"{name}.md").read_text()
    for name in ("tutorial", "tutorial-pytorch", "reading-a-report")
)
BLOCK = re.compile(
    r"(?:^`(?P<file>[^`\n]+)`:\n\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.M | re.S
)


@pytest.mark.parametrize("page", [TUTORIAL, WITH_PYTORCH, READING])
def test_a_listing_that_leaves_something_out_says_so(page: str) -> None:
    """Else a reader takes it for the whole output, and thinks that something is wrong."""
    for block in BLOCK.finditer(page):
        for part in block["text"].split("$ ")[1:] if block["language"] == "console" else ():
            assert "…" in part, part


STARTERS = [f"images/starters/{name}/train.py" for name in ("tensorflow", "pytorch", "jax", "none")]


@pytest.mark.parametrize("name", [*STARTERS, "docs/tutorial.md", "docs/testing.md"])
def test_the_programs_that_people_begin_with_run_alone(name: str) -> None:
    """Without a cluster, where none of our variables is set."""
    text = (ROOT / name).read_text()
    assert re.findall(r"environ(?:\[|\.pop\()[\"']EMULATOR_\w+", text) == []
    assert "EMULATOR_SHARED" in text


@dataclass(frozen=True)
class Command:
    """A command of a page with what the page shows of its output."""

    text: str
    shown: list[str]
    files: dict[str, str]
    """The files that a reader has written until then."""


def commands(page: str) -> Iterator[Command]:
    """Yield the commands of a page in their order."""
    files: dict[str, str] = {}
    for block in BLOCK.finditer(page):
        if block["file"]:
            files = {**files, block["file"]: block["text"]}
            continue
        assert block["language"] in ("console", "python", "yaml")
        for part in block["text"].split("$ ")[1:] if block["language"] == "console" else ():
            command, *shown = part.splitlines()
            yield Command(command, shown, files)


def follow(command: Command, folder: Path, engine: str) -> None:
    """Do what a reader does, and hold the output against that of the page."""
    for name, text in command.files.items():
        (folder / name).write_text(text)
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "EMULATOR"))},
        "EMULATOR_ENGINE": engine,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        ["bash", "-c", command.text],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert command.shown, command.text
    assert missing(command.shown, done.stdout.splitlines()) == [], done.stdout


@pytest.mark.parametrize(
    ("page", "number"), [(TUTORIAL, 6), (READING, 4)], ids=["tutorial", "reading"]
)
def test_the_commands_of_the_page_say_what_it_shows(page: str, number: int, tmp_path: Path) -> None:
    """Tasks are processes here: the programs need nothing but Python."""
    found = list(commands(page))
    for command in found:
        follow(command, tmp_path, "process")
    assert len(found) == number


@pytest.mark.docker
@pytest.mark.timeout(1800)
def test_the_job_of_pytorch_resumes_as_its_tutorial_shows(tmp_path: Path) -> None:
    """The last command: it has the program with the checkpoint."""
    follow([*commands(WITH_PYTORCH)][-1], tmp_path, "docker")


@pytest.mark.docker
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_other_commands_of_the_tutorial_with_pytorch(tmp_path: Path) -> None:
    *others, _ = commands(WITH_PYTORCH)
    assert len(others) == 2
    for command in others:
        follow(command, tmp_path, "docker")
