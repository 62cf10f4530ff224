"""Faults of the network between tasks: sets of links, which `netem.py` turns into commands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from emulator.faults.netem import Link
from emulator.faults.spec import FaultContext, LastingFault, matches
from emulator.validation.fields import LATEST, Duration, Glob, Rate, Share


class NetworkFault(LastingFault):
    """What all faults of the network share."""

    capability: ClassVar[str] = "network"
    healed = "the network of {} is as before"

    def apply(self, target: FaultContext) -> None:
        """Add its links to those of the run."""
        target.update_links()

    def heal(self, target: FaultContext) -> None:
        """Remove its links."""
        target.update_links()

    def link(self, source: str, target: str) -> Link:
        """Return its effect on packets from one task to another."""
        raise NotImplementedError

    @property
    def parts(self) -> frozenset[str]:
        """The keys of `netem.PROBES` that the engine's kernel must support."""
        return self.link("", "").parts


class Partition(NetworkFault):
    """Groups of tasks that can't reach each other `for` a time."""

    kind = "partition"
    request = "a partition of {}"
    of_tasks = False
    blocks_job = lists_groups = True
    applied = "there is no way between {}"
    state, colour = "cut off", "cut-off"

    partition: Annotated[list[Annotated[list[Glob], Field(min_length=1)]], Field(min_length=2)] = (
        Field(examples=[[["chief-0"], ["worker-*"]]])
    )
    """The groups of tasks that can't reach each other; tasks in no group reach all."""
    oneway: bool = Field(default=False, description="Only what the first group sends.")

    @property
    def target(self) -> str:
        """The groups."""
        return " | ".join(",".join(group) for group in self.partition)

    def named(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield each name or glob of tasks with its path below the entry."""
        for number, group in enumerate(self.partition):
            for index, name in enumerate(group):
                yield ("partition", number, index), name
        yield from super().named()

    def conflict(self, tasks: Sequence[str]) -> str:
        """Name a task that is in more than one group, if there is one."""
        group_of: dict[str, int] = {}
        for number, group in enumerate(self._groups(tasks)):
            for task in group:
                if group_of.setdefault(task, number) != number:
                    return f"{task} is in two groups"
        return ""

    def links(self, tasks: Sequence[str]) -> tuple[Link, ...]:
        """Return the links between the groups."""
        groups = self._groups(tasks)
        return tuple(
            self.link(source, target)
            for one, other in permutations(range(len(groups)), 2)
            if one == 0 or not self.oneway
            for source in groups[one]
            for target in groups[other]
        )

    def link(self, source: str, target: str) -> Link:
        """Return its effect on packets from one task to another."""
        return Link(source, target, loss=1.0)

    def _groups(self, tasks: Sequence[str]) -> list[list[str]]:
        return [
            [task for name in group for task in matches(name, tasks)] for group in self.partition
        ]


class Shape(NetworkFault):
    """The task's network is slow, narrow or lossy `for` a time."""

    kind = "shape"
    request = "shaping the network of {}"
    applied = "the network of {} is impaired"

    shape: Glob
    """The task, or a glob such as `worker-*`."""
    to: Glob | None = Field(
        default=None,
        description="The tasks, by name or glob, towards which the network is shaped; all by "
        "default.",
    )
    oneway: bool = Field(default=False, description="Only what the shaped task sends.")
    delay: Duration = Field(default=0.0, description="Seconds by which each packet is late.")
    jitter: Duration = Field(default=0.0, description="Seconds, give or take, around the delay.")
    loss: Share = Field(
        default=0.0,
        examples=["5%"],
        description="The share of packets that is lost, 0 to 1, or `5%`.",
    )
    bandwidth: Rate | None = Field(
        default=None, description="Bits per second that each of the tasks can send."
    )

    @model_validator(mode="after")
    def _effect(self) -> Shape:
        if not (self.delay or self.loss or self.bandwidth):
            raise ValueError("`shape` needs `delay`, `loss` or `bandwidth`")
        if max(self.delay, self.jitter) > LATEST:
            raise ValueError(f"a packet can be late by {LATEST:.0f}s at most")
        if self.jitter and not self.delay:
            raise ValueError("`jitter` needs a `delay`, which it varies")
        return self

    def named(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield each name or glob of tasks with its path below the entry."""
        yield from super().named()
        if self.to is not None:
            yield ("to",), self.to

    def links(self, tasks: Sequence[str]) -> tuple[Link, ...]:
        """Return the links from the shaped tasks, and back unless it is one way."""
        others = matches(self.to, tasks) if self.to else tasks
        pairs = [(a, b) for a in matches(self.shape, tasks) for b in others if a != b]
        if not self.oneway:
            pairs += [(b, a) for a, b in pairs]
        return tuple(self.link(source, target) for source, target in dict.fromkeys(pairs))

    def link(self, source: str, target: str) -> Link:
        """Return its effect on packets from one task to another."""
        return Link(source, target, self.delay, self.jitter, self.loss, self.bandwidth)
