"""What is written for Kubernetes fits the schemas of its API; all of it comes back."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from emulator.bundled import ROOT, scenarios
from emulator.errors import UsageError
from emulator.manifests.convert import Given, read_scenario
from emulator.manifests.out.table import TARGETS
from tests.manifests.out.exporting import LOADER, back, documents, exported
from tests.manifests.validation import check

pytestmark = pytest.mark.slow

OBJECTS = ("tfjob", "pytorchjob", "trainjob", "kubernetes")
"""The formats with objects of Kubernetes."""
JOBS = Path(__file__).parents[1] / "jobs"
ABOUT = {"name", "description", "expect", "marks", "reserve", "timeout", "seed", "metrics"}
"""Sections that exports carry unread."""


def _different() -> list[Path]:
    """Return bundled scenarios that differ in their framework, roles or sections."""
    found: dict[object, Path] = {}
    for path in scenarios():
        data = yaml.load(path.read_text(), LOADER)
        roles = frozenset(data["cluster"])
        found.setdefault((data.get("framework"), roles, frozenset(data.keys() - ABOUT)), path)
    return list(found.values())


def _with_its_program_only(path: Path, folder: Path) -> Given:
    """Read a scenario without the programs of the others: an export has them all in it."""
    given = read_scenario(path)
    (folder / "programs").mkdir()
    for file in Path(ROOT, "images", "programs").glob("*.py"):
        if file.name in given.text:
            (folder / "programs" / file.name).write_bytes(file.read_bytes())
    text = re.sub(r"(\.\./)+images/programs", str(folder / "programs"), given.text)
    return replace(given, text=text)


FILES = [*_different(), *sorted(JOBS.glob("*.expected.yaml"))]


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_scenarios_fit_and_come_back(path: Path, name: str, tmp_path: Path) -> None:
    given = _with_its_program_only(path, tmp_path)
    scenario = given.parse()
    fits = not TARGETS[name].frameworks or scenario.framework in TARGETS[name].frameworks
    if not fits:
        with pytest.raises(UsageError, match=r"Formats for it: .*kubernetes"):
            exported(given, name, tmp_path)
        return
    written = exported(given, name, tmp_path)
    if name in OBJECTS:
        found = documents(written)
        for document in found:
            check(document)
        names = [(one["kind"], one["metadata"]["name"]) for one in found]
        assert len(names) == len(set(names))
    assert back(written, tmp_path) == scenario


@pytest.mark.parametrize(
    ("api", "kind", "field"),
    [
        ("kubeflow.org/v1", "TFJob", "tfReplicaSpecs"),
        ("kubeflow.org/v1", "PyTorchJob", "pytorchReplicaSpecs"),
        ("batch/v1", "Job", "template"),
    ],
)
def test_the_check_finds_unknown_fields(api: str, kind: str, field: str) -> None:
    template = {"spec": {"containers": [{"name": "a", "image": "b"}], "restartPolicy": "Never"}}
    spec = {field: template if kind == "Job" else {}}
    document = {"apiVersion": api, "kind": kind, "metadata": {"name": "a"}, "spec": spec}
    check(document)
    with pytest.raises(Exception, match="backofLimit"):
        check({**document, "spec": {**spec, "backofLimit": 1}})
