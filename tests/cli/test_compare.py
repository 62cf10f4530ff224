"""`up --vary` and `compare` as users meet them. Tasks are shell scripts."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from emulator.record.events import RunStarted
from emulator.record.reader import Record
from tests.cli.typed import NO_DOCKER, typed, write
from tests.conftest import Emulate, own

# Its first start ends with $CODE, the next one with 0.
SCRIPT = """\
echo '{"emulate": "step", "step": 7}'
test -e $EMULATOR_SHARED/again && exit 0
touch $EMULATOR_SHARED/again; exit $CODE
"""
RUN = own("x")
POLICIES = ("--vary", "restart.policy=never,on-failure")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    program = {"command": ["sh", "-c", SCRIPT], "env": {"CODE": "9"}}
    keys = {"restart": {"backoff": "0s"}, "expect": {"final_step": 7}}
    return write(tmp_path, name="vary", program=program, **keys)


def test_vary_runs_all_combinations_and_the_worst_counts(emulate: Emulate, path: Path) -> None:
    done = emulate.up(
        path, "--engine", "process", "--run-id", RUN, *POLICIES, "--vary", "program.env.CODE=9,0"
    ).ended(1)
    assert [(run["run_id"], run["variant"], run["outcome"]) for run in done.json] == [
        (f"{RUN}-1", "restart.policy=never program.env.CODE=9", "failed"),
        (f"{RUN}-2", "restart.policy=never program.env.CODE=0", "succeeded"),
        (f"{RUN}-3", "restart.policy=on-failure program.env.CODE=9", "succeeded"),
        (f"{RUN}-4", "restart.policy=on-failure program.env.CODE=0", "succeeded"),
    ]
    assert "emulate: variant 2 of 4: restart.policy=never program.env.CODE=0\n" in done.stderr
    assert "restart.policy: never | never | on-failure | on-failure" in done.stderr
    suites = [
        next(iter(ET.parse(emulate.out / f"{RUN}-{n}" / "junit.xml").getroot())) for n in (1, 2)
    ]
    assert [(suite.get("name"), suite.get("failures")) for suite in suites] == [
        ("vary restart.policy=never program.env.CODE=9", "1"),
        ("vary restart.policy=never program.env.CODE=0", "0"),
    ]
    assert len(list(emulate.out.glob(f"{RUN}-[1-4]/report.html"))) == 4
    first = Record(emulate.out / f"{RUN}-3").history[0]
    assert isinstance(first, RunStarted)
    sets = "--set=restart.policy=on-failure --set=program.env.CODE=9"
    assert (first.origin or {})["command"] == f"emulate up {path} --engine=process {sets}"
    ps = typed("ps", "--all", "--out", emulate.out, env=NO_DOCKER)
    assert "vary restart.policy=on-failure" in ps.stdout


def test_compare_prints_what_differs_and_a_row_for_each_run(emulate: Emulate, path: Path) -> None:
    up = emulate(
        "up", path, "--engine", "process", "--out", emulate.out, "--run-id", RUN, *POLICIES
    )
    # After the last run, its table; then the same from the folders alone.
    path.unlink()
    done = typed("compare", f"{RUN}-1", emulate.out / f"{RUN}-2", "--out", emulate.out).ended()
    assert up.stdout.endswith(done.stdout)
    assert done.stdout.startswith("restart.policy: never | on-failure\n")
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith(" restart.policy")]
    assert [row[:4] for row in rows] == [
        ["restart.policy=never", "failed", "failed", "7"],
        ["restart.policy=on-failure", "succeeded", "ok", "7"],
    ]
    data = typed("compare", "last", f"{RUN}-1", "--json", "--out", emulate.out).json
    assert [row["run_id"] for row in data] == [f"{RUN}-2", f"{RUN}-1"]
    assert [row["restarts"] for row in data] == [1, 0]
    assert data[0]["differs"] == {"restart.policy": "on-failure"}
    # Who told of one step has no rate, so no efficiency; but a baseline makes two of one run.
    (row,) = typed(
        "compare", f"{RUN}-2", "--baseline", f"{RUN}-1", "--json", "--out", emulate.out
    ).json
    assert (row["run_id"], row["efficiency"]) == (f"{RUN}-2", None)


def test_an_error_of_the_emulator_ends_it_with_what_there_is(emulate: Emulate, path: Path) -> None:
    done = emulate.up(
        path,
        *("--engine", "process", "--run-id", RUN, "--set", "program.env.CODE=0"),
        *("--vary", "program.command.0=sh,no-such-shell,dash"),
    ).ended(4)
    assert [run["outcome"] for run in done.json] == ["succeeded", "error"]
    assert "can't run 'no-such-shell'" in done.stderr.splitlines()[-1]
    assert not (emulate.out / f"{RUN}-3").exists()
