"""What Pods of a real cluster say: `recorded/pods.json` has their statuses, one for each change.

Kubernetes 1.20.2 with Docker. Newer versions add what is written here by hand.
"""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from emulator.errors import EngineLost
from emulator.plugins.kubernetes import names
from emulator.plugins.kubernetes.pods import Pod, PodStates
from emulator.plugins.kubernetes.status import (
    KILLED,
    Ended,
    Running,
    State,
    Waiting,
    disruption_of,
    is_over,
    removed,
    seconds,
    state_of,
)
from emulator.plugins.kubernetes.watching import NEVER, Kind

RECORDED: dict[str, list[dict[str, Any]]] = json.loads(
    (Path(__file__).parent / "recorded" / "pods.json").read_text()
)


def states(name: str) -> list[State]:
    """Return the states of a recorded Pod, each told the one before it."""
    found: list[State] = []
    for pod in RECORDED[name]:
        found.append(state_of(pod, before=found[-1] if found else None))
    return found


def end_of(pod: dict[str, Any]) -> Ended:
    state = state_of(pod)
    assert isinstance(state, Ended)
    return state


def ended(name: str) -> Ended:
    last = states(name)[-1]
    assert isinstance(last, Ended)
    return last


RUNS = {"running": {"startedAt": "2026-11-22T10:00:01Z"}}


def terminated(code: int, **more: object) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "finishedAt": "2026-11-22T10:00:05Z", **more}}


def a_pod(phase: str = "Running", main: Any = None, **status: Any) -> dict[str, Any]:
    own = [] if main is None else [{"name": "main", "state": main}]
    return {
        "metadata": {"name": "x", "creationTimestamp": "2026-11-22T10:00:00Z"},
        "status": {"phase": phase, "containerStatuses": own, **status},
    }


def disrupted(reason: str) -> dict[str, Any]:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason}
    return {
        "conditions": [
            {**condition, "message": "why", "lastTransitionTime": "2026-11-22T10:00:04Z"}
        ]
    }


def test_a_program_that_waits_and_runs() -> None:
    assert states("succeeds")[:2] == [Waiting(""), Waiting("ContainerCreating")]
    *_, running = states("deleted without grace")
    assert isinstance(running, Running)
    first = RECORDED["deleted without grace"][0]
    assert running.since >= seconds(first["metadata"]["creationTimestamp"])


@pytest.mark.parametrize(
    ("name", "code", "reason", "container"),
    [
        ("succeeds", 0, "", "main"),
        ("exits 3", 3, "", "main"),
        ("deleted, exits 7", 7, "", "main"),
        ("init step exits 5", 5, "", "step"),
        ("no such command", 127, "ContainerCannotRun", "main"),
        ("out of memory", 137, "OOMKilled", "main"),
        ("deadline", 137, "DeadlineExceeded", "main"),
        ("lost by the kubelet", 137, "ContainerStatusUnknown", "main"),
    ],
)
def test_ends(name: str, code: int, reason: str, container: str) -> None:
    end = ended(name)
    assert (end.exit_code, end.reason, end.container) == (code, reason, container)
    assert end.oom_killed == (reason == "OOMKilled")
    assert end.wall >= seconds(RECORDED[name][0]["metadata"]["creationTimestamp"])
    assert end.is_reported == (name not in ("deadline", "lost by the kubelet"))


NO_COMMAND = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc "
    'create failed: unable to start container process: exec: "no-such-program": executable file '
    "not found in $PATH: unknown"
)


def test_a_program_that_the_runtime_could_not_start_never_ran() -> None:
    """Containerd's words are 128 and StartError, and its container began in 1970."""
    start = {"startedAt": "1970-01-01T00:00:00Z", "message": NO_COMMAND}
    of_containerd = end_of(a_pod("Failed", terminated(128, reason="StartError", **start)))
    assert of_containerd.never_ran
    assert (of_containerd.exit_code, of_containerd.message) == (128, NO_COMMAND)
    assert ended("no such command").never_ran
    assert not ended("exits 3").never_ran
    assert not ended("lost by the kubelet").never_ran


def test_what_the_cluster_says_of_an_end_is_kept() -> None:
    assert "no such file or directory" in ended("no such command").message
    assert ended("deadline").message.startswith("Pod was active on the node longer")


@pytest.mark.parametrize(
    ("name", "reason", "words", "is_final"),
    [
        ("invalid image name", "InvalidImageName", "must be lowercase", True),
        ("image never pulled", "ErrImageNeverPull", "pull policy of Never", True),
        ("must not be root", "CreateContainerConfigError", "image will run as root", True),
        ("out of cpu", "OutOfcpu", "enough resource: cpu", True),
        ("registry away", "ImagePullBackOff", "connection refused", False),
        ("unschedulable", "Unschedulable", "0/1 nodes are available", False),
    ],
)
def test_waiting(name: str, reason: str, words: str, is_final: bool) -> None:
    last = states(name)[-1]
    assert isinstance(last, Waiting)
    assert (last.reason, last.is_final) == (reason, is_final)
    assert words in last.message


@pytest.mark.parametrize(
    ("message", "is_final"),
    [
        ("manifest for team/x:1 not found: manifest unknown: manifest unknown", True),
        ("pull access denied for x, repository does not exist or may require 'docker login'", True),
        ("failed to authorize: 401 Unauthorized", True),
        ("no match for platform in manifest: not found", True),
        ("net/http: request canceled while waiting for connection", False),
        ("toomanyrequests: You have reached your pull rate limit", False),
        ("dial tcp: lookup registry: i/o timeout", False),
    ],
)
def test_an_image_that_no_second_attempt_gets_is_final(message: str, is_final: bool) -> None:
    failed = state_of(a_pod("Pending", {"waiting": {"reason": "ErrImagePull", "message": message}}))
    assert failed == Waiting("ErrImagePull", message, is_final)
    back_off = {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}
    then = state_of(a_pod("Pending", {"waiting": back_off}), before=failed)
    assert then == Waiting("ImagePullBackOff", message, is_final)
    again = state_of(a_pod("Pending", {"waiting": back_off}), before=then)
    assert again == then


def test_a_newer_kubelet_says_itself_why_it_backs_off() -> None:
    message = 'Back-off pulling image "x": ErrImagePull: manifest unknown'
    waiting = {"reason": "ImagePullBackOff", "message": message}
    earlier = Waiting("ErrImagePull", "i/o timeout")
    state = state_of(a_pod("Pending", {"waiting": waiting}), before=earlier)
    assert state == Waiting("ImagePullBackOff", message, is_final=True)


def test_each_container_has_its_own_state() -> None:
    pod = RECORDED["init step exits 5"][-1]
    assert state_of(pod, "step") == ended("init step exits 5")
    pod = a_pod(main=terminated(0))
    proxy = {"name": "proxy", "state": RUNS}
    pod["status"]["containerStatuses"].append(proxy)
    assert state_of(pod, "proxy") == Running(seconds("2026-11-22T10:00:01Z"))
    assert isinstance(state_of(pod), Ended)


def test_a_pod_deleted_without_grace_was_killed() -> None:
    last = RECORDED["deleted without grace"][-1]
    assert isinstance(state_of(last), Running)
    end = removed(last)
    expected = (KILLED, False, "", False)
    assert (end.exit_code, end.oom_killed, end.reason, end.is_reported) == expected
    assert removed(RECORDED["deleted, exits 7"][-1]) == ended("deleted, exits 7")


@pytest.mark.parametrize(
    "reason",
    ["PreemptionByScheduler", "DeletionByTaintManager", "EvictionByEvictionAPI", "DeletionByPodGC"],
)
def test_newer_clusters_say_why_a_pod_was_disrupted(reason: str) -> None:
    pod = a_pod("Failed", terminated(143, reason="Error"), **disrupted(reason))
    end = end_of(pod)
    assert (end.exit_code, end.reason, end.message) == (143, reason, "why")
    assert disruption_of(pod) == (reason, "why")
    assert removed(a_pod(**disrupted(reason))).reason == reason
    out_of_memory = a_pod("Failed", terminated(137, reason="OOMKilled"), **disrupted(reason))
    assert removed(out_of_memory).reason == "OOMKilled"


MADE, BACK_OFF = 1795341600.0, {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}
REFUSED = {"reason": "NodeAffinity", "message": "m"}
EVICTED = {"reason": "Evicted", "message": "The node was low on resource: memory."}
GATED = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "queue"}
CONFIG, MISSING = "CreateContainerConfigError", 'configmap "x" not found'
SLOW = "failed to sync configmap cache: timed out waiting"
SCHEDULED, DISRUPTED = {"type": "PodScheduled", "status": "True"}, "DisruptionTarget"
TIMES = [f"2026-11-22T10:00:0{n}Z" for n in (3, 7, 4)]


def killed(code: int = KILLED, reason: str = "", wall: float = MADE, **more: Any) -> Ended:
    return Ended(code, False, reason, wall, **more)


@pytest.mark.parametrize(
    ("pod", "state"),
    [
        (a_pod(main={"running": {}}), Running(MADE)),
        (a_pod("Failed", {"running": {}}), killed(is_reported=False)),
        (a_pod("Failed", {"waiting": {}}), killed(is_reported=False)),
        (
            a_pod("Failed", podIP="1.2.3.4", **REFUSED),
            killed(137, "NodeAffinity", message="m", is_reported=False),
        ),
        (a_pod("Succeeded", podIP="1.2.3.4"), killed(0, is_reported=False)),
        (
            a_pod("Failed", reason="DeadlineExceeded"),
            killed(137, "DeadlineExceeded", is_reported=False),
        ),
        # An evicted Pod has no word about its containers; a node may refuse one that it got.
        (
            a_pod("Failed", **EVICTED),
            killed(KILLED, "Evicted", message=EVICTED["message"], is_reported=False),
        ),
        (a_pod("Failed", **REFUSED), Waiting("NodeAffinity", "m", is_final=True)),
        (a_pod("Failed"), Waiting("Failed", "", is_final=True)),
        # Nobody has looked at these.
        ({"metadata": {"name": "x"}}, Waiting("")),
        (a_pod("Pending", conditions=[GATED]), Waiting("SchedulingGated", "queue")),
        # A ConfigMap that the kubelet has not read yet may come.
        (
            a_pod("Pending", {"waiting": {"reason": CONFIG, "message": MISSING}}),
            Waiting(CONFIG, MISSING, is_final=True),
        ),
        (a_pod("Pending", {"waiting": {"reason": CONFIG, "message": SLOW}}), Waiting(CONFIG, SLOW)),
        (a_pod("Failed", terminated(0, signal=15)), killed(143, wall=MADE + 5)),
        # An end without a stamp was when the Pod changed last.
        (
            a_pod("Failed", terminated(137, finishedAt=None), **disrupted("DeletionByPodGC")),
            killed(137, "DeletionByPodGC", MADE + 4, message="why"),
        ),
        (a_pod("Failed", terminated(137, finishedAt="0001-01-01T00:00:00Z")), killed()),
        (a_pod(main=terminated(3, signal=15)), killed(3, wall=MADE + 5)),
        (a_pod(main={"terminated": {}}), killed()),
        (
            a_pod(main=terminated(1, reason="Odd", message="own")),
            killed(1, "Odd", MADE + 5, message="own"),
        ),
        (
            a_pod("Failed", terminated(1, message="own"), **REFUSED),
            killed(1, "NodeAffinity", MADE + 5, message="own"),
        ),
        (
            a_pod(main={"waiting": BACK_OFF}, conditions=[SCHEDULED]),
            Waiting("ImagePullBackOff", BACK_OFF["message"]),
        ),
        (
            a_pod(main={"terminated": {}}, conditions=[{"type": DISRUPTED, "status": "False"}]),
            killed(),
        ),
        (
            a_pod(
                main={"terminated": {}}, conditions=[{"lastTransitionTime": one} for one in TIMES]
            ),
            killed(wall=MADE + 7),
        ),
    ],
)
def test_what_a_pod_says_in_few_words(pod: dict[str, Any], state: State) -> None:
    assert state_of(pod) == state
    for before in (Waiting("ContainerCreating"), Running(1.0)):
        assert state_of(pod, before=before) == state


def test_an_init_step_waits_only_for_those_before_it() -> None:
    def steps(*states: dict[str, Any]) -> dict[str, Any]:
        named = [{"name": f"step-{n}", "state": one} for n, one in enumerate(states)]
        return a_pod("Pending", waits, initContainerStatuses=named)

    waits, failed, done = {"waiting": {"reason": "PodInitializing"}}, terminated(5), terminated(0)
    assert state_of(steps(waits, failed), "step-0") == Waiting("PodInitializing")
    assert state_of(steps(done, failed)) == killed(5, wall=MADE + 5, container="step-1")
    assert state_of(steps(failed, waits), "step-1") == killed(5, wall=MADE + 5, container="step-0")
    waiting = Waiting("PodInitializing", "the init step step-1 runs")
    assert state_of(steps(done, RUNS, waits)) == waiting
    recorded = [one for one in states("init step exits 5") if isinstance(one, Waiting)][-1]
    assert recorded == Waiting("PodInitializing", "the init step step runs")
    pulls = {"waiting": {"reason": "ErrImagePull", "message": "not found"}}
    missing = Waiting("ErrImagePull", "not found", is_final=True)
    assert state_of(steps(done, pulls, waits)) == missing


@pytest.mark.parametrize(
    ("grace", "until", "code"),
    [
        *((2, "10:00:30", 137), (3, "10:00:30", 143), (3, "10:00:01", 143), (3, "10:00:00", 137)),
        *((30, "10:00:30", 143), (30, "09:59:00", 137), (1, "10:00:01", 137)),
    ],
)
def test_a_lost_exit_code_within_the_grace_period_is_that_of_sigterm(
    grace: int, until: str, code: int
) -> None:
    """Kubelets before 1.22 say 137 then, as if the program had been killed."""
    pod = a_pod("Failed", terminated(137, finishedAt=None, reason="ContainerStatusUnknown"))
    stamp = f"2026-11-22T{until}Z"
    pod["metadata"] |= {"deletionGracePeriodSeconds": grace, "deletionTimestamp": stamp}
    assert (end_of(pod).exit_code, end_of(pod).reason) == (code, "ContainerStatusUnknown")
    gone = removed({**pod, "status": {"phase": "Running"}})
    assert gone == killed(wall=seconds(stamp), is_reported=False)


def test_a_pod_is_over_when_none_of_its_containers_runs_or_will() -> None:
    node, waits = {"nodeName": "n1"}, [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]
    over = (a_pod("Succeeded"), a_pod(main=terminated(1)))
    waiting = a_pod(main=terminated(1), initContainerStatuses=waits)
    goes_on = (a_pod("Pending"), a_pod(main={"running": {}}), waiting)
    assert all(is_over({**pod, "spec": node}) for pod in over)
    assert not any(is_over({**pod, "spec": node}) for pod in goes_on)
    assert all(is_over({**pod, "spec": {}}) for pod in goes_on)  # they never had a node


# --- What the watch tells of Pods, and waiting for what becomes of one ----------------------------


def of_task(uid: str = "u1", phase: str = "Running", main: Any = None) -> dict[str, Any]:
    pod = {**a_pod(phase, main), "spec": {"containers": [{"name": names.MAIN}]}}
    pod["metadata"] |= {"uid": uid, "name": "x", "annotations": {names.TASK: "worker-0"}}
    return pod


def states_with(seen: dict[str, Any]) -> tuple[PodStates, Pod]:
    states = PodStates()
    return states, states.created("worker-0", seen)


def test_a_pod_that_never_ran_and_is_gone_has_no_end_and_an_end_is_final() -> None:
    states, pod = states_with(of_task(phase="Pending"))
    states.told("DELETED", of_task(phase="Pending"))
    assert pod.is_gone
    assert isinstance(pod.state, Waiting)
    states, pod = states_with(of_task(main=terminated(7)))
    states.told("DELETED", of_task(main=RUNS))
    assert isinstance(pod.state, Ended)
    assert pod.state.exit_code == 7


def test_the_next_pod_of_a_task_is_another() -> None:
    states, old = states_with(of_task("u1", main=terminated(1)))
    states.forget(old)
    assert states.pod_of("worker-0") is None
    new = states.created("worker-0", of_task("u2", phase="Pending"))
    states.forget(old)  # again, as a late call may
    assert states.pod_of("worker-0") is new
    states.told("MODIFIED", of_task("u1", main=RUNS))
    assert isinstance(new.state, Waiting)


def test_a_pod_of_an_earlier_supervisor_is_adopted_and_one_that_is_gone_changes_no_more() -> None:
    states = PodStates()
    states.told("ADDED", of_task(main=RUNS))
    (pod,) = states.all()
    assert states.pod_of("worker-0") is None
    states.adopt(pod)
    assert states.pod_of("worker-0") is pod
    deleting = of_task(main=RUNS)
    deleting["metadata"]["deletionTimestamp"] = "2026-11-22T10:00:30Z"
    steps: list[tuple[Kind, dict[str, Any], tuple[bool, bool]]] = [
        ("MODIFIED", of_task(main=RUNS), (False, False)),
        ("MODIFIED", deleting, (True, False)),
        ("MODIFIED", of_task(main=RUNS), (True, False)),
        ("DELETED", deleting, (True, True)),
        ("MODIFIED", of_task(main=terminated(1)), (True, True)),
    ]
    for kind, seen, state in steps:
        states.told(kind, seen)
        assert (pod.is_deleted, pod.is_gone) == state
    assert pod.seen is deleting


def test_whoever_waits_is_woken_by_a_change() -> None:
    states, pod = states_with(of_task(phase="Pending"))
    looks = threading.Event()

    def until(now: float) -> float | None:
        looks.set()
        return None if pod.runs else NEVER

    def tell() -> None:
        assert looks.wait(60)
        states.told("MODIFIED", of_task(main=RUNS))

    teller = threading.Thread(target=tell)
    teller.start()
    assert states.wait(until)
    teller.join()


def test_a_wait_ends_when_its_time_is_over_and_when_nothing_will_be_told_any_more() -> None:
    states, pod = states_with(of_task(phase="Pending"))
    assert not states.wait(lambda now: None if pod.runs else NEVER, timeout=0.01)
    again = iter([time.monotonic() + 0.001, time.monotonic() + 0.002, None])
    assert states.wait(lambda now: next(again))
    states.fail(EngineLost("The API server is away."))
    with pytest.raises(EngineLost, match="is away"):
        states.wait(lambda now: None if pod.runs else NEVER)
    assert states.wait(lambda now: None)  # what is reached already needs nobody


def test_the_watch_may_be_ahead_of_the_answer_that_made_a_pod() -> None:
    states = PodStates()
    states.told("ADDED", of_task(main=RUNS))
    pod = states.created("worker-0", of_task(phase="Pending"))
    assert pod.runs
    assert states.pod_of("worker-0") is pod
