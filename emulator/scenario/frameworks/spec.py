"""What defines a framework (pure). `registry.py` lists them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from emulator.scenario.schema import Role, Scenario

FrameworkName = Literal["tensorflow", "pytorch", "jax", "mpi", "ray", "none"]
"""The values of `framework:`."""
RendezvousForm = Literal["tf-config", "cluster-config"]
"""The values of `rendezvous:`; `Framework.forms` says which framework has which."""
WORKER = "worker"


@dataclass(frozen=True)
class Member:
    """One task as the others see it."""

    role: str
    index: int
    host: str
    port: int
    pod: str = ""
    """The name of the pod that it stands for, where the scenario names its tasks."""

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"{self.host}:{self.port}"

    @property
    def has_name(self) -> bool:
        """Whether it is reached by the name of its pod; an engine may have no such names."""
        return self.host.partition(".")[0] == self.pod

    @property
    def bare(self) -> str:
        """The shortest name by which the others reach it: that of its pod, or its host."""
        return self.pod if self.has_name else self.host


@dataclass(frozen=True)
class Job:
    """What the variables of a task depend on, beside the addresses of all tasks."""

    scenario: Scenario
    role: Role
    """The task's own role."""
    run_id: str

    @property
    def command(self) -> Sequence[str]:
        """The task's command."""
        own = self.role.command
        return self.scenario.program.command if own is None else own

    @property
    def env(self) -> Mapping[str, str]:
        """The variables that the scenario sets in the task."""
        return {**self.scenario.program.env, **self.role.env}


@dataclass(frozen=True)
class Roles:
    """What the roles of a framework mean."""

    names: tuple[str, ...] = ()
    """Its roles; none: any valid part of a host name."""
    leaders: tuple[str, ...] = ("chief", "master")
    """Roles of which a cluster has at most one task, which leads the others."""
    endless_beside: tuple[str, ...] = ("ps",)
    """Where a cluster has one of these, its other tasks serve and never end by themselves."""
    idle: tuple[str, ...] = ()
    """Leaders that start the others' work and do none of it."""

    outside: tuple[str, ...] = ()
    """Roles that are not part of the cluster that the others see."""
    evaluators: tuple[str, ...] = ("evaluator",)
    """Roles whose steps are those of the checkpoints that they read."""

    def trains(self, role: str) -> bool:
        """Say whether tasks of the role do the work that is scaled; a parameter server doesn't."""
        return role == WORKER or (role in self.leaders and role not in self.idle)

    def leader(self, tasks: Collection[str]) -> str:
        """Return the name of the task that leads: the chief, else worker 0 (TF2), else empty."""
        names = (f"{role}-0" for role in (*self.leaders, WORKER))
        return next((name for name in names if name in tasks), "")

    def deciding(self, rule: str, tasks: Collection[str]) -> list[str]:
        """Return the tasks that end the job with success, by the rule of the scenario."""
        if rule == "all-workers":
            return [task for task in tasks if role_of(task) == WORKER]
        leading = [task for task in tasks if role_of(task) in self.leaders]
        # Without a chief, worker 0 leads; in a cluster without workers, all tasks count.
        return leading or ([leader] if (leader := self.leader(tasks)) else list(tasks))

    def ranked(self, members: Sequence[Member]) -> list[Member]:
        """Return the tasks that train in the order of their rank: the chief or master first.

        TensorFlow numbers the tasks of collective operations the same way
        (tensorflow/python/distribute/multi_worker_util.py, `id_in_cluster`), and PyTorchJob its
        pods. Without a framework every task has a rank, in the order of the scenario.
        """
        if not self.names:
            return list(members)
        order = (*self.leaders, WORKER)
        training = [member for member in members if self.trains(member.role)]
        return sorted(training, key=lambda member: (order.index(member.role), member.index))

    def endless(self, tasks: Collection[str]) -> bool:
        """Say whether the tasks beside the leader never end by themselves."""
        return any(f"{role}-0" in tasks for role in self.endless_beside)


def _no_hint(role: str) -> str:
    return ""


def _no_warnings(scenario: Scenario) -> Iterator[str]:
    yield from ()


Environment = Callable[[Member, Sequence[Member], Job], Mapping[str, str]]
"""Makes the variables of a task, which is one of the members."""


@dataclass(frozen=True)
class Framework:
    """One framework."""

    name: FrameworkName
    environment: Environment
    """The variables by which a task finds the others."""
    forms: Mapping[RendezvousForm, Environment] = field(default_factory=dict)
    """The variables instead of those of `environment`, where a scenario selects their form."""
    roles: Roles = Roles()
    image: str = "auto"
    """The image that `auto` is; `auto`: that of TensorFlow, for GPUs or for CPUs."""
    overridable: frozenset[str] = frozenset()
    """Variables of `environment` that the scenario may set."""
    preload: tuple[str, ...] = ()
    """Modules that a warm start imports where the image does not name them."""
    needs: tuple[tuple[str, str], ...] = ()
    """What it needs of an engine, in words, each with the capability."""
    role_hint: Callable[[str], str] = _no_hint
    """What to write instead of a role that it does not have; empty: the closest of its own."""
    warnings: Callable[[Scenario], Iterator[str]] = _no_warnings
    """Settings that are valid but rarely intended."""


def role_of(task: str) -> str:
    """Return the role of a task from its name, `<role>-<index>`."""
    return task.rpartition("-")[0]
