"""The plan: tasks, environments, devices and warnings, decided before anything starts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.errors import Unsupported
from emulator.metrics import event_files
from emulator.planning.context import (
    LEAST_PROCESSES,
    Limits,
    PlanContext,
    machine_limits,
    reserved,
    usual_pid_max,
)
from emulator.planning.plan import Plan, Task, new_run_id
from emulator.planning.planner import event_reader, make_plan
from emulator.scenario.loader import parse
from emulator.scenario.schema import AnyImage, Dockerfile

BASE = "name: test\nprogram: {command: [python, t.py]}\n"


def nowhere() -> Sequence[str]:
    raise AssertionError("no task asked for a GPU")


SITE = PlanContext(
    engine="fake",
    address=lambda name: (name, 2222),
    image=lambda expected: "custom" if isinstance(expected, Dockerfile) else f"ref-{expected}",
    gpus=nowhere,
    shared="/shared",
)


def plan(text: str, site: PlanContext = SITE, run_id: str = "test-1") -> Plan:
    return make_plan(parse(BASE + text), run_id, site)


def with_gpus(*devices: str) -> PlanContext:
    return replace(SITE, gpus=lambda: devices)


def handed_out(text: str, *devices: str) -> dict[str, tuple[str, ...]]:
    return {task.name: task.gpus for task in plan(text, with_gpus(*devices)).tasks}


def test_the_image_follows_the_framework_where_none_is_named() -> None:
    made = plan("framework: pytorch\ncluster: {master: 1, worker: {image: cpu}}\n")
    assert [task.image for task in made.tasks] == ["ref-pytorch", "ref-cpu"]


def test_a_task_has_all_that_the_scenario_says() -> None:
    made = plan("cluster: {worker: {replicas: 2, cpus: 1.5, memory: 1g}, ps: 1}\nseed: 7\n")
    assert [task.name for task in made.tasks] == ["worker-0", "worker-1", "ps-0"]
    assert made.task("worker-1") == Task(
        name="worker-1",
        role="worker",
        index=1,
        host="worker-1",
        port=2222,
        image="ref-auto",
        command=("python", "t.py"),
        env={
            **{"PYTHONUNBUFFERED": "1", "EMULATOR_RUN": "test-1", "EMULATOR_TASK": "worker-1"},
            **{"EMULATOR_ROLE": "worker", "EMULATOR_INDEX": "1", "EMULATOR_RANK": "1"},
            **{"EMULATOR_SIZE": "2", "EMULATOR_SHARED": "/shared", "EMULATOR_SEED": "7"},
            "TF_CONFIG": made.task("worker-1").env["TF_CONFIG"],
        },
        cpus=1.5,
        memory=1024**3,
    )
    assert (made.task("ps-0").cpus, made.task("ps-0").memory) == (None, None)
    limited = replace(SITE, limits=lambda containers: Limits(7, containers))
    made = plan("cluster: {worker: {replicas: 2, memory: 1g}, ps: {processes: 99}}\n", limited)
    limits = [(task.memory_limit, task.process_limit) for task in made.tasks]
    assert limits == [(1024**3, 3), (1024**3, 3), (7, 99)]
    made = plan("cluster: {worker: {replicas: 2, memory: 1g}, ps: 1}\nseed: 7\n")
    assert (made.run_id, made.engine) == ("test-1", "fake")
    with pytest.raises(KeyError, match="worker-2"):
        made.task("worker-2")


def test_an_image_is_looked_for_once_however_many_tasks_have_it(tmp_path: Path) -> None:
    """The tag of a user's own is made of all its files."""
    asked: list[object] = []

    def image(expected: AnyImage) -> str:
        asked.append(expected)
        return "custom" if isinstance(expected, Dockerfile) else str(expected)

    (tmp_path / "Dockerfile").touch()
    text = f"image: {{dockerfile: {tmp_path}/Dockerfile}}\ncluster: {{worker: 400, ps: 50}}\n"
    text = text.replace("ps: 50", "ps: 50, chief: {image: cpu}")
    made = plan(text, replace(SITE, image=image))
    assert len(asked) == 2
    images = [made.task(name).image for name in ("worker-9", "ps-1", "chief-0")]
    assert images == ["custom", "custom", "cpu"]


def test_the_nearer_environment_wins() -> None:
    """Ours, then the framework's, then the program's, then the role's."""
    text = """\
name: test
program: {command: [a], env: {A: program, B: program, PYTHONUNBUFFERED: "0"}}
cluster: {worker: {replicas: 2, env: {A: role, C: role}}, ps: 1}
"""
    made = make_plan(parse(text), "test-1", SITE)
    worker, server = made.task("worker-0").env, made.task("ps-0").env
    assert (worker["A"], worker["B"], worker["C"]) == ("role", "program", "role")
    assert (server["A"], server["B"], server.get("C")) == ("program", "program", None)
    assert worker["PYTHONUNBUFFERED"] == "0"


# --- GPUs ---------------------------------------------------------------------------------------


TURNS = "cluster: {worker: {replicas: 3, gpus: {count: COUNT, shared: true}}}"
BOTH = "cluster: {ps: {replicas: 2, gpus: {shared: true}}, worker: {replicas: 2, gpus: 1}}"


@pytest.mark.parametrize(
    ("text", "devices", "of_tasks"),
    [
        # Each task has devices of its own.
        (
            "cluster: {chief: 1, worker: {replicas: 2, gpus: 2}}",
            "abcd",
            {"chief-0": "", "worker-0": "ab", "worker-1": "cd"},
        ),
        # Tasks that share take turns over all devices.
        (TURNS.replace("COUNT", "1"), "ab", {"worker-0": "a", "worker-1": "b", "worker-2": "a"}),
        (
            TURNS.replace("COUNT", "2"),
            "abc",
            {"worker-0": "ab", "worker-1": "ca", "worker-2": "bc"},
        ),
        # They leave the others their own, as long as any is left.
        (BOTH, "abc", {"ps-0": "c", "ps-1": "c", "worker-0": "a", "worker-1": "b"}),
        (BOTH, "ab", {"ps-0": "a", "ps-1": "b", "worker-0": "a", "worker-1": "b"}),
    ],
)
def test_devices_are_handed_out(text: str, devices: str, of_tasks: dict[str, str]) -> None:
    expected = {task: tuple(own) for task, own in of_tasks.items()}
    assert handed_out(text, *devices) == expected


def test_jax_is_told_of_several_devices() -> None:
    """With a task id of Slurm it uses one."""
    for gpus, told in ((1, None), (2, "0,1")):
        text = f"framework: jax\ncluster: {{worker: {{replicas: 2, gpus: {gpus}}}}}"
        for task in plan(text, with_gpus(*"abcd")).tasks:
            assert task.env.get("JAX_LOCAL_DEVICE_IDS") == told


@pytest.mark.parametrize(
    ("gpus", "devices", "why"),
    [
        ("1", [], "worker-0 asks for a GPU, but the fake engine has none."),
        ("1", ["a"], "worker-1 asks for 1 GPU(s), but only 0 of 1 are left"),
        ("2", ["a", "b", "c"], "worker-1 asks for 2 GPU(s), but only 1 of 3 are"),
        ("{count: 2, shared: true}", ["a"], "worker-0 asks for 2 GPU(s), but only 1 of 1 are left"),
    ],
)
def test_too_few_gpus_are_refused_with_the_task_that_lacks_them(
    gpus: str, devices: list[str], why: str
) -> None:
    with pytest.raises(Unsupported) as refused:
        handed_out(f"cluster: {{worker: {{replicas: 2, gpus: {gpus}}}}}", *devices)
    assert refused.value.message.startswith(why)
    assert ("gpus:" in refused.value.hint) == bool(devices)
    # A manifest, which has no such key, is told how to do without any.
    assert ("--without-gpus" in refused.value.hint) == (not devices)
    assert refused.value.keys == ((("cluster", "worker", "gpus"), refused.value.message[:-1]),)


# --- Warnings -----------------------------------------------------------------------------------


TWO = "cluster: {worker: 2}\n"
SHARE = "expect: {throughput: {at_least: 0.9, of: reference}}"
TORCHRUN = "framework: pytorch\ncluster: {worker: {replicas: 2, command: [torchrun, t.py]}}\n"
ELASTIC = "elastic: {min: 1, max: 2, max_restarts: 3}\n"
C10D = TORCHRUN.replace("torchrun,", "torchrun, --rdzv_backend=c10d,")
OWN_STORE = TORCHRUN.replace("{r", "{env: {TORCH_DISABLE_SHARE_RDZV_TCP_STORE: 1}, r") + ELASTIC
KILL = "faults: [{kill: worker-1, at: 5s}]\n"
LOST = "torchrun without `elastic`: once a task is lost, the others end too, within 60 s; `%s: {min"


@pytest.mark.parametrize(
    ("text", "warnings"),
    [
        (TWO, []),
        ("cluster: {chief: 1, worker: 2, ps: 1, evaluator: 1}", []),
        ("cluster: {worker: 1}", ["a single task"]),
        ("cluster: {worker: 2, ps: 1}", ["parameter servers without a chief"]),
        ("cluster: {worker: 2, ps: 1}\nrendezvous: cluster-config", []),
        ("cluster: {worker: 1}\nrendezvous: cluster-config", ["a single task: no CLUSTER_CONFIG"]),
        (
            "cluster: {worker: 1}\naddresses: {host: '{task}.x'}",
            ["a single task: no TF_CONFIG", "addresses are approximated"],
        ),
        ("cluster: {chief: 1, ps: 1}", ["parameter servers without workers"]),
        ("cluster: {evaluator: 1}", ["a single task", "an evaluator alone"]),
        ("cluster: {worker: 1}\nframework: none", []),
        (TWO + "restart: always", ["restart always"]),
        (TWO + "restart: {policy: always, scope: job}", []),
        (TWO + "expect: {max_restarts: 3}", ["max_restarts is expected, but"]),
        (TWO + "expect: {max_restarts: 0}", []),
        (TWO + "restart: on-failure\nexpect: {max_restarts: 3}", []),
        (
            TWO + "parametrize: {seed: [0, 1, 2], cluster.worker: [2, 4]}",
            ["parametrize: pytest runs 6 variants; this is the scenario as written"],
        ),
        (TWO + "reference: {seed: 1}", ["there is a reference, but no expect.thr"]),
        (TWO + "reference: {seed: 1}\n" + SHARE, []),
        ("framework: mpi\ncluster: {launcher: 1, worker: 2}", []),
        ("framework: mpi\ncluster: {worker: 2}", ["no launcher: nothing runs mpirun"]),
        ("framework: mpi\ncluster: {launcher: 1}", ["no worker: mpirun has no hosts"]),
        ("framework: ray\ncluster: {head: 1, worker: 2}", []),
        ("framework: ray\ncluster: {worker: 2}", ["no head: ray.init() would start a cluster of"]),
        (TORCHRUN, []),
        (TORCHRUN + "restart: on-failure", [LOST % "elastic"]),
        (TORCHRUN + KILL, [LOST % "elastic"]),
        (C10D + KILL, []),
        (TORCHRUN.replace("replicas: 2", "replicas: 1") + "restart: on-failure", []),
        (TORCHRUN.replace("torchrun,", "torchrun, --standalone,"), ["torchrun --standalone: each"]),
        (
            TORCHRUN.replace("torchrun,", "torchrun, --standalone,").replace("s: 2", "s: 1"),
            [],
        ),
        (OWN_STORE + "restart: on-failure", []),
        (OWN_STORE.replace("torchrun", "sh") + "restart: on-failure", []),
        (
            TORCHRUN + "elastic: {min: 1}",
            ["elastic without max_restarts", "elastic: a task that", "elastic with restart.policy"],
        ),
        (
            TORCHRUN + ELASTIC + "restart: {policy: on-failure, scope: job}",
            ["elastic: a task that comes back", "elastic with restart.scope job"],
        ),
        (
            TORCHRUN.replace("torchrun,", "torchrun, --rdzv_backend=etcd, --rdzv_endpoint=etcd:1,"),
            ["no task and no helper is called etcd, where torchrun's rendezvous is: leave"],
        ),
        (
            OWN_STORE.replace("torchrun", "python") + "restart: on-failure",
            ["elastic: no command runs torchrun"],
        ),
    ],
)
def test_what_is_rarely_meant_is_warned_of(text: str, warnings: list[str]) -> None:
    result = plan(text).warnings
    assert len(result) == len(warnings)
    assert all(found.startswith(warning) for found, warning in zip(result, warnings, strict=True))


@pytest.mark.parametrize(
    ("endpoint", "more", "answers"),
    [
        ("etcd:2379", "", False),
        ("etcd.team.svc.cluster.local:2379", "", False),
        ("worker-2:29400", "", False),  # there are two
        ("worker-1:29400", "", True),
        ("etcd:2379", "helpers: {etcd: {command: [etcd]}}\n", True),
        ("10.0.0.7:2379", "", True),
        ("localhost:29400", "", True),
        ("etcd.example.com:2379", "", True),  # it may be there
        ("$MASTER:2379", "", True),  # a shell knows
    ],
)
def test_a_rendezvous_where_nothing_answers_is_warned_of(
    endpoint: str, more: str, answers: bool
) -> None:
    for text in (
        TORCHRUN.replace("torchrun,", f"torchrun, --rdzv-endpoint, '{endpoint}',"),
        TORCHRUN.replace("torchrun,", f"torchrun, '--rdzv_endpoint={endpoint}',"),
        TORCHRUN.replace("{r", f"{{env: {{PET_RDZV_ENDPOINT: '{endpoint}'}}, r"),
    ):
        found = [one for one in plan(text + more).warnings if "no task and no helper" in one]
        assert bool(found) != answers


# --- The plan as a value ------------------------------------------------------------------------


def test_the_same_scenario_gives_the_same_plan() -> None:
    scenario = parse(BASE + BOTH + "\nfaults: [{random: {kill: 'worker-*'}, every: 10s, max: 5}]\n")

    def made(**changes: int) -> Plan:
        changed = scenario.model_copy(update=changes)
        return make_plan(changed, "run-1", with_gpus("a", "b"))

    assert made().model_dump_json() == made().model_dump_json()
    assert made().faults != made(seed=4).faults


def test_a_run_id_begins_with_the_name_and_is_no_other_runs() -> None:
    ids = {new_run_id("a-name") for _ in range(10)}
    assert len(ids) == 10
    assert all(re.fullmatch(r"a-name-\d{10}-[0-9a-f]{6}", run_id) for run_id in ids)


# --- Values and programs of a role ----------------------------------------------------------------


def test_a_role_may_have_a_program_of_its_own(tmp_path: Path) -> None:
    for name in ("train.py", "serve.py"):
        (tmp_path / name).touch()
    text = """\
name: test
image: cpu
program: {source: train.py, command: [python, train.py]}
cluster:
  worker: 1
  ps: {source: serve.py, command: [python, serve.py], env: {A: b}, image: other:1}
  chief: 1
"""
    made = make_plan(parse(text, folder=tmp_path), "test-1", SITE)
    train = (tmp_path / "train.py", ("python", "train.py"), "ref-cpu")
    serve = (tmp_path / "serve.py", ("python", "serve.py"), "ref-other:1")
    assert [(task.source, task.command, task.image) for task in made.tasks] == [train, serve, train]


def test_run_folders_are_not_copied_with_a_program_that_they_are_in(tmp_path: Path) -> None:
    folder = f"name: a\nprogram: {{source: {tmp_path}, exclude: [data], command: [sh]}}\n"
    given = parse(folder + "cluster: {worker: 1}\n")
    (task,) = make_plan(given, "test-1", replace(SITE, out=tmp_path / "runs")).tasks
    assert task.exclude == ("data", "/runs/")


def test_a_framework_that_tasks_can_not_import_is_a_warning() -> None:
    text = "name: a\nframework: pytorch\nprogram: {command: [python, a.py]}\ncluster: {worker: 1}\n"
    bare = replace(SITE, python="/env/bin/python", has_module=lambda python, module: False)
    (warning,) = make_plan(parse(text), "test-1", bare).warnings
    assert warning.startswith(
        "/env/bin/python, in which tasks of the fake engine run, has no torch"
    )
    assert make_plan(parse(text), "test-1", bare).python == "/env/bin/python"
    assert make_plan(parse(text), "test-1", SITE).warnings == ()
    assert make_plan(parse(text.replace("python,", "sh,")), "test-1", bare).warnings == ()


def test_a_helper_reads_event_files_in_the_image_of_the_leading_task() -> None:
    scenario = BASE + "cluster: {ps: 1, worker: 2, chief: {image: 'own:1'}}\n"
    names = ["ps-0", "worker-0", "worker-1", "chief-0"]
    (helper,) = event_reader(parse(scenario + "metrics: {events: logs}\n"), names).values()
    assert helper.command == ["python3", "event_files.py", "logs", "chief-0", *names]
    assert helper.source == Path(event_files.__file__)
    assert helper.image == "own:1"
    made = plan("cluster: {worker: 1}\nmetrics: {events: logs}\n")
    assert made.files(made.task("event-files")) == {}
    assert event_reader(parse(scenario), names) == {}
    servers = BASE + "cluster: {ps: 2}\nmetrics: {events: logs}\n"  # of which none leads
    (helper,) = event_reader(parse(servers), ["ps-0", "ps-1"]).values()
    assert helper.command[3:] == ["ps-0", "ps-0", "ps-1"]


# --- What a task may use where its scenario says nothing ------------------------------------------

GIB = 2**30


@pytest.mark.parametrize(
    ("gib", "left"), [(1, 0.5), (2, 1), (4, 3), (10, 9), (64, 57.6), (512, 460.8)]
)
def test_a_task_gets_the_machine_less_the_larger_of_a_gibibyte_and_a_tenth(
    gib: int, left: float
) -> None:
    assert machine_limits(gib * GIB, 32_768, 1).memory == pytest.approx(left * GIB, abs=2**20)


@pytest.mark.parametrize(
    ("pid_max", "containers", "processes"),
    [
        (32_768, 1, 16_384),  # the kernel's default up to 32 cores: one task took the machine
        (32_768, 4, 4096),
        (32_768, 0, 16_384),
        (4_194_304, 100, 20_971),
        (4_194_304, 3, 32_768),
        (4_194_304, 4, 32_768),  # a TensorFlow chief with 21,000 threads is left alone
        (32_768, 500, LEAST_PROCESSES),
    ],
)
def test_all_tasks_together_get_half_of_the_processes_of_the_machine(
    pid_max: int, containers: int, processes: int
) -> None:
    assert machine_limits(8 * GIB, pid_max, containers).processes == processes


@given(st.integers(2**22, 2**50), st.integers(32_768, 4_194_304), st.integers(1, 32))
def test_something_is_left_for_the_machine_and_for_the_task(
    machine: int, pid_max: int, containers: int
) -> None:
    limits = machine_limits(machine, pid_max, containers)
    assert limits.memory is not None
    assert 0 < limits.memory < machine
    assert limits.memory % 4096 == 0  # as the kernel would round it
    assert limits.memory + reserved(machine) <= machine
    assert limits.processes is not None
    assert LEAST_PROCESSES <= limits.processes <= pid_max // 2 // containers


def test_the_pid_max_of_a_machine_that_nobody_set_grows_with_its_cores() -> None:
    """As in Linux, kernel/pid.c."""
    assert [usual_pid_max(cores) for cores in (2, 32, 64)] == [32_768, 32_768, 65_536]


@pytest.mark.parametrize(
    ("fault", "disposable", "filtered"),
    [
        ("{kill: worker-0, at: {write: 1}}", True, True),
        ("{kill: worker-0, at: {write: 1}}", False, False),
        ("{disk: readonly, for: 1s, at: {write: 1, task: worker-0}}", True, False),
    ],
)
def test_a_filter_of_calls_is_for_tasks_that_nothing_else_traces_and_may_end(
    fault: str, disposable: bool, filtered: bool
) -> None:
    scenario = parse(f"{BASE}cluster: {{worker: 1}}\nfaults: [{fault}]")
    made = make_plan(scenario, "run-1", SITE, disposable=disposable)
    assert [(one.held, one.filtered) for one in made.tasks] == [(True, filtered)]
