"""A run id is one name, wherever it is read: it becomes a folder, a container, a network."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

import emulator
from emulator.engines.base import Resource
from emulator.engines.docker import DockerEngine
from emulator.engines.process import ProcessEngine
from emulator.engines.process.process_table import labels_in
from emulator.errors import UsageError
from emulator.planning.plan import Plan, new_run_id
from emulator.planning.requested import RunOptions
from emulator.record.folder import runs_in
from emulator.record.reader import Record
from emulator.session.variants import plan_all
from emulator.supervisor.cleanup import abandoned, remove
from emulator.validation.run_id import check_run_id, is_run_id
from tests.asked import asked
from tests.conftest import Emulate, own
from tests.histories import a_plan

BAD = [
    *("", "/", ".", "..", "../../etc", "a/b", "/etc", "<script>", "A", "a b", "a_b", "a.b", "-a"),
    *("a-", "1a", "ä", "a\n", "a\0b", "\x1b]52;c;aGk=\x07", "a" * 64, "a" * 100_000),
]
GOOD = ["a", "a1", "mwms-1120180437-5d2e31", "a" * 63, "a--1"]
TEXT = """\
name: ids
framework: none
image: none
program: {command: [sh, -c, 'echo hi']}
cluster: {worker: 1}
"""
SCENARIO_NAME = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")
ONE = "{worker: 1}"


def result(run_id: str, host: str = "here") -> Resource:
    return Resource(run_id, "container", "c", "running", f"/runs/{run_id}", host)


@pytest.mark.parametrize("text", BAD, ids=lambda text: repr(text[:20]))
def test_what_is_no_name_is_refused_wherever_it_is_read(tmp_path: Path, text: str) -> None:
    assert not is_run_id(text)
    with pytest.raises(UsageError, match=r"can't be a run id\. It has 1 to 63") as refused:
        check_run_id(text)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 400
    # A stored plan with it is no plan, and what an engine has under it, or a process names, is
    # nobody's.
    stored = a_plan(ONE).model_dump(mode="json")
    with pytest.raises(ValidationError, match="it can't be a run id"):
        Plan.model_validate({**stored, "run_id": text}, context={"stored": True})
    things = [result(text), result("run-1")]
    assert abandoned(things, host="here", live=lambda folder: False) == things[1:]
    with pytest.raises(UsageError, match="can't be a run id"):
        remove(text, "process", tmp_path)
    assert labels_in({"EMULATOR_RUN": text, "EMULATOR_FOLDER": f"/runs/{text}"}) is None


@pytest.mark.parametrize("text", GOOD)
def test_a_name_is_taken(text: str) -> None:
    assert is_run_id(text)
    assert check_run_id(text) == text


@given(st.from_regex(SCENARIO_NAME, fullmatch=True), st.integers(1, 9999))
def test_ids_of_our_own_are_names_also_of_variants(name: str, number: int) -> None:
    assert is_run_id(new_run_id(name))
    assert is_run_id(f"{new_run_id(name)}-{number}")


# --- Where users give one -----------------------------------------------------------------------


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "in" / "ids.yaml"
    path.parent.mkdir()
    path.write_text(TEXT)
    return path


NO_ID, LATEST = "can't be a run id. It has 1 to 63", "to all commands it means the latest run"
UP, PLAN, VARY = ("up",), ("plan",), ("up", "--vary", "seed=1,2")


@pytest.mark.parametrize(
    ("how", "text", "why"),
    [
        *((UP, text, NO_ID) for text in ("", "-a", "a\n", "\x1b]52;c;aGk=\x07", "absolute")),
        *((how, text, NO_ID) for how in (UP, ("up", "-d"), VARY, PLAN) for text in ("..", "a/b")),
        *((how, "last", LATEST) for how in (UP, ("up", "-d"), PLAN)),
    ],
)
def test_each_command_refuses_it_and_writes_nothing(
    emulate: Emulate, scenario: Path, tmp_path: Path, how: tuple[str, ...], text: str, why: str
) -> None:
    text = str(tmp_path / "elsewhere") if text == "absolute" else text
    done = emulate(*how, scenario, "--engine", "process", f"--run-id={text}", cwd=scenario.parent)
    assert done.returncode == 2
    assert "can't be a run id" in done.stderr
    assert why in done.stderr
    assert done.stderr.rstrip("\n").isprintable()
    assert [path.relative_to(tmp_path) for path in tmp_path.rglob("*")] == [
        Path("in"),
        Path("in", scenario.name),
    ]


def test_variants_need_room_for_their_number(scenario: Path, tmp_path: Path) -> None:
    read = [asked(scenario.read_text())]
    result = emulator.scenario.matrix.variants(["seed=1"], [])
    engine = ProcessEngine()
    with pytest.raises(UsageError, match=f"'{'a' * 63}-1' can't be a run id"):
        plan_all(result, read, engine, RunOptions(out=tmp_path, run_id="a" * 63))
    engine.close()
    with pytest.raises(UsageError, match=LATEST):
        RunOptions(run_id="last").named(read[0].scenario)


# --- Where it comes back ------------------------------------------------------------------------


def test_folders_without_a_runs_name_are_no_runs(tmp_path: Path) -> None:
    for name in ("run-1", "Run_2", "\x1b]0;title\x07"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "plan.json").write_text(a_plan(ONE).model_dump_json())
    assert [record.run_id for record in runs_in(tmp_path)] == ["run-1"]


@pytest.mark.parametrize("text", ["../run-1", "\x1b]0;title\x07", "a\0b", "..", "<script>"])
def test_a_run_that_is_asked_for_by_another_name_is_not_found(tmp_path: Path, text: str) -> None:
    (tmp_path / "run-1").mkdir()
    with pytest.raises(UsageError, match="is no run in") as refused:
        Record.find(text, tmp_path)
    assert str(refused.value).isprintable()


def test_a_folder_under_another_name_is_read_and_nothing_is_removed_by_it(
    emulate: Emulate, scenario: Path, tmp_path: Path
) -> None:
    run_id = own("ids")
    assert emulate.up(scenario, "--engine", "process", "--run-id", run_id).returncode == 0
    other = tmp_path / "Before_the_change"
    (emulate.out / run_id).rename(other)
    assert emulate("check", other).returncode == 0
    for command in ("down", "attach"):
        done = emulate(command, other)
        assert done.returncode == 2
        assert f"holds the record of {run_id} under another name" in done.stderr


@pytest.mark.docker
def test_a_container_with_such_an_id_is_reported_and_not_removed(
    emulate: Emulate, docker_engine: DockerEngine, tiny_image: str, tmp_path: Path
) -> None:
    api = docker_engine.api
    hostile = "../\x1b]0;title\x07"
    labels = {
        "emulator.run": hostile,
        "emulator.folder": str(tmp_path / "nowhere"),
        "emulator.host": os.uname().nodename,
    }
    name = own("stranger")
    container = api.create_container(tiny_image, ["true"], name=name, labels=labels)
    try:
        for options in (["--dry-run"], []):
            done = emulate("clean", "--engine", "docker", "--out", emulate.out, *options)
            assert f"is no run id: container {name}" in done.stderr
            assert "\x1b" not in done.stderr
        assert hostile not in emulate("ps", "--out", emulate.out).stderr
        assert api.inspect_container(container)["State"]["Status"] == "created"
    finally:
        api.remove_container(container)


def test_a_process_with_a_name_that_commands_a_terminal_is_shown_in_letters(
    emulate: Emulate, tmp_path: Path
) -> None:
    run_id = own("title")
    folder = tmp_path / run_id
    folder.mkdir()
    labels = {"EMULATOR_RUN": run_id, "EMULATOR_FOLDER": str(folder)}
    with subprocess.Popen(
        ["sleep", "1000"], env={**os.environ, **labels, "EMULATOR_TASK": "\x1b]0;title\x07"}
    ) as process:
        try:
            done = emulate("clean", "--engine", "process", "--dry-run", "--out", emulate.out)
            assert rf"found process \x1b]0;title\x07 (pid {process.pid})" in done.stderr
            assert "\x1b" not in done.stderr
        finally:
            process.kill()


def test_what_another_host_has_is_left_alone_until_the_user_says_that_it_is_over() -> None:
    far, near = result("far-1", host="elsewhere"), result("near-1")
    assert abandoned([far, near], host="here", live=lambda folder: False) == [near]
    over = abandoned([far, near], host="here", live=lambda folder: True, over={"elsewhere"})
    assert over == [far]  # the folder here is none of the other host's
