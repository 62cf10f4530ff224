"""Refusals become sentences; the texts are those of API servers 1.20 and 1.34."""

from __future__ import annotations

import ssl
from typing import Any

import pytest
from urllib3.exceptions import MaxRetryError, SSLError

from emulator.engines.kubernetes.refusals import Access, access, refusal, unreachable

CREATE_POD = Access("create", "pods", "", "team", "")


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("POST", "/api/v1/namespaces/n/pods", Access("create", "pods", "", "n")),
        ("GET", "/api/v1/namespaces/n/pods", Access("list", "pods", "", "n")),
        ("GET", "/api/v1/namespaces/n/pods/a", Access("get", "pods", "", "n", "a")),
        ("GET", "/api/v1/namespaces/n/pods/a/log", Access("get", "pods/log", "", "n", "a")),
        ("GET", "/api/v1/namespaces/n", Access("get", "namespaces", "", "", "n")),
        ("GET", "/api/v1/nodes?limit=1", Access("list", "nodes")),
        ("GET", "/api/v1/nodes/x/proxy/stats", Access("get", "nodes/proxy", "", "", "x")),
        ("DELETE", "/api/v1/namespaces/n/pods", Access("deletecollection", "pods", "", "n")),
        ("DELETE", "/api/v1/namespaces/n/pods/a", Access("delete", "pods", "", "n", "a")),
        (
            "POST",
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            Access("create", "selfsubjectaccessreviews", "authorization.k8s.io"),
        ),
        (
            "GET",
            "/apis/metrics.k8s.io/v1beta1/namespaces/n/pods",
            Access("list", "pods", "metrics.k8s.io", "n"),
        ),
        ("GET", "/version", Access("get", "/version")),
    ],
)
def test_a_request_in_the_words_of_roles(method: str, path: str, expected: Access) -> None:
    assert access(method, path) == expected


def test_a_watch_is_a_verb_of_its_own() -> None:
    assert access("GET", "/api/v1/namespaces/n/pods", watches=True).verb == "watch"


def status(message: str, reason: str = "Forbidden", **details: Any) -> dict[str, Any]:
    return {"kind": "Status", "message": message, "reason": reason, "details": details}


@pytest.mark.parametrize(
    ("code", "answer", "says", "advises"),
    [
        (
            401,
            status("Unauthorized", "Unauthorized"),
            "The Kubernetes API server refused the login of the context home.",
            "has expired",
        ),
        (
            403,
            status(
                'pods is forbidden: User "ann" cannot create resource "pods" in API group "" in '
                'the namespace "team"'
            ),
            "ann may not create pods in the namespace team.",
            'A Role with the verb "create" for "pods" allows it; `emulate doctor',
        ),
        (
            403,
            status(
                'pods "a" is forbidden: exceeded quota: small, requested: pods=1, used: pods=2, '
                "limited: pods=2"
            ),
            "The quota of the namespace team does not allow to create pods: exceeded quota: small, "
            "requested: pods=1, used: pods=2, limited: pods=2.",
            "kubectl describe quota -n team",
        ),
        (
            403,
            status(
                'pods "a" is forbidden: unable to create new content in namespace team because it '
                "is being terminated",
                causes=[{"reason": "NamespaceTerminating", "message": "namespace team is being…"}],
            ),
            "The namespace team is being deleted.",
            "kubernetes.namespace=NAME",
        ),
        (
            403,
            status(
                'pods "a" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != '
                'true (pod or container "main" must set securityContext.runAsNonRoot=true)'
            ),
            "The Pod security level of the namespace team does not allow to create pods: violates "
            'PodSecurity "restricted:latest": runAsNonRoot != true (pod or container "main" must '
            "set securityContext.runAsNonRoot=true).",
            "run_as",
        ),
        (
            403,
            status(
                'pods "a" is forbidden: error looking up service account team/x: serviceaccount '
                '"x" not found'
            ),
            "The cluster would not create pods: error looking up service account team/x: "
            'serviceaccount "x" not found.',
            "kubernetes.service_account",
        ),
        (
            403,
            status('pods "a" is forbidden: maximum cpu usage per Container is 1, but limit is 2'),
            "The cluster's admission control refused to create pods: maximum cpu usage per "
            "Container is 1, but limit is 2.",
            "a rule of the cluster",
        ),
        (
            400,
            status('admission webhook "no.example" denied the request: not today', "Denied"),
            "The cluster's admission control refused to create pods: admission webhook "
            '"no.example" denied the request: not today.',
            "a rule of the cluster",
        ),
        (
            404,
            status('namespaces "team" not found', "NotFound", name="team", kind="namespaces"),
            "There is no namespace team in the cluster of the context home.",
            "kubectl create namespace team",
        ),
        (
            422,
            status('Pod "a" is invalid: spec.containers[0].image: Required value', "Invalid"),
            'The cluster finds invalid what it should create pods: Pod "a" is invalid: '
            "spec.containers[0].image: Required value.",
            "emulate plan --engine kubernetes",
        ),
        (
            409,
            status('pods "a" already exists', "AlreadyExists"),
            'The cluster would not create pods: pods "a" already exists.',
            "--run-id",
        ),
        (
            429,
            status("too many requests", "TooManyRequests"),
            "The Kubernetes API server is too busy to create pods: too many requests.",
            "",
        ),
        (500, {}, "The cluster would not create pods: status 500.", ""),
    ],
)
def test_a_refusal_is_one_sentence(
    code: int, answer: dict[str, Any], says: str, advises: str
) -> None:
    sentence = refusal(CREATE_POD, code, answer, "home")
    assert sentence.message == says
    assert advises in sentence.hint


def test_a_budget_is_why_an_eviction_is_forbidden_now() -> None:
    said = "Cannot evict pod as it would violate the pod's disruption budget."
    why = "The disruption budget one needs 1 healthy pods and has 1"
    answer = status(
        said, "TooManyRequests", causes=[{"reason": "DisruptionBudget", "message": why}]
    )
    wanted = Access("create", "pods/eviction", "", "team", "a")
    sentence = refusal(wanted, 429, answer, "home")
    expected = f"The eviction of a is forbidden now: {said.rstrip('.')} ({why})."
    assert sentence.message == expected
    assert "via: delete" in sentence.hint


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            ConnectionRefusedError(111, "Connection refused"),
            "No Kubernetes API server answers at https://c:6443 (context home): Connection "
            "refused.",
        ),
        (
            MaxRetryError(
                None,  # type: ignore[arg-type]
                "/",
                SSLError(
                    ssl.SSLCertVerificationError(
                        1,
                        "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed "
                        "certificate (_ssl.c:1006)",
                    )
                ),
            ),
            "The certificate of the Kubernetes API server at https://c:6443 (context home) is not "
            "to be trusted (",
        ),
        (
            ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)"),
            "What answers at https://c:6443 (context home) does not speak TLS.",
        ),
    ],
)
def test_an_unreachable_server_is_one_sentence(error: BaseException, says: str) -> None:
    sentence = unreachable("https://c:6443", "home", error)
    assert sentence.message.startswith(says)
    assert "_ssl.c" not in sentence.message
    assert sentence.hint
