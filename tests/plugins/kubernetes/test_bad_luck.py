"""What goes wrong with a cluster, for real and with the whole emulator.

Each time: one sentence, the right exit code, and nothing left.
"""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from emulator.plugins.kubernetes.rights import role
from emulator.record.reader import Record
from tests.clusters import Alone, ForTest
from tests.conftest import Emulate, Finished, own, wait_for_line

pytestmark = pytest.mark.kubernetes

RUN = own("luck")
RUNNING = "all tasks are running"
KINDS = ("pod", "service", "config_map", "persistent_volume_claim")
USUAL = "echo up; sleep 1000 & wait"
SOON = "kubernetes.start_timeout=4s"


def sentence(done: Finished) -> str:
    """Return the one line that says what went wrong."""
    assert "Traceback" not in done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("emulate: ")]
    assert said, done.stderr
    return said[-1]


@dataclass(frozen=True)
class Luck:
    """A scenario in the namespace of the test, and what becomes of it."""

    emulate: Emulate
    cluster: ForTest
    image: str
    folder: Path

    def words(self, command: str, sets: Sequence[str]) -> list[str | Path]:
        """Return how the scenario is run with some settings."""
        (self.folder / "program.py").write_text("# so that there is a ConfigMap\n")
        path = self.folder / "scenario.yaml"
        path.write_text(
            f"name: luck\nframework: none\nimage: {self.image}\n"
            f"program: {{source: program.py, command: [sh, -c, {json.dumps(command)}]}}\n"
            "cluster: {worker: {replicas: 2, cpus: 0.1, memory: 32m}}\n"
        )
        options: list[str | Path] = [*self.cluster.arguments, "--run-id", RUN, "--json"]
        options += ["--out", self.emulate.out, *(word for one in sets for word in ("--set", one))]
        return ["up", path, *options]

    def up(self, *sets: str, command: str = USUAL, user: Path | None = None) -> Finished:
        """Run it to its end."""
        env = {"KUBECONFIG": str(user or self.cluster.kubeconfig)}
        return self.emulate(*self.words(command, sets), env=env)

    def begin(self, *sets: str, command: str = USUAL) -> subprocess.Popen[str]:
        """Return when its tasks run."""
        process = self.emulate.start(*self.words(command, sets), env=self.cluster.environment)
        wait_for_line(process, RUNNING)
        return process

    def fails(self, *sets: str, user: Path | None = None) -> str:
        """Return why it can't run, after nothing of it is left."""
        done = self.up(*sets, user=user)
        assert done.returncode == 4, done.stderr
        assert self.left() == []
        return sentence(done)

    def down(self) -> None:
        done = self.emulate("down", RUN, "--out", self.emulate.out, env=self.cluster.environment)
        assert done.returncode == 0, done.stderr

    def left(self) -> list[str]:
        """Return what carries the run's label in any namespace, asked as administrator."""
        with self.cluster.core() as core:
            listings = [getattr(core, f"list_{kind}_for_all_namespaces") for kind in KINDS]
            found = [listing(label_selector=f"emulator.run={RUN}").items for listing in listings]
        return [
            f"{kind} {one.metadata.name}"
            for kind, items in zip(KINDS, found, strict=True)
            for one in items
            if one.metadata.deletion_timestamp is None
        ]


@pytest.fixture
def luck(emulate: Emulate, kubernetes_cluster: ForTest, tiny_image: str, tmp_path: Path) -> Luck:
    return Luck(emulate, kubernetes_cluster, tiny_image, tmp_path)


def finished(process: subprocess.Popen[str]) -> Finished:
    stdout, stderr = process.communicate(timeout=300)
    return Finished(process.returncode, stdout, stderr)


# --- Before the start -----------------------------------------------------------------------------


def without(rules: Sequence[Mapping[str, Any]], resource: str, *verbs: str) -> list[dict[str, Any]]:
    """Return the rules of a Role without some verbs on a resource."""
    kept = []
    for rule in rules:
        others = [one for one in rule["resources"] if one != resource]
        if others:
            kept.append({**rule, "resources": others})
        allowed = [verb for verb in rule["verbs"] if verb not in verbs]
        if resource in rule["resources"] and allowed:
            kept.append({**rule, "resources": [resource], "verbs": allowed})
    return kept


@pytest.mark.parametrize(
    ("resource", "verb"),
    [
        ("services", "create"),
        ("configmaps", "create"),
        ("pods", "create"),
        ("pods", "watch"),
        ("pods/log", "get"),
    ],
)
def test_a_verb_that_is_forbidden_is_named(
    luck: Luck, kubernetes_user: Callable[..., Path], resource: str, verb: str
) -> None:
    namespace = luck.cluster.namespace
    said = luck.fails(user=kubernetes_user(without(role(namespace)["rules"], resource, verb)))
    assert f"may not {verb} {resource} in the namespace {namespace}" in said
    assert f'A Role with the verb "{verb}" for "{resource}" allows it' in said
    assert "emulate doctor --engine kubernetes" in said


def test_a_quota_that_is_exceeded_is_said(luck: Luck) -> None:
    luck.cluster.limit({"pods": "1"})
    said = luck.fails()
    assert f"The quota of the namespace {luck.cluster.namespace} does not allow" in said
    assert "exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1" in said


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ("kubernetes.service_account=nobody", 'serviceaccount "nobody" not found'),
        ("kubernetes.priority_class=none", "no PriorityClass with name none was found"),
        ("cluster.worker.cpus=0.5", "maximum cpu usage per Container is 200m, but limit is 500m"),
    ],
)
def test_what_admission_refuses_is_said(luck: Luck, setting: str, text: str) -> None:
    with luck.cluster.core() as core:
        limits = [{"type": "Container", "max": {"cpu": "200m"}}]
        core.create_namespaced_limit_range(
            luck.cluster.namespace, {"metadata": {"name": "l"}, "spec": {"limits": limits}}
        )
    assert text in luck.fails(setting)


@pytest.mark.parametrize(
    ("sets", "texts"),
    [
        (["kubernetes.context=elsewhere"], ["elsewhere", "kubectl config get-contexts"]),
        (
            ["kubernetes.namespace=no-such"],
            ["There is no namespace no-such in the cluster", "kubectl create namespace no-such"],
        ),
        (
            ["kubernetes.node_selector={disk: fast}", "kubernetes.shared=none", SOON],
            ["worker-", " did not start in 4 s: Unschedulable: 0/", "node(s) didn't match"],
        ),
        (["cluster.worker.cpus=500", SOON], ["Insufficient cpu"]),
        (
            ["image=localhost:9/team/no-such:1", "kubernetes.start_timeout=40s"],
            ["worker-", "ImagePull", "localhost:9", "did not start in 40 s"],
        ),
        (
            ["image=no-such-image:1", "kubernetes.image_pull_policy=Never"],
            ["no-such-image:1", "Never"],
        ),
    ],
    ids=["context", "namespace", "node", "cpus", "registry", "image"],
)
def test_what_is_not_there_is_said(luck: Luck, sets: list[str], texts: list[str]) -> None:
    said = luck.fails(*sets)
    assert [text for text in texts if text not in said] == [], said


def test_an_image_that_a_registry_does_not_have_is_said_at_once(luck: Luck, registry: str) -> None:
    """Not after `start_timeout`: no second attempt brings it."""
    said = luck.fails(f"image={registry}/team/no-such:1", "kubernetes.start_timeout=1h")
    texts = ("can't start: ", "ImagePull", "team/no-such", "Check the image's name")
    assert [text for text in texts if text not in said] == [], said


def test_a_command_that_is_not_in_the_image_is_said_and_nothing_is_said_to_run(luck: Luck) -> None:
    said = luck.fails("program.command=[no-such-program]")
    assert re.search(r"worker-\d can't start: (ContainerCannotRun|StartError): ", said), said
    assert '"no-such-program": executable file not found in $PATH' in said
    assert "Check the first word of the command: it is not in the image." in said
    (run,) = luck.emulate.out.iterdir()
    assert '"all-running"' not in (run / "history.jsonl").read_text()


# --- In mid-run -----------------------------------------------------------------------------------


def test_a_namespace_that_is_deleted_under_a_run_ends_it(luck: Luck) -> None:
    process = luck.begin()
    with luck.cluster.core() as core:
        core.delete_namespace(luck.cluster.namespace)
    done = finished(process)
    assert done.returncode == 4, done.stderr
    assert f"The namespace {luck.cluster.namespace} is being deleted" in sentence(done)
    assert luck.left() == []


def test_an_api_server_that_is_away_for_half_a_minute_costs_nothing(
    luck: Luck, kubernetes_alone: Alone
) -> None:
    # worker-0 ends while nobody can say so, worker-1 goes on long after.
    ticks = (
        "n=0; most=100; [ $EMULATOR_TASK = worker-0 ] || most=450; "
        "while [ $n -lt $most ]; do n=$((n + 1)); echo tick $n; sleep 0.1; done"
    )
    process = luck.begin("success=all-workers", command=ticks)
    with kubernetes_alone.api_away():
        threading.Event().wait(30)
    done = finished(process)
    assert done.returncode == 0, done.stderr
    record = Record(luck.emulate.out / RUN)
    for task, most in (("worker-0", 100), ("worker-1", 450)):
        lines = (record.path / "logs" / f"{task}.log").read_text().splitlines()
        said = [line.partition("tick ")[2] for line in lines if "tick " in line]
        assert said == [str(n) for n in range(1, most + 1)]
    assert done.json["restarts"] == 0
    assert luck.left() == []


def test_an_api_server_that_stays_away_ends_the_run_and_down_removes_it(
    luck: Luck, kubernetes_alone: Alone
) -> None:
    process = luck.begin("kubernetes.outage_timeout=3s")
    with kubernetes_alone.api_away():
        done = finished(process)
    assert done.returncode == 4, done.stderr
    assert "No Kubernetes API server answers" in sentence(done)
    assert "emulate clean --engine kubernetes" in sentence(done)
    assert luck.left() != []
    luck.down()
    assert luck.left() == []


def test_a_token_that_expires_in_mid_run_is_said(
    luck: Luck, kubernetes_user: Callable[..., Path]
) -> None:
    user = kubernetes_user(role(luck.cluster.namespace)["rules"], seconds=30)
    done = luck.up("restart={policy: on-failure}", command="sleep 45; exit 3", user=user)
    assert done.returncode == 4, done.stderr
    assert "refused the login of the context" in sentence(done)
    assert "log in again" in sentence(done)
    assert json.loads(user.read_text())["users"][0]["user"]["token"] not in done.stderr
    luck.down()
    assert luck.left() == []
