"""A program that comes back where its folder is not there: from the ConfigMap of the manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from emulator.errors import ScenarioError, UsageError
from emulator.manifests.convert import read_scenario
from emulator.manifests.out.deployment import program_files
from tests.manifests.out.exporting import back, documents, exported, given

WITH_CONFIGMAP = ("tfjob", "kubernetes", "trainjob")
PROGRAM = {
    "train.py": b"print('{{ hello }}')\n",
    "lib/net.py": b"a = 1\n",
    "data.gz": b"\x1f\x8b\0",
}


def _source(folder: Path) -> Path:
    for name, content in PROGRAM.items():
        path = folder / "programs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def _moved(tmp_path: Path, to: str, mode: int = 0o644, **program: Any) -> Path:
    """Export a scenario, and return the file in a folder from which the program can't be seen."""
    own = _source(tmp_path / "own")
    (own / "programs" / "train.py").chmod(mode)
    data = {
        "name": "scenario",
        "program": {"source": "programs", "command": ["python", "train.py"], **program},
        "cluster": {"chief": 1, "worker": 2},
    }
    file = tmp_path / "another" / "folder" / "file.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(exported(given(data, own), to, own).text)
    return file


@pytest.mark.parametrize(
    ("folder", "mode"), [("/job", 0o644), ("/job", 0o755), ("/srv/app", 0o644)]
)
@pytest.mark.parametrize("to", WITH_CONFIGMAP)
def test_the_files_of_the_configmap_serve_for_a_folder_that_is_not_there(
    tmp_path: Path, to: str, folder: str, mode: int
) -> None:
    """They are where the program started, and as executable as it was."""
    place = {} if folder == "/job" else {"working_dir": folder}
    back = read_scenario(_moved(tmp_path, to, mode, **place))
    program = back.parse().program
    assert program.source is None
    expected = {f"{folder}/{name}": content for name, content in PROGRAM.items()}
    assert {path: file.content for path, file in program.files.items()} == expected
    assert program.files[f"{folder}/train.py"].permissions == mode
    assert program.working_dir == folder
    (warning,) = [one for one in back.warnings if "program.source" in one]
    assert warning == (
        "program.source is approximated: there is no programs here; "
        "the program is that of the ConfigMap scenario-program"
    )


@pytest.mark.parametrize("to", WITH_CONFIGMAP)
def test_the_folder_counts_where_it_is_there(tmp_path: Path, to: str) -> None:
    file = _moved(tmp_path, to)
    _source(file.parent)
    back = read_scenario(file)
    assert back.parse().program.source == (file.parent / "programs").resolve()
    assert not [one for one in back.warnings if "program.source" in one]


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/../../../etc/passwd"])
def test_a_file_does_not_leave_the_container_folder(tmp_path: Path, name: str) -> None:
    file = _moved(tmp_path, "kubernetes")
    documents = list(yaml.safe_load_all(file.read_text()))
    for one in documents:
        spec = one.get("spec", {}).get("template", {}).get("spec", {})
        for volume in spec.get("volumes", []):
            if "configMap" in volume:
                volume["configMap"]["items"] = [{"key": "train.py", "path": name}]
    file.write_text(yaml.safe_dump_all(documents))
    with pytest.raises(ScenarioError, match=r"program\.files"):
        read_scenario(file).parse()


def test_without_a_configmap_the_folder_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"there is no .*programs"):
        read_scenario(_moved(tmp_path, "compose")).parse()


@pytest.mark.slow
def test_files_of_all_tasks_are_in_one_configmap_and_come_back(tmp_path: Path) -> None:
    """Each file has a mount of its own, and only that counts towards what a manifest may make."""
    files = {f"/srv/{n}.txt": "x" * 20_000 for n in range(30)}
    data = {
        "name": "many",
        "program": {"command": ["true"], "files": files},
        "cluster": {"chief": 1, "worker": 2},
    }
    written = exported(given(data, tmp_path), "tfjob", tmp_path)
    names = [one["metadata"]["name"] for one in documents(written) if one["kind"] == "ConfigMap"]
    assert names == ["many-files"]
    assert back(written, tmp_path).program.files == given(data, tmp_path).parse().program.files


def test_each_container_of_a_pod_has_files_of_its_own(tmp_path: Path) -> None:
    data = {
        "name": "two",
        "program": {"command": ["true"]},
        "cluster": {
            "worker": {
                "files": {"/a": "task"},
                "init": [{"name": "get", "command": ["true"], "files": {"/a": "step"}}],
            }
        },
    }
    written = exported(given(data, tmp_path), "tfjob", tmp_path)
    maps = [one for one in documents(written) if one["kind"] == "ConfigMap"]
    found = {one["metadata"]["name"]: [*one["data"].values()] for one in maps}
    assert found == {"two-worker-files": ["task"], "two-worker-get-files": ["step"]}


def test_a_program_that_was_removed_meanwhile_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"The program can't be read: .*/gone can't be read"):
        program_files(tmp_path / "gone")


def test_an_image_for_nothing_is_refused(tmp_path: Path) -> None:
    data = {"name": "a", "program": {"command": ["true"]}, "cluster": {"worker": 1}}
    with pytest.raises(UsageError, match="no role and no image gpu") as error:
        exported(given(data, tmp_path), "tfjob", tmp_path, images={"gpu": "r/t:1"})
    assert error.value.hint == "Names: worker, cpu, emulator-cpu:latest."
