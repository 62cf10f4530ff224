"""What is wrong with a scenario, as its user reads it."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from emulator.errors import ScenarioError
from emulator.scenario.loader import parse

GOOD = """\
name: good
program:
  command: [python, train.py]
  env: {STEPS: "100"}
cluster:
  chief: 1
  worker: {replicas: 2, cpus: 1}
"""
HEAD = "name: x\nprogram: {command: [a]}\n"


def problems(text: str, *sets: str, folder: Path = Path()) -> list[str]:
    """Return the lines that a scenario called `s.yaml` is refused with, one for each problem."""
    with pytest.raises(ScenarioError) as refused:
        parse(dedent(text), file="s.yaml", sets=sets, folder=folder)
    lines = str(refused.value).splitlines()
    assert lines == [str(problem) for problem in refused.value.problems]
    assert all(line.isprintable() for line in lines)
    return lines


def only_problem(text: str, *sets: str, folder: Path = Path()) -> str:
    """Return the line of the only problem."""
    (line,) = problems(text, *sets, folder=folder)
    return line
