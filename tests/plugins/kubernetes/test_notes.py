"""What a cluster says of a run's Pods, each text once."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from emulator.engines.base import Inbox
from emulator.plugins.kubernetes import names
from emulator.plugins.kubernetes.connection import ApiServer
from emulator.plugins.kubernetes.pods import Notes, disruption_note, note_of
from emulator.plugins.kubernetes.status import Running, seconds, state_of
from emulator.plugins.kubernetes.watching import Kind, Object, Watcher
from emulator.record.events import EngineNote
from tests.clusters import ForTest
from tests.plugins.kubernetes.relay import opened

STAMP = "2026-11-22T22:25:27Z"
EXACT = "2026-11-22T22:25:27.607909Z"


def an_event(reason: str, message: str, **more: Any) -> dict[str, Any]:
    metadata = {"uid": "1", "creationTimestamp": STAMP}
    return {"metadata": metadata, "reason": reason, "message": message, **more}


def said_of(stamp: float, reason: str, message: str) -> EngineNote:
    return EngineNote(task="a", reason=reason, message=message, stamp=stamp)


def test_an_event_has_the_latest_stamp_that_it_says() -> None:
    said = "Successfully assigned h3/ok to localhost"
    scheduled = an_event("Scheduled", said, eventTime=EXACT, lastTimestamp=None)
    assert note_of(scheduled, "a") == said_of(seconds(EXACT), "Scheduled", said)
    killing = an_event("Killing", "Stopping container main", lastTimestamp=STAMP, eventTime=None)
    assert note_of(killing, "a") == said_of(seconds(STAMP), "Killing", "Stopping container main")
    later = {"count": 3, "lastObservedTime": "2026-11-22T22:26:00Z"}
    repeated = an_event("FailedScheduling", "no", eventTime=EXACT, series=later)
    last = seconds("2026-11-22T22:26:00Z")
    assert note_of(repeated, "a") == said_of(last, "FailedScheduling", "no")
    assert note_of(an_event("Odd", ""), "a") == said_of(seconds(STAMP), "Odd", "")


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("Created", "Created container main"),
        ("Started", "Started container main"),
        ("Pulled", 'Container image "x" already present on machine'),
        ("FailedScheduling", "skip schedule deleting pod: h3/sel"),
    ],
)
def test_what_is_known_anyway_is_no_note(reason: str, message: str) -> None:
    assert note_of(an_event(reason, message), "a") is None


def test_a_message_can_do_nothing_to_a_terminal() -> None:
    note = note_of(an_event("Failed", "\x1b[2Jgone\n" + "x" * 5000), "a")
    assert note is not None
    assert note.message.startswith("\\x1b[2Jgone\\n")
    assert len(note.message) < 1100


def test_a_disruption_is_a_note_as_well() -> None:
    condition = {
        **{"type": "DisruptionTarget", "status": "True", "lastTransitionTime": STAMP},
        **{"reason": "PreemptionByScheduler", "message": "preempting to accommodate another Pod"},
    }
    pod = {"metadata": {"name": "x"}, "status": {"conditions": [condition]}}
    message = "PreemptionByScheduler: preempting to accommodate another Pod"
    assert disruption_note(pod, "a") == said_of(seconds(STAMP), "DisruptionTarget", message)
    condition["status"] = "False"
    assert disruption_note(pod, "a") is None


# --- Against a real API server ------------------------------------------------------------------


def make(cluster: ApiServer, name: str, image: str, **more: Any) -> dict[str, Any]:
    main = {"name": "main", "image": image, "imagePullPolicy": "Never", "command": ["sleep", "60"]}
    metadata = {"name": f"run-{name}", "annotations": {names.TASK: name}}
    spec = {"restartPolicy": "Never", "containers": [main], **more}
    return cluster.post(cluster.namespaced("pods"), {"metadata": metadata, "spec": spec})


def until_it_runs(cluster: ApiServer, name: str) -> None:
    runs = threading.Event()

    def look(kind: Kind, pod: Object) -> None:
        if isinstance(state_of(pod), Running):
            runs.set()

    fields = f"metadata.name={name}"
    watcher = Watcher(cluster, cluster.namespaced("pods"), "", look, print, fields=fields)
    watcher.start()
    with contextlib.closing(watcher):
        assert runs.wait(120)


def task_of(pod: str) -> str | None:
    return pod.removeprefix("run-") if pod.startswith("run-") else None


@contextlib.contextmanager
def notes_of(cluster: ApiServer, inbox: Inbox) -> Iterator[Notes]:
    notes = Notes(cluster, task_of, inbox)
    notes.start()
    with contextlib.closing(notes):
        yield notes


@pytest.mark.kubernetes
def test_what_a_cluster_says_is_reported_once(cluster: ApiServer, tiny_image: str) -> None:
    inbox, said = Inbox(), list[EngineNote]()

    def until(task: str, reason: str) -> EngineNote:
        while True:
            note: EngineNote = inbox.get(timeout=120)
            assert note not in said
            said.append(note)
            if (note.task, note.reason) == (task, reason):
                return note

    with notes_of(cluster, inbox) as notes:
        runs = make(cluster, "runs", tiny_image)
        stamp = until("runs", "Scheduled").stamp or 0.0
        assert stamp >= seconds(runs["metadata"]["creationTimestamp"])
        nowhere = make(cluster, "nowhere", tiny_image, nodeSelector={"emulator": "nowhere"})
        assert "nodes are available" in until("nowhere", "FailedScheduling").message
        assert "nodes are available" in notes.warning(nowhere["metadata"]["uid"])
        missing = make(cluster, "missing", "nosuch.example/x:1")
        until("missing", "ErrImageNeverPull")
        # The kubelet warns twice: of the image, and then of the container without it.
        about_it = re.compile("nosuch.example|ErrImageNeverPull")
        assert about_it.search(notes.warning(missing["metadata"]["uid"]))
        # It may have one of its own: on a busy machine, a node is not ready now and then.
        assert not about_it.search(notes.warning(runs["metadata"]["uid"]))
        until_it_runs(cluster, "run-runs")
        cluster.delete(cluster.namespaced("pods", "run-runs"))
        until("runs", "Killing")
        assert not notes.error


@pytest.mark.kubernetes
def test_what_was_said_before_is_not_repeated(cluster: ApiServer, tiny_image: str) -> None:
    with notes_of(cluster, first := Inbox()):
        make(cluster, "early", tiny_image, nodeSelector={"emulator": "nowhere"})
        assert first.get(timeout=120).task == "early"
    with notes_of(cluster, second := Inbox()) as notes:
        make(cluster, "late", tiny_image, nodeSelector={"emulator": "nowhere"})
        assert second.get(timeout=120).task == "late"
        assert not notes.error


@pytest.mark.kubernetes
def test_a_run_does_without_what_it_may_not_read(
    kubernetes_cluster: ForTest, kubernetes_user: Callable[..., Path]
) -> None:
    kubeconfig = kubernetes_user([{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}])
    with opened(kubernetes_cluster, kubeconfig) as cluster, notes_of(cluster, Inbox()) as notes:
        assert "may not list events" in notes.error
