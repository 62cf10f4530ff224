"""Scenarios that Python builds from the classes are the same as in YAML."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, assume, settings
from hypothesis import given as for_all
from pydantic import ValidationError

import emulator
from emulator import (
    Kill,
    Partition,
    Pause,
    Preempt,
    RandomFaults,
    Scenario,
    Shape,
    TraceFaults,
    Trigger,
)
from emulator.cli import setup
from emulator.cli.setup import TEMPLATE_NAME, name_from
from emulator.errors import UsageError
from emulator.faults.kinds import entries
from emulator.runtime import plugins
from emulator.scenario.loader import parse
from emulator.scenario.schema import json_schema
from tests.scenario.drawn import scenarios

HEAD = "name: x\nframework: none\nprogram: {command: [a]}\ncluster: {worker: 3}\n"
FAULTS = "faults: [{kill: worker-0, at: 1s}, {%s}]"

PAIRS = [
    (
        Preempt(preempt="worker-1", at=Trigger(step=300), grace=5, down="1m"),
        "preempt: worker-1, at: {step: 300}, grace: 5s, down: 1m",
    ),
    (
        Preempt(preempt="worker-*", at=40.5, down=math.inf, name="last"),
        "preempt: 'worker-*', at: 40.5s, down: forever, name: last",
    ),
    (
        Pause(pause="worker-0", at=Trigger(log="Saving", task="worker-0"), for_=2),
        "pause: worker-0, at: {log: Saving, task: worker-0}, for: 2s",
    ),
    (
        Partition(partition=[["worker-0"], ["worker-1", "worker-2"]], at="1s", for_="8s"),
        "partition: [[worker-0], [worker-1, worker-2]], at: 1s, for: 8s",
    ),
    (
        Shape(shape="worker-2", at=Trigger(after="0", delay=3), for_=1, loss="5%", bandwidth=10**6),
        "shape: worker-2, at: {after: 0, delay: 3s}, for: 1s, loss: 5%, bandwidth: 1mbit",
    ),
    (
        RandomFaults(random=Preempt(preempt="worker-*", grace=2), every=30, max=4, seed=7),
        "random: {preempt: 'worker-*', grace: 2s}, every: 30s, max: 4, seed: 7",
    ),
    (
        TraceFaults(
            trace=(emulator.TraceRow(time=1, target="worker-0", down=2),), down=3, speed=2.0
        ),
        "trace: [{time: 1, target: worker-0, down: 2}], down: 3s, speed: 2.0",
    ),
]


@pytest.mark.parametrize(("made", "written"), PAIRS, ids=lambda one: type(one).__name__)
def test_a_class_makes_what_yaml_does(made: Any, written: str) -> None:
    given = parse(HEAD + FAULTS % written).faults[1]
    assert made == given
    assert made.model_fields_set == given.model_fields_set


def test_a_scenario_of_classes_is_the_one_that_yaml_has() -> None:
    made = Scenario(
        name="x",
        framework="none",
        program=emulator.Program(command=["a"]),
        cluster={"worker": emulator.Role(replicas=3)},
        faults=[Kill(kill="worker-1", at=Trigger(step=3))],
        timeout=90,
        expect=emulator.Expectations(final_step=5),
    )
    rest = "faults: [{kill: worker-1, at: {step: 3}}]\ntimeout: 90s\nexpect: {final_step: 5}\n"
    assert made == parse(HEAD + rest) == parse(made.to_yaml())


def test_a_trace_is_read_from_its_file(tmp_path: Path) -> None:
    (trace := tmp_path / "trace.csv").write_text("time,target,down\n1,worker-0,2\n")
    made = TraceFaults.model_validate({"trace": str(trace)})
    assert made.trace == (emulator.TraceRow(time=1, target="worker-0", down=2),)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Pause(pause="worker-0", for_="5"), "for Pause\nfor_\n.*not a duration"),
        (lambda: Pause(**{"pause": "worker-0"}), "for Pause\nfor\n.*required"),
        (lambda: Preempt(preempt="w", down=-1), "down\n.*-1s is too small"),
        (lambda: Preempt(preempt="w", down=math.nan), "down\n.*nans is too small"),
        (lambda: Preempt(preempt="w", grace=math.inf), "grace\n.*finite"),
        (lambda: Preempt(preempt="w", grace=True), "grace\n.*'True' is not a duration"),
        (lambda: Preempt(preempt="w", loss="silent", grace=3), "comes without notice"),
        (lambda: Preempt.model_validate({"gracee": 3}), "gracee\n.*not permitted"),
        (lambda: Partition(partition=[["a"]], for_=1), "partition\n.*at least 2 items"),
        (lambda: Trigger(log="("), "log\n.*'\\('|not a regular expression|\\("),
        (lambda: Scenario.model_validate({"faults": [Kill(kill="w")]}), "faults.0\n.*when\\?"),
    ],
)
def test_what_is_wrong_is_said_at_once_with_its_field(make: Any, says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        make()


@pytest.mark.parametrize("wrong", ["at: 1s, for: 5", "at: 1s, for_: 5s", "at: 1, for: 5s"])
def test_a_file_needs_units_and_has_no_names_of_python(wrong: str) -> None:
    with pytest.raises(emulator.EmulatorError, match=r"not a duration|unknown key"):
        parse(HEAD + FAULTS % f"pause: worker-0, {wrong}")


def test_the_package_has_every_kind() -> None:
    own = {kind for kind in entries().values() if kind.kind not in plugins.names("faults")}
    assert {kind.__name__ for kind in own} <= {*emulator.__all__}
    for name in emulator.__all__:
        assert getattr(emulator, name).__name__ == name
    with pytest.raises(AttributeError, match="Preemptt"):
        emulator.Preemptt  # noqa: B018


def test_a_fault_is_shown_as_it_was_given() -> None:
    fault = Preempt(preempt="worker-1", at=Trigger(step=300), grace=5)
    assert repr(fault) == "Preempt(at=Trigger(step=300), grace=5.0, preempt='worker-1')"


# --- A scenario as YAML is the same scenario when it is read again --------------------------------


def same(scenario: Scenario) -> None:
    again = parse(scenario.to_yaml(), folder=Path("/"))
    assert again == scenario
    # Some rules depend on what was written and what is a default.
    written = scenario.model_dump(mode="json", exclude_unset=True)
    assert again.model_dump(mode="json", exclude_unset=True) == written


@pytest.mark.slow
@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@for_all(data=scenarios("tensorflow") | scenarios("pytorch"))
def test_of_any(data: dict[str, Any]) -> None:
    try:
        scenario = parse(json.dumps(data))
    except UsageError:
        assume(False)
    same(scenario)


def test_it_is_written_for_people() -> None:
    text = parse("name: x\nprogram: {command: [a]}\ncluster: {worker: 2}\ntimeout: 5m\n").to_yaml()
    assert text == (
        "name: x\nprogram:\n  command:\n    - a\ncluster:\n  worker:\n    replicas: 2\n"
        "timeout: 300s\n"
    )


def test_of_faults_as_they_were_written() -> None:
    silent = {"preempt": "worker-0", "at": "3s", "loss": "silent"}
    lasting = {"pause": "worker-*", "for": "forever", "at": {"phase": "checkpoint"}}
    random = {"random": {"kill": "worker-0"}, "every": "5s"}
    data = {"name": "x", "program": {"command": ["a"]}, "cluster": {"worker": 2}}
    scenario = parse(json.dumps({**data, "faults": [silent, lasting, random]}))
    same(scenario)
    assert "grace" not in scenario.to_yaml()


# ---


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
