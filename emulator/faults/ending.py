"""Faults that end their target.

What follows, the restart policy decides; or the fault starts its target again itself, as a
preemption does.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Literal, Protocol, runtime_checkable

from pydantic import Field, ValidationInfo, model_validator

from emulator.faults.spec import Effect, EndingGrace, FaultContext, FaultSpec, Via, ending_grace
from emulator.validation.fields import Duration, DurationOrForever, Glob, is_stored


@runtime_checkable
class Terminating(Protocol):
    """An engine whose `signal` also removes the task when it gets SIGTERM."""

    def terminate(self, task: str) -> None:
        """Send SIGTERM and nothing else; nothing happens if the task has ended.

        Raises EngineError.
        """


@runtime_checkable
class PowerCutting(Protocol):
    """Capability `silent-loss`; its engines have `network` as well."""

    def cut_power(self, task: str) -> None:
        """Kill a task and all that it has started, so that no packet tells its peers.

        Its name and address stay, and answer nothing, until the task is started again after a
        `remove`. Its exit is reported as after SIGKILL; nothing happens if it has already ended.
        Raises EngineError.
        """


class EndingFault(FaultSpec):
    """A fault that ends its target's process; it took effect when the process has exited."""

    ends_target = True

    @property
    def kills(self) -> bool:
        """Whether the target has no chance to end cleanly."""
        return False

    @property
    def is_silent(self) -> bool:
        """Whether the target's peers get no packet that says that it has ended."""
        return False

    @property
    def same_address(self) -> bool:
        """Whether a target that it restarts must have its old address."""
        return False

    @property
    def heals_after(self) -> float:
        """Seconds from the exit until it starts the target again."""
        return 0.0

    @property
    def means(self) -> Via | None:
        """How an engine that ends the grace period itself is asked; None: as it likes."""
        return None

    def apply(self, target: FaultContext) -> Effect | None:
        """Cut the target's power, have the engine end it in its grace period, or signal it."""
        if self.is_silent:
            target.engine_as(PowerCutting).cut_power(target.task)
        elif self.kills_after is not None and (engine := ending_grace(target.engine)):
            return Effect(engine.preempt(target.task, self.kills_after, self.means))
        else:
            target.engine.signal(target.task, signal.SIGKILL if self.kills else signal.SIGTERM)
        return None

    def other_cause(self, exit_code: int, *, oom_killed: bool) -> str:
        """Describe what else ended the target; empty if it was this fault.

        A target that was asked to end may do so with any code. One that was killed has no choice.
        """
        if self.kills and exit_code == 0:
            return f"ended otherwise, with {exit_code}"
        return ""


class GracefulFault(EndingFault):
    """A fault that asks its target to end, and restarts it itself."""

    restarts_target = True
    protocols = {"own-grace": EndingGrace}
    grace: Duration = Field(default=30.0, description="Seconds between SIGTERM and SIGKILL.")

    @property
    def kills_after(self) -> float | None:
        """Seconds from SIGTERM to SIGKILL; None: the target gets no SIGTERM."""
        return self.grace


# --- The kinds ------------------------------------------------------------------------------------


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

    def other_cause(self, exit_code: int, *, oom_killed: bool) -> str:
        """Describe what else ended the target; empty if it was this fault."""
        if self.is_silent and (oom_killed or exit_code != 128 + signal.SIGKILL):
            return f"ended otherwise, with {exit_code}"
        return ""


class Kill(EndingFault):
    """SIGKILL now; the disk is kept."""

    kind = "kill"

    kill: Glob
    """The task, or a glob such as `worker-*`."""

    @property
    def kills(self) -> bool:
        """Whether the target has no chance to end cleanly."""
        return True


class Terminate(EndingFault):
    """SIGTERM and nothing else; the disk is kept."""

    kind = "terminate"

    terminate: Glob
    """The task, or a glob such as `worker-*`."""

    @property
    def gives_notice(self) -> bool:
        """Whether the target gets time to save a checkpoint."""
        return True

    def apply(self, target: FaultContext) -> Effect | None:
        """Send SIGTERM, which must not remove the task."""
        if not isinstance(target.engine, Terminating):
            return super().apply(target)
        target.engine.terminate(target.task)
        return None


class Restart(GracefulFault):
    """One by one: SIGTERM, `grace`, SIGKILL, restarted; the next one after the job's next step."""

    kind = "restart"
    one_by_one = True

    restart: Glob
    """The task, or a glob such as `worker-*`."""


@runtime_checkable
class OomKilling(Protocol):
    """Capability `oom`."""

    def oom_kill(self, task: str) -> None:
        """Make the kernel kill a task for lack of memory.

        Returns once it is dead and has its limit again; raises EngineError where it survives.
        """


class Oom(EndingFault):
    """Its memory limit is lowered until the kernel kills it; the restart policy decides."""

    kind = "oom"
    capability, request = "oom", "running {} out of memory"
    protocols = {"oom": OomKilling}

    oom: Glob
    """The task, or a glob such as `worker-*`."""

    @property
    def kills(self) -> bool:
        """Whether the target has no chance to end cleanly."""
        return True

    def apply(self, target: FaultContext) -> None:
        """Lower its memory limit."""
        target.engine_as(OomKilling).oom_kill(target.task)

    def other_cause(self, exit_code: int, *, oom_killed: bool) -> str:
        """Describe what else ended the target; empty if it was this fault."""
        return "" if oom_killed else f"ended otherwise, with {exit_code}"
