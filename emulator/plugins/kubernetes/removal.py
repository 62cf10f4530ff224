"""What runs have made on a cluster: found by its labels, ended, and removed until nothing is left.

A Pod's program is ended by a deletion with a grace period, an eviction, or a signal from inside.
The kubelet ends a grace period itself, so nobody else may: a second deletion with grace 0 removes
the object at once, and with it the exit code, while the program goes on. That is also why SIGKILL
is no such deletion here: the program would get SIGTERM, and 2 s of the kubelet. It is sent from
inside the container instead, as any other signal.
"""

from __future__ import annotations

import contextlib
import math
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from emulator.engines.base import Resource
from emulator.errors import EngineError
from emulator.plugins.kubernetes import names
from emulator.plugins.kubernetes.connection import ApiError, ApiServer, ignoring_missing
from emulator.plugins.kubernetes.shared import cleaner, folder_of, node_of
from emulator.plugins.kubernetes.status import Ended, is_over, state_of
from emulator.plugins.kubernetes.watching import Watched, Watcher

if TYPE_CHECKING:
    from emulator.faults.spec import Via
    from emulator.plugins.kubernetes.exec import Executed
    from emulator.plugins.kubernetes.pods import Pod

Data = Mapping[str, Any]

KINDS = ("pods", "configmaps", "persistentvolumeclaims", "services")
"""In the order of removal: the Service says what else a run has left."""
WORDS = {
    "pods": "pod",
    "configmaps": "config map",
    "persistentvolumeclaims": "volume claim",
    "services": "service",
}
LEAST_GRACE = 1
"""Seconds: with 0 the object is gone at once, and with it how the containers have ended."""
ENDS_WITHIN = 15.0
"""Seconds after which the object of a Pod is removed whose node has not ended it."""
REMOVAL_TIMEOUT = 60.0
"""Seconds that the cluster has to remove the objects."""
CLEAN_TIMEOUT = 60.0
"""Seconds for the Pod that removes a run's folder from a node."""
PARALLEL = 16


@dataclass(frozen=True)
class Found:
    """An object with our label."""

    kind: str
    data: Data

    @property
    def name(self) -> str:
        """Its name in its namespace."""
        return str(self.data["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """Where it is."""
        return str(self.data["metadata"]["namespace"])

    @property
    def uid(self) -> str:
        """Which no other object ever has."""
        return str(self.data["metadata"]["uid"])

    @property
    def path(self) -> str:
        """Of it in the API."""
        return f"/api/v1/namespaces/{self.namespace}/{self.kind}/{self.name}"

    def resource(self) -> Resource:
        """Return it in the words of all engines."""
        metadata = self.data["metadata"]
        notes, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
        run = notes.get(names.RUN, "")
        return Resource(
            # The label is what it is removed by.
            run_id=run if names.label(run) == labels[names.RUN] else labels[names.RUN],
            kind=WORDS[self.kind],
            name=f"{self.namespace}/{self.name}",
            state=str((self.data.get("status") or {}).get("phase", "")).lower(),
            folder=notes.get(names.FOLDER, ""),
            host=notes.get(names.HOST, ""),
        )


def find(cluster: ApiServer, run_id: str | None, *, everywhere: bool) -> list[Found]:
    """Return what a run has made, or all runs have.

    `everywhere`: in all namespaces, if we may look at them. Raises EngineError.
    """
    selector = names.selector(run_id)
    with ThreadPoolExecutor(len(KINDS)) as pool:
        lists = pool.map(lambda kind: _list(cluster, kind, selector, everywhere), KINDS)
        return [Found(kind, one) for kind, found in zip(KINDS, lists, strict=True) for one in found]


def _list(cluster: ApiServer, kind: str, selector: str, everywhere: bool) -> Iterable[Data]:
    if everywhere:
        try:
            return cluster.list_all(f"/api/v1/{kind}", labelSelector=selector)[0]
        except ApiError as error:
            if error.status != 403:
                raise
    return cluster.list_all(cluster.namespaced(kind), labelSelector=selector)[0]


def tear_down(cluster: ApiServer, run_id: str, *, everywhere: bool) -> int:
    """Remove everything of a run, and wait until it is gone; return how many objects that were.

    Raises EngineError.
    """
    found = find(cluster, run_id, everywhere=everywhere)
    for namespace in sorted({one.namespace for one in found}):
        here = [one for one in found if one.namespace == namespace]
        _tear_down(cluster, namespace, names.selector(run_id), here)
    return len(found)


def _tear_down(cluster: ApiServer, namespace: str, selector: str, found: Sequence[Found]) -> None:
    by_kind = {kind: [one for one in found if one.kind == kind] for kind in KINDS}
    if by_kind["pods"]:
        with _watched(cluster, namespace, "pods", selector) as there:
            remove_pods(cluster, there, by_kind["pods"])
    others = [*by_kind["configmaps"], *by_kind["persistentvolumeclaims"]]
    _each(others, lambda one: delete(cluster, one))
    for service in by_kind["services"]:
        clean_node(cluster, service.data)
        delete(cluster, service)
    if claims := by_kind["persistentvolumeclaims"]:
        # The cluster removes them only when no Pod has them any more.
        with _watched(cluster, namespace, "persistentvolumeclaims", selector) as there:
            _wait_until_gone(there, claims)


@contextlib.contextmanager
def _watched(
    cluster: ApiServer, namespace: str, kind: str, selector: str, fields: str = ""
) -> Iterator[Watched]:
    """Have a watch of the objects of a kind within the block. Raises EngineError."""
    there, path = Watched(), f"/api/v1/namespaces/{namespace}/{kind}"
    watcher = Watcher(cluster, path, selector, there.told, there.fail, fields=fields)
    with contextlib.closing(watcher):
        watcher.start()
        yield there


def remove_pods(cluster: ApiServer, there: Watched, pods: Sequence[Found]) -> None:
    """Delete Pods without grace, and wait until they are gone. Raises EngineError.

    A kubelet removes the object of a Pod only some time after it has ended it: old ones take up to
    a minute. Where it says that the containers have ended, the object is removed at once.
    """
    _each(pods, lambda one: delete(cluster, one, LEAST_GRACE))
    left, patient_until = {one.uid: one for one in pods}, time.monotonic() + ENDS_WITHIN

    def over() -> list[Found]:
        late = time.monotonic() >= patient_until
        seen = [(one, there.seen(uid)) for uid, one in left.items()]
        return [one for one, pod in seen if late or pod is None or is_over(pod)]

    while left:
        there.wait_for(lambda: bool(over()), patient_until - time.monotonic())
        ended = over()
        still = [one for one in ended if there.seen(one.uid) is not None]
        _each(still, lambda one: delete(cluster, one, 0))
        for one in ended:
            del left[one.uid]
    _wait_until_gone(there, pods)


def _wait_until_gone(there: Watched, found: Sequence[Found]) -> None:
    """Wait for objects of one kind. Raises EngineError if some are not gone in time."""

    def left() -> list[Found]:
        return [one for one in found if there.seen(one.uid) is not None]

    if not there.wait_for(lambda: not left(), REMOVAL_TIMEOUT):
        kind = found[0].kind
        raise EngineError(
            f"The cluster has not removed the {WORDS[kind]} "
            f"{', '.join(one.name for one in left())} within {REMOVAL_TIMEOUT:g} s.",
            f"Look at it with `kubectl describe {kind}`; `emulate clean --engine "
            "kubernetes` tries again.",
        )


def delete(cluster: ApiServer, one: Found, grace: int | None = None) -> bool:
    """Delete an object, and no other of its name; return whether it was there."""
    return ignoring_missing(lambda: cluster.delete(one.path, options(one.uid, grace)))


def options(uid: str, grace: int | None = None) -> dict[str, Any]:
    """Return DeleteOptions for the object with that id and no other of its name (pure)."""
    found: dict[str, Any] = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
    return found if grace is None else {**found, "gracePeriodSeconds": grace}


def clean_node(cluster: ApiServer, service: Data) -> None:
    """Remove the folder that a run has left on a node.

    Raises EngineError if it may still be there; the Service then stays, by which it is found.
    """
    request, metadata = cleaner(service), service["metadata"]
    if request is None:
        return
    namespace, name = metadata["namespace"], request["metadata"]["name"]
    path = f"/api/v1/namespaces/{namespace}/pods"
    try:
        made = cluster.post(path, request)
    except ApiError as error:
        made = cluster.made_before(path, request, error)  # by an emulator that was killed
    pod = Found("pods", made)
    with _watched(cluster, namespace, "pods", "", f"metadata.name={name}") as there:

        def phase() -> str:
            seen = there.seen(pod.uid)
            return "Gone" if seen is None else (seen.get("status") or {}).get("phase", "Pending")

        # Not `is_over`: a Pod that has no node yet has not done its work.
        there.wait_for(lambda: phase() in ("Succeeded", "Failed", "Gone"), CLEAN_TIMEOUT)
        end = phase()
        delete(cluster, pod, 0)
    if end != "Succeeded":
        raise EngineError(
            f"The folder {folder_of(request)} may still be on the node {node_of(request)}: the Pod "
            f"that removes it is {end.lower()} after {CLEAN_TIMEOUT:g} s.",
            "`emulate clean --engine kubernetes` tries again. If that node is gone for ever, give "
            f"the folder up with `kubectl delete service {metadata['name']} -n {namespace}`.",
        )


def _each(found: Sequence[Found], call: Callable[[Found], object]) -> None:
    """Make a call for each object, some at once. Raises the first error, after all were made."""
    if found:
        with ThreadPoolExecutor(min(PARALLEL, len(found))) as pool:
            for done in [pool.submit(call, one) for one in found]:
                done.result()


# --- Ending a program -----------------------------------------------------------------------------

KILL_SLACK = 60.0
"""Seconds after a grace period in which the kubelet has killed a Pod of any node that answers."""
EXEC_TIMEOUT = 30.0
"""Seconds in which a command in a container has sent a signal."""

_UNREACHED = "error dialing backend"
"""What the API server says where it can't reach a node's kubelet."""

_NONE, _DENIED, _INIT = 3, 4, 5
"""Exit codes of _SCRIPT: there is no program, it is another user's, it is PID 1."""
_WHY_NOT = {
    _DENIED: ("its program runs as another user", ""),
    _INIT: ("it is PID 1, which the kernel protects", "Leave `init: false` out."),
    **dict.fromkeys((126, 127), ("its image has no shell", "Use an image with `sh`.")),
}
"""Why it sent no signal, and what helps, by exit code."""

_SCRIPT = f"""
lines() {{ while read -r line; do echo "$line"; done; }}
own=$(lines </proc/$$/cgroup) main= first= rest=
for one in /proc/[0-9]*; do
  pid=${{one#/proc/}}
  [ "$pid" = $$ ] && continue
  {{ [ "$(lines <"$one/cgroup")" = "$own" ] && read -r stat <"$one/stat"; }} 2>/dev/null || continue
  set -- "$1" ${{stat##*) }}
  if [ "$3" = 0 ] && {{ [ -z "$main" ] || [ "${{21}}" -lt "$first" ]; }}; then
    rest="$rest $main" main=$pid first=${{21}}
  else
    rest="$rest $pid"
  fi
done
[ -n "$main" ] || exit {_NONE}
kill -0 "$main" || exit {_DENIED}
[ "$1" = 9 ] || rest=
[ "$1$main" != 91 ] || exit {_INIT}
{{
  left=1000000
  while [ $left -gt 0 ] && kill -0 $$; do left=$((left - 1)); done
  [ "$1" != 9 ] || kill -STOP "$main" $rest
  kill -"$1" $rest "$main"
}} </dev/null >/dev/null 2>&1 &
"""
"""Sends the signal $1 to the program of the container, SIGKILL also to all that it has started.

In a shared process namespace nothing else tells the containers apart than their cgroups. The
program is the oldest process whose parent is not in the namespace; a later one is another `exec`.
All are stopped before any is killed: a shell whose child is killed first may still say so.
The signal is sent when the shell has ended: Docker never ends an `exec` whose container dies first.
It needs nothing of the image but a shell.
"""


def whole(grace: float) -> int:
    """Return a grace period as the API has it, in whole seconds, and none without any (pure).

    1.20's kubelet makes 2 of 1.
    """
    return max(LEAST_GRACE, math.ceil(grace))


def eviction(pod: Pod, namespace: str, grace: int) -> dict[str, Any]:
    """Return the body of an eviction (pure).

    Without version and kind, which the server then takes to be its own: policy/v1beta1 before 1.22.
    """
    return {
        "metadata": {"name": pod.name, "namespace": namespace},
        "deleteOptions": options(pod.uid, grace),
    }


def preempt(cluster: ApiServer, pod: Pod, grace: float, via: Via | None) -> str:
    """Have the kubelet send SIGTERM, and SIGKILL after `grace` seconds; return what was asked for.

    Empty if the Pod is gone; one that was asked before keeps the shorter grace. Raises
    EngineError, with the budget's sentence where one forbids an eviction.
    """
    path, seconds = cluster.namespaced("pods", pod.name), whole(grace)
    if via == "eviction":
        ask = partial(cluster.post, f"{path}/eviction", eviction(pod, cluster.namespace, seconds))
    else:
        ask = partial(cluster.delete, path, options(pod.uid, seconds))
    if not ignoring_missing(ask):
        return ""
    done = "evicted" if via == "eviction" else "deleted"
    return f"the Pod {pod.name} was {done} with a grace period of {seconds} s"


class NotSent(EngineError):
    """A signal could not be sent from inside a container."""

    def __init__(self, head: str, why: str, hint: str = "", *, node_is_lost: bool = False) -> None:
        super().__init__(f"{head}: {why}.", hint)
        self.why = why
        """Without a full stop."""
        self.node_is_lost = node_is_lost
        """The API server does not reach the kubelet."""


def send(cluster: ApiServer, pod: Pod, number: int) -> None:
    """Send a signal to a Pod's program from inside; nothing happens if it has ended.

    Raises NotSent where that can't be done: it needs a shell, and the right to `exec`.
    """
    from emulator.plugins.kubernetes.exec import run

    name = signal.Signals(number).name
    head = f"Can't send {name} to {pod.task} alone"
    command = ["sh", "-c", _SCRIPT, "emulator", str(number)]
    refused: EngineError
    try:
        done = run(cluster, pod.name, names.MAIN, command, timeout=EXEC_TIMEOUT)
    except EngineError as error:
        # Also where the container ends meanwhile, which cuts the connection, or leaves it silent.
        text = error.text if isinstance(error, ApiError) else ""
        refused = NotSent(
            head, error.message.rstrip("."), error.hint, node_is_lost=_UNREACHED in text
        )
    else:
        why = why_not_sent(done)
        if why is None:
            return
        refused = NotSent(head, *why)
    if not _has_ended(cluster, pod):
        raise refused


def why_not_sent(done: Executed) -> tuple[str, str] | None:
    """Return why _SCRIPT sent no signal, and what helps (pure).

    None: it was sent, or there was no program to send it to.
    """
    if done.code in (0, _NONE):
        return None
    if (why := _WHY_NOT.get(done.code)) is not None:
        return why
    said = (done.stderr or done.stdout).strip().partition("\n")[0].rstrip(".")
    return said or f"the shell ended with {done.code}", ""


def kill(cluster: ApiServer, pod: Pod) -> str:
    """Kill a Pod's program at once; where that can't be done, in the shortest grace period.

    The Pod stays with its exit code, in the second case until the kubelet has reported that. On a
    lost node nobody can end it: its Pod is removed, and its program may go on. Returns what was
    done instead, and why, in words; empty: it was killed. Raises EngineError.
    """
    try:
        send(cluster, pod, signal.SIGKILL)
    except NotSent as error:
        grace = 0 if error.node_is_lost else LEAST_GRACE
        path, body = cluster.namespaced("pods", pod.name), options(pod.uid, grace)
        if not ignoring_missing(lambda: cluster.delete(path, body)):
            return ""
        return f"the Pod {pod.name} was deleted with a grace period of {grace} s: {error.why}"
    return ""


def _has_ended(cluster: ApiServer, pod: Pod) -> bool:
    """Say whether a Pod's program has ended, or the Pod is gone."""
    try:
        found = cluster.get(cluster.namespaced("pods", pod.name))
    except ApiError as error:
        if error.status == 404:
            return True
        raise
    return found["metadata"]["uid"] != pod.uid or isinstance(state_of(found), Ended)
