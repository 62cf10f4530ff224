"""Checks across sections of a scenario: values that are valid alone, but not together (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from emulator.errors import shown
from emulator.faults.schedule import cross_errors
from emulator.faults.spec import matches
from emulator.scenario import rendezvous
from emulator.scenario.addresses import HOST, LABEL, Naming, is_host, is_label, naming
from emulator.scenario.container import Container
from emulator.scenario.container_checks import container_errors
from emulator.scenario.document import KeyPath
from emulator.scenario.frameworks.pytorch import Elastic
from emulator.scenario.frameworks.registry import FRAMEWORKS, roles_of
from emulator.scenario.frameworks.spec import WORKER, FrameworkName, Job, RendezvousForm, role_of
from emulator.scenario.schema import EVENTS, Expectations, Scenario
from emulator.scenario.sections import RULES
from emulator.scenario.value_checks import value_errors
from emulator.validation.limits import TASKS
from emulator.validation.similar import closest

_SET_BY_US = "is set by the emulator itself"
ABOUT_STEPS = (
    "final_step",
    "accuracy",
    "throughput",
    "max_lost_steps",
    "recovers_within",
    "min_goodput",
    "steps_exactly_once",
    "values",
    "bytes_per_step",
)
"""Expectations that can't be judged without steps."""
OWN_HELPERS = {
    EVENTS: "the helper that reads event files (`metrics.events`)",
}
_ROLE_NAME = re.compile(r"[a-z]([-a-z0-9]{0,30}[a-z0-9])?")


@dataclass(frozen=True)
class CrossError:
    """One error: its path, what is wrong, and what to write instead."""

    path: KeyPath
    message: str
    hint: str = ""


def cross_section_errors(
    scenario: Scenario,
    broken: frozenset[str] = frozenset(),
    mended: frozenset[KeyPath] = frozenset(),
) -> Iterator[CrossError]:
    """Yield the errors; none that depends on a section in `broken`.

    `mended` are the paths of broken roles and faults with a stand-in in `scenario`: nothing is
    said of what is below them, and nothing that depends on what they should have been.
    """
    if mended:
        yield from _around(scenario, broken, mended)
        return
    count = sum(spec.replicas for spec in scenario.cluster.values())
    if not broken & {"cluster", "framework", *RULES}:
        yield from _check_roles(scenario)
    if not broken & {"program", "cluster", "framework", "rendezvous", "elastic"}:
        yield from _check_variables(scenario)
    if not broken & {"framework", "rendezvous"} and scenario.rendezvous:
        yield from _check_rendezvous(scenario.framework, scenario.rendezvous)
    if not broken & {"cluster", "framework", "elastic"} and scenario.elastic:
        training = sum(spec.replicas for spec in scenario.in_training.values())
        yield from _check_elastic(scenario.framework, scenario.elastic, training)
    if not broken & {"slurm", *RULES, "program", "cluster"} and scenario.slurm:
        yield from _check_slurm(scenario)
    if not broken & {"cluster", "helpers", *RULES, "addresses"} and count <= TASKS:
        yield from _check_names(scenario)
    if not broken & {"cluster", "helpers", "metrics"}:
        yield from _check_helpers(scenario)
    if not broken & {"cluster", "helpers", "network"}:
        yield from _check_ports(scenario)
    if not broken & {"program", "cluster", "helpers", "mounts"}:
        yield from (CrossError(*mistake) for mistake in container_errors(scenario))
    if "cluster" not in broken and count > TASKS:
        yield CrossError(("cluster",), f"has {count:,} tasks; {TASKS:,} are the most")
    elif not broken & {"cluster", "faults", "network", "helpers"}:
        tasks = [f"{r}-{i}" for r, spec in scenario.cluster.items() for i in range(spec.replicas)]
        yield from _check_faults(scenario, tasks)
    if not broken & {"program", "cluster", "helpers", "framework"} and count <= TASKS:
        yield from (CrossError(*error) for error in value_errors(scenario))
    if not broken & {"expect", "reference"}:
        throughput = scenario.expect.throughput
        if throughput and throughput.of and not scenario.reference:
            hint = "define it: `reference: {cluster.worker: 1}`"
            yield CrossError(("expect", "throughput", "of"), "there is no reference", hint)
    if "expect" not in broken and scenario.expect.steps is not None:
        yield from _check_no_steps(scenario.expect)
    if not broken & {"cluster", "expect"}:
        yield from _check_traffic(scenario)
    if not broken & {"cluster", "success", *RULES} and scenario.rules is None:
        yield from _check_success(scenario)
    if scenario.rules and not broken & {*RULES, "cluster", "framework", "restart"}:
        yield from (CrossError(*error) for error in scenario.rules.errors(scenario))


def _around(
    scenario: Scenario, broken: frozenset[str], mended: frozenset[KeyPath]
) -> Iterator[CrossError]:
    """Yield the errors that are certain whatever the `mended` roles and faults should have been."""
    roles = {str(path[1]) for path in mended if path[0] == "cluster"}
    if not roles:
        for error in cross_section_errors(scenario, broken):
            if error.path[:2] not in mended and error.path != ("faults",):
                yield error
        return
    yield from cross_section_errors(scenario, broken | {"cluster"})
    if not broken & {"framework", *RULES}:
        for error in _check_roles(scenario):
            match error.path:
                case (_, _):
                    yield error
                case (_, role, *_) if role not in roles:
                    yield error
    # How many tasks a broken role has is unknown: as many as there can be.
    spec = scenario.cluster
    counts = {role: TASKS if role in roles else spec[role].replicas for role in spec}
    if not broken & {"faults", "helpers"}:
        tasks = [f"{role}-{index}" for role, count in counts.items() for index in range(count)]
        yield from _check_targets(scenario, tasks)  # of which a stand-in for a fault has one


def _check_no_steps(expect: Expectations) -> Iterator[CrossError]:
    """Yield the expectations on steps, where no steps are expected."""
    for key in ABOUT_STEPS:
        if getattr(expect, key) not in (None, False, {}):
            hint = f"leave out `steps: none` or `{key}`"
            yield CrossError(
                ("expect", key), "is about steps, but `steps: none` expects none", hint
            )


def _check_traffic(scenario: Scenario) -> Iterator[CrossError]:
    for role in scenario.expect.bytes_per_step:
        if role not in scenario.cluster:
            hint = closest(role, scenario.cluster) or f"roles: {', '.join(scenario.cluster)}"
            message = f"the cluster has no {shown(role)}"
            yield CrossError(("expect", "bytes_per_step", role), message, hint)


def _check_success(scenario: Scenario) -> Iterator[CrossError]:
    leaders = FRAMEWORKS[scenario.framework].roles.leaders
    example = f"{leaders[0]}: 1" if leaders else ""
    needed = {"chief": (leaders, example), "all-workers": ((WORKER,), "worker: 2")}
    roles, example = needed.get(scenario.success, ((), ""))
    if roles and not scenario.in_training.keys() & {*roles}:
        hint = f"add `{example}` to cluster, or write `success: auto`"
        yield CrossError(
            ("success",), f"'{scenario.success}' is set, but the cluster has none", hint
        )


def _check_rendezvous(framework: FrameworkName, form: RendezvousForm) -> Iterator[CrossError]:
    if form not in FRAMEWORKS[framework].forms:
        having = [name for name, other in FRAMEWORKS.items() if form in other.forms]
        hint = f"write `framework: {having[0]}`, or leave it out"
        yield CrossError(("rendezvous",), f"'{form}' is not for framework {framework}", hint)


def _check_elastic(framework: str, elastic: Elastic, count: int) -> Iterator[CrossError]:
    if framework != "pytorch":
        hint = "write `framework: pytorch`, or leave it out"
        yield CrossError(("elastic",), "is for torchrun", hint)
    for key, value in (("min", elastic.min), ("max", elastic.max)):
        if value is not None and value > count:
            message = f"{value}, but the cluster has {count} task{'' if count == 1 else 's'}"
            yield CrossError(("elastic", key), message, f"{count} is the most")


def _check_slurm(scenario: Scenario) -> Iterator[CrossError]:
    if scenario.rules:
        hint = f"leave `slurm` or `{scenario.rules.key}` out"
        yield CrossError(("slurm",), f"the job has the rules of `{scenario.rules.key}`", hint)
    for role, spec in scenario.in_training.items():
        if not scenario.in_full(spec).command:
            path: KeyPath = ("program",) if spec.command is None else ("cluster", role)
            hint = "write what it runs: a shell starts it"
            yield CrossError((*path, "command"), f"{role} of a Slurm job needs a command", hint)


def _check_roles(scenario: Scenario) -> Iterator[CrossError]:
    framework, roles = FRAMEWORKS[scenario.framework], roles_of(scenario)
    known = roles.names
    training = known or (*roles.leaders, WORKER)
    if not scenario.in_training:
        hint = "add a role without `before`, such as `worker: 2`"
        yield CrossError(("cluster",), "all its tasks end before training, and none trains", hint)
    for role, spec in scenario.cluster.items():
        path: KeyPath = ("cluster", role)
        if spec.before is not None and role in training:
            hint = "leave `before` out, or give the role another name, such as ingest"
            yield CrossError((*path, "before"), f"the role {role} takes part in the training", hint)
        elif not known or spec.before is not None:
            if not _ROLE_NAME.fullmatch(role):
                hint = "lower-case letters, digits and dashes, at most 32"
                yield CrossError(path, "can't be part of a host name", hint)
        elif role not in known:
            hint = closest(role, known) or framework.role_hint(role)
            hint = hint or (
                f"roles of {framework.name}: {', '.join(known)}; "
                "a role that ends before training needs `before: training`"
            )
            yield CrossError(path, "unknown role", hint)
        elif role in roles.leaders and spec.replicas > 1:
            message = f"{spec.replicas} of them; there can be only one {role}"
            yield CrossError((*path, "replicas"), message)


def _check_variables(scenario: Scenario) -> Iterator[CrossError]:
    taken = {
        role: rendezvous.reserved(Job(scenario, spec, run_id=""))
        for role, spec in scenario.cluster.items()
    }
    of_all = frozenset[str]().union(*taken.values())
    sections: list[tuple[KeyPath, dict[str, str], frozenset[str]]] = [
        (("program", "env"), scenario.program.env, of_all)
    ]
    sections += [
        (("cluster", role, "env"), spec.env, taken[role]) for role, spec in scenario.cluster.items()
    ]
    for path, variables, reserved in sections:
        for name in variables:
            if hint := rendezvous.instead(name, reserved):
                yield CrossError((*path, name), _SET_BY_US, hint)


def _check_helpers(scenario: Scenario) -> Iterator[CrossError]:
    """Yield helpers whose name is no host name or a task's, and their reserved variables."""
    for name, helper in scenario.helpers.items():
        path: KeyPath = ("helpers", name)
        role, _, index = name.rpartition("-")
        if not _ROLE_NAME.fullmatch(name):
            hint = "lower-case letters, digits and dashes, at most 32"
            yield CrossError(path, "can't be a host name", hint)
        elif role in scenario.cluster and index.isdecimal():
            message = f"has the name of a task: {role} is a role of the cluster"
            yield CrossError(path, message, "choose another name")
        elif name == scenario.metrics.helper:
            message = f"is the name of {OWN_HELPERS[name]}"
            yield CrossError(path, message, "choose another name")
        for variable in helper.env:
            if hint := rendezvous.instead(variable, frozenset()):
                yield CrossError((*path, "env", variable), _SET_BY_US, hint)


def _check_ports(scenario: Scenario) -> Iterator[CrossError]:
    """Yield ports that can't be published, or not where they should be."""
    taken: dict[int, KeyPath] = {}
    for path, spec, count in scenario.containers:
        if not isinstance(spec, Container):
            continue
        if spec.ports and not scenario.network.internet:
            message = "can't be published from a network without internet"
            yield CrossError((*path, "ports"), message, "leave `network.internet: false` out")
        for number, port in enumerate(spec.ports):
            at: KeyPath = (*path, "ports", number)
            if port.host_port is None:
                continue
            if count > 1:
                message = f"{count} tasks can't all have the port {port.host_port} of the machine"
                yield CrossError(at, message, f"write `{port.port}`: each gets any free one")
            elif other := taken.get(port.host_port):
                message = f"{'.'.join(map(str, other))} has the machine's port {port.host_port}"
                yield CrossError(at, message, "choose another `host_port`, or leave it out")
            taken[port.host_port] = path


def _check_faults(scenario: Scenario, tasks: Sequence[str]) -> Iterator[CrossError]:
    """Yield faults that can't be with these tasks, or with one another."""
    yield from _check_targets(scenario, tasks)
    for number, key, message, hint in cross_errors(scenario.faults, tasks):
        yield CrossError(("faults", number, key), message, hint)
    yield from _check_order(scenario, tasks)


def _check_targets(scenario: Scenario, tasks: Sequence[str]) -> Iterator[CrossError]:
    """Yield faults whose targets or triggers match no task."""
    for number, fault in enumerate(scenario.faults):
        for keys, pattern in dict.fromkeys(fault.named()):
            if not matches(pattern, tasks):
                if pattern in scenario.helpers:
                    message = f"{pattern} is a helper; faults and their triggers are for tasks"
                    hint = f"tasks: {', '.join(tasks[:8])}"
                    yield CrossError(("faults", number, *keys), message, hint)
                    continue
                hint = closest(pattern, tasks) or f"tasks: {', '.join(tasks[:8])}"
                yield CrossError(("faults", number, *keys), f"no task is called {pattern!r}", hint)


def _check_order(scenario: Scenario, tasks: Sequence[str]) -> Iterator[CrossError]:
    """Yield faults whose target has ended, or not started, whenever their trigger can fire."""
    before = {task for task in tasks if role_of(task) in scenario.before_training}
    for number, fault in enumerate(scenario.faults if before else ()):
        at = fault.at
        if at is None or (at.step, at.log, at.phase) == (None, None, None):
            continue
        named = (pattern for keys, pattern in fault.named() if keys[0] != "at")
        targets = {task: None for pattern in named for task in matches(pattern, tasks)}
        watched = {*matches(at.task or "*", tasks)}
        if at.step is not None:
            watched -= before  # they report no steps
        target = next(iter(targets), "")
        path: KeyPath = ("faults", number, "at")
        if targets and before >= targets.keys() and not watched & before:
            message = f"it is triggered in the training, when {target} has ended"
            yield CrossError(path, message, "a `time`, or a `log` or `phase` of such a task")
        elif targets and not targets.keys() & before and watched <= before:
            message = f"it is triggered before training, when {target} has not started"
            yield CrossError(path, message, "leave `task` out, or name one that trains")


# --- The names that a scenario gives its tasks on the network ------------------------------------


def _check_names(scenario: Scenario) -> Iterator[CrossError]:
    """Yield names of tasks that can't be."""
    named = naming(scenario)
    if named is None:
        return
    if scenario.rules and scenario.addresses:
        message = f"can't be given with `{scenario.rules.key}`, which names the tasks itself"
        yield CrossError(("addresses",), message, "leave one of them out")
        return
    path: KeyPath = (scenario.rules.key, "job") if scenario.rules else ("addresses", "host")
    if not scenario.rules:  # whose ports and pods have checks of their own
        yield from _missing_ports(scenario)
        if wrong := list(_bad_host_names(scenario, named)):
            yield from wrong
            return
    tasks = dict[str, str]()
    for role, spec in scenario.cluster.items():
        for index in range(spec.replicas):
            place = named.place(role, index)
            name = f"{role}-{index}"
            if other := tasks.get(place.pod):
                message = f"{other} and {name} have the same host name, {place.pod}"
                yield CrossError(
                    path, message, "its first part needs {task}, or {role} and {index}"
                )
                return
            tasks |= dict.fromkeys(named.aliases(role, index), name)
    for helper in scenario.helpers:
        if task := tasks.get(helper):
            message = f"is a name of the task {task} on the network"
            yield CrossError(("helpers", helper), message, "choose another name")


def _missing_ports(scenario: Scenario) -> Iterator[CrossError]:
    """Yield ports of roles that the cluster does not have."""
    port = scenario.addresses.port if scenario.addresses else None
    for role in port if isinstance(port, dict) else ():
        if role not in scenario.cluster:
            hint = closest(role, scenario.cluster) or f"roles: {', '.join(scenario.cluster)}"
            where = ("addresses", "port", role)
            yield CrossError(where, f"the cluster has no {shown(role)}", hint)


def _bad_host_names(scenario: Scenario, named: Naming) -> Iterator[CrossError]:
    """Yield roles whose last task has no host name, such as one that is too long."""
    for role, spec in scenario.cluster.items():
        host = named.place(role, spec.replicas - 1).host
        if is_label(role) and not is_host(host):  # another role is a mistake of its own
            message = f"{shown(host)} is not a host name"
            hint = f"{HOST} characters at most, and {LABEL} between two dots"
            yield CrossError(("addresses", "host"), message, hint)
