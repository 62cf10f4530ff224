"""What a command in a container came to, by the answers of API servers old and new (recorded)."""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Iterator, Mapping
from typing import Any, cast

import pytest

from emulator.plugins.kubernetes import removal
from emulator.plugins.kubernetes.connection import OF_THIS_POD, ApiError, ApiServer
from emulator.plugins.kubernetes.exec import STATUS, exit_code, kubectl_exec
from emulator.plugins.kubernetes.pods import Pod
from emulator.plugins.kubernetes.refusals import access, refusal

Status = Mapping[str, Any]


def failed(message: str, code: int = 500, **more: Any) -> Status:
    return {"status": "Failure", "message": message, "code": code, **more}


CONTAINERD = failed(
    "Internal error occurred: error executing command in container: failed to exec in container: "
    'failed to start exec "2367": OCI runtime exec failed: exec failed: unable to start container '
    'process: exec: "sh": executable file not found in $PATH: unknown',
    reason="InternalError",
)
"""Of Kubernetes 1.36.2 with containerd 1.6."""
OF_A_PATH = failed(
    'OCI runtime exec failed: exec failed: unable to start container process: exec: "/bin/sh": '
    "stat /bin/sh: no such file or directory: unknown"
)
CRUN = failed("crun: executable file `sh` not found in $PATH: No such file or directory")
CAUSE = {"reason": "ExitCode", "message": "127"}
DOCKER = failed(
    "command terminated with non-zero exit code: Error executing in Docker Container: 127",
    reason="NonZeroExitCode",
    details={"causes": [CAUSE]},
)
"""Of Kubernetes 1.20 with Docker."""
GONE = failed("container not found (main): no such file or directory")


@pytest.mark.parametrize("status", [CONTAINERD, OF_A_PATH, CRUN, DOCKER])
def test_a_command_that_is_not_there_has_the_code_of_a_shell(status: Status) -> None:
    assert exit_code(status) == 127


def test_another_failure_has_no_exit_code() -> None:
    assert exit_code(GONE) is None
    assert exit_code({"status": "Success"}) == 0


class Server:
    """An API server of which only the answers exist: how a command ended, and a Pod that runs."""

    context = "home"
    namespace = "team"

    def __init__(self, status: Status) -> None:
        self._status = status
        self.deleted: list[Any] = []

    @staticmethod
    def namespaced(kind: str, name: str) -> str:
        return f"/api/v1/namespaces/team/{kind}/{name}"

    def get(self, path: str) -> Any:
        running = {"name": "main", "state": {"running": {"startedAt": "2026-11-23T10:00:00Z"}}}
        status = {"phase": "Running", "containerStatuses": [running]}
        return {"metadata": {"uid": "uid-1"}, "spec": {}, "status": status}

    def delete(self, path: str, body: Any) -> None:
        self.deleted.append((path.rpartition("/")[2], body["gracePeriodSeconds"]))

    def refused(self, method: str, path: str, status: int, answer: Status) -> ApiError:
        sentence = refusal(access(method, path), status, answer, self.context)
        return ApiError(*sentence, status=status, answer=answer)

    @contextlib.contextmanager
    def websocket(self, *_: Any, **__: Any) -> Iterator[Server]:
        yield self

    def settimeout(self, _: float | None) -> None:
        pass

    def recv(self) -> bytes:
        return bytes([STATUS]) + json.dumps(self._status).encode()


POD = Pod("uid-1", "run-worker-1", "worker-1", {})


@pytest.mark.parametrize("status", [CONTAINERD, DOCKER])
def test_an_image_without_a_shell_is_called_that(status: Status) -> None:
    with pytest.raises(removal.NotSent) as refused:
        removal.send(cast("ApiServer", Server(status)), POD, signal.SIGTERM)
    assert refused.value.message == "Can't send SIGTERM to worker-1 alone: its image has no shell."
    assert refused.value.hint == "Use an image with `sh`."


def test_a_kill_that_became_a_deletion_says_so() -> None:
    server = Server(CONTAINERD)
    instead = removal.kill(cast("ApiServer", server), POD)
    assert server.deleted == [("run-worker-1", 1)]
    assert instead == (
        "the Pod run-worker-1 was deleted with a grace period of 1 s: its image has no shell"
    )


@pytest.mark.parametrize(
    ("context", "terminal", "words"),
    [
        ("home", False, "kubectl --context home -n team exec -i pod -c main -- ls -l"),
        ("home", True, "kubectl --context home -n team exec -it pod -c main -- ls -l"),
        (OF_THIS_POD, False, "kubectl -n team exec -i pod -c main -- ls -l"),
    ],
)
def test_kubectl_runs_a_command_with_the_context_that_is_in_use(
    context: str, terminal: bool, words: str
) -> None:
    server = Server({})
    server.context = context
    found = kubectl_exec(cast("ApiServer", server), "pod", "main", ["ls", "-l"], terminal=terminal)
    assert found == words.split()
