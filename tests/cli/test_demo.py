"""`emulate demo`: the first command of a newcomer, with processes and plain Python."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from emulator.cli.demo import BUNDLED, Ticks, difference
from emulator.record.events import (
    AllRunning,
    Entry,
    FaultEvent,
    JobEnded,
    Restart,
    Step,
    TaskRunning,
)
from tests.conftest import Emulate
from tests.terminals import Terminal


@pytest.mark.parametrize("name", ["careless", "mended"])
def test_its_programs_need_nothing_but_python(name: str) -> None:
    tree = ast.parse((BUNDLED / f"{name}.py").read_text(encoding="utf-8"))
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
    assert {"json", "multiprocessing.connection"} <= used
    assert {name.partition(".")[0] for name in used} <= sys.stdlib_module_names


@pytest.mark.parametrize("suffix", ["", "_tensorflow"])
def test_five_lines_mend_the_careless_program(suffix: str) -> None:
    careless, mended = (
        (BUNDLED / f"{name}{suffix}.py").read_text("utf-8") for name in ("careless", "mended")
    )
    changed = list(difference(careless, mended))
    assert len(changed) == 5
    assert [line for line in changed if line.startswith("-")] == [
        '- saved = pathlib.Path("saved.json")'
    ]
    assert max(map(len, changed)) <= 78  # a terminal of 80 columns, with a margin


def ticks(*history: Entry) -> list[str]:
    told: list[str] = []
    ticks = Ticks(told.append)
    for entry in history:
        ticks.see(entry)
    return told


def test_each_phase_is_told_once_when_it_begins() -> None:
    assert ticks(
        AllRunning(t=0.1),
        Step(t=0.2, task="worker-0", step=1),
        Step(t=1.2, task="worker-1", step=63),
        FaultEvent(t=1.3, task="worker-1", id="0", kind="preempt", stage="triggered"),
        FaultEvent(t=1.4, task="worker-1", id="0", kind="preempt", stage="applied"),
        Restart(t=1.4, task="worker-0", scope="job", number=1, delay=0.1),
        TaskRunning(t=1.6, task="worker-0", id="2"),
        TaskRunning(t=2.5, task="worker-1", id="3"),
        Step(t=2.6, task="worker-0", step=3, coalesced={"first": 1, "count": 3}),
        Step(t=2.7, task="worker-1", step=3),
        Step(t=4.0, task="worker-0", step=120),
        JobEnded(t=5.0, outcome="succeeded", reason="worker-0 finished"),
    ) == [
        "  0.1 s  all workers run",
        "  0.2 s  they train together",
        "  1.4 s  worker-1 is preempted at step 63, and its disk is gone",
        "  2.5 s  worker-1 is back",
        "  2.6 s  the training begins again, at step 1",
        "  5.0 s  step 120 is reached",
    ]
    assert ticks(JobEnded(t=5.0, outcome="failed", reason="why")) == ["  5.0 s  it failed: why"]


def test_a_worker_is_lost_with_all_steps_and_then_with_four(
    emulate: Emulate, tmp_path: Path
) -> None:
    """In an empty folder, without Docker; a copy that its user has edited stays as it is."""
    edited = tmp_path / "emulate-demo" / "careless.py"
    edited.parent.mkdir()
    edited.write_text("edited")
    env = {"PATH": "/usr/bin:/bin", "DOCKER_HOST": f"unix://{tmp_path}/no-engine"}
    done = emulate("demo", cwd=tmp_path, env=env).ended()
    assert done.stderr == ""  # quiet where nobody watches
    lines = done.stdout.splitlines()
    (careless,) = (line for line in lines if line.startswith("careless  "))
    (mended,) = (line for line in lines if line.startswith("mended  "))
    assert re.fullmatch(
        r"careless  preempted at step \d+, began again at step 1: \d+ steps lost +exit 1", careless
    )
    back = re.fullmatch(
        r"mended    preempted at step \d+, back in \S+: (\d+) steps? lost +exit 0", mended
    )
    assert back is not None
    assert int(back[1]) <= 10
    (address,) = re.findall(r"^The page: +(\S+)$", done.stdout, re.M)
    assert urlsplit(address).scheme == "file"
    page = Path(unquote(urlsplit(address).path))
    for link in re.findall(r'href="(\.\./[^"]+report\.html)"', page.read_text("utf-8")):
        assert (page.parent / link).is_file()
    assert lines[-1].endswith("emulate try -- python train.py")
    assert edited.read_text() == "edited"
    assert {path.name for path in edited.parent.iterdir()} == {
        "careless.py", "careless.yaml", "mended.py", "mended.yaml",
    }  # fmt: skip
    again = emulate("up", "emulate-demo/mended.yaml", "--engine", "process", cwd=tmp_path)
    assert again.returncode == 0, again.stderr[-2000:]


def test_on_a_terminal_it_ticks_and_ctrl_c_ends_it(emulate: Emulate, tmp_path: Path) -> None:
    terminal = Terminal([*emulate.command, "demo"], cwd=tmp_path)
    try:
        shown = terminal.see("they train together", "step ")
        assert shown.splitlines()[:2] == [
            "careless: two workers on the process engine",
            next(line for line in shown.splitlines() if line.endswith("all workers run")),
        ]
        terminal.press("\x03")
        assert terminal.finish() == 130
        assert "mended" not in terminal.all
        assert not (tmp_path / "emulate-demo").exists()
    finally:
        terminal.close()
