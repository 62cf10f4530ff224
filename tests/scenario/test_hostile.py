"""Nonsense and malice: refused by its line, before anything is made of it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from textwrap import dedent

import pytest

from emulator.broker import Capacity
from emulator.engines.docker import DockerEngine
from emulator.engines.requirements import fits, make_ready
from emulator.errors import ScenarioError, UsageError
from emulator.faults.table import TraceFaults
from emulator.scenario import rendezvous
from emulator.scenario.frameworks.spec import FrameworkName, Job, Member
from emulator.scenario.frameworks.table import FRAMEWORKS
from emulator.scenario.loader import load, parse
from emulator.scenario.matrix import variants
from emulator.scenario.schema import Scenario
from emulator.session.source import read
from tests.conftest import Emulate

GOOD = """\
name: good
program:
  command: [python, train.py]
  env: {STEPS: "100"}
cluster:
  chief: 1
  worker: {replicas: 2, cpus: 1}
"""


def problems(text: str, *sets: str, folder: Path = Path()) -> list[str]:
    with pytest.raises(ScenarioError) as refused:
        parse(dedent(text), file="s.yaml", sets=sets, folder=folder)
    lines = str(refused.value).splitlines()
    assert lines == [str(problem) for problem in refused.value.problems]
    assert all(line.isprintable() for line in lines)
    return lines


# --- Variables that are ours --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("EMULATOR_SHARED", "give it another name, which does not begin with EMULATOR_"),
        ("EMULATOR_RUN", "give it another name"),
        ("EMULATOR_FOLDER", "give it another name"),
        ("EMULATOR_TASK", "give it another name"),
        ("EMULATOR_CLUSTER", "give it another name"),
        ("EMULATOR_API_TOKEN", "give it another name"),
        ("EMULATOR_WHATEVER", "give it another name"),
        ("EMULATOR_SEED", "write `seed: 1` in the scenario, or --seed 1"),
        ("TF_CONFIG", "it is made from `cluster:`; a program that makes its own has `framework:"),
    ],
)
def test_a_variable_that_the_emulator_sets_is_a_mistake(name: str, instead: str) -> None:
    of_all = GOOD.replace('STEPS: "100"', f"{name}: /somewhere/shared")
    (found,) = problems(of_all)
    expected = f"{name}: is set by the emulator itself ({instead}"
    assert found.startswith(f"s.yaml:4: program.env.{expected}")
    of_role = GOOD.replace("cpus: 1", f"cpus: 1, env: {{A: b, {name}: 1}}")
    (found,) = problems(of_role)
    assert found.startswith(f"s.yaml:7: cluster.worker.env.{expected}")
    (found,) = problems(GOOD, f"program.env.{name}=x")
    assert found.startswith(f"--set program.env.{name}=x: program.env.{expected}")
    (found,) = problems(GOOD + f"parametrize:\n  program.env.{name}:\n    - a\n")
    assert found.startswith(f"s.yaml:10: program.env.{expected}")


@pytest.mark.parametrize(
    ("framework", "name", "taken"),
    [
        ("pytorch", "MASTER_ADDR", True),
        ("pytorch", "MASTER_PORT", True),
        ("pytorch", "RANK", True),
        ("pytorch", "PET_NODE_RANK", True),
        ("pytorch", "PET_NPROC_PER_NODE", False),
        ("pytorch", "NODE_RANK", True),
        ("pytorch", "PET_RDZV_BACKEND", False),
        ("pytorch", "PET_RDZV_ENDPOINT", False),
        ("pytorch", "TF_CONFIG", False),
        ("tensorflow", "MASTER_PORT", False),
        ("none", "TF_CONFIG", False),
        ("none", "MASTER_ADDR", False),
        ("none", "EMULATOR_CLUSTER", True),
        ("none", "EMULATORS", False),
        ("tensorflow", "PYTHONUNBUFFERED", False),
    ],
)
def test_of_a_rendezvous_only_the_frameworks_own_variables_are_taken(
    framework: str, name: str, taken: bool
) -> None:
    text = f"name: x\nframework: {framework}\nprogram: {{command: [a], env: {{{name}: b}}}}\n"
    text += "cluster: {worker: 2}\n"
    if taken:
        assert problems(text)[0].startswith(f"s.yaml:3: program.env.{name}: is set by")
    else:
        parse(text)


@pytest.mark.parametrize(
    ("form", "name", "taken"),
    [
        ("tf-config", "TF_CONFIG", True),
        ("tf-config", "POD_NAME", False),
        ("cluster-config", "CLUSTER_CONFIG", True),
        ("cluster-config", "POD_NAME", True),
        ("cluster-config", "TF_CONFIG", False),
    ],
)
def test_of_the_forms_of_a_rendezvous_the_selected_one_is_taken(
    form: str, name: str, taken: bool
) -> None:
    text = f"name: x\nrendezvous: {form}\nprogram: {{command: [a], env: {{{name}: b}}}}\n"
    text += "cluster: {worker: 2}\n"
    if taken:
        assert problems(text)[0].startswith(f"s.yaml:3: program.env.{name}: is set by")
    else:
        parse(text)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_variable_that_a_task_is_given_is_taken(framework: FrameworkName) -> None:
    """One list: what is given and not on it could be overridden. Who runs how often is not ours."""
    scenario = parse(
        f"name: x\nframework: {framework}\nprogram: {{command: [a]}}\ncluster: {{worker: 2}}\n"
    )
    job = Job(scenario, scenario.cluster["worker"], run_id="x-1")
    members = [Member("worker", n, f"worker-{n}", 2222) for n in range(2)]
    given = rendezvous.environment(members[0], members, job)
    taken = rendezvous.reserved(job)
    assert {n for n in given if not rendezvous.instead(n, taken)} <= {"PET_NPROC_PER_NODE"}


# --- Values -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "written", "problem"),
    [
        ("cpus: 1", "cpus: .inf", "7: cluster.worker.cpus: Infinity should be a finite number"),
        ("cpus: 1", "cpus: .nan", "7: cluster.worker.cpus: NaN should be a finite number"),
        ("cpus: 1", "cpus: 1.0e+400", "7: cluster.worker.cpus: Infinity should be a finite number"),
        ("cpus: 1", "cpus: 1e9", "7: cluster.worker.cpus: '1e9' should be a number"),
        ("cpus: 1", "cpus: 100000", "7: cluster.worker.cpus: 100000 should be less than or equal"),
        (
            "cpus: 1",
            "memory: 5m",
            "7: cluster.worker.memory: 5 MiB is too small; the minimum is 6 MiB",
        ),
        (
            "cpus: 1",
            "memory: 0b",
            "7: cluster.worker.memory: 0 B is too small; the minimum is 6 MiB",
        ),
        ("cpus: 1", f"memory: {'9' * 30}g", "7: cluster.worker.memory: "),
        ("replicas: 2", "replicas: 501", "7: cluster.worker.replicas: 501 should be less than or"),
        ("replicas: 2", "replicas: 500", "5: cluster: has 501 tasks; 500 are the most"),
        ("cpus: 1", 'env: {"": a}', "7: cluster.worker.env.: a variable needs a name"),
        ("cpus: 1", "env: {A=B: c}", "7: cluster.worker.env.A=B: 'A=B' is not a variable name"),
        ("cpus: 1", r'env: {"A\nB": c}', r"7: cluster.worker.env.A\nB: 'A\nB' is not a variable"),
        ("cpus: 1", r'env: {A: "a\0b"}', r"7: cluster.worker.env.A: contains a control character"),
        (
            "cpus: 1",
            r'env: {A: "\e[31m"}',
            r"7: cluster.worker.env.A: contains a control character",
        ),
        (
            "cpus: 1",
            r'env: {A: "\uD800"}',
            r"7: cluster.worker.env.A: contains half of a character",
        ),
        (
            "cpus: 1",
            r'env: {"\uDC00": a}',
            r"7: cluster.worker.env.\udc00: contains half of a char",
        ),
        ("cpus: 1", f"env: {{A: {'x' * 100_001}}}", "7: cluster.worker.env.A: a text of 100001 by"),
        ("cpus: 1", "env: {null: a}", "7: cluster.worker.env.null: the key null is not text"),
        ("cpus: 1", "env: {~: a}", "7: cluster.worker.env.~: the key ~ is not text (write it in"),
        ("cpus: 1", "env: {? : a}", "7: cluster.worker.env.null: the key null is not text"),
        ("cpus: 1", "env: {1.5: a}", "7: cluster.worker.env.1.5: the key 1.5 is not text"),
        ("cpus: 1", "env: {2026-01-02: a}", "7: cluster.worker.env.2026-01-02: the key 2026-01-02"),
        ("cpus: 1", "env: {? [a] : b}", "7: cluster.worker.env: a list can't be a key"),
        ("cpus: 1", "env: {? {a: b} : c}", "7: cluster.worker.env: a mapping can't be a key"),
        ("cpus: 1", "env: {A: 1, A: 2}", "7: cluster.worker.env.A: is given twice; only the last"),
        ("cpus: 1", "<<: 5", "7: cluster.worker: `<<` takes a mapping, such as `<<: *base`"),
        ("cpus: 1", "<<: [{cpus: 2}, 5]", "7: cluster.worker: `<<` takes mappings"),
        ("cpus: 1", 'image: ""', "7: cluster.worker.image: '' is not an image reference, such"),
        ("cpus: 1", "image: Upper", "7: cluster.worker.image: 'Upper' is not an image reference"),
        (
            "cpus: 1",
            "image: {name: cpu, preload: [1bad]}",
            "7: cluster.worker.image.preload.0: '1bad' is not the name of a Python module, such as",
        ),
        ("cpus: 1", "image: {name: a b}", "7: cluster.worker.image.name: 'a b' is not an image re"),
        ("cpus: 1", "image: a b", "7: cluster.worker.image: 'a b' is not an image reference"),
        (
            "cpus: 1",
            'command: [""]',
            "7: cluster.worker.command: its first word is empty; it names",
        ),
        ("cpus: 1", "gpus: 99999999999999999999", "7: cluster.worker.gpus: a whole number of more"),
        (
            "name: good",
            'name: "go\\0od"',
            "1: name: contains a control character, '\\x00' (leave it",
        ),
        (
            "name: good",
            'name: good\ndescription: "\\e]0;x\\a"',
            "2: description: contains a contro",
        ),
        ("name: good", "name: good\nseed: 18446744073709551616", "2: seed: a whole number of more"),
        ("name: good", f"name: good\nseed: {'9' * 5000}", "2: seed: a number with too many digits"),
        (
            "name: good",
            "name: good\nseed: 0x" + "f" * 40,
            "2: seed: a whole number of more than 64",
        ),
        (
            "name: good",
            "name: good\nseed: 1" + ":59" * 40,
            "2: seed: a number with too many digits",
        ),
        ("name: good", "name: good\n5: x", "2: 5: the key 5 is not text (write it in quotes)"),
        ("name: good", "name: good\n? \n: x", "2: null: the key null is not text (write it in"),
        (
            "name: good",
            "name: good\ntimeout: 40000d",
            "2: timeout: 3.456e+09s is too large; the maximum is 36500d",
        ),
        (
            "name: good",
            "name: good\nnetwork: {delay: 2m}",
            "2: network.delay: 120s is too large; the maximum is 60s",
        ),
        (
            "name: good",
            "name: good\nnetwork: {bandwidth: 0bit}",
            "2: network.bandwidth: 0bit is too",
        ),
        ("name: good", "name: good\nimage: {dockerfile: .}", "2: image.dockerfile: "),
        (
            "name: good",
            "name: good\nexpect: {final_step: -9223372036854775809}",
            "2: expect.final_step: a whole number of more than 64 bits",
        ),
        (
            "name: good",
            "name: good\nfaults: [{random: {kill: '*'}, every: 1ms, max: 1000000000}]",
            "2: faults.0.max: 1000000000 should be less than or equal to 1000",
        ),
        (
            "name: good",
            f"name: good\nfaults: [{{kill: {'w' * 300}, at: 1s}}]",
            "2: faults.0.kill: 'www",
        ),
        (
            "name: good",
            "name: good\nfaults: [{kill: chief-0, at: {log: '(?=a)'}}]",
            "2: faults.0.at.log: '(?=a)' is not a regular expression: it looks ahead; RE2, which",
        ),
        (
            "name: good",
            "name: good\nmetrics: {steps: '(?P<step>a)(?P=step)'}",
            "2: metrics.steps: '(?P<step>a)(?P=step)' is not a regular expression: it refers back",
        ),
    ],
    ids=lambda value: value[:40].encode("unicode_escape").decode(),
)
def test_nonsense_is_reported_by_its_line(given: str, written: str, problem: str) -> None:
    assert given in GOOD
    found = problems(GOOD.replace(given, written, 1))
    assert found[0].startswith(f"s.yaml:{problem}"), found
    assert len(found) == 1
    assert len(found[0]) < 500


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: !!python/object/apply:os.system [ls]", "the tag '!!python/object/apply:os.system'"),
        ("a: !!int x", "the tag '!!int' is not allowed; leave it out"),
        ("a: !!bool x", "the tag '!!bool' is not allowed"),
        ("a: !!timestamp x", "the tag '!!timestamp' is not allowed"),
        ("a: !!binary x", "the tag '!!binary' is not allowed"),
        ("a: !!set {b}", "the tag '!!set' is not allowed"),
        ("a: *nobody", "found undefined alias 'nobody'"),
        ("a: &b [*b]", "a list or mapping that contains itself"),
        ("a: &b {<<: *b}", "a list or mapping that contains itself"),
        ('a: "\\U00110000"', "chr() arg not in range"),
        ("a: 2026-13-40", "month must be in 1..12"),
        ("a: 2026-02-30 10:00:00", "day is out of range for month"),
    ],
)
def test_what_is_no_yaml_of_ours_is_reported_by_its_line(text: str, problem: str) -> None:
    (found,) = problems(GOOD + text + "\n")
    assert found.startswith(f"s.yaml:8: not valid YAML: {problem}")


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
    )
    role = made.cluster["ps"]
    assert (role.replicas, role.cpus, role.memory) == (3, 2, 2**30)


def test_of_very_many_mistakes_the_first_are_reported() -> None:
    found = problems(GOOD + "".join(f"k{number}: 1\n" for number in range(1000)))
    assert len(found) == 101
    assert found[0].startswith("s.yaml:8: k0: unknown key")
    assert found[-1] == "s.yaml:108: and more; fix these first"


def test_a_long_value_is_reported_in_short() -> None:
    (found,) = problems(GOOD + f"timeout: {'soon ' * 10_000}\n")
    assert found.startswith("s.yaml:8: timeout: 'soon soon")
    assert len(found) < 1100


def test_memory_beyond_the_machine_is_refused_by_its_key() -> None:
    made = parse(GOOD.replace("cpus: 1", "memory: 9g"))
    fits(made, Capacity(2, 9 * 2**30))
    with pytest.raises(UsageError) as refused:
        fits(made, Capacity(2, 9 * 2**30 - 1))
    assert str(refused.value) == (
        "cluster.worker.memory: 9.0 GiB is more than the 9.0 GiB that the engine's machine has."
        " Write less, or leave it out."
    )


@pytest.mark.docker
def test_memory_beyond_the_engines_machine_is_refused_where_the_plan_is_made(
    docker_engine: DockerEngine, tmp_path: Path
) -> None:
    text = GOOD.replace("cpus: 1", "memory: 900t") + "image: cpu\n"
    with pytest.raises(UsageError, match=r"cluster\.worker\.memory: 900\.0 TiB is more than the"):
        make_ready(parse(text), docker_engine, out=tmp_path)


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


SCENARIO = "name: x\nprogram: {command: [a]}\ncluster: {worker: 1}\n"
SOURCE = "name: x\nprogram:\n  command: [a]\n  source: %s\ncluster: {worker: 1}\n"
TRACE = SCENARIO + "faults: [{trace: %s}]\n"
DOCKERFILE = SCENARIO + "image: {dockerfile: %s}\n"
CONTEXT = SCENARIO + "image: {dockerfile: Dockerfile, context: %s}\n"


@pytest.mark.parametrize(
    ("text", "name", "problem"),
    [
        (SOURCE, "pipe", "4: program.source: {}/pipe can't be copied: it is a named pipe"),
        (SOURCE, "/dev/zero", "4: program.source: /dev/zero can't be copied: it is a device"),
        (SOURCE, "zero", "4: program.source: /dev/zero can't be copied: it is a device"),
        (SOURCE, "/proc/self", "4: program.source: /proc/"),
        (SOURCE, "huge", "4: program.source: {}/huge can't be copied: it has 1.0 TiB; 256 MiB is"),
        (SOURCE, "folder", "4: program.source: back is a link out of the folder"),
        (SOURCE, ".", "4: program.source: folder/back is a link to a folder that it is in"),
        (SOURCE, "ring", "4: program.source: ring can't be resolved: "),
        (SOURCE, '""', "4: program.source: a path is empty; write `.` for the scenario's own"),
        (SOURCE, r'"a\0b"', "4: program.source: contains a control character, '\\x00'"),
        (TRACE, "pipe", "4: faults.0.trace: the trace {}/pipe can't be read: it is a named pipe"),
        (
            TRACE,
            "/dev/zero",
            "4: faults.0.trace: the trace /dev/zero can't be read: it is a device",
        ),
        (
            TRACE,
            "huge",
            "4: faults.0.trace: the trace {}/huge can't be read: it has 1.0 TiB; 4 MiB",
        ),
        (TRACE, "ring", "4: faults.0.trace: the trace {}/ring can't be read: "),
        (TRACE, "binary", "4: faults.0.trace: the trace {}/binary can't be read: it is not text"),
        (TRACE, "folder", "4: faults.0.trace: the trace {}/folder can't be read: it is a folder"),
        (TRACE, "~nobody-here/x", "4: faults.0.trace: the trace "),
        (
            DOCKERFILE,
            "folder",
            "4: image.dockerfile: {}/folder is not a Dockerfile: it is a folder",
        ),
        (
            DOCKERFILE,
            "pipe",
            "4: image.dockerfile: {}/pipe is not a Dockerfile: it is a named pipe",
        ),
        (
            DOCKERFILE,
            "/dev/zero",
            "4: image.dockerfile: /dev/zero is not a Dockerfile: it is a devic",
        ),
        (DOCKERFILE, "huge", "4: image.dockerfile: {}/huge is not a Dockerfile: it has 1.0 TiB; 1"),
        (
            CONTEXT,
            "binary",
            "4: image.context: {}/binary is not a folder of files; a build context",
        ),
        (
            CONTEXT,
            "/proc",
            "4: image.context: /proc is not a folder of files; a build context must be one",
        ),
    ],
)
def test_what_is_no_file_is_refused_by_its_line(
    odd: Path, text: str, name: str, problem: str
) -> None:
    (odd / "Dockerfile").write_text("FROM scratch\n")
    begin = time.process_time()
    (found,) = problems(text % name, folder=odd)
    assert found.startswith("s.yaml:" + problem.format(odd.resolve())), found
    assert time.process_time() - begin < 2


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("pipe", "it is a named pipe, not a file"),
        ("zero", "it is a device, not a file"),
        ("ring", "Symlink loop from"),
        ("folder", "it is a folder, not a file"),
        ("binary", "it is not text: line 2 is not UTF-8"),
        ("huge", "it has 1.0 TiB; 1 MiB is the most"),
        ("n" * 300, "File name too long"),
    ],
)
def test_what_is_no_scenario_file_is_refused(odd: Path, name: str, why: str) -> None:
    with pytest.raises(UsageError, match=rf"Can't read the scenario .*: {why}"):
        load(odd / name)


@pytest.mark.parametrize("source", ["/dev/zero", "/proc/self", "pipe"])
def test_the_command_refuses_them_with_2_and_a_sentence(
    odd: Path, source: str, emulate: Emulate
) -> None:
    (odd / "s.yaml").write_text(SOURCE % source)
    done = emulate("up", odd / "s.yaml", "--engine", "process", "--out", odd / "runs")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"emulate: {odd}/s.yaml:4: program.source: ")
    assert len(done.stderr.splitlines()) == 1
    assert not (odd / "runs").exists()
    done = emulate("plan", "/dev/zero")
    assert done.returncode == 2
    assert "Can't read the scenario /dev/zero: it is a device" in done.stderr


def test_a_trace_of_too_many_rows_is_refused(tmp_path: Path) -> None:
    rows = "time,target,down\n" + "1,worker-0,2\n" * 10_001
    (tmp_path / "t.csv").write_text(rows)
    (found,) = problems(TRACE % "t.csv", folder=tmp_path)
    assert found == "s.yaml:4: faults.0.trace: has more than 10,000 entries"
    (tmp_path / "t.csv").write_text(rows.removesuffix("1,worker-0,2\n"))
    (fault,) = parse(TRACE % "t.csv", folder=tmp_path).faults
    assert isinstance(fault, TraceFaults)
    assert len(fault.trace) == 10_000


def test_a_program_that_runs_in_its_own_folder_is_not_copied_into_itself(
    tmp_path: Path, emulate: Emulate
) -> None:
    """`source: .` with runs beside it: each task would get the copies of those before."""
    text = SOURCE.replace("[a]", "[sh, -c, 'test ! -e runs/x-1; ls > $EMULATOR_SHARED/seen']")
    (tmp_path / "s.yaml").write_text(text % "." + "framework: none\n")
    emulate.out = tmp_path / "runs"
    for run in ("x-1", "x-2"):
        done = emulate.up(tmp_path / "s.yaml", "--engine", "process", "--keep", "--run-id", run)
        assert done.returncode == 0, done.stderr
        seen = (tmp_path / "runs" / run / "shared" / "seen").read_text().split()
        assert seen == ["runs", "s.yaml"]


# --- Too much of it -----------------------------------------------------------------------------


def test_variants_of_a_command_line_are_counted_before_they_are_made() -> None:
    with pytest.raises(UsageError, match=r"That makes 1,000,000,000 variants; 1,000 are the most"):
        variants([f"{key}={','.join(map(str, range(1000)))}" for key in "abc"])
    with pytest.raises(UsageError, match=r"has more than 1,000 values"):
        variants([f"a={','.join(map(str, range(1001)))}"])
    assert len(variants(["a=" + ",".join(map(str, range(1000)))])) == 1000


def test_variants_of_a_large_scenario_are_fewer() -> None:
    text = GOOD + f"marks: [{', '.join(f'm{n}' for n in range(1000))}]\n"
    (found,) = problems(text + f"parametrize: {{seed: [{', '.join(map(str, range(200)))}]}}\n")
    assert found.startswith("s.yaml:9: parametrize: its variants have 20")
    assert found.endswith(
        "values, all together (100,000 are the most; fewer variants, or a smaller scenario)"
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("cluster: {worker: 317}\nnetwork: {delay: 1ms}\n", "4: network: a network between so"),
        ("cluster: {worker: 316}\nnetwork: {delay: 1ms}\n", ""),
        (
            "cluster: {worker: 500}\n"
            "faults: [{partition: [['worker-[12]*'], ['worker-[3-9]*']], at: 1s, for: 1s}]\n",
            "4: faults.0: a network between so many tasks has more than 100,000 pairs of them",
        ),
        (
            "cluster: {worker: 500}\nfaults:\n" + "  - {kill: '*', at: 1s}\n" * 21,
            "25: faults.20: these are more than 10,000 single faults, counted by task (fewer",
        ),
        ("cluster: {worker: 500}\nfaults:\n" + "  - {kill: '*', at: 1s}\n" * 20, ""),
        (
            "cluster: {worker: 1}\nfaults:\n" + "  - {kill: '*', at: 1s}\n" * 101,
            "4: faults: has more than 100 entries",
        ),
        (
            "cluster: {worker: 9}\nfaults: [{partition: [[worker-0], ["
            + ", ".join(f"'worker-[1-9{n}]'" for n in range(1001))
            + "]], at: 1s, for: 1s}]\n",
            "4: faults: name their tasks by more than 1,000 different globs",
        ),
    ],
    ids=range(7),
)
def test_what_multiplies_is_counted_before_it_is_made(text: str, problem: str) -> None:
    text = "name: x\nprogram: {command: [a]}\n" + text
    if not problem:
        assert isinstance(parse(text), Scenario)
        return
    (found,) = problems(text)
    assert found.startswith(f"s.yaml:{problem}")


# --- Lines that no pattern was made for ---------------------------------------------------------


def test_an_unlucky_line_holds_up_neither_the_steps_nor_a_trigger(
    tmp_path: Path, emulate: Emulate
) -> None:
    """With an engine that tries every way this run would never end, whatever it is sent."""
    (tmp_path / "s.yaml").write_text(
        dedent(r"""
        name: unlucky
        framework: none
        program:
          command: [sh, -c, 'head -c 100000 /dev/zero | tr "\0" 9; echo; echo it 7x']
        cluster: {worker: 1}
        metrics: {steps: '(?P<step>(?:\d+)+)x'}
        faults: [{kill: worker-0, at: {log: '^(\d+)*z'}}]
        expect: {final_step: 7}
        """)
    )
    done = emulate.up(tmp_path / "s.yaml", "--engine", "process")
    assert done.json["steps"]["final"] == 7, done.json
    assert [fault["status"] for fault in done.json["faults"]] == ["skipped"]
