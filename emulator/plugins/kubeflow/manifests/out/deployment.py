"""A scenario as tasks at addresses of their own, for any format to write (pure).

Commands and variables are those that `emulate plan` shows, with the addresses that the tasks have
there. A variable of the emulator (`EMULATOR_INDEX`) is part of it only where the program names it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from emulator.errors import UsageError
from emulator.scenario import rendezvous
from emulator.scenario.addresses import DEFAULT_NAMESPACE, naming
from emulator.scenario.container import PodContainer, Port
from emulator.scenario.frameworks.registry import roles_of
from emulator.scenario.frameworks.spec import FrameworkName, Job, Member, Roles
from emulator.scenario.image import AnyImage, Dockerfile, NamedImage
from emulator.scenario.program import SHARED, WORKDIR, Part, parts
from emulator.scenario.schema import AnyContainer, Helper, Role, Scenario
from emulator.scenario.values import Expander, Values, values_of_variables, variables

OWN = re.compile(r"EMULATOR_[A-Z]+")
"""The emulator's own variables, as a program names them."""
READ_BYTES = 2**20
"""A file of a program that is searched for them, at most."""
IMAGES: Mapping[str, str] = {
    name: f"emulator-{name}:latest"
    for name in ("cpu", "gpu", "pytorch", "jax", "python", "network")
}
"""The images of the emulator, which are on this machine only."""
DEFAULT_MODE = "0644"
"""The mode of a file that has none, here and in a ConfigMap."""


@dataclass(frozen=True)
class Group:
    """The tasks of a role, or a helper, which is a single one; or a container beside a task's."""

    name: str
    spec: AnyContainer
    """With what the scenario says for all tasks."""
    image: str
    commands: tuple[tuple[str, ...], ...]
    """By task; empty: the image's own."""
    env: tuple[Mapping[str, str], ...]
    """The variables, by task, with those of the emulator that the program names."""
    meeting: frozenset[str] = frozenset()
    """The variables by which tasks find each other."""
    port: int = 0
    init: tuple[Group, ...] = ()
    """The steps before a task's program."""

    @property
    def replicas(self) -> int:
        """The number of its tasks."""
        return len(self.commands)

    @property
    def is_helper(self) -> bool:
        """Whether it is a program next to the job."""
        return isinstance(self.spec, Helper)

    @property
    def is_before(self) -> bool:
        """Whether its tasks end before the others start."""
        return isinstance(self.spec, Role) and self.spec.before is not None

    @property
    def gpus(self) -> int:
        """The GPUs of each task."""
        return self.spec.gpus.count if isinstance(self.spec, Role) else 0

    @property
    def ports(self) -> Sequence[Port]:
        """The ports that are published."""
        return () if isinstance(self.spec, PodContainer) else self.spec.ports

    @property
    def source(self) -> Path | None:
        """The program."""
        return None if isinstance(self.spec, PodContainer) else self.spec.source

    @property
    def working_dir(self) -> str | None:
        """Where the program starts; None: where the image says."""
        return self.spec.working_dir or (WORKDIR if self.source is not None else None)

    @property
    def has_entrypoint(self) -> bool:
        """Whether the image's own entry point gets the command."""
        return self.spec.entrypoint != "none"

    @property
    def has_index(self) -> bool:
        """Whether its tasks differ."""
        return self.replicas > 1


@dataclass(frozen=True)
class Deployment:
    """All tasks and helpers of a scenario."""

    scenario: Scenario
    groups: tuple[Group, ...]
    """In the order of the scenario; helpers come last."""
    images: Mapping[str, AnyImage] = field(default_factory=dict)
    """The images of this machine that are used, by reference."""
    path: Callable[[Path], str] = str
    """How a file of this machine is written."""

    @property
    def name(self) -> str:
        """The name of the job."""
        return self.scenario.job_name

    @property
    def roles(self) -> Roles:
        """What the names of its roles mean."""
        return roles_of(self.scenario)

    @property
    def training(self) -> tuple[Group, ...]:
        """The roles of the training itself."""
        return tuple(one for one in self.groups if not one.is_helper and not one.is_before)

    @property
    def before(self) -> tuple[Group, ...]:
        """The roles whose tasks end before training."""
        return tuple(one for one in self.groups if one.is_before)

    @property
    def helpers(self) -> tuple[Group, ...]:
        """The programs next to the job."""
        return tuple(one for one in self.groups if one.is_helper)

    @property
    def leader(self) -> Group:
        """The role whose first task leads."""
        names = (*self.roles.leaders, "worker")
        by_name = {one.name: one for one in self.training}
        return next((by_name[name] for name in names if name in by_name), self.training[0])

    @property
    def deciding(self) -> tuple[Group, ...]:
        """The roles whose end is that of the job: the leader, else all that do not serve."""
        if self.leader.name in self.roles.leaders:
            return (self.leader,)
        return tuple(one for one in self.training if not self.is_endless(one))

    def is_endless(self, group: Group) -> bool:
        """Return whether tasks serve until they are stopped, such as parameter servers."""
        return group.name in self.roles.endless_beside

    @cached_property
    def uses_shared(self) -> bool:
        """Whether a program or the scenario names the shared volume."""
        if self.scenario.metrics.events is not None:
            return True
        return any(SHARED in text or "EMULATOR_SHARED" in text for text in texts(self.scenario))


def deployment(
    scenario: Scenario,
    to: ExportFormat,
    *,
    images: Mapping[str, str] | None = None,
    path: Callable[[Path], str] = str,
) -> Deployment:
    """Return a scenario with tasks at the hosts and ports that they have in a format.

    `images`: references to use instead of images, by role or by the image's name in the scenario.
    `path`: how a file of this machine is written. Raises UsageError if a program can't be read, or
    an image is given for nothing.
    """
    writer = _Writer(scenario, to, images or {})
    return Deployment(scenario, tuple(writer.groups()), writer.local, path)


class _Writer:
    """Makes groups, and notes the images that only this machine has."""

    def __init__(self, scenario: Scenario, to: ExportFormat, images: Mapping[str, str]) -> None:
        self._scenario, self._to, self._images = scenario, to, images
        self._naming = naming(scenario)
        self._members = {
            role: [self._member(role, index) for index in range(spec.replicas)]
            for role, spec in scenario.cluster.items()
        }
        before = scenario.before_training
        members = [one for tasks in self._members.values() for one in tasks]
        self._together = [one for one in members if one.role not in before]
        self._values = Values(
            roles_of(scenario),
            members,
            shared=SHARED,
            seed=scenario.seed,
            helpers={
                name: Member("helper", 0, to.host(scenario, name, -1), to.port)
                for name in scenario.helpers
            },
            before_training=before,
            namespace=self._naming.namespace if self._naming else DEFAULT_NAMESPACE,
        )
        self._own = {name for text in texts(scenario) for name in OWN.findall(text)}
        """The emulator's variables that programs name."""
        self._expand = Expander()
        self.local: dict[str, AnyImage] = {}
        self._names: dict[str, None] = {}
        """What an image can be given for: roles, and images of the scenario."""

    def groups(self) -> Iterator[Group]:
        """Yield roles, then helpers. Raises UsageError if an image is given for nothing."""
        scenario = self._scenario
        for role, spec in scenario.cluster.items():
            yield self._role(role, scenario.in_full(spec))
        for name, helper in scenario.helpers.items():
            image = helper.image or scenario.image
            port = helper.ports[0].port if helper.ports else self._to.port
            yield self._group(name, helper, image, [self._values.helper_values(name)], port=port)
        if unknown := [name for name in self._images if name not in self._names]:
            raise UsageError(
                f"--image {unknown[0]}=...: the scenario has no role and no image {unknown[0]}.",
                f"Names: {', '.join(self._names)}.",
            )

    def _member(self, role: str, index: int) -> Member:
        host, named = self._to.host(self._scenario, role, index), self._naming
        port = named.place(role, index).port if named else self._to.port
        return Member(role, index, host, port, host.partition(".")[0])

    def _role(self, name: str, spec: Role) -> Group:
        """Return the tasks of a role."""
        scenario, tasks = self._scenario, self._members[name]
        job = Job(scenario, spec, scenario.name)
        meeting = [rendezvous.environment(task, self._together, job) for task in tasks]
        values = [
            {**self._values.values_of(task), **values_of_variables(ours)}
            for task, ours in zip(tasks, meeting, strict=True)
        ]
        image = spec.image or scenario.image
        init = tuple(self._group(one.name, one, one.image or image, values) for one in spec.init)
        group = self._group(name, spec, image, values, port=tasks[0].port)
        env = zip(meeting, group.env, strict=True)
        return replace(
            group,
            env=tuple(rendezvous.merged(ours, given, job) for ours, given in env),
            meeting=frozenset(meeting[0]),
            init=init,
        )

    def _group(
        self,
        name: str,
        spec: AnyContainer,
        image: AnyImage,
        values: Sequence[Mapping[str, str]],
        port: int = 0,
    ) -> Group:
        """Return containers with the values of their tasks."""
        commands = [[self._expand(word, one) for word in spec.command or ()] for one in values]
        env = [
            {
                **self._task_variables(one),
                **{key: self._expand(text, one) for key, text in spec.env.items()},
            }
            for one in values
        ]
        reference = self._reference(name, image, spec)
        return Group(name, spec, reference, tuple(map(tuple, commands)), tuple(env), port=port)

    def _task_variables(self, values: Mapping[str, str]) -> dict[str, str]:
        """Return the emulator's variables of a task that its program names."""
        every = {"EMULATOR_RUN": self._scenario.name, **variables(values)}
        return {name: text for name, text in every.items() if name in self._own}

    def _reference(self, role: str, image: AnyImage, spec: AnyContainer) -> str:
        """Return the reference of an image; note one that only this machine has."""
        image = self._scenario.chosen(image)
        if isinstance(image, Dockerfile):
            is_own = image is not self._scenario.image
            name = f"{self._scenario.name}-{role}" if is_own else self._scenario.name
            reference = f"{name}:latest"
        else:
            name = image.name if isinstance(image, NamedImage) else image
            has_gpus = isinstance(spec, Role) and spec.gpus.count > 0
            name = ("gpu" if has_gpus else "cpu") if name == "auto" else name
            reference = IMAGES.get(name, name)
        self._names |= dict.fromkeys((role, name, reference))
        for key in (role, name, reference):
            if key in self._images:
                return IMAGES.get(self._images[key], self._images[key])
        if isinstance(image, Dockerfile) or reference in IMAGES.values():
            self.local[reference] = image
        return reference


# --- What the programs name -----------------------------------------------------------------------


def texts(scenario: Scenario) -> Iterator[str]:
    """Yield commands, variables and the files of programs, without those that are no text."""
    yield from scenario.program.command
    yield from scenario.program.env.values()
    files = [*scenario.program.files.values()]
    sources = {scenario.program.source}
    for _, one, _ in scenario.containers:
        yield from one.command or ()
        yield from one.env.values()
        files += one.files.values()
        if not isinstance(one, PodContainer):
            sources.add(one.source)
    yield from (file.text for file in files if file.text is not None)
    for source in filter(None, sources):
        yield from _files(source)


def program_files(source: Path) -> list[Part]:
    """Return the files of a program that was valid. Raises UsageError if it has changed."""
    try:
        return [part for part in parts(source) if not part.is_folder]
    except ValueError as error:
        raise UsageError(f"The program can't be read: {error}.") from None


def _files(source: Path) -> Iterator[str]:
    for part in program_files(source):
        if part.path.stat().st_size <= READ_BYTES:
            yield part.path.read_bytes().decode("utf-8", errors="ignore")


def seconds(duration: float | None) -> int | None:
    """Return a duration in whole seconds, rounded up, as Kubernetes counts them."""
    return None if duration is None else max(1, math.ceil(duration))


DEFAULT_LIMIT = 6
"""Restarts that a Job allows where nothing is said (backoffLimit)."""


def limit(scenario: Scenario) -> int:
    """Return how often a task may be restarted."""
    if scenario.jobset is not None:
        return DEFAULT_LIMIT
    return 0 if scenario.restart.policy == "never" else scenario.restart.limit


# --- Formats --------------------------------------------------------------------------------------


Documents = list[dict[str, Any]]
"""The documents of a file, in order."""


@dataclass(frozen=True)
class Draft:
    """A scenario as a file of another tool, before it has its head."""

    documents: Documents
    notes: tuple[str, ...] = ()
    """What works differently there, or is missing, and what to do about it."""
    usage: tuple[str, ...] = ()
    """How the file is used: lines for its head."""


@dataclass(frozen=True)
class ExportFormat:
    """One format that scenarios are written in."""

    name: str
    """The value of `--to`."""
    about: str
    draft: Callable[[Deployment], Draft]
    host: Callable[[Scenario, str, int], str]
    """The host name of a task, from its role and index; of a helper with the index -1."""
    port: int = 2222
    """The port of tasks, unless the scenario says another."""
    frameworks: Sequence[FrameworkName] = ()
    """Those of its jobs; empty: all."""
    has_operator: bool = False
    """Whether the training operator runs it, which `operator:` of a scenario describes."""
