"""Load a scenario from YAML and overrides: a `Scenario`, or all errors together (pure).

Each problem has its file and line, or the `--set` that caused it, and what to write instead.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from emulator.errors import Misfit, Problem, ScenarioError, Unsupported, UsageError, shown
from emulator.scenario.cross_checks import cross_section_errors
from emulator.scenario.document import KeyPath, ParseError, read
from emulator.scenario.document import value as value_of
from emulator.scenario.matrix import format_override, not_overridden, to_overrides, variants
from emulator.scenario.messages import document_path, explain
from emulator.scenario.schema import Scenario
from emulator.validation.files import text_of
from emulator.validation.limits import DEPTH, SCENARIO_BYTES

PROBLEMS = 100
"""Reported problems of one scenario, at most."""
Known = dict[object, object]
"""Results of checks of files: see `fields.once`."""
Origins = Mapping[KeyPath, tuple[str, str]]
"""Where the values of a text come from that was made from other files: the place, and the path
there. A value without an origin comes from its closest parent's."""
OPTION: Callable[[str], str] = "--set {}".format
"""What messages call an override of the command line."""
_NUMBER = re.compile(r"[0-9]{1,9}")
_NAME = re.compile(r"[a-zA-Z][-_a-zA-Z0-9]*")
"""A name of a fault, as in `faults.spec.Entry`."""


@dataclass
class _Source:
    """A parsed file with the places of its values."""

    data: dict[str, Any]
    file: str
    lines: dict[KeyPath, int] = field(default_factory=dict)
    places: dict[KeyPath, str] = field(default_factory=dict)
    origins: Origins = field(default_factory=dict)

    def replaced(self, path: KeyPath, place: str) -> None:
        """Record that the value at `path` now comes from `place`."""
        length = len(path)
        self.lines = {p: line for p, line in self.lines.items() if p[:length] != path}
        self.origins = {p: other for p, other in self.origins.items() if p[:length] != path}
        self.places = {p: other for p, other in self.places.items() if p[:length] != path}
        self.places[path] = place

    def problem(self, path: KeyPath, message: str, hint: str = "") -> Problem:
        """Return a mistake in the value at `path`, with the path in the file that has it."""
        return Problem(self.place(path), self._shown(path), message, hint)

    def _shown(self, path: KeyPath) -> str:
        """Return the path as it is in the file that the value comes from."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.places:
                break
            if path[:end] in self.origins:
                there = self.origins[path[:end]][1]
                if there == _dotted(path[:end]):
                    break
                return there if end == len(path) else f"{there} ({_dotted(path)})"
        return _dotted(path)

    def place(self, path: KeyPath) -> str:
        """Return `file:line` of the key, or of its closest parent that has a line."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.places:
                return self.places[path[:end]]
            if path[:end] in self.origins:
                return self.origins[path[:end]][0]
            if path[:end] in self.lines:
                return f"{self.file}:{self.lines[path[:end]]}"
        return self.file


def scenario_text(path: Path) -> str:
    """Return the text of the scenario at `path`. Raises UsageError if it can't be read."""
    try:
        return text_of(path, SCENARIO_BYTES)
    except ValueError as error:
        raise UsageError(
            f"Can't read {path}: {error}.", "`emulate init` writes a scenario to start from."
        ) from None


def load(path: Path, sets: Sequence[str] = ()) -> Scenario:
    """Read and validate the scenario at `path`, with `key.path=value` overrides applied.

    Raises ScenarioError with all problems, UsageError if the file can't be read.
    """
    text = scenario_text(path)
    return parse(text, file=str(path), folder=path.resolve().parent, sets=sets)


def parse(
    text: str,
    *,
    file: str = "scenario.yaml",
    folder: Path = Path(),
    sets: Sequence[str] = (),
    origins: Origins | None = None,
    called: Callable[[str], str] = OPTION,
) -> Scenario:
    """Validate the text of a scenario; paths in it are relative to `folder`.

    `origins`: where its values come from, if the text was made from other files. `called`: what
    messages call an override. Raises ScenarioError with the first hundred problems; UsageError if
    an override can't be applied.
    """
    source, problems = _overridden(text, file, sets, origins, called)
    if isinstance(varied := source.data.get("parametrize"), dict):
        left = not_overridden(map(str, varied), [text.partition("=")[0] for text in sets])
        source.data["parametrize"] = {k: v for k, v in varied.items() if str(k) in left}
    known: Known = {}
    noted = {(problem.place, problem.path) for problem in problems}  # nothing is said twice of one
    scenario, partial, invalid = _validate(source, folder, known)
    problems += (one for one in invalid if (one.place, one.path) not in noted)
    problems += _variant_problems(partial, source, folder, {*problems, *invalid}, known)
    problems = sorted(dict.fromkeys(problems), key=_reading_order)
    if len(problems) > PROBLEMS:
        rest = Problem(problems[PROBLEMS].place, "", "and more; fix these first")
        problems = [*problems[:PROBLEMS], rest]
    if problems or scenario is None:
        raise ScenarioError(problems)
    return scenario


def data_of(text: str, file: str) -> dict[str, Any]:
    """Return the data of a scenario's text, which may have mistakes."""
    return _overridden(text, file, ())[0].data


@contextlib.contextmanager
def placed(
    text: str,
    file: str,
    sets: Sequence[str],
    origins: Origins | None = None,
    called: Callable[[str], str] = OPTION,
) -> Iterator[None]:
    """Add the file and line in the scenario `text` to a Misfit, which becomes a ScenarioError, and
    to what an engine does not support.
    """
    try:
        yield
    except Misfit as error:
        source, _ = _overridden(text, file, sets, origins, called)
        raise ScenarioError([source.problem(error.path, *error.problem)]) from None
    except Unsupported as error:
        if not error.keys:
            raise
        source, _ = _overridden(text, file, sets, origins, called)
        hint = f"{error.hint[:1].lower()}{error.hint[1:]}".removesuffix(".")
        problems = [source.problem(path, what, hint) for path, what in error.keys]
        lines = "\n".join(map(str, sorted(problems, key=_reading_order)))
        raise Unsupported(lines, lacks=error.lacks) from None


def _reading_order(problem: Problem) -> tuple[str, int, str]:
    file, _, line = problem.place.rpartition(":")
    return (file, int(line), problem.path) if line.isdigit() else (problem.place, 0, problem.path)


def _overridden(
    text: str,
    file: str,
    sets: Sequence[str],
    origins: Origins | None = None,
    called: Callable[[str], str] = OPTION,
) -> tuple[_Source, list[Problem]]:
    """Parse the text of a scenario and apply overrides to its data; return its mistakes as well."""
    try:
        document = read(text)
    except ParseError as error:
        place = f"{file}:{error.line}" if error.line else file
        raise ScenarioError([Problem(place, "", f"not valid YAML: {error}")]) from None
    if not isinstance(document.data, dict):
        hint = "begin with `name: my-first-cluster`; `emulate init` writes a whole one"
        raise ScenarioError([Problem(f"{file}:1", "", "a scenario is a mapping of keys", hint)])
    if origins is None:
        source = _Source(document.data, file, document.lines)
        problems = [
            Problem(f"{file}:{mistake.line}", _dotted(mistake.path), mistake.message, mistake.hint)
            for mistake in document.mistakes
        ]
    else:  # its own lines are in no file
        source = _Source(document.data, file, {}, origins=origins)
        problems = [
            source.problem(mistake.path, mistake.message, mistake.hint)
            for mistake in document.mistakes
        ]
    for assignment in sets:
        _override(source, assignment, called(assignment))
    return source, problems


def _override(source: _Source, assignment: str, place: str) -> None:
    """Apply `cluster.worker=4` to the parsed data; the value is parsed as YAML.

    A number for a role that is a mapping sets its `replicas`. Adding a key to a short form
    (`worker: 2`, `restart: always`, `at: 40s`) expands it to a mapping.
    """
    dotted, equals, text = assignment.partition("=")
    if not equals or not dotted:
        raise UsageError(
            f"--set {shown(assignment)} is not KEY=VALUE.", "For example: --set cluster.worker=4"
        )
    try:
        _assign(source, dotted, value_of(text, dotted), place)
    except (ParseError, _NotThere) as error:
        raise UsageError(f"{shown(place)}: {shown(str(error))}.") from None


class _NotThere(Exception):
    """There is nothing at a key that could be set."""


def _assign(source: _Source, dotted: str, value: object, place: str) -> None:
    """Set the value at a dotted key, and record its `place`. Raises _NotThere."""
    keys: list[str | int] = [int(k) if _NUMBER.fullmatch(k) else k for k in dotted.split(".")]
    if len(keys) > DEPTH:
        raise _NotThere(f"a key has at most {DEPTH} parts")
    target: Any = source.data
    for depth in range(1, len(keys)):
        missing: Any = [] if isinstance(keys[depth], int) else {}
        path = tuple(keys[:depth])
        target = _descend(target, path, missing)
        if path not in source.lines and path not in source.origins:
            source.places.setdefault(path, place)
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
        raise _NotThere(f"{key} is below a plain value")
    inner = target.get(str(key))
    if isinstance(inner, int | str) and (short := short_for(path)):
        inner = target[str(key)] = {short: inner}
    if inner is None:
        inner = target[str(key)] = missing
    return inner


def short_for(path: KeyPath) -> str | None:
    """Return the key that a plain value at `path` is short for: `worker: 2` for `replicas`."""
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


def _validate(
    source: _Source, folder: Path, known: Known
) -> tuple[Scenario | None, Scenario, list[Problem]]:
    """Return the scenario (None if invalid), one of its valid sections only, and all problems."""
    context = {"folder": folder, "known": known}
    try:
        scenario = Scenario.model_validate(source.data, context=context)
        return scenario, scenario, list(_cross_problems(scenario, source))
    except ValidationError as error:
        details = error.errors(include_url=False)
    paths = [document_path(detail["loc"], source.data) for detail in details]
    problems = [
        source.problem(path, *explain(detail)) for path, detail in zip(paths, details, strict=True)
    ]
    # Check the rest together, with valid values in place of the broken ones.
    mended = frozenset(path[:2] for path in paths if _is_entry(path, source.data))
    broken = frozenset(
        str(detail["loc"][0])
        for detail, path in zip(details, paths, strict=True)
        if path[:2] not in mended
    )
    mended = frozenset(path for path in mended if path[0] not in broken)
    required = {"name": "x", "program": {"command": ["true"]}, "cluster": {"worker": 1}}
    valid = {key: value for key, value in source.data.items() if str(key) not in broken}
    valid |= {key: value for key, value in required.items() if key in broken}
    for path in mended:
        _put_stand_in(valid, str(path[0]), path[1], source.data)
    partial = Scenario.model_validate(valid, context=context)
    return None, partial, problems + list(_cross_problems(partial, source, broken, mended))


def _is_entry(path: KeyPath, data: Mapping[str, Any]) -> bool:
    """Return whether a path is in one role or fault: then the others can be checked without it."""
    if len(path) < 2 or path[0] not in ("cluster", "faults"):
        return False
    return isinstance(data[path[0]], dict if path[0] == "cluster" else list)


def _put_stand_in(
    valid: dict[str, Any], section: str, key: str | int, written: Mapping[str, Any]
) -> None:
    """Put a valid role or fault in place of a broken one, in a section that is not `written`'s."""
    if valid[section] is written[section]:
        valid[section] = copy(written[section])
    inner = valid[section][key]
    keys = inner if isinstance(inner, dict) else {}
    if section == "cluster":  # it stays in the training or before it
        valid[section][key] = {"before": "training"} if "before" in keys else 1
        return
    name, cluster = keys.get("name"), written.get("cluster")
    first = next(iter(cluster), "") if isinstance(cluster, dict) else ""
    valid[section][key] = {"kill": f"{first}-0", "at": "0s"}
    if isinstance(name, str) and _NAME.fullmatch(name):  # others may refer to it
        valid[section][key]["name"] = name


def _variant_problems(
    scenario: Scenario, source: _Source, folder: Path, seen: set[Problem], known: Known
) -> Iterator[Problem]:
    """Yield problems that only exist in a parametrized variant or the reference.

    A problem of several variants is reported for the first.
    """
    bare = {key: value for key, value in source.data.items() if key != "parametrize"}
    places = {
        format_override(key, value): source.place(("parametrize", key, number))
        for key, values in scenario.parametrize.items()
        for number, value in enumerate(values)
    }
    reference = to_overrides(scenario.reference)
    places |= {
        text: source.place(("reference", key))
        for key, text in zip(scenario.reference, reference, strict=True)
    }
    for variant in variants(parametrize=scenario.parametrize):
        sets = dict.fromkeys((variant.overrides, variant.overrides + reference))
        for overrides in filter(None, sets):  # without any it is the scenario itself
            changed, problems = replace(source, data=deepcopy(bare), places={**source.places}), []
            for text in overrides:
                key, _, value = text.partition("=")
                try:
                    _assign(changed, key, value_of(value), places[text])
                except (_NotThere, ParseError) as error:
                    problems.append(Problem(places[text], key, str(error)))
            for problem in problems or _validate(changed, folder, known)[2]:
                if problem in seen:
                    continue
                seen.add(problem)
                if problem.place in places.values():
                    yield problem
                else:
                    label = " ".join(overrides)
                    yield replace(problem, message=f"{problem.message}, with {label}")


def _cross_problems(
    scenario: Scenario,
    source: _Source,
    broken: frozenset[str] = frozenset(),
    mended: frozenset[KeyPath] = frozenset(),
) -> Iterator[Problem]:
    """Yield the errors across sections, without those that depend on a broken one.

    `mended`: roles and faults that are broken, and have a stand-in.
    """
    errors = cross_section_errors(scenario, broken, mended)
    for error in islice(errors, PROBLEMS + 1):
        yield source.problem(error.path, error.message, error.hint)


def _dotted(path: Iterable[str | int]) -> str:
    return ".".join(map(str, path))
