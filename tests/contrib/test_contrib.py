"""What lies around the emulator, as far as it can be tried without a registry and GitHub."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from emulator.cli import setup as setting_up
from tests.conftest import Emulate
from tests.session.conftest import STEPS, shell

ROOT = Path(__file__).parents[2]
ACTION = ROOT / "contrib" / "github-action" / "action.yml"
WORKFLOW = ACTION.with_name("workflow.yml")


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def bash(script: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a script, as the runner of GitHub does with those of steps."""
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=folder,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )


# --- The action of GitHub -------------------------------------------------------------------------


def test_the_action_is_complete() -> None:
    action = read(ACTION)
    text = ACTION.read_text()
    assert action["runs"]["using"] == "composite"
    assert {*re.findall(r"inputs\.([a-z]+)", text)} == {*action["inputs"]}
    ids = {step["id"] for step in action["runs"]["steps"] if "id" in step}
    assert {*re.findall(r"steps\.(\w+)\.", text)} <= ids
    for step in action["runs"]["steps"]:
        assert ("uses" in step) != ("run" in step)
        assert "run" not in step or step["shell"] == "bash"
        # What a workflow writes into an input must not become part of a script.
        assert "${{" not in step.get("run", "")


@pytest.mark.parametrize(
    ("scenario", "code", "summary"),
    [
        (shell(), 0, "ok"),
        (shell(STEPS + "exit 3"), 1, "failed"),
        (shell(cluster={"worker": "two"}), 2, None),
    ],
    ids=["ok", "failed", "refused"],
)
def test_its_step_runs_a_scenario(
    emulate: Emulate, tmp_path: Path, scenario: dict[str, Any], code: int, summary: str | None
) -> None:
    (step,) = (one for one in read(ACTION)["runs"]["steps"] if one.get("id") == "run")
    (tmp_path / "s.yaml").write_text(json.dumps(scenario))
    home = Path(emulate.command[-1]).parent
    environment = {
        "PATH": f"{home}:{os.environ['PATH']}",
        "SCENARIO": "s.yaml",
        "COMMAND": "",
        "ENGINE": "process",
        "ARGUMENTS": "--set cluster.worker=2 --seed 3" if code != 2 else "",
        "OUT": str(emulate.out),
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
    }
    assert {*step["env"]} <= environment.keys()
    done = bash(step["run"], tmp_path, **environment)
    assert done.returncode == code, done.stderr
    if summary is None:
        assert "cluster.worker" in done.stderr
        assert not (tmp_path / "output").exists()
        return
    folder = Path((tmp_path / "output").read_text().removeprefix("folder=").strip())
    assert json.loads((folder / "summary.json").read_text())["verdict"] == summary
    assert len(json.loads((folder / "plan.json").read_text())["tasks"]) == 2
    assert summary in (tmp_path / "summary").read_text()


def test_the_workflow_that_is_shown_gives_the_action_what_it_takes() -> None:
    action, shown = read(ACTION), read(WORKFLOW)
    steps = [step for job in shown["jobs"].values() for step in job["steps"] if "with" in step]
    assert [sorted(step["with"]) for step in steps] == [
        ["arguments", "command"], ["artifact", "scenario"],
    ]  # fmt: skip
    assert all({*step["with"]} <= {*action["inputs"]} for step in steps)
    block = re.search(r"```yaml\n(.*?)```", (ROOT / "contrib" / "README.md").read_text(), re.S)
    assert block is not None
    assert block[1] in WORKFLOW.read_text()


def test_the_command_of_the_workflow_is_tried(emulate: Emulate, tmp_path: Path) -> None:
    (step,) = (one for one in read(ACTION)["runs"]["steps"] if one.get("id") == "run")
    given = read(WORKFLOW)["jobs"]["survives"]["steps"][-1]["with"]
    (tmp_path / "train.py").write_text(
        "import pathlib, time\n"
        "saved = pathlib.Path('ckpt/last.txt')\n"
        "saved.parent.mkdir(exist_ok=True)\n"
        "done = int(saved.read_text()) if saved.exists() else 0\n"
        "for n in range(done + 1, 61):\n"
        "    time.sleep(0.05)\n"
        "    print(f'step {n} loss {1 / n}', flush=True)\n"
        "    if n % 5 == 0:\n"
        "        new = saved.with_suffix('.new')\n"
        "        new.write_text(str(n))\n"
        "        new.replace(saved)\n"
    )
    home = Path(emulate.command[-1]).parent
    environment = {
        "PATH": f"{home}:{os.environ['PATH']}",
        "SCENARIO": "",
        "COMMAND": given["command"],
        "ENGINE": "",
        "ARGUMENTS": given["arguments"],
        "OUT": str(emulate.out),
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
    }
    done = bash(step["run"], tmp_path, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "output").read_text() == f"folder={emulate.out}\n"
    assert "Survived: worker-0 was preempted at step " in (tmp_path / "summary").read_text()
    assert len([*emulate.out.glob("*/junit.xml")]) == 2


@pytest.mark.parametrize(
    "line", [None, "training-emulator[test] @ git+https://host/o/emulator@2f0c1d"]
)
def test_the_workflow_of_init_installs_this_emulator_or_says_what_it_lacks(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    line: str | None,
) -> None:
    monkeypatch.setattr(setting_up, "requirement_here", lambda: line)
    setting_up.init(tmp_path, tests=True)
    said = capsys.readouterr().err
    assert (f"write into {tmp_path}/requirements-emulator.txt where" in said) is (line is None)
    written = (tmp_path / "requirements-emulator.txt").read_text().splitlines()
    assert [text for text in written if not text.startswith("#")] == ([line] if line else [])

    workflow = read(tmp_path / ".github" / "workflows" / "training.yml")
    (step,) = (s for s in workflow["jobs"]["test"]["steps"] if "pip install" in s.get("run", ""))
    (tmp_path / "pip").write_text('#!/bin/sh\necho "pip was asked to $*"\n')
    (tmp_path / "pip").chmod(0o755)
    ran = bash(step["run"], tmp_path, PATH=f"{tmp_path}:{os.environ['PATH']}")
    asked = "pip was asked to install -r requirements-emulator.txt\n"
    lacks = "::error::Write into requirements-emulator.txt where the emulator comes from.\n"
    assert (ran.returncode, ran.stdout) == ((0, asked) if line else (1, lacks))


# --- The development container --------------------------------------------------------------------


def test_the_commands_of_the_development_container_exist() -> None:
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    for key in ("postCreateCommand", "postStartCommand"):
        make, *targets = container[key].split()
        assert make == "make"
        dry = subprocess.run(
            ["make", "--dry-run", *targets], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert dry.returncode == 0, dry.stderr
    project = (ROOT / "pyproject.toml").read_text()
    (version,) = re.findall(r"python:(\d\.\d+)", container["image"])
    assert f"Python :: {version}" in project
