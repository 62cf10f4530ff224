"""Sections of a scenario that plug-ins add: keys with a pydantic model of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from pydantic import BeforeValidator
from pydantic.fields import FieldInfo

from emulator.runtime import plugins

if TYPE_CHECKING:
    from pydantic import BaseModel

    from emulator.errors import UsageError
    from emulator.scenario.addresses import Naming
    from emulator.scenario.document import KeyPath
    from emulator.scenario.frameworks.spec import Member, Roles
    from emulator.scenario.restart import RestartPolicy
    from emulator.scenario.schema import Scenario

_broken: dict[str, UsageError] = {}
SECTIONS: Mapping[str, type[BaseModel]] = dict(plugins.added("sections", _broken))
"""Every section by its key."""
RULES = tuple(name for name, kind in SECTIONS.items() if hasattr(kind, "policy_of"))
"""Those that are `JobRules`."""


def section_fields(core: type[BaseModel]) -> dict[str, Any]:
    """Return the fields of a scenario for all sections, as `pydantic.create_model` takes them.

    Nothing takes the place of what the `core` has: its own keys and properties.
    """
    fields: dict[str, Any] = {}
    for name, kind in SECTIONS.items():
        about = " ".join((kind.__doc__ or "").split())
        fields[name] = (kind | None, FieldInfo(default=None, description=about))
    for name, error in _broken.items():
        fields[name] = (Annotated[Any, BeforeValidator(_refusing(error))], None)
    taken = {*core.model_fields, *dir(core)}
    return {name: field for name, field in fields.items() if name not in taken}


def _refusing(error: UsageError) -> Callable[[object], object]:
    """Return a validator that refuses the key of a plug-in which can't be loaded."""

    def refuse(value: object) -> object:
        raise ValueError(f"{error.message} {error.hint}")

    return refuse


class AnyElastic(Protocol):
    """An elastic job of torchrun."""

    @property
    def max_restarts(self) -> int | None:
        """How often an agent starts its processes again."""

    @property
    def rdzv_host(self) -> str | None:
        """Where the agents meet; None: at a task that the job chooses."""


class JobRules(Protocol):
    """A section by whose rules the job is named, restarts and ends: those of another system."""

    @property
    def key(self) -> str:
        """Its key in a scenario."""

    def strategy(self) -> type[Any]:
        """Return the class of what follows from the events of a run: a supervisor's `Strategy`."""

    def conditions(self, timeline: Any) -> list[dict[str, Any]]:  # noqa: ANN401  of a layer above
        """Return what that system would say of the job over time, for the summary."""

    def policy_of(self, role: str) -> RestartPolicy:
        """Return the restart policy of a role's tasks."""

    def errors(self, scenario: Scenario) -> Iterator[tuple[KeyPath, str, str]]:
        """Yield each mistake: its path, what is wrong, and what to write instead."""

    def rules(self, roles: Sequence[str]) -> Iterator[str]:
        """Yield the lines of `emulate plan` on what decides the end of the job."""

    @property
    def job(self) -> str:
        """The name of the job there."""

    @property
    def elastic(self) -> AnyElastic | None:
        """What makes the job elastic, if it is."""

    @property
    def roles(self) -> Roles | None:
        """What the roles of its tasks mean; None: as in the framework."""

    def naming(self, roles: Sequence[str]) -> Naming:
        """Return how the tasks are named on the network."""

    def environment(self, member: Member, members: Sequence[Member]) -> Mapping[str, str]:
        """Return the variables by which a task finds the others; of two the task has these."""

    def pod_labels(self, roles: Sequence[str], role: str, index: int) -> Mapping[str, str]:
        """Return the labels of a task's pod; `roles` are those of the job."""
