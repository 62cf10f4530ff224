"""The schema of a scenario; `loader.py` loads one from a file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationInfo,
    create_model,
    model_validator,
)

from emulator.faults.kinds import AnyEntry
from emulator.faults.netem import Link
from emulator.faults.signals import Whom
from emulator.metrics.readings import PHASES_ONLY
from emulator.scenario.addresses import Addresses
from emulator.scenario.container import (
    Container,
    Entrypoint,
    Files,
    InitSteps,
    Mounts,
    PodContainer,
    ShmSize,
    Ulimits,
    WorkingDir,
)
from emulator.scenario.frameworks.pytorch import Elastic
from emulator.scenario.frameworks.registry import AUTO, FRAMEWORKS
from emulator.scenario.frameworks.spec import FrameworkName, RendezvousForm
from emulator.scenario.image import AnyImage as AnyImage
from emulator.scenario.image import Dockerfile as Dockerfile
from emulator.scenario.image import Image
from emulator.scenario.image import NamedImage as NamedImage
from emulator.scenario.paths import ProgramPath
from emulator.scenario.program import excluding
from emulator.scenario.pytest_options import Marks, Parametrize, Reference
from emulator.scenario.restart import Restart, RestartPolicy
from emulator.scenario.sections import RULES, SECTIONS, JobRules, section_fields
from emulator.validation.fields import (
    Command,
    Cores,
    Delay,
    Duration,
    Env,
    Model,
    PositiveRatio,
    Rate,
    Ratio,
    Share,
    Size,
    Text,
    is_stored,
)
from emulator.validation.limits import FAULTS, HELPERS, MIB, TASKS
from emulator.validation.patterns import Pattern

if TYPE_CHECKING:
    from emulator.scenario.document import KeyPath

Section = TypeVar("Section")
SuccessRule = Literal["auto", "chief", "all-workers"]
SCHEMA_ID = "urn:training-emulator:scenario"
"""By which editors and other schemas refer to the schema; it names it and is no address."""
JobOutcome = Literal["succeeded", "failed", "timeout"]


def _folder_of_its_own(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", name):
        raise ValueError(f"{name!r} is not the name of a folder, such as checkpoints")
    return name


SharedFolder = Annotated[str, AfterValidator(_folder_of_its_own)]


def _patterns(patterns: list[str]) -> list[str]:
    excluding(patterns)  # raises
    return patterns


Excluded = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=200)]],
    Field(max_length=200, examples=[["data/", "*.log"]]),
    AfterValidator(_patterns),
]


class Program(Model):
    """The program of every task, unless its role sets another."""

    exclude: Excluded = []
    """What of `source` is not copied: patterns as in a .gitignore."""
    source: ProgramPath | None = None
    """A file or folder that is copied into the working directory of each task."""
    shared: SharedFolder | None = Field(default=None, examples=["checkpoints"])
    """A folder of the program that is the shared volume: what a task saves there outlives it."""
    command: Command
    """The command of every task; empty: the image's own."""
    entrypoint: Entrypoint = "image"
    """`image`: the image's own entry point gets the command; `none`: the command is all that
    runs."""
    working_dir: WorkingDir | None = None
    """Where every task starts; default: /job with a `source`, else the image's own."""
    env: Env = {}
    """Environment variables of every task."""
    files: Files = {}
    """Small files that every task gets; a role can add to them, or replace some."""

    @model_validator(mode="after")
    def _of_a_source(self) -> Program:
        if self.shared is not None and self.source is None:
            raise ValueError("`shared` is a folder of the program: name its `source`")
        return self


class Gpus(Model):
    """GPUs of one task."""

    count: int = Field(strict=True, default=1, ge=0, examples=[1])
    """The number of devices."""
    shared: bool = False
    """Whether tasks share devices if too few are free."""


def _counted(key: str) -> BeforeValidator:
    def read(value: object) -> object:
        return {key: value} if isinstance(value, int) and not isinstance(value, bool) else value

    return BeforeValidator(read)


class Role(Container):
    """The tasks of one role; a bare number is the number of replicas."""

    replicas: int = Field(strict=True, default=1, ge=1, le=TASKS, examples=[2])
    """The number of tasks."""
    before: Literal["training"] | None = None
    """Its tasks end before those of the other roles start, such as one that prepares the data."""
    gpus: Annotated[Gpus, _counted("count")] = Gpus(count=0)
    """GPUs of each task; a number is short for `{count: ...}`."""
    command: Command | None = None
    """The command of these tasks; default: the program's."""
    source: ProgramPath | None = None
    """The program of these tasks; default: the job's."""
    env: Env = {}
    """Variables of these tasks, besides those of the program."""
    image: Image | None = None
    """The image of these tasks; default: the job's."""
    init: InitSteps = []
    """Run before the task's program, when it starts on a fresh disk."""


Cluster = dict[str, Annotated[Role, _counted("replicas")]]


class Helper(Container):
    """A program next to the job: it is in no rendezvous, and does not decide how the job ends."""

    command: Command
    """What it runs; empty: the image's own command."""
    source: ProgramPath | None = None
    """A file or folder, copied into its working directory."""
    env: Env = {}
    """Its environment variables."""
    image: Image | None = None
    """Its image; default: the job's."""


Helpers = Annotated[
    dict[str, Helper],
    Field(
        max_length=HELPERS,
        examples=[{"files": {"command": ["python", "-m", "http.server"], "ports": [8000]}}],
    ),
]


AnyContainer = Role | Helper | PodContainer


class Reserve(Model):
    """Resources reserved for a run on a shared machine; they limit nothing.

    Default: the sum of its tasks' limits.
    """

    cpus: Cores | None = None
    """Cores that the run reserves."""
    memory: Size | None = None
    """Memory that the run reserves."""


class Network(Model):
    """The cluster's network."""

    internet: bool = True
    """Whether tasks reach hosts outside their network."""
    delay: Delay = Field(default=0.0, examples=["5ms"])
    """The delay that is added to each packet."""
    bandwidth: Rate | None = None
    """What each task can send per second; default: no limit."""
    metadata: Literal["open", "closed"] | None = None
    """Whether tasks reach the metadata service of the machine (169.254.169.254); default: `closed`
    where they are in containers of Docker. Notices are given at this address in any case."""


EVENTS = "event-files"
"""The helper that reads event files, where `metrics.events` asks for it."""
_FOLDER = re.compile(r"[A-Za-z0-9_.-]{1,100}(?:/[A-Za-z0-9_.-]{1,100}){0,9}")


def _events_folder(folder: str) -> str:
    parts = folder.split("/")
    if not _FOLDER.fullmatch(folder) or ".." in parts or ("." in parts and folder != "."):
        hint = "letters, digits, '_', '.' and '-' between slashes, such as logs; '.' for all of it"
        raise ValueError(f"{folder!r} is not a folder of the shared volume: {hint}")
    return folder


EventsFolder = Annotated[str, Field(max_length=1000), AfterValidator(_events_folder)]


def _step_rule(rule: str, info: ValidationInfo) -> str:
    from emulator.metrics.steps import RULES, is_pattern  # few scenarios have rules

    if is_pattern(rule) and not is_stored(info) and not Pattern(rule).groupindex:
        names = ", ".join(RULES)
        raise ValueError(f"a regex needs a group (?P<step>\\d+); named patterns: {names}")
    return rule


StepRules = Annotated[
    list[Annotated[str, AfterValidator(_step_rule)]],
    Field(min_length=1, max_length=20),
    BeforeValidator(
        lambda value: [value] if isinstance(value, str) else value,
        json_schema_input_type=str | list[str],
    ),
]


class Metrics(Model):
    """How steps are parsed from task output, and how often usage is sampled."""

    steps: StepRules = Field(
        default=["auto"], examples=["json", "keras", "iteration (?P<step>\\d+)"]
    )
    """How steps are read from output: `auto`, `json`, a named pattern, or a regular expression with
    `(?P<step>...)`, which adds to `auto`; or a list of these."""
    events: EventsFolder | None = Field(default=None, examples=["logs"])
    """The folder of the shared volume with TensorBoard event files that have the steps."""
    examples_per_step: int | None = Field(strict=True, default=None, ge=1, examples=[64])
    """Examples in one step of all workers, if the program does not report them."""
    interval: Duration = Field(default=1.0, ge=0.1, examples=["500ms"])
    """The time between two samples of resource usage, at least `100ms`."""

    @model_validator(mode="after")
    def _one_source(self) -> Metrics:
        if self.helper and self.steps != ["auto"]:
            raise ValueError("steps come either from `events` or from output; leave `steps` out")
        return self

    @property
    def helper(self) -> str:
        """The name of the helper whose lines have the steps; empty: they are in the output."""
        return EVENTS if self.events is not None else ""

    @property
    def rules(self) -> Sequence[str]:
        """How steps are read from the output of a task, for `StepReader`."""
        return (PHASES_ONLY,) if self.helper else self.steps

    @property
    def may_draw(self) -> bool:
        """Whether a progress bar in the output may have steps."""
        return tuple(self.rules) not in {("json",), (PHASES_ONLY,)}


class RelativeBounds(Model):
    """Bounds on a rate as a share of the rate before the fault."""

    min: Ratio | None = Field(default=None, examples=[0.4])
    """The least share."""
    max: Ratio | None = Field(default=None, examples=["110%"])
    """The greatest share."""


class Throughput(Model):
    """Bounds on the job's rate in steps per second, and on its change by faults."""

    min: float | None = Field(strict=True, default=None, gt=0, examples=[5])
    """The least rate of the job, in steps per second."""
    max: float | None = Field(strict=True, default=None, gt=0, examples=[500])
    """The greatest rate of the job, in steps per second."""
    during: RelativeBounds = RelativeBounds()
    """From a fault until its target is restored, as a share of the ten seconds before it."""
    after: RelativeBounds = RelativeBounds()
    """In the ten seconds from the job's first step with the target restored, as that share."""
    at_least: PositiveRatio | None = Field(default=None, examples=[0.9])
    """The minimum rate, as a share of that of the reference variant."""
    of: Literal["reference"] | None = None
    """What `at_least` is a share of: the rate of the reference variant."""

    @model_validator(mode="after")
    def _both(self) -> Throughput:
        if self.at_least is not None and self.of is None:
            raise ValueError("`at_least` needs `of: reference`")
        if self.of is not None and self.at_least is None:
            raise ValueError("`of` needs `at_least`, such as `at_least: 0.9`")
        return self


_SMALL = re.compile(r"\d+e-?\d+", re.IGNORECASE)


class SameAsUninterrupted(Model):
    """What a run has alike with one of the same scenario without its faults, which is made first.

    Of numbers a tolerance is a share of the greater one.
    """

    loss: Annotated[
        Literal["exact"] | PositiveRatio | None,
        # In YAML 1.1, `1e-4` is text.
        BeforeValidator(lambda v: float(v) if isinstance(v, str) and _SMALL.fullmatch(v) else v),
    ] = Field(default=None, examples=["exact", 1e-4])
    """`exact`, or by what losses may differ, of each step after the first fault; of a program that
    reports no loss, whatever numbers it reports with its steps."""
    result: Text | None = Field(default=None, examples=["ckpt/*.pt"])
    """The files that are left and match this glob: their arrays, or else their bytes."""
    samples: bool = Field(strict=True, default=False)
    """What tasks report that they have read, step by step."""

    @model_validator(mode="after")
    def _any(self) -> SameAsUninterrupted:
        if self.loss is None and self.result is None and not self.samples:
            raise ValueError("it needs `loss`, `result` or `samples`")
        return self

    @property
    def tolerance(self) -> float | None:
        """What numbers may differ by; None: nothing is said of losses."""
        return 0.0 if self.loss == "exact" else self.loss


ValueName = Annotated[str, Field(min_length=1, max_length=100)]


class Bounds(Model):
    """Limits of a value that tasks report; either may be left out."""

    min: float | None = Field(strict=True, default=None, allow_inf_nan=False, examples=[0.1])
    """The least value."""
    max: float | None = Field(strict=True, default=None, allow_inf_nan=False, examples=[0.5])
    """The greatest value."""

    @model_validator(mode="after")
    def _either(self) -> Bounds:
        if self.min is None and self.max is None:
            raise ValueError("needs `min`, `max` or both, such as `{max: 0.5}`")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError("`min` is greater than `max`")
        return self


class TrafficBounds(Model):
    """Bounds on bytes in a step: sizes, or shares of what the tasks reported."""

    min: Size | None = None
    """The least size."""
    max: Size | None = None
    """The greatest size."""
    at_least: Ratio | None = Field(default=None, examples=[0.9])
    """The minimum, as a share of the value `of`."""
    at_most: Ratio | None = Field(default=None, examples=[1.1])
    """The maximum, as a share of the value `of`."""
    of: ValueName | None = Field(default=None, examples=["gradient_bytes"])
    """The name of a value in step events, in bytes: what the program predicts."""

    @model_validator(mode="after")
    def _some(self) -> TrafficBounds:
        shares = (self.at_least, self.at_most)
        if shares != (None, None) and self.of is None:
            raise ValueError("`at_least` and `at_most` need `of`: the name of a reported value")
        if self.of is not None and shares == (None, None):
            raise ValueError("`of` needs `at_least` or `at_most`, such as `at_least: 0.9`")
        if (self.min, self.max, *shares) == (None,) * 4:
            raise ValueError("needs `min` or `max`, such as `{max: 2m}`, or a share `of` a value")
        for low, high, names in (
            (self.min, self.max, "`min` is greater than `max`"),
            (*shares, "`at_least` is greater than `at_most`"),
        ):
            if low is not None and high is not None and low > high:
                raise ValueError(names)
        return self


class Traffic(Model):
    """Bounds on what a task of a role sends and receives in a step, on average over the role."""

    sent: TrafficBounds | None = None
    """Bounds on what a task sends in a step."""
    received: TrafficBounds | None = None
    """Bounds on what a task receives in a step."""

    @model_validator(mode="after")
    def _either(self) -> Traffic:
        if self.sent is None and self.received is None:
            raise ValueError("needs `sent`, `received` or both, such as `{sent: {max: 2m}}`")
        return self


class Expectations(Model):
    """Expectations of a run, judged from its record alone."""

    outcome: JobOutcome = "succeeded"
    """How the job must end."""
    steps: Literal["none"] | None = None
    """`none`: the program has no steps, and none may be read."""
    final_step: int | None = Field(strict=True, default=None, ge=0, examples=[400])
    """The least step that the job must reach."""
    accuracy: Share | None = Field(default=None, examples=[0.9])
    """The least `accuracy` in the job's last step event that has one."""
    values: dict[ValueName, Bounds] = Field(default={}, examples=[{"loss": {"max": 0.5}}])
    """Limits of the last value that each task reported under a name in its step events."""
    bytes_per_step: Annotated[
        dict[str, Traffic], Field(examples=[{"worker": {"sent": {"max": "2m"}}}])
    ] = {}
    """By role: what its tasks send and receive over the network in a step."""
    throughput: Throughput | None = None
    """Bounds on the rate of the job."""
    max_restarts: int | None = Field(strict=True, default=None, ge=0, examples=[1])
    """The most restarts by the restart policy."""
    max_lost_steps: int | None = Field(strict=True, default=None, ge=0, examples=[100])
    """Steps that a task repeats after restarts and restores, at most."""
    recovers_within: Duration | None = Field(default=None, examples=["90s"])
    """The most time from a failure to the next step, for each recovery."""
    noticed_within: Duration | None = Field(default=None, examples=["60s"])
    """The most time from when a fault takes effect until another task shows it, for each fault."""
    min_goodput: Share | None = Field(default=None, examples=["80%"])
    """The least share of the time that was productive."""
    saved_within_grace: bool = Field(strict=True, default=False)
    """Every preempted task saved a checkpoint between the notice and its end."""
    nothing_outlives: bool = Field(strict=True, default=False)
    """No process of a preempted task is left when its main one has ended."""
    monotone_checkpoints: bool = Field(strict=True, default=False)
    """Saved steps never decrease, and every restored step was saved before."""
    restores_only_complete: bool = Field(strict=True, default=False)
    """What is restored was saved whole, and not broken since."""
    never_from_scratch: bool = Field(strict=True, default=False)
    """No task begins with its first step again once a checkpoint is complete."""
    ranks_agree: bool = Field(strict=True, default=False)
    """Tasks that resume together resume from the same step."""
    loads_what_was_saved: bool = Field(strict=True, default=False)
    """The `digest` that a task reports of what it restores is that of a save of this step."""
    single_chief: bool = Field(strict=True, default=False)
    """Never two incarnations of the chief at once, nor a step of one that had ended."""
    steps_exactly_once: bool = Field(strict=True, default=False)
    """The leading task reports every step exactly once: none repeated, none missing."""
    same_as_uninterrupted: SameAsUninterrupted | None = None
    """It ends as without its faults."""


def _at_least_a_mebibyte(size: int) -> int:
    if size < MIB:
        raise ValueError("it can't be smaller than 1m")
    return size


FILLED_SIZE = 2**28
"""Bytes of a shared volume that a fault fills, where the scenario names no size."""


class _Core(Model):
    """One emulated training job."""

    name: str = Field(pattern=r"^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$", examples=["mwms-two-workers"])
    """The name of the job, at most 40 lower-case letters, digits and dashes; run ids begin with
    it."""
    description: str = Field(default="", examples=["Two workers survive a preemption."])
    """What it shows; `emulate plan` and the reports print it."""
    framework: FrameworkName = "tensorflow"
    """Which roles there are, and by which variables tasks find each other."""
    rendezvous: RendezvousForm | None = None
    """The variables by which tasks find each other; default: those of the framework."""
    elastic: Elastic | None = None
    """An elastic job of torchrun: tasks may leave and join."""
    slurm: bool = Field(strict=True, default=False)
    """The tasks are those of a Slurm job: with its variables, and a `scontrol` that requeues it."""
    addresses: Addresses | None = None
    """The names of its tasks on the network; default: those of the engine."""
    image: Image = Field(
        default="auto", examples=["cpu", "python:3.11-slim", {"dockerfile": "docker/Dockerfile"}]
    )
    """What tasks run in: `auto` (that of the framework; of TensorFlow, MPI and Ray `gpu` if the
    engine has a GPU, else `cpu`), an image of the emulator, any reference, or a Dockerfile."""
    program: Program
    """What every task runs, unless its role says otherwise."""
    cluster: Cluster = Field(min_length=1, examples=[{"worker": 2}])
    """The roles, each with its number of tasks or with settings."""
    mounts: Mounts = {}
    """What every task has mounted; a role can add to it, or mount something else there."""
    shm_size: ShmSize | None = Field(default=None, examples=["1g"])
    """The size of each task's /dev/shm, unless its role sets another."""
    ulimits: Ulimits = {}
    """Limits of every task's processes, unless its role sets another."""
    helpers: Helpers = {}
    """Programs next to the job, by name."""
    restart: Annotated[
        Restart, BeforeValidator(lambda v: {"policy": v} if isinstance(v, str) else v)
    ] = Restart()
    """When a task that has ended is started again; a policy alone is short for `{policy: ...}`."""
    reserve: Reserve | None = None
    """The share of the machine that its tests wait for; it limits nothing."""
    success: SuccessRule = "auto"
    """Which tasks must succeed for the job to succeed."""
    faults: Annotated[list[AnyEntry], Field(max_length=FAULTS)] = Field(
        default=[],
        examples=[[{"preempt": "worker-1", "at": {"step": 120}, "grace": "5s", "down": "10s"}]],
    )
    """What happens to the tasks, and when."""
    signals: Whom = Field(default="main", examples=["all"], exclude_if=lambda whom: whom == "main")
    """Who gets the signals of faults: `main`, a task's own command alone, as with Docker and
    Kubernetes, or `all` its processes, as with Slurm; SIGKILL ends all of it."""
    speed: float = Field(
        default=1.0, strict=True, gt=0, le=1e6, examples=[10], exclude_if=lambda scale: scale == 1
    )
    """By what the times of presets (`like` of a preemption) are divided; 10 makes 120 s into 12."""
    timeout: Duration | None = Field(default=None, examples=["10m"])
    """The job's time limit, from the start of its first task; default: none."""
    log_limit: Annotated[Size, AfterValidator(_at_least_a_mebibyte)] = 2**30
    """About so much of each task's log is kept: its first half, and its end."""
    seed: int = Field(default=0, strict=True, examples=[7])
    """The seed of random faults, and EMULATOR_SEED of the tasks."""
    network: Network = Network()
    """The network between the tasks."""
    shared_size: Annotated[Size, AfterValidator(_at_least_a_mebibyte)] | None = Field(
        default=None, examples=["64m"]
    )
    """The size of the shared volume. With Docker it is then in memory, and full when so much is
    written; on Kubernetes it is what the claim asks for. Default: the machine's disk, or 1g."""
    metrics: Metrics = Metrics()
    """How steps are read, and how often usage is measured."""
    expect: Expectations = Expectations()
    """What must hold of the run; `emulate up` exits with 1 if it does not."""
    parametrize: Parametrize = {}
    """Values of keys; pytest runs every combination as a test."""
    reference: Reference = {}
    """Overrides of the reference variant, which pytest runs to compare rates."""
    marks: Marks = Field(default=[], examples=[["slow", {"timeout": 300}]])
    """Marks of its tests in pytest: a name, or `{name: arguments}`."""

    @property
    def shared_limit(self) -> int | None:
        """The bytes that the shared volume has room for; None: as many as the disk it is on."""
        fills = any(one.fills_volume for one in self.faults)
        return FILLED_SIZE if fills and self.shared_size is None else self.shared_size

    @model_validator(mode="after")
    def _for_all_faults(self, info: ValidationInfo) -> _Core:
        if (self.speed, self.signals) != (1, "main") and not is_stored(info):
            scaled = [fault.at_scale(self.speed) for fault in self.faults]
            self.faults[:] = [fault.by_default(self.signals) for fault in scaled]
        return self

    def to_yaml(self) -> str:
        """Return the scenario as YAML, with the keys that were given; `load` returns an equal one.

        Paths in it are absolute, and a trace of preemptions is written as rows.
        """
        from emulator.scenario.dump import dump  # few commands write a scenario

        return dump(self.model_dump(mode="json", exclude_unset=True))

    @property
    def before_training(self) -> dict[str, Role]:
        """The roles whose tasks end before the others start; they are in no rendezvous."""
        return {name: role for name, role in self.cluster.items() if role.before is not None}

    @property
    def in_training(self) -> dict[str, Role]:
        """The roles of the job itself: all others."""
        return {name: role for name, role in self.cluster.items() if role.before is None}

    def section(self, kind: type[Section]) -> Section | None:
        """Return the section of a class, if the scenario has it."""
        sections = (getattr(self, name) for name in SECTIONS)
        return next((one for one in sections if isinstance(one, kind)), None)

    @property
    def rules(self) -> JobRules | None:
        """The section by whose rules the job is named, restarts and ends, if it has one."""
        return next(filter(None, (getattr(self, name) for name in RULES)), None)

    @property
    def job_name(self) -> str:
        """The name of the job, which its operator may have given it."""
        return self.rules.job if self.rules else self.name

    def policy_of(self, role: str) -> RestartPolicy:
        """Return when a task of a role is restarted."""
        return self.rules.policy_of(role) if self.rules else self.restart.policy

    def in_full(self, role: Role) -> Role:
        """Return a role with what the scenario says for all tasks."""
        merged: dict[str, object] = {}
        for section in (self, self.program):
            for key in type(section).model_fields.keys() & type(role).model_fields.keys():
                of_all, own = getattr(section, key), getattr(role, key)
                if isinstance(of_all, dict):
                    merged[key] = {**of_all, **own}
                else:
                    merged[key] = of_all if own is None else own
        return role.model_copy(update=merged)

    def as_run(self, container: AnyContainer) -> AnyContainer:
        """Return a role in full, and any other container as it is."""
        return self.in_full(container) if isinstance(container, Role) else container

    @property
    def images(self) -> Iterator[AnyImage]:
        """Each image that it names: its own, and those of roles, their parts and helpers."""
        for image in (self.image, *(one.image for _, one, _ in self.containers)):
            if image is not None:
                yield self.chosen(image)

    def chosen(self, image: AnyImage | None) -> AnyImage:
        """Return an image, or that of the job; for `auto` that of the framework."""
        found, own = image or self.image, FRAMEWORKS[self.framework].image
        if found == AUTO:
            return own
        if isinstance(found, NamedImage) and found.name == AUTO:
            return found.model_copy(update={"name": own})
        return found

    @property
    def containers(self) -> Iterator[tuple[KeyPath, AnyContainer, int]]:
        """Each container as it is written, with the path of its keys, and how many there are.

        Those of the roles' tasks, then their init steps, then helpers.
        """
        for role, spec in self.cluster.items():
            yield ("cluster", role), spec, spec.replicas
        for role, spec in self.cluster.items():
            for number, part in enumerate(spec.init):
                yield ("cluster", role, "init", number), part, spec.replicas
        for name, helper in self.helpers.items():
            yield ("helpers", name), helper, 1

    @property
    def network_parts(self) -> frozenset[str]:
        """The keys of `netem.PROBES` that the kernel must support for its network and faults."""
        network = self.network
        parts = Link("", "", delay=network.delay, bandwidth=network.bandwidth).parts
        redirects = {"iptables"} if self.platforms and not network.internet else ()
        return parts.union(redirects, *(fault.parts for fault in self.faults))

    @property
    def platforms(self) -> frozenset[str]:
        """The platforms whose metadata servers announce its faults, of `notices.ACTIONS`."""
        return frozenset[str]().union(*(fault.platforms for fault in self.faults))


if TYPE_CHECKING:

    class Scenario(_Core):
        """One emulated training job."""

else:  # with the sections that plug-ins add
    Scenario = create_model(
        "Scenario",
        __base__=_Core,
        __module__=__name__,
        __doc__=_Core.__doc__,
        **section_fields(_Core),
    )


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a scenario file, for editors."""
    schema = Scenario.model_json_schema()
    properties = schema["properties"]
    role = {"$ref": "#/$defs/Role"}
    properties["cluster"]["additionalProperties"] = {
        "anyOf": [role, {"type": "integer", "minimum": 1, "maximum": TASKS}]
    }
    _widen(properties["restart"], {"$ref": "#/$defs/Restart"}, {"enum": [*get_args(RestartPolicy)]})
    gpus = schema["$defs"]["Role"]["properties"]["gpus"]
    _widen(gpus, {"$ref": "#/$defs/Gpus"}, {"type": "integer", "minimum": 0, "examples": [1]})
    time = schema["$defs"]["Trigger"]["properties"]["time"]["anyOf"]
    for entry in properties["faults"]["items"]["anyOf"]:
        keys = entry["properties"]
        _widen(keys["at"], {"$ref": "#/$defs/Trigger"}, *time)
        if "trace" in keys:
            file = {"type": "string", "examples": ["trace.csv"]}
            rows = {key: keys["trace"].pop(key) for key in ("type", "items", "maxItems")}
            _widen(keys["trace"], rows, file)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA_ID, **schema}


def _widen(schema: dict[str, Any], *kinds: dict[str, Any]) -> None:
    """Let a property have one of these kinds, and keep what is said about it."""
    schema.pop("$ref", None)
    schema["anyOf"] = [*kinds]
