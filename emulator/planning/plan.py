"""The plan: every task with its address, environment and command, before anything starts (pure).

It is a value that can be printed, compared and stored; `planner.py` makes it.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict

from emulator.faults.netem import Link
from emulator.faults.schedule import PlannedFault
from emulator.metrics.readings import PHASES_ONLY
from emulator.planning.context import Limits
from emulator.scenario.container import ContainerSettings, Entrypoint, File, Mount, Port
from emulator.scenario.frameworks.registry import roles_of
from emulator.scenario.frameworks.spec import Roles
from emulator.scenario.program import Copied
from emulator.scenario.schema import Scenario
from emulator.validation.run_id import is_run_id


def _stored_run_id(text: str) -> str:
    if not is_run_id(text):
        raise ValueError("it can't be a run id")
    return text


RunId = Annotated[str, AfterValidator(_stored_run_id)]
"""A run id in a stored plan; refused if it is not valid."""


class _Member(BaseModel):
    """Which task it is, and where the others reach it."""

    name: str
    """`<role>-<index>`, of a helper its own name.

    Of an init step the task's and its own: `worker-0.fetch`.
    """
    role: str
    index: int
    before: Literal["training"] | None = None
    """It ends before the others start."""
    host: str
    port: int
    aliases: tuple[str, ...] = ()
    """Its names on the network, the shortest first, where the scenario sets them."""


class Task(ContainerSettings, _Member):
    """One task of the training job, or a helper: a process in a container, or on loopback.

    Also an init step, which is part of a task and runs on the task's host.
    """

    image: str
    """Its image reference; empty if the engine uses none."""
    command: tuple[str, ...]
    """Empty: the image's own."""
    entrypoint: Entrypoint = "image"
    env: dict[str, str]
    source: Path | None = None
    """File or folder to copy into its working directory."""
    exclude: tuple[str, ...] = ()
    """What of it is not copied."""
    shared_link: str = ""
    """The name of a link to the shared volume beside it; empty: none."""
    working_dir: str | None = None
    """Where its program starts; None: where `source` is copied, else the image's own."""
    memory: int | None = None
    shm_size: int | None = None
    """Bytes, which a plan has as numbers."""
    mounts: dict[str, Mount] = {}
    """By the path in its container; those of the job and its own."""
    defaults: Limits = Limits()
    """The engine's limits, for those that the scenario does not set."""
    gpus: tuple[str, ...] = ()
    """Device ids."""
    ports: tuple[Port, ...] = ()
    """Published on 127.0.0.1."""
    init: tuple[Task, ...] = ()
    """Run one after the other before it starts on a fresh disk."""
    """Run beside it."""
    held: bool = False
    """It begins held, until it is traced and all tasks run: its calls to the kernel count from the
    first on."""
    filtered: bool = False
    """Held, it is stopped only at calls that count, by a filter of the kernel, and ends with its
    tracer."""

    @property
    def copied(self) -> Copied | None:
        """What is copied into its working directory."""
        if self.source is None:
            return None
        return Copied(self.source, self.exclude, self.shared_link)

    @property
    def owner(self) -> str:
        """The task whose init step it is; its own name if it is none."""
        return self.name.partition(".")[0]

    @property
    def part(self) -> str:
        """Its name as an init step; empty if it is none."""
        return self.name.partition(".")[2]

    @property
    def names(self) -> tuple[str, ...]:
        """Its names on the network; the first is its host name."""
        return self.aliases or (self.name,)

    @property
    def memory_limit(self) -> int | None:
        """The memory limit in bytes."""
        return self.defaults.memory if self.memory is None else self.memory

    @property
    def process_limit(self) -> int | None:
        """The limit of processes and threads."""
        return self.defaults.processes if self.processes is None else self.processes


class WarmStart(BaseModel):
    """How the tasks of a run start in containers that have imported modules before it."""

    model_config = ConfigDict(frozen=True)

    cluster: RunId
    """The id of what the run uses on its engine, which serves other runs before and after it."""
    preload: dict[str, tuple[str, ...]]
    """The modules that are imported, by task; other tasks start cold."""
    spares: dict[str, int] = {}
    """How many replacements of a task start warm."""


class ThroughputReference(BaseModel):
    """What the rate of a run is compared with: a run of its reference variant."""

    model_config = ConfigDict(frozen=True)

    reference: float | None = None
    """Its steps per second."""
    reference_run: str
    """Its run id."""
    reference_failure: str = ""
    """Why it has no rate."""


class Plan(BaseModel):
    """Everything that the engine, the supervisor and the record need for a run."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    run_id: RunId
    engine: str
    scenario: Scenario
    tasks: tuple[Task, ...]
    helpers: tuple[Task, ...] = ()
    """The programs next to the job; their names have no index."""
    faults: tuple[PlannedFault, ...] = ()
    """The scheduled faults, with the times and targets of random ones."""
    links: tuple[Link, ...] = ()
    """The permanent network shaping between tasks."""
    warnings: tuple[str, ...] = ()
    variant: str = ""
    """The variant of the scenario, as set by `--vary`."""
    reference: ThroughputReference | None = None
    """The reference rate for `expect.throughput.at_least`."""
    calls_of: str = ""
    """The files whose calls the run records: a glob; empty: none."""
    reads_results: bool = False
    """What its tasks have left is read at its end, to be compared with that of other runs."""
    metadata: tuple[str, ...] = ()
    """The platforms whose metadata is served to its tasks, of `notices.ACTIONS`."""
    python: str = ""
    """The Python that its tasks run in; empty: that of their images."""
    warm: WarmStart | None = None
    """How its tasks start warm; None: all start cold."""

    @property
    def resources(self) -> str:
        """The id that everything which the engine has for the run is labelled with."""
        return self.run_id if self.warm is None else self.warm.cluster

    @property
    def roles(self) -> Roles:
        """What the roles of its tasks mean."""
        return roles_of(self.scenario)

    def task(self, name: str) -> Task:
        """Return the task or helper of that name; raises KeyError."""
        return {task.name: task for task in self.everything}[name]

    def files(self, task: Task) -> Mapping[str, File]:
        """Return the files that are put into the container of a task, by path.

        They are only in the scenario, because all tasks of a role have the same.
        """
        if task.owner in {helper.name for helper in self.helpers}:
            helper = self.scenario.helpers.get(task.owner)
            return helper.files if helper else {}
        role = self.scenario.cluster[task.role]
        if not task.part:
            return self.scenario.in_full(role).files
        return next(one.files for one in role.init if one.name == task.part)

    @property
    def before_training(self) -> tuple[Task, ...]:
        """The tasks that end before the others start."""
        return tuple(task for task in self.tasks if task.before is not None)

    @property
    def in_training(self) -> tuple[Task, ...]:
        """The tasks of the job itself: all others."""
        return tuple(task for task in self.tasks if task.before is None)

    @property
    def evaluators(self) -> frozenset[str]:
        """The tasks whose steps are those of checkpoints that they read; none beside no others."""
        roles = self.roles.evaluators
        found = frozenset(task.name for task in self.in_training if task.role in roles)
        return found if len(found) < len(self.in_training) else frozenset()

    def step_rules(self, task: Task) -> Sequence[str]:
        """Return how steps are read from a task's output, for `StepReader`.

        What a task before training counts are no steps of the training.
        """
        return (PHASES_ONLY,) if task.before is not None else self.scenario.metrics.rules

    @property
    def everything(self) -> tuple[Task, ...]:
        """The tasks and the helpers."""
        return (*self.tasks, *self.helpers)

    @property
    def printing(self) -> tuple[str, ...]:
        """The names of all that have a log: tasks and helpers.

        What an init step prints is in the log of its task.
        """
        return tuple(one.name for one in self.everything)


def new_run_id(name: str) -> str:
    """Return a unique id `<name>-<UTC time>-<random>`, which sorts by age."""
    stamp = time.strftime("%m%d%H%M%S", time.gmtime())
    return f"{name}-{stamp}-{secrets.token_hex(3)}"
