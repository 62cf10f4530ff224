"""Values of a task in its command and its variables: `${index}`, `${addresses.ps}` (pure).

`${name}` is replaced by a value, and `$${` is the text `${`. Other text that a shell understands
stays as it is: `$HOME`, `$(date)`, `${HOME:-/root}`. A name that does not exist is a mistake, and
so is anything in the braces after the name of a value, as in `${index+1}`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from emulator.errors import UsageError, shown
from emulator.scenario.addresses import DEFAULT_NAMESPACE
from emulator.scenario.frameworks.spec import Member, Roles
from emulator.validation.similar import nearest

PLAIN = (
    "task", "role", "index", "rank", "size", "address", "host", "port", "addresses", "hosts",
    "cluster", "shared", "seed", "pod", "namespace",
)  # fmt: skip
"""The names without a dot; `Values` says what they mean."""
ENV = "env."
"""Before the name of a variable that is a value."""
VARIABLES: Mapping[str, str] = {
    "EMULATOR_TASK": "task",
    "EMULATOR_ROLE": "role",
    "EMULATOR_INDEX": "index",
    "EMULATOR_RANK": "rank",
    "EMULATOR_SIZE": "size",
    "EMULATOR_SHARED": "shared",
    "EMULATOR_SEED": "seed",
}
"""Environment variables of every task: the value that each has."""

# The dollars of a run are matched together: `$${` is not a `$` before a `${`. A dash is part of a
# name only after a dot, because `${HOME-x}` is a shell's default.
_BEGIN = re.compile(r"(?<!\$)(\$++)\{(?:([A-Za-z_]\w*(?:\.[\w.-]*)?)\})?", re.ASCII)
_WORD = re.compile(r"\s*([A-Za-z_]\w*)", re.ASCII)
_SHOWN = 30
"""Characters of a wrong reference in a message."""
LISTED = len(PLAIN)
"""Names in a message, at most."""


@dataclass(frozen=True)
class Template:
    """A text with references to values."""

    literal: tuple[str, ...]
    """The text before each reference, and after the last."""
    names: tuple[str, ...] = ()
    """The referenced names, in order."""
    malformed: tuple[str, ...] = ()
    """What begins as a reference to a value, but does not end after its name."""

    def expand(self, values: Mapping[str, str]) -> str:
        """Return the text with values. Raises KeyError with a name that has none."""
        text = self.literal[0]
        if not self.names:
            return text
        pieces = [text]
        for name, text in zip(self.names, self.literal[1:], strict=True):
            pieces += values[name], text
        return "".join(pieces)


def read(text: str) -> Template:
    """Return a text as a template."""
    literal, names, malformed = list[str](), list[str](), list[str]()
    pieces, at = list[str](), 0
    for found in _BEGIN.finditer(text):
        dollars, name = found.groups()
        pieces.append(text[at : found.start()])
        at = found.end()
        if len(dollars) > 1:
            pieces.append(found[0][1:])
        elif name is not None:
            names.append(name)
            literal.append("".join(pieces))
            pieces = []
        else:
            pieces.append(found[0])
            word = _WORD.match(text, at)
            if word and word[1] in PLAIN:
                end = text.find("}", at, at + _SHOWN) + 1 or at + _SHOWN
                malformed.append(text[found.start() : end])
    literal.append("".join([*pieces, text[at:]]))
    return Template(tuple(literal), tuple(names), tuple(dict.fromkeys(malformed)))


class Expander:
    """Expands texts; it reads each of them once for all tasks."""

    def __init__(self) -> None:
        self._templates: dict[str, Template] = {}

    def __call__(self, text: str, values: Mapping[str, str]) -> str:
        """Return `text` with the values of a task. Raises UsageError for a mistake in it."""
        template = self._templates.get(text)
        if template is None:
            template = self._templates[text] = read(text)
        for message, hint in mistakes(template, values):
            raise UsageError(f"{shown(text)}: {message}.", f"{hint[:1].upper()}{hint[1:]}.")
        return template.expand(values)


def mistakes(template: Template, known: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the references of a text, and what to write instead."""
    for text in template.malformed:
        word = _WORD.match(text, 2)
        instead = f"write ${{{word[1]}}}" if word else ""
        yield f"{text} is not a reference to a value", f"{instead}, or ${text} for the text itself"
    for name in template.names:
        if name not in known:
            hint = f"{_similar(name, known)} For the text itself, write $${{{name}}}"
            yield f"there is no value ${{{name}}}", hint


def _similar(name: str, known: Collection[str]) -> str:
    """Return a sentence with the most similar name, or with names that there are."""
    kind, dot, rest = name.partition(".")
    of_kind = [one for one in known if one.startswith(f"{kind}.")] if dot else []
    if of_kind:
        near = nearest(rest, [one.partition(".")[2] for one in of_kind])
        near = f"{kind}.{near}" if near else ""
    else:
        near = nearest(kind, PLAIN)
    listed = ", ".join((of_kind or PLAIN)[:LISTED])
    return f"did you mean ${{{near}}}?" if near else f"there are {listed}."


class Values:
    """The values of all tasks of a cluster; docs/scenario.md describes them."""

    def __init__(
        self,
        roles: Roles,
        members: Sequence[Member],
        *,
        shared: str,
        seed: int,
        helpers: Mapping[str, Member] = MappingProxyType({}),
        before_training: Collection[str] = (),
        namespace: str = DEFAULT_NAMESPACE,
    ) -> None:
        """`members` are all tasks in the order of the scenario; `shared` is a path in a task.

        `helpers` are those of the scenario by name, which are in no list of tasks.
        `before_training` are the roles that end before it: their tasks have no rank.
        """
        self._helpers = helpers
        training = [member for member in members if member.role not in before_training]
        order = roles.ranked(training)
        self._ranks = {_name(member): str(rank) for rank, member in enumerate(order)}
        # Those that are the same for all tasks.
        self.common = {
            "size": str(len(order)),
            "addresses": ",".join(member.address for member in order),
            "hosts": ",".join(member.host for member in order),
            "cluster": json.dumps(_cluster(roles, training)),
            "shared": shared,
            "seed": str(seed),
            "namespace": namespace,
        }
        by_role: dict[str, list[Member]] = {}
        for member in members:
            by_role.setdefault(member.role, []).append(member)
            place = _place(member).items()
            self.common |= {f"{kind}.{_name(member)}": text for kind, text in place}
        for name, helper in helpers.items():
            self.common |= {f"{kind}.{name}": text for kind, text in _place(helper).items()}
        for role, tasks in by_role.items():
            self.common |= {
                f"addresses.{role}": ",".join(task.address for task in tasks),
                f"hosts.{role}": ",".join(task.host for task in tasks),
                f"size.{role}": str(len(tasks)),
            }

    def values_of(self, member: Member) -> Mapping[str, str]:
        """Return the values of one task."""
        return self.common | self.own_values(member)

    def helper_values(self, name: str) -> Mapping[str, str]:
        """Return the values of a helper, which has no role, index or rank."""
        return self.common | {"task": name, "pod": name, **_place(self._helpers[name])}

    def own_values(self, member: Member) -> dict[str, str]:
        """Return the values that only this task has; one that does not train has no `rank`."""
        name = _name(member)
        own = {
            "task": name,
            "role": member.role,
            "index": str(member.index),
            "pod": member.pod or name,
            **_place(member),
        }
        if name in self._ranks:
            own["rank"] = self._ranks[name]
        return own


def values_of_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Return the values that are the variables by which a task finds the others."""
    return {f"{ENV}{name}": text for name, text in env.items()}


def variables(values: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables with the values of a task."""
    return {name: values[value] for name, value in VARIABLES.items() if value in values}


def _cluster(roles: Roles, members: Sequence[Member]) -> dict[str, list[str]]:
    """Return the addresses of each role, without the evaluator, as in TF_CONFIG."""
    cluster: dict[str, list[str]] = {}
    for member in members:
        if member.role not in roles.outside:
            cluster.setdefault(member.role, []).append(member.address)
    return cluster


def _place(member: Member) -> dict[str, str]:
    return {"address": member.address, "host": member.host, "port": str(member.port)}


def _name(member: Member) -> str:
    return f"{member.role}-{member.index}"
