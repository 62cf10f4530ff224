"""Reading a scenario: YAML and overrides in, a `Scenario` or every mistake at once out (pure).

Each problem names its file and line, or the `--set` that brought it in, and what to write instead.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails
from yaml.reader import ReaderError

from emulator.errors import Problem, ScenarioError, UsageError
from emulator.scenario.faults import misfits
from emulator.scenario.model import ROLES, Cluster, Framework, Scenario
from emulator.scenario.variants import assignments, parametrized, unsettled, written
from emulator.scenario.wording import closest, document_path, explain

__all__ = ["load", "parse"]

_ROLE_NAME = re.compile(r"[a-z]([-a-z0-9]{0,30}[a-z0-9])?")

KeyPath = tuple[str | int, ...]


@dataclass
class _Source:
    """A parsed file that remembers where everything stood."""

    data: dict[str, Any]
    file: str
    lines: dict[KeyPath, int] = field(default_factory=dict)
    places: dict[KeyPath, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def replaced(self, path: KeyPath, place: str) -> None:
        """Note that all that stands at `path` now comes from `place`."""
        below = len(path)
        self.lines = {p: line for p, line in self.lines.items() if p[:below] != path}
        self.places = {p: other for p, other in self.places.items() if p[:below] != path}
        self.places[path] = place

    def place(self, path: KeyPath) -> str:
        """Return `file:line` of the key, or of the closest thing around it that has a line."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.places:
                return self.places[path[:end]]
            if path[:end] in self.lines:
                return f"{self.file}:{self.lines[path[:end]]}"
        return self.file


def load(path: Path, sets: Sequence[str] = ()) -> Scenario:
    """Read and validate the scenario at `path`, with `key.path=value` overrides applied.

    Raises ScenarioError with every problem at once, UsageError where the file can't be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"Can't read the scenario {path}: {getattr(error, 'strerror', None) or error}.",
            "`emulate init` writes one to start from.",
        ) from None
    return parse(text, file=str(path), folder=path.resolve().parent, sets=sets)


def parse(
    text: str, *, file: str = "scenario.yaml", folder: Path = Path(), sets: Sequence[str] = ()
) -> Scenario:
    """Validate the text of a scenario; paths in it are relative to `folder`.

    Raises ScenarioError with every problem at once.
    """
    source = _read_yaml(text, file)
    for assignment in sets:
        _override(source, assignment)
    _settle(source, sets)
    scenario, sound, problems = _validate(source, folder)
    problems += _variant_problems(sound, source, folder, set(problems))
    problems = sorted({*source.problems, *problems}, key=_reading_order)
    if problems or scenario is None:
        raise ScenarioError(problems)
    return scenario


def _reading_order(problem: Problem) -> tuple[str, int, str]:
    file, _, line = problem.place.rpartition(":")
    return (file, int(line), problem.path) if line.isdigit() else (problem.place, 0, problem.path)


def _read_yaml(text: str, file: str) -> _Source:
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
        nodes = list(_walk(root, ()))
    except _NOT_YAML as error:
        line, what = _yaml_trouble(error, text)
        place = f"{file}:{line}" if line else file
        raise ScenarioError([Problem(place, "", f"not valid YAML: {what}")]) from None
    if not isinstance(data, dict):
        hint = "begin with `name: my-first-cluster`; `emulate init` writes a whole one"
        raise ScenarioError([Problem(f"{file}:1", "", "a scenario is a mapping of keys", hint)])
    source = _Source(data, file)
    for path, node, twice in nodes:
        if twice:
            message = "is given twice; only the last one would count"
            place = f"{file}:{node.start_mark.line + 1}"
            source.problems.append(Problem(place, _dotted(path), message))
        source.lines[path] = node.start_mark.line + 1
    return source


# PyYAML lets some of Python's own errors through: 30 February, a number of thousands of digits, a
# list that holds itself.
_NOT_YAML = (yaml.YAMLError, ValueError, RecursionError)


def _yaml_trouble(error: Exception, text: str) -> tuple[int, str]:
    """Return the line where the text stops being YAML (0: unknown), and why in one line."""
    match error:
        case yaml.MarkedYAMLError():
            mark = error.problem_mark or error.context_mark
            return (mark.line + 1 if mark else 0), str(error.problem)
        case ReaderError():
            what = f"the character #x{int(error.character):04x} is not allowed"
            return text.count("\n", 0, error.position) + 1, what
        case RecursionError():
            return 0, "nested too deeply"
    return 0, str(error)


def _walk(node: yaml.Node | None, path: KeyPath) -> Iterator[tuple[KeyPath, yaml.Node, bool]]:
    """Yield every key and list entry with its node, and whether the key stood there before."""
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            yield (*path, key.value), key, key.value in seen
            seen.add(key.value)
            yield from _walk(value, (*path, key.value))
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield (*path, index), value, False
            yield from _walk(value, (*path, index))


def _override(source: _Source, assignment: str) -> None:
    """Apply `cluster.worker=4` to the parsed data; the value is read as YAML.

    A number for a role that is written as a mapping sets its replicas and keeps its limits; a
    short form (`worker: 2`, `restart: always`, `at: 40s`) is written in full where a key is added.
    """
    dotted, equals, text = assignment.partition("=")
    if not equals or not dotted:
        raise UsageError(
            f"--set {assignment} is not KEY=VALUE.", "For example: --set cluster.worker=4"
        )
    try:
        value = yaml.safe_load(text)
    except _NOT_YAML as error:
        what = _yaml_trouble(error, text)[1]
        raise UsageError(f"The value of --set {assignment} is not YAML: {what}.") from None
    try:
        _assign(source, dotted, value, f"--set {assignment}")
    except _NotThere as error:
        raise UsageError(f"--set {assignment}: {error}.") from None


class _NotThere(Exception):
    """A key leads to nothing that could be set."""


def _assign(source: _Source, dotted: str, value: object, place: str) -> None:
    """Set what is at a key, and note that it comes from `place`. Raises _NotThere."""
    keys: list[str | int] = [int(k) if k.isdecimal() else k for k in dotted.split(".")]
    target: Any = source.data
    for depth in range(1, len(keys)):
        missing: Any = [] if isinstance(keys[depth], int) else {}
        target = _descend(target, tuple(keys[:depth]), missing)
        if tuple(keys[:depth]) not in source.lines:
            source.places.setdefault(tuple(keys[:depth]), place)
    last = keys[-1]
    is_role = len(keys) == 2 and keys[0] == "cluster" and isinstance(target, dict)
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if is_role and is_number and isinstance(target.get(str(last)), dict):
        target, last = target[str(last)], "replicas"
        keys.append(last)
    if isinstance(target, dict):
        target[str(last)] = value
    elif isinstance(target, list) and isinstance(last, int) and last < len(target):
        target[last] = value
    else:
        raise _NotThere(f"there is nothing to set at {dotted}")
    source.replaced(tuple(keys), place)


def _descend(target: Any, path: KeyPath, missing: Any) -> Any:  # noqa: ANN401  YAML
    key = path[-1]
    if isinstance(target, list):
        if not isinstance(key, int) or key >= len(target):
            raise _NotThere(f"the list has no entry {key}")
        return target[key]
    if not isinstance(target, dict):
        raise _NotThere(f"{key} stands below a plain value")
    found = target.get(str(key))
    if isinstance(found, int | str) and (short_for := _short_for(path)):
        found = target[str(key)] = {short_for: found}
    if found is None:
        found = target[str(key)] = missing
    return found


def _short_for(path: KeyPath) -> str | None:
    """Return the key that a plain value at `path` stands for: `worker: 2` for its replicas."""
    match path:
        case ("cluster", _):
            return "replicas"
        case ("cluster", _, "gpus"):
            return "count"
        case ("restart",):
            return "policy"
        case ("faults", _, "at"):
            return "time"
    return None


def _settle(source: _Source, sets: Sequence[str]) -> None:
    """Take out of `parametrize` what was set: it has that one value now."""
    values = source.data.get("parametrize")
    if isinstance(values, dict):
        left = unsettled(map(str, values), [text.partition("=")[0] for text in sets])
        source.data["parametrize"] = {k: v for k, v in values.items() if str(k) in left}


def _validate(source: _Source, folder: Path) -> tuple[Scenario | None, Scenario, list[Problem]]:
    """Return the scenario, what of it is sound, and every problem.

    Problems are of single values, and of how they fit together.
    """
    context = {"folder": folder}
    try:
        scenario = Scenario.model_validate(source.data, context=context)
        return scenario, scenario, list(_misfits(scenario, source, frozenset()))
    except ValidationError as error:
        details = error.errors(include_url=False)
    problems = [_problem(detail, source) for detail in details]
    # Judge how the rest fits together with stand-ins for the broken sections.
    broken = frozenset(str(detail["loc"][0]) for detail in details)
    stand_ins = {"name": "x", "program": {"command": ["true"]}, "cluster": {"worker": 1}}
    sound = {key: value for key, value in source.data.items() if str(key) not in broken}
    sound |= {key: value for key, value in stand_ins.items() if key in broken}
    partial = Scenario.model_validate(sound, context=context)
    return None, partial, problems + list(_misfits(partial, source, broken))


def _variant_problems(
    scenario: Scenario, source: _Source, folder: Path, known: set[Problem]
) -> Iterator[Problem]:
    """Yield what is wrong in no other than a parametrized variant, or in a reference.

    A problem of several variants is told of the first.
    """
    places = {
        written(key, value): source.place(("parametrize", key, number))
        for key, values in scenario.parametrize.items()
        for number, value in enumerate(values)
    }
    reference = assignments(scenario.reference)
    places |= {
        text: source.place(("reference", key))
        for key, text in zip(scenario.reference, reference, strict=True)
    }
    for variant in parametrized(scenario.parametrize):
        for overrides in dict.fromkeys((variant.overrides, variant.overrides + reference)):
            changed = deepcopy(source)
            found = [*_set_all(changed, overrides, places)] or _validate(changed, folder)[2]
            for problem in found:
                if problem in known:
                    continue
                known.add(problem)
                if problem.place in places.values():
                    yield problem
                else:
                    label = " ".join(overrides)
                    yield replace(problem, message=f"{problem.message}, with {label}")


def _set_all(
    source: _Source, overrides: Iterable[str], places: Mapping[str, str]
) -> Iterator[Problem]:
    """Apply the overrides of a variant, each of which has its place; yield what can't be."""
    for text in overrides:
        key, _, value = text.partition("=")
        try:
            _assign(source, key, yaml.safe_load(value), places[text])
        except _NotThere as error:
            yield Problem(places[text], key, str(error))


def _misfits(scenario: Scenario, source: _Source, broken: frozenset[str]) -> Iterator[Problem]:
    """Yield mistakes that lie between sections; none that would rest on a broken one."""
    cluster, framework = scenario.cluster, scenario.framework
    if not broken & {"cluster", "framework"}:
        yield from _role_misfits(cluster, framework, source)
    if not broken & {"cluster", "faults"}:
        yield from _fault_misfits(scenario, source)
    if not broken & {"expect", "reference"}:
        throughput = scenario.expect.throughput
        if throughput and throughput.of == "reference" and not scenario.reference:
            path = ("expect", "throughput", "of")
            hint = "say what makes it: `reference: {cluster.worker: 1}`"
            yield Problem(source.place(path), _dotted(path), "there is no reference", hint)
    if not broken & {"cluster", "success"}:
        if scenario.success == "chief" and not cluster.keys() & {"chief", "master"}:
            message = "'chief' decides, but the cluster has none"
            hint = "add `chief: 1` to cluster, or write `success: auto`"
            yield Problem(source.place(("success",)), "success", message, hint)
        if scenario.success == "all-workers" and "worker" not in cluster:
            message = "'all-workers' decide, but the cluster has none"
            hint = "add `worker: 2` to cluster, or write `success: auto`"
            yield Problem(source.place(("success",)), "success", message, hint)


def _fault_misfits(scenario: Scenario, source: _Source) -> Iterator[Problem]:
    """Yield targets and triggers of faults that name no task of the cluster."""
    tasks = [f"{r}-{i}" for r, spec in scenario.cluster.items() for i in range(spec.replicas)]
    for number, fault in enumerate(scenario.faults):
        for keys, pattern in fault.named():
            path: KeyPath = ("faults", number, *keys)
            if not fnmatch.filter(tasks, pattern):
                hint = closest(pattern, tasks) or f"tasks: {', '.join(tasks[:8])}"
                message = f"no task is called {pattern!r}"
                yield Problem(source.place(path), _dotted(path), message, hint)
    for number, key, message, hint in misfits(scenario.faults, tasks):
        path = ("faults", number, key)
        yield Problem(source.place(path), _dotted(path), message, hint)


def _role_misfits(cluster: Cluster, framework: Framework, source: _Source) -> Iterator[Problem]:
    known = ROLES.get(framework)
    for role, spec in cluster.items():
        path = ("cluster", role)
        place, dotted = source.place(path), _dotted(path)
        if known is None:
            if not _ROLE_NAME.fullmatch(role):
                hint = "lower-case letters, digits and dashes, at most 32"
                yield Problem(place, dotted, "can't be part of a host name", hint)
        elif role not in known:
            hint = f"roles of {framework}: {', '.join(known)}"
            if role == "master" and framework == "tensorflow":
                hint = "TF2 rejects 'master'; write 'chief'"
            yield Problem(place, dotted, "unknown role", closest(role, known) or hint)
        elif role in ("chief", "master") and spec.replicas > 1:
            where = source.place((*path, "replicas"))
            yield Problem(where, dotted, f"{spec.replicas} of them; there can be only one {role}")


def _problem(detail: ErrorDetails, source: _Source) -> Problem:
    """Turn one of pydantic's errors into a place, a message and what to write instead."""
    path = document_path(detail["loc"], source.data)
    message, hint = explain(detail)
    return Problem(source.place(path), _dotted(path), message, hint)


def _dotted(path: Iterable[str | int]) -> str:
    return ".".join(str(step) for step in path)
