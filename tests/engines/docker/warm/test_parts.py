"""The pure parts of warm starts: answers in a log, what a task left, what makes runs equal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from emulator.engines import WARM_SESSION
from emulator.engines.docker.container_request import SHARED
from emulator.engines.docker.warm import parent, pool
from emulator.engines.docker.warm.cluster import (
    ControlReplies,
    Image,
    Interpreter,
    cluster_key,
    cold_tasks,
    interpreter_of,
    leftovers,
    preload_of,
    warm_request,
)
from emulator.engines.docker.warm.pool import Pool, Waiting
from emulator.engines.kit.lines import PrintedLine
from emulator.planning.context import PlanContext
from emulator.planning.plan import Plan
from emulator.planning.planner import make_plan
from emulator.scenario.container import RESERVED
from emulator.scenario.loader import parse
from tests.scenario import test_pods as pods

OWN = [parent.FOLDER, SHARED]


# --- Answers ------------------------------------------------------------------------------------


def printed(text: str, stamp: str = "2") -> PrintedLine:
    return PrintedLine(stamp, text, stamp)


def answer(stream: int, request: str = "r", **values: object) -> str:
    return "\x1em:" + json.dumps({"request": request, "stream": stream, **values})


def test_answers_are_taken_out_of_the_lines_and_both_streams_must_have_answered() -> None:
    answers = ControlReplies("\x1em:", "r")
    assert answers.take_reply(printed("a line")) == printed("a line")
    assert answers.take_reply(printed(answer(1, exit=3))) is None
    assert answers.take_reply(printed(answer(1, exit=3))) is None
    assert not answers.complete
    assert answers.take_reply(printed("no newline" + answer(2, exit=3), "9")) == printed(
        "no newline", "9"
    )
    assert answers.complete
    assert (answers.answer["exit"], answers.stamp) == (3, "9")


@pytest.mark.parametrize("text", [answer(1, "other"), answer(1)[:-3], "\x1em:"])
def test_an_answer_to_another_request_or_a_part_of_one_is_neither_a_line_nor_an_answer(
    text: str,
) -> None:
    answers = ControlReplies("\x1em:", "r")
    assert answers.take_reply(printed(text)) is None
    assert answers.take_reply(printed(answer(2))) is None
    assert not answers.complete


# --- Commands -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["python", "a.py"], Interpreter("python", ())),
        (["/usr/bin/python3.11", "-m", "job"], Interpreter("/usr/bin/python3.11", ())),
        (["python3", "-u", "-X", "dev", "a.py"], Interpreter("python3", ("-u", "-X", "dev"))),
        (["python3", "-c", "print()"], Interpreter("python3", ())),
        (["python3"], None),
        (["python3", "-i"], None),
        (["pythonic", "a.py"], None),
        (["sh", "-c", "python a.py"], None),
        ([], None),
    ],
)
def test_the_interpreter_of_a_command(command: list[str], expected: Interpreter | None) -> None:
    assert interpreter_of(command) == expected


@pytest.mark.parametrize(
    ("command", "options", "expected"),
    [
        (["python", "a.py", "-u"], [], ("", "a.py", ["-u"])),
        (["python", "-u", "a.py"], ["-u"], ("", "a.py", [])),
        (["python", "-m", "job", "x"], [], ("-m", "job", ["x"])),
        (["python", "-c", "1", "x"], [], ("-c", "1", ["x"])),
        (["python", "-u", "a.py"], [], None),
        (["sh", "a.sh"], ["-u"], None),
        (["python"], [], None),
    ],
)
def test_the_parent_splits_a_command_at_its_program(
    command: list[str], options: list[str], expected: tuple[str, str, list[str]] | None
) -> None:
    assert parent.split(command, options) == expected


def test_the_parent_runs_as_the_init_of_a_container_only_and_imports_the_standard_library() -> None:
    with pytest.raises(SystemExit, match="would kill every process"):
        parent.main()
    source = Path(parent.__file__).read_text()
    assert "import emulator" not in source
    assert "from emulator" not in source
    assert parent.FOLDER in RESERVED


# --- Leftovers ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kinds", "remove", "spoiled"),
    [
        # What was added is removed with all that is in it.
        (
            {"/root": 0, "/root/a": 1, "/root/a/b": 1, "/tmp": 0, "/tmp/x": 1},
            ("/root/a", "/tmp/x"),
            "",
        ),
        # The program is removed, but not the folder that its next task begins in.
        ({"/job": 1, "/job/a": 1, "/job/a/b": 1, "/shared": 1}, ("/job/a",), ""),
        ({parent.FOLDER: 1, f"{parent.FOLDER}/parent.py": 1}, (), ""),  # our own files stay
        # A file of the image that was changed or deleted spoils the container.
        ({"/etc": 0, "/etc/passwd": 0}, (), "/etc/passwd"),
        ({"/etc": 0, "/etc/passwd": 2}, (), "/etc/passwd"),
        ({"/root": 0}, (), "/root"),
    ],
)
def test_what_a_task_has_left(kinds: dict[str, int], remove: Sequence[str], spoiled: str) -> None:
    left = leftovers(changes(kinds), [], OWN)
    assert (left.remove, left.spoiled) == (remove, spoiled)


def changes(kinds: dict[str, int]) -> list[dict[str, Any]]:
    return [{"Path": path, "Kind": kind} for path, kind in kinds.items()]


def test_folders_are_put_back_and_one_that_was_put_back_before_spoils_nothing() -> None:
    added = changes({"/root": 0, "/root/a": 1, "/tmp": 0, "/tmp/x": 1})
    assert leftovers(added, [], OWN).folders == ("/root", "/tmp")
    again = leftovers(changes({"/root": 0}), ["/root"], OWN)
    assert (again.folders, again.spoiled) == (("/root",), "")


# --- Plans --------------------------------------------------------------------------------------

SITE = PlanContext("docker", lambda task: (task, 1), str, lambda: ["gpu"], "/shared")
IMAGES = {"auto": Image("sha256:1", ())}


def plan(text: str = "", command: str = "[python, a.py]", run_id: str = "r", **env: str) -> Plan:
    program = json.dumps({"env": env})[1:-1]
    base = f"name: a\nprogram: {{command: {command}, {program}}}\ncluster: {{worker: 2}}\n"
    return make_plan(parse(base + text), run_id, SITE)


def key(made: Plan, preload: tuple[str, ...] = ("tensorflow",), engine: str = "e") -> str:
    named = {task.name: preload for task in made.tasks}
    return cluster_key(made, named, engine, IMAGES)


def test_runs_of_one_shape_have_one_key_whatever_their_id_seed_faults_and_program() -> None:
    fault = "faults: [{kill: worker-0, at: 1s}]\n"
    assert key(plan()) == key(plan("seed: 3\n", run_id="other")) == key(plan(fault))
    assert key(plan()) == key(plan(command="[python, b.py, --steps, 3]"))


@pytest.mark.parametrize(
    "other",
    [
        key(plan(A="1")),
        key(plan("faults: [{preempt: worker-0, at: 1s}]\n")),  # addresses are assigned
        key(plan("network: {internet: false}\n")),
        key(plan(command="[python, -O, a.py]")),
        key(plan(), ("torch",)),
        key(plan(), engine="other"),
        key(plan("shm_size: 128m\n")),
        key(plan("ulimits: {nofile: 2048}\n")),
        key(plan().model_copy(update={"tasks": plan().tasks[:1]})),
    ],
)
def test_what_a_container_can_not_change_makes_another_key(other: str) -> None:
    assert key(plan()) != other


def test_values_in_a_variable_are_part_of_the_key_and_in_the_command_they_are_not() -> None:
    command = '[python, a.py, "--seed=${seed}", "--rank=${rank}"]'
    assert key(plan(command=command)) == key(plan("seed: 3\n", command=command))
    assert key(plan(A="${seed}")) != key(plan("seed: 3\n", A="${seed}"))
    assert key(plan(A="${rank}")) == key(plan("seed: 3\n", A="${rank}"))
    assert key(plan(A="${rank}")) != key(plan(A="${size}"))


def test_tasks_without_a_python_program_with_a_gpu_or_without_memory_start_cold() -> None:
    assert cold_tasks(plan()) == {}
    assert "no Python program" in cold_tasks(plan(command="[sh, a.sh]"))["worker-1"]
    reasons = cold_tasks(plan("faults: [{oom: worker-0, at: 1s}]\n"))
    assert [*reasons] == ["worker-0"]
    gpu = "{name: a, program: {command: [python, a.py]}, cluster: {worker: {gpus: 1}}}"
    assert cold_tasks(make_plan(parse(gpu), "r", SITE)) == {"worker-0": "it has a GPU"}


def test_tasks_with_mounts_ports_or_parts_start_cold_and_helpers_are_in_no_key() -> None:
    mounts = cold_tasks(plan("mounts: {/cache: {volume: cache}}\n"))
    assert set(mounts) == {"worker-0", "worker-1"}
    assert "mounts" in mounts["worker-0"]
    role = "{name: a, program: {command: [python, a.py]}, cluster: {worker: {ports: [80]}, ps: 1}}"
    ports = cold_tasks(make_plan(parse(role), "r", SITE))
    assert [*ports] == ["worker-0"]
    helper = plan("helpers: {board: {command: [board], mounts: {/x: {tmpfs: 1m}}}}\n")
    assert cold_tasks(helper) == {}
    assert key(helper) == key(plan())
    text = pods.BASE.replace("[a]", "[python, a.py]") + (
        "cluster:\n  plain: 1\n  step: {init: [{name: a}]}\n"
        "  file: {files: {/x: a}}\n  home: {working_dir: /x}\n  bare: {entrypoint: none}\n"
    )
    assert set(cold_tasks(pods.planned(text))) == {"step-0", "file-0", "home-0"}


def test_an_image_names_what_is_imported_and_else_its_framework_does() -> None:
    tensorflow = plan().scenario
    assert preload_of(tensorflow, "worker") == ("tensorflow", "tf_keras")
    named = plan("image: {name: cpu, preload: [numpy]}\n").scenario
    assert preload_of(named, "worker") == ("numpy",)
    assert preload_of(plan("framework: none\n").scenario, "worker") == ()


def test_a_request_starts_the_interpreter_with_its_options_and_is_an_init_itself() -> None:
    body = {"Cmd": ["x"], "Env": ["A=1", "EMULATOR_RUN=r"], "HostConfig": {"Init": True}}
    task = plan(command="[python3, -O, a.py]").tasks[0]
    request = warm_request(body, task, ["json"])
    assert request["Entrypoint"][:3] == ["python3", "-O", "/.emulator/parent.py"]
    assert json.loads(request["Entrypoint"][3])["options"] == ["-O"]
    assert request["Env"] == ["A=1"]
    assert request["HostConfig"] == {"Init": False}


# --- Clusters that wait for runs: taken by one process, given back, removed -----------------------

WAITING = {"worker-0": Waiting("c0", "s0", "10.0.0.2", ("/root",)), "worker-1": Waiting("c1", "s")}


@pytest.fixture
def clusters(tmp_path: Path) -> Pool:
    return Pool("engine", tmp_path / "warm")


def waits(clusters: Pool, key: str = "k") -> str:
    cluster = clusters.make(key)
    clusters.give_back(cluster, WAITING)
    return cluster.id


def test_a_cluster_that_was_given_back_is_taken_by_one_who_needs_such_a_one(clusters: Pool) -> None:
    made = waits(clusters)
    assert pool.waits(clusters.folder / made)
    assert clusters.take_cluster("other") is None
    taken = clusters.take_cluster("k")
    assert taken is not None
    assert (taken.id, taken.waiting) == (made, WAITING)
    assert clusters.take_cluster("k") is None
    clusters.give_back(taken, WAITING)
    assert clusters.take_cluster("k") is not None


def test_another_process_can_not_take_it_meanwhile_nor_end_it(clusters: Pool) -> None:
    made = clusters.make("k")
    script = (
        "import sys; from pathlib import Path; from emulator.engines.docker.warm.pool import Pool\n"
        "pool = Pool('engine', Path(sys.argv[1]))\n"
        "print(pool.take_cluster('k'), list(pool.ended()))"
    )
    command = [sys.executable, "-c", script, str(clusters.folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "None []\n"
    clusters.abandon(made)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"None ['{made.id}']\n"


def test_one_that_has_waited_too_long_is_not_taken_but_ended(
    clusters: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "IDLE", -1.0)
    made = waits(clusters)
    assert not pool.waits(clusters.folder / made)
    assert clusters.take_cluster("k") is None
    assert list(clusters.ended()) == [made]
    assert list(clusters.folder.iterdir()) == []


def test_a_session_ends_those_that_it_made_and_no_others(
    clusters: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits(clusters)
    monkeypatch.setenv(WARM_SESSION, "mine")
    mine = waits(clusters)
    assert list(clusters.ended(session="mine")) == [mine]
    assert list(clusters.ended()) == []


def test_the_oldest_are_ended_where_too_many_containers_wait(clusters: Pool) -> None:
    ids = []
    for number in range(3):
        ids.append(waits(clusters))
        state = clusters.folder / ids[-1] / "waiting.json"
        os.utime(state, (1000.0 + number, 1000.0 + number))
    assert list(clusters.ended(most=4)) == [ids[0]]
    assert list(clusters.ended(most=4)) == []


def test_one_that_was_not_removed_is_tried_again_but_by_no_other_engine(clusters: Pool) -> None:
    made = clusters.make("k")
    clusters.abandon(made)
    assert list(Pool("other", clusters.folder).ended()) == []
    ended = clusters.ended()
    assert next(ended) == made.id
    ended.close()  # as where the engine fails
    assert list(clusters.ended()) == [made.id]


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"key": "k"}'])
def test_a_damaged_state_is_that_of_a_leftover(clusters: Pool, text: str) -> None:
    made = waits(clusters)
    (clusters.folder / made / "waiting.json").write_text(text)
    assert clusters.take_cluster("k") is None
    assert list(clusters.ended()) == [made]


def test_nothing_is_removed_that_is_not_named_as_ours(clusters: Pool, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").touch()
    name = waits(clusters)
    (clusters.folder / "mine").mkdir()
    link = clusters.folder / f"{name}x"
    link.symlink_to(victim)
    assert list(clusters.ended(session="")) == []
    clusters.abandon(clusters.make("k"))
    list(clusters.ended())
    assert (victim / "file").exists()
    assert link.is_symlink()
    assert (clusters.folder / "mine").is_dir()
