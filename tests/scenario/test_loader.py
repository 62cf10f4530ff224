"""Reading a scenario: every mistake with its file, line and what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from emulator.errors import Misfit, ScenarioError, Unsupported, UsageError, shown
from emulator.scenario.given import Given
from emulator.scenario.loader import Origins, load, parse, placed
from emulator.scenario.schema import Role
from tests.scenario.mistakes import GOOD, HEAD, only_problem, problems


def outcome(text: str, *sets: str) -> str:
    """Return `read`, or why it was refused; any other error is a defect."""
    try:
        parse(text, file="s.yaml", sets=sets)
    except UsageError as error:
        return str(error)
    return "read"


NO_TEXT = 'true or false is not text; write "true" in quotes'
TWO_CHIEFS = "cluster.chief.replicas: 2 of them; there can be only one chief"
TORCH = "framework: pytorch\ncluster: {worker: 2}\n"
ONLY_TWO = "3, but the cluster has 2 tasks (2 is the most)"

# --- One mistake each ---------------------------------------------------------------------------


RELATIVE = "throughput: {at_least: 0.9, of: "
EXPECTATIONS = [
    (
        "qqq: 5",
        "qqq: unknown key (known here: accuracy, bytes_per_step, final_step, loads_what_was_saved,"
        " max_lost_steps, max_restarts, min_goodput, monotone_checkpoints, never_from_scratch,"
        " nothing_outlives, noticed_within,"
        " outcome, ranks_agree, recovers_within, restores_only_complete,"
        " same_as_uninterrupted, saved_within_grace,"
        " single_chief, steps, steps_exactly_once, throughput, values)",
    ),
    ("throughput: 5", "throughput: 5 should be a mapping of keys"),
    ("accuracy: 2", "accuracy: 2 should be less than or equal to 1"),
    (
        "throughput: {at_least: 0.9}",
        "throughput: `at_least` needs `of: reference`",
    ),
    ("throughput: {of: reference}", "throughput: `of` needs `at_least`, such as `at_least: 0.9`"),
    (f"{RELATIVE}a}}", "throughput.of: 'a' is not allowed (write reference)"),
    (
        f"{RELATIVE}baseline}}",
        "throughput.of: 'baseline' was removed (write `min:` with a number of steps/s, or "
        "`of: reference`; `emulate compare` compares runs)",
    ),
    (f"{RELATIVE}[]}}", "throughput.of: [] is not allowed (write reference)"),
    (f"{RELATIVE}reference}}", "throughput.of: there is no reference (define it: `reference: {"),
    (
        "bytes_per_step: {wrker: {sent: {max: 2m}}}",
        "bytes_per_step.wrker: the cluster has no wrker (did you mean 'worker'?)",
    ),
    (
        "bytes_per_step: {worker: {sent: {max: 2}}}",
        "bytes_per_step.worker.sent.max: '2' is not a size; write '512m' or '1g'",
    ),
    (
        "bytes_per_step: {worker: {sent: {at_most: 2}}}",
        "bytes_per_step.worker.sent: `at_least` and `at_most` need `of`: the name of",
    ),
    (
        "steps: none, final_step: 5",
        "final_step: is about steps, but `steps: none` expects none (leave out",
    ),
    ("steps: 5", "steps: 5 is not allowed (write none)"),
    ("values: {'': {min: 1}}", "values.: is empty"),
    (
        f"values: {{{'a' * 101}: {{min: 1}}}}",
        f"values.{'a' * 101}: '{'a' * 101}' is longer than 100",
    ),
]


@pytest.mark.parametrize(
    ("added", "problem"),
    [
        ("timeuot: 5s", "timeuot: unknown key (did you mean 'timeout'?)"),
        ("prices: {worker: 1/h}", "prices: was removed (leave it out; `python scenarios/costs/cos"),
        ("jobset: {}", "jobset: was removed (write `restart: {policy: on-failure, scope: job}`"),
        (
            "metrics: {trainer_status: true}",
            "metrics.trainer_status: was removed (leave it out; st",
        ),
        ("currency: EUR", "currency: was removed (leave it out; `python scenarios/costs/costs.py"),
        ("framework: tensorflw", "framework: 'tensorflw' is not allowed (did you mean"),
        ("success: 7", "success: 7 is not allowed (write auto, chief or all-workers)"),
        ("timeout: 5", "timeout: '5' is not a duration; write '5s'"),
        ("timeout: soon", "timeout: 'soon' is not a duration; write '5s', '2m' or '500ms'"),
        ("network: {bandwidth: 5}", "network.bandwidth: '5' is not a rate; write '100mbit'"),
        ("network: {internet: perhaps}", "network.internet: 'perhaps' should be true or false"),
        ("seed: many", "seed: 'many' should be a whole number"),
        ("restart: {limit: -1}", "restart.limit: -1 should be greater than or equal to 0"),
        ("restart: now", "restart: 'now' is not allowed (write never, on-failure, always"),
        (
            "restart:",
            "restart: null should be a mapping of keys and values"
            " (write `restart: {policy: on-failure}`)",
        ),
        ("description: [a]", 'description: ["a"] should be text'),
        ("description: 3", 'description: 3 should be text (write "3" in quotes)'),
        ("image: 3", "image: an image is 'cpu', 'gpu', 'auto', 'pytorch', 'jax', 'python', a"),
        ("metrics: {events: ../logs}", "metrics.events: '../logs' is not a folder of the shared"),
        ("metrics: {events: /shared/logs}", "metrics.events: '/shared/logs' is not a folder"),
        ("metrics: {events: a/./b}", "metrics.events: 'a/./b' is not a folder"),
        ("metrics: {events: 'a${seed}'}", "metrics.events: 'a${seed}' is not a folder"),
        (
            "metrics: {events: logs, steps: keras}",
            "metrics: steps come either from `events` or from output; leave `steps` out",
        ),
        (
            "helpers: {event-files: {command: [x]}}\nmetrics: {events: .}",
            "helpers.event-files: is the name of the helper that reads event files",
        ),
        ("metrics: {steps: '('}", "metrics.steps: '(' is not a regular expression: missing )"),
        (
            "metrics: {steps: '[0-9]+'}",
            r"metrics.steps: a regex needs a group (?P<step>\d+); named patterns: auto, json,",
        ),
        ("reserve: 4", "reserve: 4 should be a mapping of keys and values (write `reserve: {"),
        ("reserve: {gpus: 4}", "reserve.gpus: unknown key (did you mean 'cpus'?)"),
        ("marks: slow", "marks: 'slow' should be a list (write `marks: [slow]`)"),
        ("marks: [a, 3]", "marks.1: a mark is its name, or {name: value}, such as {timeout: 300}"),
        (
            "marks: [a-b]",
            "marks.0: 'a-b' is not a mark's name; use letters, digits and underscores",
        ),
        (
            "parametrize: [seed]",
            'parametrize: ["seed"] should be a mapping of keys and values'
            " (write `parametrize: {cluster.worker: [2, 4]}`)",
        ),
        ("parametrize: {seed: 3}", "parametrize.seed: 3 should be a list"),
        ("parametrize: {seed: []}", "parametrize.seed: is empty"),
        ("parametrize: {seed: [1, 1]}", "parametrize.seed: 1 is listed twice; each value runs"),
        ("parametrize: {a=b: [1]}", "parametrize.a=b: 'a=b' is not a scenario key; write one"),
        ("parametrize: {seed: [2026-01-02]}", "parametrize.seed.0: 2026-01-02 is neither text nor"),
        ("reference: {reference: {}}", "reference.reference: reference can't be varied"),
        ("5: 2", "5: the key 5 is not text (write it in quotes)"),
        *((f"expect: {{{text}}}", f"expect.{problem}") for text, problem in EXPECTATIONS),
        # Nonsense.
        (r'description: "\e]0;x\a"', "description: contains a contro"),
        ("seed: 18446744073709551616", "seed: a whole number of more"),
        (f"seed: {'9' * 5000}", "not valid YAML: Exceeds the limit (4300 digits)"),
        ("seed: 0x" + "f" * 40, "seed: a whole number of more than 64"),
        ("seed: 1" + ":59" * 40, "seed: a whole number of more than 64 bits"),
        ("? \n: x", "null: the key null is not text (write it in"),
        ("timeout: 40000d", "timeout: 3.456e+09s is too large; the maximum is 36500d"),
        ("network: {delay: 2m}", "network.delay: 120s is too large; the maximum is 60s"),
        ("network: {bandwidth: 0bit}", "network.bandwidth: 0bit is too"),
        ("image: {dockerfile: .}", "image.dockerfile: "),
        (
            "expect: {final_step: -9223372036854775809}",
            "expect.final_step: a whole number of more than 64 bits",
        ),
        (
            "faults: [{random: {kill: '*'}, every: 1ms, max: 1000000000}]",
            "faults.0.max: 1000000000 should be less than or equal to 1000",
        ),
        (f"faults: [{{kill: {'w' * 300}, at: 1s}}]", "faults.0.kill: 'www"),
        (
            "faults: [{kill: chief-0, at: {log: 'a**'}}]",
            "faults.0.at.log: 'a**' is not a regular expression: multiple repeat at position 2",
        ),
        (
            "metrics: {steps: '(?P<step>a)(?P=other)'}",
            "metrics.steps: '(?P<step>a)(?P=other)' is not a regular expression: unknown group",
        ),
    ],
    ids=lambda value: value[:40].encode("unicode_escape").decode(),
)
def test_a_wrong_section_is_reported_by_line_with_a_hint(added: str, problem: str) -> None:
    found = only_problem(GOOD + "\n# a comment\n" + added)
    assert found.startswith("s.yaml:10: " + problem)
    assert len(found) < 500


WRONG_VALUES: dict[str, list[tuple[str, str]]] = {
    "name: good\n": [
        ("name: A\n", "1: name: 'A' is not a valid host name (lower-case letters, digits, dashes"),
        ('name: "go\\0od"\n', r"1: name: contains a control character, '\x00' (leave it"),
        ("", "name: is missing (write `name: my-cluster`)"),
    ],
    "[python, train.py]": [
        ("a b", "3: program.command: 'a b' should be a list (write `command: [a, b]`)"),
        ("['']", "3: program.command: its first word is empty"),
        ("\n  - python\n  - yes", f"5: program.command.1: {NO_TEXT}"),
    ],
    '{STEPS: "100"}': [
        ("{DEBUG: yes}", f"4: program.env.DEBUG: {NO_TEXT}"),
        ("{A: }", "4: program.env.A: null should be text"),
        ("{NO: a}", "4: program.env.NO: the key NO is not text (write it in quotes)"),
        ("[A]", '4: program.env: ["A"] should be a mapping of keys and values (write `env: {'),
    ],
    "  env:": [("  source: 3\n  env:", "4: program.source: 3 should be a path")],
    "chief: 1": [
        ("cheif: 1", "6: cluster.cheif: unknown role (did you mean 'chief'?)"),
        ("x: 1", "6: cluster.x: unknown role (roles of tensorflow: chief, worker, ps, evaluator;"),
        ("master: 1", "6: cluster.master: unknown role (TF2 rejects 'master'; write 'chief')"),
        ("chief: 2", f"6: {TWO_CHIEFS}"),
        ("chief:\n    replicas: 2", f"7: {TWO_CHIEFS}"),
        (
            "chief: one",
            "6: cluster.chief: 'one' should be a mapping of keys and values"
            " (write the number of tasks, `chief: 2`, or",
        ),
    ],
    "cpus: 1": [
        ("cpu: 1", "7: cluster.worker.cpu: unknown key (did you mean 'cpus'?)"),
        ("cpus: 0", "7: cluster.worker.cpus: 0 should be greater than 0"),
        ("cpus: few", "7: cluster.worker.cpus: 'few' should be a number"),
        ("memory: 5", "7: cluster.worker.memory: '5' is not a size; write '512m'"),
        ("gpus: all", "7: cluster.worker.gpus: 'all' should be a mapping of keys"),
        ("gpus: {n: 1}", "7: cluster.worker.gpus.n: unknown key (known here: count,"),
    ],
    "replicas: 2": [("replicas: 500", "5: cluster: has 501 tasks; 500 are the most")],
    "cluster:\n": [("cluster:\nc:\n", "5: cluster: null should be a mapping of keys")],
}
"""What stands in GOOD, and by what it is replaced."""


@pytest.mark.parametrize(
    ("given", "written", "problem"),
    [(given, *row) for given, rows in WRONG_VALUES.items() for row in rows],
)
def test_a_wrong_value_is_reported_by_line_with_a_hint(
    given: str, written: str, problem: str
) -> None:
    assert given in GOOD
    found = problems(GOOD.replace(given, written, 1))
    place = "s.yaml:" if problem[0].isdigit() else "s.yaml: "
    assert [p for p in found if p.startswith(place + problem)], found


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "cluster: {worker: 2}\nsuccess: chief",
            "4: success: 'chief' is set, but the cluster has none"
            " (add `chief: 1` to cluster, or write `success: auto`",
        ),
        (
            "cluster: {chief: 1}\nsuccess: all-workers",
            "4: success: 'all-workers' is set, but the cluster has none"
            " (add `worker: 2` to cluster, or write `success: auto`",
        ),
        ("framework: pytorch\ncluster: {chief: 1}", "4: cluster."),
        ("framework: pytorch\ncluster: {master: 2}", "4: cluster."),
        ("framework: none\ncluster: {No_Host: 1}", "4: cluster."),
        (f"framework: none\ncluster: {{{'a' * 33}: 1}}", "4: cluster."),
        (f"{TORCH}elastic: {{min: 3}}", f"5: elastic.min: {ONLY_TWO}"),
        (f"{TORCH}elastic: {{max: 3}}", f"5: elastic.max: {ONLY_TWO}"),
        (f"{TORCH}elastic: {{min: 2, max: 1}}", "5: elastic: min is 2, but max is 1"),
        (f"{TORCH}elastic: {{min: 0}}", "5: elastic.min: "),
        (f"{TORCH}elastic: {{backend: etcd}}", "5: elastic.backend: 'etcd' is not allowed"),
        (
            f"{TORCH}elastic: {{conf: {{last_call_timeout: '5,is_host=1'}}}}",
            "5: elastic.conf.last_call_timeout: ",
        ),
        (
            "cluster: {worker: 2}\nelastic: {min: 1}",
            "4: elastic: is for torchrun (write `framework:",
        ),
        (
            f"{TORCH}rendezvous: cluster-config",
            "5: rendezvous: 'cluster-config' is not for framework pytorch (write `framework: "
            "tensorflow`, or leave it out)",
        ),
        (
            "framework: none\ncluster: {worker: 2}\nrendezvous: tf-config",
            "5: rendezvous: 'tf-config' is not for framework",
        ),
        (
            "cluster: {worker: 2}\nrendezvous: clusterconfig",
            "4: rendezvous: 'clusterconfig' is not",
        ),
    ],
)
def test_what_does_not_fit_the_framework_or_cluster_is_reported_by_line(
    text: str, problem: str
) -> None:
    assert only_problem(HEAD + text).startswith(f"s.yaml:{problem}")


# --- Several mistakes ---------------------------------------------------------------------------


def test_five_mistakes_give_five_lines_in_the_order_of_the_file() -> None:
    found = problems("""\
        name: Five
        program:
          command: python
        cluster: {worker: 2}
        success: chief
        timeout: 5
        metrics: {setps: auto}
        """)
    assert [problem.split(": ")[:2] for problem in found] == [
        ["s.yaml:1", "name"],
        ["s.yaml:3", "program.command"],
        ["s.yaml:5", "success"],
        ["s.yaml:6", "timeout"],
        ["s.yaml:7", "metrics.setps"],
    ]


DEPENDENT = """\
program: {command: [a, '${addresses.ps}'], env: {TF_CONFIG: a}}
expect: {bytes_per_step: {ps: {sent: {max: 1m}}}}
faults: [{kill: ps-0, at: 1s}]
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        # Whether a chief is there is unknown where the cluster itself is broken.
        (
            f"cluster: [chief]\nsuccess: chief\n{DEPENDENT}helpers: {{worker-0: {{command: [a]}}}}",
            2,
        ),
        ("framework: pytorch\ncluster: 5\nelastic: {min: 2}\nprogram: {command: [a]}", 3),
        (
            "program: {command: [a], working_dir: /other, typo: 1}\n"
            "cluster: {worker: {source: ., mounts: {/job/t.py: t.py}}}",
            2,
        ),
        (
            "reference: 5\nexpect: {throughput: {at_least: 0.9, of: reference}}\n"
            "cluster: {worker: 1}\nprogram: {command: [a]}",
            2,
        ),
        # What is unknown of a role or a fault that has a stand-in.
        ("cluster: {ingest: {before: training, cpus: few}}\nprogram: {command: [a]}", 2),
        (
            "program: {command: [a]}\ncluster: {worker: 1}\nfaults:\n"
            "- {name: x, kill: worker-0, at: 5s}\n- {name: x, kill: worker-0, at: 5}",
            6,
        ),
    ],
)
def test_nothing_is_reported_that_rests_on_a_broken_section(
    tmp_path: Path, text: str, line: int
) -> None:
    (tmp_path / "t.py").touch()
    assert only_problem(f"name: x\n{text}\n", folder=tmp_path).startswith(f"s.yaml:{line}: ")


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("framework: 5\ncluster: {master: 1, worker: two}", ["framework", "cluster.worker"]),
        (
            "cluster: {chief: 2, worker: {before: training, cpus: few}}",
            ["cluster.chief.replicas", "cluster.worker.cpus"],
        ),
        (
            "cluster: {worker: two, ps: 1}\nhelpers: 5\nfaults: [{kill: board, at: 5s}]",
            ["cluster.worker", "helpers"],
        ),
    ],
)
def test_nothing_but_what_is_certain_is_reported_of_a_broken_role(
    text: str, paths: list[str]
) -> None:
    assert [one.split(": ")[1] for one in problems(HEAD + text)] == paths


def test_a_cluster_of_just_as_many_tasks_as_there_may_be_is_checked_in_full() -> None:
    text = "name: x\nprogram: {command: ['${nothing}']}\ncluster: {worker: 500}"
    assert only_problem(text).startswith("s.yaml:2: program.command.0: ")
    too_many = only_problem(text.replace("500}", "500, ps: 1}"))
    assert too_many == "s.yaml:3: cluster: has 501 tasks; 500 are the most"


@pytest.mark.parametrize(
    "written",
    [
        "cluster: {worker: 1}\nhelpers: {board-1: {command: [a]}, worker-x: {command: [a]}}",
        "cluster: {worker: 1}\nhelpers: {event-files: {command: [a]}}",
        "cluster: {worker: 1}\nhelpers: {trainer-status: {command: [a]}}",
        "cluster: {worker: 1}\nmetrics: {events: logs}\nhelpers: {board: {command: [a]}}",
        "cluster: {worker: 1, in: {before: training}}\nfaults: [{random: {kill: '*'}, every: 1s}]",
    ],
)
def test_what_only_resembles_a_mistake_is_taken(written: str) -> None:
    assert parse(HEAD + written)


def test_a_number_has_64_bits_and_a_larger_one_is_one_mistake() -> None:
    assert parse(f"{GOOD}seed: {-(2**63)}").seed == -(2**63)
    for number in (-(2**63) - 1, 10**63, 10**64):
        faults = "faults: [{kill: worker-3, at: 5s}]"  # how many workers there are is unknown
        found = only_problem(f"{HEAD}cluster: {{worker: {number}}}\n{faults}")
        assert found.startswith("s.yaml:3: cluster.worker: a whole number of more than 64 bits")


def test_a_text_that_is_too_large_has_no_line() -> None:
    assert parse(f"{GOOD}#{' ' * (2**20 - len(GOOD) - 1)}")
    assert problems("#" * (2**20 + 1)) == ["s.yaml: not valid YAML: it has more than 1 MiB"]
    assert problems("\n\a").pop() == (
        "s.yaml:2: not valid YAML: the character #x0007 is not allowed"
    )


def test_what_an_engine_does_not_support_is_reported_by_line() -> None:
    def refused(**more: object) -> Unsupported:
        with pytest.raises(Unsupported) as error, placed(GOOD, "s.yaml", ["timeout=5s"]):
            raise Unsupported("It can't.", "Use another.", lacks={"a"}, **more)  # type: ignore[arg-type]
        return error.value

    found = refused(keys=[(("cluster", "worker", "cpus"), "no cores"), (("timeout",), "no end")])
    assert (found.message, {*found.lacks}) == (
        "--set timeout=5s: timeout: no end (use another)\n"
        "s.yaml:7: cluster.worker.cpus: no cores (use another)",
        {"a"},
    )
    assert refused().message == "It can't."
    for title in ("", "Given."):
        text = Given(Path("s.yaml"), GOOD, title=title)
        with pytest.raises(ScenarioError) as misfit, text.placed():
            raise Misfit(("cluster", "worker", "cpus"), "too many", "fewer")
        where = title or "s.yaml"
        assert str(misfit.value) == f"{where}:7: cluster.worker.cpus: too many (fewer)"


ROLES = """\
name: x
program: {command: [a]}
cluster:
  worker: WORKER
  chef: 1
  ingest: {before: training, cpus: CPUS}
faults:
  - {kill: worker-9, at: 5s}
  - {kill: wroker-0, at: 5s}
  - {name: spot, pause: worker-0, at: 5s, for: FOR}
  - {kill: chef-1, at: {after: spot}}
  - {kill: chef-0, at: {after: sopt}}
"""


@pytest.mark.parametrize(
    ("worker", "cpus", "length", "expected"),
    [
        ("2", "1", "5s", [(5, "unknown role"), (8, "worker-9"), (9, "wroker-0"), (12, "sopt")]),
        # How many workers there are is unknown, and what a fault can be in the order of the job.
        ("two", "1", "5s", [(4, "two"), (5, "unknown role"), (9, "wroker-0")]),
        ("2", "few", "5s", [(5, "unknown role"), (6, "few"), (8, "worker-9"), (9, "wroker-0")]),
        (
            *("2", "1", "long"),
            [(5, "unknown role"), (8, "worker-9"), (9, "wroker-0"), (10, "long"), (12, "sopt")],
        ),
        ("two", "few", "long", [(4, "two"), (5, ""), (6, "few"), (9, "wroker-0"), (10, "long")]),
    ],
)
def test_what_is_sound_is_checked_beside_a_broken_role_or_fault(
    worker: str, cpus: str, length: str, expected: list[tuple[int, str]]
) -> None:
    text = ROLES.replace("WORKER", worker).replace("CPUS", cpus).replace("FOR", length)
    expected = sorted([*expected, (11, "chef-1")])
    found = problems(text)
    assert [int(one.split(":")[1]) for one in found] == [line for line, _ in expected]
    assert all(word in one for one, (_, word) in zip(found, expected, strict=True)), found


def test_a_key_given_twice_is_reported_where_it_stands_again() -> None:
    found = problems(GOOD + "  worker: 3\nname: again\n")
    assert found == [
        "s.yaml:8: cluster.worker: is given twice; only the last one would count",
        "s.yaml:9: name: is given twice; only the last one would count",
    ]


# --- Mistakes of variants -----------------------------------------------------------------------

VARIED = (
    GOOD
    + """\
faults:
  - {kill: worker-1, at: 40s}
parametrize:
  cluster.worker:
    - 2
    - 4
  faults.0.at:
    - 5s
    - {step: 10}
reference:
  cluster.worker: 2
"""
)
NO_TASK = "9: faults.0.kill: no task is called 'worker-1', with"
IS_THERE = "(did you mean 'worker-0'?)"


def test_variants_that_are_sound_are_nothing_to_tell() -> None:
    scenario = parse(VARIED)
    assert scenario.cluster["worker"].replicas == 2
    assert scenario.parametrize == {"cluster.worker": [2, 4], "faults.0.at": ["5s", {"step": 10}]}
    assert scenario.reference == {"cluster.worker": 2}


def test_what_one_variant_sets_is_not_set_in_the_next() -> None:
    parse(VARIED + "  faults: []\n")  # its reference has no fault to strike earlier


@pytest.mark.parametrize(
    ("given", "written", "problem"),
    [
        ("- 4", "- many", "13: cluster.worker: 'many' should be a mapping of keys and values"),
        ("- 5s", "- 5", "15: faults.0.at: '5' is not a duration; write '5s' (or `{step: 5}`)"),
        ("{step: 10}", "{stp: 10}", "16: faults.0.at.stp: unknown key (did you mean 'step'?)"),
        ("faults.0.at:", "faults.1.at:", "15: faults.1.at: the list has no entry 1"),
        ("  cluster.worker:\n", "  clustr.worker:\n", "12: clustr: unknown key (did you mean"),
        ("worker: 2\n", "worker: some\n", "18: cluster.worker: 'some' should be a mapping"),
        ("- 4", "- 1", f"{NO_TASK} cluster.worker=1 faults.0.at=5s {IS_THERE}"),
        (
            *("worker: 2\n", "worker: 1\n"),
            f"{NO_TASK} cluster.worker=2 faults.0.at=5s cluster.worker=1 {IS_THERE}",
        ),
    ],
)
def test_a_mistake_in_a_variant_is_reported_once_and_by_its_line(
    given: str, written: str, problem: str
) -> None:
    assert VARIED.count(given) == 1 or "worker: 2" in given
    found = problems(written.join(VARIED.rsplit(given, 1)))
    # An unknown key is one for each of its values.
    assert found[0].startswith(f"s.yaml:{problem}"), found
    assert len({line.split(": ", 1)[1] for line in found}) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (VARIED + "timeuot: 5s\nsuccess: all-worker\n", {"19": "timeuot", "20": "success"}),
        (
            VARIED.replace("- 4", "- many") + "timeuot: 5s\n",
            {"13": "cluster.worker", "19": "timeuot"},
        ),
    ],
    ids=["not of each variant", "with those of variants"],
)
def test_what_is_wrong_without_a_variant_is_reported_once(
    text: str, expected: dict[str, str]
) -> None:
    found = [line.split(":")[1:3] for line in problems(text)]
    assert found == [[line, f" {path}"] for line, path in expected.items()]


def test_a_mistake_in_variants_that_were_set_names_the_override() -> None:
    assignment = "parametrize={cluster.worker: [none]}"
    found = only_problem(GOOD, assignment)
    assert found.startswith(f"--set {assignment}: cluster.worker: 'none' should be a mapping")


_PATHS = "cluster cluster.worker cluster.worker.cpus faults.0.at faults.3 faults name seed x=1"
_WRONG = "program.command.1.x parametrize expect.throughput"
_KEYS = st.sampled_from([*_PATHS.split(), *_WRONG.split(), "", 5, None, 1.5])
_LEAF = st.sampled_from([None, True, False, -1, 0, 1, 2, 3, "5s", "worker-1", "x", ".inf"])
_ANY = st.recursive(
    _LEAF,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=2),
    max_leaves=4,
)


@given(st.dictionaries(_KEYS, st.lists(_ANY, max_size=3) | _ANY, max_size=3) | _ANY, _ANY)
def test_whatever_is_parametrized_it_is_read_or_refused(varied: object, reference: object) -> None:
    whole = yaml.safe_load(VARIED) | {"parametrize": varied, "reference": reference}
    message = outcome(yaml.safe_dump(whole, sort_keys=False))
    assert message == "read" or all(line.startswith("s.yaml:") for line in message.splitlines())


# --- What is no scenario at all -----------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "# only words\n", "- a\n", "just words"])
def test_what_is_no_mapping_is_reported_with_a_way_to_begin(text: str) -> None:
    expected = "s.yaml:1: a scenario is a mapping of keys (begin with `name: my-first-cluster`"
    assert only_problem(text).startswith(expected)


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("name: x\n\tcluster: 1\n", 2, "found character '\\t'"),
        ("name: [x\n", 2, "expected ',' or ']'"),
        ("name: 'x\n", 2, "found unexpected end of stream"),
        ("name: x\n---\nname: y\n", 2, "but found another document"),
        ("name: !secret x\n", 1, "the tag '!secret' is not allowed"),
        ("name: x\nb: \0\n", 2, "the character #x0000 is not allowed"),
        ("a: \x1b[1m", 1, "the character #x001b is not allowed"),
        ("name: 2024-02-30\n", 1, "day is out of range for month"),
        ("name: x\na: " + "[" * 3000, 2, "nested too deeply: 50 lists"),
        ("a: !!python/object/apply:os.system [ls]", 1, "the tag '!!python/object/apply:os.system'"),
        ("a: !!int x", 1, "the tag '!!int' is not allowed; leave it out"),
        ("a: !!bool x", 1, "the tag '!!bool' is not allowed"),
        ("a: !!timestamp x", 1, "the tag '!!timestamp' is not allowed"),
        ("a: !!binary x", 1, "the tag '!!binary' is not allowed"),
        ("a: !!set {b}", 1, "the tag '!!set' is not allowed"),
        ("a: *nobody", 1, "found undefined alias 'nobody'"),
        ("a: &b [*b]", 1, "nested too deeply: 50 lists and mappings are the most"),
        ("a: &b {<<: *b}", 1, "nested too deeply: 50 lists and mappings are the most"),
        ('a: "\\U00110000"', 1, "chr() arg not in range"),
        ("a: 2026-13-40", 1, "month must be in 1..12"),
        ("a: 2026-02-30 10:00:00", 1, "day is out of range for month"),
    ],
    ids=lambda value: str(value)[:40].encode("unicode_escape").decode(),
)
def test_what_is_no_yaml_of_ours_is_reported_in_one_line(
    text: str, line: int, problem: str
) -> None:
    assert only_problem(text).startswith(f"s.yaml:{line}: not valid YAML: {problem}")


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(GOOD, encoding="utf-8-sig")
    assert load(tmp_path / "s.yaml").name == "good"


@given(
    st.text()
    | st.lists(
        st.sampled_from(["name: x", "cluster: {worker: 1}", "program: {command: [a]}", "- a: &b"])
        | st.text(max_size=12).map(lambda text: f"x: {text}"),
    ).map("\n".join)
)
def test_whatever_the_file_holds_it_is_read_or_refused(text: str) -> None:
    message = outcome(text)
    assert message == "read" or message.startswith("s.yaml:")


# --- Overrides ----------------------------------------------------------------------------------

WORKER = {"replicas": 2, "cpus": 1}


def test_an_override_adds_a_role_and_limits_to_a_bare_number() -> None:
    scenario = parse(GOOD, sets=["cluster.ps=2", "cluster.chief.cpus=0.5"])
    assert scenario.cluster["ps"] == Role(replicas=2)
    assert scenario.cluster["chief"] == Role(replicas=1, cpus=0.5)


def test_an_override_reaches_into_lists_and_may_hold_equals_signs_and_nothing() -> None:
    assert parse(GOOD, sets=["program.command.1=b"]).program.command == ["python", "b"]
    assert parse(GOOD, sets=["program.command=[a, b]"]).program.command == ["a", "b"]
    assert parse(GOOD, sets=["program.env.A=b=c"]).program.env["A"] == "b=c"
    assert parse(GOOD + "timeout: 5s\n", sets=["timeout="]).timeout is None


FAULTY = (
    GOOD + "faults: [{preempt: worker-1, at: {step: 300}, grace: 2s}, {kill: worker-0, at: 40s}]\n"
)


@pytest.mark.parametrize(
    ("sets", "named"),
    [
        (["faults.0.grace=9s", "faults.0={preempt: worker-1, at: 1s, grace: 1}"], 1),
        (["faults.0={preempt: worker-1, at: 1s}", "faults.0.grace=1"], 1),
        (["faults.0={preempt: worker-1, at: 1s, grace: 1}", "faults.0.at=2s"], 0),
        (["faults.0.grace=1", "faults.0.at=2s"], 0),
    ],
)
def test_a_mistake_names_the_override_that_made_it_and_no_earlier_one(
    sets: list[str], named: int
) -> None:
    assert only_problem(FAULTY, *sets) == (
        f"--set {sets[named]}: faults.0.grace: '1' is not a duration; write '1s'"
    )


def test_a_mistake_in_what_another_file_gave_is_reported_as_it_is_called_there() -> None:
    worker = ("cluster", "worker")
    origins: Origins = {
        worker: ("job.yaml:3", "Worker"),
        (*worker, "replicas"): ("job.yaml:4", "Worker.replicas"),
        ("seed",): ("more.yaml:2", "seed"),
        (): ("job.yaml:1", "spec"),
    }
    text = f"{HEAD}cluster: {{worker: {{replicas: 0, cpus: few}}}}\nseed: {2**63}\ntimeout: 5\n"
    number = f'a whole number of more than 64 bits (if it is text, write "{2**63}" in quotes)'
    others = [
        "job.yaml:3: Worker (cluster.worker.cpus): 'few' should be a number (write `cpus: 0.2`)",
        f"more.yaml:2: seed: {number}",
        "job.yaml:1: spec (timeout): '5' is not a duration; write '5s'",
    ]
    assignment, least = "cluster.worker.replicas=-1", "should be greater than or equal to 1"
    for sets, replicas in {
        (): f"job.yaml:4: Worker.replicas: 0 {least}",
        (assignment,): f"--set {assignment}: cluster.worker.replicas: -1 {least}",
    }.items():
        with pytest.raises(ScenarioError) as refused:
            parse(text, file="s.yaml", sets=sets, origins=origins)
        assert sorted(map(str, refused.value.problems)) == sorted([replicas, *others])


@pytest.mark.parametrize(
    ("assignment", "path"),
    [
        ("cluster.worker=0", "cluster.worker.replicas"),
        ("cluster.worker=true", "cluster.worker"),
        ("cluster={worker: 0}", "cluster.worker"),
        ("cluster.ps=none", "cluster.ps"),
        ("timeuot=5s", "timeuot"),
        ("expct.final_step=3", "expct"),
        ("program.command.0=null", "program.command.0"),
        ("program.env.URL=[a:80]", "program.env.URL"),
        ("faults.0.grace=1", "faults.0.grace: '1' is not a duration; write '1s'"),
        ("faults.0.gracee=1s", "faults.0.gracee: unknown key (did you mean 'grace'?)"),
    ],
)
def test_a_mistake_in_an_override_names_the_override(assignment: str, path: str) -> None:
    path += "" if ": " in path else ": "
    assert only_problem(FAULTY, assignment).startswith(f"--set {assignment}: {path}")


@pytest.mark.parametrize(
    ("assignment", "why"),
    [
        ("cluster.worker", "is not KEY=VALUE"),
        ("=4", "is not KEY=VALUE"),
        ("name=[a", "is not YAML: expected ',' or ']'"),
        ("name=2024-02-30", "is not YAML: day is out of range"),
        ("name=\0", "is not YAML: the character #x0000"),
        (r'name="a\0b"', ": name: contains a control character, '\\x00'"),
        (r'program.command=[a, "a\0b"]', ": program.command.1: contains a control character"),
        ("program.command.2=b", "there is nothing to set at program.command.2"),
        ("program.command.x=b", "there is nothing to set at program.command.x"),
        ("program.command.2.x=b", "the list has no entry 2"),
        ("program.command.x.y=b", "the list has no entry x"),
        ("program.command.1.x=b", "there is nothing to set at program.command.1.x"),
        ("name.first=b", "there is nothing to set at name.first"),
        ("name.first.second=b", "first is below a plain value"),
        ("faults.2.grace=1s", ": the list has no entry 2."),
        ("faults.-1.grace=1s", ": the list has no entry -1."),
    ],
)
def test_an_override_that_can_not_be_applied_is_refused_in_one_line(
    assignment: str, why: str
) -> None:
    with pytest.raises(UsageError) as refused:
        parse(FAULTY, sets=[assignment])
    assert not isinstance(refused.value, ScenarioError)
    assert why in str(refused.value)
    assert str(refused.value).startswith(f"--set {shown(assignment)}")
    assert "\n" not in str(refused.value)


@given(
    st.lists(
        st.sampled_from(["cluster", "worker", "program", "command", "restart", "0", "²", "", "x"]),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from(["1", "true", "a", "[a]", "{a: 1}", "", "~"]) | st.text(max_size=5),
)
def test_whatever_is_set_it_is_read_or_refused(keys: list[str], value: str) -> None:
    assert outcome(GOOD, f"{'.'.join(keys)}={value}")
