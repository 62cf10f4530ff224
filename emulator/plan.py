"""The plan: every task with its address, environment and command, before anything starts (pure).

`make_plan` turns a scenario into a value that can be printed, compared and stored. What depends on
the engine (addresses, image references, GPU devices, where the shared volume shows) comes in as a
`Site`, so that the plan itself decides nothing by looking around.
"""

from __future__ import annotations

import math
import re
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict

from emulator import rendezvous
from emulator.errors import Unsupported, UsageError
from emulator.faults.netem import Link, between_all
from emulator.faults.schedule import PlannedFault, build_schedule
from emulator.room import Disk, shortages
from emulator.scenario.model import Dockerfile, Role, Scenario
from emulator.task_limits import Limits
from emulator.yardstick import Yardstick

__all__ = ["Plan", "RunId", "Site", "Task", "check_run_id", "is_run_id", "make_plan", "new_run_id"]

TASK_PORT = 2222
"""The port every task listens on where each has an address of its own (Kubeflow's default)."""

_RUN_ID = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


def is_run_id(text: str) -> bool:
    """Say whether a text can be a run's id (pure).

    It names a folder, containers, a network and a volume, and is a part of host names: so it has
    the letters of a scenario's name, and at most 63 of them.
    """
    return _RUN_ID.fullmatch(text) is not None


def check_run_id(text: str) -> str:
    """Return `text` if it can be a run's id; raises UsageError."""
    if is_run_id(text):
        return text
    shown = repr(text if len(text) <= 80 else f"{text[:80]}...")
    raise UsageError(
        f"{shown} can't be a run id.",
        "It has 1 to 63 lower-case letters, digits and dashes, begins with a letter and does not "
        "end with a dash.",
    )


def _stored_run_id(text: str) -> str:
    if not is_run_id(text):
        raise ValueError("it can't be a run id")
    return text


RunId = Annotated[str, AfterValidator(_stored_run_id)]
"""A run id that is read from a file."""


class Task(BaseModel):
    """One task: a process in a container (or on loopback) that takes part in the training."""

    model_config = ConfigDict(frozen=True)

    name: str
    """`<role>-<index>`, also its host name."""
    role: str
    index: int
    host: str
    port: int
    image: str
    """The reference of its image; empty where the engine has none."""
    command: tuple[str, ...]
    env: dict[str, str]
    source: Path | None = None
    """File or folder that is copied into its working directory."""
    cpus: float | None = None
    memory: int | None = None
    """Limits that the scenario sets: cores, bytes."""
    processes: int | None = None
    """The same of processes and threads."""
    defaults: Limits = Limits()
    """Limits of the engine where the scenario sets none."""
    gpus: tuple[str, ...] = ()
    """Device ids."""

    @property
    def memory_limit(self) -> int | None:
        """The limit of its memory, in bytes."""
        return self.defaults.memory if self.memory is None else self.memory

    @property
    def process_limit(self) -> int | None:
        """The limit of its processes and threads."""
        return self.defaults.processes if self.processes is None else self.processes


class Plan(BaseModel):
    """A run that has not begun: all that the engine, the supervisor and the record need."""

    model_config = ConfigDict(frozen=True)

    run_id: RunId
    engine: str
    scenario: Scenario
    tasks: tuple[Task, ...]
    faults: tuple[PlannedFault, ...] = ()
    """What will be done to them; random faults have their times and victims already."""
    links: tuple[Link, ...] = ()
    """What packets between tasks meet all the time."""
    warnings: tuple[str, ...] = ()
    variant: str = ""
    """Which variant of the scenario it is, as `--vary` set it."""
    yardstick: Yardstick | None = None
    """What `expect.throughput.at_least` holds it against."""

    def task(self, name: str) -> Task:
        """Return the task of that name; raises KeyError."""
        for task in self.tasks:
            if task.name == name:
                return task
        raise KeyError(name)


@dataclass(frozen=True)
class Site:
    """What the plan has to know about the engine it is made for."""

    engine: str
    address: Callable[[str], tuple[str, int]]
    """Task name -> host, port."""
    image: Callable[[str | Dockerfile], str]
    """What the scenario says -> the reference that the engine knows."""
    gpus: Callable[[], Sequence[str]]
    """Ids of the devices it can hand out; asked only where a task wants some."""
    shared: str
    """Where the shared volume shows inside a task."""
    limits: Callable[[], Limits] = Limits
    """Limits of each task where the scenario sets none."""


def new_run_id(name: str) -> str:
    """Return `<name>-<time><chance>`: sorts by age, unique on a machine, fit for a host name."""
    stamp = time.strftime("%m%d%H%M%S", time.gmtime())
    return f"{name}-{stamp}-{secrets.token_hex(3)}"


def make_plan(
    scenario: Scenario,
    run_id: str,
    site: Site,
    *,
    variant: str = "",
    yardstick: Yardstick | None = None,
    disks: Sequence[Disk] = (),
) -> Plan:
    """Lay out every task of `scenario` for the engine that `site` describes.

    `disks` are those that it writes to; one that is nearly full makes a warning. Raises
    Unsupported where more GPUs are asked for than there are, UsageError where `run_id` is none.
    """
    check_run_id(run_id)
    wanted = [
        (role, index, spec)
        for role, spec in scenario.cluster.items()
        for index in range(spec.replicas)
    ]
    members = [
        rendezvous.Member(role, index, *site.address(f"{role}-{index}"))
        for role, index, _ in wanted
    ]
    images = _references(scenario, site)
    devices = _hand_out_gpus([(f"{r}-{i}", spec) for r, i, spec in wanted], site)
    limits = site.limits()
    tasks = tuple(
        _task(scenario, spec, member, members, run_id, site, images[role], limits, gpus)
        for (role, _, spec), member, gpus in zip(wanted, members, devices, strict=True)
    )
    names = [task.name for task in tasks]
    return Plan(
        run_id=run_id,
        engine=site.engine,
        scenario=scenario,
        tasks=tasks,
        faults=build_schedule(scenario.faults, scenario.seed, names),
        links=between_all(names, scenario.network.delay, scenario.network.bandwidth),
        warnings=(*_warnings(scenario), *shortages(disks)),
        variant=variant,
        yardstick=yardstick,
    )


def _references(scenario: Scenario, site: Site) -> dict[str, str]:
    """Return each role's image. Each is asked for once: a tag of content takes a while."""
    named = {role: spec.image or scenario.image for role, spec in scenario.cluster.items()}
    different = {id(image): image for image in named.values()}
    references = {key: site.image(image) for key, image in different.items()}
    return {role: references[id(image)] for role, image in named.items()}


def _task(
    scenario: Scenario,
    spec: Role,
    member: rendezvous.Member,
    members: Sequence[rendezvous.Member],
    run_id: str,
    site: Site,
    image: str,
    limits: Limits,
    gpus: tuple[str, ...],
) -> Task:
    name = f"{member.role}-{member.index}"
    given = {
        "PYTHONUNBUFFERED": "1",  # a step that sits in a buffer did not happen yet, for us
        "EMULATOR_RUN": run_id,
        "EMULATOR_TASK": name,
        "EMULATOR_SHARED": site.shared,
        "EMULATOR_SEED": str(scenario.seed),
    }
    found_by = rendezvous.environment(scenario.framework, member, members)
    return Task(
        name=name,
        role=member.role,
        index=member.index,
        host=member.host,
        port=member.port,
        image=image,
        command=tuple(spec.command or scenario.program.command),
        env={**given, **found_by, **scenario.program.env, **spec.env},
        source=scenario.program.source,
        cpus=spec.cpus,
        memory=spec.memory,
        processes=spec.processes,
        defaults=limits,
        gpus=gpus,
    )


def _hand_out_gpus(wanted: Sequence[tuple[str, Role]], site: Site) -> list[tuple[str, ...]]:
    """Give each task devices of its own; those that may share take turns over what is left.

    Where that is too little for them, they take turns over all devices.
    """
    total = sum(spec.gpus.count for _, spec in wanted)
    if not total:
        return [() for _ in wanted]
    devices = list(site.gpus())
    if not devices:
        raise Unsupported(
            f"{next(n for n, s in wanted if s.gpus.count)} asks for a GPU, "
            f"but the {site.engine} engine has none to hand out.",
            "Run `emulate doctor` to see why, or leave `gpus:` out and use `image: auto`.",
            lacks={"gpu"},
        )
    free = list(devices)
    handed: dict[str, tuple[str, ...]] = {}
    sharing = [(name, spec.gpus.count) for name, spec in wanted if spec.gpus.shared]
    for name, spec in wanted:
        if not spec.gpus.shared:
            handed[name] = _take(name, spec.gpus.count, free, len(devices))
            del free[: spec.gpus.count]
    most = max((count for _, count in sharing), default=0)
    common = free if len(free) >= most else devices
    turn = 0
    for name, count in sharing:
        _take(name, count, common, len(devices))  # none gets the same device twice
        handed[name] = tuple(common[(turn + k) % len(common)] for k in range(count))
        turn += count
    return [handed[name] for name, _ in wanted]


def _take(name: str, count: int, free: Sequence[str], total: int) -> tuple[str, ...]:
    if count > len(free):
        raise Unsupported(
            f"{name} asks for {count} GPU(s), but of {total} that there are only "
            f"{len(free)} are left for it.",
            "Ask for fewer, or write `gpus: {count: 1, shared: true}`.",
            lacks={"gpu"},
        )
    return tuple(free[:count])


def _warnings(scenario: Scenario) -> Iterator[str]:
    """Yield what is legal but rarely meant."""
    if scenario.parametrize:
        count = math.prod(len(values) for values in scenario.parametrize.values())
        yield f"parametrize: pytest runs {count} variants; this is the scenario as it stands"
    throughput = scenario.expect.throughput
    if scenario.reference and not (throughput and throughput.at_least):
        yield "there is a reference, but no expect.throughput.at_least that compares with it"
    roles = scenario.cluster
    if scenario.framework == "tensorflow":
        if sum(spec.replicas for spec in roles.values()) == 1:
            yield "one task in all: no TF_CONFIG is set, as with Kubeflow"
        if "ps" in roles and "chief" not in roles:
            yield "parameter servers without a chief: ParameterServerStrategy needs one"
        if "ps" in roles and "worker" not in roles:
            yield "parameter servers without workers: nobody would compute gradients"
        if roles.keys() == {"evaluator"}:
            yield "an evaluator alone has nothing to evaluate"
    restart = scenario.restart
    if restart.policy == "always" and restart.scope == "task" and scenario.success == "auto":
        yield "restart always: tasks that end well start again until the success rule is met"
    if scenario.restart.policy == "never" and scenario.expect.max_restarts:
        yield "max_restarts is expected, but restart.policy is never"
