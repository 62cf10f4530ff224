"""How a Pod is ended: deletion with a grace period, eviction, or a signal from inside.

The kubelet ends a grace period itself, so nobody else may: a second deletion with grace 0 removes
the object at once, and with it the exit code, while the program goes on. That is also why SIGKILL
is no such deletion here: the program would get SIGTERM, and 2 s of the kubelet. It is sent from
inside the container instead, as any other signal.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from emulator.engines.kubernetes.connection import ApiError, ApiServer
from emulator.engines.kubernetes.names import MAIN
from emulator.engines.kubernetes.status import Ended, state_of
from emulator.errors import EngineError

if TYPE_CHECKING:
    from emulator.engines.kubernetes.execution import Executed
    from emulator.faults.spec import Via

KILL_SLACK = 60.0
"""Seconds after a grace period in which the kubelet has killed a Pod of any node that answers."""
EXEC_TIMEOUT = 30.0
"""Seconds in which a command in a container has sent a signal."""
LEAST_GRACE = 1
"""Seconds: with 0 the object is gone at once, and with it the exit code."""

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


@dataclass(frozen=True)
class Victim:
    """One Pod of a task, and none that replaces it under the same name."""

    task: str
    pod: str
    uid: str


def whole(grace: float) -> int:
    """Return a grace period as the API has it, in whole seconds, and none without any (pure).

    1.20's kubelet makes 2 of 1.
    """
    return max(LEAST_GRACE, math.ceil(grace))


def delete_options(uid: str, grace: int) -> dict[str, Any]:
    """Return the options of a deletion that hits no other Pod of the same name (pure)."""
    return {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": grace,
        "preconditions": {"uid": uid},
    }


def eviction(victim: Victim, namespace: str, grace: int) -> dict[str, Any]:
    """Return the body of an eviction (pure).

    Without version and kind, which the server then takes to be its own: policy/v1beta1 before 1.22.
    """
    return {
        "metadata": {"name": victim.pod, "namespace": namespace},
        "deleteOptions": delete_options(victim.uid, grace),
    }


def preempt(cluster: ApiServer, victim: Victim, grace: float, via: Via | None) -> str:
    """Have the kubelet send SIGTERM, and SIGKILL after `grace` seconds; return what was asked for.

    Empty if the Pod is gone; one that was asked before keeps the shorter grace. Raises
    EngineError, with the budget's sentence where one forbids an eviction.
    """
    path, seconds = cluster.namespaced("pods", victim.pod), whole(grace)
    if via == "eviction":
        body = eviction(victim, cluster.namespace, seconds)
        ask = partial(cluster.post, f"{path}/eviction", body)
    else:
        ask = partial(cluster.delete, path, delete_options(victim.uid, seconds))
    if not _is_there(ask):
        return ""
    done = "evicted" if via == "eviction" else "deleted"
    return f"the Pod {victim.pod} was {done} with a grace period of {seconds} s"


def terminate(cluster: ApiServer, victim: Victim) -> None:
    """Send SIGTERM to a Pod's program; the Pod stays. Raises EngineError."""
    send(cluster, victim, signal.SIGTERM)


class NotSent(EngineError):
    """A signal could not be sent from inside a container."""

    def __init__(self, message: str, hint: str = "", *, node_is_lost: bool = False) -> None:
        super().__init__(message, hint)
        self.node_is_lost = node_is_lost
        """The API server does not reach the kubelet."""


def send(cluster: ApiServer, victim: Victim, number: int) -> None:
    """Send a signal to a Pod's program from inside; nothing happens if it has ended.

    Raises NotSent where that can't be done: it needs a shell, and the right to `exec`.
    """
    from emulator.engines.kubernetes.execution import run

    name = signal.Signals(number).name
    head = f"Can't send {name} to {victim.task} alone"
    command = ["sh", "-c", _SCRIPT, "emulator", str(number)]
    refused: EngineError
    try:
        done = run(cluster, victim.pod, MAIN, command, timeout=EXEC_TIMEOUT)
    except EngineError as error:
        # Also where the container ends meanwhile, which cuts the connection, or leaves it silent.
        text = error.text if isinstance(error, ApiError) else ""
        refused = NotSent(
            f"{head}: {error.message.rstrip('.')}.", error.hint, node_is_lost=_UNREACHED in text
        )
    else:
        why = why_not_sent(done)
        if why is None:
            return
        refused = NotSent(f"{head}: {why[0]}.", why[1])
    if not _has_ended(cluster, victim):
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


def kill(cluster: ApiServer, victim: Victim) -> None:
    """Kill a Pod's program at once; where that can't be done, in the shortest grace period.

    The Pod stays with its exit code, in the second case until the kubelet has reported that. On a
    lost node nobody can end it: its Pod is removed, and its program may go on. Raises EngineError.
    """
    try:
        send(cluster, victim, signal.SIGKILL)
    except NotSent as error:
        grace = 0 if error.node_is_lost else LEAST_GRACE
        path, body = cluster.namespaced("pods", victim.pod), delete_options(victim.uid, grace)
        _is_there(lambda: cluster.delete(path, body))


def _is_there(call: Callable[[], object]) -> bool:
    """Perform a call; return False if its Pod is gone, perhaps replaced by one of the same name."""
    try:
        call()
    except ApiError as error:
        if error.status == 404 or (error.status == 409 and "uid" in error.text.lower()):
            return False
        raise
    return True


def _has_ended(cluster: ApiServer, victim: Victim) -> bool:
    """Say whether a Pod's program has ended, or the Pod is gone."""
    try:
        found = cluster.get(cluster.namespaced("pods", victim.pod))
    except ApiError as error:
        if error.status == 404:
            return True
        raise
    return found["metadata"]["uid"] != victim.uid or isinstance(state_of(found), Ended)
