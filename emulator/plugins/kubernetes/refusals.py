"""What the API server's refusals mean, as sentences for the user (pure)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from emulator.plugins.kubernetes.status import NEVER_RAN

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>v[^/]+)"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/))?"
    r"/(?P<resource>[^/?]+)(?:/(?P<name>[^/?]+)(?:/(?P<subresource>[^?/]+))?)?"
)
_FORBIDDEN = re.compile(r'(?:User|user) "(?P<user>[^"]*)" cannot (?P<verb>\w+) ')
DOCTOR = "`emulate doctor --engine kubernetes` prints the Role that is needed."


class Access(NamedTuple):
    """What a request does to what, in the words of Kubernetes' roles."""

    verb: str
    resource: str
    """Plural; with the subresource if there is one: `pods/log`."""
    group: str = ""
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        named = f"{self.resource} {self.name}" if self.name else self.resource
        return f"{self.verb} {named}"


def access(method: str, path: str, *, watches: bool = False) -> Access:
    """Return what a request to the API server does (pure).

    `path` may have a query. A path that is of no object is its own resource: `get /version`.
    """
    found = _PATH.match(path)
    if found is None:
        return Access(_VERBS.get(method, "get"), path.partition("?")[0])
    resource, name, subresource = found["resource"], found["name"] or "", found["subresource"]
    if method == "GET":
        verb = "watch" if watches else "get" if name else "list"
    elif method == "DELETE" and not name:
        verb = "deletecollection"
    else:
        verb = _VERBS[method]
    if subresource:
        resource = f"{resource}/{subresource}"
    return Access(verb, resource, found["group"] or "", found["namespace"] or "", name)


class Sentence(NamedTuple):
    """What happened, and what to try next."""

    message: str
    hint: str = ""


def refusal(wanted: Access, status: int, answer: Mapping[str, Any], context: str) -> Sentence:
    """Say why the API server refused (pure).

    `answer` is the Status that it sent, empty if it sent none; `context` is the name of the
    kubeconfig's context.
    """
    text = str(answer.get("message") or f"status {status}").strip().rstrip(".")
    match status:
        case 401:
            return Sentence(
                f"The Kubernetes API server refused the login of the context {context}.",
                "Its token or certificate is wrong or has expired: log in again, and try "
                "`kubectl get pods`.",
            )
        case 403:
            return _forbidden(wanted, text, answer)
        case 404 if _kind(answer) == "namespaces":
            return Sentence(
                f"There is no namespace {_name(answer)} in the cluster of the context {context}.",
                f"Make it with `kubectl create namespace {_name(answer)}`, or name another one "
                "with --set kubernetes.namespace=NAME.",
            )
        case 404:
            return Sentence(f"The cluster has nothing to {wanted}: {text}.")
        case 409 if answer.get("reason") == "AlreadyExists":
            return Sentence(
                f"The cluster would not {wanted}: {text}.",
                "Choose another --run-id, or run `emulate clean --engine kubernetes`.",
            )
        case 429 if wanted.resource == "pods/eviction":
            return Sentence(
                f"The eviction of {wanted.name} is forbidden now: {text}{_budgets(answer)}.",
                "A PodDisruptionBudget forbids it; `via: delete` does not ask.",
            )
        case 429:
            return Sentence(f"The Kubernetes API server is too busy to {wanted}: {text}.")
        case 422:
            return Sentence(
                f"The cluster finds invalid what it should {wanted}: {text}.",
                "`emulate plan --engine kubernetes` prints what is asked for.",
            )
    if "admission webhook" in text:
        return _admission(wanted, text)
    return Sentence(f"The cluster would not {wanted}: {text}.")


def _forbidden(wanted: Access, text: str, answer: Mapping[str, Any]) -> Sentence:
    who = _FORBIDDEN.search(text)
    if who is not None:
        where = f" in the namespace {wanted.namespace}" if wanted.namespace else ""
        group = f" (API group {wanted.group})" if wanted.group else ""
        return Sentence(
            f"{who['user']} may not {who['verb']} {wanted.resource}{group}{where}.",
            f'A Role with the verb "{who["verb"]}" for "{wanted.resource}" allows it; {DOCTOR}',
        )
    reason = text.partition("is forbidden: ")[2] or text
    if "exceeded quota" in reason:
        return Sentence(
            f"The quota of the namespace {wanted.namespace} does not allow to {wanted}: {reason}.",
            "Ask for less (`cpus`, `memory`, replicas), or for a larger quota; `kubectl describe "
            f"quota -n {wanted.namespace}` shows it.",
        )
    if "being terminated" in reason or "NamespaceTerminating" in str(answer.get("details")):
        return Sentence(
            f"The namespace {wanted.namespace} is being deleted.",
            "Wait until it is gone and make it again, or name another one with "
            "--set kubernetes.namespace=NAME.",
        )
    if "PodSecurity" in reason or "pod security policy" in reason.lower():
        return Sentence(
            f"The Pod security level of the namespace {wanted.namespace} does not allow to "
            f"{wanted}: {reason}.",
            "An image whose user is not root, or `kubernetes: {run_as: 1000}`, fulfils the level "
            "`restricted`.",
        )
    if "serviceaccount" in reason.lower() or "service account" in reason:
        return Sentence(
            f"The cluster would not {wanted}: {reason}.",
            "Make that service account, or name another one with `kubernetes.service_account`.",
        )
    return _admission(wanted, reason)


def _admission(wanted: Access, reason: str) -> Sentence:
    return Sentence(
        f"The cluster's admission control refused to {wanted}: {reason}.",
        "That is a rule of the cluster: change what it complains about, or ask who runs it.",
    )


def _kind(answer: Mapping[str, Any]) -> str:
    return str((answer.get("details") or {}).get("kind", ""))


def _name(answer: Mapping[str, Any]) -> str:
    return str((answer.get("details") or {}).get("name", ""))


def _budgets(answer: Mapping[str, Any]) -> str:
    """Return what the causes add: the name of the budget, and how many Pods it needs."""
    causes = (answer.get("details") or {}).get("causes") or ()
    return "".join(f" ({one['message']})" for one in causes if one.get("message"))


def unreachable(server: str, context: str, error: BaseException) -> Sentence:
    """Say why no API server answers at an address (pure)."""
    where = f"at {server} (context {context})"
    reason = _innermost(error)
    if "CERTIFICATE_VERIFY_FAILED" in reason or "doesn't match" in reason:
        return Sentence(
            f"The certificate of the Kubernetes API server {where} is not to be trusted "
            f"({_tidy(reason)}).",
            "Check the cluster's certificate-authority in the kubeconfig.",
        )
    if "WRONG_VERSION_NUMBER" in reason or "HTTP request to an HTTPS" in reason:
        return Sentence(
            f"What answers {where} does not speak TLS.", "Check the `server:` of the kubeconfig."
        )
    if "certificate required" in reason.lower() or "ALERT" in reason:
        return Sentence(
            f"The Kubernetes API server {where} refused the client's certificate "
            f"({_tidy(reason)}).",
            "It may have expired: log in again, and try `kubectl get pods`.",
        )
    return Sentence(
        f"No Kubernetes API server answers {where}: {_tidy(reason)}.",
        "Check that the cluster runs and can be reached: try `kubectl get pods`.",
    )


def _innermost(error: BaseException) -> str:
    """Return the innermost reason: the outer ones only repeat that a call failed."""
    while True:
        inner = getattr(error, "reason", None)
        if not isinstance(inner, BaseException):
            inner = error.__cause__ or error.__context__
        if inner is None:
            break
        error = inner
    return str(getattr(error, "strerror", None) or str(error) or type(error).__name__)


def _tidy(reason: str) -> str:
    """Drop what Python adds to OpenSSL's reasons: the name and line of its source."""
    return re.sub(r"\s*\(?_ssl\.c:\d+[:)]\s*", "", reason).strip().rstrip(".")


_NO_FILE = re.compile("executable file .*not found|no such file or directory")
_PULL = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")


def cannot_start(task: str, reason: str, message: str, waited: float | None) -> Sentence:
    """Say why a Pod does not run (pure).

    `reason` and `message` are the scheduler's or the kubelet's; `waited` are the seconds after
    which it was given up; None: to wait longer is of no use.
    """
    why = ": ".join(one for one in (reason, message.strip().rstrip(".")) if one)
    why = why or "the cluster says nothing of it"
    began = f"{task} can't start" if waited is None else f"{task} did not start in {waited:g} s"
    if reason in _PULL:
        hint = (
            "Check the image's name, and that nodes may pull it: kubernetes.registry, "
            "kubernetes.image_pull_secret; `emulate build KIND --push REGISTRY` pushes ours."
        )
    elif reason == "Unschedulable":
        hint = (
            "Ask for less (cpus, memory, gpus), or for other nodes (kubernetes.node_selector, "
            "kubernetes.tolerations); a longer kubernetes.start_timeout waits longer."
        )
    elif reason in NEVER_RAN and _NO_FILE.search(message):
        hint = "Check the first word of the command: it is not in the image."
    elif waited is not None:
        hint = "A longer kubernetes.start_timeout waits longer."
    else:
        hint = "`kubectl describe pod` says more while it exists."
    return Sentence(f"{began}: {why}.", hint)
