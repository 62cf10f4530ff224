"""Section `restart` of a scenario: when a task that has ended is restarted."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from emulator.validation.fields import Duration, Model

RestartPolicy = Literal["never", "on-failure", "always", "exit-code"]
RestartScope = Literal["task", "job"]
BACKOFF = 1.0
"""Seconds."""


class Restart(Model):
    """When a task that has ended is restarted."""

    policy: RestartPolicy = "never"
    """After which exits a task is started again: `exit-code` means those by a signal (128 and
    above)."""
    scope: RestartScope = "task"
    """`task` restarts the task that has ended, `job` restarts all tasks together."""
    limit: int = Field(strict=True, default=5, ge=0, examples=[3])
    """The most restarts, of each task or of the job; with one more, the job fails."""
    backoff: Duration | None = None
    """The delay before the first restart; it doubles each time, up to five minutes. Default: `1s`;
    with `operator` that of Kubernetes, `10s`, and before the second of a container."""
    stall: Duration | None = Field(None, examples=["2m"])
    """The time without a step after which the training tasks count as failed; default: none."""

    @property
    def first_backoff(self) -> float:
        """Seconds before the first restart."""
        return BACKOFF if self.backoff is None else self.backoff
