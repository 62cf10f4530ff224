"""Which claims are granted, in which order; and the needs of scenarios."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.planning.claims import Capacity, Claim, Need, grant, need_of
from emulator.scenario.loader import parse

TWO_GPUS = Capacity(cpus=4, memory=100, gpus=("a", "b"))


def claim(
    number: int, *, capacity: Capacity = TWO_GPUS, granted: bool = False, **need: Any
) -> Claim:
    return Claim(number, f"test-{number}", 1, Need(**need), capacity, granted)


SMALL, ONE = Capacity(cpus=2, memory=100), Capacity(cpus=1, memory=0)
LARGE = claim(1, cpus=100, memory=1000, gpus=8)


@pytest.mark.parametrize(
    ("claims", "numbers"),
    [
        # What fits is granted.
        ([claim(1, cpus=1), claim(2, cpus=3)], [1, 2]),
        ([claim(1, cpus=1), claim(2, cpus=3.5)], [1]),
        ([claim(1, memory=60), claim(2, memory=60)], [1]),
        ([claim(1, gpus=2), claim(2, gpus=1)], [1]),
        ([claim(n, capacity=ONE, cpus=c) for n, c in enumerate([0.1, 0.2, 0.7])], [0, 1, 2]),
        # No claim overtakes a waiting one, unless it is of nothing.
        ([claim(1, cpus=3), claim(2, cpus=2), claim(3, cpus=1)], [1]),
        ([claim(1, cpus=4), claim(2)], [1, 2]),
        ([claim(1, cpus=4), claim(2, cpus=1), claim(3), claim(4, cpus=1)], [1, 3]),
        # The order is that of arrival, and not that of the list.
        ([claim(2, cpus=4), claim(1, cpus=4)], [1]),
        # A claim of more than the capacity is granted alone.
        ([LARGE, claim(2, cpus=1)], [1]),
        ([claim(1, cpus=1, granted=True), replace(LARGE, number=2)], [1]),
        # Engines with different capacities share a machine.
        ([claim(1, cpus=2), claim(2, capacity=SMALL, cpus=1)], [1]),
        ([claim(1, capacity=SMALL, cpus=2), claim(2, cpus=2)], [1, 2]),
    ],
)
def test_what_is_granted(claims: list[Claim], numbers: list[int]) -> None:
    after = grant(claims)
    assert [claim.number for claim in after if claim.granted] == numbers
    assert [claim.number for claim in after] == sorted(claim.number for claim in claims)


def test_a_claim_of_more_gets_all_devices_and_granted_ones_are_not_granted_again() -> None:
    assert [claim.gpus for claim in grant([LARGE])] == [("a", "b")]
    first = replace(claim(1, gpus=1, granted=True), gpus=("a",))
    assert [c.gpus for c in grant([first, claim(2, gpus=1)])] == [("a",), ("b",)]


needs = st.builds(
    Need,
    cpus=st.floats(0, 10, allow_nan=False),
    memory=st.integers(0, 200),
    gpus=st.integers(0, 5),
)
capacities = st.builds(
    Capacity,
    cpus=st.floats(0.5, 8),
    memory=st.integers(1, 100),
    gpus=st.lists(st.sampled_from("abcd"), unique=True).map(tuple),
)


@st.composite
def deeds(draw: st.DrawFn) -> list[tuple[str, Any]]:
    """Arrivals (`come`, need) and releases (`go`, which of the granted claims)."""
    come = st.tuples(st.just("come"), needs)
    go = st.tuples(st.just("go"), st.integers(0, 100))
    return draw(st.lists(st.one_of(come, go), max_size=30))


def inside(claims: list[Claim], capacity: Capacity) -> bool:
    granted = [claim for claim in claims if claim.granted]
    return (
        sum(min(c.need.cpus, capacity.cpus) for c in granted) <= capacity.cpus + 1e-3
        and sum(min(c.need.memory, capacity.memory) for c in granted) <= capacity.memory
    )


@given(capacity=capacities, what=deeds())
def test_never_over_capacity_no_device_twice_first_come_first_served_no_deadlock(
    capacity: Capacity, what: list[tuple[str, Any]]
) -> None:
    claims: list[Claim] = []
    for number, (deed, value) in enumerate(what):
        if deed == "come":
            claims.append(Claim(number, f"test-{number}", 1, value, capacity))
        elif granted := [claim for claim in claims if claim.granted]:
            claims.remove(granted[value % len(granted)])
        before = {claim.number: claim for claim in claims if claim.granted}
        claims = grant(claims)
        assert inside(claims, capacity)
        devices = [device for claim in claims for device in claim.gpus]
        assert len(devices) == len(set(devices))
        assert set(devices) <= set(capacity.gpus)
        for one in claims:
            assert before.get(one.number, one) == one  # what is granted stays as it is
            if one.granted:
                assert len(one.gpus) == min(one.need.gpus, len(capacity.gpus))
        new = [claim for claim in claims if claim.number not in before]
        assert all(claim.granted for claim in new if claim.need == Need())
        order = [claim.granted for claim in new if claim.need != Need()]
        assert order == sorted(order, reverse=True)  # the first ones, and no other
        if not before and claims:
            assert claims[0].granted


@given(claims=st.lists(st.tuples(needs, capacities, st.booleans()), max_size=8))
def test_without_grants_the_first_is_granted_whatever_capacity_others_see(
    claims: list[tuple[Need, Capacity, bool]],
) -> None:
    waiting = [Claim(n, "", 1, need, most) for n, (need, most, _) in enumerate(claims)]
    assert all(claim.granted for claim in grant(waiting)[:1])


LIMITS = "cluster: {worker: {replicas: 2, cpus: 1, memory: 8m, gpus: 1}}\n"
HELPERS = "helpers: {board: {command: [b], cpus: 0.5, memory: 512m}, free: {command: [c]}}\n"
BEFORE = """\
cluster:
  ingest: {replicas: 1, before: training, cpus: 3, memory: 1g, gpus: 1}
  worker: {replicas: 2, cpus: 1, memory: 1g, gpus: 1}
"""
SHARED = """\
cluster:
  chief: {gpus: 1}
  worker: {replicas: 2, gpus: 2}
  ps: {replicas: 3, gpus: {count: 1, shared: true}}
  evaluator: {gpus: {count: 2, shared: true}}
"""


@pytest.mark.parametrize(
    ("text", "need"),
    [
        ("cluster: {worker: 2}", Need()),
        (
            "cluster: {worker: {replicas: 3, cpus: 0.5, memory: 1g}, ps: {cpus: 1}}",
            Need(cpus=2.5, memory=3 * 2**30, gpus=0),
        ),
        (LIMITS + HELPERS, Need(cpus=2.5, memory=2**24 + 2**29, gpus=2)),
        # Tasks before training have ended when the others start.
        (BEFORE, Need(cpus=3, memory=2 * 2**30, gpus=2)),
        # Of the tasks that share, the largest counts.
        (SHARED, Need(gpus=1 + 2 * 2 + 2)),
        # What is reserved counts instead of the limits.
        (LIMITS + "reserve: {cpus: 0.5, memory: 7k}", Need(0.5, 7 * 2**10, 2)),
        (LIMITS + "reserve: {memory: 1m}", Need(2, 2**20, 2)),
    ],
)
def test_a_scenario_needs_what_its_tasks_are_limited_to_at_the_most(text: str, need: Need) -> None:
    assert need_of(parse("name: test\nprogram: {command: [python, t.py]}\n" + text)) == need
