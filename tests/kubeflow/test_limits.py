"""Limits of manifests with jobs, from both sides, and how such a file is recognised."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.errors import ScenarioError
from emulator.manifests.convert import Additions, read_scenario
from emulator.manifests.documents import read_documents
from emulator.manifests.table import FORMATS, format_of
from emulator.validation.limits import SCENARIO_BYTES
from tests.kubeflow.test_bad_jobs import (
    CONFIGMAP,
    PYTORCHJOB,
    TFJOB,
    T,
    changed,
    converted,
    refused,
)


def test_names_of_volumes_are_cut_with_a_digest() -> None:
    names = ["x" * 63, "y" * 64, f"{'z' * 53}--a{'z' * 10}"]
    mounts = [{"name": name, "mountPath": f"/{number}"} for number, name in enumerate(names)]
    text = changed(TFJOB, f"{T}.containers.0.volumeMounts", mounts)
    found = converted(changed(text, f"{T}.volumes", [{"name": name} for name in names]))
    assert [mount["scratch"] for mount in found.scenario["mounts"].values()] == [
        "x" * 63,
        f"{'y' * 54}-ffbf30ab",
        f"{'z' * 53}-6c57e7f6",
    ]


@pytest.mark.parametrize("count", [200, 201])
def test_a_map_has_at_most_as_many_values_as_a_folder(count: int) -> None:
    text = f"{TFJOB}{CONFIGMAP}data: {{{', '.join(f'k{n}: v' for n in range(count))}}}\n"
    if count > 200:
        assert refused(text) == ["job.yaml:19: data: has 201 values; 200 are the most"]
    else:
        assert converted(text).notes == ()


@pytest.mark.parametrize("more", [0, 1])
def test_what_is_made_is_as_large_as_a_scenario_may_be(more: int, tmp_path: Path) -> None:
    path, file = tmp_path / "job.yaml", tmp_path / "a"
    text = changed(TFJOB, f"{T}.containers.0.volumeMounts", [{"name": "v", "mountPath": "/m"}])
    path.write_text(changed(text, f"{T}.volumes", [{"name": "v", "configMap": {"name": "m"}}]))
    added = Additions(configmaps={"m": file})
    file.write_text("x")
    file.write_text("x" * (SCENARIO_BYTES - len(read_scenario(path, added).text) + 1 + more))
    if not more:
        assert len(read_scenario(path, added).text) == SCENARIO_BYTES
        return
    with pytest.raises(ScenarioError) as caught:
        read_scenario(path, added)
    assert str(caught.value) == (
        f"{path}: makes a scenario of 1 MiB (1 MiB are the most; mount large files as a folder)"
    )


@pytest.mark.parametrize(
    ("given", "processes"),
    [
        ("auto", "auto"),
        ("cpu", "cpu"),
        ("gpu", "gpu"),
        ("1", 1),
        ("0", None),
        ("٣", None),
        ("-1", None),
    ],
)
def test_numbers_of_processes(given: str, processes: int | str | None) -> None:
    text = changed(PYTORCHJOB, "spec.nprocPerNode", given)
    if processes is None:
        assert "is no number of processes" in refused(text)[0]
        return
    assert converted(text).scenario["operator"]["nproc_per_node"] == processes
    text = changed(
        text, "spec.elasticPolicy", {"nProcPerNode": 2, "minReplicas": 2, "maxReplicas": 2}
    )
    assert [line.partition(": ")[2] for line in refused(text)] == [
        "spec.elasticPolicy.nProcPerNode: must not be used with spec.nprocPerNode (leave it out)"
    ]


@pytest.mark.parametrize(
    ("text", "name"), [(TFJOB, "TFJob"), (PYTORCHJOB, "PyTorchJob"), ("kind: TFJob\n", "TFJob")]
)
def test_the_format_of_a_file(text: str, name: str) -> None:
    assert format_of(read_documents(text, "m"), "m").name == name
    assert [one.name for one in FORMATS[:2]] == ["TFJob", "PyTorchJob"]


def test_names_of_jobs() -> None:
    for name, is_one in {"a" * 63: True, "a" * 64: False, "1a": False, "a-": False}.items():
        text = changed(TFJOB, "metadata.name", name)
        assert converted(text).scenario["name"] == name[:40] if is_one else refused(text)
