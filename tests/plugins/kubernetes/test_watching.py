"""A watch reports each change once, whatever happens to its connection."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.errors import EngineError, EngineLost
from emulator.plugins.kubernetes.connection import ApiError, ApiServer
from emulator.plugins.kubernetes.watching import Kind, Known, Object, Watcher, what_next
from tests.plugins.kubernetes.kinds import added
from tests.plugins.kubernetes.relay import Relayed


def an_object(uid: str, version: int, name: str = "x") -> dict[str, Any]:
    return {"metadata": {"uid": uid, "name": name, "resourceVersion": str(version)}}


# --- Pure ---------------------------------------------------------------------------------------


def test_a_list_tells_what_a_watch_has_missed() -> None:
    known = Known()
    assert [*known.listed([an_object("a", 1), an_object("b", 2)])] == [
        ("ADDED", an_object("a", 1)),
        ("ADDED", an_object("b", 2)),
    ]
    assert [*known.listed([an_object("b", 3), an_object("c", 4)])] == [
        ("DELETED", an_object("a", 1)),
        ("MODIFIED", an_object("b", 3)),
        ("ADDED", an_object("c", 4)),
    ]
    assert not [*known.listed([an_object("b", 3), an_object("c", 4)])]
    other = Known()  # where an object is made again under its name
    assert [*other.listed([an_object("old", 1)])]
    assert [kind for kind, _ in other.listed([an_object("new", 5)])] == ["DELETED", "ADDED"]


def test_what_a_list_has_reported_a_watch_does_not_repeat() -> None:
    known = Known()
    assert [*known.listed([an_object("a", 1)])]
    assert not [*known.told("ADDED", an_object("a", 1))]
    assert [*known.told("MODIFIED", an_object("a", 2))] == [("MODIFIED", an_object("a", 2))]
    assert [*known.told("DELETED", an_object("a", 3))] == [("DELETED", an_object("a", 3))]
    assert not [*known.told("DELETED", an_object("a", 3))]


def test_only_what_is_to_be_kept_is_in_memory() -> None:
    known = Known(keep=lambda one: {"name": one["metadata"]["name"]})
    assert [*known.listed([an_object("a", 1)])]
    assert [*known.listed([])] == [("DELETED", {"name": "x"})]


Step = tuple[int, str]


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(["change", "delete"])), max_size=30
    ),
    cuts=st.sets(st.integers(0, 30)),
)
def test_however_often_it_lists_again_the_end_is_the_truth(
    steps: list[Step], cuts: set[int]
) -> None:
    """Between two cuts a watch tells each change; a cut is a list of what is there then."""
    known, there, seen = Known(), dict[str, dict[str, Any]](), dict[str, str]()
    reported = list[tuple[str, str]]()
    missed = False

    def report(kind: Kind, one: Object) -> None:
        uid, version = one["metadata"]["uid"], one["metadata"]["resourceVersion"]
        if kind == "DELETED":
            del seen[uid]
        else:
            assert (kind == "ADDED") == (uid not in seen)
            assert (uid, version) not in reported
            reported.append((uid, version))
            seen[uid] = version

    for number, (which, what) in enumerate(steps):
        missed = number in cuts or (missed and number - 1 not in cuts)
        uid = str(which)
        if what == "delete":
            if uid not in there:
                continue
            kind: Kind = "DELETED"
            changed = an_object(uid, number)
            del there[uid]
        else:
            kind = "MODIFIED" if uid in there else "ADDED"
            there[uid] = changed = an_object(uid, number)
        if not missed:
            for change in known.told(kind, changed):
                report(*change)
    for change in known.listed(there.values()):
        report(*change)
    assert seen == {uid: one["metadata"]["resourceVersion"] for uid, one in there.items()}


def refusal(status: int) -> ApiError:
    return ApiError("It would not.", status=status)


@pytest.mark.parametrize(
    ("error", "listing", "then"),
    [
        (EngineLost("gone"), False, "watch"),
        (refusal(410), False, "list"),
        (refusal(401), False, "list"),
        (refusal(503), False, "list"),
        (refusal(403), False, "fail"),
        (refusal(404), False, "fail"),
        (refusal(401), True, "fail"),
        (EngineLost("gone"), True, "fail"),
    ],
)
def test_what_follows_an_error(error: EngineError, listing: bool, then: str) -> None:
    assert what_next(error, listing=listing) == then


# --- Against a real API server ------------------------------------------------------------------


class Changes:
    """What a watch reports, by the names of objects and what they contain."""

    def __init__(self, cluster: Any, path: str) -> None:
        self.queue: queue.SimpleQueue[tuple[str, str, str]] = queue.SimpleQueue()
        self.errors: queue.SimpleQueue[EngineError] = queue.SimpleQueue()
        self.watcher = Watcher(cluster, path, "watched=yes", self.take, self.errors.put)

    def take(self, kind: Kind, one: Object) -> None:
        self.queue.put((kind, one["metadata"]["name"], one.get("data", {}).get("value", "")))

    def next(self) -> tuple[str, str, str]:
        return self.queue.get(timeout=300)


class Maker:
    """Makes, changes and deletes objects of a kind with `data`: ConfigMaps, or another kind."""

    def __init__(self, cluster: ApiServer, path: str = "", **kind: str) -> None:
        self._cluster, self._kind = cluster, kind
        self.path = path or cluster.namespaced("configmaps")

    def make(self, name: str, value: object = 0, watched: str = "yes") -> None:
        metadata = {"name": name, "labels": {"watched": watched}}
        body = {**self._kind, "metadata": metadata, "data": {"value": str(value)}}
        self._cluster.post(self.path, body)

    def change(self, name: str, value: object) -> None:
        self._cluster.patch(f"{self.path}/{name}", {"data": {"value": str(value)}})

    def delete(self, name: str) -> None:
        self._cluster.delete(f"{self.path}/{name}")


@pytest.fixture
def made(cluster: ApiServer) -> Maker:
    return Maker(cluster)


@pytest.fixture
def new_kind(cluster: ApiServer) -> Iterator[Maker]:
    """A kind of object that this test alone has: the server knows no version before it."""
    group = f"{cluster.namespace}.emulator.test"
    with added(cluster, "things", "Thing", group, "v1") as path:
        yield Maker(cluster, path, apiVersion=f"{group}/v1", kind="Thing")


@contextlib.contextmanager
def watching(cluster: Any, path: str = "") -> Iterator[Changes]:
    changes = Changes(cluster, path or cluster.namespaced("configmaps"))
    changes.watcher.start()
    try:
        yield changes
    finally:
        changes.watcher.close()


class Meddling:
    """A cluster whose next watch is asked for from the first version of all, which is gone."""

    def __init__(self, cluster: ApiServer, meanwhile: Callable[[], None]) -> None:
        self._cluster, self._meanwhile = cluster, meanwhile
        self.watches = 0

    def stream(self, path: str, **query: Any) -> Any:
        self.watches += 1
        if self.watches == 2:
            self._meanwhile()
            query["resourceVersion"] = "1"
        return self._cluster.stream(path, **query)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)


@pytest.mark.kubernetes
def test_changes_come_in_their_order(cluster: ApiServer, made: Maker) -> None:
    made.make("before", 1)
    made.make("other", watched="no")
    with watching(cluster) as changes:
        assert changes.next() == ("ADDED", "before", "1")
        made.make("after", 2)
        made.change("before", 3)
        made.delete("after")
        assert changes.next() == ("ADDED", "after", "2")
        assert changes.next() == ("MODIFIED", "before", "3")
        assert changes.next() == ("DELETED", "after", "2")
    assert changes.queue.empty()
    assert changes.errors.empty()


@pytest.mark.kubernetes
def test_a_version_that_is_gone_leads_to_a_list(cluster: ApiServer, new_kind: Maker) -> None:
    new_kind.make("stays", 1)
    new_kind.make("changes", 1)
    new_kind.make("goes", 1)

    def meanwhile() -> None:
        new_kind.change("changes", 2)
        new_kind.change("changes", 3)
        new_kind.delete("goes")
        new_kind.make("comes", 1)
        new_kind.delete("comes")
        new_kind.make("comes", 2)

    meddling = Meddling(cluster, meanwhile)
    with watching(meddling, new_kind.path) as changes:
        assert {changes.next() for _ in range(3)} == {
            ("ADDED", name, "1") for name in ("stays", "changes", "goes")
        }
        new_kind.change("stays", 2)  # so that the watch is known to be under way
        assert changes.next() == ("MODIFIED", "stays", "2")
        changes.watcher.cut()
        assert changes.next() == ("DELETED", "goes", "1")
        assert {changes.next() for _ in range(2)} == {
            ("MODIFIED", "changes", "3"),
            ("ADDED", "comes", "2"),
        }
        new_kind.change("comes", 4)
        assert changes.next() == ("MODIFIED", "comes", "4")
    assert cluster.requests["list things"] == 2
    assert changes.errors.empty()


@pytest.mark.kubernetes
def test_cuts_and_an_outage_lose_and_repeat_nothing(made: Maker, through_relay: Relayed) -> None:
    through, relay = through_relay
    made.make("x", 0)
    with watching(through) as changes:
        assert changes.next() == ("ADDED", "x", "0")
        for value in range(1, 31):
            if value % 3 == 0:
                relay.cut_after(value * 20)  # somewhere in a line
            made.change("x", value)
            assert changes.next() == ("MODIFIED", "x", str(value))
        assert through.requests["watch configmaps"] > 5
        assert through.requests["list configmaps"] == 1
        relay.away()
        for value in (31, 32, 33):
            made.change("x", value)
        relay.back()
        for value in (31, 32, 33):
            assert changes.next() == ("MODIFIED", "x", str(value))
    assert changes.errors.empty()


@pytest.mark.kubernetes
def test_an_outage_that_lasts_ends_the_watch(through_relay: Relayed) -> None:
    through, relay = through_relay
    through.outage_timeout = 0.2
    with watching(through) as changes:
        relay.away()
        error = changes.errors.get(timeout=300)
        assert isinstance(error, EngineLost)
        assert "No Kubernetes API server answers" in error.message
        relay.back()
    assert changes.errors.empty()


@pytest.mark.kubernetes
def test_a_closed_watch_ends(cluster: ApiServer, made: Maker) -> None:
    with watching(cluster) as changes:
        made.make("x")
        assert changes.next() == ("ADDED", "x", "0")
        (thread,) = [
            one
            for one in threading.enumerate()
            if one.name == f"watch {cluster.namespaced('configmaps')}"
        ]
    thread.join(timeout=300)
    assert not thread.is_alive()
    assert changes.errors.empty()


@pytest.mark.kubernetes
def test_what_may_not_be_listed_is_said_at_once(cluster: ApiServer) -> None:
    path = "/apis/nothing.example/v1/things"
    watcher = Watcher(cluster, path, "", lambda kind, one: None, lambda error: None)
    with pytest.raises(ApiError) as caught:
        watcher.start()
    assert caught.value.status == 404
