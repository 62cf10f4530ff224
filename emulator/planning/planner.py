"""Makes the plan of a scenario (pure).

Everything that depends on the engine (addresses, image references, GPU devices, the path of the
shared volume) is passed in as a `PlanContext`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from emulator.errors import WITHOUT_GPUS, Unsupported
from emulator.faults.kinds import RandomFaults
from emulator.faults.netem import between_all
from emulator.faults.platforms import slurm
from emulator.faults.schedule import build_schedule
from emulator.faults.spec import Entry, FaultSpec, matches
from emulator.metrics import event_files
from emulator.planning.context import PlanContext
from emulator.planning.plan import Plan, Task, ThroughputReference
from emulator.scenario import rendezvous
from emulator.scenario.addresses import DEFAULT_NAMESPACE, naming
from emulator.scenario.container import Container, ContainerBase, PodContainer
from emulator.scenario.frameworks.registry import FRAMEWORKS, module_of, roles_of
from emulator.scenario.frameworks.spec import Job, Member, role_of
from emulator.scenario.program import pattern_of
from emulator.scenario.schema import EVENTS, AnyImage, Helper, Role, Scenario
from emulator.scenario.values import Expander, Values, values_of_variables, variables
from emulator.validation.run_id import check_run_id
from emulator.validation.units import format_duration, format_size

_STEPS = re.compile(r"--?(?:(?:max|num|total|train|training|num[-_]train)[-_])?steps(?:=(\d+))?")
"""Options that commonly are the number of steps of a whole training: `--steps`, `--max_steps`."""
_EPOCHS = re.compile(r"--?\w*epochs?(?:=.*)?")
"""With one of these the number of steps may be that of an epoch."""


def make_plan(
    scenario: Scenario,
    run_id: str,
    context: PlanContext,
    *,
    variant: str = "",
    reference: ThroughputReference | None = None,
    notes: Sequence[str] = (),
    calls_of: str = "",
    disposable: bool = False,
    reads_results: bool = False,
) -> Plan:
    """Return the plan of `scenario` for the engine that `context` describes.

    `notes` are warnings about what the scenario was made from, and about this machine. `calls_of`
    is the glob of the files whose calls are recorded; `disposable`: held tasks may end with the
    emulator; `reads_results`: what the tasks have left is read at the end. Raises Unsupported if
    there are too few GPUs, UsageError if `run_id` is not valid.
    """
    check_run_id(run_id)
    planner = _Planner(scenario, run_id, context)
    tasks = tuple(planner.tasks())
    names = [task.name for task in tasks]
    faults = build_schedule(scenario.faults, scenario.seed, names)
    filtered = disposable and all(fault.spec.rule is None for fault in faults)
    watched = {fault.watched for fault in faults}
    tasks = tuple(_held(tasks, watched, listed=bool(calls_of), filtered=filtered))
    return Plan(
        run_id=run_id,
        engine=context.engine,
        scenario=scenario,
        tasks=tasks,
        helpers=tuple(planner.helpers()),
        faults=faults,
        links=between_all(names, scenario.network.delay, scenario.network.bandwidth),
        warnings=(*notes, *_warnings(scenario, names), *planner.warnings()),
        variant=variant,
        reference=reference,
        calls_of=calls_of,
        reads_results=reads_results,
        metadata=tuple(sorted(scenario.platforms)),
        python=context.python,
    )


def _held(
    tasks: Sequence[Task], watched: Collection[str], *, listed: bool, filtered: bool
) -> Iterator[Task]:
    """Yield the tasks, held at their beginning where calls of one of them count.

    Of those of the training, or before it, all: the others would run ahead of that one.
    `listed`: the calls of all of the training are recorded; `filtered`: a filter tells which count.
    """
    counted = {task.before for task in tasks if task.name in watched} | (
        {None} if listed else set()
    )
    held = {"held": True, "filtered": filtered}
    for task in tasks:
        yield task.model_copy(update=held) if task.before in counted else task


class _Planner:
    """The tasks of a run and its helpers, and what they are made from."""

    def __init__(self, scenario: Scenario, run_id: str, context: PlanContext) -> None:
        self._scenario, self._run_id, self._context = scenario, run_id, context
        self._naming = naming(scenario)
        self._members = {
            f"{role}-{index}": self._member(role, index)
            for role, spec in scenario.cluster.items()
            for index in range(spec.replicas)
        }
        before = scenario.before_training
        self._together = [one for one in self._members.values() if one.role not in before]
        training = [name for name, one in self._members.items() if one.role not in before]
        self._specs = {**scenario.helpers, **event_reader(scenario, training)}
        self._helpers = {name: Member("helper", 0, *context.address(name)) for name in self._specs}
        self._values = Values(
            roles_of(scenario),
            [*self._members.values()],
            shared=context.shared,
            seed=scenario.seed,
            helpers=self._helpers,
            before_training=before,
            namespace=self._naming.namespace if self._naming else DEFAULT_NAMESPACE,
        )
        self._limits = context.limits(len(self._members) + len(self._specs))
        self._slurm = self._slurm_environments() if scenario.slurm else {}
        self._expand = Expander()
        self._references: dict[int, tuple[AnyImage, str]] = {}
        self._replaced: dict[str, None] = {}
        """Variables of the scenario that the operator sets itself, once there are `tasks`."""

    def tasks(self) -> Iterator[Task]:
        """Yield the tasks with their init steps."""
        scenario = self._scenario
        roles = {role: scenario.in_full(spec) for role, spec in scenario.cluster.items()}
        specs = {name: roles[member.role] for name, member in self._members.items()}
        devices: dict[str, tuple[str, ...]] = {}
        for before in (True, False):  # before training they are free again when the others start
            some = {name: one for name, one in specs.items() if bool(one.before) is before}
            devices |= _assign_gpus(some, self._context)
        for name, member in self._members.items():
            yield self._task(name, member, specs[name], devices[name])

    def helpers(self) -> Iterator[Task]:
        """Yield the helpers: they have no rendezvous, and nothing of the job but the image."""
        for name, member in self._helpers.items():
            spec, values = self._specs[name], self._values.helper_values(name)
            yield Task(
                name=name,
                role=member.role,
                index=member.index,
                host=member.host,
                port=member.port,
                image=self._image(spec.image),
                command=self._command(spec.command, values),
                env=self._env(spec.env, values),
                source=spec.source,
                exclude=self._excluded(spec.source),
                defaults=self._limits,
                **_container_fields(spec),
            )

    def _excluded(self, source: Path | None) -> tuple[str, ...]:
        """Return what of a program is not copied; run folders change while it is."""
        out = self._context.out
        runs = [] if source is None or out is None else pattern_of(out, source)
        return (*self._scenario.program.exclude, *runs)

    def warnings(self) -> Iterator[str]:
        """Yield what the engine, and the operator of a manifest, do unlike the scenario."""
        scenario, context = self._scenario, self._context
        module = module_of(scenario)
        if module and not context.has_module(context.python, module):
            yield (
                f"{context.python}, in which tasks of the {context.engine} engine run, has no "
                f"{module}: activate the environment that has it, name its Python with --python, "
                "or use --engine docker"
            )
        if self._naming is not None and not context.named:
            first = next(iter(self._members.values()))
            place = self._naming.place(first.role, first.index)
            yield (
                f"addresses are approximated: the {context.engine} engine names tasks itself, so "
                f"{first.role}-{first.index} is {first.address} instead of "
                f"{place.host}:{place.port}"
            )
        for name in self._replaced:
            yield f"{name} of the scenario is replaced: the operator sets it"
        if scenario.shared_size is None and (size := scenario.shared_limit) is not None:
            yield (
                f"`disk: full` needs a shared volume with a size: it has {format_size(size)}, in "
                "memory, from the start; `shared_size` sets another"
            )

    def _member(self, role: str, index: int) -> Member:
        """Return a task as the others see it: as the scenario names it, if the engine can."""
        if self._naming is None:
            return Member(role, index, *self._context.address(f"{role}-{index}"))
        place = self._naming.place(role, index)
        if self._context.named:
            return Member(role, index, place.host, place.port, place.pod)
        return Member(role, index, *self._context.address(f"{role}-{index}"), place.pod)

    def _slurm_environments(self) -> Mapping[str, Mapping[str, str]]:
        """Return the variables of the Slurm job that the training is; those with a rank first."""
        by_name = {f"{one.role}-{one.index}": one for one in self._together}
        ranks = {name: self._values.own_values(one).get("rank") for name, one in by_name.items()}
        order = sorted(by_name, key=lambda name: float(ranks[name] or math.inf))
        hosts = {name: by_name[name].host for name in order}
        return slurm.environments(self._run_id, self._scenario.job_name, hosts)

    def _task(self, name: str, member: Member, spec: Role, gpus: tuple[str, ...]) -> Task:
        job = Job(self._scenario, spec, self._run_id)
        ours = rendezvous.environment(member, self._together, job)
        values = {**self._values.values_of(member), **values_of_variables(ours)}
        given = {variable: self._expand(text, values) for variable, text in spec.env.items()}
        env = rendezvous.merged(ours, given, job)
        self._replaced |= dict.fromkeys(name for name in given if given[name] != env[name])
        named = self._naming if self._context.named else None
        command = self._command(spec.command or (), values)
        task = Task(
            name=name,
            role=member.role,
            index=member.index,
            before=spec.before,
            host=member.host,
            port=member.port,
            aliases=named.aliases(member.role, member.index) if named else (),
            image=self._image(spec.image),
            command=slurm.begun(command) if name in self._slurm else command,
            env={
                **_own_variables(self._run_id, values),
                **self._slurm.get(name, {}),
                **env,
            },
            source=spec.source,
            exclude=self._excluded(spec.source),
            shared_link=self._scenario.program.shared or "",
            defaults=self._limits,
            gpus=gpus,
            **_container_fields(spec),
        )
        init = tuple(self._part(one, task, spec, values) for one in spec.init)
        return task.model_copy(update={"init": init})

    def _part(self, one: PodContainer, task: Task, spec: Role, values: Mapping[str, str]) -> Task:
        """Return the plan of an init step of a task: it is in no rendezvous."""
        return Task(
            name=f"{task.name}.{one.name}",
            role=task.role,
            index=task.index,
            host=task.host,
            port=task.port,
            image=self._image(one.image or spec.image),
            command=self._command(one.command, values),
            env=self._env(one.env, values),
            defaults=self._limits,
            **_container_fields(one),
        )

    def _command(self, words: Sequence[str], values: Mapping[str, str]) -> tuple[str, ...]:
        return tuple(self._expand(word, values) for word in words)

    def _env(self, given: Mapping[str, str], values: Mapping[str, str]) -> dict[str, str]:
        own = _own_variables(self._run_id, values)
        return {**own, **{name: self._expand(text, values) for name, text in given.items()}}

    def _image(self, given: AnyImage | None) -> str:
        """Return the reference of an image, or of the job's; each is resolved once: it is slow."""
        image = given or self._scenario.image
        if id(image) not in self._references:
            reference = self._context.image(self._scenario.chosen(image))
            self._references[id(image)] = image, reference
        return self._references[id(image)][1]


def _own_variables(run_id: str, values: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that tasks and helpers have, besides the rendezvous."""
    return {
        "PYTHONUNBUFFERED": "1",  # steps are timed when their line arrives
        "EMULATOR_RUN": run_id,
        **variables(values),
    }


def _container_fields(spec: ContainerBase) -> dict[str, Any]:
    """Return the fields of a task that are its container's; its files are in the scenario."""
    names = (Container if isinstance(spec, Container) else ContainerBase).model_fields
    fields = {name: getattr(spec, name) for name in names if name != "files"}
    return {**fields, "entrypoint": spec.entrypoint or "image"}


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
        why = f"{first} asks for a GPU, but the {context.engine} engine has none"
        raise _no_gpus(first, why, WITHOUT_GPUS)
    free = list(devices)
    assigned: dict[str, tuple[str, ...]] = {}
    sharing = [(name, spec.gpus.count) for name, spec in specs.items() if spec.gpus.shared]
    for name, spec in specs.items():
        if not spec.gpus.shared:
            assigned[name] = _next_gpus(name, spec.gpus.count, free, len(devices))
            del free[: spec.gpus.count]
    most = max((count for _, count in sharing), default=0)
    common = free if len(free) >= most else devices
    turn = 0
    for name, count in sharing:
        _next_gpus(name, count, common, len(devices))  # no task gets the same device twice
        assigned[name] = tuple(common[(turn + k) % len(common)] for k in range(count))
        turn += count
    return assigned


def _next_gpus(name: str, count: int, free: Sequence[str], total: int) -> tuple[str, ...]:
    if count > len(free):
        why = f"{name} asks for {count} GPU(s), but only {len(free)} of {total} are left"
        raise _no_gpus(name, why, "Ask for fewer, or write `gpus: {count: 1, shared: true}`.")
    return tuple(free[:count])


def _no_gpus(task: str, why: str, hint: str) -> Unsupported:
    """Return the refusal of a task's GPUs, with the key that asks for them."""
    key = ("cluster", role_of(task), "gpus")
    return Unsupported(f"{why}.", hint, lacks={"gpu"}, keys=[(key, why)])


def _faults_that_prevent_training(scenario: Scenario, tasks: Sequence[str]) -> Iterator[str]:
    """Yield faults after which training never begins."""
    before = [task for task in tasks if role_of(task) in scenario.before_training]
    for fault in scenario.faults:
        if isinstance(fault, FaultSpec) and fault.restarts_target and before:
            for_ever = fault.heals_after == math.inf
            for task in matches(fault.target, before) if for_ever else ():
                yield f"{task} does not come back after its {fault.kind}: training never begins"


def _longer_than_the_timeout(scenario: Scenario) -> Iterator[str]:
    """Yield preemptions that are not over, as their platform does them, within the timeout."""
    for number, fault in enumerate(scenario.faults):
        spec = fault.random if isinstance(fault, RandomFaults) else fault
        times = [when for when, _ in spec.timeline()] if isinstance(spec, FaultSpec) else []
        begin = (fault.at.time if fault.at else None) or 0.0
        if times and scenario.timeout is not None and begin + times[-1] > scenario.timeout:
            takes, end = format_duration(times[-1]), format_duration(scenario.timeout)
            yield (
                f"{_called(number, fault)} takes {takes} until its target is back, and the "
                f"timeout is {end}: write shorter times, or `speed: 10`"
            )


def _warnings(scenario: Scenario, tasks: Sequence[str]) -> Iterator[str]:
    """Yield warnings about settings that are valid but rarely intended."""
    yield from _faults_that_prevent_training(scenario, tasks)
    yield from _longer_than_the_timeout(scenario)
    if scenario.parametrize:
        count = math.prod(len(values) for values in scenario.parametrize.values())
        yield f"parametrize: pytest runs {count} variants; this is the scenario as written"
    ours = {"none", "cpu", "gpu", *(one.image for one in FRAMEWORKS.values())}
    if scenario.slurm and any(getattr(one, "name", one) not in ours for one in scenario.images):
        yield (
            "slurm: `sh` of the image puts `scontrol` on the PATH of its tasks. In an image "
            "without a shell they can't start so: leave `slurm` out, and write SLURM_... in `env`"
        )
    throughput = scenario.expect.throughput
    if scenario.reference and not (throughput and throughput.at_least):
        yield "there is a reference, but no expect.throughput.at_least that compares with it"
    yield from FRAMEWORKS[scenario.framework].warnings(scenario)
    restart = scenario.restart
    if restart.policy == "always" and restart.scope == "task" and scenario.success == "auto":
        yield "restart always: tasks that succeed restart until the success rule is met"
    never = all(scenario.policy_of(role) == "never" for role in scenario.cluster)
    if scenario.expect.max_restarts and never:
        yield "max_restarts is expected, but restart.policy is never"
    yield from unreachable(scenario, tasks)


def event_reader(scenario: Scenario, tasks: Sequence[str]) -> Mapping[str, Helper]:
    """Return the helper that reads event files by its name, where `metrics: {events: ...}` is.

    It runs where the shared volume is, which may be on another machine, and in the image of the
    leading task, because that is there. It is told the names of the tasks, and which of them leads.
    """
    folder = scenario.metrics.events
    if folder is None:
        return {}
    leader = _leader(scenario, tasks)
    source = Path(event_files.__file__)
    command = ["python3", source.name, folder, leader, *tasks]
    image = _image_of_leader(scenario, tasks)
    return {EVENTS: Helper(command=command, source=source, image=image)}


def _leader(scenario: Scenario, tasks: Sequence[str]) -> str:
    return roles_of(scenario).leader(tasks) or tasks[0]


def _image_of_leader(scenario: Scenario, tasks: Sequence[str]) -> AnyImage | None:
    return scenario.cluster[role_of(_leader(scenario, tasks))].image


# --- Triggers of faults that won't fire, as far as a scenario shows it ---------------------------


def unreachable(scenario: Scenario, tasks: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each fault whose trigger won't fire, also because of another fault."""
    faults = scenario.faults
    why = {number: _reason(scenario, fault, tasks) for number, fault in enumerate(faults)}
    numbers = {str(number): number for number in range(len(faults))}
    numbers |= {fault.name: number for number, fault in enumerate(faults) if fault.name}
    for number, fault in enumerate(faults):
        first, seen = number, set[int]()
        while first not in seen and (reference := _awaited(faults[first])) in numbers:
            seen.add(first)
            first = numbers[reference]
        if first != number and why[first]:
            yield f"{_called(number, fault)} won't happen: {_called(first, faults[first])} won't"
        elif why[number]:
            yield f"{_called(number, fault)} {why[number]}"


def _called(number: int, fault: Entry) -> str:
    return f"fault {number} ({fault.name or fault.kind})"


def _awaited(fault: Entry) -> str:
    """Return the name or number of the fault that this one waits for; empty if there is none."""
    return (fault.at and (fault.at.after or fault.at.recovery)) or ""


def _reason(scenario: Scenario, fault: Entry, tasks: Sequence[str]) -> str:
    """Return why the trigger won't fire by itself; empty if it may."""
    at, timeout = fault.at, scenario.timeout
    if at is None:
        return ""
    if at.time is not None and timeout is not None and at.time >= timeout:
        due, end = format_duration(at.time), format_duration(timeout)
        return f"won't happen: it is due after {due}, and the timeout is {end}"
    if at.step is None:
        return ""
    if scenario.expect.steps == "none":
        return f"won't happen: it waits for step {at.step}, and `expect.steps` is none"
    watched = matches(at.task, tasks) if at.task else _those_who_train(scenario, tasks)
    last = _last_step(scenario, watched)
    final = scenario.expect.final_step
    if last is not None:
        beyond = f"the program ends at step {last}, by its command"
        return f"won't happen: it waits for step {at.step}, and {beyond}" * (at.step > last)
    if final is not None and at.step > final:
        return f"may not happen: it waits for step {at.step}, and expect.final_step is {final}"
    return ""


def _those_who_train(scenario: Scenario, tasks: Sequence[str]) -> Sequence[str]:
    """Return the tasks without evaluators, whose steps trigger no fault unless it names them."""
    roles = roles_of(scenario).evaluators
    return [task for task in tasks if role_of(task) not in roles] or tasks


def _last_step(scenario: Scenario, tasks: Sequence[str]) -> int | None:
    """Return the last step of these tasks, by their commands; None if one does not say it."""
    roles = {role_of(task) for task in tasks} & scenario.in_training.keys()
    commands = (scenario.cluster[role].command for role in roles)
    known = [
        steps_of(scenario.program.command if command is None else command) for command in commands
    ]
    found = [steps for steps in known if steps is not None]
    return max(found) if found and len(found) == len(known) else None


def steps_of(command: Sequence[str]) -> int | None:
    """Return the number of steps that a command gives its program; None if it is not clear."""
    words = [word for text in command for word in text.split()]
    found: list[str] = []
    for number, word in enumerate(words):
        if _EPOCHS.fullmatch(word):
            return None
        if option := _STEPS.fullmatch(word):
            values = [option[1]] if option[1] else words[number + 1 : number + 3]
            if len(values) == 2 and values[1].isdecimal():
                return None  # a number for each of several parts
            found += values[:1]
    one = found[0] if len(found) == 1 else ""
    return int(one) if one.isdecimal() else None
