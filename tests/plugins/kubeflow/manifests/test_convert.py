"""Reading a scenario from any file: which is one, what is added to it, and where mistakes are."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.errors import ScenarioError, UsageError
from emulator.scenario.assembly import as_text, merged, moved
from emulator.scenario.document import read
from emulator.scenario.given import Additions, Given, is_scenario, load, read_scenario

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
    added = Additions({"a": "b"}, Path("f.yaml"), ["x", "y"], {"configmap": {"data": "d"}})
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
    assert Additions().again(Path("a"), "fake", []) == f"emulate up {tmp_path}/a --engine=fake"


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
    ],
)
def test_what_is_neither_is_refused_in_a_line(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load(written(tmp_path, s_yaml=text))
    assert problem in str(caught.value)


# --- What is added --------------------------------------------------------------------------------


def test_values_keep_the_places_of_the_files_that_they_come_from(tmp_path: Path) -> None:
    faults = "program: {command: [a]}\ncluster: {worker: 3}\nrestart: never\nframework: null\n"
    found = with_faults(tmp_path, faults, SCENARIO.replace("2}", "{replicas: 2, cpus: 1}}"))
    assert found.origins is not None
    places = {
        ".".join(map(str, path)): f"{Path(place).name} {there}"
        for path, (place, there) in found.origins.items()
    }
    assert places == {
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
    ("more", "added", "problem"),
    [
        ("", {"images": {"worker": "cpu"}}, "--image is for manifests; .*s.yaml is a scenario"),
        ("", {"own": {"configmap": {"a": "b"}}}, "--configmap is for manifests; .*s.yaml is a sc"),
        ("", {"command": ("true",)}, "--command is for manifests; .*s.yaml is a scenario"),
        ("faults: [\n", {"command": ("true",)}, "--command is for manifests"),  # and is no YAML
        ("", {"faults": Path("/no/f")}, "Can't read /no/f, the file of --faults: No such file"),
    ],
)
def test_options_that_a_scenario_can_not_have_are_refused(
    tmp_path: Path, more: str, added: dict[str, Any], problem: str
) -> None:
    with pytest.raises(UsageError, match=problem):
        read_scenario(written(tmp_path, s_yaml=SCENARIO + more), Additions(**added))


# --- Moving, writing ---------------------------------------------------------------------


def test_paths_of_faults_are_relative_to_their_own_file(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    written(tmp_path / "sub", train_py="print(1)")
    path = written(tmp_path, s_yaml=SCENARIO)
    faults = written(tmp_path / "sub", f_yaml="program: {source: train.py}\n")
    found = read_scenario(path, Additions(faults=faults))
    assert found.parse().program.source == tmp_path / "sub" / "train.py"
    assert found.text.endswith("  source: sub/train.py\ncluster: {worker: 2}\n")
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


# --- Merge patches: the examples of RFC 7386, and short forms -------------------------------------

PS, DELAY = {"replicas": 2, "cpus": 1}, {"backoff": "1s"}


@pytest.mark.parametrize(
    ("data", "patch", "result"),
    [  # RFC 7386, appendix A
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        # Not in it: a section that has a short form remains one.
        (
            {"cluster": {"ps": PS}},
            {"cluster": {"ps": 8}},
            {"cluster": {"ps": {**PS, "replicas": 8}}},
        ),
        ({"cluster": {"ps": 2}}, {"cluster": {"ps": {"cpus": 1}}}, {"cluster": {"ps": PS}}),
        ({"restart": "always"}, {"restart": DELAY}, {"restart": {"policy": "always", **DELAY}}),
    ],
)
def test_a_patch_is_merged_as_the_standard_says_and_short_forms_as_well(
    data: Any, patch: Any, result: Any
) -> None:
    assert merged(data, patch) == result
