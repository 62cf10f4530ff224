"""Exports fit the schemas of Kubernetes, and say of a job what they can."""

from __future__ import annotations

import re
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, assume, settings
from hypothesis import given as for_all
from hypothesis import strategies as st

from emulator.errors import ScenarioError, UsageError
from emulator.plugins.kubeflow.manifests.out.export import TARGETS
from emulator.runtime.bundled import ROOT
from emulator.runtime.bundled import scenarios as bundled
from emulator.scenario.given import Given, read_scenario
from tests.plugins.kubeflow.manifests.out.exporting import LOADER, documents, exported, given
from tests.plugins.kubeflow.manifests.validation import check

# --- Scenarios ------------------------------------------------------------------------------------

TEXT = st.text(
    st.sampled_from("ab 01$({})'\"\\:#-é{}%\n\t") | st.characters(categories=["L", "P"]),
    max_size=12,
).filter(lambda text: "${" not in text and "\0" not in text)
REFERENCES = ["--rank=${index}", "${addresses.worker}", "${task}"]
WORDS = TEXT | st.sampled_from([*REFERENCES, "$${HOME}", "$(TF_CONFIG)", "$$", "{{ x }}"])
NAMES = st.sampled_from(["A", "B_1", "PATH2", "LOG"])
ENV = st.dictionaries(NAMES, WORDS | st.integers(0, 9) | st.floats(0, 1), max_size=3)
CACHE = {"volume": "cache"}
MOUNT = st.sampled_from([CACHE, {**CACHE, "writable": False}, {"tmpfs": "64m"}, {"scratch": "s"}])
STEP = st.fixed_dictionaries(
    {"name": st.sampled_from(["fetch", "proxy"])},
    optional={
        "image": st.just("busybox:1"),
        "command": st.lists(TEXT.filter(bool), min_size=1, max_size=2),
        "env": ENV,
        "mounts": st.just({"/s": {"scratch": "s"}}),
    },
)
COMMAND = st.lists(WORDS.filter(bool) | st.integers(0, 99), min_size=1, max_size=3)
CONTAINER: dict[str, Any] = {
    "env": ENV,
    "entrypoint": st.sampled_from(["image", "none"]),
    "working_dir": st.just("/work"),
    "files": st.dictionaries(st.sampled_from(["/etc/a.cfg", "/srv/b"]), TEXT, max_size=2),
}
IMAGES = ["cpu", "busybox", "registry:5000/a/b:1", "a/b@sha256:" + "0" * 64]
ROLE = st.integers(1, 12) | st.fixed_dictionaries(
    {"replicas": st.integers(1, 3)},
    optional={
        **CONTAINER,
        "command": COMMAND,
        "cpus": st.sampled_from([1, 0.5, 2.5]),
        "memory": st.sampled_from(["512m", "1g", 700000000]),
        "gpus": st.integers(0, 2),
        "image": st.sampled_from(IMAGES),
        "mounts": st.dictionaries(st.sampled_from(["/data", "/x/y"]), MOUNT, max_size=2),
        "shm_size": st.just("256m"),
        "processes": st.just(64),
        "ports": st.just([6006]),
        "init": st.lists(STEP, max_size=1),
    },
)
COMMON: dict[str, Any] = {
    "description": TEXT,
    "image": st.sampled_from(["auto", "cpu", "python:3.12-slim"]),
    "timeout": st.sampled_from(["5m", "1h"]),
    "seed": st.integers(0, 9),
    "log_limit": st.just("5m"),
    "mounts": st.just({"/all": {"volume": "all-data"}}),
    "ulimits": st.just({"nofile": 1024}),
    "faults": st.just([{"preempt": "worker-0", "at": "5s", "grace": "1s", "down": "1s"}]),
    "expect": st.just({"max_restarts": 1}),
    "metrics": st.just({"steps": "auto"}),
    "parametrize": st.just({"seed": [1, 2]}),
}
RESTART = st.sampled_from(["never", "on-failure", {"policy": "always", "limit": 2, "scope": "job"}])
Sections = st.SearchStrategy[dict[str, Any]]
RULES: Sections = st.fixed_dictionaries({}, optional={"restart": RESTART})


@st.composite
def scenarios(draw: st.DrawFn, framework: str, more: Sections = RULES) -> dict[str, Any]:
    """Return a scenario with `more` sections."""
    leader = "chief" if framework == "tensorflow" else "master"
    others = {"ps": ROLE} if framework == "tensorflow" else {}
    cluster = draw(st.fixed_dictionaries({"worker": ROLE}, optional=others))
    if draw(st.booleans()):
        cluster = {leader: 1, **cluster}
    program = {"command": draw(COMMAND), **draw(st.fixed_dictionaries({}, optional=CONTAINER))}
    data: dict[str, Any] = {
        "name": "train",
        "framework": framework,
        **draw(st.fixed_dictionaries({}, optional=COMMON)),
        "program": program,
        "cluster": cluster,
    }
    return data | draw(more)


SCENARIOS = {
    "helm-values": scenarios("tensorflow"),
    "trainjob": scenarios("pytorch"),
    "kubernetes": scenarios("tensorflow"),
    "compose": scenarios("pytorch"),
}


def test_every_format_is_tested() -> None:
    assert SCENARIOS.keys() == {one.name for one in TARGETS.values() if not one.has_operator}


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@for_all(data=st.data())
def test_scenarios_fit(name: str, data: st.DataObject) -> None:
    fits(name, data.draw(SCENARIOS[name]))


def fits(name: str, made: dict[str, Any]) -> None:
    """Check the objects of an export of a scenario, if it is one."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        source = given(made, home)
        try:
            source.parse()
        except ScenarioError:
            assume(False)
        try:
            written = exported(source, name, home)
        except UsageError as error:
            # What a manifest can't say at all is said, never lost.
            assert "differ between its tasks" in str(error)  # noqa: PT017
            return
        if name not in ("compose", "helm-values"):
            for document in documents(written):
                check(document)


# --- What they say --------------------------------------------------------------------------------

JOB: dict[str, Any] = {
    "name": "train",
    "image": "registry/train:1",
    "program": {"command": ["python", "t.py", "--steps", 100], "env": {"RATE": 0.1}},
    "cluster": {"chief": 1, "worker": {"replicas": 2, "memory": "1g"}, "ps": 1},
    "restart": "on-failure",
    "faults": [{"preempt": "worker-1", "at": "5s"}],
    "expect": {"max_restarts": 2},
}


# --- The bundled scenarios ------------------------------------------------------------------------

OBJECTS = ("tfjob", "pytorchjob", "trainjob", "kubernetes")
"""The formats with objects of Kubernetes."""
JOBS = Path(__file__).parents[1] / "jobs"
ABOUT = {"name", "description", "expect", "marks", "reserve", "timeout", "seed", "metrics"}
"""Sections that make no difference to an export."""


def _different() -> list[Path]:
    """Return bundled scenarios that differ in their framework, roles or sections."""
    found: dict[object, Path] = {}
    for path in bundled():
        data = yaml.load(path.read_text(), LOADER)
        roles = frozenset(data["cluster"])
        found.setdefault((data.get("framework"), roles, frozenset(data.keys() - ABOUT)), path)
    return list(found.values())


def _with_its_program_only(path: Path, folder: Path) -> Given:
    """Read a scenario without the programs of the others: an export has them all in it."""
    source = read_scenario(path)
    (folder / "programs").mkdir()
    for file in Path(ROOT, "images", "programs").glob("*.py"):
        if file.name in source.text:
            (folder / "programs" / file.name).write_bytes(file.read_bytes())
    text = re.sub(r"(\.\./)+images/programs", str(folder / "programs"), source.text)
    return replace(source, text=text)


FILES = [*_different(), *sorted(JOBS.glob("*.expected.yaml"))]


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_bundled_scenarios_fit(path: Path, name: str, tmp_path: Path) -> None:
    source = _with_its_program_only(path, tmp_path)
    scenario = source.parse()
    fits = not TARGETS[name].frameworks or scenario.framework in TARGETS[name].frameworks
    if not fits:
        with pytest.raises(UsageError, match=r"Formats for it: .*kubernetes"):
            exported(source, name, tmp_path)
        return
    written = exported(source, name, tmp_path)
    if name in OBJECTS:
        found = documents(written)
        for document in found:
            check(document)
        names = [(one["kind"], one["metadata"]["name"]) for one in found]
        assert len(names) == len(set(names))


@pytest.mark.slow
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
