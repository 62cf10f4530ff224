"""The base classes of all kinds of faults, and the triggers of faults.

A kind is one class: its fields are what users write, with defaults and checks; its class attributes
and methods define everything else that the schema, the schedule, the injector, the command line,
the client and the reports need. `kinds.py` lists the kinds.
"""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import re
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    Protocol,
    Self,
    TypeVar,
    runtime_checkable,
)

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from emulator.errors import NotRunning
from emulator.faults.platforms.notices import asked_of_engine
from emulator.validation.fields import (
    Duration,
    DurationOrForever,
    Glob,
    Model,
    Text,
    has_unit,
    is_stored,
    once,
)
from emulator.validation.patterns import compiled

if TYPE_CHECKING:
    from emulator.faults.netem import Link
    from emulator.faults.signals import Whom

SETTLED = 5.0
"""Seconds after which a restarted task is surely running."""

Phase = Literal["startup", "data", "compile", "checkpoint", "restore", "eval"]
CALLS = ("write", "truncate", "fsync", "rename", "unlink")
TRIGGERS = ("time", "step", "log", "phase", "after", "recovery", *CALLS)


class Trigger(Model):
    """When a fault happens; a bare duration is a time."""

    time: Duration | None = Field(default=None, examples=["40s"])
    """The time since all tasks ran for the first time."""
    step: int | None = Field(default=None, strict=True, ge=0, examples=[120])
    """The first step event with at least this step."""
    log: str | None = Field(default=None, examples=["Saving checkpoint"])
    """The first line of output in which this regular expression is found."""
    phase: Phase | None = None
    """The first time this phase begins: `checkpoint` is while one is being written."""
    after: Text | None = Field(default=None, examples=["spot"])
    """After another fault, by its `name` or number, has taken effect."""
    recovery: Text | None = Field(default=None, examples=["spot"])
    """After the job's first step after another fault."""
    write: int | None = Field(default=None, strict=True, ge=1, examples=[3])
    """Just before so many a write to a file by one task, counted from its beginning."""
    truncate: int | None = Field(default=None, strict=True, ge=1, examples=[1])
    """The same, before so many a call by which a file loses what it has: also an open for that."""
    fsync: int | None = Field(default=None, strict=True, ge=1, examples=[1])
    """The same, before so many a call that has the disk keep what was written."""
    rename: int | None = Field(default=None, strict=True, ge=1, examples=[1])
    """The same, before so many a rename, of a file or a folder, or a hard link."""
    unlink: int | None = Field(default=None, strict=True, ge=1, examples=[1])
    """The same, before so many a removal of a file."""
    of: Text | None = Field(default=None, examples=["*.pt"])
    """The files whose writes, renames and so on count: a glob of the ends of their paths, or with a
    leading `/` of all of them; default: all."""
    delay: Duration = 0.0
    """The time after `after` or `recovery`."""
    task: Glob | None = None
    """The tasks whose step, line or phase counts; default: all. The one task whose write counts;
    default: the fault's target."""

    @model_validator(mode="after")
    def _one(self) -> Trigger:
        given = [key for key in TRIGGERS if getattr(self, key) is not None]
        if len(given) != 1:
            raise ValueError(f"a fault has one trigger of: {', '.join(TRIGGERS)}")
        if self.task is not None and given[0] not in ("step", "log", "phase", *CALLS):
            raise ValueError(f"`{given[0]}` belongs to no task; leave `task` out")
        if self.delay and given[0] not in ("after", "recovery"):
            raise ValueError("`delay` goes with `after` and `recovery`")
        if self.of is not None and not self.call:
            raise ValueError(f"`of` goes with {', '.join(CALLS)}")
        if self.call and self.task is not None and is_glob(self.task):
            raise ValueError(f"a `{self.call}` is of one task; name it in `task`")
        return self

    def in_words(self) -> str:
        """Return it in words, with the keys of a scenario."""
        keys = self.model_dump(mode="json", exclude_defaults=True)
        return ", ".join(f"{key} {value}" for key, value in keys.items())

    @field_validator("log")
    @classmethod
    def _expression(cls, log: str | None, info: ValidationInfo) -> str | None:
        if log is not None and not is_stored(info):
            once(info, ("log", log), lambda: compiled(log))
        return log

    @property
    def by_output(self) -> bool:
        """Whether a line of output fires it."""
        return self.time is None and self.after is None and not self.call

    @property
    def call(self) -> str:
        """The kind of call to the kernel before which it happens, of CALLS; empty: another."""
        return next((key for key in CALLS if getattr(self, key) is not None), "")

    @property
    def call_number(self) -> int:
        """Which of these calls it is, from 1 on."""
        return int(getattr(self, self.call))


class Entry(Model):
    """An entry of `faults:`: a fault, `random` faults or a `trace`."""

    kind: ClassVar[str]
    """The key that makes an entry one of this kind."""
    name: str | None = Field(
        default=None,
        pattern=r"^[a-zA-Z][-_a-zA-Z0-9]*$",
        description="Its name, for `after` and `recovery` of other faults.",
        examples=["spot"],
    )
    at: Annotated[
        Trigger | None,
        BeforeValidator(lambda v: v if isinstance(v, Mapping | Trigger | None) else {"time": v}),
    ] = Field(default=None, examples=[{"step": 120}])
    """When it happens: a time, or another trigger."""

    @property
    def fills_volume(self) -> bool:
        """Whether it fills the shared volume, which then needs a size."""
        return False

    @classmethod
    def key_fields(cls) -> dict[str, str]:
        """Return the keys that users write, each with the name of its field."""
        return {field.alias or name: name for name, field in cls.model_fields.items()}

    @classmethod
    def with_units(cls) -> set[str]:
        """Return the keys whose values have a unit."""
        fields = cls.model_fields.items()
        return {f.alias or name for name, f in fields if has_unit(f.annotation, f.metadata)}

    def named(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield each name or glob of tasks with its path below the entry."""
        if self.at and self.at.task:
            yield ("at", "task"), self.at.task

    def needs(self) -> Iterator[tuple[str, str]]:
        """Yield requests to the engine, in words, each with the capability that it needs."""
        raise NotImplementedError

    def at_scale(self, scale: float) -> Entry:
        """Return it with the times that it has from its platform divided by `speed`."""
        return self

    def by_default(self, whom: Whom) -> Self:
        """Return it with whom the scenario's signals are for, where it does not say that."""
        return self

    @property
    def parts(self) -> frozenset[str]:
        """The keys of `netem.PROBES` that the engine's kernel must support."""
        return frozenset()

    @property
    def platforms(self) -> frozenset[str]:
        """The platforms whose metadata server announces it, of `notices.ACTIONS`."""
        return frozenset()


class Signalling(Protocol):
    """An engine as every fault may use it."""

    capabilities: frozenset[str]

    def signal(self, task: str, number: int) -> None:
        """Send a signal to a task; nothing happens if it has already ended."""


SHARED, FOLDER = "shared", "/shared"
"""What `on` calls the shared volume, and where it is in a container."""
Via = Literal["delete", "eviction"]


@runtime_checkable
class EndingGrace(Protocol):
    """Capability `own-grace`: the engine itself ends a task, and its grace period."""

    kill_slack: float
    """Seconds after a grace period in which the engine has killed the task, if it ever does."""

    def preempt(self, task: str, grace: float, via: Via | None) -> str:
        """Ask the engine to send SIGTERM, and SIGKILL after `grace` seconds; return at once.

        `via` says how: by deletion, or by eviction, which needs the capability `eviction` and which
        a disruption budget may forbid; None: as the engine does it itself. Returns what it was
        asked for in words, empty if nothing: the task has ended, or was asked already. Raises
        EngineError, also where a budget forbids it.
        """


def ending_grace(engine: Signalling) -> EndingGrace | None:
    """Return an engine that itself ends a task after a grace period; None: it does not."""
    if "own-grace" in engine.capabilities and isinstance(engine, EndingGrace):
        return engine
    return None


@dataclass(frozen=True)
class Cordoned:
    """A node that takes no new tasks."""

    node: str
    tasks: tuple[str, ...]
    """The tasks of this run that run on it, and no others; in the order of the plan."""


@runtime_checkable
class Cordoning(Protocol):
    """Capability `nodes`."""

    def cordon(self, task: str) -> Cordoned:
        """Let the task's node take no new tasks; those that it has stay.

        A node that this fault has cordoned already stays so. Raises EngineError, also where
        somebody else has cordoned it.
        """

    def uncordon(self, task: str) -> None:
        """Undo `cordon` of the same task, wherever that task is now.

        A node that somebody else has cordoned or uncordoned meanwhile stays as it is. Raises
        EngineError.
        """


@runtime_checkable
class Holding(Protocol):
    """Capability `calls`."""

    def hold(
        self, task: str, program: str, request: Mapping[str, Any], told: Callable[[str], None]
    ) -> None:
        """Run a Python program that may trace the processes of a task, until it ends.

        Its argument is the request as JSON, to which the engine adds `below`: the process whose
        descendants are all those of the task, also what has left its session. Each line that it
        prints is `told`. It also ends with this program, or `let_go`. Raises NotRunning,
        EngineError.
        """

    def tell(self, task: str, line: str) -> None:
        """Write a line to the standard input of the program that traces a task, if there is one."""

    def let_go(self, task: str) -> None:
        """End the programs that trace a task, which then goes on."""


Rule = Mapping[str, Any]
"""What a tracer does about calls of a task to the kernel, see `held_call` and those beside it."""
ONCE = ("hang",)
"""Rules of which two that are equal are one."""


@dataclass(frozen=True)
class Effect:
    """What an engine did for a fault, besides what every such fault does."""

    words: str = ""
    """`the node n1 is cordoned`."""
    follow: tuple[FaultSpec, ...] = ()
    """Faults that are part of it: each happens now, and is recorded as one of its own."""
    changed: Mapping[str, Any] | None = None
    """The file that it has changed: its path, its sizes in bytes before and after, and what else
    there is to say."""
    is_milder: bool = False
    """The target was only asked to end, where it was to be killed."""


NOTHING_MORE = Effect()

Capability = TypeVar("Capability")


@dataclass(frozen=True)
class FaultContext:
    """The target that a fault acts on. The calls block and raise EngineError."""

    engine: Signalling
    """The run's engine; it has the capability of the fault's kind."""
    task: str
    """The target, also where that is no task."""
    cpus: float | None
    """The limit that the scenario sets for the task, in cores."""
    update_links: Callable[[], None]
    """Gives the engine all network links that should exist now, those of this fault included."""
    active: Sequence[FaultSpec] = ()
    """The held faults that are in force on the task now: this one as well, until it is healed."""
    follow: Callable[[Sequence[Rule]], Sequence[Mapping[str, Any]]] | None = None
    """Has the tracer of the task follow these rules for held faults, and no others. Returns what it
    said of each when it was in force. Raises NotRunning, EngineError."""
    at_call: bool = False
    """A task is held before a call with which the fault happens, and goes on only after this."""
    announced: float = 0.0
    """When the fault was announced, or happens (seconds since 1970)."""
    since: float = 0.0
    """When the task, or the first of all, was first started (seconds since 1970): older files came
    with the program. 0: it is not known."""

    def trace(self, fault: FaultSpec | None = None) -> Mapping[str, Any]:
        """Have the task traced for all held faults in force on it that need this, and no others.

        Returns what its tracer said when that was so of one of them; nothing of one that has been
        healed, as when its task ended before the call was made. Raises NotRunning, EngineError.
        """
        assert self.follow is not None, "tasks are traced"
        rules: list[Rule] = []
        for rule in [one.rule for one in self.active if one.rule is not None]:
            if rule["do"] not in ONCE or rule not in rules:
                rules.append(rule)
        said = self.follow(rules)
        return {} if fault is None or fault.rule not in rules else said[rules.index(fault.rule)]

    def engine_as(self, protocol: type[Capability]) -> Capability:
        """Return the engine with the methods of a capability."""
        assert isinstance(self.engine, protocol), "refused before the run starts"
        return self.engine


class FaultSpec(Entry):
    """One kind of fault: what users write, and how it is performed, described and drawn."""

    capability: ClassVar[str] = ""
    """The capability that the engine must have; empty: none."""
    request: ClassVar[str] = ""
    """The request to an engine, for its refusal; {} is the target."""
    protocols: ClassVar[Mapping[str, type]] = {}
    """The methods that the kind needs of an engine, by the capability that has them."""
    lasting: ClassVar[bool] = False
    """It lasts for a time and is then healed; the target's processes stay."""
    is_held: ClassVar[bool] = False
    """It is a state of its target's processes: those that replace them have it as well."""
    ends_with_target: ClassVar[bool] = False
    """It is over when its target ends: what starts again is as the scenario says."""
    ends_target: ClassVar[bool] = False
    restarts_target: ClassVar[bool] = False
    """It restarts its target itself; otherwise the restart policy decides."""
    replaces_target: ClassVar[bool] = False
    """The target restarts on a fresh disk, as on another machine."""
    blocks_job: ClassVar[bool] = False
    """It may stop the progress of the whole job without ending a task."""
    one_by_one: ClassVar[bool] = False
    """Several targets are hit one after the other, each after the job has recovered."""
    of_tasks: ClassVar[bool] = True
    """Its target is a task, or a glob of them; otherwise it is one fault, whatever tasks there are,
    which happens while the job runs."""
    target_key: ClassVar[str] = ""
    """The field that names its target, where that is not the one of its kind."""
    is_found_first: ClassVar[bool] = False
    """What it changes is written down before it is changed, so that it is not changed twice."""
    lists_groups: ClassVar[bool] = False
    """Its target is a list of groups of tasks, not a name."""
    applied: ClassVar[str] = "{} is impaired"
    """How the history describes its effect; {} is the target."""
    healed: ClassVar[str] = "{} is back"
    ended: ClassVar[str] = "{} was ended"
    """How a sentence says that it ended its target, if it does."""
    state: ClassVar[str] = "impaired"
    """The state of its target on a chart, while the target runs under the fault."""
    colour: ClassVar[str] = "impaired"
    """The colour of that state, defined in the report's stylesheet."""

    @property
    def target(self) -> str:
        """A task's name or a glob, or what it names instead."""
        return str(getattr(self, self.target_key or self.kind))

    @property
    def rule(self) -> Rule | None:
        """What the tracer of its target does while it lasts; None: it needs none."""
        return None

    @property
    def hits_tasks(self) -> bool:
        """Whether its targets are tasks, see `of_tasks`."""
        return self.of_tasks

    def aimed_at(self, target: str) -> FaultSpec:
        """Return the same fault of one of its targets."""
        named = {self.target_key or self.kind: target} if self.hits_tasks else {}
        return self.model_copy(update=named)

    @property
    def gives_notice(self) -> bool:
        """Whether the target gets time to save a checkpoint."""
        return False

    @property
    def announced_before(self) -> float:
        """Seconds from its announcement to the fault itself; 0: it comes unannounced."""
        return 0.0

    @property
    def is_healed(self) -> bool:
        """Whether it is over when it has been healed; otherwise when it has been applied."""
        return self.lasting or self.restarts_target

    @property
    def sends(self) -> str:
        """The signal by which it asks its target to end; `none`: it does not ask."""
        return "none"

    @property
    def to_all(self) -> bool:
        """Whether that is for all processes of its target, not for its own command alone."""
        return False

    @property
    def kills_after(self) -> float | None:
        """Seconds from SIGTERM to SIGKILL; None: the target never gets SIGKILL."""
        return None

    @property
    def heals_after(self) -> float:
        """Seconds from its effect until it is healed automatically; infinite: never."""
        raise NotImplementedError

    @property
    def downtime(self) -> float:
        """Seconds after which the target surely works again."""
        return self.announced_before + (self.kills_after or 0.0) + self.heals_after + SETTLED

    def timeline(self) -> Iterator[tuple[float, str]]:
        """Yield what it does as its platform does it: seconds since it begins, and words.

        Nothing where it follows no platform.
        """
        yield from ()

    def announce(self, target: FaultContext) -> None:
        """Tell the target of the fault to come; blocks; again after a take-over.

        Raises NotRunning, EngineError.
        """
        raise NotImplementedError

    def find(
        self, target: FaultContext, found: Mapping[str, Any] | None
    ) -> tuple[Mapping[str, Any], Callable[[], Effect]]:
        """Return what it will change, and what changes it; blocks. Raises NotRunning, EngineError.

        `found`: what was returned to an emulator that was killed, and may have changed it.
        """
        raise NotImplementedError

    def apply(self, target: FaultContext) -> Effect | None:
        """Make the fault happen; blocks. Raises EngineError."""
        raise NotImplementedError

    @property
    def repeats_after(self) -> float | None:
        """Seconds from its signal to the same once more; None: it comes once."""
        return None

    def repeat(self, target: FaultContext) -> None:
        """Send its signal once more; blocks. Raises EngineError."""
        raise NotImplementedError

    def end_grace(self, target: FaultContext) -> None:
        """Kill the target, which has not ended in its grace period; blocks. Raises EngineError."""
        target.engine.signal(target.task, signal.SIGKILL)

    def heal(self, target: FaultContext) -> None:
        """Undo a lasting fault; blocks. Raises EngineError."""
        raise NotImplementedError

    def named(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield each name or glob of tasks with its path below the entry."""
        if self.hits_tasks:
            yield (self.target_key or self.kind,), self.target
        yield from super().named()

    def needs(self) -> Iterator[tuple[str, str]]:
        """Yield requests to the engine, in words, each with the capability that it needs."""
        if self.capability:
            yield self.request.format(self.target), self.capability
        for platform in sorted(self.platforms):
            yield from asked_of_engine(platform, self.target)
        if self.at and self.at.call:
            yield f"a fault before a {self.at.call} of {self.at.task or self.target}", "calls"

    @property
    def at_once(self) -> int:
        """How many targets a random fault draws each time."""
        return 1

    def hits(self, targets: Sequence[str]) -> Sequence[str]:
        """Return which of the tasks that its target matches it hits."""
        return targets

    def at_scale(self, scale: float) -> FaultSpec:
        """Return it with the times that it has from its platform divided by `speed`."""
        return self

    def conflict(self, tasks: Sequence[str]) -> str:
        """Describe a conflict between existing targets; empty if there is none."""
        return ""

    def links(self, tasks: Sequence[str]) -> tuple[Link, ...]:
        """Return a link with the fault's effect for each ordered pair of tasks that it affects."""
        return ()


class LastingFault(FaultSpec):
    """A fault that lasts for a time."""

    model_config = ConfigDict(validate_by_name=True)
    lasting = True
    for_: Annotated[DurationOrForever, Field(alias="for")] = Field(
        description="Seconds, or `forever`: until the run ends or it is healed by hand.",
    )

    @property
    def heals_after(self) -> float:
        """Seconds from its effect until it is healed automatically; infinite: never."""
        return self.for_


# --- Names of files and tasks ---------------------------------------------------------------------


def path_pattern(glob: str) -> str:
    """Return the regular expression of the paths that an `of` means (pure).

    What begins with `/shared` is meant in the folder that tasks have there as processes as well.
    After a `!`, all other paths are meant.
    """
    if glob.startswith("!"):
        return f"(?!{path_pattern(glob[1:])}$).*"
    from emulator.faults.saved_files import translated  # only what is watched needs it

    pattern: str = translated(glob.lstrip("/"))
    if not glob.startswith("/"):
        return f"(?:.*/)?{pattern}"
    return f"{'.*' * glob.startswith('/shared/')}/{pattern}"


@functools.lru_cache(maxsize=1000)
def _glob(pattern: str) -> Callable[[str], object]:
    """Return the matcher of a glob; the cache of fnmatch is smaller."""
    return re.compile(fnmatch.translate(pattern)).match


def is_glob(pattern: str) -> bool:
    """Return whether a pattern can match several tasks."""
    return any(char in pattern for char in "*?[")


def matches(pattern: str, tasks: Sequence[str]) -> list[str]:
    """Return the tasks that a name or glob matches."""
    if not is_glob(pattern):
        return [pattern] if pattern in tasks else []
    match = _glob(pattern)
    return [task for task in tasks if match(task)]


class HeldFault(LastingFault):
    """A lasting fault that is a state of its target's processes.

    A state is the sum of all active faults of its kind, so that two of them never undo each other.
    Processes that replace the target's are brought into it as well.
    """

    is_held = True

    @classmethod
    def settle(cls, target: FaultContext, active: Sequence[Any]) -> None:
        """Bring the target into the state that these faults of the kind cause together; blocks.

        Without any it is as the scenario says. Raises NotRunning, EngineError.
        """
        raise NotImplementedError

    @classmethod
    def active_of_kind(cls, active: Sequence[FaultSpec]) -> list[FaultSpec]:
        """Return the faults of this kind."""
        return [one for one in active if isinstance(one, cls)]

    def apply(self, target: FaultContext) -> Effect | None:
        """Bring the target into the state of all faults, of which this is one."""
        self.settle(target, self.active_of_kind(target.active))
        return None

    def heal(self, target: FaultContext) -> None:
        """Bring the target into the state of the faults that are left."""
        with contextlib.suppress(NotRunning):  # what runs next has no more than those
            self.settle(target, self.active_of_kind(target.active))
