"""The table of fault kinds, and the parsing of entries of `faults:`."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from emulator.errors import UsageError
from emulator.faults.checkpoint import Checkpoint
from emulator.faults.disk import Disk
from emulator.faults.held import Pause, Throttle
from emulator.faults.network import Partition, Shape
from emulator.faults.preempt import Kill, Oom, Preempt, Restart, Terminate
from emulator.faults.signals import Signals, Whom
from emulator.faults.spec import Entry, FaultSpec
from emulator.faults.traced import Hang, Visibility
from emulator.runtime import plugins
from emulator.validation.fields import LONGEST, Duration, DurationOrForever, Glob, Model, once
from emulator.validation.files import text_of
from emulator.validation.limits import TRACE_BYTES, TRACE_ROWS

FAULTS: dict[str, type[FaultSpec]] = {
    kind.kind: kind
    for kind in (
        Preempt,
        Kill,
        Terminate,
        Restart,
        Oom,
        Pause,
        Throttle,
        Partition,
        Shape,
        Checkpoint,
        Disk,
        Visibility,
        Hang,
    )
}
"""Every kind of fault, by the key that users write. A new kind is one class and its name here,
and in `emulator/__init__.py`; plug-ins add theirs."""
_broken: dict[str, UsageError] = {}
FAULTS |= {n: kind for n, kind in plugins.added("faults", _broken) if n not in FAULTS}


def states() -> dict[str, str]:
    """Return the states of tasks that run under a fault, each with its colour."""
    return {kind.state: kind.colour for kind in FAULTS.values() if kind.lasting}


_REMOVED = {
    "abort": "`kill` or `terminate` ends a task",
    "exception": "`kill` ends a task, and a program of your own can raise what it likes",
    "nan_loss": "a program of your own can make its loss NaN",
    "slow_input": "`throttle` slows a task down, `pause` and `hang` stop it",
    "swallow_sigterm": "a program of your own can start children that ignore SIGTERM",
}
"""What to do instead of a fault of a kind that an earlier version had."""


def refusal(given: Mapping[str, Any]) -> str:
    """Return why a well-known fault can't be done, and what can; empty: it may be (pure)."""
    for kind in sorted(_REMOVED.keys() & given.keys()):
        return f"`{kind}` was removed: {_REMOVED[kind]}"
    for kind in sorted((_broken.keys() - FAULTS.keys()) & given.keys()):
        return f"{_broken[kind].message} {_broken[kind].hint}"
    if "power_loss" in given or given.get("loss") == "power":
        return (
            "a power loss that drops what the kernel has not written yet needs a file system of "
            "its own (FUSE), which ordinary containers don't have; `preempt` with `loss: silent` "
            "is the network's side of it, and `checkpoint: torn`, or `at: {write: 3}` of a `kill`, "
            "leaves a file that was cut short"
        )
    return ""


# --- Parsing --------------------------------------------------------------------------------------

_MAPPING = TypeAdapter(dict[str, Any], config=ConfigDict(defer_build=True))


def entries() -> Mapping[str, type[Entry]]:
    """Return every kind of entry of `faults:`."""
    return {**FAULTS, RandomFaults.kind: RandomFaults, TraceFaults.kind: TraceFaults}


class _AnyKind:
    """A value of any kind that the table has at that time, as a type of pydantic.

    One that has no trigger is inside `random`, of a plan, or injected by hand.
    """

    def __init__(self, *, has_trigger: bool) -> None:
        self._has_trigger = has_trigger

    @property
    def _table(self) -> Mapping[str, type[Entry]]:
        return entries() if self._has_trigger else FAULTS

    def parse(self, value: object, info: ValidationInfo) -> Entry:
        """Parse a mapping as the one kind whose key it has; a parsed value stays as it is.

        Raises ValidationError, and ValueError if there is no such key, several, or another kind's.
        """
        table = self._table
        if isinstance(value, Entry if self._has_trigger else FaultSpec):
            entry = value
        else:
            given = {k: v for k, v in _MAPPING.validate_python(value).items() if v is not None}
            if refused := refusal(given):
                raise ValueError(refused)
            known = {key for kind in table.values() for key in kind.key_fields()}
            known -= set() if self._has_trigger else {"at", "name"}
            Model.model_validate({key: item for key, item in given.items() if key not in known})
            kinds = [key for key in table if key in given]
            # A kind may have an option that is called as another kind is: `disk` of a preemption.
            kinds = [key for key in kinds if table[key].key_fields().keys() >= {*kinds}] or kinds
            if not kinds:
                raise ValueError(f"a fault is one of {', '.join(table)}")
            if len(kinds) > 1:
                raise ValueError(f"{' and '.join(kinds)} in one entry; write one entry for each")
            kind = table[kinds[0]]
            for key in given.keys() - kind.key_fields().keys():
                others = [name for name, other in table.items() if key in other.key_fields()]
                raise ValueError(f"`{key}` is an option of {' and '.join(others)}")
            entry = kind.model_validate(given, context=info.context)
        if self._has_trigger and isinstance(entry, FaultSpec) and entry.at is None:
            raise ValueError("when? `at: 40s`, `at: {step: 120}`, {log: ...} or {phase: ...}")
        return entry

    def __get_pydantic_core_schema__(self, _: object, __: GetCoreSchemaHandler) -> CoreSchema:
        """Have it parsed so, and dumped as what it is."""
        return core_schema.with_info_plain_validator_function(self.parse)

    def __get_pydantic_json_schema__(
        self, _: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the JSON schema of all kinds."""
        kinds = [
            kind.__get_pydantic_json_schema__(kind.__pydantic_core_schema__, handler)
            for kind in self._table.values()
        ]
        for kind in () if self._has_trigger else kinds:
            del kind["properties"]["at"], kind["properties"]["name"]
        return {"anyOf": kinds}


OneFault = Annotated[FaultSpec, _AnyKind(has_trigger=False)]
"""A fault without a trigger."""
AnyEntry = Annotated[Entry, _AnyKind(has_trigger=True)]
"""An entry of `faults:`."""


# --- Entries that make several faults -------------------------------------------------------------


class RandomFaults(Entry):
    """Faults at random times against random targets, from a seed.

    They begin with the run, at the time `at`, or with another trigger: the first one has it then.
    """

    kind = "random"

    random: OneFault = Field(examples=[{"preempt": "worker-*", "grace": "2s", "down": "5s"}])
    """The fault; its target is a task, or a glob from which one is drawn each time."""
    every: Annotated[Duration, Field(gt=0)] = Field(description="The mean time between two faults.")
    seed: int | None = Field(
        default=None, strict=True, description="The seed; default: the scenario's.", examples=[7]
    )
    max: int = Field(default=10, strict=True, ge=1, le=1000, examples=[4])
    """How many such faults there are at most."""
    jitter: Duration = Field(default=0.0, description="Seconds, give or take, around `every`.")

    @property
    def fills_volume(self) -> bool:
        """Whether its faults fill the shared volume."""
        return self.random.fills_volume

    @model_validator(mode="after")
    def _checked(self) -> RandomFaults:
        if self.random.lists_groups:
            raise ValueError(
                f"`random` has one target each time; `{self.random.kind}` names groups"
            )
        return self

    def named(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield each name or glob of tasks with its path below the entry."""
        yield from ((("random", *path), name) for path, name in self.random.named())
        yield from super().named()

    def needs(self) -> Iterator[tuple[str, str]]:
        """Yield requests to the engine, in words, each with the capability that it needs."""
        yield from self.random.needs()

    def at_scale(self, scale: float) -> RandomFaults:
        """Return it with the times that its fault has from its platform divided."""
        return self.model_copy(update={"random": self.random.at_scale(scale)})

    def by_default(self, whom: Whom) -> RandomFaults:
        """Return it with whom its fault's signals are for, where that does not say it."""
        return self.model_copy(update={"random": self.random.by_default(whom)})

    @property
    def parts(self) -> frozenset[str]:
        """The keys of `netem.PROBES` that the engine's kernel must support."""
        return self.random.parts

    @property
    def platforms(self) -> frozenset[str]:
        """The platforms whose metadata server announces it, of `notices.ACTIONS`."""
        return self.random.platforms


class TraceRow(Model):
    """One preemption of a trace."""

    time: float = Field(ge=0, le=LONGEST, examples=[12.5])
    """Seconds since the beginning of the trace."""
    target: Glob
    """The task, or a glob such as `worker-*`."""
    down: float = Field(ge=0, le=LONGEST, examples=[30])
    """Seconds until the node was replaced."""


COMMENTS = 1000
"""Lines of a trace that are not rows, at most."""


def _rows(value: object, info: ValidationInfo) -> object:
    """Read a trace from its file; rows stay as they are."""
    if not isinstance(value, str):
        return value
    path = Path((info.context or {}).get("folder", "."), value)
    return once(info, ("trace", path), lambda: _read_rows(path))


def _read_rows(path: Path) -> list[TraceRow]:
    """Return the rows of a trace. Raises ValueError with its name, and the line of a bad row."""
    try:
        path = path.expanduser()
        lines = text_of(path, TRACE_BYTES).splitlines()
        if len(lines) > TRACE_ROWS + COMMENTS:
            raise ValueError(f"it has more than {TRACE_ROWS:,} rows")
        header = next((n for n, line in enumerate(lines) if not line.startswith("#")), 0)
        reader = csv.DictReader("" if line.startswith("#") else line for line in lines[header:])
        rows = [(header + reader.line_num, row) for row in reader]
    except (ValueError, RuntimeError, csv.Error) as error:
        raise ValueError(f"the trace {path} can't be read: {error}") from None
    parsed = []
    for line, row in rows:
        try:
            parsed.append(TraceRow.model_validate(row))
        except ValidationError as error:
            key = error.errors()[0]["loc"][0] or "a column too many"
            message = f"{key} is invalid; a row has time, target and down, in seconds"
            raise ValueError(f"the trace {path}, line {line}: {message}") from None
    return parsed


_TRACE = "A CSV file with the columns time, target and down, in seconds; or such rows."


class TraceFaults(Signals):
    """Recorded preemptions, from the beginning of the run, the time `at`, or another trigger on."""

    kind = "trace"

    trace: Annotated[
        tuple[TraceRow, ...],
        Field(max_length=TRACE_ROWS, description=_TRACE),
        BeforeValidator(_rows),
    ]
    speed: float = Field(
        default=1.0,
        strict=True,
        ge=1e-6,
        le=1e9,
        description="The factor by which a trace is replayed faster than it was recorded.",
        examples=[60],
    )
    grace: Duration = Field(default=30.0, description="Seconds between SIGTERM and SIGKILL.")
    down: DurationOrForever | None = Field(
        default=None, description="Seconds until a task is back, instead of those of the rows."
    )
    after_recovery: bool = Field(
        default=False,
        strict=True,
        description="Whether the times between preemptions count from the job's recovery.",
    )

    def named(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield each name or glob of tasks with its path below the entry."""
        yield from ((("trace",), row.target) for row in self.trace)

    def preemption(self, row: TraceRow, target: str) -> Preempt:
        """Return the preemption of one of the targets of a row."""
        down = row.down / self.speed if self.down is None else self.down
        down = down if down == math.inf else round(min(down, LONGEST), 3)
        return Preempt.model_construct(
            preempt=target, grace=self.grace, down=down, signals=self.signals
        )

    def needs(self) -> Iterator[tuple[str, str]]:
        """Yield requests to the engine, in words, each with the capability that it needs."""
        yield "preempting by a trace", Preempt.capability
        if self.to_all:
            yield "SIGTERM to all processes of what a trace preempts", "signal-all"
