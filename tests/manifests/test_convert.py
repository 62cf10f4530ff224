"""Reading a scenario from any file: which is one, what is added to it, and where mistakes are."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.errors import ScenarioError, UsageError
from emulator.manifests.assembly import as_text, moved, relocated
from emulator.manifests.convert import Additions, Given, is_scenario, load, read_scenario
from emulator.record.folder import GIVEN
from emulator.scenario.document import read

SCENARIO = """\
# kept where nothing is added
name: s
framework: none
program: {command: [echo, "{{x}}"]}
cluster: {worker: 2}
"""


def written(folder: Path, **files: str) -> Path:
    """Write files `name_yaml="..."`; return the first."""
    paths = [folder / name.replace("_", ".") for name in files]
    for path, text in zip(paths, files.values(), strict=True):
        path.write_text(text)
    return paths[0]


def with_faults(tmp_path: Path, faults: str, scenario: str = SCENARIO) -> Given:
    path = written(tmp_path, s_yaml=scenario, f_yaml=faults)
    return read_scenario(path, Additions(faults=tmp_path / "f.yaml"))


# --- The command that does it again ---------------------------------------------------------------


def test_the_command_that_runs_it_again_works_in_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    added = Additions({"a": "b"}, {"data": Path("d")}, Path("f.yaml"), ["x", "y"])
    again = added.again(Path("my job.yaml"), "process", ["restart={policy: never}"])
    assert shlex.split(again) == [
        "emulate",
        "up",
        f"{tmp_path}/my job.yaml",
        "--engine=process",
        "--image=a=b",
        f"--configmap=data={tmp_path}/d",
        f"--faults={tmp_path}/f.yaml",
        "--command=x y",
        "--set=restart={policy: never}",
    ]


# --- What is a scenario ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SCENARIO, True),
        ("'program': {}\n", True),
        ("apiVersion: kubeflow.org/v1\nkind: TFJob\nspec:\n  program: {}\n", False),
        ("kind: TFJob\nprogram: x\n", False),
        ("tfCluster: {settings: {jobs: {ps: 1}}}\n", False),
        ("", False),
        ("{name: x, program: {command: [a]}, cluster: {worker: 1}}", False),  # parsed to find out
    ],
)
def test_a_scenario_is_told_by_its_keys(text: str, expected: bool) -> None:
    assert is_scenario(text) is expected


IN_BRACES = '{"name": "x", "framework": "none", "program": {"command": ["a"]}, "cluster": {"w": 1}}'


@pytest.mark.parametrize("text", [SCENARIO, IN_BRACES])
def test_a_scenario_passes_as_it_is(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, s_yaml=text)
    found = read_scenario(path)
    assert (found.text, found.origins, found.kept, found.warnings) == (text, None, {}, ())
    assert moved(found, tmp_path) == text
    (role,) = found.parse().cluster
    assert load(path, [f"cluster.{role}=3"]).cluster[role].replicas == 3


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "s.yaml:1: a scenario is a mapping of keys"),
        ("- a\n", "s.yaml:1: a scenario is a mapping of keys"),
        ("name: [\n", "s.yaml:2: not valid YAML"),
        ("name: x\n", "s.yaml: program: is missing"),
        ("program: [\n", "s.yaml:2: not valid YAML"),
        ("kind: Deployment\napiVersion: apps/v1\n", "s.yaml:1: kind: Deployment of apps/v1 can't"),
        ("colour: blue\n", "s.yaml:1: neither a scenario nor a manifest"),
        ("services: {}\nx-emulator: {name: a}\n", "s.yaml:2: x-emulator: is not read any more (gi"),
        ("ps: 8\nemulator: {seed: 1}\n", "s.yaml:2: emulator: is not read any more"),
        (
            "kind: TFJob\nmetadata: {annotations: {emulator/overlay: '{}'}}\n",
            "s.yaml:2: metadata.annotations[emulator/overlay]: is not read any more",
        ),
    ],
)
def test_what_is_neither_is_refused_in_a_line(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load(written(tmp_path, s_yaml=text))
    assert problem in str(caught.value)


# --- What is added --------------------------------------------------------------------------------


def test_faults_are_merged_over_a_scenario(tmp_path: Path) -> None:
    found = with_faults(tmp_path, "faults: [{kill: worker-2, at: 3s}]\ncluster: {worker: 3}\n")
    scenario = found.parse()
    assert scenario.cluster["worker"].replicas == 3
    assert [fault.kind for fault in scenario.faults] == ["kill"]
    assert scenario.program.command == ["echo", "{{x}}"]
    assert found.kept.keys() == {"given.yaml", "faults.yaml"}
    assert found.kept["given.yaml"] == SCENARIO
    assert found.kept.keys() <= set(GIVEN)


@pytest.mark.parametrize(
    ("more", "faults", "places"),
    [
        (
            "",
            "# a line\nfaults:\n- {kil: worker-1, at: 3s}\nexpect: {final_step: x}\n",
            {"faults.0.kil": "f.yaml:3", "expect.final_step": "f.yaml:4"},
        ),
        (
            "seed: x\nfaults: [{kill: worker-9, at: 1s}]\n",
            "cluster: {worker: many}\n",
            {"seed": "s.yaml:6", "cluster.worker": "f.yaml:1"},
        ),
    ],
)
def test_a_mistake_is_reported_in_the_file_that_has_it(
    tmp_path: Path, more: str, faults: str, places: dict[str, str]
) -> None:
    with pytest.raises(ScenarioError) as caught:
        with_faults(tmp_path, faults, SCENARIO + more).parse()
    found = {problem.path: problem.place for problem in caught.value.problems}
    assert found == {path: f"{tmp_path}/{place}" for path, place in places.items()}


PLACES = {
    "name": "s.yaml:2 name",
    "program": "f.yaml:1 program",
    "cluster": "f.yaml:2 cluster",
    "cluster.worker": "f.yaml:2 cluster.worker",
    "cluster.worker.replicas": "f.yaml:2 cluster.worker",
    "cluster.worker.cpus": "s.yaml:5 cluster.worker.cpus",
    "program.command": "f.yaml:1 program.command",
    "program.command.0": "f.yaml:1 program.command.0",
    "restart": "f.yaml:3 restart",
    "restart.policy": "f.yaml:3 restart",
    "framework": "f.yaml:4 framework",
}


def test_values_keep_the_places_of_the_files_that_they_come_from(tmp_path: Path) -> None:
    faults = "program: {command: [a]}\ncluster: {worker: 3}\nrestart: never\nframework: null\n"
    found = with_faults(tmp_path, faults, SCENARIO.replace("2}", "{replicas: 2, cpus: 1}}"))
    assert found.origins is not None
    places = {
        ".".join(map(str, path)): f"{Path(place).name} {there}"
        for path, (place, there) in found.origins.items()
    }
    assert places == PLACES


def test_an_override_wins_over_faults(tmp_path: Path) -> None:
    found = with_faults(tmp_path, "seed: 3\n")
    assert found.parse().seed == 3
    assert found.parse(["seed=4"]).seed == 4
    with pytest.raises(ScenarioError, match="--set seed=x: seed: 'x' should be a whole number"):
        found.parse(["seed=x"])


@pytest.mark.parametrize(
    ("faults", "problem"),
    [
        ("- {kill: worker-1}\n", "f.yaml:1: is not a mapping of keys of a scenario"),
        ("", "f.yaml:1: is not a mapping of keys of a scenario"),
        ("faults: [\n", "f.yaml:2: not valid YAML"),
        ("seed: 1\nseed: 2\n", "f.yaml:2: seed: is given twice"),
    ],
)
def test_a_bad_file_of_faults_is_refused(tmp_path: Path, faults: str, problem: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        with_faults(tmp_path, faults)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("added", "problem"),
    [
        (Additions(images={"worker": "cpu"}), "--image is for manifests; .*s.yaml is a scenario"),
        (Additions(configmaps={"a": Path("b")}), "--configmap is for manifests; .*s.yaml is a sc"),
        (Additions(command=("true",)), "--command is for manifests; .*s.yaml is a scenario"),
        (
            Additions(faults=Path("/nowhere/f.yaml")),
            r"Can't read /nowhere/f.yaml, the file of --faults: No such file",
        ),
    ],
)
def test_options_that_a_scenario_can_not_have_are_refused(
    tmp_path: Path, added: Additions, problem: str
) -> None:
    with pytest.raises(UsageError, match=problem):
        read_scenario(written(tmp_path, s_yaml=SCENARIO), added)


# --- Moving, writing ---------------------------------------------------------------------


MOVED = {
    "program": {"source": "train.py", "env": {"mounts": "x", "source": "y"}, "command": ["./a"]},
    "image": {"dockerfile": "Dockerfile", "context": "."},
    "mounts": {"/a": "data", "/b": {"path": "../data"}, "/c": {"volume": "v"}, "/d": "/abs"},
    "cluster": {"mounts": {"source": "ps.py", "memory": "1g", "image": "cpu"}},
    "helpers": {"h": {"source": "~/h.py", "mounts": {"/a": "data"}}},
    "faults": [{"trace": "t.csv"}, {"kill": "worker-0"}],
}


def test_paths_are_moved_to_another_folder(tmp_path: Path) -> None:
    there = relocated(MOVED, tmp_path / "a", tmp_path / "b")
    assert there == {
        "program": {**MOVED["program"], "source": "../a/train.py"},  # type: ignore[dict-item]
        "image": {"dockerfile": "../a/Dockerfile", "context": "../a"},
        "mounts": {
            "/a": "../a/data", "/b": {"path": "../data"}, "/c": {"volume": "v"}, "/d": "/abs",
        },
        "cluster": {"mounts": {"source": "../a/ps.py", "memory": "1g", "image": "cpu"}},
        "helpers": {"h": {"source": "~/h.py", "mounts": {"/a": "../a/data"}}},
        "faults": [{"trace": "../a/t.csv"}, {"kill": "worker-0"}],
    }  # fmt: skip
    assert relocated(MOVED, tmp_path, tmp_path) is MOVED


def test_paths_of_faults_are_relative_to_their_own_file(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    written(tmp_path / "sub", train_py="print(1)")
    path = written(tmp_path, s_yaml=SCENARIO)
    faults = written(tmp_path / "sub", f_yaml="program: {source: train.py}\n")
    found = read_scenario(path, Additions(faults=faults))
    assert found.parse().program.source == tmp_path / "sub" / "train.py"
    assert "source: sub/train.py" in found.text
    assert "source: ../../sub/train.py" in moved(found, tmp_path / "elsewhere" / "there")


_TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"], include_characters="\n\t"))
_VALUES = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | _TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS, inner, max_size=4),
    max_leaves=10,
)


@given(st.dictionaries(_TEXTS, _VALUES, min_size=1))
def test_what_is_written_is_read_again(scenario: dict[str, Any]) -> None:
    document = read(as_text(scenario))
    assert document.mistakes == []
    assert document.data == scenario
