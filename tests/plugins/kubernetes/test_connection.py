"""The connection to a real cluster: found as kubectl finds it, and kept through outages."""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from emulator.errors import EngineError, EngineLost, EngineMissing
from emulator.plugins.kubernetes import connection
from emulator.plugins.kubernetes.connection import ApiError, ApiServer, ignoring_missing
from emulator.plugins.kubernetes.section import Kubernetes
from tests.clusters import ForTest
from tests.plugins.kubernetes.relay import Relayed, relayed

CONTEXT = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "home",
    "contexts": [
        {"name": "home", "context": {"cluster": "c", "user": "u", "namespace": "team"}},
        {"name": "bare", "context": {"cluster": "c", "user": "u"}},
    ],
    "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
    "users": [{"name": "u", "user": {"token": "secret-token"}}],
}


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Return what writes a kubeconfig, which is then the one in use."""

    def write(content: Any = CONTEXT) -> Path:
        path = tmp_path / "config"
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
        monkeypatch.setenv("KUBECONFIG", str(path))
        return path

    return write


# --- Finding it ---------------------------------------------------------------------------------


def test_context_and_namespace_are_those_that_kubectl_would_use_also_of_several_kubeconfigs(
    kubeconfig: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = kubeconfig(), tmp_path / "more"

    def place(options: Kubernetes) -> tuple[str, str]:
        with contextlib.closing(ApiServer.open(options)) as cluster:
            return cluster.context, cluster.namespace

    assert place(Kubernetes()) == ("home", "team")
    assert place(Kubernetes(context="bare")) == ("bare", "default")
    assert place(Kubernetes(namespace="mine")) == ("home", "mine")
    far = {"name": "far", "context": {"cluster": "c", "namespace": "away"}}
    second.write_text(yaml.safe_dump({"contexts": [far]}))
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join([str(first), str(second), "/no/such/file"]))
    assert place(Kubernetes(context="far")) == ("far", "away")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({**CONTEXT, "current-context": "gone"}, "with name gone in"),
        ({"apiVersion": "v1"}, "Expected key current-context"),
        ("", "file is empty"),
        ("{", "it is not YAML"),
        ("[]", "can't be used"),
    ],
)
def test_a_kubeconfig_that_leads_nowhere_is_one_sentence(
    kubeconfig: Callable[..., Path], content: Any, says: str
) -> None:
    path = kubeconfig(content)
    with pytest.raises(EngineMissing) as refused:
        ApiServer.open(Kubernetes())
    assert str(path) in refused.value.message
    assert says in refused.value.message
    assert "\n" not in refused.value.message
    assert "secret-token" not in str(refused.value)
    assert "`kubectl config get-contexts`" in refused.value.hint
    assert refused.value.configured


def test_no_kubeconfig_is_no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(EngineMissing, match="No Kubernetes cluster is configured") as missing:
        ApiServer.open(Kubernetes())
    assert not missing.value.configured
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(EngineMissing, match=r"there is no .*/none") as missing:
        ApiServer.open(Kubernetes())
    assert missing.value.configured


def test_a_server_that_does_not_answer_is_missing_soon(
    kubeconfig: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    kubeconfig()  # nothing listens at port 1
    monkeypatch.setattr(connection, "CONNECT_TIMEOUT", 0.3)
    with contextlib.closing(ApiServer.open(Kubernetes())) as cluster:
        with pytest.raises(EngineMissing, match=r"at http://127.0.0.1:1 \(context home\)") as gone:
            cluster.get("/version")
        assert gone.value.configured
        assert cluster.requests["get /version"] > 2


def test_what_answers_may_be_no_api_server(kubeconfig: Callable[..., Path]) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
    with _answering(answer) as port:
        server = {"server": f"http://127.0.0.1:{port}"}
        kubeconfig({**CONTEXT, "clusters": [{"name": "c", "cluster": server}]})
        with (
            contextlib.closing(ApiServer.open(Kubernetes())) as cluster,
            pytest.raises(EngineError, match="is no Kubernetes API server"),
        ):
            cluster.get("/version")


@contextlib.contextmanager
def _answering(answer: bytes) -> Iterator[int]:
    """Listen on a port, and answer every request with the same."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = server.accept()
                    with client:
                        client.recv(2**16)
                        client.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


# --- A real one ---------------------------------------------------------------------------------


def a_config_map(name: str, run: str = "one") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"emulator.run": run}},
        "data": {"key": "x" * 4000},
    }


@pytest.mark.kubernetes
def test_objects_are_made_read_changed_and_deleted(cluster: ApiServer) -> None:
    path = cluster.namespaced("configmaps")
    made = cluster.post(path, a_config_map("one"))
    one = cluster.namespaced("configmaps", "one")
    assert cluster.get(one)["metadata"]["uid"] == made["metadata"]["uid"]
    assert cluster.patch(one, {"data": {"key": "y"}})["data"] == {"key": "y"}
    listed = cluster.get(path, labelSelector="emulator.run=one")["items"]
    assert [item["metadata"]["name"] for item in listed] == ["one"]
    other = {"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}}
    with pytest.raises(ApiError) as refused:
        cluster.delete(one, other)
    assert (refused.value.status, refused.value.reason) == (409, "Conflict")
    assert ignoring_missing(lambda: cluster.delete(one))
    assert not ignoring_missing(lambda: cluster.delete(one))
    assert cluster.server_version.startswith("v1.")
    assert cluster.requests["create configmaps"] == 1


def test_what_has_the_name_of_a_request_is_only_its_own_with_all_its_labels_and_notes() -> None:
    labels, notes = {"emulator.run": "one"}, {"emulator.folder": "/runs/one"}
    request = {"metadata": {"name": "one", "labels": labels, "annotations": notes}}
    added = {"labels": {**labels, "x": "y"}, "annotations": {**notes, "x": "y"}}
    assert connection.has_made(request, {"metadata": added})
    other = {"emulator.folder": "/runs/of/somebody/one"}
    for key, value in (("labels", None), ("annotations", other), ("annotations", None)):
        assert not connection.has_made(request, {"metadata": {**added, key: value}})
    assert not connection.has_made({"metadata": {"name": "one"}}, {"metadata": added})


@pytest.mark.kubernetes
def test_a_request_that_was_cut_is_repeated_and_takes_only_what_it_has_made(
    through_relay: Relayed,
) -> None:
    cluster, between = through_relay
    path = cluster.namespaced("configmaps")
    listed = {"labelSelector": "emulator.run=one"}
    assert cluster.get(path, **listed)["items"] == []
    between.cut()
    assert cluster.get(path, **listed)["items"] == []
    between.cut_after(1000)  # in the middle of the answer, which is larger: it was made
    made = cluster.post(path, a_config_map("lost"))
    assert cluster.requests["create configmaps"] == 2
    assert made["data"]["key"] == "x" * 4000
    assert len(cluster.get(path, **listed)["items"]) == 1
    cluster.post(path, a_config_map("same", run="theirs"))
    between.cut_after(10)
    with pytest.raises(ApiError) as refused:
        cluster.post(path, a_config_map("same", run="ours"))
    assert refused.value.reason == "AlreadyExists"


@pytest.mark.kubernetes
def test_requests_wait_for_a_server_that_comes_back(through_relay: Relayed) -> None:
    cluster, between = through_relay
    path = cluster.namespaced("pods")
    cluster.get(path)
    before = cluster.requests["list pods"]
    between.away()
    answers: list[object] = []
    asks = threading.Thread(target=lambda: answers.append(cluster.get(path)["items"]))
    asks.start()
    while cluster.requests["list pods"] < before + 3:  # it was refused, and asks again
        asks.join(0.01)
    between.back()
    asks.join(60)
    assert answers == [[]]


@pytest.mark.kubernetes
def test_a_server_that_stays_away_is_given_up_and_the_next_call_sooner(
    kubernetes_cluster: ForTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with relayed(kubernetes_cluster, tmp_path) as (cluster, between):
        cluster.outage_timeout = 5.0
        path = cluster.namespaced("pods")
        cluster.get(path)
        between.away()
        tries = []
        with monkeypatch.context() as patched:
            patched.setattr(connection, "CONNECT_TIMEOUT", 0.001)  # refusals do not take as long
            for _ in range(2):
                before = cluster.requests["list pods"]
                with pytest.raises(EngineLost, match="No Kubernetes API server answers at https"):
                    cluster.get(path)
                tries.append(cluster.requests["list pods"] - before)
        assert tries[0] > 2 >= tries[1]
        between.back()
        assert cluster.get(path)["items"] == []


@pytest.mark.kubernetes
def test_closing_ends_a_wait(through_relay: Relayed) -> None:
    cluster, between = through_relay
    path = cluster.namespaced("pods")
    cluster.get(path)
    between.away()
    gave_up = threading.Event()

    def ask() -> None:
        with pytest.raises(EngineLost):
            cluster.get(path)
        gave_up.set()

    asks = threading.Thread(target=ask)
    asks.start()
    before = cluster.requests["list pods"]
    while cluster.requests["list pods"] < before + 2:
        asks.join(0.01)
    cluster.close()
    asks.join(60)
    assert gave_up.is_set()


@pytest.mark.kubernetes
def test_keys_of_a_kubeconfig_are_left_in_no_file(
    kubernetes_cluster: ForTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The official client writes them to files for OpenSSL."""
    monkeypatch.setenv("KUBECONFIG", str(kubernetes_cluster.kubeconfig))
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with contextlib.closing(ApiServer.open(Kubernetes())) as again:
        assert again.get("/version")["major"]
        assert list(folder.iterdir()) == []


@pytest.mark.kubernetes
def test_a_token_that_was_renewed_is_read_again(
    kubernetes_user: Callable[..., Path],
    kubernetes_cluster: ForTest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    good, expired = kubernetes_user(rules), kubernetes_user(rules, seconds=-60)
    monkeypatch.setenv("KUBECONFIG", str(expired))
    with contextlib.closing(ApiServer.open(Kubernetes())) as cluster:
        path = cluster.namespaced("pods")
        with pytest.raises(ApiError, match="refused the login") as refused:
            cluster.get(path)
        assert refused.value.status == 401
        expired.write_bytes(good.read_bytes())
        assert cluster.get(path)["items"] == []
        with pytest.raises(ApiError, match=r"may not create configmaps in the namespace test-"):
            cluster.post(cluster.namespaced("configmaps"), a_config_map("no"))
