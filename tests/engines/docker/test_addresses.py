"""Addresses of tasks: which one each container gets (pure)."""

from __future__ import annotations

import pytest

from emulator.engines.docker.addresses import Addresses
from emulator.errors import EngineError


def container(address: str) -> dict[str, object]:
    endpoint = {"IPAMConfig": {"IPv4Address": address}}
    return {"NetworkSettings": {"Networks": {"run": endpoint, "other": {"IPAMConfig": None}}}}


def test_each_container_has_an_address_of_its_own_and_the_gateway_keeps_the_first() -> None:
    addresses = Addresses("172.20.0.0/16")
    assert [addresses.choose(task, same=False) for task in ("a", "b", "a")] == [
        "172.20.0.2",
        "172.20.0.3",
        "172.20.0.4",
    ]
    assert addresses.choose("b", same=True) == "172.20.0.3"
    assert addresses.choose("c", same=True) == "172.20.0.5"


def test_after_the_last_address_those_that_are_free_again_are_assigned() -> None:
    addresses = Addresses("10.0.0.0/29")  # .2 to .6 are for tasks
    assert [addresses.choose("a", same=False)[-1] for _ in range(5)] == list("23456")
    assert [addresses.choose(task, same=False)[-1] for task in "bcaa"] == list("2345")


def test_a_subnet_without_a_free_address_is_an_error() -> None:
    addresses = Addresses("10.0.0.0/30")
    assert addresses.choose("a", same=False) == "10.0.0.2"
    with pytest.raises(EngineError, match=r"10\.0\.0\.0/30 has no address left"):
        addresses.choose("b", same=False)


def test_a_supervisor_that_takes_over_continues_after_the_highest_address() -> None:
    addresses = Addresses("10.0.0.0/24")
    addresses.remember("a", container("10.0.0.9"))
    addresses.remember("b", container("10.0.0.4"))
    assert addresses.choose("a", same=True) == "10.0.0.9"
    assert addresses.choose("b", same=False) == "10.0.0.10"
    addresses.remember("c", container("10.0.0.254"))
    assert addresses.choose("b", same=False) == "10.0.0.2"
