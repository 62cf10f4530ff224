"""Faults as Python writes them: `emulator.Preempt("worker-1", at=emulator.Step(300), grace=5)`.

There is a constructor for each kind of fault, made from its fields; `constructors.pyi` has their
types for editors and type checkers (`scripts/write_constructors.py` writes it). Their results are
entries of `faults`, in a dict, a `Scenario` or `set=`.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BeforeValidator, ValidationError
from pydantic.fields import FieldInfo

from emulator.errors import UsageError
from emulator.faults.spec import Entry, FaultSpec, Trigger
from emulator.faults.table import RandomFaults, TraceFaults, as_written, entries
from emulator.scenario.messages import explain

_TARGETS: dict[str, str] = {RandomFaults.kind: "FaultSpec", TraceFaults.kind: "str | PathLike[str]"}
"""What kinds that are no faults take first."""


def constructors() -> dict[str, Callable[..., Entry]]:
    """Return the constructor of every kind of entry of `faults:`, by its name."""
    return {_name(kind): constructor(entry) for kind, entry in entries().items()}


def _name(kind: str) -> str:
    """Return the name of a kind's constructor: `FillDisk` for `fill_disk`."""
    return "".join(word.capitalize() for word in kind.split("_"))


def constructor(kind: type[Entry]) -> Callable[..., Entry]:
    """Return a function that makes entries of a kind; it raises UsageError for wrong values."""
    accepted = signature(kind)

    def make(*target: object, **options: object) -> Entry:
        given = accepted.bind(*target, **options).arguments
        what: Any = list(given.pop("groups")) if "groups" in given else given.pop("target")
        try:
            return kind.model_validate(as_written({kind.kind: what, **given}))
        except ValidationError as error:
            problems = [_problem(kind, detail) for detail in error.errors(include_url=False)]
            raise UsageError("; ".join(dict.fromkeys(problems)) + ".") from None

    make.__name__ = make.__qualname__ = _name(kind.kind)
    make.__doc__ = documentation(kind)
    make.__signature__ = accepted  # type: ignore[attr-defined]
    return make


def _problem(kind: type[Entry], detail: Any) -> str:  # noqa: ANN401  pydantic's
    what, hint = explain({**detail, "loc": ("faults", 0, *detail["loc"])})
    where = ".".join(map(str, detail["loc"]))
    text = f"{_name(kind.kind)}: {where}: {what}" if where else f"{_name(kind.kind)}: {what}"
    return f"{text}; {hint}" if hint else text


def documentation(kind: type[Entry]) -> str:
    """Return the documentation of a kind, and of its options."""
    described = {key: field.description for key, field in _options(kind) if field.description}
    lines = [inspect.cleandoc(kind.__doc__ or ""), ""]
    lines += [f"- `{_parameter(key)}`: {text}" for key, text in described.items()]
    lines.append("- `at`: seconds since all tasks ran, or Step, Log, Phase, After, Recovery.")
    return "\n".join(lines)


# --- Signatures -----------------------------------------------------------------------------------


def signature(kind: type[Entry]) -> inspect.Signature:
    """Return the parameters of a kind's constructor; times are in seconds, or text such as `5s`."""
    several = issubclass(kind, FaultSpec) and kind.lists_groups
    first = inspect.Parameter(
        "groups" if several else "target",
        inspect.Parameter.VAR_POSITIONAL if several else inspect.Parameter.POSITIONAL_ONLY,
        annotation="list[str]" if several else _TARGETS.get(kind.kind, "str"),
    )
    options = [
        inspect.Parameter(
            _parameter(key),
            inspect.Parameter.KEYWORD_ONLY,
            annotation="When | None"
            if key == "at"
            else _type_text(field.annotation, field.metadata),
            default=inspect.Parameter.empty if field.is_required() else field.get_default(),
        )
        for key, field in _options(kind)
    ]
    options.sort(key=lambda one: one.default is not inspect.Parameter.empty)
    made = FaultSpec if issubclass(kind, FaultSpec) else Entry
    return inspect.Signature([first, *options], return_annotation=made.__name__)


def _options(kind: type[Entry]) -> Iterator[tuple[str, FieldInfo]]:
    for key, name in kind.key_fields().items():
        if key != kind.kind:
            yield key, kind.model_fields[name]


def _parameter(key: str) -> str:
    """Return the parameter of a key; `for` is a word of Python's own."""
    return f"{key}_" if key == "for" else key


def _type_of(field: FieldInfo) -> str:
    return _type_text(field.annotation, field.metadata)


def _type_text(annotation: Any, metadata: list[Any]) -> str:  # noqa: ANN401  types
    """Return what a field takes, as text."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type_text(arguments[0], [*arguments[1:], *metadata])
    if origin in (Union, types.UnionType):
        texts = (_type_text(one, []) for one in arguments)
        return " | ".join(dict.fromkeys(text for one in texts for text in one.split(" | ")))
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, arguments))}]".replace("'", '"')
    if annotation is type(None):
        return "None"
    name = str(getattr(annotation, "__name__", annotation))
    is_parsed = name in ("int", "float") and any(isinstance(m, BeforeValidator) for m in metadata)
    return f"{name} | str" if is_parsed else name


# --- Triggers -------------------------------------------------------------------------------------


def _trigger(**keys: object) -> Trigger:
    written: Mapping[str, object] = as_written(keys)
    try:
        return Trigger.model_validate(written)
    except ValidationError as error:
        texts = (explain(detail)[0] for detail in error.errors(include_url=False))
        raise UsageError("; ".join(texts) + ".") from None


def Step(step: int, *, task: str | None = None) -> Trigger:
    """At the first step event with at least this step; `task`: of these tasks only, a glob."""
    return _trigger(step=step, task=task)


def Log(expression: str, *, task: str | None = None) -> Trigger:
    """At the first line of output in which this regular expression is found."""
    return _trigger(log=expression, task=task)


def Phase(phase: str, *, task: str | None = None) -> Trigger:
    """The first time that a phase begins: `checkpoint` is while one is being written."""
    return _trigger(phase=phase, task=task)


def After(fault: str, *, delay: float | str = 0) -> Trigger:
    """`delay` after another fault, by its `name` or number, has taken effect."""
    return _trigger(after=fault, delay=delay)


def Recovery(fault: str, *, delay: float | str = 0) -> Trigger:
    """`delay` after the job's first step after another fault."""
    return _trigger(recovery=fault, delay=delay)


TRIGGERS = (Step, Log, Phase, After, Recovery)


def names() -> list[str]:
    """Return the names of all constructors, of faults and of triggers."""
    return [*map(_name, entries()), *(trigger.__name__ for trigger in TRIGGERS)]


def __getattr__(name: str) -> Callable[..., Entry]:
    """Return the constructor of a kind of fault."""
    try:
        return constructors()[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
