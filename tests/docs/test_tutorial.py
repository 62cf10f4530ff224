"""docs/tutorial.md, as a reader follows it: files are written, commands run, outputs compared."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.shown import missing

ROOT = Path(__file__).parents[2]
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text()
BLOCK = re.compile(
    r"(?:^`(?P<file>[^`\n]+)`:\n\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.M | re.S
)


def test_a_listing_that_leaves_something_out_says_so() -> None:
    """Else a reader takes it for the whole output, and thinks that something is wrong."""
    for block in BLOCK.finditer(TUTORIAL):
        for part in block["text"].split("$ ")[1:] if block["language"] == "console" else ():
            assert "…" in part, part


@pytest.mark.parametrize("name", ["images/starter/train.py", "docs/tutorial.md", "docs/testing.md"])
def test_the_programs_that_people_begin_with_run_alone(name: str) -> None:
    """Without a cluster, where none of our variables is set."""
    text = (ROOT / name).read_text()
    assert re.findall(r"environ(?:\[|\.pop\()[\"']EMULATOR_\w+", text) == []
    assert "EMULATOR_SHARED" in text


def test_the_commands_of_the_tutorial_say_what_it_shows(tmp_path: Path) -> None:
    """Tasks are processes here: the program needs nothing but Python."""
    bin = str(Path(sys.executable).parent)
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "EMULATOR"))},
        "EMULATOR_ENGINE": "process",
        "PATH": f"{bin}:{os.environ['PATH']}",
    }
    ran = 0
    for block in BLOCK.finditer(TUTORIAL):
        if block["file"]:
            (tmp_path / block["file"]).write_text(block["text"])
            continue
        assert block["language"] == "console"
        for part in block["text"].split("$ ")[1:]:
            command, *shown = part.splitlines()
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=tmp_path,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stdout
            assert shown, command
            assert missing(shown, done.stdout.splitlines()) == [], done.stdout
            ran += 1
    assert ran == 6
