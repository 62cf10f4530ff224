"""Checks across sections of a scenario: values that are valid alone, but not together (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from emulator.faults.schedule import cross_errors
from emulator.faults.spec import is_glob, matches
from emulator.scenario import rendezvous
from emulator.scenario.document import KeyPath
from emulator.scenario.messages import closest
from emulator.scenario.roles import CHIEFS, ROLES
from emulator.scenario.schema import Role, Scenario
from emulator.validation.limits import GIVEN_BYTES, GLOBS, LINKS, STRIKES, TASKS
from emulator.validation.units import format_size

_ROLE_NAME = re.compile(r"[a-z]([-a-z0-9]{0,30}[a-z0-9])?")


@dataclass(frozen=True)
class CrossError:
    """One error: its path, what is wrong, and what to write instead."""

    path: KeyPath
    message: str
    hint: str = ""


def cross_section_errors(
    scenario: Scenario, broken: frozenset[str] = frozenset()
) -> Iterator[CrossError]:
    """Yield the errors; none that depends on a section in `broken`."""
    count = sum(spec.replicas for spec in scenario.cluster.values())
    if not broken & {"cluster", "framework"}:
        yield from _of_roles(scenario)
    if not broken & {"program", "cluster", "framework"}:
        yield from _of_variables(scenario)
    if "cluster" not in broken and count > TASKS:
        yield CrossError(("cluster",), f"has {count:,} tasks; {TASKS:,} are the most")
    elif not broken & {"cluster", "faults", "network"}:
        tasks = [f"{r}-{i}" for r, spec in scenario.cluster.items() for i in range(spec.replicas)]
        yield from _of_faults(scenario, tasks)
    if not broken & {"program", "cluster"} and (size := _text_size(scenario)) > GIVEN_BYTES:
        message = f"gives its tasks {format_size(size)} of commands and variables"
        yield CrossError(("cluster",), message, f"{format_size(GIVEN_BYTES)} are the most")
    if not broken & {"expect", "reference"}:
        throughput = scenario.expect.throughput
        if throughput and throughput.of == "reference" and not scenario.reference:
            hint = "define it: `reference: {cluster.worker: 1}`"
            yield CrossError(("expect", "throughput", "of"), "there is no reference", hint)
    if not broken & {"cluster", "success"}:
        yield from _of_success(scenario)


def _text_size(scenario: Scenario) -> int:
    """Return the number of characters of all tasks' commands and variables."""

    def of_task(role: Role) -> int:
        variables = [*scenario.program.env.items(), *role.env.items()]
        words = [*(role.command or scenario.program.command), *map("".join, variables)]
        return sum(map(len, words))

    return sum(role.replicas * of_task(role) for role in scenario.cluster.values())


def _of_success(scenario: Scenario) -> Iterator[CrossError]:
    needed = {"chief": (CHIEFS, "chief: 1"), "all-workers": ({"worker"}, "worker: 2")}
    roles, example = needed.get(scenario.success, (set(), ""))
    if roles and not roles & scenario.cluster.keys():
        hint = f"add `{example}` to cluster, or write `success: auto`"
        yield CrossError(
            ("success",), f"'{scenario.success}' is set, but the cluster has none", hint
        )


def _of_roles(scenario: Scenario) -> Iterator[CrossError]:
    framework = scenario.framework
    known = ROLES.get(framework)
    for role, spec in scenario.cluster.items():
        path: KeyPath = ("cluster", role)
        if known is None:
            if not _ROLE_NAME.fullmatch(role):
                hint = "lower-case letters, digits and dashes, at most 32"
                yield CrossError(path, "can't be part of a host name", hint)
        elif role not in known:
            hint = f"roles of {framework}: {', '.join(known)}"
            if role == "master" and framework == "tensorflow":
                hint = "TF2 rejects 'master'; write 'chief'"
            yield CrossError(path, "unknown role", closest(role, known) or hint)
        elif role in CHIEFS and spec.replicas > 1:
            message = f"{spec.replicas} of them; there can be only one {role}"
            yield CrossError((*path, "replicas"), message)


def _of_variables(scenario: Scenario) -> Iterator[CrossError]:
    """Yield variables that are reserved for the emulator."""
    sections: list[tuple[KeyPath, dict[str, str]]] = [(("program", "env"), scenario.program.env)]
    sections += [(("cluster", role, "env"), spec.env) for role, spec in scenario.cluster.items()]
    for path, variables in sections:
        for name in variables:
            if hint := rendezvous.reserved(name, scenario.framework):
                yield CrossError((*path, name), "is set by the emulator itself", hint)


def _of_faults(scenario: Scenario, tasks: Sequence[str]) -> Iterator[CrossError]:
    """Yield faults whose targets or triggers match no task, and too many faults."""
    named = {pattern for fault in scenario.faults for _, pattern in fault.named()}
    if sum(map(is_glob, named)) > GLOBS:
        yield CrossError(("faults",), f"name their tasks by more than {GLOBS:,} different globs")
        return
    for number, fault in enumerate(scenario.faults):
        for keys, pattern in dict.fromkeys(fault.named()):
            if not matches(pattern, tasks):
                hint = closest(pattern, tasks) or f"tasks: {', '.join(tasks[:8])}"
                yield CrossError(("faults", number, *keys), f"no task is called {pattern!r}", hint)
    for number, key, message, hint in cross_errors(scenario.faults, tasks):
        yield CrossError(("faults", number, key), message, hint)
    count, links = 0, 0
    if scenario.network.delay or scenario.network.bandwidth is not None:
        links = len(tasks) * (len(tasks) - 1)
        if links > LINKS:
            yield _too_many_links(("network",))
            return
    for number, fault in enumerate(scenario.faults):
        count += fault.count(tasks)
        links += fault.link_count(tasks)
        if count > STRIKES:
            message = f"these are more than {STRIKES:,} single faults, counted by task"
            yield CrossError(("faults", number), message, "fewer rows, a smaller `max` or glob")
            return
        if links > LINKS:
            yield _too_many_links(("faults", number))
            return


def _too_many_links(path: KeyPath) -> CrossError:
    message = f"a network between so many tasks has more than {LINKS:,} pairs of them"
    return CrossError(path, message, "name fewer tasks, or make the cluster smaller")
