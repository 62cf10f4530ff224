"""The plan of the helper that reads event files."""

from __future__ import annotations

from pathlib import Path

from emulator.metrics import event_files
from emulator.planning import events
from emulator.scenario.loader import parse

SCENARIO = """
name: test
framework: tensorflow
image: python:3.11
program: {command: [train]}
cluster: {ps: 1, worker: 2, chief: {image: 'own:1'}}
"""


def test_it_runs_in_the_image_of_the_leading_task_and_knows_the_tasks() -> None:
    names = ["ps-0", "worker-0", "worker-1", "chief-0"]
    (helper,) = events.helpers(parse(SCENARIO + "metrics: {events: logs}\n"), names).values()
    assert helper.command == ["python3", "event_files.py", "logs", "chief-0", *names]
    assert helper.source == Path(event_files.__file__)
    assert helper.image == "own:1"


def test_there_is_none_unless_event_files_are_read() -> None:
    assert events.helpers(parse(SCENARIO), ["ps-0"]) == {}
