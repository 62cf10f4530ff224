"""The preemption of a task, as clouds do it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from emulator.faults.spec import GracefulFault
from emulator.validation.fields import DurationOrForever, Glob


class Preempt(GracefulFault):
    """SIGTERM, `grace`, SIGKILL if it still runs, `down`, then restarted on a fresh disk."""

    kind = "preempt"
    capability, request = "replace", "preempting {}"
    replaces_target = gives_notice = True

    preempt: Glob
    down: DurationOrForever = Field(
        default=10.0, description="Seconds until it is back, or `forever`."
    )
    address: Literal["new", "same"] | None = Field(
        default=None, description="Its address when it is back; with Docker a new one by default."
    )

    warm: bool = Field(strict=True, default=False)
    """Its replacement has imported its framework before, in a run that starts warm."""

    @property
    def heals_after(self) -> float:
        """Seconds from the exit until the target restarts."""
        return self.down

    @property
    def same_address(self) -> bool:
        """Whether the target must have its old address."""
        return self.address == "same"

    def needs(self) -> Iterator[tuple[str, str]]:
        """Yield requests to the engine, in words, each with the capability that it needs."""
        yield from super().needs()
        if self.address:
            article = "a new" if self.address == "new" else "the same"
            yield f"{article} address for {self.target}", f"{self.address}-address"
