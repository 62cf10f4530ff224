"""Values of a task in commands and variables: `${index}`, `${addresses.ps}`, and literal text."""

from __future__ import annotations

import re
import subprocess

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from emulator.errors import UsageError
from emulator.scenario.frameworks.registry import FRAMEWORKS
from emulator.scenario.frameworks.spec import Member
from emulator.scenario.loader import parse
from emulator.scenario.values import PLAIN, Expander, Values, read, variables
from tests.scenario.mistakes import only_problem, problems
from tests.scenario.plans import members, plan

CLUSTER = members(ps=2, worker=3, chief=1, evaluator=1)
expand = Expander()
TENSORFLOW = Values(FRAMEWORKS["tensorflow"].roles, CLUSTER, shared="/shared", seed=7)


def of(task: str, values: Values = TENSORFLOW, everybody: list[Member] = CLUSTER) -> dict[str, str]:
    return dict(values.values_of(next(m for m in everybody if f"{m.role}-{m.index}" == task)))


# --- What each value is --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("task", "worker-1"),
        ("role", "worker"),
        ("index", "1"),
        ("rank", "2"),
        ("size", "4"),
        ("address", "worker-1:2222"),
        ("host", "worker-1"),
        ("port", "2222"),
        ("addresses", "chief-0:2222,worker-0:2222,worker-1:2222,worker-2:2222"),
        ("hosts", "chief-0,worker-0,worker-1,worker-2"),
        (
            "cluster",
            '{"ps": ["ps-0:2222", "ps-1:2222"],'
            ' "worker": ["worker-0:2222", "worker-1:2222", "worker-2:2222"],'
            ' "chief": ["chief-0:2222"]}',
        ),
        ("shared", "/shared"),
        ("seed", "7"),
        ("address.ps-1", "ps-1:2222"),
        ("host.ps-1", "ps-1"),
        ("port.evaluator-0", "2222"),
        ("addresses.ps", "ps-0:2222,ps-1:2222"),
        ("hosts.worker", "worker-0,worker-1,worker-2"),
        ("size.worker", "3"),
    ],
)
def test_a_worker_has_each_value(name: str, value: str) -> None:
    assert expand(f"--x=${{{name}}}!", of("worker-1")) == f"--x={value}!"


def test_every_plain_name_is_a_value_of_a_training_task() -> None:
    assert [name for name in of("worker-1") if "." not in name and name not in PLAIN] == []
    assert set(PLAIN) <= of("worker-1").keys()


@pytest.mark.parametrize("task", ["ps-0", "evaluator-0"])
def test_a_task_that_does_not_train_has_no_rank(task: str) -> None:
    assert "rank" not in of(task)
    assert "EMULATOR_RANK" not in variables(of(task))
    assert variables(of(task))["EMULATOR_SIZE"] == "4"


def test_without_a_framework_every_task_has_a_rank_in_the_order_of_the_scenario() -> None:
    everybody = members(server=1, evaluator=1, client=2)
    values = Values(FRAMEWORKS["none"].roles, everybody, shared="/shared", seed=0)
    assert [values.values_of(member)["rank"] for member in everybody] == ["0", "1", "2", "3"]
    assert values.values_of(everybody[0])["cluster"].count("evaluator-0") == 1


@pytest.mark.parametrize("cluster", ["{worker: 3}", "{worker: 2, master: 1}", "{master: 1}"])
def test_the_rank_is_the_one_that_pytorch_gets(cluster: str) -> None:
    for task in plan(f"framework: pytorch\ncluster: {cluster}\n").tasks:
        assert task.env["EMULATOR_RANK"] == task.env["RANK"]
        assert task.env["EMULATOR_SIZE"] == task.env["WORLD_SIZE"]


def test_the_variables_of_a_task() -> None:
    assert variables(of("worker-1")) == {
        "EMULATOR_TASK": "worker-1",
        "EMULATOR_ROLE": "worker",
        "EMULATOR_INDEX": "1",
        "EMULATOR_RANK": "2",
        "EMULATOR_SIZE": "4",
        "EMULATOR_SHARED": "/shared",
        "EMULATOR_SEED": "7",
    }


# --- Text that is no reference -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("", ""),
        ("$HOME $task $1 $? $", "$HOME $task $1 $? $"),
        ("$(date) $((1 + 2)) $(HOSTNAME)", "$(date) $((1 + 2)) $(HOSTNAME)"),
        ("${HOME:-/root} ${HOME-x} ${#a} ${a[0]} ${x%.*} ${1} ${@}",) * 2,
        ("{task} {} %(task)s", "{task} {} %(task)s"),
        ("$${HOME}", "${HOME}"),
        ("$${task}", "${task}"),
        ("$${HOME:-x}", "${HOME:-x}"),
        ("$$${task}", "$${task}"),
        ("$$ $$$", "$$ $$$"),
        ("${task}${index}", "worker-11"),
        ("$${${task}}", "${worker-1}"),
        ("a$${b}c${task}d", "a${b}cworker-1d"),
        ("${", "${"),
        ("${}", "${}"),
        ("$HOME${task}", "$HOMEworker-1"),
    ],
)
def test_literal_text(text: str, result: str) -> None:
    assert expand(text, of("worker-1")) == result
    assert read(text).malformed == ()


_PIECES = st.sampled_from([*"${}x.- \né", "task", "index", "${task}"])


@given(st.lists(_PIECES, max_size=20).map("".join))
@example("$${task}")
@example("$$$")
def test_any_text_can_be_written(text: str) -> None:
    """With one more dollar before each brace."""
    escaped = re.sub(r"\$+\{", lambda found: f"${found[0]}", text)
    assert expand(escaped, of("worker-1")) == text


@given(st.text(alphabet="$ab(){ }é\n", max_size=30).filter(lambda text: "${" not in text))
def test_text_without_a_reference_stays(text: str) -> None:
    assert expand(text, of("ps-0")) == text


@pytest.mark.parametrize("piece", ["$", "${", "${a", "$${", "${task ", "${a.b-", "$$"])
def test_long_texts_are_read_in_linear_time(piece: str) -> None:
    """Quadratic time would be minutes."""
    text = piece * (100_000 // len(piece))
    assert read(text).expand({}) == text.replace("$${", "${")


def test_a_shell_gets_what_is_meant_for_it() -> None:
    script = 'x=4; echo $x $${x} ${HOME:+home} $((x + ${index})) "$(echo ${task})" ${x:-none}'
    done = subprocess.run(
        ["sh", "-c", expand(script, of("worker-1"))],
        env={"HOME": "/root"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "4 4 home 5 worker-1 4\n"


# --- Mistakes ------------------------------------------------------------------------------------


LISTED = ", ".join(PLAIN)
SCENARIO = """\
name: values
program:
  command:
    - python
    - A
  env:
    B: b
cluster:
  chief: 1
  worker: 2
  ps:
    replicas: 2
    command: [serve, C]
    env: {D: d}
"""


@pytest.mark.parametrize(
    ("written", "place"),
    [
        ("- A", "s.yaml:5: program.command.1"),
        ("B: b", "s.yaml:7: program.env.B"),
        ("serve, C", "s.yaml:13: cluster.ps.command.1"),
        ("D: d", "s.yaml:14: cluster.ps.env.D"),
    ],
)
@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        (
            "${taks}",
            "there is no value ${taks} (did you mean ${task}? For the text itself, write $${taks})",
        ),
        (
            "x-${HOME}",
            f"there is no value ${{HOME}} (there are {LISTED}. For the text itself, write"
            " $${HOME})",
        ),
        ("${hosts.wroker}", "there is no value ${hosts.wroker} (did you mean ${hosts.worker}? For"),
        ("${address.ps}", "there is no value ${address.ps} (did you mean ${address.ps-"),
        (
            "${size.abcdef}",
            "there is no value ${size.abcdef} (there are size.chief, size.worker, siz",
        ),
        ("${task.x}", "there is no value ${task.x} (did you mean ${task}? For the text itself"),
        (
            "${index+1}",
            "${index+1} is not a reference to a value (write ${index}, or $${index+1} for the"
            " text itself)",
        ),
        ("${task:-x}", "${task:-x} is not a reference to a value (write ${task}, or $${task:-x} f"),
        ("${ task }", "${ task } is not a reference to a value (write ${task}, or $${ task } for"),
        ("${addresses.ps", "${addresses.ps is not a reference to a value (write ${addresses}, or"),
    ],
)
def test_a_mistake_has_its_line(written: str, place: str, reference: str, problem: str) -> None:
    text = SCENARIO.replace(written, f"{written[:-1]}'{reference}'")
    found = only_problem(text)
    assert found.startswith(f"{place}: {problem}")


@pytest.mark.parametrize("words", ["python, --rank=${rank}", "${task}", "a, b, c-${task}, d"])
def test_a_value_without_quotes_in_a_list_in_brackets_is_explained(words: str) -> None:
    found = only_problem(f"name: x\nprogram:\n  command: [{words}]\n")
    assert found == (
        "s.yaml:3: not valid YAML: expected ',' or ']', but got '{'; text with ${ is written in"
        ' quotes here, such as "--rank=${rank}"'
    )
    assert only_problem("name: ${task}\nprogram: {command: [a}}\n") == (
        "s.yaml:2: not valid YAML: expected ',' or ']', but got '}'"
    )
    found = only_problem("name: x\nprogram:\n  env: {A: ${task}}\n")
    assert found.startswith("s.yaml:3: not valid YAML: expected ',' or '}', but got '{'; text with")
    with pytest.raises(UsageError, match=r"but got '\{'; text with"):
        parse(SCENARIO, sets=[f"program.command=[{words}]"])
    parse(SCENARIO, sets=["program.command.1=${task}"])


def test_a_mistake_in_an_override_or_a_variant_has_its_place() -> None:
    found = only_problem(SCENARIO, "program.command.1=${taks}")
    assert found.startswith("--set program.command.1=${taks}: program.command.1: there is no value")
    found = only_problem(SCENARIO + "parametrize:\n  program.env.B:\n  - x\n  - ${taks}\n")
    assert found.startswith("s.yaml:18: program.env.B: there is no value ${taks}")
    found = only_problem(SCENARIO + "reference: {program.command.1: '${taks}'}\n")
    assert found.startswith("s.yaml:15: program.command.1: there is no value ${taks}")


def test_a_variant_may_lack_what_the_scenario_has() -> None:
    text = SCENARIO.replace("- A", "- ${address.worker-1}")
    parse(text)
    found = only_problem(text + "parametrize: {cluster.worker: [2, 1]}\n")
    assert found.startswith("s.yaml:5: program.command.1: there is no value ${address.worker-1}")
    assert found.endswith(", with cluster.worker=1 (did you mean ${address.worker-0}? For the text"
                          " itself, write $${address.worker-1})")  # fmt: skip


def test_all_mistakes_are_reported_together_and_each_once() -> None:
    text = SCENARIO.replace("- A", "- ${a}${b}${a}").replace("D: d", "D: '${c}'")
    assert [found.partition("(")[0] for found in problems(text)] == [
        "s.yaml:5: program.command.1: there is no value ${a} ",
        "s.yaml:5: program.command.1: there is no value ${b} ",
        "s.yaml:14: cluster.ps.env.D: there is no value ${c} ",
    ]


def test_a_rank_is_refused_where_a_task_has_none() -> None:
    of_all = SCENARIO.replace("B: b", "B: ${rank}")
    assert problems(of_all) == [
        "s.yaml:7: program.env.B: the tasks of ps have no ${rank}, because they do not train"
        " (give ps a command or a variable of its own)"
    ]
    parse(of_all.replace("{D: d}", "{B: none}"))
    parse(SCENARIO.replace("- A", "- ${rank}"))  # ps has a command of its own
    found = only_problem(SCENARIO.replace("serve, C", "serve, '${rank}'"))
    assert found.startswith("s.yaml:13: cluster.ps.command.1: the tasks of ps have no ${rank}")


def test_a_scenario_made_without_the_loader_is_refused_with_the_same_sentence() -> None:
    with pytest.raises(UsageError, match=r"^a\$\{taks\}: there is no value \$\{taks\}\. Did you"):
        expand("a${taks}", of("worker-1"))
