"""The table of fault kinds, and how an entry of `faults:` is read by it."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import (
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
    PlainValidator,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from emulator.faults.kill import Kill, Terminate
from emulator.faults.network import Partition, Shape
from emulator.faults.oom import Oom
from emulator.faults.pause import Pause
from emulator.faults.preempt import Preempt
from emulator.faults.restart import Restart
from emulator.faults.spec import Entry, FaultSpec, matches
from emulator.faults.throttle import Throttle
from emulator.validation.fields import LONGEST, Duration, DurationOrForever, Glob, Model, once
from emulator.validation.files import text_of
from emulator.validation.limits import TRACE_BYTES, TRACE_ROWS

__all__ = [
    "FAULTS",
    "AnyEntry",
    "OneFault",
    "RandomFaults",
    "TraceFaults",
    "TraceRow",
    "entries",
    "states",
]

FAULTS: dict[str, type[FaultSpec]] = {
    kind.kind: kind
    for kind in (Preempt, Kill, Terminate, Restart, Oom, Pause, Throttle, Partition, Shape)
}
"""Every kind of fault, by the key that users write. A new kind is one class and its name here."""


def states() -> dict[str, str]:
    """Return the states of tasks that run under a fault, each with its colour."""
    return {kind.state: kind.colour for kind in FAULTS.values() if kind.lasting}


Kind = TypeVar("Kind", bound=Entry)

# --- Reading --------------------------------------------------------------------------------------


def _fault(value: object, info: ValidationInfo) -> FaultSpec:
    """Read a fault without a trigger: inside `random`, of a plan, or by hand."""
    if isinstance(value, FaultSpec):
        return value
    given = _given(value)
    kinds = [kind for kind in FAULTS if kind in given]
    _refuse_unknown(given, _known(FAULTS) - {"at", "name"})
    if not kinds:
        raise ValueError("it does not say what is done to whom")
    return _read(kinds, given, FAULTS, info)


def _entry(value: object, info: ValidationInfo) -> Entry:
    """Read an entry of `faults:`."""
    if isinstance(value, Entry):
        return value
    given = _given(value)
    table = entries()
    kinds = [kind for kind in table if kind in given]
    if "trace" in kinds and len(kinds) > 1:
        raise ValueError("`trace` says itself what is preempted, and when")
    if "random" in kinds and (len(kinds) > 1 or "at" in given):
        raise ValueError("`random` has its fault inside and happens `every` so often")
    _refuse_unknown(given, _known(table))
    if not kinds:
        raise ValueError(f"a fault is one of {', '.join(FAULTS)}, random or trace")
    inside = given.get("random")
    if isinstance(inside, Mapping) and not (
        inside.keys() - _known(FAULTS) or FAULTS.keys() & inside
    ):
        raise ValueError(f"`random` needs one of {', '.join(FAULTS)} inside")
    entry = _read(kinds, given, table, info)
    if isinstance(entry, FaultSpec) and entry.at is None:
        raise ValueError("when? `at: 40s`, `at: {step: 120}`, {log: ...} or {phase: ...}")
    return entry


def entries() -> Mapping[str, type[Entry]]:
    """Return every kind of entry of `faults:`."""
    return {**FAULTS, RandomFaults.kind: RandomFaults, TraceFaults.kind: TraceFaults}


def _given(value: object) -> dict[str, Any]:
    """Return the keys of an entry that have a value. Raises ValidationError."""
    if not isinstance(value, Mapping):
        Entry.model_validate(value)  # which says that it is no mapping
    assert isinstance(value, Mapping)
    return {key: given for key, given in value.items() if given is not None}


def _known(table: Mapping[str, type[Entry]]) -> set[str]:
    return {key for kind in table.values() for key in kind.key_fields()}


def _refuse_unknown(given: Mapping[str, object], known: set[str]) -> None:
    """Raise ValidationError where there are other keys."""
    Model.model_validate({key: value for key, value in given.items() if key not in known})


def _read(
    kinds: Sequence[str],
    given: Mapping[str, object],
    table: Mapping[str, type[Kind]],
    info: ValidationInfo,
) -> Kind:
    """Read an entry of one kind.

    Raises ValueError where it is of several kinds, or has an option of another.
    """
    if len(kinds) > 1:
        raise ValueError(f"{' and '.join(kinds)} in one entry; write one entry for each")
    kind = table[kinds[0]]
    own = kind.key_fields()
    for key, value in given.items():
        others = [name for name, other in table.items() if key in other.key_fields()]
        if key not in own and others and value not in (False, 0):
            raise ValueError(f"`{key}` is an option of {' and '.join(others)}")
    said = {key: value for key, value in given.items() if key in own}
    return kind.model_validate(said, context=info.context)


class _Schema:
    """Makes the JSON schema: any of the kinds that the table has when it is asked for."""

    def __init__(self, *, whole: bool) -> None:
        self._whole = whole

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the schema of all kinds."""
        table = entries() if self._whole else FAULTS
        kinds = [handler(kind.__pydantic_core_schema__) for kind in table.values()]
        if not self._whole:
            for kind in kinds:
                del kind["properties"]["at"], kind["properties"]["name"]
        return {"anyOf": kinds}


_SERIALIZED = PlainSerializer(lambda entry, info: entry.model_dump(mode=info.mode))

OneFault = Annotated[FaultSpec, PlainValidator(_fault), _SERIALIZED, _Schema(whole=False)]
"""A fault without a trigger."""
AnyEntry = Annotated[Entry, PlainValidator(_entry), _SERIALIZED, _Schema(whole=True)]
"""An entry of `faults:`."""


# --- Entries that make several faults -------------------------------------------------------------


class RandomFaults(Entry):
    """Faults at random times against random targets, from a seed."""

    kind = "random"

    random: OneFault
    every: Duration = None  # type: ignore[assignment]
    seed: int | None = Field(default=None, strict=True)
    """The seed; the scenario's own where nothing is said."""
    max: int = Field(default=10, strict=True, ge=1, le=1000)
    jitter: Duration = 0.0
    """Seconds, give or take, around `every`."""

    @model_validator(mode="after")
    def _sound(self) -> RandomFaults:
        if not self.every:
            raise ValueError("`random` needs `every`: the mean time between two, such as `30s`")
        if self.random.lists_groups:
            raise ValueError(
                f"`random` has one target each time; `{self.random.kind}` names groups"
            )
        return self

    def named(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield each name or glob of tasks, with the keys under which it stands."""
        yield from ((("random", *path), name) for path, name in self.random.named())

    def needs(self) -> Iterator[tuple[str, str]]:
        """Yield what is asked of an engine, in words, and the capability that it takes."""
        yield from self.random.needs()

    def count(self, tasks: Sequence[str]) -> int:
        """Return the greatest number of faults."""
        return self.max

    def link_count(self, tasks: Sequence[str]) -> int:
        """Return the number of ordered pairs of tasks whose network changes, at most."""
        return self.random.link_count(tasks)

    @property
    def parts(self) -> frozenset[str]:
        """What of `netem.PROBES` the engine's kernel needs."""
        return self.random.parts


class TraceRow(Model):
    """One preemption of a trace."""

    time: float = Field(ge=0, le=LONGEST)
    """Seconds since the beginning of the trace."""
    target: Glob
    down: float = Field(ge=0, le=LONGEST)
    """Seconds until the node was replaced."""


COMMENTS = 1000
"""Lines of a trace that are no rows, at most."""


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
        above = next((n for n, line in enumerate(lines) if not line.startswith("#")), 0)
        rows = csv.DictReader("" if line.startswith("#") else line for line in lines[above:])
        found = [(above + rows.line_num, row) for row in rows]
    except (ValueError, RuntimeError, csv.Error) as error:
        raise ValueError(f"the trace {path} can't be read: {error}") from None
    return [_row(row, f"the trace {path}, line {line}") for line, row in found]


def _row(row: Mapping[str, object], where: str) -> TraceRow:
    try:
        return TraceRow.model_validate(row)
    except ValidationError as error:
        key = error.errors()[0]["loc"][0]
        raise ValueError(
            f"{where}: {key or 'a column too many'} won't do; "
            "a row has time, target and down, in seconds"
        ) from None


class TraceFaults(Entry):
    """Preemptions as they were recorded, `at` a time or else from the beginning of the run."""

    kind = "trace"

    trace: Annotated[tuple[TraceRow, ...], Field(max_length=TRACE_ROWS), BeforeValidator(_rows)]
    """A CSV file with the columns time, target and down, in seconds; or such rows."""
    speed: float = Field(default=1.0, strict=True, ge=1e-6, le=1e9)
    """How many times faster than it was recorded a trace is replayed."""
    grace: Duration = 30.0
    """Seconds between SIGTERM and SIGKILL."""
    down: DurationOrForever | None = None
    """Seconds until a task is back, in place of those of the rows."""

    @model_validator(mode="after")
    def _begins(self) -> TraceFaults:
        if self.at is not None and self.at.time is None:
            raise ValueError("`at` of a trace is the time when it begins, such as `10s`")
        return self

    def named(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield each name or glob of tasks, with the keys under which it stands."""
        yield from ((("trace",), row.target) for row in self.trace)

    def needs(self) -> Iterator[tuple[str, str]]:
        """Yield what is asked of an engine, in words, and the capability that it takes."""
        yield "preempting by a trace", Preempt.capability

    def count(self, tasks: Sequence[str]) -> int:
        """Return the number of preemptions."""
        rows = Counter(row.target for row in self.trace)
        return sum(times * len(matches(target, tasks)) for target, times in rows.items())
