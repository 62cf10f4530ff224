"""Extensions: systems whose rules a job may follow, each in a folder that nothing else imports.

The layers ask for the parts that are theirs, which are loaded then, by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from emulator.scenario.addresses import Naming
    from emulator.scenario.document import KeyPath
    from emulator.scenario.frameworks.spec import Member, Roles
    from emulator.scenario.restart import RestartPolicy
    from emulator.scenario.schema import Scenario

FOLDERS = ("emulator.plugins.kubeflow",)
"""Each has a table `ADDED`."""


def added(name: str) -> Iterator[Any]:
    """Yield what the extensions have under a name.

    `section`: the class of `operator:` in a scenario, an `AnyOperator`; `formats`: those of
    manifests; `conditions`: what a job's timeline becomes in a summary; what `AnyOperator.strategy`
    names: the class of what follows from the events of a job.
    """
    for folder in FOLDERS:
        module, _, attribute = import_module(folder).ADDED[name].partition(":")
        yield getattr(import_module(f"{folder}.{module}"), attribute)


class AnyElastic(Protocol):
    """An elastic job of torchrun."""

    @property
    def max_restarts(self) -> int | None:
        """How often an agent starts its processes again."""

    @property
    def rdzv_host(self) -> str | None:
        """Where the agents meet; None: at a task that the job chooses."""


class AnyOperator(Protocol):
    """Section `operator`: another system, by whose rules the job is named, restarts and ends."""

    @property
    def strategy(self) -> str:
        """The name among what is `added` of the class of what follows from events."""

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
    def namespace(self) -> str:
        """Where it is."""

    @property
    def backoff_limit(self) -> int | None:
        """Restarts of all tasks together after which the job fails; None: no limit."""

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
