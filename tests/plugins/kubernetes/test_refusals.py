"""Refusals become sentences; the texts are those of API servers 1.20 and 1.34."""

from __future__ import annotations

import ssl
from typing import Any

import pytest
from urllib3.exceptions import MaxRetryError, SSLError

from emulator.plugins.kubernetes.refusals import Access, access, cannot_start, refusal, unreachable

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


LEVEL = "The Pod security level of the namespace team"
ADMISSION = "The cluster's admission control"
WOULD_NOT, TOO_BUSY = "The cluster would not", "The Kubernetes API server is too busy to"


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
                'pods "a" is forbidden: unable to create new content in namespace team because it '
                "is being terminated",
                causes=[{"reason": "NamespaceTerminating", "message": "namespace team is being…"}],
            ),
            "The namespace team is being deleted.",
            "kubernetes.namespace=NAME",
        ),
        (
            404,
            status('namespaces "team" not found', "NotFound", name="team", kind="namespaces"),
            "There is no namespace team in the cluster of the context home.",
            "kubectl create namespace team",
        ),
        (500, {}, "The cluster would not create pods: status 500.", ""),
        (
            409,
            status("it was changed.", "Conflict"),
            "The cluster would not create pods: it was changed.",
            "",
        ),
        (
            404,
            status('pods "a" not found', "NotFound", name="a", kind="pods"),
            'The cluster has nothing to create pods: pods "a" not found.',
            "",
        ),
        (
            403,
            status("not now", causes=[{"reason": "NamespaceTerminating"}]),
            "The namespace team is being deleted.",
            "kubernetes.namespace=NAME",
        ),
        (
            403,
            status("it is being terminated"),
            "The namespace team is being deleted.",
            "kubernetes.namespace=NAME",
        ),
        *(
            (403, status(f'pods "a" is forbidden: {why}'), f"{says} create pods: {why}.", advises)
            for why, says, advises in (
                (
                    "exceeded quota: small, requested: pods=1, used: pods=2, limited: pods=2",
                    "The quota of the namespace team does not allow to",
                    "kubectl describe quota -n team",
                ),
                (
                    'violates PodSecurity "restricted:latest": runAsNonRoot != true (pod or '
                    'container "main" must set securityContext.runAsNonRoot=true)',
                    f"{LEVEL} does not allow to",
                    "run_as",
                ),
                ("Pod Security Policy: []", f"{LEVEL} does not allow to", "run_as"),
                ("PodSecurity: []", f"{LEVEL} does not allow to", "run_as"),
                (
                    'error looking up service account team/x: serviceaccount "x" not found',
                    WOULD_NOT,
                    "kubernetes.service_account",
                ),
                ("ServiceAccount x", WOULD_NOT, "kubernetes.service_account"),
                ("no service account", WOULD_NOT, "kubernetes.service_account"),
                (
                    "maximum cpu usage per Container is 1, but limit is 2",
                    f"{ADMISSION} refused to",
                    "a rule of the cluster",
                ),
            )
        ),
        *(
            (code, status(why, reason), f"{says} create pods: {why}.", advises)
            for code, reason, why, says, advises in (
                (
                    400,
                    "Denied",
                    'admission webhook "no.example" denied the request: not today',
                    f"{ADMISSION} refused to",
                    "a rule of the cluster",
                ),
                (
                    422,
                    "Invalid",
                    'Pod "a" is invalid: spec.containers[0].image: Required value',
                    "The cluster finds invalid what it should",
                    "emulate plan --engine kubernetes",
                ),
                (409, "AlreadyExists", 'pods "a" already exists', WOULD_NOT, "--run-id"),
                (429, "TooManyRequests", "too many requests", TOO_BUSY, ""),
            )
        ),
    ],
)
def test_a_refusal_is_one_sentence(
    code: int, answer: dict[str, Any], says: str, advises: str
) -> None:
    sentence = refusal(CREATE_POD, code, answer, "home")
    assert sentence.message == says
    assert advises in sentence.hint
    assert bool(sentence.hint) == bool(advises)


def test_who_may_not_do_it_may_lack_it_in_a_group_or_everywhere() -> None:
    answer = status('User "ann" cannot list resource "queues"')
    wanted = Access("list", "queues", "kueue.x-k8s.io")
    said = "ann may not list queues (API group kueue.x-k8s.io)."
    assert refusal(wanted, 403, answer, "home").message == said


def test_a_budget_is_why_an_eviction_is_forbidden_now() -> None:
    said = "Cannot evict pod as it would violate the pod's disruption budget."
    why = "The disruption budget one needs 1 healthy pods and has 1"
    answer = status(
        said, "TooManyRequests", causes=[{"reason": "DisruptionBudget", "message": why}, {}]
    )
    wanted = Access("create", "pods/eviction", "", "team", "a")
    sentence = refusal(wanted, 429, answer, "home")
    expected = f"The eviction of a is forbidden now: {said.rstrip('.')} ({why})."
    assert sentence.message == expected
    assert "via: delete" in sentence.hint


def because(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


AT = "at https://c:6443 (context home)"
NO_ANSWER = f"No Kubernetes API server answers {AT}: "
NO_TRUST = f"The certificate of the Kubernetes API server {AT} is not to be trusted ("
SELF_SIGNED = ssl.SSLCertVerificationError(
    1,
    "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate "
    "(_ssl.c:1006)",
)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ConnectionRefusedError(111, "Connection refused"), f"{NO_ANSWER}Connection refused."),
        (because(OSError("a call failed"), OSError("no route")), f"{NO_ANSWER}no route."),
        (TimeoutError(), f"{NO_ANSWER}TimeoutError."),
        (MaxRetryError(None, "/", SSLError(SELF_SIGNED)), NO_TRUST),  # type: ignore[arg-type]
        (OSError("hostname 'c' doesn't match 'd'."), f"{NO_TRUST}hostname 'c' doesn't match 'd')."),
        *(
            (error, f"What answers {AT} does not speak TLS.")
            for error in (
                ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)"),
                OSError("Client sent an HTTP request to an HTTPS server"),
            )
        ),
        *(
            (
                ssl.SSLError(1, f"[SSL: {why} (_ssl.c:1006)"),
                f"The Kubernetes API server {AT} refused the client's certificate ([SSL: {why}).",
            )
            for why in ("x] Certificate required", "SSLV3_ALERT_BAD] bad")
        ),
    ],
)
def test_an_unreachable_server_is_one_sentence(error: BaseException, says: str) -> None:
    sentence = unreachable("https://c:6443", "home", error)
    assert sentence.message.startswith(says)
    assert "_ssl.c" not in sentence.message
    assert sentence.hint


WAIT = "A longer kubernetes.start_timeout waits longer."


@pytest.mark.parametrize(
    ("why", "waited", "says", "advises"),
    [
        *(
            ((reason, "no. "), None, f"can't start: {reason}: no.", "Check the image's name")
            for reason in ("ErrImagePull", "ImagePullBackOff", "InvalidImageName")
        ),
        (("Unschedulable", ""), 60.0, "did not start in 60 s: Unschedulable.", "Ask for less"),
        (
            ("StartError", 'exec: "x": executable file not found in $PATH: unknown'),
            None,
            'can\'t start: StartError: exec: "x": executable file not found in $PATH: unknown.',
            "Check the first word of the command",
        ),
        (("StartError", "cgroup."), None, "can't start: StartError: cgroup.", "`kubectl describe"),
        (("Pending", "x"), 0.5, "did not start in 0.5 s: Pending: x.", WAIT),
        (("", "x"), None, "can't start: x.", "`kubectl describe pod` says more"),
        (("", " "), None, "can't start: the cluster says nothing of it.", "`kubectl describe"),
    ],
)
def test_why_a_pod_does_not_run_is_one_sentence(
    why: tuple[str, str], waited: float | None, says: str, advises: str
) -> None:
    sentence = cannot_start("worker-0", *why, waited)
    assert sentence.message == f"worker-0 {says}"
    assert sentence.hint.startswith(advises)
