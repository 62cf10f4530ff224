"""The preemption of a task, as clouds do it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Literal, Protocol, runtime_checkable

from pydantic import Field, ValidationInfo, model_validator

from emulator.faults.spec import Effect, FaultContext, GracefulFault, Via
from emulator.validation.fields import DurationOrForever, Glob, is_stored


@runtime_checkable
class PowerCutting(Protocol):
    """Capability `silent-loss`; its engines have `network` as well."""

    def cut_power(self, task: str) -> None:
        """Kill a task and all that it has started, so that no packet tells its peers.

        Its name and address stay, and answer nothing, until the task is started again after a
        `remove`. Its exit is reported as after SIGKILL; nothing happens if it has already ended.
        Raises EngineError.
        """


class Preempt(GracefulFault):
    """SIGTERM, `grace`, SIGKILL if it still runs, `down`, then restarted on a fresh disk."""

    kind = "preempt"
    capability, request = "replace", "preempting {}"
    protocols = {**GracefulFault.protocols, "silent-loss": PowerCutting}
    replaces_target = True

    preempt: Glob
    """The task, or a glob such as `worker-*`."""
    down: DurationOrForever = Field(
        default=10.0, description="Seconds until it is back, or `forever`."
    )
    address: Literal["new", "same"] | None = Field(
        default=None, description="Its address when it is back; with Docker a new one by default."
    )
    loss: Literal["silent"] | None = Field(
        default=None,
        description="`silent`: it loses power; no notice, no packet, and its name stays.",
    )

    via: Via | None = Field(
        default=None,
        description="On a cluster by `delete`, its own way, or by `eviction`, which a disruption "
        "budget may forbid.",
    )
    warm: bool = Field(
        strict=True,
        default=False,
        description="Its replacement has imported its framework before, in a run that starts warm.",
    )

    @model_validator(mode="after")
    def _no_notice(self, info: ValidationInfo) -> Preempt:
        if self.loss and "grace" in self.model_fields_set and not is_stored(info):
            raise ValueError("`loss: silent` comes without notice; leave `grace` out")
        if self.loss and self.via:
            raise ValueError("`loss: silent` asks nobody; leave `via` out")
        return self

    @property
    def is_silent(self) -> bool:
        """Whether the target's peers get no packet that says that it has ended."""
        return self.loss == "silent"

    @property
    def kills(self) -> bool:
        """Whether the target has no chance to end cleanly."""
        return self.is_silent

    @property
    def gives_notice(self) -> bool:
        """Whether the target gets time to save a checkpoint."""
        return not self.is_silent

    @property
    def kills_after(self) -> float | None:
        """Seconds from SIGTERM to SIGKILL; None: the target gets no SIGTERM."""
        return None if self.is_silent else self.grace

    @property
    def heals_after(self) -> float:
        """Seconds from the exit until the target restarts."""
        return self.down

    @property
    def same_address(self) -> bool:
        """Whether the target must have its old address."""
        return self.address == "same"

    @property
    def parts(self) -> frozenset[str]:
        """The keys of `netem.PROBES` that the engine's kernel must support."""
        return frozenset({"iptables"} if self.is_silent else ())

    def needs(self) -> Iterator[tuple[str, str]]:
        """Yield requests to the engine, in words, each with the capability that it needs."""
        yield from super().needs()
        if self.address:
            article = "a new" if self.address == "new" else "the same"
            yield f"{article} address for {self.target}", f"{self.address}-address"
        if self.is_silent:
            yield f"a silent loss of {self.target}", "silent-loss"
        if self.via:
            by_deletion = self.via == "delete"
            way = "deletion" if by_deletion else "eviction"
            yield f"preempting {self.target} by {way}", "own-grace" if by_deletion else "eviction"

    @property
    def means(self) -> Via | None:
        """How an engine that ends the grace period itself is asked; None: as it likes."""
        return self.via

    def apply(self, target: FaultContext) -> Effect | None:
        """Ask the target to end, or cut its power."""
        if not self.is_silent:
            return super().apply(target)
        target.engine_as(PowerCutting).cut_power(target.task)
        return None

    def other_cause(self, exit_code: int, *, oom_killed: bool) -> str:
        """Describe what else ended the target; empty if it was this fault."""
        if self.is_silent and (oom_killed or exit_code != 128 + signal.SIGKILL):
            return f"ended otherwise, with {exit_code}"
        return ""
