"""What tests get from `make kubernetes`: a cluster like others, and the ways to make it fail."""

from __future__ import annotations

import json
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from tests.clusters import FAKE, Alone, ForTest, changes, client, config

pytestmark = pytest.mark.kubernetes

READS_PODS = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]


def pod(name: str, image: str, command: str, **spec: Any) -> dict[str, Any]:
    main = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", command],
        **spec.pop("container", {}),
    }
    return {
        "metadata": {"name": name, "labels": {"of": "this-test"}},
        "spec": {"restartPolicy": "Never", "containers": [main], **spec},
    }


def wait_for(core: Any, cluster: ForTest, name: str, is_so: Callable[[Any], bool]) -> Any:
    listing, mine = core.list_namespaced_pod, f"metadata.name={name}"
    for event in changes(listing, cluster.namespace, field_selector=mine):
        if is_so(event["object"]):
            return event["object"]
    raise AssertionError(f"the Pod {name} never came so far")


def ended(core: Any, cluster: ForTest, name: str) -> str:
    """Return what a Pod has printed in all."""
    found = wait_for(core, cluster, name, lambda it: it.status.phase in ("Succeeded", "Failed"))
    text: str = core.read_namespaced_pod_log(name, cluster.namespace)
    assert found.status.phase == "Succeeded", text
    return text


def scheduled(found: Any) -> bool:
    return bool(found.spec.node_name)


def test_pods_find_one_another_by_name(kubernetes_cluster: ForTest, tiny_image: str) -> None:
    """A headless Service, as every run has one, and the resolver of the cluster."""
    cluster = kubernetes_cluster
    search = f"run.{cluster.namespace}.svc.cluster.local"
    service = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {"of": "this-test"},
    }
    names: dict[str, Any] = {"subdomain": "run", "dnsConfig": {"searches": [search]}}
    listens = "import socket as s; s.create_server(('', 2222)).accept()[0].sendall(b'hello')"
    connects = (
        "import socket as s, time\n"
        "while True:\n"
        "    try: print(s.create_connection(('worker-0', 2222)).recv(9)); break\n"
        "    except OSError: time.sleep(0.2)\n"
        "try: s.getaddrinfo('worker-9', 1)\n"
        "except s.gaierror: print('no worker-9')\n"
        "print(s.getaddrinfo('kubernetes.default', 443)[0][4])\n"
    )
    with cluster.core() as core:
        core.create_namespaced_service(
            cluster.namespace, {"metadata": {"name": "run"}, "spec": service}
        )
        for name, code in (("worker-0", listens), ("worker-1", connects)):
            program = {"container": {"command": ["python3", "-c", code]}}
            core.create_namespaced_pod(
                cluster.namespace, pod(name, tiny_image, "", hostname=name, **program, **names)
            )
        said = ended(core, cluster, "worker-1")
    assert said.splitlines() == ["b'hello'", "no worker-9", "('10.96.0.1', 443)"]


def test_pods_reach_the_api(kubernetes_cluster: ForTest, tiny_image: str) -> None:
    """By the cluster IP of the service `kubernetes`, with its certificate and their account."""
    code = (
        "import json, os, ssl, urllib.request as u\n"
        "here = '/var/run/secrets/kubernetes.io/serviceaccount/'\n"
        "host, port = (os.environ['KUBERNETES_SERVICE_' + it] for it in ('HOST', 'PORT'))\n"
        "head = {'Authorization': 'Bearer ' + open(here + 'token').read()}\n"
        "me = {'apiVersion': 'authorization.k8s.io/v1', 'kind': 'SelfSubjectRulesReview',\n"
        "      'spec': {'namespace': open(here + 'namespace').read()}}\n"
        "url = f'https://{host}:{port}/apis/authorization.k8s.io/v1/selfsubjectrulesreviews'\n"
        "head['Content-Type'] = 'application/json'\n"
        "asked = u.Request(url, json.dumps(me).encode(), head)\n"
        "print(u.urlopen(asked, context=ssl.create_default_context(cafile=here + 'ca.crt')).status)"
    )
    with kubernetes_cluster.core() as core:
        program = {"container": {"command": ["python3", "-c", code]}}
        core.create_namespaced_pod(
            kubernetes_cluster.namespace, pod("inside", tiny_image, "", **program)
        )
        assert ended(core, kubernetes_cluster, "inside").strip() == "201"


def test_claims_are_shared_and_their_data_go_with_them(
    kubernetes_cluster: ForTest, tiny_image: str
) -> None:
    cluster = kubernetes_cluster
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    of_claim = {"name": "shared", "persistentVolumeClaim": {"claimName": "shared"}}
    volume: dict[str, Any] = {
        "volumes": [of_claim],
        "container": {"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]},
        "securityContext": {"runAsUser": 1000, "runAsNonRoot": True},
    }
    with cluster.core() as core:
        core.create_namespaced_persistent_volume_claim(
            cluster.namespace, {"metadata": {"name": "shared"}, "spec": spec}
        )
        for name, command in (("writes", "echo kept > /shared/it"), ("reads", "cat /shared/it")):
            core.create_namespaced_pod(
                cluster.namespace, pod(name, tiny_image, command, **{**volume})
            )
            said = ended(core, cluster, name)
        assert said == "kept\n"
        claim = core.read_namespaced_persistent_volume_claim("shared", cluster.namespace)
        folder = core.read_persistent_volume(claim.spec.volume_name).spec.host_path.path
        assert (Path(folder) / "it").read_text() == "kept\n"
        begin = core.list_persistent_volume().metadata.resource_version
        core.delete_collection_namespaced_pod(cluster.namespace, grace_period_seconds=0)
        core.delete_namespaced_persistent_volume_claim("shared", cluster.namespace)
        mine = f"metadata.name={claim.spec.volume_name}"
        assert "DELETED" in (
            change["type"]
            for change in changes(
                core.list_persistent_volume, field_selector=mine, resource_version=begin
            )
        )
    assert not Path(folder).exists()


def test_the_kubelet_measures_pods(kubernetes_cluster: ForTest, tiny_image: str) -> None:
    with kubernetes_cluster.core() as core:
        core.create_namespaced_pod(
            kubernetes_cluster.namespace, pod("busy", tiny_image, "sleep 600")
        )
        wait_for(core, kubernetes_cluster, "busy", lambda it: it.status.phase == "Running")
        answer = core.connect_get_node_proxy_with_path(
            "localhost", "stats/summary", _preload_content=False
        )
        names = [one["podRef"]["name"] for one in json.loads(answer.data)["pods"]]
    assert "busy" in names


def test_a_user_may_do_what_the_role_says(
    kubernetes_cluster: ForTest, kubernetes_user: Callable[..., Path]
) -> None:
    namespace = kubernetes_cluster.namespace
    with config.new_client_from_config(str(kubernetes_user(READS_PODS))) as api:
        core = client.CoreV1Api(api)
        assert core.list_namespaced_pod(namespace).items == []
        with pytest.raises(ApiException) as caught:
            core.list_namespaced_secret(namespace)
    assert caught.value.status == HTTPStatus.FORBIDDEN


def test_an_expired_token_is_refused(
    kubernetes_cluster: ForTest, kubernetes_user: Callable[..., Path]
) -> None:
    path = kubernetes_user(READS_PODS, seconds=-60)
    with (
        config.new_client_from_config(str(path)) as api,
        pytest.raises(ApiException) as caught,
    ):
        client.CoreV1Api(api).list_namespaced_pod(kubernetes_cluster.namespace)
    assert caught.value.status == HTTPStatus.UNAUTHORIZED


def test_a_fake_node_takes_pods_that_ask_for_it(
    kubernetes_cluster: ForTest, fake_node: Callable[..., str], tiny_image: str
) -> None:
    name = fake_node({"zone": "far"}, {"nvidia.com/gpu": "8"})
    gpus = {"resources": {"limits": {"nvidia.com/gpu": "4"}}}
    asks = {"tolerations": [{"key": FAKE, "operator": "Exists"}], "nodeSelector": {"zone": "far"}}
    with kubernetes_cluster.core() as core:
        core.create_namespaced_pod(
            kubernetes_cluster.namespace,
            pod("far", tiny_image, "sleep 600", container=gpus, **asks),
        )
        found = wait_for(core, kubernetes_cluster, "far", scheduled)
    assert found.spec.node_name == name


def test_the_api_server_goes_away_and_comes_back(
    kubernetes_cluster: ForTest, kubernetes_alone: Alone, tiny_image: str
) -> None:
    """Pods go on meanwhile."""
    with kubernetes_cluster.core() as core:
        core.create_namespaced_pod(
            kubernetes_cluster.namespace, pod("lasts", tiny_image, "sleep 600")
        )
        before = wait_for(
            core, kubernetes_cluster, "lasts", lambda it: it.status.phase == "Running"
        )
        with kubernetes_alone.api_away(), pytest.raises(HTTPError):
            core.list_namespaced_pod(kubernetes_cluster.namespace)
        after = core.read_namespaced_pod("lasts", kubernetes_cluster.namespace)
    assert after.status.phase == "Running"
    assert after.status.container_statuses[0].container_id == (
        before.status.container_statuses[0].container_id
    )


def test_the_node_goes_away_and_comes_back(
    kubernetes_cluster: ForTest, kubernetes_alone: Alone, tiny_image: str
) -> None:
    """Its Pods wait for it, as a scheduled one does that nobody starts."""
    with kubernetes_cluster.core() as core:
        with kubernetes_alone.node_away():
            core.create_namespaced_pod(
                kubernetes_cluster.namespace, pod("waits", tiny_image, "echo late")
            )
            wait_for(core, kubernetes_cluster, "waits", scheduled)
        assert ended(core, kubernetes_cluster, "waits") == "late\n"
