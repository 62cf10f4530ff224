"""What the watch tells of Pods, and waiting for what becomes of one."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from emulator.engines.kubernetes import names
from emulator.engines.kubernetes.pod_states import Pod, PodStates
from emulator.engines.kubernetes.status import Ended, Waiting
from emulator.engines.kubernetes.watching import NEVER, Kind
from emulator.errors import EngineLost

RUNS = {"running": {"startedAt": "2026-11-22T10:00:01Z"}}


def ends(code: int) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "finishedAt": "2026-11-22T10:00:05Z"}}


def a_pod(
    uid: str = "u1", phase: str = "Running", *, init: Any = None, **states: Any
) -> dict[str, Any]:
    metadata = {
        "uid": uid,
        "name": "run-worker-0",
        "annotations": {names.TASK: "worker-0"},
        "creationTimestamp": "2026-11-22T10:00:00Z",
    }
    main = [{"name": name, "state": state} for name, state in states.items()]
    first = [] if init is None else [{"name": "fetch", "state": init}]
    return {
        "metadata": metadata,
        "spec": {
            "initContainers": [{"name": one["name"]} for one in first],
            "containers": [{"name": one["name"]} for one in main] or [{"name": names.MAIN}],
        },
        "status": {"phase": phase, "containerStatuses": main, "initContainerStatuses": first},
    }


def states_with(seen: dict[str, Any]) -> tuple[PodStates, Pod]:
    states = PodStates()
    return states, states.created("worker-0", seen)


def test_a_pod_that_never_ran_and_is_gone_has_no_end() -> None:
    states, pod = states_with(a_pod(phase="Pending"))
    states.told("DELETED", a_pod(phase="Pending"))
    assert pod.is_gone
    assert isinstance(pod.state, Waiting)


def test_an_end_is_final() -> None:
    states, pod = states_with(a_pod(main=ends(7)))
    states.told("DELETED", a_pod(main=RUNS))
    assert isinstance(pod.state, Ended)
    assert pod.state.exit_code == 7


def test_the_next_pod_of_a_task_is_another() -> None:
    states, old = states_with(a_pod("u1", main=ends(1)))
    states.forget(old)
    assert states.pod_of("worker-0") is None
    new = states.created("worker-0", a_pod("u2", phase="Pending"))
    states.forget(old)  # again, as a late call may
    assert states.pod_of("worker-0") is new
    states.told("MODIFIED", a_pod("u1", main=RUNS))
    assert isinstance(new.state, Waiting)


def test_a_pod_of_an_earlier_supervisor_is_adopted_and_one_that_is_gone_changes_no_more() -> None:
    states = PodStates()
    states.told("ADDED", a_pod(main=RUNS))
    (pod,) = states.all()
    assert states.pod_of("worker-0") is None
    states.adopt(pod)
    assert states.pod_of("worker-0") is pod
    deleting = a_pod(main=RUNS)
    deleting["metadata"]["deletionTimestamp"] = "2026-11-22T10:00:30Z"
    steps: list[tuple[Kind, dict[str, Any], tuple[bool, bool]]] = [
        ("MODIFIED", a_pod(main=RUNS), (False, False)),
        ("MODIFIED", deleting, (True, False)),
        ("MODIFIED", a_pod(main=RUNS), (True, False)),
        ("DELETED", deleting, (True, True)),
        ("MODIFIED", a_pod(main=ends(1)), (True, True)),
    ]
    for kind, seen, state in steps:
        states.told(kind, seen)
        assert (pod.is_deleted, pod.is_gone) == state
    assert pod.seen is deleting


def test_whoever_waits_is_woken_by_a_change() -> None:
    states, pod = states_with(a_pod(phase="Pending"))
    looks = threading.Event()

    def until(now: float) -> float | None:
        looks.set()
        return None if pod.runs else NEVER

    def tell() -> None:
        assert looks.wait(60)
        states.told("MODIFIED", a_pod(main=RUNS))

    teller = threading.Thread(target=tell)
    teller.start()
    assert states.wait(until)
    teller.join()


def test_a_wait_ends_when_its_time_is_over() -> None:
    states, pod = states_with(a_pod(phase="Pending"))
    assert not states.wait(lambda now: None if pod.runs else NEVER, timeout=0.01)
    again = iter([time.monotonic() + 0.001, time.monotonic() + 0.002, None])
    assert states.wait(lambda now: next(again))


def test_a_wait_ends_when_nothing_will_be_told_any_more() -> None:
    states, pod = states_with(a_pod(phase="Pending"))
    states.fail(EngineLost("The API server is away."))
    with pytest.raises(EngineLost, match="is away"):
        states.wait(lambda now: None if pod.runs else NEVER)
    assert states.wait(lambda now: None)  # what is reached already needs nobody


def test_the_watch_may_be_ahead_of_the_answer_that_made_a_pod() -> None:
    states = PodStates()
    states.told("ADDED", a_pod(main=RUNS))
    pod = states.created("worker-0", a_pod(phase="Pending"))
    assert pod.runs
    assert states.pod_of("worker-0") is pod
