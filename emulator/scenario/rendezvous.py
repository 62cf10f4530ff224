"""Rendezvous: the variables by which tasks find each other, and which are reserved (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from emulator.scenario.frameworks.registry import FRAMEWORKS
from emulator.scenario.frameworks.spec import Job, Member

PREFIX = "EMULATOR_"
"""Prefix of the variables that identify a task and its run."""
INSTEAD: Mapping[str, str] = {"EMULATOR_SEED": "write `seed: 1` in the scenario, or --seed 1"}


def environment(member: Member, members: Sequence[Member], job: Job) -> dict[str, str]:
    """Return the rendezvous variables of `member` under the framework of its scenario.

    `members` are the tasks that run at the same time; one that ends before training has none.
    The form of the variables is the one that the scenario selects, if the framework has it.
    """
    if job.role.before is not None:
        return {}
    if job.scenario.rules:
        return dict(job.scenario.rules.environment(member, members))
    framework, form = FRAMEWORKS[job.scenario.framework], job.scenario.rendezvous
    make = framework.forms.get(form, framework.environment) if form else framework.environment
    return dict(make(member, members, job))


def reserved(job: Job) -> frozenset[str]:
    """Return the variables of a task's framework that only the emulator sets.

    A job of an operator may set all of them, as in its manifest; the operator's take their place.
    """
    if job.role.before is not None or job.scenario.rules:
        return frozenset()
    framework = FRAMEWORKS[job.scenario.framework]
    names = framework.roles.names
    cluster = list(job.scenario.in_training)
    # Roles with names of the user's own are all alike, and may be many.
    roles = ([role for role in cluster if role in names] or names) if names else cluster[:1]
    # Two of each: a single task may get none.
    members = [Member(role, n, "host", 1) for role in roles for n in range(2)]
    given = {name for member in members for name in environment(member, members, job)}
    return frozenset(given - framework.overridable)


def merged(ours: Mapping[str, str], given: Mapping[str, str], job: Job) -> dict[str, str]:
    """Return the variables of a task: `ours`, which `environment` returns, and those of its own.

    The operator appends its own to the container's list, and of two the later counts.
    """
    return {**given, **ours} if job.scenario.rules else {**ours, **given}


def instead(name: str, taken: frozenset[str]) -> str:
    """Return what to write instead of a variable that is reserved; empty if it is not.

    `taken`: the variables of its framework.
    """
    if name.startswith(PREFIX):
        return INSTEAD.get(name, f"give it another name, which does not begin with {PREFIX}")
    if name in taken:
        return "it is made from `cluster:`; a program that makes its own has `framework: none`"
    return ""
