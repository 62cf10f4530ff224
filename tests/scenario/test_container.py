"""What a scenario says about containers and helpers: read, merged, or refused by line."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from emulator.engines import engine_class
from emulator.engines.docker.container_request import container_request, mount_request
from emulator.engines.memory import MemoryEngine
from emulator.engines.requirements import needs, require_of
from emulator.errors import ScenarioError, Unsupported
from emulator.planning.plan import Plan
from emulator.planning.planner import make_plan
from emulator.runtime.clock import ManualClock
from emulator.scenario.loader import parse
from emulator.scenario.schema import Scenario
from tests.histories import SITE
from tests.scenario.mistakes import only_problem

BASE = "name: good\nframework: none\nprogram: {command: [python, train.py]}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    (tmp_path / "train.py").write_text("")
    return tmp_path


def read(text: str, folder: Path = Path()) -> Scenario:
    cluster = "" if "cluster:" in text else "cluster: {worker: 1}\n"
    return parse(BASE + cluster + text, folder=folder)


def planned(text: str, folder: Path = Path()) -> Plan:
    return make_plan(read(text, folder), "run-1", SITE)


def host_config(plan: Plan, name: str) -> dict[str, object]:
    found: dict[str, object] = container_request(plan, plan.task(name), {})["HostConfig"]
    return found


PROCESSES = engine_class("process")()
HELPER = "helpers: {a: {command: [c]}}"
NO_FAULTS = "a is a helper; faults and their triggers are for tasks"

# --- Errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("mounts: {/data: nowhere}", "mounts./data: there is no "),
        ("mounts: {data: data}", "mounts.data: 'data' is not a path in a container"),
        ("mounts: {/a/: data}", "mounts./a/: '/a/' is not in its shortest form; write /a"),
        ("mounts: {/a/../b: data}", "is not in its shortest form; write /b"),
        ("mounts: {//a: data}", "is not in its shortest form; write /a"),
        ("mounts: {/: data}", "mounts./: / can't be mounted over"),
        ("mounts: {/job: data}", "mounts./job: /job can't be mounted over; mount at a folder"),
        ("mounts: {/shared/x: data}", "nothing can be mounted in /shared; choose another path"),
        ("mounts: {/dev/shm: {tmpfs: 1g}}", "nothing can be mounted in /dev; choose"),
        ("mounts: {/a: {}}", "one of `path`, `volume`, `tmpfs` and `scratch`; this has none"),
        ("mounts: {/a: {path: data, volume: abc}}", "this has path and volume"),
        ("mounts: {/a: {tmpfs: 1m, writable: false}}", "a tmpfs is empty and always writable"),
        ("mounts: {/a: {volume: ../b}}", "'../b' is not the name of a volume"),
        ("mounts: {/a: {vol: abc}}", "mounts./a.vol: unknown key (did you mean 'volume'?)"),
        ("mounts: {/a: /proc/self}", "is a kernel folder, which can't be mounted"),
        ("mounts: {/a: pipe}", "is a named pipe; only files and folders can be mounted"),
        ("shm_size: 64", "shm_size: '64' is not a size"),
        ("shm_size: 0m", "shm_size: '0m' should be greater than 0"),
        ("ulimits: {nofle: 1}", "ulimits.nofle: 'nofle' is not allowed (did you mean 'nofile'?)"),
        ("ulimits: {nofile: some}", "'some' is no limit; write a number, a size such as 64m, or"),
        ("ulimits: {nofile: -2}", "ulimits.nofile"),
        ("ulimits: {nofile: {soft: 3, hard: 2}}", "the soft limit is above the hard one"),
        ("ulimits: {nofile: {soft: unlimited, hard: 2}}", "the soft limit is above the hard one"),
        ("cluster: {a: {ports: [0]}}", "cluster.a.ports.0: 0 should be greater than or"),
        ("cluster: {a: {ports: [80, 80]}}", "cluster.a.ports: port 80 is there twice"),
        (
            "cluster: {a: {replicas: 2, ports: [{port: 8, host_port: 9}]}}",
            "cluster.a.ports.0: 2 tasks can't all have the port 9 of the machine (write `8`:",
        ),
        (
            "cluster: {a: {ports: [{port: 8, host_port: 9}]},"
            " b: {ports: [{port: 8, host_port: 9}]}}",
            "cluster.b.ports.0: cluster.a has the machine's port 9 (choose another `host_port`",
        ),
        (
            "network: {internet: false}\nhelpers: {a: {command: [b], ports: [80]}}",
            "helpers.a.ports: can't be published from a network without internet",
        ),
        ("helpers: {a: {}}", "helpers.a.command: is missing (write `command: [python, train.py]`)"),
        ("helpers: {A_b: {command: [c]}}", "helpers.A_b: can't be a host name"),
        (
            "helpers: {worker-7: {command: [c]}}",
            "helpers.worker-7: has the name of a task: worker is a role of the cluster",
        ),
        (
            "helpers: {a: {command: [c], env: {EMULATOR_TASK: b}}}",
            "helpers.a.env.EMULATOR_TASK: is set by the emulator itself",
        ),
        (
            "helpers: {a: {command: [c, '${index}']}}",
            "helpers.a.command.1: there is no value ${index}",
        ),
        (
            "helpers: {a: {command: [c], env: {B: '${host.ab}'}}}",
            "helpers.a.env.B: there is no value ${host.ab} (did you mean ${host.a}?",
        ),
        (f"{HELPER}\nfaults: [{{kill: a, at: 1s}}]", f"faults.0.kill: {NO_FAULTS}"),
        (f"{HELPER}\nfaults: [{{kill: worker-0, at: {{log: x, task: a}}}}]", NO_FAULTS),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_by_line_with_a_hint(folder: Path, text: str, problem: str) -> None:
    os.mkfifo(folder / "pipe")
    cluster = "" if "cluster:" in text else "cluster: {worker: 1}\n"
    found = only_problem(BASE + cluster + text, folder=folder)
    assert found.startswith("s.yaml:")
    assert problem in found


def test_nothing_is_mounted_where_the_program_has_something_itself(folder: Path) -> None:
    source = BASE.replace("{command", f"{{source: {folder}, command")
    for target, wrong in [("/job/data", True), ("/job/data/more", True), ("/job/other", False)]:
        text = f"{source}cluster: {{worker: 1}}\nmounts: {{{target}: {folder}/data}}\n"
        if wrong:
            with pytest.raises(ScenarioError, match="the program has data as well"):
                parse(text)
        else:
            parse(text)
    one_file = source.replace(str(folder), f"{folder}/train.py")
    with pytest.raises(ScenarioError, match=r"the program has train\.py as well"):
        parse(f"{one_file}cluster: {{a: {{mounts: {{/job/train.py: {folder}/data}}}}}}\n")
    parse(f"{one_file}cluster: {{worker: 1}}\nmounts: {{/job/data: {folder}/data}}\n")


def test_the_examples_of_the_page_are_right(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "scenario.md").read_text()
    examples = [
        text
        for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
        if text.startswith(("mounts:", "helpers:"))
    ]
    assert len(examples) == 2
    folder = tmp_path / "scenarios"
    for made in (tmp_path / "data", folder, folder / "results"):
        made.mkdir()
    for text in examples:
        scenario = read(text, folder)
        assert scenario.mounts or scenario.helpers


# --- What containers get ----------------------------------------------------------------------


def test_a_role_adds_to_what_every_task_has(folder: Path) -> None:
    plan = planned(
        "mounts: {/data: data, /cache: {volume: cache}}\nshm_size: 256m\n"
        "ulimits: {nofile: 2048, memlock: unlimited}\n"
        "cluster:\n  worker: 1\n"
        "  ps:\n    mounts: {/cache: {tmpfs: 64m}, /log: {path: data, writable: true}}\n"
        "    shm_size: 1g\n    ulimits: {nofile: {soft: 10, hard: 20}}\n    ports: [80]\n",
        folder,
    )
    worker, ps = host_config(plan, "worker-0"), host_config(plan, "ps-0")
    data = {"Type": "bind", "Source": f"{folder}/data", "ReadOnly": True}
    assert worker["Mounts"] == [
        {"Type": "volume", "Source": plan.resources, "Target": "/shared"}
        | {"VolumeOptions": {"Labels": {}}},
        {**data, "Target": "/data"},
        {"Type": "volume", "Source": "cache", "Target": "/cache", "ReadOnly": False},
    ]
    assert ps["Mounts"][1:] == [  # type: ignore[index]
        {**data, "Target": "/data"},
        {"Type": "tmpfs", "Target": "/cache", "TmpfsOptions": {"SizeBytes": 64 * 2**20}},
        {**data, "Target": "/log", "ReadOnly": False},
    ]
    assert (worker["ShmSize"], ps["ShmSize"]) == (256 * 2**20, 2**30)
    memlock = {"Name": "memlock", "Soft": -1, "Hard": -1}
    assert worker["Ulimits"] == [{"Name": "nofile", "Soft": 2048, "Hard": 2048}, memlock]
    assert ps["Ulimits"] == [{"Name": "nofile", "Soft": 10, "Hard": 20}, memlock]
    assert "PortBindings" not in worker
    assert ps["PortBindings"] == {"80/tcp": [{"HostIp": "127.0.0.1", "HostPort": ""}]}


def test_a_volume_of_the_users_has_no_label_of_ours() -> None:
    """By which it would be found, and removed, with what a run has made."""
    mount = read("mounts: {/cache: {volume: cache}}").mounts["/cache"]
    assert mount_request("/cache", mount).keys() == {"Type", "Source", "Target", "ReadOnly"}


def test_a_task_is_told_where_a_helper_is() -> None:
    helper = "helpers: {sink: {command: [s]}}"
    worker = "{replicas: 2, command: [train, '--sink=${host.sink}:9000']}"
    plan = planned(f"cluster: {{worker: {worker}}}\n{helper}\n")
    assert [task.command[1] for task in plan.tasks] == ["--sink=sink:9000"] * 2


def test_a_stored_plan_is_read_where_its_paths_do_not_exist(folder: Path) -> None:
    plan = planned("mounts: {/data: data}\nhelpers: {a: {command: [b], ports: [1]}}\n", folder)
    (folder / "data").rmdir()
    stored = plan.model_dump_json()
    assert Plan.model_validate_json(stored, context={"stored": True}) == plan


# --- What engines can do ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("mounts: {/data: data}", "a mount at /data for every task"),
        ("cluster: {a: {mounts: {/x: {tmpfs: 1m}}}}", "a mount at /x for a"),
        ("shm_size: 1g", "a size of /dev/shm for every task"),
        ("helpers: {a: {command: [b], ulimits: {nofile: 1}}}", "ulimits for a"),
        ("helpers: {a: {command: [b], memory: 1g}}", "a memory limit for a"),
        ("cluster: {a: {ports: [{port: 8, host_port: 9}]}}", "port 8 of a at another port, 9"),
        ("cluster: {a: {replicas: 3, ports: [8, 9]}}", "port 8 for 3 tasks; port 9 for 3 tasks"),
        (
            "cluster: {a: {ports: [8]}}\nhelpers: {b: {command: [c], ports: [8]}}",
            "port 8 for 2 tasks",
        ),
    ],
)
def test_the_process_engine_refuses_what_it_can_not_do(
    folder: Path, text: str, refused: str
) -> None:
    scenario = read(text, folder)
    with pytest.raises(Unsupported) as error:
        require_of(PROCESSES, needs(scenario))
    assert str(error.value) == (
        f"The process engine can't do this: {refused}. Use --engine docker, or leave these out."
    )
    require_of(MemoryEngine(ManualClock()), needs(scenario))
