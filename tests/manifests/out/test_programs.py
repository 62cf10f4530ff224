"""Programs and files of an export are in ConfigMaps."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.errors import UsageError
from emulator.manifests.out.deployment import program_files
from tests.manifests.out.exporting import as_manifest, documents, exported, given

PROGRAM = {
    "train.py": b"print('{{ hello }}')\n",
    "lib/net.py": b"a = 1\n",
    "data.gz": b"\x1f\x8b\0",
}


@pytest.mark.parametrize(
    ("folder", "mode"), [("/job", 0o644), ("/job", 0o755), ("/srv/app", 0o644)]
)
def test_the_program_is_in_a_configmap(tmp_path: Path, folder: str, mode: int) -> None:
    """It is where the program started, and as executable as it was."""
    for name, content in PROGRAM.items():
        path = tmp_path / "programs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (tmp_path / "programs" / "train.py").chmod(mode)
    place = {} if folder == "/job" else {"working_dir": folder}
    data = {
        "name": "scenario",
        "program": {"source": "programs", "command": ["python", "train.py"], **place},
        "cluster": {"chief": 1, "worker": 2},
    }
    program = as_manifest(exported(given(data, tmp_path), "tfjob", tmp_path), tmp_path).program
    expected = {f"{folder}/{name}": content for name, content in PROGRAM.items()}
    assert {path: file.content for path, file in program.files.items()} == expected
    assert program.files[f"{folder}/train.py"].permissions == mode
    assert program.working_dir == folder


@pytest.mark.slow
def test_files_of_all_tasks_are_in_one_configmap(tmp_path: Path) -> None:
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
    assert (
        as_manifest(written, tmp_path).program.files == given(data, tmp_path).parse().program.files
    )


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
