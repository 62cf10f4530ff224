"""The scenario models, and the JSON Schema that editors get: both must say the same."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import TypeAdapter, ValidationError

from emulator.metrics.readings import PHASES_ONLY
from emulator.runtime import plugins
from emulator.runtime.bundled import ROOT, scenarios
from emulator.scenario.frameworks.registry import FRAMEWORKS
from emulator.scenario.frameworks.spec import Framework, FrameworkName, role_of
from emulator.scenario.pytest_options import mark_arguments
from emulator.scenario.restart import Restart
from emulator.scenario.schema import (
    Dockerfile,
    Gpus,
    NamedImage,
    Program,
    Role,
    Scenario,
    json_schema,
)
from emulator.validation.fields import Model

SCHEMA = Draft202012Validator(json_schema())
HERE = Path(__file__).resolve()
LEAST: dict[str, Any] = {
    "name": "least",
    "program": {"command": ["true"]},
    "cluster": {"worker": 1},
}


def make(**keys: object) -> Scenario:
    return Scenario.model_validate({**LEAST, **keys}, context={})  # as a file has them


def bytes_sent(bounds: dict[str, object]) -> dict[str, Any]:
    return {"expect": {"bytes_per_step": {"worker": {"sent": bounds}}}}


def test_the_schema_is_a_valid_schema() -> None:
    Draft202012Validator.check_schema(json_schema())
    Draft202012Validator(json_schema()).validate({**LEAST, "restart": "always"})


@pytest.mark.parametrize(
    "path",
    [*scenarios(), *sorted((ROOT / "images" / "starters").glob("*/scenario.yaml"))],
    ids=lambda path: f"{path.parent.name}/{path.name}",
)
def test_models_and_schema_accept_every_scenario_that_is_shipped(path: Path) -> None:
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    SCHEMA.validate(data)
    Scenario.model_validate(data, context={"folder": path.parent})


ACCEPTED: list[dict[str, Any]] = [
    {},
    {"description": "words", "framework": "none", "seed": -3},
    {"timeout": "1m30s"},
    {"timeout": 0},
    {"timeout": None},
    {"image": "registry:5000/a/b@sha256:0"},
    {"image": "a" * 500},
    {"image": {"name": "cpu", "preload": ["tensorflow", "a.b"]}},
    {"log_limit": "1m"},
    {"parametrize": {key: [*range(10)] for key in "abc"}},
    {"expect": {"values": {"loss": {"min": 0.5, "max": 0.5}}}},
    bytes_sent({"min": "1k", "max": "1k"}),
    bytes_sent({"at_least": 1, "at_most": 1, "of": "model"}),
    {"image": {"dockerfile": str(HERE), "args": {"A": "b"}}},
    {"program": {"command": ["a"], "source": str(HERE), "env": {"A": 1, "B": 0.5, "C": "c"}}},
    {"cluster": {"worker": 500}},
    {"cluster": {"worker": {}}},
    {"cluster": {"worker": {"replicas": 2, "cpus": 0.5, "memory": "1.5GiB", "gpus": 1}}},
    {"cluster": {"worker": {"gpus": {"count": 2, "shared": True}, "image": "cpu"}}},
    {"cluster": {"worker": {"command": ["b"], "env": {"A": "b"}}}},
    {"cluster": {"worker": {"processes": 4096}}},
    {"network": {"metadata": "closed"}},
    {"network": {"metadata": "open"}},
    {"restart": "on-failure"},
    {"restart": {"policy": "exit-code", "scope": "job", "limit": 0, "backoff": "0.01ms"}},
    {"success": "all-workers"},
    {"network": {"internet": False, "delay": "5ms", "bandwidth": "100MBIT"}},
    {"metrics": {"steps": "(?P<step>[0-9]+)", "examples_per_step": 1, "interval": "500ms"}},
    {"expect": {"outcome": "timeout", "final_step": 0, "accuracy": 1, "min_goodput": 0}},
    {"expect": {"accuracy": "0%", "min_goodput": "80%"}},
    {"expect": {"throughput": {"during": {"min": "50%"}, "after": {"max": "110.5%"}}}},
    {"expect": {"throughput": {"at_least": "90%", "of": "reference"}}},
    {"expect": {"throughput": {"min": 0.5}, "recovers_within": "60s"}},
    {"expect": {"max_restarts": 0, "max_lost_steps": 0, "throughput": {"max": 9}}},
    {"expect": {"saved_within_grace": True, "monotone_checkpoints": True}},
    {"expect": {"single_chief": True, "steps_exactly_once": False}},
    {"expect": {"bytes_per_step": {"worker": {"sent": {"min": "1k", "max": "2.5m"}}}}},
    {"expect": {"bytes_per_step": {"worker": {"received": {"at_most": 2, "of": "model"}}}}},
    {"faults": [{"kill": "worker-0", "at": "5s"}]},
    {"faults": [{"pause": "worker-0", "at": {"step": 3}, "for": "1s"}]},
    {"reserve": {"cpus": 1.5, "memory": "4g"}},
    {"reserve": {}},
    {"reserve": None},
    {"parametrize": {}},
    {"parametrize": {"cluster.worker": [2, {"replicas": 3}], "timeout": ["5s", None]}},
    {"reference": {"cluster.worker": 1, "program.command": ["a", 0.5, True]}},
    {"marks": ["slow", {"timeout": 300}, {"usefixtures": ["a", "b"]}, {"flaky": {"reruns": 2}}]},
    {"marks": [{"xfail": "not yet"}, {"parametrize": ["a", [1, 2]]}, {"slow": None}]},
]


@pytest.mark.parametrize("keys", ACCEPTED, ids=str)
def test_models_and_schema_accept_and_what_is_written_down_is_the_same(
    keys: dict[str, Any],
) -> None:
    made = make(**keys)
    SCHEMA.validate({**LEAST, **keys})
    written = json.dumps(made.model_dump(mode="json"))
    assert Scenario.model_validate_json(written, context={"stored": True}) == made


@pytest.mark.parametrize("key", ["name", "program", "cluster"])
def test_models_and_schema_refuse_a_scenario_without(key: str) -> None:
    data = {k: v for k, v in LEAST.items() if k != key}
    with pytest.raises(ValidationError):
        Scenario.model_validate(data)
    assert not SCHEMA.is_valid(data)


REFUSED: dict[str, list[object]] = {
    "timeuot": ["5s"],
    "name": ["Upper", "a" * 41, "dash-", 3],
    "framework": ["tf"],
    "timeout": [5, "5", True],
    "image": [None, 3, {}, {"dockerfile": str(HERE), "arg": {}}],
    "program": [
        *({"command": [[]]}, {"command": "python train.py"}, {"command": ["python", True]}),
        *({"command": ["a"], "env": env} for env in ({"A": True}, {"A": None}, ["A=b"])),
    ],
    "cluster": [
        *({}, *({"worker": one} for one in (0, 501, True, "2", None, {"replica": 2}))),
        *({"worker": {"cpus": 0}}, {"worker": {"memory": 512}}, {"worker": {"memory": "5bb"}}),
        *({"worker": {"gpus": gpus}} for gpus in (-1, "all")),
        *({"worker": {"processes": count}} for count in (0, 15, 2**22 + 1, "many", True)),
    ],
    "network": [{"metadata": "shut"}, {"metadata": False}, {"bandwidth": 100}],
    "restart": ["sometimes", None, {"limit": -1}, {"backoff": 5}],
    "success": ["worker"],
    "seed": [1.5],
    "metrics": [{"steps": 3}, {"examples_per_step": 0}],
    "expect": [
        *({"outcome": "success"}, {"max_restarts": -1}, {"max_lost_steps": -1}, {"accuracy": 1.1}),
        *({"throughput": one} for one in (5, {"min": 0}, {"max": 0}, {"during": {"min": "-5%"}})),
        *({"throughput": {"at_least": 0, "of": "reference"}},),
        *({"throughput": {"at_least": 0.9, "of": one}} for one in ("yesterday", "baseline")),
        *({"min_goodput": share} for share in (-0.1, "0.8", "most%")),
        *({"saved_within_grace": 1}, {"single_chief": "worker-0"}),
    ],
    "faults": [
        [{"kill": "worker-0", "at": "5s", "gracious": "1s"}],
        [{"pause": "worker-0", "at": "5s", "for": "1s", "gracious": "1s"}],
    ],
    "reserve": [{"cpus": 0}, {"memory": 5}, {"gpus": 1}, 2],
    "parametrize": [{"seed": []}, {"seed": 3}, ["seed"]],
    "reference": [["seed"]],
    "marks": [
        "slow",
        *([one] for one in ("not slow", 3, {}, {"time-out": 3})),
        [{"timeout": 3, "slow": None}],
    ],
}


@pytest.mark.parametrize(
    "keys", [{key: value} for key, values in REFUSED.items() for value in values], ids=str
)
def test_models_and_schema_refuse(keys: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        make(**keys)
    assert not SCHEMA.is_valid({**LEAST, **keys})


@pytest.mark.parametrize("written", ["101%", "-1%", "nan%", "inf%", "1e3%", "%", f"{'9' * 400}%"])
def test_a_share_is_at_most_the_whole(written: str) -> None:
    with pytest.raises(ValidationError):
        make(expect={"min_goodput": written})


def test_a_percentage_is_the_share_that_it_says() -> None:
    expect = make(
        expect={"min_goodput": "80%", "throughput": {"during": {"min": "50%", "max": "110%"}}}
    ).expect
    assert expect.min_goodput == 0.8
    assert expect.throughput is not None
    assert (expect.throughput.during.min, expect.throughput.during.max) == (0.5, 1.1)


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"program": {"command": ["a"], "source": "~nobody-here/x"}}, "can't be resolved"),
        (
            {"program": {"command": ["a"], "source": "x" * 999}},
            "can't be resolved: File name too long",
        ),
        ({"image": {"dockerfile": "nowhere"}}, "there is no /"),
        ({"expect": {"bytes_per_step": {"worker": {}}}}, "needs `sent`, `received` or both"),
        ({"image": "a" * 501}, "is not an image reference"),
        ({"log_limit": "1048575b"}, "it can't be smaller than 1m"),
        ({"expect": {"values": {"loss": {}}}}, "needs `min`, `max` or both"),
        (bytes_sent({}), "needs `min` or `max`"),
        (bytes_sent({"of": "model"}), "`of` needs `at_least` or `at_most`"),
        (bytes_sent({"at_least": 0.9}), "`at_least` and `at_most` need `of`"),
        (bytes_sent({"min": "2m", "max": "1m"}), "`min` is greater than `max`"),
        (
            bytes_sent({"at_least": 2, "at_most": 1, "of": "model"}),
            "`at_least` is greater than `at_most`",
        ),
        ({"parametrize": {" ": [1]}}, "' ' is not a scenario key"),
        ({"parametrize": {"parametrize.seed": [1]}}, "can't be varied"),
        ({"reference": {"parametrize": {}}}, "can't be varied"),
        ({"parametrize": {k: [*range(11)] for k in "abc"}}, "makes 1,331 variants; 1,000 are"),
        ({"reference": {"seed": {1: 2}}}, "the key 1 is not text"),
        ({"marks": [{"timeout": float("inf")}]}, "neither text nor a number"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_models_refuse_what_a_schema_can_not_see(keys: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why) as refused:
        make(**keys)
    assert refused.value.error_count() == 1


def test_what_is_omitted_has_its_default() -> None:
    made = make()
    assert made.framework == "tensorflow"
    assert made.image == "auto"
    assert made.restart == Restart(policy="never", scope="task", limit=5)
    assert made.restart.first_backoff == 1.0
    assert made.cluster == {"worker": Role(replicas=1)}
    assert (made.success, made.timeout, made.seed) == ("auto", None, 0)
    assert (made.network.internet, made.network.delay, made.network.bandwidth) == (True, 0.0, None)
    assert (made.metrics.steps, made.metrics.interval) == (["auto"], 1.0)
    assert made.expect.outcome == "succeeded"
    assert made.reserve is None
    assert (made.parametrize, made.reference, made.marks) == ({}, {}, [])


def test_a_schema_says_what_a_key_means_and_its_default_as_one_writes_it() -> None:
    faults = json_schema()["properties"]["faults"]["items"]["anyOf"]
    (pause,) = (kind["properties"] for kind in faults if "pause" in kind["properties"])
    (preempt,) = (kind["properties"] for kind in faults if "preempt" in kind["properties"])
    assert pause["for"] == {
        "title": "For",
        "description": "Seconds, or `forever`: until the run ends or it is healed by hand.",
        "examples": ["10s", "forever"],
        "type": "string",
    }
    assert pause["pause"]["description"] == "The task, or a glob such as `worker-*`."
    duration = {
        "type": "string",
        "pattern": r"^(0|(\d+(\.\d+)?(ms|s|m|h|d|y))+)$",
        "examples": ["5s"],
    }
    assert preempt["grace"] == {
        "title": "Grace",
        "description": "Seconds between SIGTERM and SIGKILL.",
        "default": "30s",
        "anyOf": [duration, {"const": 0}],
    }
    ours = 15 + len(plugins.names("faults"))
    assert [kind["additionalProperties"] for kind in faults] == [False] * ours
    inside = [
        kind["properties"]["random"]["anyOf"] for kind in faults if "every" in kind["properties"]
    ]
    assert not any({"at", "name"} & one["properties"].keys() for one in inside[0])


def models(above: type[Model] = Model) -> Iterator[type[Model]]:
    for model in above.__subclasses__():
        yield from [model] if model.__module__.startswith("emulator.") else []
        yield from models(model)


def of_numbers(kind: object) -> bool:
    return kind in (int, float, bool) or any(map(of_numbers, get_args(kind)))


def test_text_is_no_number_and_no_truth_but_in_a_csv_file_and_these_options() -> None:
    converted = set()
    for model in models():
        for name, field in model.model_fields.items():
            if not of_numbers(field.annotation):
                continue
            written: Any = Annotated[field.annotation, "", *field.metadata]
            for text in ("1", "true"):
                with contextlib.suppress(ValidationError):
                    if TypeAdapter[Any](written).validate_python(text, context={}) != text:
                        converted.add(f"{model.__name__}.{name}")
    assert converted == {
        *("TraceRow.time", "TraceRow.down", "Gpus.shared", "Mount.writable", "Network.internet"),
        *("Partition.oneway", "Shape.oneway"),
    }


@pytest.mark.parametrize(
    ("framework", "image"),
    [
        ("tensorflow", "auto"),
        ("pytorch", "pytorch"),
        ("jax", "jax"),
        ("none", "python"),
        ("mpi", "auto"),
    ],
)
def test_an_image_that_is_not_named_is_that_of_the_framework(framework: str, image: str) -> None:
    roles = {"worker": {"image": {"name": "auto", "preload": ["a"]}}, "launcher": {"image": "b:1"}}
    if framework != "mpi":
        del roles["launcher"]
    own, of_role, *_ = make(framework=framework, cluster=roles).images
    assert own == image
    assert of_role == NamedImage(name=image, preload=["a"])


def test_images_and_ways_to_read_steps_are_known() -> None:
    init = {"name": "i", "image": "i:1", "command": ["a"]}
    images = make(
        image="a:1",
        cluster={"worker": {"image": "b:1", "init": [init]}, "ps": 1},
        helpers={"h": {"command": ["a"], "image": "h:1"}, "g": {"command": ["a"]}},
    ).images
    assert list(images) == ["a:1", "b:1", "i:1", "h:1"]
    for metrics, rules, may_draw in [
        ({}, ["auto"], True),
        ({"steps": "json"}, ["json"], False),
        ({"steps": ["json", "keras"]}, ["json", "keras"], True),
        ({"events": "logs"}, (PHASES_ONLY,), False),
    ]:
        found = make(metrics=metrics).metrics
        assert (found.rules, found.may_draw) == (rules, may_draw)


def test_short_forms_mean_the_long_ones() -> None:
    short = make(cluster={"worker": {"replicas": 2, "gpus": 3}, "ps": 4}, restart="always")
    assert short.cluster["ps"] == Role(replicas=4)
    assert short.cluster["worker"].gpus == Gpus(count=3, shared=False)
    assert short.restart == Restart(policy="always")


@pytest.mark.parametrize(
    ("written", "args", "kwargs"),
    [
        ("slow", (), {}),
        ({"slow": None}, (), {}),
        ({"timeout": 300}, (300,), {}),
        ({"usefixtures": ["a", "b"]}, ("a", "b"), {}),
        ({"order": [[1, 2]]}, ([1, 2],), {}),
        ({"flaky": {"reruns": 2}}, (), {"reruns": 2}),
        ({"skip": "no GPU"}, ("no GPU",), {}),
        # pytest takes the first argument of xfail for a condition
        ({"xfail": "not yet"}, (), {"reason": "not yet"}),
        ({"xfail": {"strict": False}}, (), {"strict": False}),
    ],
    ids=str,
)
def test_a_mark_has_arguments(
    written: object, args: tuple[object, ...], kwargs: dict[str, object]
) -> None:
    (mark,) = make(marks=[written]).marks
    name = written if isinstance(written, str) else next(iter(written))  # type: ignore[call-overload]
    assert mark_arguments(mark) == (name, [*args], kwargs)


def test_values_of_one_key_may_be_equal_to_python_but_not_to_yaml() -> None:
    made = make(parametrize={"program.env.A": [1, 1.0, "1"], "network.internet": [True, "true"]})
    assert made.parametrize["program.env.A"] == [1, 1.0, "1"]


def test_numbers_in_the_environment_become_text() -> None:
    program = Program.model_validate({"command": ["a"], "env": {"A": 1, "B": 0.1}})
    assert program.env == {"A": "1", "B": "0.1"}


def test_paths_start_at_the_scenarios_folder(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "Dockerfile").touch()
    data = {
        **LEAST,
        "program": {"command": ["a"], "source": "train.py"},
        "image": {"dockerfile": "Dockerfile", "context": "."},
    }
    made = Scenario.model_validate(data, context={"folder": tmp_path})
    assert made.program.source == (tmp_path / "train.py").resolve()
    assert isinstance(made.image, Dockerfile)
    assert made.image.dockerfile == (tmp_path / "Dockerfile").resolve()
    assert made.image.context == tmp_path.resolve()


@given(
    st.floats(0, 3e9, allow_nan=False).map(lambda seconds: f"{seconds:.12f}s"),
    st.integers(6 * 2**10, 2**53 - 1).map(lambda size: f"{size}k"),
)
def test_every_duration_and_size_reads_back_the_same(duration: str, size: str) -> None:
    made = make(timeout=duration, cluster={"worker": {"memory": size}})
    written = made.model_dump_json()
    assert Scenario.model_validate_json(written) == made


def test_a_scenario_stays_as_it_was_made() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        make().seed = 5  # type: ignore[misc]


# --- docs/scenario.md explains each key of a scenario, and leaves its facts to the reference ------

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "scenario.md").read_text()
REFERENCE = (DOCS / "reference" / "scenario.md").read_text()


@pytest.mark.parametrize("name", sorted(Scenario.model_fields))
def test_every_key_of_a_scenario_is_explained(name: str) -> None:
    assert re.search(rf"`{name}[`.:]", PAGE)


def test_no_table_repeats_the_reference() -> None:
    keys = set(re.findall(r"(?m)^\| `(\w+)` \|", REFERENCE))
    assert {"cluster", "replicas", "final_step"} <= keys
    first_cells = re.findall(r"(?m)^\|([^|]*)\|", PAGE)
    listed = {name for cell in first_cells for name in re.findall(r"`[\w.]*?(\w+)`", cell)}
    assert not listed & keys - {"shared"}  # of the table of `/shared`


def test_what_the_reference_has_is_linked_to() -> None:
    """A part of a scenario that has keys of its own, but those that are parts of faults."""
    sections = re.findall(r"(?m)^## (?!Fault: )(.*)\n\n.* At `(?!faults)([\w.*]+)`", REFERENCE)
    assert len(sections) > 20
    linked = set(re.findall(r"\(reference/scenario\.md#([\w-]+)\)", PAGE))
    below = {"trafficbounds", "relativebounds"}  # which `bytes_per_step` and `throughput` lead to
    assert {name.lower() for name, _ in sections} - below - linked == set()


# --- Roles: which train, and which task leads -----------------------------------------------------


@pytest.mark.parametrize(
    ("framework", "tasks", "leader"),
    [
        ("tensorflow", ("worker-0", "chief-0"), "chief-0"),
        ("pytorch", ("worker-0", "master-0"), "master-0"),
        ("none", ("worker-0", "master-0"), "master-0"),
        ("none", ("worker-0", "chief-0"), "chief-0"),
        ("jax", ("worker-1", "worker-0"), "worker-0"),
        ("mpi", ("worker-0", "launcher-0"), "launcher-0"),
        ("ray", ("worker-0", "head-0"), "head-0"),
        ("none", ("worker-0", "launcher-0"), "launcher-0"),
        ("none", ("worker-0", "head-0"), "worker-0"),
        ("tensorflow", ("ps-0", "worker-1", "worker-0"), "worker-0"),
        ("tensorflow", ("ps-0", "worker-1"), ""),
        ("tensorflow", (), ""),
    ],
)
def test_the_chief_leads_else_worker_0(
    framework: FrameworkName, tasks: Sequence[str], leader: str
) -> None:
    assert FRAMEWORKS[framework].roles.leader(tasks) == leader


def test_who_ends_the_job_is_the_rules_else_the_leaders_else_everybodys_matter() -> None:
    roles = FRAMEWORKS["tensorflow"].roles
    for rule, tasks, deciding in [
        ("all-workers", ["chief-0", "worker-0", "worker-1"], ["worker-0", "worker-1"]),
        ("auto", ["chief-0", "worker-0", "worker-1"], ["chief-0"]),
        ("auto", ["ps-0", "worker-0", "worker-1"], ["worker-0"]),
        ("auto", ["ps-0", "evaluator-0"], ["ps-0", "evaluator-0"]),
    ]:
        assert roles.deciding(rule, tasks) == deciding


@pytest.mark.parametrize("framework", FRAMEWORKS.values(), ids=FRAMEWORKS)
def test_every_role_that_leads_is_a_role_of_its_framework_and_trains(
    framework: Framework,
) -> None:
    roles = framework.roles
    assert all(roles.trains(role) != (role in roles.idle) for role in (*roles.leaders, "worker"))
    if roles.names:
        assert {*roles.leaders, "worker"} <= {*roles.names}


def test_some_roles_do_not_train() -> None:
    roles = FRAMEWORKS["tensorflow"].roles
    assert [role for role in roles.names if not roles.trains(role)] == ["ps", "evaluator"]


@pytest.mark.parametrize(
    ("framework", "tasks", "endless"),
    [
        ("tensorflow", ("chief-0", "worker-0", "ps-0"), True),
        ("tensorflow", ("chief-0", "worker-0"), False),
        ("mpi", ("launcher-0", "worker-0"), True),
        ("ray", ("head-0", "worker-0"), True),
    ],
)
def test_servers_never_end(framework: FrameworkName, tasks: Sequence[str], endless: bool) -> None:
    assert FRAMEWORKS[framework].roles.endless(tasks) == endless


def test_the_role_of_a_task_may_have_dashes() -> None:
    assert [role_of(task) for task in ("worker-10", "data-loader-0")] == ["worker", "data-loader"]
