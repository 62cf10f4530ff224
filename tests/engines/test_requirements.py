"""What a scenario asks of an engine, and which key of it does."""

from __future__ import annotations

import pytest

from emulator.engines.process import ProcessEngine
from emulator.engines.requirements import require
from emulator.errors import Unsupported
from emulator.scenario.loader import parse, placed

TEXT = """\
name: a
framework: none
image: none
program: {command: [python, train.py]}
cluster:
  worker:
    replicas: 2
    cpus: 0.5
faults:
  - {pause: worker-0, at: 1s, for: 1s}
  - {throttle: worker-1, cpus: 0.1, at: 5s, for: 1s}
network: {internet: false}
"""


def refusal(text: str, *sets: str) -> Unsupported:
    with pytest.raises(Unsupported) as refused, placed(text, "w.yaml", sets):
        require(parse(text, sets=sets), ProcessEngine())
    return refused.value


def test_what_an_engine_lacks_has_its_line() -> None:
    """As every other mistake in a scenario, all at once and in the order of the file."""
    lacks, hint = "the process engine can't do this:", "(use --engine docker, or leave these out)"
    assert refusal(TEXT).message.splitlines() == [
        f"w.yaml:8: cluster.worker.cpus: {lacks} a CPU limit for worker {hint}",
        f"w.yaml:11: faults.1: {lacks} throttling worker-1 {hint}",
        f"w.yaml:12: network.internet: {lacks} a network without internet {hint}",
    ]
    assert refusal(TEXT).lacks == {"docker"}


def test_what_an_option_asks_for_is_not_said_of_the_file() -> None:
    said = refusal(TEXT, "network.delay=5ms", "network.internet=true").message
    assert "--set network.delay=5ms: network.delay: the process engine can't do this" in said
    assert "w.yaml:12" not in said


LEAST = "name: a\nprogram: {command: [b]}\n"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("framework: ray\ncluster: {head: 1}", "framework"),
        ("framework: none\ncluster: {a: 1}\nshm_size: 1g", "shm_size"),
        ("framework: none\ncluster: {a: {replicas: 2, ports: [8]}}", "cluster"),
        ("framework: none\ncluster: {a: {gpus: 1}}", "cluster.a.gpus"),
    ],
)
def test_the_key_is_named_that_asks_for_something(text: str, key: str) -> None:
    with pytest.raises(Unsupported) as refused:
        require(parse(LEAST + text), ProcessEngine())
    assert [".".join(map(str, path)) for path, _ in refused.value.keys] == [key]
