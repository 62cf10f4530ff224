"""Whatever is in a file is read or refused in lines: Helm values, clusters, overlays, faults."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emulator.errors import ScenarioError, UsageError
from emulator.manifests.convert import Additions, read_scenario
from tests.manifests.test_convert import SCENARIO
from tests.manifests.test_fuzz_jobs import ODD, SEARCHING, paths, replaced
from tests.manifests.test_helm import ARENA, JOBS_MAP, STATEFULSETS

pytestmark = pytest.mark.slow

EVERY = settings(
    max_examples=500 if SEARCHING else 60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
OVERLAY = "emulator: {faults: [{kill: worker-0, at: 1s}], cluster: {worker: {env: {A: b}}}}\n"
FILES = {
    "jobs": JOBS_MAP + OVERLAY,
    "stateful sets": STATEFULSETS + OVERLAY,
    "arena": ARENA + OVERLAY,
    "plain": "ps: 8\nworkers: {replicas: 2}\nimage: {name: a, tag: 1}\n" + OVERLAY,
    "cluster": '{"ps": ["ps-0.a:1"], "worker": ["worker-0.a:1", "worker-1.a:1"]}',
    "tf_config": '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}',
    "scenario": SCENARIO,
}


def outcome(folder: Path, text: str, faults: str = "") -> str:
    """Return `read`, or why it was refused; any other error is a defect."""
    path = folder / "file.yaml"
    path.write_text(text)
    (folder / "faults.yaml").write_text(faults)
    added = Additions(faults=folder / "faults.yaml" if faults else None)
    try:
        read_scenario(path, added).parse()
    except ScenarioError as error:
        for problem in error.problems:
            assert problem.place.startswith((str(folder), "--")), problem
        return str(error)
    except UsageError as error:
        return str(error)
    return "read"


@pytest.mark.parametrize("name", FILES)
@given(data=st.data())
@EVERY
def test_no_value_breaks_the_reader(name: str, data: st.DataObject, tmp_path: Path) -> None:
    values = yaml.safe_load(FILES[name])
    for _ in range(data.draw(st.integers(1, 3))):
        replaced(values, data.draw(st.sampled_from(list(paths(values)))), data.draw(ODD))
        if not values:
            return
    outcome(tmp_path, yaml.safe_dump(values, allow_unicode=True))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["cluster", "worker", "program", "command", "faults", "kill", "at", "x"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@given(patch=st.dictionaries(st.sampled_from(["cluster", "program", "faults", "name"]), JSON))
@EVERY
def test_no_overlay_breaks_the_reader(patch: Mapping[str, Any], tmp_path: Path) -> None:
    values = {"ps": 1, "worker": 2, "image": {"name": "a"}, "emulator": json.dumps(patch)}
    outcome(tmp_path, yaml.safe_dump(values, allow_unicode=True))


@given(patch=st.dictionaries(st.sampled_from(["cluster", "program", "faults", "name"]), JSON))
@EVERY
def test_no_file_of_faults_breaks_the_reader(patch: Mapping[str, Any], tmp_path: Path) -> None:
    outcome(tmp_path, SCENARIO, json.dumps(patch))


@pytest.mark.parametrize(
    ("overlay", "problem"),
    [
        ('{"a": ' * 900 + "1" + "}" * 900, "has more than 5,000 keys and values, or is nested"),
        ("[" * 100_000, "is not JSON"),
        (json.dumps({"x": list(range(6000))}), "has more than 5,000 keys and values"),
        ("{", "is not JSON"),
        ("[]", "is not a mapping of keys of a scenario"),
        ('{"seed": 1e999}', "seed"),
        ('{"name": "\\ud800"}', "half of a character"),
        ('{"name": "\\u0000"}', "a control character"),
        ('{"name": NaN}', "name"),
        ('{"program": {"source": "/dev/zero"}}', "/dev/zero"),
    ],
)
def test_an_overlay_that_goes_too_far_is_refused(
    tmp_path: Path, overlay: str, problem: str
) -> None:
    text = yaml.safe_dump({"ps": 1, "worker": 1, "image": {"name": "a"}, "emulator": overlay})
    found = outcome(tmp_path, text)
    assert found.startswith(f"{tmp_path}/file.yaml:1: emulator")
    assert problem in found


def test_an_anchor_that_is_there_a_million_times_is_refused(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 7)]
    text = "ps: 1\nworker: 1\n" + "\n".join(lines)
    assert "it has more than 5,000 keys and values" in outcome(tmp_path, text)


def test_devices_folders_and_large_files_are_refused(tmp_path: Path) -> None:
    for path in (Path("/dev/zero"), tmp_path):
        with pytest.raises(UsageError, match="Can't read"):
            read_scenario(path)
    large = tmp_path / "large.yaml"
    large.write_text("ps: 1\n" + "#" * 3 * 2**20)
    with pytest.raises(UsageError, match="is the most"):
        read_scenario(large)
