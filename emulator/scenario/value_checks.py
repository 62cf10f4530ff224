"""Checks of the references to values in a scenario's commands and variables (pure)."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from emulator.scenario.addresses import DEFAULT_NAMESPACE, Naming, Place, naming
from emulator.scenario.document import KeyPath
from emulator.scenario.frameworks.registry import roles_of
from emulator.scenario.frameworks.spec import Job, Member, Roles
from emulator.scenario.rendezvous import environment
from emulator.scenario.schema import Role, Scenario
from emulator.scenario.values import ENV, Template, Values, mistakes, read, values_of_variables
from emulator.validation.limits import WORD

_HOST, _PORT, _SHARED = 9, 65535, 255
"""Addresses and the shared path are not known before the plan: characters of a host and a path, at
least, and the longest port."""
_RUN_ID = "x" * 63
_OF_TASKS = ("role", "index", "rank")
"""Values that helpers do not have."""
_OF_ITS_OWN = 50
"""Bytes that Python adds to a text; one without values is the same object for all tasks."""


def value_errors(scenario: Scenario) -> Iterator[tuple[KeyPath, str, str]]:
    """Yield each mistake: its path, what is wrong, and what to write instead."""
    templates = dict(_templates(scenario))
    if not templates:
        return
    longest, idle = _longest_values(scenario)
    helper_values = {name: text for name, text in longest.items() if name not in _OF_TASKS}
    of_roles = _variables(scenario, templates)
    longest = {**longest, **_longest(of_roles.values())}
    for path, (_, template) in templates.items():
        is_helper = path[0] == "helpers"
        wrong = dict(mistakes(template, helper_values if is_helper else longest))
        yield from ((path, message, hint) for message, hint in wrong.items())
        lacking = {
            name: role
            for role, spec in scenario.cluster.items()
            if not (wrong or is_helper) and _is_given(path, role, spec)
            for name in template.names
            if (role in idle if name == "rank" else name.startswith(ENV))
            and name not in of_roles.get(role, ())
        }
        for name, role in lacking.items():
            why = ", because they do not train" if name == "rank" else ""
            message = f"the tasks of {role} have no ${{{name}}}{why}"
            yield path, message, f"give {role} a command or a variable of its own"
        if not (wrong or lacking) and (size := template.size(longest)) > WORD:
            message = f"a text of {size:,} characters with its values; the maximum is {WORD:,}"
            yield path, message, ""


def added_by_values(scenario: Scenario) -> int:
    """Return by how many characters values make the texts of all tasks longer; wrong ones do not.

    A text with values counts for more, because each task has one of its own.
    """
    templates = dict(_templates(scenario))
    if not templates:
        return 0
    longest = {**_longest_values(scenario)[0], **_longest(_variables(scenario, templates).values())}
    tasks = sum(role.replicas for role in scenario.cluster.values())
    with_program, replaced = 0, Counter[str]()
    for role in scenario.cluster.values():
        with_program += role.replicas if role.command is None else 0
        replaced.update(dict.fromkeys(role.env, role.replicas))
    counts = {path: count for path, _, count in scenario.containers}
    added = 0
    for path, (text, template) in templates.items():
        match path:
            case ("program", "command", _):
                count = with_program
            case ("program", "env", str(variable)):
                count = tasks - replaced[variable]
            case (*above, _, _):
                count = counts[tuple(above)]
        if template.names and all(name in longest for name in template.names):
            added += count * (template.size(longest) - len(text) + _OF_ITS_OWN)
    return added


def _templates(scenario: Scenario) -> Iterator[tuple[KeyPath, tuple[str, Template]]]:
    """Yield the place of each text that may have references, the text, and what is read from it."""
    program = scenario.program
    given: dict[KeyPath, tuple[Sequence[str], Mapping[str, str]]] = {
        ("program",): (program.command, program.env),
        **{path: (one.command or (), one.env) for path, one, _ in scenario.containers},
    }
    for above, (command, env) in given.items():
        for number, word in enumerate(command):
            if "${" in word:
                yield (*above, "command", number), (word, read(word))
        for name, text in env.items():
            if "${" in text:
                yield (*above, "env", name), (text, read(text))


def _is_given(path: KeyPath, name: str, role: Role) -> bool:
    """Return whether a role's tasks get the command or variable at a path."""
    match path:
        case ("program", "command", _):
            return role.command is None
        case ("program", "env", variable):
            return variable not in role.env
    return path[1] == name


def _longest_values(scenario: Scenario) -> tuple[Mapping[str, str], Sequence[str]]:
    """Return the longest value of each name, and the roles whose tasks have no rank."""
    counts = tuple((role, spec.replicas) for role, spec in scenario.cluster.items())
    before = tuple(scenario.before_training)
    named = naming(scenario)
    return _count_values(roles_of(scenario), counts, tuple(scenario.helpers), before, named)


def _variables(
    scenario: Scenario, templates: Mapping[KeyPath, tuple[str, Template]]
) -> Mapping[str, Mapping[str, str]]:
    """Return each role's variables as values, where a text refers to one."""
    if not any(name.startswith(ENV) for _, one in templates.values() for name in one.names):
        return {}
    named = naming(scenario)
    members = [
        _member(named, role, index)
        for role, spec in scenario.in_training.items()
        for index in range(spec.replicas)
    ]
    return {
        member.role: values_of_variables(
            environment(member, members, Job(scenario, scenario.cluster[member.role], _RUN_ID))
        )
        for member in {member.role: member for member in members}.values()
    }


def _longest(texts: Iterable[Mapping[str, str]]) -> dict[str, str]:
    longest = dict[str, str]()
    for text_of in texts:
        for name, text in text_of.items():
            longest[name] = max(longest.get(name, ""), text, key=len)
    return longest


def _member(named: Naming | None, role: str, index: int) -> Member:
    """Return a task whose address is as long as any can be."""
    place = named.place(role, index) if named else Place(f"{role}-{index}", _PORT)
    return Member(role, index, place.host.ljust(_HOST), _PORT, place.pod)


@functools.lru_cache(maxsize=4)  # most variants of a scenario have the same cluster
def _count_values(
    roles: Roles,
    counts: tuple[tuple[str, int], ...],
    helpers: tuple[str, ...],
    before: tuple[str, ...],
    named: Naming | None,
) -> tuple[Mapping[str, str], Sequence[str]]:
    members = [_member(named, role, index) for role, count in counts for index in range(count)]
    places = {name: Member("helper", 0, name.ljust(_HOST), _PORT) for name in helpers}
    values = Values(
        roles,
        members,
        shared="/" * _SHARED,
        seed=-(2**63),
        helpers=places,
        before_training=before,
        namespace=named.namespace if named else DEFAULT_NAMESPACE,
    )
    last = [
        values.own_values(member) for member in {member.role: member for member in members}.values()
    ]
    own_and_common = [{"rank": ""}, values.common, *last, *map(values.helper_values, helpers)]
    return _longest(own_and_common), [own["role"] for own in last if "rank" not in own]
