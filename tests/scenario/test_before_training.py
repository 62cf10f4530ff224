"""Roles whose tasks end before training: what may be written, and what the plan makes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.scenario.mistakes import HEAD, only_problem
from tests.scenario.plans import NAMED, plan

INGEST = "ingest: {replicas: 2, before: training, command: [python, ingest.py, '${index}']}"


def test_a_single_task_that_trains_gets_no_tf_config() -> None:
    made = plan(f"cluster: {{{INGEST}, worker: 1}}")
    assert "TF_CONFIG" not in made.task("worker-0").env
    assert made.warnings == ("a single task: no TF_CONFIG is set, as with Kubeflow",)


def test_it_may_set_the_variables_of_the_rendezvous_itself() -> None:
    text = "cluster:\n  ingest: {before: training, env: {TF_CONFIG: '{}'}}\n  worker: 2\n"
    assert plan(text).task("ingest-0").env["TF_CONFIG"] == "{}"


def test_its_gpus_are_free_again_for_the_training() -> None:
    text = "cluster:\n  worker: {replicas: 2, gpus: 1}\n  ingest: {before: training, gpus: 2}\n"
    made = plan(text, replace(NAMED, gpus=lambda: ("a", "b")))
    given = {task.name: task.gpus for task in made.tasks}
    assert given == {"worker-0": ("a",), "worker-1": ("b",), "ingest-0": ("a", "b")}


def test_the_helper_of_event_files_reads_those_of_the_training() -> None:
    made = plan(f"cluster: {{{INGEST}, worker: 2}}\nmetrics: {{events: logs}}")
    assert made.helpers[0].command[2:] == ("logs", "worker-0", "worker-0", "worker-1")


BEFORE = "cluster:\n  ingest: {before: training}\n  worker: 1\n"
STRIKES = f"{BEFORE}faults:\n  - "


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "cluster:\n  worker: {replicas: 2, before: training}\n  ps: 1\n",
            "4: cluster.worker.before: the role worker takes part in the training (leave `before` "
            "out, or give the role another name, such as ingest)",
        ),
        (
            "framework: none\ncluster:\n  chief: {before: training}\n  boss: 1\n",
            "5: cluster.chief.before: the role chief takes part",
        ),
        (
            "cluster:\n  ingest: {before: training}\n",
            "3: cluster: all its tasks end before training, and none trains",
        ),
        (BEFORE.replace("ingest", "Ingest"), "4: cluster.Ingest: can't be part of a host name"),
        (
            BEFORE.replace("training", "lunch"),
            "4: cluster.ingest.before: 'lunch' is not allowed (write training)",
        ),
        (f"{BEFORE}success: chief\n", "6: success: 'chief' is set, but the cluster has none"),
        (
            BEFORE.replace("training", "training, command: [a, '${rank}']"),
            "4: cluster.ingest.command.1: the tasks of ingest have no ${rank}",
        ),
        (
            BEFORE.replace("1", "2") + "framework: pytorch\nelastic:\n  max: 3\n",
            "8: elastic.max: 3, but the cluster has 2 tasks",
        ),
        (
            STRIKES + "{kill: ingest-0, at: {step: 3}}\n",
            "7: faults.0.at: it is triggered in the training, when ingest-0 has ended",
        ),
        (
            STRIKES + "{kill: worker-0, at: {log: ready, task: ingest-0}}\n",
            "7: faults.0.at: it is triggered before training, when worker-0 has not started",
        ),
    ],
)
def test_a_mistake_is_reported_with_its_line(text: str, problem: str) -> None:
    assert only_problem(HEAD + text).startswith(f"s.yaml:{problem}")


def test_a_task_that_never_comes_back_is_warned_of() -> None:
    faults = "faults:\n  - {preempt: 'ingest-*', at: 1s, down: forever}\n"
    assert plan(f"cluster: {{{INGEST}, worker: 2}}\n{faults}").warnings == (
        "ingest-0 does not come back after its preempt: training never begins",
        "ingest-1 does not come back after its preempt: training never begins",
    )
    returns = faults.replace("forever", "1s")
    assert plan(f"cluster: {{{INGEST}, worker: 2}}\n{returns}").warnings == ()
