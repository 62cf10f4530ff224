"""Names of tasks on the network: `addresses`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.engines import engine_class
from emulator.planning.plan import Plan
from emulator.scenario.addresses import aliases, is_host
from emulator.scenario.loader import parse
from tests.scenario.mistakes import HEAD, only_problem, problems
from tests.scenario.plans import NAMED, plan

LOOPBACK = replace(
    NAMED, engine="process", named=False, address=lambda task: ("127.0.0.1", 5000 + len(task))
)
CLUSTER = "cluster: {ps: 1, worker: 2}\n"


def test_values_have_the_names_of_the_engine() -> None:
    text = "cluster: {worker: {replicas: 2, command: ['${pod}', '${namespace}', '${task}']}}\n"
    assert plan(text).task("worker-1").command == ("worker-1", "default", "worker-1")


def test_a_chart_tells_a_single_pod_its_name_too() -> None:
    made = plan("rendezvous: cluster-config\naddresses: {host: '{task}.x'}\ncluster: {worker: 1}\n")
    env = made.task("worker-0").env
    assert env["POD_NAME"] == "worker-0"
    assert json.loads(env["CLUSTER_CONFIG"]) == {"worker": ["worker-0.x:2222"]}
    assert made.warnings == ()
    without = plan("rendezvous: cluster-config\ncluster: {worker: 1}\n")
    assert "POD_NAME" not in without.task("worker-0").env
    assert without.warnings == ("a single task: no CLUSTER_CONFIG is set",)


def test_names_of_the_engine_that_begin_alike_are_not_those_of_the_scenario() -> None:
    site = replace(NAMED, named=False, address=lambda task: (f"{task}.run-1", 2222))
    made = plan(f"addresses: {{host: '{{task}}.release.svc'}}\n{CLUSTER}", site)
    (warning,) = [text for text in made.warnings if "approximated" in text]
    assert "ps-0.run-1:2222 instead of ps-0.release.svc:2222" in warning
    assert all(task.aliases == () for task in made.tasks)


def test_processes_have_no_names(tmp_path: Path) -> None:
    assert not engine_class("process")().plan_context("x-1", tmp_path).named


# --- Requests -------------------------------------------------------------------------------------


# --- Mistakes -------------------------------------------------------------------------------------


WRONG = ["{task}.Release", "{task}..x", "{task}.x.", "{task.x", "../{task}", "10.0.0.{index}", ""]


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("addresses: {host: '{name}.x'}", "there is no {name}; a host may have {task}, {role}"),
        *((f"addresses: {{host: '{host}'}}", "is not a host name in lower case") for host in WRONG),
        ("addresses: {port: 1}", "addresses.host: is missing"),
        *(
            (f"addresses: {{host: '{{task}}', port: {x}}}", "port")
            for x in ("0", "ps", "{ps: 65536}")
        ),
        ("addresses: {host: '{task}', port: {pss: 1}}", "did you mean 'ps'?"),
        ("addresses: {host: '{role}.x'}", "worker-0 and worker-1 have the same host name, worker"),
        ("addresses: {host: '{index}a.x'}", "ps-0 and worker-0 have the same host name, 0a"),
        ("addresses: {host: 'x.{task}'}", "ps-0 and worker-0 have the same host name, x"),
        (f"addresses: {{host: '{'a' * 58}-{{task}}.x'}}", "63 between two dots"),
        (
            "addresses: {host: '{task}.x'}\nhelpers: {ps-0: {command: [a]}}",
            "is a name of the task ps-0",
        ),
    ],
)
def test_a_mistake_is_named(section: str, message: str) -> None:
    found = problems(f"{HEAD}{section}\n{CLUSTER}")
    assert message in "\n".join(found)
    assert len(found) <= 3


def test_a_name_may_be_just_as_long_as_the_network_takes() -> None:
    part = "a" * 63
    assert is_host(".".join([part, part, part, "a" * 61]))
    assert not is_host(".".join([part, part, part, "a" * 62]))
    names = ("a" * 64, "1.a", "a.1", "1a.b1", "a.1.b", "a-.b", "")
    assert [is_host(name) for name in names] == [False, False, False, True, True, False, False]
    text = f"{HEAD}addresses: {{host: '{'a' * 54}-{{task}}.x'}}\ncluster: {{worker: 10}}\n"
    assert parse(text)
    assert "is not a host name" in only_problem(text.replace("10}", "11}"))


def test_a_task_has_no_name_of_another() -> None:
    made = plan("addresses: {host: 'a-{index}-{role}.x'}\ncluster: {worker: 3, ps: 3}\n")
    names = [name for task in made.tasks for name in task.aliases]
    assert len(names) == len(set(names)) == 12


LABELS = st.from_regex(r"[a-z]([-a-z0-9]{0,10}[a-z0-9])?", fullmatch=True)


@given(st.lists(LABELS, min_size=1, max_size=6))
def test_aliases_are_the_beginnings_of_the_host(parts: list[str]) -> None:
    host = ".".join(parts)
    found = aliases(host)
    assert is_host(host)
    assert found[0] == parts[0]
    assert found[-1] == host
    assert len(found) == len(parts)
    assert all(host.startswith(name) and is_host(name) for name in found)


def test_a_plan_from_before_has_no_aliases() -> None:
    made = plan(CLUSTER)
    stored = json.loads(made.model_dump_json())
    for task in stored["tasks"]:
        del task["aliases"]
    del stored["scenario"]["addresses"]
    again = Plan.model_validate(stored, context={"stored": True})
    assert again.task("ps-0").names == ("ps-0",)
    assert again == made


def test_one_port_is_for_all_and_the_default_is_kubeflows() -> None:
    for port, ports in [("8080", [8080] * 3), ("{ps: 8080}", [8080, 2222, 2222])]:
        made = plan(f"addresses: {{host: '{{task}}.x', port: {port}}}\n{CLUSTER}")
        assert [task.port for task in made.tasks] == ports
