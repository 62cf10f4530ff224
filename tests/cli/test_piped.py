"""A scenario from standard input. Tasks are shell scripts."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from emulator.record.events import RunStarted
from emulator.record.reader import Record
from emulator.validation.limits import SCENARIO_BYTES
from tests.cli.typed import refusal, typed
from tests.conftest import Emulate, Finished, own
from tests.session.conftest import STEPS, shell

TEXT = json.dumps(shell(STEPS))
CLUSTER = '{"worker": ["worker-0.demo.svc:8080"]}'
EXAMPLE = "For example: cat scenario.yaml | emulate plan -"


def piped(emulate: Emulate, *words: str, stdin: str, cwd: Path) -> Finished:
    """Do what `cat | emulate WORDS` does, in a process of its own."""
    done = subprocess.run(
        [*emulate.command, *words], input=stdin, capture_output=True, text=True, cwd=cwd
    )
    return Finished(done.returncode, done.stdout, done.stderr)


def origin(folder: Path) -> dict[str, str]:
    first = Record(folder).history[0]
    assert isinstance(first, RunStarted)
    return dict(first.origin or {})


@pytest.mark.parametrize("words", [("-",), ("-f", "-")])
def test_a_scenario_is_read_with_paths_relative_to_the_current_folder(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "train.py").touch()
    text = json.dumps(shell(STEPS) | {"program": {"source": "train.py", "command": ["sh"]}})
    plan = ("plan", "--engine=process", "--json", *words, "--set=cluster.worker=2")
    found = typed(*plan, cwd=tmp_path, stdin=text).ended().json
    assert found["scenario"]["program"]["source"] == str(tmp_path / "train.py")
    assert [task["name"] for task in found["tasks"]] == ["worker-0", "worker-1"]


def test_every_command_that_takes_a_scenario_takes_it() -> None:
    for words in (
        "build -",
        "doctor - --engine process",
        "sweep - --fault {kill:w} --at x",
        "up -",
    ):
        assert "standard input: name: is missing" in typed(*words.split(), stdin="seed: 1").stderr


def test_mistakes_have_their_lines(tmp_path: Path) -> None:
    text = TEXT.replace('"framework"', '\n"framwork"')
    assert (
        typed("plan", "-", stdin=text)
        .ended(2)
        .stderr.startswith("emulate: standard input:2: framwork: ")
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", f"Standard input is empty: there is no scenario. {EXAMPLE}"),
        (" \n", f"Standard input is empty: there is no scenario. {EXAMPLE}"),
        (
            f"program: x\n#{' ' * SCENARIO_BYTES}",
            "Can't read standard input: it has more than 1 MiB. Mount large files as a folder.",
        ),
    ],
    ids=["nothing", "blank", "too long"],
)
def test_what_is_no_scenario_is_refused(text: str, sentence: str) -> None:
    assert refusal("plan", "-", stdin=text) == sentence


def test_a_terminal_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    master, slave = pty.openpty()
    with open(slave) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        said = refusal("plan", "-")
    os.close(master)
    assert said == f"- reads a scenario from a pipe, and this is a terminal. {EXAMPLE}"


def test_the_record_says_so_and_its_command_repeats_the_run(
    emulate: Emulate, tmp_path: Path
) -> None:
    run_id, here = own("piped"), tmp_path / "a folder"
    here.mkdir()
    (here / "train.sh").write_text(STEPS)
    program = {"source": "train.sh", "command": ["sh", "train.sh"]}
    text = json.dumps(shell(STEPS, program=program, seed=3))
    words = (f"--out={emulate.out}", "--engine=process", f"--run-id={run_id}", "--set=seed=4")
    piped(emulate, "up", "-", *words, stdin=text, cwd=here).ended()
    first = origin(emulate.out / run_id)
    assert first["scenario"] == "standard input"
    page = (emulate.out / run_id / "report.html").read_text()
    assert "Scenario from" in page
    environ = os.environ | {"PATH": f"{Path(emulate.command[0]).parent}:{os.environ['PATH']}"}
    subprocess.run(first["command"], shell=True, cwd=tmp_path, env=environ, check=True)
    (again,) = (here / "runs").glob("*/plan.json")
    repeated, before = Record(again.parent).plan, Record(emulate.out / run_id).plan
    assert repeated.scenario == before.scenario
    assert repeated.scenario.seed == 4


def test_up_d_gets_all_that_came(emulate: Emulate, tmp_path: Path) -> None:
    long = f"{TEXT}\n#{' ' * 200_000}\n"  # no pipe has room for it
    words = ("up", "-", "-d", f"--out={emulate.out}", "--engine=process", f"--run-id={own('d')}")
    piped(emulate, *words, stdin=long, cwd=tmp_path).ended()
    emulate("wait", own("d"), f"--out={emulate.out}").ended()
    assert (emulate.out / own("d") / "scenario.yaml").read_text() == long
    assert origin(emulate.out / own("d"))["scenario"] == "standard input"
