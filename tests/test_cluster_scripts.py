"""The parts of `make kubernetes` that need no cluster."""

from __future__ import annotations

import socket
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.kubernetes import cluster, patches, processes, recipe
from scripts.kubernetes.cluster import Cluster
from scripts.kubernetes.errors import Problem
from scripts.kubernetes.layout import Layout, cache_folder
from scripts.kubernetes.node_services import (
    MOST_ADDRESSES,
    Book,
    answer_to,
    names_of_endpoints,
    names_of_service,
    question_of,
)

TYPE_A, TYPE_AAAA = 1, 28


def query(name: str, kind: int = TYPE_A) -> bytes:
    labels = b"".join(bytes([len(one)]) + one.encode() for one in name.split("."))
    return struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0) + labels + struct.pack(">BHH", 0, kind, 1)


def read(answer: bytes) -> tuple[int, list[str]]:
    """Return the code of an answer, and its addresses."""
    _, flags, _, count = struct.unpack(">HHHH", answer[:8])
    records = [answer[len(answer) - 16 * (number + 1) :][:16] for number in range(count)]
    return flags & 15, [socket.inet_ntoa(one[12:]) for one in reversed(records)]


# --- Names ---------------------------------------------------------------------------------------


def meta(name: str) -> dict[str, Any]:
    return {"name": name, "namespace": "ns", "uid": f"uid-{name}"}


def test_a_headless_service_has_the_names_of_its_pods() -> None:
    addresses = [{"ip": "10.0.0.1", "hostname": "worker-0"}, {"ip": "10.0.0.2"}]
    subsets = [{"addresses": addresses, "notReadyAddresses": [{"ip": "10.0.0.3"}]}]
    assert names_of_endpoints({"metadata": meta("run"), "subsets": subsets}) == {
        "run.ns.svc.cluster.local": ["10.0.0.1", "10.0.0.2"],
        "worker-0.run.ns.svc.cluster.local": ["10.0.0.1"],
    }


@pytest.mark.parametrize(("address", "count"), [("10.96.0.9", 1), ("None", 0), (None, 0)])
def test_other_services_have_a_cluster_ip(address: str | None, count: int) -> None:
    service = {"metadata": meta("api"), "spec": {"clusterIP": address}}
    assert len(names_of_service(service)) == count


def test_a_change_takes_away_what_it_does_not_have() -> None:
    book = Book()
    book.replace("endpoints", [("a", {"x": ["1.1.1.1"]}), ("b", {"y": ["2.2.2.2"]})])
    book.replace("services", [("c", {"x": ["3.3.3.3"]})])
    assert book.names == {"x": ["3.3.3.3"], "y": ["2.2.2.2"]}
    book.put("services", "c", {})
    book.put("endpoints", "b", {"z": ["4.4.4.4"]})
    assert book.names == {"x": ["1.1.1.1"], "z": ["4.4.4.4"]}
    book.replace("endpoints", [])
    assert book.names == {}


def test_a_name_is_answered_with_its_addresses() -> None:
    names = {"run.ns.svc.cluster.local": ["10.0.0.1", "10.0.0.2"], "empty": []}
    assert read(answer_to(query("Run.ns.svc.cluster.local"), names)) == (
        0,
        ["10.0.0.1", "10.0.0.2"],
    )
    assert read(answer_to(query("empty"), names)) == (0, [])
    assert read(answer_to(query("example.org"), names)) == (3, [])
    # There is such a name, and it has no address of the other kind: no error, or nobody asks again.
    assert read(answer_to(query("run.ns.svc.cluster.local", TYPE_AAAA), names)) == (0, [])


def test_an_answer_fits_into_a_packet() -> None:
    many = {"run.ns.svc.cluster.local": [f"10.0.0.{number}" for number in range(100)]}
    answer = answer_to(query("run.ns.svc.cluster.local"), many)
    assert len(answer) <= 512
    assert len(read(answer)[1]) == MOST_ADDRESSES


@pytest.mark.parametrize("packet", [b"", b"x" * 11, query("a")[:-3], b"\0" * 12 + b"\x3fabc"])
def test_what_is_no_query_is_an_error(packet: bytes) -> None:
    with pytest.raises((IndexError, UnicodeError, struct.error)):
        question_of(packet)


# --- The machine ---------------------------------------------------------------------------------


def test_a_process_is_found_again_and_ended(tmp_path: Path) -> None:
    process = processes.Process("one", [sys.executable, "-c", "import time; time.sleep(600)"])
    assert not processes.is_running(tmp_path, "one")
    with pytest.warns(ResourceWarning, match="still running"):
        process.start(tmp_path)
    first = (tmp_path / "one.pid").read_text()
    process.start(tmp_path)  # which changes nothing
    assert (tmp_path / "one.pid").read_text() == first
    assert processes.is_running(tmp_path, "one")
    processes.stop(tmp_path, "one")
    assert not processes.is_running(tmp_path, "one")
    processes.stop(tmp_path, "one")


def test_a_number_that_another_process_has_by_now_is_not_ours(tmp_path: Path) -> None:
    """Here it is this one: it would end."""
    (tmp_path / "one.pid").write_text("1 17\n")
    assert not processes.is_running(tmp_path, "one")
    processes.stop(tmp_path, "one")
    assert not (tmp_path / "one.pid").exists()


def test_a_machine_with_a_kubelet_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "var-lib-kubelet").mkdir()
    monkeypatch.setattr(cluster, "KUBELET_PLACES", (tmp_path / "var-lib-kubelet",))
    state = tmp_path / "state"
    with pytest.raises(Problem, match="another kubelet is at home"):
        Cluster(Layout(state)).start(tmp_path / "binaries")
    assert (tmp_path / "var-lib-kubelet").exists()
    assert not state.exists()


def test_stop_removes_nothing_where_nothing_was_started(tmp_path: Path) -> None:
    Cluster(Layout(tmp_path / "state")).stop()
    assert list(tmp_path.iterdir()) == []


# --- The binaries --------------------------------------------------------------------------------


def test_patches_refuse_a_source_that_they_were_not_made_for(tmp_path: Path) -> None:
    for patch in patches.PATCHES:
        (tmp_path / patch.path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / patch.path).write_text(f"before\n{patch.old}\nafter\n")
    patches.apply(tmp_path)
    for patch in patches.PATCHES:
        assert patch.new in (tmp_path / patch.path).read_text()
    with pytest.raises(ValueError, match=" 0 times"):
        patches.apply(tmp_path)


def test_another_recipe_makes_other_binaries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = [tmp_path / path.name for path in recipe.RECIPE]
    for path, copy in zip(recipe.RECIPE, copies, strict=True):
        copy.write_bytes(path.read_bytes())
    before = recipe.binaries()
    monkeypatch.setattr(recipe, "RECIPE", tuple(copies))
    assert recipe.binaries() == before
    assert before.parent == cache_folder()
    copies[1].write_text("# changed\n")
    assert recipe.binaries() != before


def test_a_build_that_fails_says_why_and_leaves_nothing_but_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMULATOR_KUBERNETES_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(recipe, "HERE", tmp_path)
    (tmp_path / "build").write_text('#!/bin/sh\nmkdir "$1" "$2"\necho no such package\nexit 3\n')
    (tmp_path / "build").chmod(0o755)
    with pytest.raises(Problem, match="no such package"):
        recipe.ensure_binaries()
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".log"]
    (tmp_path / "build").write_text('#!/bin/sh\nmkdir "$1" "$2"\ntouch "$2/kubelet"\n')
    out = recipe.ensure_binaries()
    assert [path.name for path in out.iterdir()] == ["kubelet"]
    assert recipe.ensure_binaries() == out
