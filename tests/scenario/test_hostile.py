"""Nonsense and malice: refused by its line, before anything is made of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from emulator.engines.requirements import fits
from emulator.errors import UsageError
from emulator.faults.kinds import TraceFaults
from emulator.planning.claims import Capacity
from emulator.scenario import rendezvous
from emulator.scenario.frameworks.registry import FRAMEWORKS
from emulator.scenario.frameworks.spec import FrameworkName, Job, Member
from emulator.scenario.loader import load, parse
from emulator.scenario.schema import Role
from emulator.session.launch import read
from tests.scenario.mistakes import GOOD, HEAD, only_problem, problems

# --- Variables that are ours --------------------------------------------------------------------


OURS = "RUN FOLDER TASK CLUSTER API_TOKEN WHATEVER"


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("EMULATOR_SHARED", "give it another name, which does not begin with EMULATOR_"),
        *((f"EMULATOR_{name}", "give it another name") for name in OURS.split()),
        ("EMULATOR_SEED", "write `seed: 1` in the scenario, or --seed 1"),
        ("TF_CONFIG", "it is made from `cluster:`; a program that makes its own has `framework:"),
    ],
)
def test_a_variable_that_the_emulator_sets_is_a_mistake(name: str, instead: str) -> None:
    expected = f"{name}: is set by the emulator itself ({instead}"
    of_all = GOOD.replace('STEPS: "100"', f"{name}: /somewhere/shared")
    assert only_problem(of_all).startswith(f"s.yaml:4: program.env.{expected}")
    of_role = GOOD.replace("cpus: 1", f"cpus: 1, env: {{A: b, {name}: 1}}")
    assert only_problem(of_role).startswith(f"s.yaml:7: cluster.worker.env.{expected}")
    found = only_problem(GOOD, f"program.env.{name}=x")
    assert found.startswith(f"--set program.env.{name}=x: program.env.{expected}")
    found = only_problem(GOOD + f"parametrize:\n  program.env.{name}:\n    - a\n")
    assert found.startswith(f"s.yaml:10: program.env.{expected}")


TAKEN_AND_FREE = {
    "framework: pytorch": (
        "MASTER_ADDR MASTER_PORT RANK PET_NODE_RANK NODE_RANK",
        "PET_NPROC_PER_NODE PET_RDZV_BACKEND PET_RDZV_ENDPOINT TF_CONFIG",
    ),
    "framework: tensorflow": ("", "MASTER_PORT PYTHONUNBUFFERED"),
    "framework: none": ("EMULATOR_CLUSTER", "TF_CONFIG MASTER_ADDR EMULATORS"),
    "rendezvous: tf-config": ("TF_CONFIG", "POD_NAME"),
    "rendezvous: cluster-config": ("CLUSTER_CONFIG POD_NAME", "TF_CONFIG"),
}


@pytest.mark.parametrize("section", TAKEN_AND_FREE)
def test_only_the_variables_of_the_selected_rendezvous_are_taken(section: str) -> None:
    text = (
        f"name: x\n{section}\nprogram: {{command: [a], env: {{%s: b}}}}\ncluster: {{worker: 2}}\n"
    )
    taken, free = map(str.split, TAKEN_AND_FREE[section])
    for name in taken:
        assert problems(text % name)[0].startswith(f"s.yaml:3: program.env.{name}: is set by")
    for name in free:
        parse(text % name)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_variable_that_a_task_is_given_is_taken(framework: FrameworkName) -> None:
    """One list: what is given and not on it could be overridden. Who runs how often is not ours."""
    scenario = parse(f"{HEAD}framework: {framework}\ncluster: {{worker: 2}}\n")
    job = Job(scenario, scenario.cluster["worker"], run_id="x-1")
    members = [Member("worker", n, f"worker-{n}", 2222) for n in range(2)]
    given = rendezvous.environment(members[0], members, job)
    taken = rendezvous.reserved(job)
    assert {n for n in given if not rendezvous.instead(n, taken)} <= {"PET_NPROC_PER_NODE"}
    assert given.keys() - taken <= {"PET_NPROC_PER_NODE"}


# --- Values -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("cpus: .inf", ".cpus: Infinity should be a finite number"),
        ("cpus: .nan", ".cpus: NaN should be a finite number"),
        ("cpus: 1.0e+400", ".cpus: Infinity should be a finite number"),
        ("cpus: 1e9", ".cpus: '1e9' should be a number"),
        ("cpus: 100000", ".cpus: 100000 should be less than or equal"),
        ("memory: 5m", ".memory: 5 MiB is too small; the minimum is 6 MiB"),
        ("memory: 0b", ".memory: 0 B is too small; the minimum is 6 MiB"),
        (f"memory: {'9' * 30}g", ".memory: "),
        ("replicas: 501", ".replicas: 501 should be less than or"),
        ('env: {"": a}', ".env.: a variable needs a name"),
        ("env: {A=B: c}", ".env.A=B: 'A=B' is not a variable name"),
        (r'env: {"A\nB": c}', r".env.A\nB: 'A\nB' is not a variable"),
        (r'env: {A: "a\0b"}', r".env.A: contains a control character"),
        (r'env: {A: "\e[31m"}', r".env.A: contains a control character"),
        (r'env: {A: "\uD800"}', r".env.A: contains half of a character"),
        (r'env: {"\uDC00": a}', r".env.\udc00: contains half of a char"),
        (f"env: {{A: {'x' * 100_001}}}", ".env.A: a text of 100001 by"),
        ("env: {null: a}", ".env.null: the key null is not text"),
        ("env: {~: a}", ".env.~: the key ~ is not text (write it in"),
        ("env: {? : a}", ".env.null: the key null is not text"),
        ("env: {1.5: a}", ".env.1.5: the key 1.5 is not text"),
        ("env: {2026-01-02: a}", ".env.2026-01-02: the key 2026-01-02"),
        ("env: {? [a] : b}", ".env: a list can't be a key"),
        ("env: {? {a: b} : c}", ".env: a mapping can't be a key"),
        ("env: {A: 1, A: 2}", ".env.A: is given twice; only the last"),
        ("<<: 5", ": `<<` takes a mapping, such as `<<: *base`"),
        ("<<: [{cpus: 2}, 5]", ": `<<` takes mappings"),
        ('image: ""', ".image: '' is not an image reference, such"),
        ("image: Upper", ".image: 'Upper' is not an image reference"),
        (
            "image: {name: cpu, preload: [1bad]}",
            ".image.preload.0: '1bad' is not the name of a Python module, such as",
        ),
        ("image: {name: a b}", ".image.name: 'a b' is not an image re"),
        ("image: a b", ".image: 'a b' is not an image reference"),
        ('command: [""]', ".command: its first word is empty; it names"),
        ("gpus: 99999999999999999999", ".gpus: a whole number of more"),
    ],
    ids=lambda value: value[:40].encode("unicode_escape").decode(),
)
def test_nonsense_in_a_role_is_reported_by_its_line(written: str, problem: str) -> None:
    given = "replicas: 2" if written.startswith("replicas") else "cpus: 1"
    found = only_problem(GOOD.replace(given, written, 1))
    assert found.startswith(f"s.yaml:7: cluster.worker{problem}")
    assert len(found) < 500


def test_a_tag_that_says_what_is_so_anyway_is_no_mistake() -> None:
    assert parse(GOOD + "description: !!str 5\n").description == "5"


def test_a_text_as_json_writes_it_is_put_together() -> None:
    """JSON writes what is beyond 16 bits as two halves."""
    assert parse(GOOD + r'description: "\ud83d\ude00"').description == "😀"
    given: dict[str, object] = {"name": "x", "cluster": {"worker": 1}, "description": "😀"}
    requested = read({**given, "program": {"command": ["a"]}}, [Path()])
    assert requested.scenario.description == "😀"


def test_the_nearer_of_two_merged_mappings_counts() -> None:
    made = parse(
        "name: x\nprogram: {command: [a]}\ncluster:\n"
        "  worker: &a {replicas: 2, cpus: 1}\n"
        "  chief: &b {cpus: 2, memory: 1g}\n"
        "  ps: {<<: [*b, *a], replicas: 3}\n"
        "  evaluator: {<<: *a, replicas: 1}\n"
    )
    ps = {"replicas": 3, "cpus": 2, "memory": "1g"}
    assert made.cluster["ps"] == Role.model_validate(ps)
    assert made.cluster["evaluator"] == Role(replicas=1, cpus=1)


def test_of_very_many_mistakes_the_first_are_reported() -> None:
    unknown = GOOD + "".join(f"k{number}: 1\n" for number in range(1000))
    ours = [f"    EMULATOR_{number}: a\n" for number in range(101)]
    taken = GOOD.replace('env: {STEPS: "100"}\n', f"env:\n{''.join(ours)}")
    varied = GOOD + "parametrize:\n  seed:\n" + "".join(f"  - v{n}\n" for n in range(101))
    for text, first in {
        unknown: "8: k0: unknown key",
        taken: "5: program.env.EMULATOR_0: is set by the emulator itself",
        varied: "10: seed: 'v0' should be a whole number",
    }.items():
        found = problems(text)
        assert len(found) == 101
        assert found[0].startswith(f"s.yaml:{first}")
        last = int(first.partition(":")[0]) + 100
        assert found[-1] == f"s.yaml:{last}: and more; fix these first"


def test_a_long_value_is_reported_in_short() -> None:
    found = only_problem(GOOD + f"timeout: {'soon ' * 10_000}\n")
    assert found.startswith("s.yaml:8: timeout: 'soon soon")
    assert len(found) < 1100


@pytest.mark.parametrize(
    ("added", "key"),
    [
        ("cluster: {worker: {memory: 9g}}", "cluster.worker"),
        ("cluster: {worker: {init: [{name: a, memory: 9g}]}}", "cluster.worker.init.0"),
        ("cluster: {worker: 1}\nhelpers: {a: {command: [b], memory: 9g}}", "helpers.a"),
    ],
)
def test_memory_beyond_the_machine_is_refused_by_its_key(added: str, key: str) -> None:
    made = parse(HEAD + added)
    fits(made, Capacity(2, 9 * 2**30))
    with pytest.raises(UsageError) as refused:
        fits(made, Capacity(2, 9 * 2**30 - 1))
    assert str(refused.value) == (
        f"{key}.memory: 9.0 GiB is more than the 9.0 GiB that the engine's machine has."
        " Write less, or leave it out."
    )


# --- Files --------------------------------------------------------------------------------------


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """A folder with things in it that are no files."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "ring").symlink_to("ring")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "back").symlink_to("..")
    (tmp_path / "binary").write_bytes(bytes(range(256)) * 10)
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(2**40)
    return tmp_path


SCENARIO = f"{HEAD}cluster: {{worker: 1}}\n"
SOURCE = "name: x\nprogram:\n  command: [a]\n  source: %s\ncluster: {worker: 1}\n"
TRACE = SCENARIO + "faults: [{trace: %s}]\n"
DOCKERFILE = SCENARIO + "image: {dockerfile: %s}\n"
CONTEXT = SCENARIO + "image: {dockerfile: Dockerfile, context: %s}\n"


@pytest.mark.parametrize(
    ("text", "name", "problem"),
    [
        (SOURCE, "pipe", "program.source: {}/pipe can't be copied: it is a named pipe"),
        (SOURCE, "zero", "program.source: /dev/zero can't be copied: it is a device"),
        (SOURCE, "huge", "program.source: {}/huge can't be copied: it has 1.0 TiB; 200 MiB is"),
        (SOURCE, "folder", "program.source: back is a link out of the folder"),
        (SOURCE, ".", "program.source: folder/back is a link to a folder that it is in"),
        (SOURCE, "ring", "program.source: ring can't be resolved: "),
        (SOURCE, '""', "program.source: a path is empty; write `.` for the scenario's own"),
        (SOURCE, r'"a\0b"', "program.source: contains a control character, '\\x00'"),
        (TRACE, "pipe", "faults.0.trace: the trace {}/pipe can't be read: it is a named pipe"),
        (TRACE, "huge", "faults.0.trace: the trace {}/huge can't be read: it has 1.0 TiB; 4 MiB"),
        (TRACE, "ring", "faults.0.trace: the trace {}/ring can't be read: "),
        (TRACE, "~nobody-here/x", "faults.0.trace: the trace "),
        (DOCKERFILE, "pipe", "image.dockerfile: {}/pipe is not a Dockerfile: it is a named pipe"),
        (DOCKERFILE, "huge", "image.dockerfile: {}/huge is not a Dockerfile: it has 1.0 TiB; 1"),
        (CONTEXT, "binary", "image.context: {}/binary is not a folder of files; a build context"),
        (
            CONTEXT,
            "/sys",
            "image.context: /sys is not a folder of files; a build context must be one",
        ),
    ],
)
def test_what_is_no_file_is_refused_by_its_line(
    odd: Path, text: str, name: str, problem: str
) -> None:
    (odd / "Dockerfile").write_text("FROM scratch\n")
    found = only_problem(text % name, folder=odd)
    assert found.startswith("s.yaml:4: " + problem.format(odd.resolve()))


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("gone", "No such file"),
        (".", "it is a folder, not a file"),
        ("bytes", "it is not text: line 1"),
        ("zero", "it is a device, not a file"),
        ("huge", "it has 1.0 TiB; 1 MiB is the most"),
    ],
)
def test_what_is_no_scenario_file_is_refused_with_a_way_on(odd: Path, name: str, why: str) -> None:
    (odd / "bytes").write_bytes(b"name: \xff\xfe\n")
    with pytest.raises(UsageError, match=rf"Can't read .*: {why}") as refused:
        load(odd / name)
    assert "emulate init" in refused.value.hint


def test_a_trace_of_too_many_rows_is_refused(tmp_path: Path) -> None:
    rows = "time,target,down\n" + "1,worker-0,2\n" * 10_001
    (tmp_path / "t.csv").write_text(rows)
    found = only_problem(TRACE % "t.csv", folder=tmp_path)
    assert found == "s.yaml:4: faults.0.trace: has more than 10,000 entries"
    (tmp_path / "t.csv").write_text(rows.removesuffix("1,worker-0,2\n"))
    (fault,) = parse(TRACE % "t.csv", folder=tmp_path).faults
    assert isinstance(fault, TraceFaults)
    assert len(fault.trace) == 10_000
