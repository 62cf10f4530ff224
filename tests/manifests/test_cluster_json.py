"""The JSON of a cluster as a scenario: its addresses, and what is no address."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from emulator.errors import ScenarioError
from emulator.manifests.convert import Additions, Given, read_scenario
from emulator.scenario.document import read

CLUSTER = """\
{
\t"ps": [
\t\t"ps-0.default.svc.cluster.local:8080",
\t\t"ps-1.default.svc.cluster.local:8080",
\t],
\t"worker": ["worker-0.default.svc.cluster.local:8080",],
}
"""


def converted(tmp_path: Path, text: str, **added: Any) -> Given:
    path = tmp_path / "cluster.json"
    path.write_text(text)
    return read_scenario(path, Additions(command=("python", "a.py"), **added))


def data(given: Given) -> dict[str, Any]:
    found: dict[str, Any] = read(given.text).data
    return found


@pytest.mark.parametrize(
    "workers",
    [
        '["10.0.0.1:2222", "10.0.0.2:2222"]',
        '["worker-0:2222", "worker-1:2223"]',
        '["worker-1:2222", "worker-0:2222"]',
        '["worker-0.a:2222", "worker-1.b:2222"]',
    ],
)
def test_addresses_without_a_pattern_are_replaced_with_a_note(tmp_path: Path, workers: str) -> None:
    given = converted(tmp_path, f'{{"worker": {workers}}}')
    assert "addresses" not in data(given)
    why = "the tasks have other addresses, since these follow no pattern such as ps-0.name:2222"
    assert given.warnings == (f"worker[0] is approximated: {why}",)
    assert given.parse().cluster["worker"].replicas == 2


def test_images_are_by_role(tmp_path: Path) -> None:
    found = data(converted(tmp_path, CLUSTER, images={"worker": "cpu"}))
    assert found["cluster"] == {"ps": 2, "worker": {"replicas": 1, "image": "cpu"}}
    found = data(converted(tmp_path, CLUSTER, images={"worker": "cpu", "ps": "cpu"}))
    assert (found["image"], found["cluster"]) == ("cpu", {"ps": 2, "worker": 1})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"worker": ["worker-0"]}', "cluster.json:1: worker[0]: 'worker-0' is not an address"),
        ('{"worker": [":22"]}', "cluster.json:1: worker[0]: ':22' is not an address"),
        ('{"worker": ["a:99999"]}', "cluster.json:1: worker[0]: 'a:99999' is not an address"),
        ('{"worker": [1]}', "cluster.json:1: worker[0]: 1 is not an address"),
        ('{"worker": ["a:1"],\n"ps": "b:1"}', "cluster.json:2: ps: is not a list of addresses"),
        ('{"worker": ["a:1"], "p": ["b:1"]}', "cluster.json:1: p: is no role (did you mean 'ps'?)"),
        ('{"master": ["a:1"]}', "cluster.json:1: master: is no role (TF2 rejects 'master'; write"),
        ('{"worker": []}', "cluster.json:1: has no tasks"),
        ('{"cluster": [], "task": {}}', "cluster.json:1: cluster: is not a mapping of roles"),
        ('{"worker": ["a:1",,]}', "cluster.json:1: not valid YAML"),
        ('{"worker": ["{{ $job }}-0:1"]}', "cluster.json:1: worker[0]: {{ $job }} is a template"),
        ('{"worker": [' + '"a:1",' * 501 + "]}", "cluster.json:1: has more than 500 tasks"),
    ],
)
def test_what_is_no_cluster_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        converted(tmp_path, text)
    found = [str(one).removeprefix(f"{tmp_path}/") for one in caught.value.problems]
    assert found[0].startswith(problem), found
