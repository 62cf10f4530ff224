"""The plan: every task with its address, environment and command, before anything starts (pure).

`make_plan` turns a scenario into a value that can be printed, compared and stored. Everything that
depends on the engine (addresses, image references, GPU devices, the path of the shared volume) is
passed in as a `PlanContext`.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict

from emulator.errors import Unsupported
from emulator.faults.netem import Link, between_all
from emulator.faults.schedule import PlannedFault, build_schedule
from emulator.faults.spec import FaultSpec, matches
from emulator.files import Disk, shortages
from emulator.metrics.steps import PHASES_ONLY
from emulator.planning import events
from emulator.planning.baseline import ThroughputReference
from emulator.planning.context import PlanContext
from emulator.planning.task_limits import Limits
from emulator.planning.unreachable import unreachable
from emulator.scenario import rendezvous
from emulator.scenario.addresses import DEFAULT_NAMESPACE, Naming, naming
from emulator.scenario.container import (
    Container,
    ContainerBase,
    Entrypoint,
    File,
    Mount,
    Port,
    Ulimit,
)
from emulator.scenario.frameworks.spec import Job, Member, Roles, role_of
from emulator.scenario.frameworks.table import FRAMEWORKS, module_of, roles_of
from emulator.scenario.image import AnyImage
from emulator.scenario.pod import PodContainer
from emulator.scenario.schema import Helper, Role, Scenario
from emulator.scenario.values import Expander, Values, of_variables, variables
from emulator.validation.run_id import check_run_id, is_run_id


def _stored_run_id(text: str) -> str:
    if not is_run_id(text):
        raise ValueError("it can't be a run id")
    return text


RunId = Annotated[str, AfterValidator(_stored_run_id)]
"""A run id in a stored plan; refused if it is not valid."""


class Task(BaseModel):
    """One task of the training job, or a helper: a process in a container, or on loopback.

    Also an init step or a side-car, which is part of a task and runs on the task's host.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    """`<role>-<index>`, of a helper its own name.

    Of an init step or a side-car the task's and its own: `worker-0.proxy`.
    """
    role: str
    index: int
    before: Literal["training"] | None = None
    """It ends before the others start."""
    host: str
    port: int
    aliases: tuple[str, ...] = ()
    """Its names on the network, the shortest first, where the scenario sets them."""
    image: str
    """Its image reference; empty if the engine uses none."""
    command: tuple[str, ...]
    """Empty: the image's own."""
    entrypoint: Entrypoint = "image"
    env: dict[str, str]
    source: Path | None = None
    """File or folder to copy into its working directory."""
    working_dir: str | None = None
    """Where its program starts; None: where `source` is copied, else the image's own."""
    cpus: float | None = None
    memory: int | None = None
    """Limits set by the scenario: cores, bytes."""
    processes: int | None = None
    """Limit of processes and threads, set by the scenario."""
    defaults: Limits = Limits()
    """The engine's limits, for those that the scenario does not set."""
    gpus: tuple[str, ...] = ()
    """Device ids."""
    mounts: dict[str, Mount] = {}
    """By the path in its container."""
    shm_size: int | None = None
    """Bytes of /dev/shm; None: the engine's default."""
    ulimits: dict[str, Ulimit] = {}
    ports: tuple[Port, ...] = ()
    """Published on 127.0.0.1."""
    init: tuple[Task, ...] = ()
    """Run one after the other before it starts on a fresh disk."""
    sidecars: tuple[Task, ...] = ()
    """Run beside it."""

    @property
    def owner(self) -> str:
        """The task whose init step or side-car it is; its own name if it is none."""
        return self.name.partition(".")[0]

    @property
    def part(self) -> str:
        """Its name as an init step or a side-car; empty if it is none."""
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


class Plan(BaseModel):
    """Everything that the engine, the supervisor and the record need for a run."""

    model_config = ConfigDict(frozen=True)

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
            return {**self.scenario.program.files, **role.files}
        return next(one.files for one in (*role.init, *role.sidecars) if one.name == task.part)

    @property
    def before_training(self) -> tuple[Task, ...]:
        """The tasks that end before the others start."""
        return tuple(task for task in self.tasks if task.before is not None)

    @property
    def in_training(self) -> tuple[Task, ...]:
        """The tasks of the job itself: all others."""
        return tuple(task for task in self.tasks if task.before is None)

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
        """The names of all that have a log: tasks, helpers and side-cars.

        What an init step prints is in the log of its task.
        """
        sidecars = (one.name for task in self.tasks for one in task.sidecars)
        return (*(one.name for one in self.everything), *sidecars)


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
    notes: Sequence[str] = (),
) -> Plan:
    """Return the plan of `scenario` for the engine that `context` describes.

    `disks` are the disks that the run writes to; one that is nearly full gives a warning. `notes`
    are warnings about what the scenario was made from. Raises
    Unsupported if there are too few GPUs, UsageError if `run_id` is not valid.
    """
    check_run_id(run_id)
    replicas = [
        (f"{role}-{index}", role, index, spec)
        for role, spec in scenario.cluster.items()
        for index in range(spec.replicas)
    ]
    names = [name for name, *_ in replicas]
    named = naming(scenario)
    members = [_member(role, index, named, context) for _, role, index, _ in replicas]
    before = scenario.before_training
    together = [member for member in members if member.role not in before]
    training = [name for name, role, *_ in replicas if role not in before]
    specs = {**scenario.helpers, **events.helpers(scenario, training)}
    helpers = {name: Member("helper", 0, *context.address(name)) for name in specs}
    values = Values(
        roles_of(scenario),
        members,
        shared=context.shared,
        seed=scenario.seed,
        helpers=helpers,
        before_training=before,
        namespace=named.namespace if named else DEFAULT_NAMESPACE,
    )
    image = _references(context)
    specs_by_name = {name: spec for name, *_, spec in replicas}
    devices = {  # those of tasks before training are free again when the others start
        **_assign_gpus({n: spec for n, spec in specs_by_name.items() if spec.before}, context),
        **_assign_gpus({n: spec for n, spec in specs_by_name.items() if not spec.before}, context),
    }
    beside = sum(len(spec.sidecars) for *_, spec in replicas)
    limits = context.limits(len(replicas) + beside + len(specs))
    expand, tasks, replaced = Expander(), [], dict[str, None]()
    for (name, role, index, spec), member in zip(replicas, members, strict=True):
        job = Job(scenario, spec, run_id)
        ours = rendezvous.environment(member, together, job)
        own = {**values.of(member), **of_variables(ours)}
        variables = {**scenario.program.env, **spec.env}
        given = {variable: expand(text, own) for variable, text in variables.items()}
        env = rendezvous.merged(ours, given, job)
        replaced |= dict.fromkeys(name for name in given if given[name] != env[name])
        command = scenario.program.command if spec.command is None else spec.command
        task = Task(
            name=name,
            role=role,
            index=index,
            before=spec.before,
            host=member.host,
            port=member.port,
            aliases=named.aliases(role, index) if named and context.named else (),
            image=image(spec.image or scenario.image),
            command=tuple(expand(w, own) for w in command),
            env={**_own_variables(run_id, own), **env},
            source=spec.source or scenario.program.source,
            defaults=limits,
            gpus=devices[name],
            **_of_container(_with_job_wide(spec, scenario)),
        )

        def part(
            one: PodContainer, task: Task = task, spec: Role = spec, own: Mapping[str, str] = own
        ) -> Task:
            return _part(one, task, image(one.image or spec.image or scenario.image), expand, own)

        parts = {"init": tuple(map(part, spec.init)), "sidecars": tuple(map(part, spec.sidecars))}
        tasks.append(task.model_copy(update=parts))
    return Plan(
        run_id=run_id,
        engine=context.engine,
        scenario=scenario,
        tasks=tuple(tasks),
        helpers=tuple(
            _helper(
                specs[name],
                name,
                member,
                run_id,
                scenario,
                context,
                values.of_helper(name),
                limits,
            )
            for name, member in helpers.items()
        ),
        faults=build_schedule(scenario.faults, scenario.seed, names),
        links=between_all(names, scenario.network.delay, scenario.network.bandwidth),
        warnings=(
            *notes,
            *_warnings(scenario, names),
            *_of_modules(scenario, context),
            *_of_names(members[0], named, context),
            *(f"{name} of the scenario is replaced: the operator sets it" for name in replaced),
            *shortages(disks),
        ),
        variant=variant,
        reference=reference,
    )


def _member(role: str, index: int, named: Naming | None, context: PlanContext) -> Member:
    """Return a task as the others see it: as the scenario names it, if the engine can."""
    if named is None:
        return Member(role, index, *context.address(f"{role}-{index}"))
    place = named.place(role, index)
    if context.named:
        return Member(role, index, place.host, place.port, place.pod)
    return Member(role, index, *context.address(f"{role}-{index}"), place.pod)


def _helper(
    spec: Helper,
    name: str,
    member: Member,
    run_id: str,
    scenario: Scenario,
    context: PlanContext,
    values: Mapping[str, str],
    limits: Limits,
) -> Task:
    """Return the plan of a helper: it has no rendezvous, and nothing of the job but the image."""
    expand = Expander()
    return Task(
        name=name,
        role=member.role,
        index=member.index,
        host=member.host,
        port=member.port,
        image=context.image(spec.image or scenario.image),
        command=tuple(expand(word, values) for word in spec.command),
        env={
            **_own_variables(run_id, values),
            **{variable: expand(text, values) for variable, text in spec.env.items()},
        },
        source=spec.source,
        defaults=limits,
        **_of_container(spec),
    )


def _part(
    spec: PodContainer, task: Task, image: str, expand: Expander, values: Mapping[str, str]
) -> Task:
    """Return the plan of an init step or a side-car of a task: it is in no rendezvous."""
    return Task(
        name=f"{task.name}.{spec.name}",
        role=task.role,
        index=task.index,
        host=task.host,
        port=task.port,
        image=image,
        command=tuple(expand(word, values) for word in spec.command),
        env={
            **_own_variables(task.env["EMULATOR_RUN"], values),
            **{variable: expand(text, values) for variable, text in spec.env.items()},
        },
        defaults=task.defaults,
        **_of_container(spec),
    )


def _own_variables(run_id: str, values: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that tasks and helpers have, besides the rendezvous."""
    return {
        "PYTHONUNBUFFERED": "1",  # steps are timed when their line arrives
        "EMULATOR_RUN": run_id,
        **variables(values),
    }


def _with_job_wide(role: Role, scenario: Scenario) -> Container:
    """Return the containers of a role, with what the scenario says for all tasks."""
    return role.model_copy(
        update={
            "mounts": {**scenario.mounts, **role.mounts},
            "shm_size": scenario.shm_size if role.shm_size is None else role.shm_size,
            "ulimits": {**scenario.ulimits, **role.ulimits},
            "entrypoint": role.entrypoint or scenario.program.entrypoint,
            "working_dir": role.working_dir or scenario.program.working_dir,
        }
    )


def _of_container(spec: ContainerBase) -> dict[str, Any]:
    """Return the fields of a task that are its container's; its files are in the scenario."""
    names = (Container if isinstance(spec, Container) else ContainerBase).model_fields
    fields = {name: getattr(spec, name) for name in names if name != "files"}
    return {**fields, "entrypoint": spec.entrypoint or "image"}


def _references(context: PlanContext) -> Callable[[AnyImage], str]:
    """Return what resolves images to references: each of them once, which is slow."""
    references: dict[int, tuple[AnyImage, str]] = {}

    def reference(image: AnyImage) -> str:
        if id(image) not in references:
            references[id(image)] = image, context.image(image)
        return references[id(image)][1]

    return reference


def _assign_gpus(specs: Mapping[str, Role], context: PlanContext) -> dict[str, tuple[str, ...]]:
    """Assign GPUs: exclusive ones first; sharing tasks get the remaining devices in turn.

    If too few remain for a sharing task, they share all devices.
    """
    total = sum(spec.gpus.count for spec in specs.values())
    if not total:
        return dict.fromkeys(specs, ())
    devices = list(context.gpus())
    if not devices:
        first = next(name for name, spec in specs.items() if spec.gpus.count)
        raise Unsupported(
            f"{first} asks for a GPU, but the {context.engine} engine has none.",
            "Run `emulate doctor` to see why, or leave `gpus:` out and use `image: auto`; of a "
            f"manifest, leave them out by --set cluster.{first.rpartition('-')[0]}.gpus=0.",
            lacks={"gpu"},
        )
    free = list(devices)
    assigned: dict[str, tuple[str, ...]] = {}
    sharing = [(name, spec.gpus.count) for name, spec in specs.items() if spec.gpus.shared]
    for name, spec in specs.items():
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
    return assigned


def _take(name: str, count: int, free: Sequence[str], total: int) -> tuple[str, ...]:
    if count > len(free):
        raise Unsupported(
            f"{name} asks for {count} GPU(s), but only {len(free)} of {total} are left.",
            "Ask for fewer, or write `gpus: {count: 1, shared: true}`.",
            lacks={"gpu"},
        )
    return tuple(free[:count])


def _of_tasks_before(scenario: Scenario, tasks: Sequence[str]) -> Iterator[str]:
    """Yield faults after which training never begins."""
    before = [task for task in tasks if role_of(task) in scenario.before_training]
    for fault in scenario.faults:
        if isinstance(fault, FaultSpec) and fault.restarts_target and before:
            for_ever = fault.heals_after == math.inf
            for task in matches(fault.target, before) if for_ever else ():
                yield f"{task} does not come back after its {fault.kind}: training never begins"


def _of_names(first: Member, named: Naming | None, context: PlanContext) -> Iterator[str]:
    """Yield that the tasks do not have the names that the scenario gives them."""
    if named is not None and not context.named:
        place = named.place(first.role, first.index)
        yield (
            f"addresses are approximated: the {context.engine} engine names tasks itself, so "
            f"{first.role}-{first.index} is {first.address} instead of {place.host}:{place.port}"
        )


def _of_modules(scenario: Scenario, context: PlanContext) -> Iterator[str]:
    if (module := module_of(scenario)) and not context.has_module(module):
        yield (
            f"{module} is not installed beside emulate, with whose Python tasks of the "
            f"{context.engine} engine run: install it there, or use --engine docker"
        )


def _warnings(scenario: Scenario, tasks: Sequence[str]) -> Iterator[str]:
    """Yield warnings about settings that are valid but rarely intended."""
    yield from _of_tasks_before(scenario, tasks)
    if scenario.parametrize:
        count = math.prod(len(values) for values in scenario.parametrize.values())
        yield f"parametrize: pytest runs {count} variants; this is the scenario as written"
    throughput = scenario.expect.throughput
    if scenario.reference and not (throughput and throughput.at_least):
        yield "there is a reference, but no expect.throughput.at_least that compares with it"
    yield from FRAMEWORKS[scenario.framework].warnings(scenario)
    if scenario.operator is not None:
        from emulator.scenario import operator_lint

        yield from operator_lint.lint(scenario)
    restart = scenario.restart
    if restart.policy == "always" and restart.scope == "task" and scenario.success == "auto":
        yield "restart always: tasks that succeed restart until the success rule is met"
    if scenario.expect.max_restarts and not _restarts(scenario):
        yield "max_restarts is expected, but restart.policy is never"
    yield from unreachable(scenario, tasks)


def _restarts(scenario: Scenario) -> bool:
    """Return whether a task is ever restarted by its policy."""
    operator = scenario.operator
    if operator is None:
        return scenario.restart.policy != "never"
    return any(operator.policy_of(role) != "never" for role in scenario.cluster)
