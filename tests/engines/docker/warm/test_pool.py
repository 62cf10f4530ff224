"""Clusters that wait for runs: taken by one process, given back, removed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from emulator.engines import WARM_SESSION
from emulator.engines.docker.warm import pool
from emulator.engines.docker.warm.pool import Pool, Waiting

WAITING = {"worker-0": Waiting("c0", "s0", "10.0.0.2", ("/root",)), "worker-1": Waiting("c1", "s")}


@pytest.fixture
def clusters(tmp_path: Path) -> Pool:
    return Pool("engine", tmp_path / "warm")


def waits(clusters: Pool, key: str = "k") -> str:
    cluster = clusters.make(key)
    clusters.give_back(cluster, WAITING)
    return cluster.id


def test_a_cluster_that_was_given_back_is_taken_by_one_who_needs_such_a_one(clusters: Pool) -> None:
    made = waits(clusters)
    assert pool.waits(clusters.folder / made)
    assert clusters.take_cluster("other") is None
    taken = clusters.take_cluster("k")
    assert taken is not None
    assert (taken.id, taken.waiting) == (made, WAITING)
    assert clusters.take_cluster("k") is None
    clusters.give_back(taken, WAITING)
    assert clusters.take_cluster("k") is not None


def test_another_process_can_not_take_it_meanwhile_nor_end_it(clusters: Pool) -> None:
    made = clusters.make("k")
    script = (
        "import sys; from pathlib import Path; from emulator.engines.docker.warm.pool import Pool\n"
        "pool = Pool('engine', Path(sys.argv[1]))\n"
        "print(pool.take_cluster('k'), list(pool.ended()))"
    )
    command = [sys.executable, "-c", script, str(clusters.folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "None []\n"
    clusters.abandon(made)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"None ['{made.id}']\n"


def test_one_that_has_waited_too_long_is_not_taken_but_ended(
    clusters: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "IDLE", -1.0)
    made = waits(clusters)
    assert not pool.waits(clusters.folder / made)
    assert clusters.take_cluster("k") is None
    assert list(clusters.ended()) == [made]
    assert list(clusters.folder.iterdir()) == []


def test_a_session_ends_those_that_it_made_and_no_others(
    clusters: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits(clusters)
    monkeypatch.setenv(WARM_SESSION, "mine")
    mine = waits(clusters)
    assert list(clusters.ended(session="mine")) == [mine]
    assert list(clusters.ended()) == []


def test_the_oldest_are_ended_where_too_many_containers_wait(clusters: Pool) -> None:
    ids = []
    for number in range(3):
        ids.append(waits(clusters))
        state = clusters.folder / ids[-1] / "waiting.json"
        os.utime(state, (1000.0 + number, 1000.0 + number))
    assert list(clusters.ended(most=4)) == [ids[0]]
    assert list(clusters.ended(most=4)) == []


def test_one_that_could_not_be_removed_is_tried_again(clusters: Pool) -> None:
    made = clusters.make("k")
    clusters.abandon(made)
    ended = clusters.ended()
    assert next(ended) == made.id
    ended.close()  # as where the engine fails
    assert list(clusters.ended()) == [made.id]


def test_one_of_another_engine_is_left_alone(clusters: Pool) -> None:
    clusters.abandon(clusters.make("k"))
    assert list(Pool("other", clusters.folder).ended()) == []


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"key": "k"}'])
def test_a_damaged_state_is_that_of_a_leftover(clusters: Pool, text: str) -> None:
    made = waits(clusters)
    (clusters.folder / made / "waiting.json").write_text(text)
    assert clusters.take_cluster("k") is None
    assert list(clusters.ended()) == [made]


def test_nothing_is_removed_that_is_not_named_as_ours(clusters: Pool, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").touch()
    name = waits(clusters)
    (clusters.folder / "mine").mkdir()
    link = clusters.folder / f"{name}x"
    link.symlink_to(victim)
    assert list(clusters.ended(session="")) == []
    clusters.abandon(clusters.make("k"))
    list(clusters.ended())
    assert (victim / "file").exists()
    assert link.is_symlink()
    assert (clusters.folder / "mine").is_dir()
