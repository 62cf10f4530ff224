"""`emulate demo`: the first command of a newcomer, with processes and plain Python."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

from emulator.record.reader import Record
from emulator.runtime.bundled import ROOT, scenario_path
from emulator.scenario.loader import load
from tests.conftest import Emulate


def test_its_program_needs_nothing_but_python() -> None:
    scenario = load(scenario_path(Path("demo")))
    (program,) = (one for one in scenario.program.command if one.endswith(".py"))
    tree = ast.parse((ROOT / "images" / "programs" / program).read_text(encoding="utf-8"))
    used = {
        name
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert {"json", "socket"} <= used
    assert {name.partition(".")[0] for name in used} <= sys.stdlib_module_names


def test_a_training_loses_a_worker_and_resumes(emulate: Emulate, tmp_path: Path) -> None:
    """In an empty folder, without Docker; what has its name there is not meant."""
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "scenario.yaml").write_text("name: another\n")
    env = {"PATH": "/usr/bin:/bin", "DOCKER_HOST": f"unix://{tmp_path}/no-engine"}
    done = emulate("demo", cwd=tmp_path, env=env).ended()
    assert done.stderr == ""  # quiet where nobody watches
    (folder,) = (tmp_path / "runs").iterdir()
    record = Record(folder)
    (fault,) = (record.result("summary.json") or {})["faults"]
    assert fault["status"] == "applied"
    (lost,) = re.findall(
        r"worker-1 was preempted at step \d+; all tasks restored step \d+ and went on after (.*)",
        " ".join(done.stdout.split("\n")),
    )
    # None only where the machine is so slow that the next checkpoint came before the signal.
    assert "twice" in lost or " lost" in lost
    (address,) = re.findall(r"^Look at it: (\S+)$", done.stdout, re.M)
    assert urlsplit(address).scheme == "file"
    assert Path(unquote(urlsplit(address).path)) == folder / "report.html"
    assert (folder / "report.html").is_file()
    assert re.findall(r"emulate (?:try -- python|up) \w+", done.stdout) == [
        "emulate try -- python train", "emulate up quickstart",
    ]  # fmt: skip
