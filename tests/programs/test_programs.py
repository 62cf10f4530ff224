"""Programs that nobody here wrote, run as they are.

    pytest tests/programs -m programs

Each folder has a scenario, and a source.yaml that says where its program is from and under which
licence. A program of a package is installed in the scenario's image. One of a repository is taken
from a checkout, EMULATOR_PROGRAMS/OWNER/REPOSITORY; no program is stored here. docs/programs.md has
what came of each.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from emulator.engines.docker import DockerEngine
from emulator.pytest_plugin.harness import Emulator

FOLDER = Path(__file__).parent
CHECKOUTS = "EMULATOR_PROGRAMS"
NAMES = sorted(path.parent.name for path in FOLDER.glob("*/scenario.yaml"))
QUICK = {"accelerate-elastic"}
"""It runs with the rest of the suite: its image is small, and it needs no checkout.

Not accelerate-launch, which takes longer and ABORTS more often.
"""
ABORTS = "terminate called without an active exception"
"""What PyTorch says where a process of Accelerate's tests ends with SIGABRT at its very end, on a
busy machine now and then (docs/programs.md)."""
LONG = [pytest.mark.programs, pytest.mark.timeout(3600)]
"""The first program of an image waits until that is built."""
LICENCES = {"Apache-2.0", "BSD-3-Clause", "MIT"}
SET = {"name", "description", "framework", "image", "program", "cluster", "elastic", "timeout"}
"""What is set: how many tasks of which role, the image and the command. The rest is expected."""
ENVIRONMENT = {"ACCELERATE_USE_CPU", "TF_USE_LEGACY_KERAS"}
"""Settings of libraries: no GPU, and Keras 2."""
WRITTEN = re.compile(r"%%writefile\s+(\S+)\n")
"""The first line of a notebook's cell that is a file."""


@dataclass(frozen=True)
class Source:
    """Where a program is from."""

    files: list[str]
    licence: str
    repository: str | None = None
    commit: str | None = None
    package: str | None = None
    prints: str = ""
    """A part of its output which shows that the tasks have found each other; needed where it does
    not print steps.
    """

    @classmethod
    def read(cls, name: str) -> Source:
        return cls(**yaml.safe_load((FOLDER / name / "source.yaml").read_text()))

    def lay_out(self, checkouts: Path, folder: Path) -> None:
        """Copy the program's files from a checkout to `folder`, those of a notebook as its cells
        write them.
        """
        folder.mkdir()
        for path in (checkouts / (self.repository or "") / file for file in self.files):
            if path.is_dir():
                shutil.copytree(path, folder, dirs_exist_ok=True)
            elif path.suffix == ".ipynb":
                for name, text in written(json.loads(path.read_text())).items():
                    (folder / name).write_text(text)
            else:
                shutil.copy(path, folder)


def written(notebook: Any) -> dict[str, str]:
    """Return the files that a notebook writes."""
    cells = ("".join(cell["source"]) for cell in notebook["cells"])
    return {match[1]: cell[match.end() :] for cell in cells if (match := WRITTEN.match(cell))}


@pytest.mark.docker
@pytest.mark.usefixtures("docker_engine")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in QUICK else LONG) for name in NAMES],
)
def test_a_program_runs_as_it_is(
    emulator: Emulator, docker_engine: DockerEngine, name: str, tmp_path: Path
) -> None:
    source, program = Source.read(name), tmp_path / "program"
    changes = {}
    if source.repository is not None:
        checkouts = os.environ.get(CHECKOUTS)
        if checkouts is None or not (Path(checkouts) / source.repository).is_dir():
            pytest.skip(f"{CHECKOUTS} has no checkout of {source.repository}")
        source.lay_out(Path(checkouts), program)
        changes["program.source"] = str(program)
    for _ in range(2):
        run = emulator.run(FOLDER / name / "scenario.yaml", set=changes, engine="docker")
        output = [path.read_text() for path in (run.folder / "logs").glob("*.log")]
        if not any(ABORTS in text for text in output):
            break
        assert run.verdict == "failed"  # as the program did, which is tried once more
    run.check()
    assert any(source.prints in text for text in output)


@pytest.mark.parametrize("name", NAMES)
def test_only_roles_image_and_command_are_set_and_result_and_source_named(name: str) -> None:
    scenario = yaml.safe_load((FOLDER / name / "scenario.yaml").read_text())
    assert scenario.keys() <= SET | {"expect"}
    assert scenario["program"].keys() <= {"command", "env"}
    assert scenario["program"].get("env", {}).keys() <= ENVIRONMENT
    source = Source.read(name)
    assert scenario.get("expect", {}).keys() & {"final_step", "accuracy"} or source.prints
    assert source.licence in LICENCES
    if source.package is None:
        assert re.fullmatch(r"[0-9a-f]{40}", source.commit or "")
        assert source.repository is not None
    else:
        assert "==" in source.package
    table = (FOLDER.parent.parent / "docs" / "programs.md").read_text()
    assert f"| [{name}](../tests/programs/{name}) |" in table


def test_the_files_of_a_notebook_are_those_that_its_cells_write(tmp_path: Path) -> None:
    cells = ["import os\n", "%%writefile main.py\nimport os\nprint(1)\n", "%%writefile a.py\n"]
    notebook = {"cells": [{"source": cell.splitlines(keepends=True)} for cell in cells]}
    place = tmp_path / "owner" / "repository" / "tutorial.ipynb"
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps(notebook))
    source = Source(["tutorial.ipynb"], "Apache-2.0", repository="owner/repository")
    source.lay_out(tmp_path, tmp_path / "program")
    files = {path.name: path.read_text() for path in (tmp_path / "program").iterdir()}
    assert files == {"main.py": "import os\nprint(1)\n", "a.py": ""}
