"""The plan: every task with its address, environment and command, before anything starts (pure).

`make_plan` turns a scenario into a value that can be printed, compared and stored. Everything that
depends on the engine (addresses, image references, GPU devices, the path of the shared volume) is
passed in as a `PlanContext`.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict

from emulator.errors import Unsupported
from emulator.faults.netem import Link, between_all
from emulator.faults.schedule import PlannedFault, build_schedule
from emulator.files import Disk, shortages
from emulator.planning.baseline import ThroughputReference
from emulator.planning.context import PlanContext
from emulator.planning.task_limits import Limits
from emulator.scenario import rendezvous
from emulator.scenario.roles import EVALUATOR
from emulator.scenario.schema import Role, Scenario
from emulator.validation.run_id import check_run_id, is_run_id


def _stored_run_id(text: str) -> str:
    if not is_run_id(text):
        raise ValueError("it can't be a run id")
    return text


RunId = Annotated[str, AfterValidator(_stored_run_id)]
"""A run id in a stored plan; refused if it is not valid."""


class Task(BaseModel):
    """One task of the training job: a process in a container, or on loopback."""

    model_config = ConfigDict(frozen=True)

    name: str
    """`<role>-<index>`, also its host name."""
    role: str
    index: int
    host: str
    port: int
    image: str
    """Its image reference; empty if the engine uses none."""
    command: tuple[str, ...]
    env: dict[str, str]
    source: Path | None = None
    """File or folder to copy into its working directory."""
    cpus: float | None = None
    memory: int | None = None
    """Limits set by the scenario: cores, bytes."""
    processes: int | None = None
    """Limit of processes and threads, set by the scenario."""
    defaults: Limits = Limits()
    """The engine's limits, for those that the scenario does not set."""
    gpus: tuple[str, ...] = ()
    """Device ids."""

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


class Plan(BaseModel):
    """Everything that the engine, the supervisor and the record need for a run."""

    model_config = ConfigDict(frozen=True)

    run_id: RunId
    engine: str
    scenario: Scenario
    tasks: tuple[Task, ...]
    faults: tuple[PlannedFault, ...] = ()
    """The scheduled faults, with the times and targets of random ones."""
    links: tuple[Link, ...] = ()
    """The permanent network shaping between tasks."""
    warnings: tuple[str, ...] = ()
    variant: str = ""
    """The variant of the scenario, as set by `--vary`."""
    reference: ThroughputReference | None = None
    """The reference rate for `expect.throughput.at_least`."""
    warm: WarmStart | None = None
    """How its tasks start warm; None: all start cold."""

    @property
    def resources(self) -> str:
        """The id that everything which the engine has for the run is labelled with."""
        return self.run_id if self.warm is None else self.warm.cluster

    def task(self, name: str) -> Task:
        """Return the task of that name; raises KeyError."""
        return {task.name: task for task in self.tasks}[name]


def new_run_id(name: str) -> str:
    """Return a unique id `<name>-<UTC time>-<random>`, which sorts by age."""
    stamp = time.strftime("%m%d%H%M%S", time.gmtime())
    return f"{name}-{stamp}-{secrets.token_hex(3)}"


def make_plan(
    scenario: Scenario,
    run_id: str,
    context: PlanContext,
    *,
    variant: str = "",
    reference: ThroughputReference | None = None,
    disks: Sequence[Disk] = (),
) -> Plan:
    """Return the plan of `scenario` for the engine that `context` describes.

    `disks` are the disks that the run writes to; one that is nearly full gives a warning. Raises
    Unsupported if there are too few GPUs, UsageError if `run_id` is not valid.
    """
    check_run_id(run_id)
    replicas = [
        (f"{role}-{index}", role, index, spec)
        for role, spec in scenario.cluster.items()
        for index in range(spec.replicas)
    ]
    names = [name for name, *_ in replicas]
    members = [
        rendezvous.Member(role, index, *context.address(name)) for name, role, index, _ in replicas
    ]
    images = _references(scenario, context)
    devices = _assign_gpus([(name, spec) for name, *_, spec in replicas], context)
    limits = context.limits()
    tasks = tuple(
        Task(
            name=name,
            role=role,
            index=index,
            host=member.host,
            port=member.port,
            image=images[role],
            command=tuple(spec.command or scenario.program.command),
            env={
                "PYTHONUNBUFFERED": "1",  # steps are timed when their line arrives
                "EMULATOR_RUN": run_id,
                "EMULATOR_TASK": name,
                "EMULATOR_SHARED": context.shared,
                "EMULATOR_SEED": str(scenario.seed),
                **rendezvous.environment(scenario.framework, member, members),
                **scenario.program.env,
                **spec.env,
            },
            source=scenario.program.source,
            cpus=spec.cpus,
            memory=spec.memory,
            processes=spec.processes,
            defaults=limits,
            gpus=gpus,
        )
        for (name, role, index, spec), member, gpus in zip(replicas, members, devices, strict=True)
    )
    return Plan(
        run_id=run_id,
        engine=context.engine,
        scenario=scenario,
        tasks=tasks,
        faults=build_schedule(scenario.faults, scenario.seed, names),
        links=between_all(names, scenario.network.delay, scenario.network.bandwidth),
        warnings=(*_warnings(scenario), *shortages(disks)),
        variant=variant,
        reference=reference,
    )


def _references(scenario: Scenario, context: PlanContext) -> dict[str, str]:
    """Return each role's image reference. Each image is resolved once, which is slow."""
    named = {role: spec.image or scenario.image for role, spec in scenario.cluster.items()}
    different = {id(image): image for image in named.values()}
    references = {key: context.image(image) for key, image in different.items()}
    return {role: references[id(image)] for role, image in named.items()}


def _assign_gpus(specs: Sequence[tuple[str, Role]], context: PlanContext) -> list[tuple[str, ...]]:
    """Assign GPUs: exclusive ones first; sharing tasks get the remaining devices in turn.

    If too few remain for a sharing task, they share all devices.
    """
    total = sum(spec.gpus.count for _, spec in specs)
    if not total:
        return [() for _ in specs]
    devices = list(context.gpus())
    if not devices:
        raise Unsupported(
            f"{next(n for n, s in specs if s.gpus.count)} asks for a GPU, "
            f"but the {context.engine} engine has none.",
            "Run `emulate doctor` to see why, or leave `gpus:` out and use `image: auto`.",
            lacks={"gpu"},
        )
    free = list(devices)
    assigned: dict[str, tuple[str, ...]] = {}
    sharing = [(name, spec.gpus.count) for name, spec in specs if spec.gpus.shared]
    for name, spec in specs:
        if not spec.gpus.shared:
            assigned[name] = _take(name, spec.gpus.count, free, len(devices))
            del free[: spec.gpus.count]
    most = max((count for _, count in sharing), default=0)
    common = free if len(free) >= most else devices
    turn = 0
    for name, count in sharing:
        _take(name, count, common, len(devices))  # no task gets the same device twice
        assigned[name] = tuple(common[(turn + k) % len(common)] for k in range(count))
        turn += count
    return [assigned[name] for name, _ in specs]


def _take(name: str, count: int, free: Sequence[str], total: int) -> tuple[str, ...]:
    if count > len(free):
        raise Unsupported(
            f"{name} asks for {count} GPU(s), but only {len(free)} of {total} are left.",
            "Ask for fewer, or write `gpus: {count: 1, shared: true}`.",
            lacks={"gpu"},
        )
    return tuple(free[:count])


def _warnings(scenario: Scenario) -> Iterator[str]:
    """Yield warnings about settings that are valid but rarely intended."""
    if scenario.parametrize:
        count = math.prod(len(values) for values in scenario.parametrize.values())
        yield f"parametrize: pytest runs {count} variants; this is the scenario as written"
    throughput = scenario.expect.throughput
    if scenario.reference and not (throughput and throughput.at_least):
        yield "there is a reference, but no expect.throughput.at_least that compares with it"
    roles = scenario.cluster
    if scenario.framework == "tensorflow":
        if sum(spec.replicas for spec in roles.values()) == 1:
            yield "a single task: no TF_CONFIG is set, as with Kubeflow"
        if "ps" in roles and "chief" not in roles:
            yield "parameter servers without a chief: ParameterServerStrategy needs one"
        if "ps" in roles and "worker" not in roles:
            yield "parameter servers without workers: no task would compute gradients"
        if roles.keys() == {EVALUATOR}:
            yield "an evaluator alone has nothing to evaluate"
    restart = scenario.restart
    if restart.policy == "always" and restart.scope == "task" and scenario.success == "auto":
        yield "restart always: tasks that succeed restart until the success rule is met"
    if scenario.restart.policy == "never" and scenario.expect.max_restarts:
        yield "max_restarts is expected, but restart.policy is never"
