"""Checks of the references to values in a scenario's commands and variables (pure)."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from emulator.scenario.addresses import DEFAULT_NAMESPACE, Naming, Place, naming
from emulator.scenario.document import KeyPath
from emulator.scenario.frameworks.registry import roles_of
from emulator.scenario.frameworks.spec import Job, Member, Roles
from emulator.scenario.rendezvous import environment
from emulator.scenario.values import ENV, Template, Values, mistakes, read, values_of_variables

if TYPE_CHECKING:
    from emulator.scenario.schema import Role, Scenario

_OF_TASKS = ("role", "index", "rank")
"""Values that helpers do not have."""


def value_errors(scenario: Scenario) -> Iterator[tuple[KeyPath, str, str]]:
    """Yield each mistake: its path, what is wrong, and what to write instead."""
    templates = dict(_templates(scenario))
    if not templates:
        return
    known, idle = _known_values(scenario)
    of_helpers = {name: text for name, text in known.items() if name not in _OF_TASKS}
    of_roles = _variables(scenario, templates)
    of_tasks = dict.fromkeys([*known, *chain(*of_roles.values())])
    for path, template in templates.items():
        is_helper = path[0] == "helpers"
        wrong = dict(mistakes(template, of_helpers if is_helper else of_tasks))
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


def _templates(scenario: Scenario) -> Iterator[tuple[KeyPath, Template]]:
    """Yield the place of each text that may have references, and what is read from it."""
    program = scenario.program
    given: dict[KeyPath, tuple[Sequence[str], Mapping[str, str]]] = {
        ("program",): (program.command, program.env),
        **{path: (one.command or (), one.env) for path, one, _ in scenario.containers},
    }
    for above, (command, env) in given.items():
        for number, word in enumerate(command):
            if "${" in word:
                yield (*above, "command", number), read(word)
        for name, text in env.items():
            if "${" in text:
                yield (*above, "env", name), read(text)


def _is_given(path: KeyPath, name: str, role: Role) -> bool:
    """Return whether a role's tasks get the command or variable at a path."""
    match path:
        case ("program", "command", _):
            return role.command is None
        case ("program", "env", variable):
            return variable not in role.env
    return path[1] == name


def _known_values(scenario: Scenario) -> tuple[Mapping[str, str], Sequence[str]]:
    """Return the values of all tasks by name, and the roles whose tasks have no rank."""
    counts = tuple((role, spec.replicas) for role, spec in scenario.cluster.items())
    before = tuple(scenario.before_training)
    named = naming(scenario)
    return _values_of(roles_of(scenario), counts, tuple(scenario.helpers), before, named)


def _variables(
    scenario: Scenario, templates: Mapping[KeyPath, Template]
) -> Mapping[str, Mapping[str, str]]:
    """Return each role's variables as values, where a text refers to one."""
    if not any(name.startswith(ENV) for one in templates.values() for name in one.names):
        return {}
    named = naming(scenario)
    members = [
        _member(named, role, index)
        for role, spec in scenario.in_training.items()
        for index in range(spec.replicas)
    ]
    return {
        member.role: values_of_variables(
            environment(member, members, Job(scenario, scenario.cluster[member.role], run_id=""))
        )
        for member in {member.role: member for member in members}.values()
    }


def _member(named: Naming | None, role: str, index: int) -> Member:
    """Return a task, whose port, and host without `named`, are not known before the plan."""
    place = named.place(role, index) if named else Place(f"{role}-{index}", 0)
    return Member(role, index, place.host, place.port, place.pod)


@functools.lru_cache(maxsize=4)  # most variants of a scenario have the same cluster
def _values_of(
    roles: Roles,
    counts: tuple[tuple[str, int], ...],
    helpers: tuple[str, ...],
    before: tuple[str, ...],
    named: Naming | None,
) -> tuple[Mapping[str, str], Sequence[str]]:
    members = [_member(named, role, index) for role, count in counts for index in range(count)]
    places = {name: Member("helper", 0, name, 0) for name in helpers}
    values = Values(
        roles,
        members,
        shared="",
        seed=0,
        helpers=places,
        before_training=before,
        namespace=named.namespace if named else DEFAULT_NAMESPACE,
    )
    last = [
        values.own_values(member) for member in {member.role: member for member in members}.values()
    ]
    known = {"rank": "", **values.common}
    for own in (*last, *map(values.helper_values, helpers)):
        known |= own
    return known, [own["role"] for own in last if "rank" not in own]
