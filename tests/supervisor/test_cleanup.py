"""Whoever removes a run holds its lock, and deletes nothing but what the run has made."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from emulator.cli import background
from emulator.engines.base import Inbox
from emulator.engines.docker import DockerEngine
from emulator.engines.process import ProcessEngine
from emulator.errors import InUse, UsageError
from emulator.planning.claims import Capacity, Claim, Need, Run
from emulator.planning.planner import make_plan
from emulator.pytest_plugin.harness import recover
from emulator.record.events import fields_of
from emulator.record.lock import LOCK, is_being_removed, is_live, locked
from emulator.record.reader import Record
from emulator.record.remains import LOG, SOCKET
from emulator.scenario.loader import load
from emulator.session.run import attach
from emulator.supervisor import cleanup as leftovers
from tests.conftest import Emulate, end, going_on, left, own, wait_for_line

RUN = own("left")
RUNNING = "all tasks are running"
HOLDS_THE_LOCK = """
import sys
from contextlib import nullcontext
from pathlib import Path
from emulator.record.lock import acquire, locked
folder, removes = Path(sys.argv[1]), sys.argv[2] == "True"
with locked(folder, make=True) if removes else nullcontext(acquire(folder)):
    print("taken", flush=True)
    sys.stdin.readline()
"""


def write(tmp_path: Path, image: str, command: str = "echo up; sleep 1000", env: str = "") -> Path:
    path = tmp_path / "scenario.yaml"
    path.write_text(
        f"name: left\nframework: none\nimage: {image}\n"
        f"program: {{command: [sh, -c, {json.dumps(command)}]{env}}}\ncluster: {{worker: 1}}\n"
    )
    return path


def killed(emulate: Emulate, path: Path, engine: str = "process", *until: str) -> Path:
    """Start a run, kill its emulator; return its folder."""
    process = emulate.start(
        "up", path, "--engine", engine, "--out", emulate.out, "--run-id", RUN, "--plain"
    )
    wait_for_line(process, RUNNING, *(until or ("worker-0 | up",)))
    end(process, signal.SIGKILL)
    return emulate.out / RUN


@contextlib.contextmanager
def taken_by_another(folder: Path, *, removes: bool = False) -> Iterator[subprocess.Popen[str]]:
    """Have another process take a run over, as `attach` does, or remove it: it holds the lock."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS_THE_LOCK, str(folder), str(removes)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "taken\n"
        yield process
        process.stdin.close()


def tasks_left() -> list[str]:
    """Return the processes of tasks: what watches their files ends soon after its emulator."""
    return [one for one in left("process", RUN) if "witness" not in one]


def test_clean_waits_for_another_process_that_removes_a_run(
    emulate: Emulate, tmp_path: Path
) -> None:
    folder = killed(emulate, write(tmp_path, "none"))
    with taken_by_another(folder, removes=True) as remover:
        cleaning = emulate.start("clean", "--engine", "process", "--out", emulate.out)
        wait_for_line(cleaning, f"waiting for another emulate process that removes {RUN}")
        assert cleaning.poll() is None
        assert remover.stdin is not None
        remover.stdin.close()
        assert cleaning.wait(60) == 0
    assert left("process", RUN) == []


def test_a_supervisor_is_no_remover(tmp_path: Path) -> None:
    (tmp_path / LOCK).touch()
    assert not is_being_removed(tmp_path)
    with taken_by_another(tmp_path, removes=True):
        assert is_being_removed(tmp_path)
    assert not is_being_removed(tmp_path)
    with taken_by_another(tmp_path, removes=True) as remover:
        remover.kill()
        remover.wait()
    with taken_by_another(tmp_path):
        assert not is_being_removed(tmp_path)


@pytest.fixture
def then(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Have something happen once, right after it was decided that a run is dead."""

    def when_decided(do: Callable[[], object]) -> None:
        done = list[bool]()

        def taking(folder: Path, *, make: bool) -> contextlib.AbstractContextManager[None]:
            if not done and folder.name == RUN:
                assert not is_live(folder)  # so it was decided
                done.append(True)
                do()
            return locked(folder, make=make)

        monkeypatch.setattr(leftovers, "locked", taking)

    return when_decided


# --- Foreign data -------------------------------------------------------------------------------


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """Somebody's folder that has a `work` and a `shared`, as many have."""
    for part in ("work", "shared"):
        (tmp_path / "foreign" / part).mkdir(parents=True)
        (tmp_path / "foreign" / part / "file").write_text("mine")
    return tmp_path / "foreign"


def untouched(foreign: Path) -> bool:
    return all((foreign / part / "file").read_text() == "mine" for part in ("work", "shared"))


def test_a_variable_of_a_scenario_is_no_path_to_write_or_delete(
    tmp_path: Path, foreign: Path
) -> None:
    folder = tmp_path / "runs" / RUN
    folder.mkdir(parents=True)
    scenario = load(write(tmp_path, "none", "echo up; exec sleep 1000"))
    engine, inbox = ProcessEngine(), Inbox()
    plan = make_plan(scenario, RUN, engine.plan_context(RUN, folder))
    lies = {
        "EMULATOR_SHARED": str(foreign / "shared"),
        "EMULATOR_FOLDER": str(foreign),
        "EMULATOR_RUN": "other",
    }
    task = plan.tasks[0].model_copy(update={"env": {**plan.tasks[0].env, **lies}})
    (folder / "plan.json").write_text(plan.model_dump_json())
    with going_on(folder):
        engine.prepare(plan, folder, inbox)
        engine.start(task)
        while "up" not in str(inbox.get(timeout=300)):  # before that it may be its keeper only
            pass
        assert [thing.folder for thing in engine.find(RUN)] == [str(folder)]
        assert engine.tear_down(RUN) == 3  # a process, work, shared
    engine.close()
    assert untouched(foreign)
    assert not (folder / "work").exists()


def test_clean_deletes_nothing_that_a_process_names(
    emulate: Emulate, tmp_path: Path, foreign: Path
) -> None:
    lie = f"EMULATOR_FOLDER={foreign} EMULATOR_RUN=foreign"
    command = f"{lie} sleep 1000 & {lie} setsid sleep 1000 & echo up; sleep 1000"
    folder = killed(emulate, write(tmp_path, "none", command))
    assert len(tasks_left()) == 4
    for out in (tmp_path / "others", emulate.out):  # it deletes only under the folder that it gets
        assert (folder / "work").is_dir()
        done = emulate("clean", "--engine", "process", "--out", out)
        assert done.returncode == 0, done.stderr
        assert left("process", RUN) == []
    assert untouched(foreign)
    assert not (folder / "work").exists()
    assert not (folder / "shared").exists()


def test_clean_kills_what_names_a_folder_that_is_gone_and_deletes_nothing(
    emulate: Emulate, tmp_path: Path
) -> None:
    folder = killed(emulate, write(tmp_path, "none"))
    moved = folder.rename(tmp_path / "moved")
    assert left("process", RUN)
    assert emulate("clean", "--engine", "process", "--out", emulate.out).returncode == 0
    assert left("process", RUN) == []
    assert (moved / "work").is_dir()


def test_a_run_does_not_take_folders_that_are_there_already(
    emulate: Emulate, tmp_path: Path, foreign: Path
) -> None:
    folder = emulate.out / RUN
    folder.parent.mkdir()
    foreign.rename(folder)
    done = emulate.up(write(tmp_path, "none", "true"), "--engine", "process", "--run-id", RUN)
    assert done.returncode == 2
    assert f"There is something else in {folder} already." in done.stderr
    emulate("down", RUN, "--out", emulate.out)
    emulate("clean", "--engine", "process", "--out", emulate.out)
    assert untouched(folder)


def test_a_link_that_a_task_puts_in_place_of_its_folder_is_not_followed(
    emulate: Emulate, tmp_path: Path, foreign: Path
) -> None:
    swap = f"cd / && rm -rf $EMULATOR_SHARED && ln -s {foreign} $EMULATOR_SHARED; echo up"
    done = emulate.up(write(tmp_path, "none", swap), "--engine", "process", "--run-id", RUN)
    assert done.returncode == 0, done.stderr
    assert untouched(foreign)
    emulate("clean", "--engine", "process", "--dry-run", "--out", emulate.out)
    emulate("down", RUN, "--out", emulate.out)
    assert untouched(foreign)


# --- Daemons ------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers")
def test_clean_finds_a_daemon_that_has_nothing_of_its_run(emulate: Emulate, tmp_path: Path) -> None:
    command = "env -i setsid sh -c 'echo $$ > pid; echo daemon; exec sleep 1000' & echo up; wait"
    folder = killed(
        emulate, write(tmp_path, "none", command), "process", "worker-0 | up", "worker-0 | daemon"
    )
    daemon = psutil.Process(int((folder / "work" / "worker-0" / "pid").read_text()))
    look = emulate("clean", "--engine", "process", "--dry-run", "--out", emulate.out)
    assert f"found process worker-0 (pid {daemon.pid})" in look.stderr
    assert emulate("clean", "--engine", "process", "--out", emulate.out).returncode == 0
    assert psutil.wait_procs([daemon], timeout=300)[1] == []
    assert left("process", RUN) == []


# --- The lock -----------------------------------------------------------------------------------


def test_a_run_is_left_alone_that_is_taken_over_after_it_was_found_dead(
    emulate: Emulate, tmp_path: Path, then: Callable[[Callable[[], object]], None]
) -> None:
    """By `clean`, by `down`, and by what recovers a killed test."""
    folder = killed(emulate, write(tmp_path, "none"))
    before, messages = tasks_left(), list[str]()
    claim = Claim(1, "t", 1, Need(), Capacity(1, 1), runs=(Run(RUN, "process", folder),))

    def clean() -> None:
        leftovers.clean(emulate.out, engine_name="process", dry_run=False, say=messages.append)

    def down() -> None:
        with pytest.raises(InUse, match="Another emulate process is using"):
            leftovers.stop_or_remove(Record(folder))

    for remove in (clean, down, partial(recover, claim)):
        with contextlib.ExitStack() as stack:
            then(lambda: stack.enter_context(taken_by_another(folder)))
            remove()
        assert tasks_left() == before
        assert (folder / "work").is_dir()
    assert f"{RUN} is left alone: another emulate is at work on it by now" in messages
    recover(claim)
    assert left("process", RUN) == []
    assert not (folder / "work").exists()


def test_a_folder_is_left_alone_that_is_taken_over_after_it_was_found_dead(
    emulate: Emulate, tmp_path: Path, then: Callable[[Callable[[], object]], None]
) -> None:
    path = write(tmp_path, "none", "true")
    assert emulate.up(path, "--engine", "process", "--keep", "--run-id", RUN).returncode == 0
    folder, messages = emulate.out / RUN, list[str]()
    with contextlib.ExitStack() as stack:
        then(lambda: stack.enter_context(taken_by_another(folder)))
        count = leftovers.clean(
            emulate.out, engine_name="process", dry_run=False, say=messages.append
        )
    said = [one for one in messages if RUN in one]  # of tests beside it `clean` may speak too
    assert (count, said) == (0, [f"{RUN} is left alone: another emulate is at work on it by now"])
    assert (folder / "shared").is_dir()


@pytest.mark.docker
def test_attach_while_clean_removes_and_after_it_is_refused_in_a_sentence(
    emulate: Emulate, tmp_path: Path, docker_engine: DockerEngine, tiny_image: str
) -> None:
    folder = killed(emulate, write(tmp_path, tiny_image), "docker")
    attached = []

    def say(text: str) -> None:
        if RUN in text:
            attached.append(emulate("attach", RUN, "--out", emulate.out))
            with pytest.raises(InUse, match=f"Another emulate process is using {folder}"):
                attach(Record(folder), docker_engine)  # had it looked before: this takes the lock

    assert len([one for one in left("docker", RUN) if "witness" not in one]) == 3
    leftovers.clean(emulate.out, engine_name="docker", dry_run=False, say=say)
    assert left("docker", RUN) == []
    assert len(attached) >= 3
    for done in attached:
        assert done.returncode == 2
        assert f"{RUN} is not up yet, is just ending, or is being removed;" in done.stderr
    # Nor is one taken over afterwards whose tasks were only starting.
    history = (folder / "history.jsonl").read_text().splitlines(keepends=True)
    until = next(n for n, line in enumerate(history) if '"event": "running"' in line)
    for entries in (history, history[:until]):
        (folder / "history.jsonl").write_text("".join(entries))
        after = emulate("attach", RUN, "--out", emulate.out)
        assert after.returncode == 2
        assert f"{RUN} can't be taken over: all that it had made was removed." in after.stderr
        assert left("docker", RUN) == []
        assert not is_live(folder)


@pytest.mark.docker
def test_a_run_that_was_attached_before_clean_comes_is_not_touched(
    emulate: Emulate, tmp_path: Path, tiny_image: str
) -> None:
    killed(emulate, write(tmp_path, tiny_image), "docker")
    attach = emulate.start("attach", RUN, "--out", emulate.out, "--plain")
    wait_for_line(attach, "taken over after")
    assert emulate("clean", "--engine", "docker", "--out", emulate.out).returncode == 0
    assert len([one for one in left("docker", RUN) if "witness" not in one]) == 3
    assert end(attach, signal.SIGTERM).returncode == 130
    assert left("docker", RUN) == []


def test_down_of_a_dead_run_does_not_end_a_live_one_of_that_name(
    emulate: Emulate, tmp_path: Path
) -> None:
    dead = killed(emulate, write(tmp_path, "none"))
    emulate("down", RUN, "--out", emulate.out)
    other = tmp_path / "others"
    lives = emulate.start(
        *("up", write(tmp_path, "none"), "--engine", "process", "--plain"),
        *("--out", other, "--run-id", RUN),
    )
    wait_for_line(lives, RUNNING, "worker-0 | up")
    with pytest.raises(UsageError, match=f"Another run with the id {RUN} is under way"):
        leftovers.stop_or_remove(Record(dead))
    assert left("process", RUN)
    assert end(lives, signal.SIGTERM).returncode == 130


def test_a_removal_makes_no_lock_in_a_folder_that_is_no_runs(tmp_path: Path) -> None:
    (tmp_path / RUN).mkdir()
    assert leftovers.remove(RUN, "process", tmp_path / RUN) == 0
    assert os.listdir(tmp_path / RUN) == []


# --- Files --------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["clean", "down"])
def test_the_socket_of_a_killed_run_is_removed(
    emulate: Emulate, tmp_path: Path, command: str
) -> None:
    arguments = ["up", "-d", str(write(tmp_path, "none")), "--engine", "process", "--api-port", "0"]
    assert emulate(*arguments, "--out", emulate.out, "--run-id", RUN).returncode == 0
    folder = emulate.out / RUN
    begun = Record(folder).history[0]
    assert begun.event == "run"
    supervisor = psutil.Process(int(fields_of(begun)["pid"]))
    supervisor.kill()
    psutil.wait_procs([supervisor], timeout=300)
    files = {SOCKET, "api.port", "api.token"}
    assert files <= set(os.listdir(folder))
    which = ["--engine", "process"] if command == "clean" else [RUN]
    done = emulate(command, *which, "--out", emulate.out)
    assert done.returncode == 0, done.stderr
    assert not {*files, "work", "shared"} & set(os.listdir(folder))
    assert emulate("check", RUN, "--out", emulate.out).returncode == 3  # its record is all there


def test_what_runs_of_a_killed_sweep_have_left_is_removed_and_no_link_is_followed(
    emulate: Emulate, tmp_path: Path
) -> None:
    folder = killed(emulate, write(tmp_path, "none"))
    sweep, linked = tmp_path / "runs" / "a-sweep", tmp_path / "runs" / "linked"
    sweep.mkdir(parents=True)
    inner = folder.rename(sweep / folder.name)
    (sweep / "sweep.json").write_text("{}")
    linked.symlink_to(sweep)
    done = emulate("clean", "--engine=process", f"--out={linked.parent}")
    assert done.returncode == 0, done.stderr
    assert not {SOCKET, "work", "shared"} & set(os.listdir(inner))
    assert done.stderr.count(f"{inner}/work") == 1


@pytest.fixture
def waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `up -d` starts says its pid, and never comes to write anything."""
    script = tmp_path / "python"
    script.write_text('#!/bin/sh\necho "$$" > /dev/fd/$EMULATOR_READY_FD\nexec sleep 1000\n')
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))


@pytest.mark.usefixtures("waits")
@pytest.mark.parametrize("made_before", [False, True])
def test_the_folder_of_an_up_that_was_killed_early_is_removed_if_up_made_it(
    tmp_path: Path, made_before: bool
) -> None:
    folder = tmp_path / "runs" / RUN
    if made_before:
        folder.mkdir(parents=True)
    pids, started, codes = list[int](), threading.Event(), list[int | None]()

    def say(text: str) -> None:
        pids.append(int(text))
        started.set()

    def clean() -> int:
        return leftovers.clean(
            folder.parent, engine_name="process", dry_run=False, say=lambda text: None
        )

    starting = threading.Thread(
        target=lambda: codes.append(background.start(["up"], folder, say)), daemon=True
    )
    starting.start()
    assert started.wait(60), (folder / LOG).read_text()
    clean()
    assert (folder / LOG).is_file()  # it is being started
    os.kill(pids[0], signal.SIGKILL)
    starting.join(60)
    assert codes == [-9]
    clean()
    assert folder.exists() == made_before


def test_a_folder_is_started_once_at_a_time_and_the_header_of_its_log_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "CLEANS_WITHIN", 0.0)
    with background._log_in(tmp_path / RUN) as log:
        with pytest.raises(InUse):
            background._log_in(tmp_path / RUN)
        log.write(b"emulate: no\n")
    assert background.output(tmp_path / RUN) == "emulate: no\n"
