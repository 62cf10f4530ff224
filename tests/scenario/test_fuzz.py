"""Whatever a scenario holds, it becomes a plan or a sentence, and never a traceback.

Documents are made from the schema with nasty values, from the bundled scenarios by mutation, and of
bytes. Each is read by a process of its own kind, see `loader.py`, which says what it took. The
examples are the same each time; `--hypothesis-profile search` tries others.
"""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from emulator.faults.kinds import FAULTS
from emulator.runtime.bundled import ROOT, scenarios
from emulator.scenario.schema import json_schema
from tests.scenario.loader import MEGABYTES, SECONDS, Loader, loader

pytestmark = pytest.mark.slow

TEXTS = [path.read_text(encoding="utf-8") for path in scenarios()]
WHOLE = [yaml.safe_load(text) for text in TEXTS]
SCHEMA = json_schema()


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loader]:
    with loader(tmp_path_factory.mktemp("fuzz")) as made:
        yield made


SEARCHING = settings.get_current_profile_name() == "search"
# Each example is one of many that a process reads: that it was started before is no harm.
fuzz = settings(
    max_examples=3000 if SEARCHING else 200,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def sound(process: Loader, content: bytes | str, *sets: str) -> None:
    outcome = process.load(content, *sets)
    assert outcome.sound, outcome


# --- Values without a meaning -------------------------------------------------------------------

NUMBERS = [0, -1, 1, 2, 7, 500, 501, 2**31, 2**63 - 1, 2**63, -(2**63), 10**30, 0.5, 1e308, -0.0]
NOT_NUMBERS = [float("nan"), float("inf"), float("-inf"), True, False, None]
TEXTS_OF = [
    *("", " ", "\0", "a\0b", "\x1b[31mred", "\x1b]52;c;AA==\x07", "\x9b31m", "\ud800", "a\nb"),
    *("\t", "=", "A=B", "x" * 70_000, "é" * 500, "\u202e", "\u2028", "{}", "[", "*", "?", "[!a"),
    *("**/*", "0", "5s", "0s", "99999999d", "1e5s", "-5s", "5%", "nan%", "1e999%", "1b", "7m"),
    *("9" * 400, "9" * 400 + "g", "0bit", "1kbit", "99999gbit", "forever", "auto", "json", "keras"),
    *("cpu", "worker-0", "worker-*", "chief-0", "nobody", "master", "0", "cut", "EMULATOR_SHARED"),
    *("/dev/zero", "/proc/self", "/", "..", ".", "~", "~nobody/x", "traces", "x" * 300, "\\"),
    *("(", "(?P<step>\\d+)", "(?P<step>(a+)+)", "(?=a)", "a{1001}", "(?:a{9}){9}{9}", "\\1"),
    *("2026-01-02", "2026-02-30", "0x_", "1:1:1", "<<", "~", "no", "!!python/name:os", "&a", "*a"),
]
LEAVES = st.one_of(
    st.sampled_from(NUMBERS),
    st.sampled_from(NOT_NUMBERS),
    st.sampled_from(TEXTS_OF),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
)
KEYS = st.sampled_from(["worker", "chief", "ps", "a", "at", "", "<<", "name", "=", "5", "é"]) | (
    st.text(max_size=5)
)
NASTY = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)


def written(data: object) -> str:
    """Write data as YAML that is read back as it was, whatever it holds."""
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=False, width=1000)


# --- From the schema ----------------------------------------------------------------------------


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        found: dict[str, Any] = SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]]
        schema = found
    return schema


@functools.cache
def _of(key: str) -> st.SearchStrategy[Any]:
    schema = resolved(json.loads(key))
    if "anyOf" in schema or "oneOf" in schema:
        options = schema.get("anyOf") or schema["oneOf"]
        return st.one_of([of_schema(option) for option in options])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "const" in schema:
        return st.just(schema["const"])
    examples = st.sampled_from(schema["examples"]) if "examples" in schema else st.nothing()
    match schema.get("type"):
        case "object" if "properties" in schema:
            required = set(schema.get("required", ()))
            fields = {name: of_schema(inner) for name, inner in schema["properties"].items()}
            return examples | st.fixed_dictionaries(
                {name: fields[name] for name in required},
                optional={name: fields[name] for name in fields.keys() - required},
            )
        case "object":
            inner = schema.get("additionalProperties")
            inner = of_schema(inner) if isinstance(inner, dict) else NASTY
            return examples | st.dictionaries(KEYS, inner, max_size=3)
        case "array":
            items = of_schema(schema.get("items", {}))
            return examples | st.lists(items, max_size=3)
        case "integer" | "number":
            return st.integers(0, 5) | st.sampled_from(NUMBERS)
        case "boolean":
            return st.booleans()
    if "pattern" in schema:
        return examples | st.from_regex(schema["pattern"], fullmatch=True)
    return examples | st.sampled_from(["worker-0", "worker-*", "chief-0", "a", "5s", "auto"])


def of_schema(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Return values that a schema allows, more or less, and a nasty one now and then."""
    rightly = st.deferred(lambda: _of(json.dumps(schema, sort_keys=True)))
    return st.integers(0, 59).flatmap(lambda chance: NASTY if chance == 0 else rightly)


SOUND: dict[str, Any] = {
    "name": "x",
    "program": {"command": ["a"]},
    "cluster": {"chief": 1, "worker": 2, "ps": 1},
}


def places(data: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where anything stands in data."""
    inside: Any = data.items() if isinstance(data, dict) else ()
    inside = enumerate(data) if isinstance(data, list) else inside
    for key, value in inside:
        yield (*path, key)
        yield from places(value, (*path, key))


FULL: dict[str, Any] = {
    **SOUND,
    "description": "words",
    "framework": "tensorflow",
    "image": {"dockerfile": "../Dockerfile", "context": "../../images", "args": {"A": "b"}},
    "program": {"source": "../../images/programs", "command": ["a", 1], "env": {"A": "b"}},
    "cluster": {
        "chief": {"cpus": 1, "memory": "1g", "gpus": {"count": 1, "shared": True}},
        "worker": {"replicas": 4, "command": ["b"], "env": {"B": 1}, "image": "cpu"},
        "ps": 1,
    },
    "restart": {"policy": "always", "scope": "job", "limit": 3, "backoff": "1s", "stall": "9s"},
    "reserve": {"cpus": 1, "memory": "1g"},
    "success": "chief",
    "timeout": "5m",
    "seed": 3,
    "addresses": {"host": "{task}.release.svc", "port": {"ps": 8080}},
    "network": {"internet": False, "delay": "5ms", "bandwidth": "100mbit"},
    "metrics": {"steps": r"it (?P<step>\d+)", "examples_per_step": 3, "interval": "1s"},
    "faults": [
        {"preempt": "worker-1", "at": {"step": 3, "task": "chief-0"}, "grace": "1s", "down": "3s"},
        {"name": "cut", "partition": [["chief-0"], ["worker-*"]], "at": "1s", "for": "2s"},
        {"shape": "ps-0", "to": "*", "at": {"recovery": "cut", "delay": "1s"}, "for": "forever"}
        | {"delay": "5ms", "jitter": "1ms", "loss": "5%", "bandwidth": "1mbit", "oneway": True},
        {"throttle": "ps-0", "at": {"log": "a.*b"}, "for": "5s", "cpus": 0.5},
        {"random": {"kill": "*"}, "every": "10s", "jitter": "1s", "seed": 7, "max": 5},
        {"trace": "../traces/gcp-preemptible.csv", "speed": 1200, "at": "5s"},
        {"trace": [{"time": 1, "target": "worker-0", "down": 2}], "down": "1s"},
    ],
    "expect": {
        "outcome": "failed",
        "final_step": 3,
        "accuracy": 0.5,
        "values": {"loss": {"min": 0, "max": 0.5}},
        "bytes_per_step": {
            "worker": {"sent": {"min": "1k", "max": "2m"}},
            "ps": {"received": {"at_least": 0.5, "at_most": 2, "of": "predicted"}},
        },
        "throughput": {"min": 1, "max": 9, "during": {"min": 0.5}, "after": {"max": 2}}
        | {"at_least": 0.5, "of": "reference"},
        "max_restarts": 3,
        "max_lost_steps": 3,
        "recovers_within": "5s",
        "min_goodput": 0.5,
        "single_chief": True,
    },
    "parametrize": {"cluster.worker": [4, 5], "faults.0.at": ["5s", {"step": 7}]},
    "reference": {"cluster.worker": 4},
    "marks": ["slow", {"timeout": 300}, {"xfail": {"strict": True}}],
}
EVERYWHERE = sorted(places(FULL), key=repr)


def at(data: Any, path: tuple[Any, ...]) -> Any:
    """Return what stands at a place."""
    for key in path:
        data = data[key]
    return data


def replaced(data: Any, path: tuple[Any, ...], value: object) -> Any:
    """Return a copy with something else at a place."""
    made = copy.deepcopy(data)
    at(made, path[:-1])[path[-1]] = value
    return made


def test_the_full_scenario_is_planned(process: Loader) -> None:
    """What is changed below is sound before."""
    (process.folder.parent / "Dockerfile").write_text("FROM scratch\n")
    outcome = process.load(written(FULL))
    assert (outcome.kind, outcome.sound) == ("plan", True), outcome
    assert process.load(written(PLAIN)).kind == "plan"


APART = ("parametrize", "reference", "expect")
PLAIN = {key: value for key, value in FULL.items() if key not in APART}
"""Without variants, which take their time."""
NESTED: list[Any] = [[], {}, [[]], {"": None}, ["a"], {"a": "b"}]
INSTEAD: list[Any] = [*NUMBERS, *NOT_NUMBERS, *TEXTS_OF, *NESTED]


SECTIONS = {name: of_schema(inner) for name, inner in SCHEMA["properties"].items()}


@fuzz
@given(
    st.lists(st.sampled_from(sorted(SECTIONS)), min_size=1, max_size=3, unique=True).flatmap(
        lambda names: st.fixed_dictionaries({name: SECTIONS[name] for name in names})
    )
)
def test_what_the_schema_allows_or_nearly(process: Loader, data: dict[str, Any]) -> None:
    sound(process, written({**PLAIN, **data}))


OF_FAULT = {
    key: of_schema(value)
    for kind in SCHEMA["properties"]["faults"]["items"]["anyOf"]
    for key, value in resolved(kind)["properties"].items()
}
OF_TRIGGER = {
    k: of_schema(v) for k, v in resolved({"$ref": "#/$defs/Trigger"})["properties"].items()
}
NEEDED = {"throttle": ["for", "cpus"], "shape": ["for", "delay"], "partition": ["for"]}
NEEDED |= {"pause": ["for"]}


@st.composite
def strikes(draw: st.DrawFn) -> dict[str, Any]:
    """Return a fault of one kind with what that needs, and now and then another option."""
    kind = draw(st.sampled_from(list(FAULTS)))
    more = draw(st.lists(st.sampled_from(sorted(OF_FAULT)), max_size=1))
    made = {name: draw(OF_FAULT[name]) for name in [kind, *NEEDED.get(kind, []), *more]}
    trigger = draw(st.sampled_from(sorted(OF_TRIGGER.keys() - {"delay", "task"})))
    if draw(st.booleans()):
        return {**made, "at": {trigger: draw(OF_TRIGGER[trigger])}}
    return {"random": made, "every": draw(OF_TRIGGER["time"])}


@fuzz
@given(st.lists(strikes(), min_size=1, max_size=3))
def test_faults_that_the_schema_allows_or_nearly(process: Loader, faults: list[Any]) -> None:
    sound(process, written({**SOUND, "faults": faults}))


@fuzz
@given(st.sampled_from(EVERYWHERE), st.sampled_from(INSTEAD))
def test_nonsense_at_any_place(process: Loader, path: tuple[Any, ...], value: object) -> None:
    whole = FULL if path[0] in APART else PLAIN
    sound(process, written(replaced(whole, path, value)))


# --- From what is bundled -----------------------------------------------------------------------


@st.composite
def mutated(draw: st.DrawFn) -> object:
    """Return a bundled scenario with some places replaced, taken out, or filled from another."""
    data: Any = copy.deepcopy(draw(st.sampled_from([*WHOLE, FULL])))
    for _ in range(draw(st.integers(1, 4))):
        found = sorted(places(data), key=repr)
        if not found:
            break
        path = draw(st.sampled_from(found))
        inside = at(data, path[:-1])
        match draw(st.sampled_from(["nasty", "out", "splice", "again", "key"])):
            case "nasty":
                inside[path[-1]] = draw(NASTY)
            case "out":
                del inside[path[-1]]
            case "splice":
                other = draw(st.sampled_from([*WHOLE, FULL]))
                piece = at(other, draw(st.sampled_from(sorted(places(other), key=repr))))
                inside[path[-1]] = copy.deepcopy(piece)
            case "again":
                copied = copy.deepcopy(inside[path[-1]])
                if isinstance(inside, list):
                    inside.extend([copied] * draw(st.integers(1, 200)))
                else:
                    inside[draw(KEYS)] = copied
            case "key" if isinstance(inside, dict):
                inside[draw(KEYS)] = inside.pop(path[-1])
    return data


@fuzz
@given(mutated())
def test_bundled_scenarios_with_other_values(process: Loader, data: object) -> None:
    sound(process, written(data))


TOKENS = [
    *("\n", " ", "  ", "\t", "- ", ": ", "? ", ", ", "[", "]", "{", "}", "&a ", "*a", "*a,*a"),
    *("<<: ", "!!str ", "!!int ", "!!binary ", "!!python/object:os.system ", "! ", "%YAML 1.1\n"),
    *("---\n", "...\n", "|\n", ">-\n", "'", '"', "\\", '"\\u0000"', '"\\uD800"', '"\\U00110000"'),
    *("#", "@", "`", "~", "null", "yes", "0x_", "0b2", "1e400", ".nan", "-.inf", "1:59", "9" * 30),
    *("2026-02-30", "name", "cluster", "worker", "faults", "program", "command", "parametrize"),
    *("x", "\r", "\x85"),
]


@st.composite
def torn(draw: st.DrawFn) -> bytes:
    """Return the bytes of a bundled scenario with pieces cut out, put in, and repeated."""
    content = draw(st.sampled_from(TEXTS)).encode()
    for _ in range(draw(st.integers(1, 6))):
        begin = draw(st.integers(0, len(content)))
        end = min(len(content), begin + draw(st.integers(0, 30)))
        piece = draw(
            st.sampled_from([token.encode() for token in TOKENS])
            | st.binary(max_size=4)
            | st.integers(1, 500).map(lambda times, cut=content[begin:end]: cut * times)  # type: ignore[misc]
        )
        content = content[:begin] + piece + content[end:]
    return content


@fuzz
@given(torn())
def test_bundled_scenarios_with_other_bytes(process: Loader, content: bytes) -> None:
    sound(process, content)


@fuzz
@given(
    st.binary(max_size=200)
    | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass"))
    | st.lists(st.sampled_from(TOKENS) | st.text(max_size=3), max_size=60).map(
        lambda tokens: "".join(tokens).encode("utf-8", "surrogatepass")
    )
)
@example(b"")
@example(b"\xff\xfe")
@example(b"%YAML " + b"9" * 5000)
@example(b'name: "\\U00110000"')
@example(b"a: !!bool x")
@example(b"a: " + b"1:" * 60_000 + b"1")
def test_any_bytes(process: Loader, content: bytes) -> None:
    sound(process, content)


# --- Overrides ----------------------------------------------------------------------------------

PATHS = [".".join(map(str, path)) for path in EVERYWHERE]
PARTS = st.sampled_from(
    ["cluster", "worker", "faults", "0", "at", "parametrize", "-1", "²", "", "9"]
)
VALUES_OF = st.sampled_from(["", "[", "{", "*a", "&a [*a]", "!!int x", "9" * 50, "1e400"]) | (
    NASTY.map(lambda value: json.dumps(value).replace("NaN", ".nan").replace("Infinity", ".inf"))
)


@fuzz
@given(
    st.lists(
        st.builds(
            "{}={}".format,
            st.sampled_from(PATHS) | st.lists(PARTS, max_size=5).map(".".join),
            VALUES_OF | st.text(max_size=10),
        ).filter(lambda text: "\0" not in text),
        max_size=3,
    )
)
def test_any_override(process: Loader, sets: list[str]) -> None:
    sound(process, written(FULL), *sets)


# --- Bombs --------------------------------------------------------------------------------------

ONE = "name: x\nprogram: {command: [a]}\n"
LITTLE = ONE + "cluster: {worker: 1}\n"
MUCH = ONE + "cluster: {worker: 500}\n"
NONE = ONE + "framework: none\n"
COMMAND = "name: x\nprogram:\n  command:\n  - "
LONG = "a-very-long-name-of-a-role-no"
STRIKES = "  - {random: {preempt: '*'}, every: 1ms, max: 1000}\n"


def times(piece: str, count: int, between: str = ", ") -> str:
    """Write a piece so many times, with its number in the place of a `#`."""
    return between.join(piece.replace("#", str(number)) for number in range(count))


FAULTS_OF_MUCH = f"{MUCH}faults:\n"
ENV_OF_MANY = f"{ONE}cluster:\n  worker:\n    replicas: 500\n    env:\n"
BOMBS = {
    "aliases": f"{LITTLE}a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
    + "".join(f"a{n}: &a{n} [{times(f'*a{n - 1}', 9)}]\n" for n in range(1, 10)),
    "merges": f"{LITTLE}a0: &a0 {{x: 1}}\n"
    + "".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}], k: 1}}\n" for n in range(1, 60)),
    "itself": LITTLE + "a: &a [*a]\n",
    "itself by a merge": LITTLE + "a: &a {<<: *a}\n",
    "deep": LITTLE + "a: " + "[" * 100_000,
    "deep blocks": LITTLE + "a:\n" + "".join(" " * n + "a:\n" for n in range(1, 600)),
    "many values": LITTLE + f"marks: [{times('a#', 30_000)}]\n",
    "many unknown keys": LITTLE + times("k#: 1", 2400, "\n"),
    "many wrong variables": ENV_OF_MANY + times("      EMULATOR_#: 1", 2000, "\n"),
    "a long text": LITTLE + "description: " + "x " * 120_000,
    "a file too long": LITTLE + "description: " + "x " * 200_000,
    "a long number": LITTLE + "seed: " + "9" * 200_000,
    "sexagesimal digits": LITTLE + "seed: 1" + ":59" * 60_000,
    "half a million tasks": ONE + "cluster: {worker: 500000}\n",
    "many tasks": MUCH,
    "many roles": f"{NONE}cluster: {{{times('r#', 2400, ': 500, ')}: 500}}\n",
    "roles with long names": f"{NONE}cluster: {{{times(f'{LONG}#', 500, ': 1, ')}: 1}}\n",
    "many faults": FAULTS_OF_MUCH + "  - {kill: '*', at: 1ms}\n" * 1500,
    "a billion strikes": FAULTS_OF_MUCH + STRIKES.replace("1000", "1000000000"),
    "many rows": FAULTS_OF_MUCH
    + f"  - {{trace: [{times('{time: #, target: w*#*, down: 1}', 650)}]}}",
    "patterns that are large enough": f"{LITTLE}faults:\n"
    + times(r"  - {kill: '*', at: {log: '#(?:[a-z]{30}\w?){30}'}}", 100, "\n"),
    "variants": LITTLE + f"parametrize: {{seed: [{times('#', 1000)}]}}\n",
    "a million variants": LITTLE
    + f"parametrize: {{seed: [{times('#', 1000)}], timeout: [{times('#s', 1000)}]}}\n",
    "variants of much": MUCH + "parametrize: {cluster.worker: [500], seed: [1, 2]}\n",
    "wrong variants": LITTLE + f"parametrize: {{seed: [{times('a#', 1000)}]}}\n",
    "wrong values": ENV_OF_MANY + times("      k#: ${address.worke-#}", 1000, "\n"),
    "wrong values in one text": COMMAND + times("${a#}", 4000, "") + "\ncluster: {worker: 500}",
    "values of variants with values": f"{MUCH}parametrize:\n  program.command.0:\n"
    + times("  - a#${task}", 900, "\n"),
    "a job of many": MUCH + f"operator: {{kind: TFJob, job: {'a' * 40}, namespace: {'b' * 60}}}\n",
    "variables as values for many": "name: x\nprogram: {command: [a, '${env.TF_CONFIG}']}\n"
    + "cluster: {worker: 500}\noperator: {kind: TFJob, job: x, dynamic_worker: true}\n",
    "values of variants": LITTLE
    + f"parametrize: {{program.command: [{times('[a#, b, c, d, e, f, g, h, i, j]', 400)}]}}\n",
}


@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS)
def test_no_bomb_takes_long_or_much(process: Loader, text: str) -> None:
    sound(process, text)


@pytest.mark.parametrize(
    "assignment",
    [
        "program.env." + "a." * 60_000 + "b=1",
        "program.command." + "9" * 60_000 + "=a",
        "description=" + "[" * 60_000,
        "marks=[" + times("a#", 15_000) + "]",
        "marks=[&a [x], " + times("&a# [*a, *a, *a, *a, *a, *a, *a]", 3) + "]",
        "seed=1" + ":59" * 30_000,
        "parametrize={seed: [" + times("#", 1000) + "], timeout: [" + times("#s", 1000) + "]}",
    ],
    ids=lambda text: text[:30],
)
def test_no_override_takes_long_or_much(process: Loader, assignment: str) -> None:
    sound(process, LITTLE, assignment)


def test_a_process_that_takes_too_long_or_too_much_would_be_seen(process: Loader) -> None:
    """The bounds are real: a scenario that needs more of either is not taken for sound."""
    assert ROOT.is_dir()
    outcome = process.load(LITTLE)
    assert outcome.sound
    slow, large = {"seconds": SECONDS + 0.1}, {"megabytes": MEGABYTES + 1.0}
    for worse in (slow, large, {"kind": "defect"}, {"output": "\x1b"}):
        assert not type(outcome)(**{**outcome.__dict__, **worse}).sound
