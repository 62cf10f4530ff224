"""Faults that end their target.

What follows, the restart policy decides; or the fault starts its target again itself, as a
preemption does.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, Protocol, runtime_checkable

from pydantic import Field, ValidationInfo, model_validator

from emulator.faults.platform import (
    Action,
    Disk,
    Like,
    Loss,
    Metadata,
    at_scale,
    conflicts,
    fill,
    needs_of,
    timeline,
)
from emulator.faults.platforms.notices import Announcing, Notice
from emulator.faults.signals import (
    WHICH,
    SignallingAll,
    SignalName,
    SignalOrNone,
    Signals,
    deliver,
)
from emulator.faults.spec import (
    Effect,
    EndingGrace,
    FaultContext,
    FaultSpec,
    Via,
    ending_grace,
    matches,
)
from emulator.validation.fields import Duration, DurationOrForever, Glob, is_stored
from emulator.validation.units import format_count


@runtime_checkable
class Terminating(Protocol):
    """An engine whose `signal` also removes the task when it gets SIGTERM."""

    def terminate(self, task: str) -> None:
        """Send SIGTERM and nothing else; nothing happens if the task has ended.

        Raises EngineError.
        """


@runtime_checkable
class Killing(Protocol):
    """An engine that can't always kill a task at once."""

    def kill(self, task: str) -> str:
        """Send SIGKILL; nothing happens if the task has ended.

        Returns what was done where that can't be done, in words; else empty. Raises EngineError.
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
    def may_leave(self) -> bool:
        """Whether an exit between its announcement and its signal is its doing as well."""
        return False

    @property
    def fresh_disk(self) -> bool:
        """Whether a target that it restarts has a fresh disk."""
        return self.replaces_target

    @property
    def heals_after(self) -> float:
        """Seconds from the exit until it starts the target again."""
        return 0.0

    @property
    def means(self) -> Via | None:
        """How an engine that ends the grace period itself is asked; None: as it likes."""
        return None

    def apply(self, target: FaultContext) -> Effect | None:
        """Cut the target's power, or kill it."""
        if self.is_silent:
            target.engine_as(PowerCutting).cut_power(target.task)
        elif isinstance(target.engine, Killing):
            instead = target.engine.kill(target.task)
            return Effect(instead, is_milder=bool(instead))
        else:
            target.engine.signal(target.task, signal.SIGKILL)
        return None

    def other_cause(self, exit_code: int, *, oom_killed: bool) -> str:
        """Describe what else ended the target; empty if it was this fault.

        A target that was asked to end may do so with any code. One that was killed has no choice.
        """
        if self.kills and exit_code == 0:
            return f"ended otherwise, with {exit_code}"
        return ""


def _is_default(default: object) -> Callable[[object], bool]:
    """Return whether a record leaves a value out, so that it reads as one of before presets."""
    return lambda value: value == default


class AskingFault(Signals, EndingFault):
    """A fault that asks its target to end, by a signal."""

    protocols = {"signal-all": SignallingAll}

    @property
    def sends(self) -> str:
        """The signal by which it asks."""
        return getattr(self, "signal", None) or "SIGTERM"

    def needs(self) -> Iterator[tuple[str, str]]:
        """Yield requests to the engine, in words, each with the capability that it needs."""
        yield from super().needs()
        if self.kills:
            return
        if self.to_all:
            yield f"{self.sends} to all processes of {self.target}", "signal-all"
        if self.sends != "SIGTERM":
            yield f"{self.sends} to {self.target}", "signals"

    def apply(self, target: FaultContext) -> Effect | None:
        """Ask it, or have an engine do so that ends grace periods itself."""
        if self.kills:
            return super().apply(target)
        itself = ending_grace(target.engine) if self.is_usual else None
        if itself is not None and self.kills_after is not None:
            return Effect(itself.preempt(target.task, self.kills_after, self.means))
        return deliver(self, target)

    @property
    def is_usual(self) -> bool:
        """Whether it asks as every engine does: by SIGTERM to the target's own command."""
        return self.sends == "SIGTERM" and not self.to_all


class GracefulFault(AskingFault):
    """A fault that asks its target to end, and restarts it itself."""

    restarts_target = True
    protocols = {**AskingFault.protocols, "own-grace": EndingGrace}
    grace: Duration = Field(default=30.0, description="Seconds between SIGTERM and SIGKILL.")

    @property
    def kills_after(self) -> float | None:
        """Seconds from SIGTERM to SIGKILL; None: the target gets no SIGTERM."""
        return self.grace


# --- The kinds ------------------------------------------------------------------------------------


class Preempt(GracefulFault):
    """SIGTERM, `grace`, SIGKILL if it still runs, `down`, then restarted on a fresh disk."""

    kind = "preempt"
    ended = "{} was preempted"
    capability, request = "replace", "preempting {}"
    protocols = {
        **GracefulFault.protocols,
        "silent-loss": PowerCutting,
        "notices": Announcing,
    }
    replaces_target = True

    preempt: Glob
    """The task, or a glob such as `worker-*`."""
    like: Like | None = Field(
        default=None,
        description="A platform, whose values all fields have that are not written.",
        examples=["gce-spot"],
        exclude_if=_is_default(None),
    )
    down: DurationOrForever = Field(
        default=10.0, description="Seconds until it is back, or `forever`."
    )
    address: Literal["new", "same"] | None = Field(
        default=None, description="Its address when it is back; with Docker a new one by default."
    )
    loss: Loss | None = Field(
        default=None,
        description="`silent`: it loses power, as the network sees it; no notice, no packet, and "
        "its name stays. What was written to files stays too. With a `signal` this follows the "
        "`grace`. `closed`: its connections are closed, the default.",
    )
    notice: Duration = Field(
        default=0.0,
        description="Seconds from the notice to the signal.",
        exclude_if=_is_default(0.0),
    )
    metadata: Metadata = Field(
        default="none",
        description="The metadata server that tells it: `gce`, `ec2`, `azure` or `none`.",
        exclude_if=_is_default("none"),
    )
    action: Action | None = Field(
        default=None,
        description="What that says of the machine; default: that it is taken away.",
        exclude_if=_is_default(None),
    )
    signal: SignalOrNone | None = Field(
        default=None,
        description="The signal before `grace`, or `none`; SIGTERM by default.",
        exclude_if=_is_default(None),
    )
    wakes: bool = Field(
        default=False,
        strict=True,
        description="SIGCONT just before the signal, as Slurm does.",
        exclude_if=_is_default(False),
    )
    kill_wait: Duration = Field(
        default=0.0,
        description="The signal once more after `grace`, and SIGKILL so many seconds later, as "
        "Slurm does; 0: SIGKILL after `grace`.",
        exclude_if=_is_default(0.0),
    )
    disk: Disk = Field(
        default="fresh",
        description="Its disk when it is back: `fresh` or `kept`.",
        exclude_if=_is_default("fresh"),
    )
    keep_away: Duration = Field(
        default=0.0,
        description="Seconds before which it is not back, whatever `down` is.",
        exclude_if=_is_default(0.0),
    )
    together: int | None = Field(
        default=None,
        strict=True,
        ge=1,
        description="How many targets of the glob are hit at once; all by default.",
        examples=[3],
        exclude_if=_is_default(None),
    )

    via: Via | None = Field(
        default=None,
        description="On a cluster by `delete`, its own way, or by `eviction`, which a disruption "
        "budget may forbid.",
    )
    warm: bool = Field(
        strict=True,
        default=False,
        description="Start the replacement warm, in a run that starts warm.",
    )

    @model_validator(mode="after")
    def _as_its_platform(self, info: ValidationInfo) -> Preempt:
        if not is_stored(info):
            fill(self)
            for conflict in conflicts(self):
                raise ValueError(conflict)
        return self

    def at_scale(self, scale: float) -> Preempt:
        """Return it with the times of its preset divided; those that are written stay."""
        return at_scale(self, scale)

    @property
    def sends(self) -> str:
        """The signal before `grace`; `none`: it has no chance to end cleanly."""
        return self.signal or ("none" if self.loss == "silent" else "SIGTERM")

    @property
    def platforms(self) -> frozenset[str]:
        """The platforms whose metadata server announces it."""
        return frozenset({self.metadata} - {"none"})

    @property
    def is_silent(self) -> bool:
        """Whether the target's peers get no packet that says that it has ended."""
        return self.loss == "silent"

    @property
    def kills(self) -> bool:
        """Whether the target has no chance to end cleanly."""
        return self.sends == "none"

    @property
    def gives_notice(self) -> bool:
        """Whether the target gets time to save a checkpoint."""
        return not self.kills or self.notice > 0

    @property
    def announced_before(self) -> float:
        """Seconds from its announcement to the signal; 0: it comes unannounced."""
        return self.notice

    @property
    def kills_after(self) -> float | None:
        """Seconds from the signal to SIGKILL; None: the target gets no signal."""
        return None if self.kills else self.grace + self.kill_wait

    @property
    def repeats_after(self) -> float | None:
        """Seconds from the signal to the same once more; None: it comes once."""
        return self.grace if self.kill_wait and not self.kills else None

    @property
    def heals_after(self) -> float:
        """Seconds from the exit until the target restarts."""
        return max(self.down, self.keep_away)

    @property
    def same_address(self) -> bool:
        """Whether the target must have its old address."""
        return self.address == "same"

    @property
    def fresh_disk(self) -> bool:
        """Whether the target restarts on a fresh disk."""
        return self.disk == "fresh"

    @property
    def may_leave(self) -> bool:
        """Whether a target that has been told may end before the signal, and be replaced."""
        return self.notice > 0

    @property
    def at_once(self) -> int:
        """How many targets a random fault draws each time."""
        return self.together or 1

    def hits(self, targets: Sequence[str]) -> Sequence[str]:
        """Return which of the tasks that its target matches it hits: the first ones."""
        return targets[: self.together]

    def conflict(self, tasks: Sequence[str]) -> str:
        """Describe too few targets; empty if there are enough."""
        there = len(matches(self.preempt, tasks))
        if not self.together or not there or there >= self.together:
            return ""
        return f"`together: {self.together}` is more than the {format_count(there, 'target')}"

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
        yield from needs_of(self)

    def timeline(self) -> Iterator[tuple[float, str]]:
        """Yield what it does: seconds since it begins, and words."""
        if self.like or self.notice or self.metadata != "none" or self.signal or self.signals:
            yield from timeline(self)

    @property
    def means(self) -> Via | None:
        """How an engine that ends the grace period itself is asked; None: as it likes."""
        return self.via

    def announce(self, target: FaultContext) -> None:
        """Let its metadata server tell the target; nothing happens if it has none."""
        if self.metadata == "none":
            return
        assert self.action is not None, "filled when it was validated"
        when = target.announced
        notice = Notice(self.metadata, self.action, target.task, when, when + self.notice)
        target.engine_as(Announcing).announce(notice)

    def apply(self, target: FaultContext) -> Effect | None:
        """Tell the target if it has not been told, then cut its power, kill it or signal it."""
        if not self.notice:
            self.announce(target)
        if self.kills or not self.wakes:
            return super().apply(target)
        return deliver(self, target, "SIGCONT")

    def end_grace(self, target: FaultContext) -> None:
        """Cut the target's power or kill it: it has not ended in its grace period."""
        if self.is_silent:
            target.engine_as(PowerCutting).cut_power(target.task)
            return
        super().end_grace(target)

    def repeat(self, target: FaultContext) -> None:
        """Send the signal once more."""
        deliver(self, target, *(["SIGCONT"] if self.wakes else []))

    def other_cause(self, exit_code: int, *, oom_killed: bool) -> str:
        """Describe what else ended the target; empty if it was this fault."""
        if self.kills and (oom_killed or exit_code != 128 + signal.SIGKILL):
            return f"ended otherwise, with {exit_code}"
        return ""


class Kill(EndingFault):
    """SIGKILL now; the disk is kept."""

    kind = "kill"
    ended = "{} was killed"

    kill: Glob
    """The task, or a glob such as `worker-*`."""

    @property
    def kills(self) -> bool:
        """Whether the target has no chance to end cleanly."""
        return True


class Terminate(AskingFault):
    """SIGTERM and nothing else; the disk is kept."""

    kind = "terminate"
    ended = "{} was terminated"

    terminate: Glob
    """The task, or a glob such as `worker-*`."""
    signal: SignalName | None = Field(
        default=None, description=WHICH, examples=["USR1"], exclude_if=_is_default(None)
    )

    @property
    def gives_notice(self) -> bool:
        """Whether the target gets time to save a checkpoint."""
        return True

    def apply(self, target: FaultContext) -> Effect | None:
        """Send its signal, which must not remove the task."""
        if not (self.is_usual and isinstance(target.engine, Terminating)):
            return super().apply(target)
        target.engine.terminate(target.task)
        return None


class Restart(GracefulFault):
    """One by one: SIGTERM, `grace`, SIGKILL, restarted; the next one after the job's next step."""

    kind = "restart"
    ended = "{} was restarted"
    one_by_one = True

    restart: Glob
    """The task, or a glob such as `worker-*`."""
    signal: SignalName | None = Field(
        default=None, description=WHICH, examples=["USR1"], exclude_if=_is_default(None)
    )


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
    ended = "{} ran out of memory"
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
