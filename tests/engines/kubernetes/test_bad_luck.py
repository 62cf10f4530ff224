"""What goes wrong with a cluster, for real and with the whole emulator.

Each time: one sentence, the right exit code, and nothing left.
"""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client as official_client

from emulator.engines.kubernetes.role import role
from emulator.record.reader import Record
from tests.clusters import Alone, ForTest, changes
from tests.conftest import Emulate, Finished, end, own, wait_for_line

pytestmark = pytest.mark.kubernetes

client: Any = official_client
RUN = own("luck")
RUNNING = "all tasks are running"
KINDS = ("pod", "service", "config_map", "persistent_volume_claim")
USUAL = "echo up; sleep 1000 & wait"


def write(folder: Path, image: str, command: str = USUAL, workers: int = 2, more: str = "") -> Path:
    (folder / "program.py").write_text("# so that there is a ConfigMap\n")
    path = folder / "scenario.yaml"
    path.write_text(
        f"name: luck\nframework: none\nimage: {image}\n"
        f"program: {{source: program.py, command: [sh, -c, {json.dumps(command)}]}}\n"
        f"cluster: {{worker: {{replicas: {workers}, cpus: 0.1, memory: 32m}}}}\n{more}"
    )
    return path


def left(cluster: ForTest, run_id: str = RUN) -> list[str]:
    """Return what carries the run's label in any namespace, asked as administrator."""
    with cluster.core() as core:
        listings = [getattr(core, f"list_{kind}_for_all_namespaces") for kind in KINDS]
        found = [listing(label_selector=f"emulator.run={run_id}").items for listing in listings]
    return [
        f"{kind} {one.metadata.name}"
        for kind, items in zip(KINDS, found, strict=True)
        for one in items
        if one.metadata.deletion_timestamp is None
    ]


def sentence(done: Finished) -> str:
    """Return the one line that says what went wrong."""
    assert "Traceback" not in done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("emulate: ")]
    assert said, done.stderr
    return said[-1]


def fails(
    emulate: Emulate,
    cluster: ForTest,
    path: Path,
    *arguments: str,
    kubeconfig: Path | None = None,
    code: int = 4,
) -> str:
    """Run a scenario that can't run; return why, after nothing of it is left."""
    environment = cluster.environment if kubeconfig is None else {"KUBECONFIG": str(kubeconfig)}
    done = emulate.up(path, *cluster.arguments, "--run-id", RUN, *arguments, env=environment)
    assert done.returncode == code, done.stderr
    assert left(cluster) == []
    return sentence(done)


# --- Who we are -----------------------------------------------------------------------------------


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
    emulate: Emulate,
    kubernetes_cluster: ForTest,
    kubernetes_user: Callable[..., Path],
    tiny_image: str,
    tmp_path: Path,
    resource: str,
    verb: str,
) -> None:
    rules = without(role(kubernetes_cluster.namespace)["rules"], resource, verb)
    path = write(tmp_path, tiny_image)
    said = fails(emulate, kubernetes_cluster, path, kubeconfig=kubernetes_user(rules))
    namespace = kubernetes_cluster.namespace
    assert f"may not {verb} {resource} in the namespace {namespace}" in said
    assert f'A Role with the verb "{verb}" for "{resource}" allows it' in said
    assert "emulate doctor --engine kubernetes" in said


def test_somebody_without_any_role_is_told_so(
    emulate: Emulate,
    kubernetes_cluster: ForTest,
    kubernetes_user: Callable[..., Path],
    tiny_image: str,
    tmp_path: Path,
) -> None:
    path = write(tmp_path, tiny_image)
    said = fails(emulate, kubernetes_cluster, path, kubeconfig=kubernetes_user())
    assert " may not " in said


def test_an_expired_token_is_said(
    emulate: Emulate,
    kubernetes_cluster: ForTest,
    kubernetes_user: Callable[..., Path],
    tiny_image: str,
    tmp_path: Path,
) -> None:
    rules = role(kubernetes_cluster.namespace)["rules"]
    user = kubernetes_user(rules, seconds=-60)
    said = fails(emulate, kubernetes_cluster, write(tmp_path, tiny_image), kubeconfig=user)
    assert "refused the login of the context" in said
    assert "log in again" in said
    token = json.loads(user.read_text())["users"][0]["user"]["token"]
    assert token not in said


def test_a_context_that_is_not_there_is_said(
    emulate: Emulate, kubernetes_cluster: ForTest, tiny_image: str, tmp_path: Path
) -> None:
    path = write(tmp_path, tiny_image)
    said = fails(emulate, kubernetes_cluster, path, "--set", "kubernetes.context=elsewhere")
    assert "elsewhere" in said
    assert "kubectl config get-contexts" in said
    none = fails(emulate, kubernetes_cluster, path, kubeconfig=tmp_path / "none")
    assert f"there is no {tmp_path}/none" in none


def test_a_namespace_that_is_not_there_is_said(
    emulate: Emulate, kubernetes_cluster: ForTest, tiny_image: str, tmp_path: Path
) -> None:
    path = write(tmp_path, tiny_image)
    said = fails(emulate, kubernetes_cluster, path, "--set", "kubernetes.namespace=no-such")
    assert "There is no namespace no-such in the cluster" in said
    assert "kubectl create namespace no-such" in said


def test_a_server_that_does_not_answer_is_said(
    emulate: Emulate, kubernetes_cluster: ForTest, tiny_image: str, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    text = kubernetes_cluster.kubeconfig.read_text()
    server = json.loads(text)["clusters"][0]["cluster"]["server"]
    elsewhere.write_text(text.replace(server, "https://127.0.0.1:9"))
    path = write(tmp_path, tiny_image)
    said = fails(emulate, kubernetes_cluster, path, kubeconfig=elsewhere)
    assert "No Kubernetes API server answers at https://127.0.0.1:9" in said
    assert "Connection refused" in said


# --- What the cluster allows ----------------------------------------------------------------------


def limited(cluster: ForTest, **hard: str) -> None:
    """Give the namespace a quota that is in force when this returns."""
    with cluster.core() as core:
        body = {"metadata": {"name": "small"}, "spec": {"hard": hard}}
        core.create_namespaced_resource_quota(cluster.namespace, body)
        for event in changes(core.list_namespaced_resource_quota, cluster.namespace):
            if event["object"].status.hard:
                return


def test_a_quota_that_is_exceeded_is_said(
    emulate: Emulate, kubernetes_cluster: ForTest, tiny_image: str, tmp_path: Path
) -> None:
    limited(kubernetes_cluster, pods="1")
    said = fails(emulate, kubernetes_cluster, write(tmp_path, tiny_image))
    namespace = kubernetes_cluster.namespace
    assert f"The quota of the namespace {namespace} does not allow" in said
    assert "exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1" in said


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ("kubernetes.service_account=nobody", 'serviceaccount "nobody" not found'),
        ("kubernetes.priority_class=none", "no PriorityClass with name none was found"),
        ("cluster.worker.cpus=0.5", "maximum cpu usage per Container is 200m, but limit is 500m"),
    ],
)
def test_what_admission_refuses_is_said(
    emulate: Emulate,
    kubernetes_cluster: ForTest,
    tiny_image: str,
    tmp_path: Path,
    setting: str,
    text: str,
) -> None:
    with kubernetes_cluster.core() as core:
        limits = [{"type": "Container", "max": {"cpu": "200m"}}]
        core.create_namespaced_limit_range(
            kubernetes_cluster.namespace, {"metadata": {"name": "l"}, "spec": {"limits": limits}}
        )
    path = write(tmp_path, tiny_image)
    assert text in fails(emulate, kubernetes_cluster, path, "--set", setting)


def test_a_pod_that_no_node_takes_is_said_with_the_schedulers_reason(
    emulate: Emulate, kubernetes_cluster: ForTest, tiny_image: str, tmp_path: Path
) -> None:
    more = "kubernetes: {shared: none, node_selector: {disk: fast}, start_timeout: 4s}\n"
    said = fails(emulate, kubernetes_cluster, write(tmp_path, tiny_image, more=more))
    assert "node(s) didn't match" in said
    assert "worker-" in said
    assert "4" in said


def test_a_pod_that_is_too_large_for_every_node_is_said(
    emulate: Emulate, kubernetes_cluster: ForTest, tiny_image: str, tmp_path: Path
) -> None:
    path = write(tmp_path, tiny_image, more="kubernetes: {start_timeout: 4s}\n")
    said = fails(emulate, kubernetes_cluster, path, "--set", "cluster.worker.cpus=500")
    assert "Insufficient cpu" in said


def test_an_image_that_can_not_be_pulled_is_said(
    emulate: Emulate, kubernetes_cluster: ForTest, tmp_path: Path
) -> None:
    image, more = "localhost:9/team/no-such:1", "kubernetes: {start_timeout: 40s}\n"
    said = fails(emulate, kubernetes_cluster, write(tmp_path, image, more=more))
    assert "worker-" in said
    assert "ImagePull" in said
    assert "localhost:9" in said
    assert "did not start in 40 s" in said


def test_an_image_that_a_registry_does_not_have_is_said_at_once(
    emulate: Emulate, kubernetes_cluster: ForTest, registry: str, tmp_path: Path
) -> None:
    """Not after `start_timeout`: no second attempt brings it."""
    image, more = f"{registry}/team/no-such:1", "kubernetes: {start_timeout: 1h}\n"
    said = fails(emulate, kubernetes_cluster, write(tmp_path, image, more=more))
    assert "can't start: " in said
    assert "ImagePull" in said
    assert "team/no-such" in said
    assert "Check the image's name" in said


def test_an_image_that_the_node_lacks_and_may_not_pull_is_said(
    emulate: Emulate, kubernetes_cluster: ForTest, tmp_path: Path
) -> None:
    path = write(tmp_path, "no-such-image:1", more="kubernetes: {image_pull_policy: Never}\n")
    said = fails(emulate, kubernetes_cluster, path)
    assert "no-such-image:1" in said
    assert "Never" in said


def test_a_command_that_is_not_in_the_image_is_the_end_of_its_task(
    emulate: Emulate, kubernetes_cluster: ForTest, tiny_image: str, tmp_path: Path
) -> None:
    done = emulate.up(
        write(tmp_path, tiny_image),
        *(*kubernetes_cluster.arguments, "--run-id", RUN, "--set"),
        "program.command=[no-such-program]",
        env=kubernetes_cluster.environment,
    )
    assert done.returncode == 1, done.stderr
    assert "ended with exit code 127 (ContainerCannotRun)" in done.stderr
    assert left(kubernetes_cluster) == []


# --- In mid-run -----------------------------------------------------------------------------------


def begin(emulate: Emulate, cluster: ForTest, path: Path) -> subprocess.Popen[str]:
    options = ["--out", str(emulate.out), "--run-id", RUN, "--json"]
    process = emulate.start("up", path, *cluster.arguments, *options, env=cluster.environment)
    wait_for_line(process, RUNNING)
    return process


def finished(process: subprocess.Popen[str]) -> Finished:
    stdout, stderr = process.communicate(timeout=300)
    return Finished(process.returncode, stdout, stderr)


def test_a_namespace_that_is_deleted_under_a_run_ends_it(
    emulate: Emulate, kubernetes_cluster: ForTest, tiny_image: str, tmp_path: Path
) -> None:
    process = begin(emulate, kubernetes_cluster, write(tmp_path, tiny_image))
    with kubernetes_cluster.core() as core:
        core.delete_namespace(kubernetes_cluster.namespace)
    done = finished(process)
    assert done.returncode == 4, done.stderr
    said = sentence(done)
    assert f"The namespace {kubernetes_cluster.namespace} is being deleted" in said
    assert left(kubernetes_cluster) == []


def test_an_api_server_that_is_away_for_half_a_minute_costs_nothing(
    emulate: Emulate,
    kubernetes_cluster: ForTest,
    kubernetes_alone: Alone,
    tiny_image: str,
    tmp_path: Path,
) -> None:
    # worker-0 ends while nobody can say so, worker-1 goes on long after.
    ticks = (
        "n=0; most=100; [ $EMULATOR_TASK = worker-0 ] || most=450; "
        "while [ $n -lt $most ]; do n=$((n + 1)); echo tick $n; sleep 0.1; done"
    )
    path = write(tmp_path, tiny_image, ticks, more="success: all-workers\n")
    process = begin(emulate, kubernetes_cluster, path)
    with kubernetes_alone.api_away():
        threading.Event().wait(30)
    done = finished(process)
    assert done.returncode == 0, done.stderr
    record = Record(emulate.out / RUN)
    for task, most in (("worker-0", 100), ("worker-1", 450)):
        lines = (record.path / "logs" / f"{task}.log").read_text().splitlines()
        said = [line.partition("tick ")[2] for line in lines if "tick " in line]
        assert said == [str(n) for n in range(1, most + 1)]
    assert done.json["restarts"] == 0
    assert left(kubernetes_cluster) == []


def test_an_api_server_that_stays_away_ends_the_run_and_clean_removes_it(
    emulate: Emulate,
    kubernetes_cluster: ForTest,
    kubernetes_alone: Alone,
    tiny_image: str,
    tmp_path: Path,
) -> None:
    path = write(tmp_path, tiny_image, more="kubernetes: {outage_timeout: 3s}\n")
    process = begin(emulate, kubernetes_cluster, path)
    with kubernetes_alone.api_away():
        done = finished(process)
    assert done.returncode == 4, done.stderr
    said = sentence(done)
    assert "No Kubernetes API server answers" in said
    assert "emulate clean --engine kubernetes" in said
    assert left(kubernetes_cluster) != []
    arguments = ("--engine", "kubernetes", "--out", emulate.out)
    cleaned = emulate("down", RUN, *arguments[2:], env=kubernetes_cluster.environment)
    assert cleaned.returncode == 0, cleaned.stderr
    assert left(kubernetes_cluster) == []


def test_a_token_that_expires_in_mid_run_is_said(
    emulate: Emulate,
    kubernetes_cluster: ForTest,
    kubernetes_user: Callable[..., Path],
    tiny_image: str,
    tmp_path: Path,
) -> None:
    user = kubernetes_user(role(kubernetes_cluster.namespace)["rules"], seconds=30)
    path = write(tmp_path, tiny_image, "sleep 45; exit 3", more="restart: {policy: on-failure}\n")
    done = emulate.up(
        path,
        *kubernetes_cluster.arguments,
        "--run-id",
        RUN,
        env={"KUBECONFIG": str(user)},
    )
    assert done.returncode == 4, done.stderr
    assert "refused the login" in sentence(done)
    cleaned = emulate("down", RUN, "--out", emulate.out, env=kubernetes_cluster.environment)
    assert cleaned.returncode == 0, cleaned.stderr
    assert left(kubernetes_cluster) == []


def test_an_interrupted_run_leaves_nothing(
    emulate: Emulate, kubernetes_cluster: ForTest, tiny_image: str, tmp_path: Path
) -> None:
    process = begin(emulate, kubernetes_cluster, write(tmp_path, tiny_image))
    assert len(left(kubernetes_cluster)) >= 4
    assert end(process, signal.SIGINT).returncode == 130
    assert left(kubernetes_cluster) == []
