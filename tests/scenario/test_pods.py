"""Init steps, files and commands of a scenario, and what the plan makes of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from emulator.engines import engine_class
from emulator.engines.requirements import require
from emulator.errors import Unsupported
from emulator.planning.plan import Plan
from emulator.planning.planner import make_plan
from emulator.scenario.container import File
from emulator.scenario.loader import parse
from tests.histories import SITE
from tests.scenario.mistakes import only_problem

pytestmark = pytest.mark.usefixtures("in_a_folder")

BASE = "name: test\nframework: none\nprogram: {command: [a]}\n"


def planned(text: str, folder: Path = Path()) -> Plan:
    site = replace(SITE, image=lambda image: f"{image}:1")
    return make_plan(parse(text, folder=folder), "run-1", site)


# --- What is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("role", "expected"),
    [
        ("{init: [{command: [a]}]}", "5: cluster.w.init.0.name: is missing"),
        ("{init: [{name: Fetch}]}", "init.0.name: 'Fetch' is not the name of a container"),
        ("{init: [{name: ../x}]}", "init.0.name: '../x' is not the name of a container"),
        ("{init: [{name: a}, {name: a}]}", "init.1.name: w has another init step called a"),
        ("{init: [{name: a, ports: [80]}]}", "init.0.ports: unknown key"),
        ("{init: [{name: a, env: {EMULATOR_RUN: x}}]}", "env.EMULATOR_RUN: is set by the"),
        ("{init: [{name: a, entrypoint: none}]}", "init.0: without the image's entry"),
        ("{sidecars: [{name: a}]}", "5: cluster.w.sidecars: was removed (start it in the task's"),
        ("{command: [], entrypoint: none}", "cluster.w: without the image's entry point and"),
        ("{init: [{name: a, command: ['${indx}']}]}", "init.0.command.0: there is no value"),
        ("{working_dir: app}", "working_dir: 'app' is not a path in a container, such as /app"),
        ("{working_dir: /a/../b}", "is not in its shortest form; write /b"),
        ("{working_dir: /proc/self}", "is a folder of the kernel"),
        ("{files: {/etc/../x: a}}", "is not in its shortest form; write /x"),
        ("{files: {../../etc/passwd: a}}", "is not a path in a container"),
        ("{files: {/dev/x: a}}", "nothing can be mounted in /dev"),
        ("{files: {/x: {}}}", "files./x: a file has either `text` or `base64`"),
        ("{files: {/x: {text: a, base64: YQ==}}}", "a file has either `text` or `base64`"),
        ("{files: {/x: {base64: '?'}}}", "its `base64` is not base64"),
        ("{files: {/x: {text: a, mode: 755}}}", "755 is not a file's mode; write it in quotes"),
        ("{files: {/x: {text: a, mode: '4755'}}}", "is not a file's mode"),
        ("{files: {/x: a, /x/y: b}}", "files./x: is a file, and the folder of /x/y as well"),
        ("{mounts: {/d: .}, files: {/d/x: a}}", "files./d/x: lies in what is mounted at /d"),
        ("{mounts: {/d: {volume: vv}}, files: {/d: a}}", "files./d: lies in what is mounted"),
        ("{mounts: {/d: {scratch: a/b}}}", "can't be the name of a scratch volume"),
        ("{mounts: {/d: {scratch: a, tmpfs: 1m}}}", "this has tmpfs and scratch"),
        ("{source: ., working_dir: /shared/x}", "working_dir: the program would be copied to"),
        ("{source: ., working_dir: /x, mounts: {/x: .}}", "mounts./x: the program is copied to"),
        ("{source: ., working_dir: /x/y, mounts: {/x: .}}", "which would be in this mount"),
        ("{source: ., working_dir: /x, mounts: {/x/here: .}}", "the program has here as well"),
    ],
)  # fmt: skip
def test_a_mistake_has_its_line_and_what_to_write(tmp_path: Path, role: str, expected: str) -> None:
    (tmp_path / "here").mkdir()
    assert expected in only_problem(f"{BASE}cluster:\n  w: {role}\n", folder=tmp_path)


def test_a_scratch_volume_may_hold_the_program_and_its_files(tmp_path: Path) -> None:
    role = "{source: ., working_dir: /w/app, mounts: {/w: {scratch: w}}, files: {/w/app/x: a}}"
    scenario = parse(f"{BASE}cluster:\n  w: {role}\n", folder=tmp_path)
    assert scenario.cluster["w"].working_dir == "/w/app"


def test_a_mistake_of_the_job_is_reported_once() -> None:
    text = "name: test\nframework: none\nprogram: {command: [a], files: {/d/x: a}}\n"
    text += "mounts: {/d: {tmpfs: 1m}}\ncluster: {a: 2, b: 3}\n"
    assert "program.files./d/x: lies in what is mounted at /d" in only_problem(text)


# --- What the plan makes of it --------------------------------------------------------------------

POD = """\
name: test
framework: tensorflow
image: base
program: {command: [a], entrypoint: none, working_dir: /srv, files: {/etc/k: job, /etc/j: job}}
mounts: {/all: {tmpfs: 1m}}
cluster:
  worker:
    replicas: 2
    image: own
    files: {/etc/k: role}
    init: [{name: get, command: [get, "${address}"], env: {N: "${index}"}, files: {/k: step}}]
  ps: {command: [], working_dir: /ps, entrypoint: image}
helpers: {board: {command: [b], files: {/etc/b: helper}}}
"""


def test_a_role_inherits_from_the_program_what_it_does_not_set() -> None:
    plan = planned(POD)
    worker, ps = plan.task("worker-0"), plan.task("ps-0")
    assert (worker.command, worker.entrypoint, worker.working_dir) == (("a",), "none", "/srv")
    assert (ps.command, ps.entrypoint, ps.working_dir) == ((), "image", "/ps")


def test_files_are_looked_up_and_not_stored_with_each_task() -> None:
    plan = planned(POD)
    texts = {
        name: {path: file.text for path, file in plan.files(task).items()}
        for task in plan.everything
        for name, task in [(task.name, task), *((one.name, one) for one in task.init)]
    }
    assert texts == {
        "worker-0": {"/etc/k": "role", "/etc/j": "job"},
        "worker-1": {"/etc/k": "role", "/etc/j": "job"},
        "worker-0.get": {"/k": "step"},
        "worker-1.get": {"/k": "step"},
        "ps-0": {"/etc/k": "job", "/etc/j": "job"},
        "board": {"/etc/b": "helper"},
    }


def test_a_stored_plan_is_read_again() -> None:
    plan = planned(POD)
    assert Plan.model_validate_json(plan.model_dump_json(), context={"stored": True}) == plan
    assert File(base64="AP8=\n").content == b"\0\xff"


# --- Engines --------------------------------------------------------------------------------------


def test_an_engine_without_containers_says_everything_that_it_lacks() -> None:
    with pytest.raises(Unsupported) as refused:
        require(parse(POD), engine_class("process")())
    assert "mount at /all for every task" in refused.value.message
    for what in (
        "init steps for worker",
        *("files for worker", "files for ps", "files for board"),
        *("the working directory /srv for worker", "the working directory /ps for ps"),
        "the image's own command for ps",
    ):
        assert what in refused.value.message
    assert "Use --engine docker" in refused.value.hint
