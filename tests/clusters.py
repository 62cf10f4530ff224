"""Fixtures of tests that need a real Kubernetes; `make kubernetes` starts one.

* `kubernetes_cluster`: a kubeconfig and a namespace of this test's own.
* `kubernetes_alone`: no other test uses the cluster meanwhile; this one may take the API server or
  the node away.
* `kubernetes_user`: a kubeconfig of somebody who may do only what the test says.
* `fake_node`: a node that is Ready, but runs no Pods.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pytest
from kubernetes import client as official_client
from kubernetes import config as official_config
from kubernetes import watch as official_watch
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from scripts.kubernetes import pki
from scripts.kubernetes.layout import Layout, state_folder

# It is annotated with models, which are not what it takes and gives here: plain objects.
client: Any = official_client
config: Any = official_config
official: Any = official_watch

KUBECONFIG = "EMULATOR_TEST_KUBECONFIG"
REQUIRE = "EMULATOR_REQUIRE_KUBERNETES"
NO_CLUSTER = "no Kubernetes answers; `make kubernetes` starts one"
NOT_OURS = "the cluster is not one of `make kubernetes`"
HERE = Layout(state_folder())
"""The cluster of `make kubernetes`, now: tests that run a pytest of their own have another home."""
LOCKS = HERE.state.parent / "locks"
CHECKOUT = Path(__file__).parents[1]
ANSWERS_WITHIN = 10
"""Seconds."""
CHANGES_WITHIN = 120
"""Seconds that a test waits for a change at the most."""
FIRST_WITHOUT = 24
"""The minor version of Kubernetes since which accounts have no token of their own."""
HEARTBEAT = 4.0
"""Seconds; a node that is silent for four times as long is lost."""
TEST_LABEL = "emulator-tests"
FAKE = "emulator-tests/fake"
"""The taint of nodes without a kubelet: Pods of other tests stay away from them."""

Rules = Sequence[Mapping[str, Any]]


class ForTest(NamedTuple):
    """A cluster for one test."""

    kubeconfig: Path
    namespace: str
    """The test's own: all that is in it is removed afterwards."""

    @property
    def environment(self) -> dict[str, str]:
        """What makes the `emulate` command use this cluster."""
        return {"KUBECONFIG": str(self.kubeconfig)}

    @property
    def arguments(self) -> list[str]:
        """What makes `emulate up` and `emulate plan` use this engine and this namespace."""
        return ["--engine", "kubernetes", "--set", f"kubernetes.namespace={self.namespace}"]

    @contextlib.contextmanager
    def core(self) -> Iterator[Any]:
        """Open the official client as administrator, to look at what the emulator has done."""
        with _api(self.kubeconfig) as api:
            yield client.CoreV1Api(api)

    def limit(self, hard: Mapping[str, str]) -> None:
        """Give the namespace the quota `small`, which is in force when this returns."""
        with self.core() as core:
            body = {"metadata": {"name": "small"}, "spec": {"hard": hard}}
            core.create_namespaced_resource_quota(self.namespace, body)
            seen = changes(core.list_namespaced_resource_quota, self.namespace)
            assert any(change["object"].status.hard for change in seen)


# --- The cluster ---------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def kubeconfig_or_why() -> Path | str:
    """Return the kubeconfig of a cluster that answers, or why there is none."""
    path = Path(os.environ.get(KUBECONFIG) or HERE.admin)
    if not path.is_file():
        return f"there is no {path}"
    try:
        # Not while a test has it for itself, and may have taken the API server away.
        with _using(fcntl.LOCK_SH), _api(path) as api:
            client.VersionApi(api).get_code(_request_timeout=ANSWERS_WITHIN)
    except (config.ConfigException, ApiException, HTTPError) as error:
        return f"the cluster of {path} does not answer: {error}"
    return path


@pytest.fixture
def kubernetes_cluster(
    request: pytest.FixtureRequest, kubeconfig_or_why: Path | str
) -> Iterator[ForTest]:
    """A real Kubernetes, with a namespace of this test's own."""
    if isinstance(kubeconfig_or_why, str):
        _no_cluster(kubeconfig_or_why)
    alone = "kubernetes_alone" in request.fixturenames
    with _using(fcntl.LOCK_EX if alone else fcntl.LOCK_SH), _api(kubeconfig_or_why) as api:
        core, version = client.CoreV1Api(api), client.VersionApi(api).get_code()
        namespace = _make_namespace(core, has_tokens=int(version.minor.rstrip("+")) < FIRST_WITHOUT)
        try:
            yield ForTest(kubeconfig_or_why, namespace)
        finally:
            _remove_namespace(core, namespace)


@pytest.fixture
def kubernetes_alone(kubernetes_cluster: ForTest) -> Alone:
    """The cluster while no other test uses it: this one may take parts of it away."""
    _only_ours(kubernetes_cluster)
    return Alone()


class Alone:
    """The parts of the cluster that a test may take away."""

    @contextlib.contextmanager
    def api_away(self) -> Iterator[None]:
        """Take the API server away within the block; the Pods go on."""
        with self._away("api"):
            yield

    @contextlib.contextmanager
    def node_away(self) -> Iterator[None]:
        """Take the kubelet away within the block: its containers go on, and nobody reports them."""
        with self._away("kubelet"):
            yield

    @contextlib.contextmanager
    def _away(self, part: str) -> Iterator[None]:
        # In processes of their own: what they start is nobody's child when the test ends.
        command = [sys.executable, "-m", "scripts.kubernetes"]
        subprocess.run([*command, f"stop-{part}"], check=True, cwd=CHECKOUT)
        try:
            yield
        finally:
            subprocess.run([*command, f"start-{part}"], check=True, cwd=CHECKOUT)


def changes(listing: Callable[..., Any], *arguments: str, **query: Any) -> Iterator[Any]:
    """Yield what is there and then each change, as `{"type", "object"}`, for `CHANGES_WITHIN`."""
    query = {"timeout_seconds": CHANGES_WITHIN, **query}
    with contextlib.closing(official.Watch().stream(listing, *arguments, **query)) as events:
        yield from events


# --- Users ---------------------------------------------------------------------------------------


@pytest.fixture
def kubernetes_user(kubernetes_cluster: ForTest, tmp_path: Path) -> Callable[..., Path]:
    """Return what makes a kubeconfig of a service account that may do what `rules` say.

    `rules` are those of a Role in the test's namespace; `cluster_rules` are for the whole cluster.
    The token is good for `seconds`, and has expired already where they are negative.
    """
    _only_ours(kubernetes_cluster)

    def make(rules: Rules = (), *, cluster_rules: Rules = (), seconds: float = 3600) -> Path:
        name, namespace = f"user-{uuid.uuid4().hex[:8]}", kubernetes_cluster.namespace
        with _api(kubernetes_cluster.kubeconfig) as api:
            account = client.CoreV1Api(api).create_namespaced_service_account(
                namespace, {"metadata": {"name": name}}
            )
            _allow(api, namespace, name, rules, cluster_rules)
        token = pki.token(HERE, namespace, name, account.metadata.uid, seconds)
        path = tmp_path / f"{name}.kubeconfig"
        pki.write_secret(path, json.dumps(pki.token_config(HERE, token, namespace)))
        return path

    return make


def _allow(api: Any, namespace: str, name: str, rules: Rules, cluster_rules: Rules) -> None:
    roles = client.RbacAuthorizationV1Api(api)
    group = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    meta: dict[str, Any] = {"name": name}
    if rules:
        reference = {"apiGroup": group, "kind": "Role", "name": name}
        roles.create_namespaced_role(namespace, {"metadata": meta, "rules": list(rules)})
        roles.create_namespaced_role_binding(
            namespace, {"metadata": meta, "roleRef": reference, "subjects": [subject]}
        )
    if cluster_rules:
        # The owner is the namespace: what belongs to the cluster goes with it.
        owner = client.CoreV1Api(api).read_namespace(namespace).metadata.uid
        owners = {"apiVersion": "v1", "kind": "Namespace", "name": namespace, "uid": owner}
        meta = {"name": f"{namespace}-{name}", "ownerReferences": [owners]}
        reference = {"apiGroup": group, "kind": "ClusterRole", "name": meta["name"]}
        roles.create_cluster_role({"metadata": meta, "rules": list(cluster_rules)})
        roles.create_cluster_role_binding(
            {"metadata": meta, "roleRef": reference, "subjects": [subject]}
        )


# --- Nodes ---------------------------------------------------------------------------------------


@pytest.fixture
def fake_node(kubernetes_cluster: ForTest) -> Iterator[str]:
    """A node that stays Ready as long as the test lasts, where no kubelet is.

    It has the taint FAKE, so that Pods of other tests stay away.
    """
    name, stopped = f"fake-{uuid.uuid4().hex[:8]}", threading.Event()
    taint = {"key": FAKE, "value": name, "effect": "NoSchedule"}
    meta = {"name": name, "labels": {TEST_LABEL: "fake", "kubernetes.io/hostname": name}}
    kubeconfig = kubernetes_cluster.kubeconfig
    with _api(kubeconfig) as api, _api(kubeconfig) as heart:
        core = client.CoreV1Api(api)
        core.create_node({"metadata": meta, "spec": {"taints": [taint]}})
        beat = threading.Thread(target=_keep_ready, args=(heart, name, stopped))
        try:
            _report_ready(core, name)
            beat.start()
            _wait_for_node(core, name)
            yield name
        finally:
            stopped.set()
            if beat.ident:
                beat.join()
            core.delete_node(name)


def _keep_ready(api: Any, name: str, stopped: threading.Event) -> None:
    core = client.CoreV1Api(api)
    while not stopped.wait(HEARTBEAT):
        with contextlib.suppress(ApiException, HTTPError):  # the API server may be away
            _report_ready(core, name)


def _report_ready(core: Any, name: str) -> None:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }
    has = {"cpu": "64", "memory": "256Gi", "pods": "250"}
    status = {"conditions": [ready], "capacity": has, "allocatable": has}
    core.patch_node_status(name, {"status": status})


def _wait_for_node(core: Any, name: str) -> None:
    """Wait until the controllers take it for ready: they give every new node a taint first."""
    for event in changes(core.list_node, field_selector=f"metadata.name={name}"):
        taints = event["object"].spec.taints or []
        if not any(taint.key.startswith("node.kubernetes.io/") for taint in taints):
            return
    raise AssertionError(f"the node {name} is not ready after {CHANGES_WITHIN} s")


# --- Namespaces and locks ------------------------------------------------------------------------


def _make_namespace(core: Any, *, has_tokens: bool) -> str:
    name = f"test-{uuid.uuid4().hex[:10]}"
    core.create_namespace({"metadata": {"name": name, "labels": {TEST_LABEL: "1"}}})
    # Pods are refused until the controllers have made it, and its token up to Kubernetes 1.23.
    listing, mine = core.list_namespaced_service_account, "metadata.name=default"
    for change in changes(listing, name, field_selector=mine):
        if change["object"].secrets or not has_tokens:
            return name
    raise AssertionError(f"the namespace {name} has no service account after {CHANGES_WITHIN} s")


def _remove_namespace(core: Any, name: str) -> None:
    """Remove it with all that is in it; the cluster does so after this has returned."""
    try:
        core.delete_collection_namespaced_pod(name, grace_period_seconds=0)
        core.delete_namespace(name)
    except ApiException as error:
        if error.status not in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
            raise


@contextlib.contextmanager
def _using(how: int) -> Iterator[None]:
    """Hold the lock on the cluster, with others or alone."""
    LOCKS.mkdir(parents=True, exist_ok=True)
    with (LOCKS / "turn").open("w") as turnstile, (LOCKS / "cluster").open("w") as held:
        # One after the other: those that share it would else follow one another for ever while
        # somebody waits to have it alone.
        fcntl.flock(turnstile, fcntl.LOCK_EX)
        fcntl.flock(held, how)
        fcntl.flock(turnstile, fcntl.LOCK_UN)
        yield


@contextlib.contextmanager
def _api(kubeconfig: Path) -> Iterator[Any]:
    with config.new_client_from_config(str(kubeconfig)) as api:
        yield api


def _only_ours(cluster: ForTest) -> None:
    """Skip a test that needs the keys or the processes of a cluster that is not ours."""
    if not HERE.admin.is_file() or HERE.admin.read_bytes() != cluster.kubeconfig.read_bytes():
        _no_cluster(NOT_OURS)


def _no_cluster(why: str) -> NoReturn:
    """Skip a test that needs a cluster, or fail it where one is required."""
    if os.environ.get(REQUIRE) == "1":
        pytest.fail(f"{REQUIRE}=1, but: {why}")
    pytest.skip(NO_CLUSTER if why != NOT_OURS else NOT_OURS)
