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
    """When a task that has ended is restarted; see `emulator/supervisor/restart_policy.py`."""

    policy: RestartPolicy = "never"
    scope: RestartScope = "task"
    limit: int = Field(strict=True, default=5, ge=0)
    backoff: Duration | None = None
    """Seconds before the first restart; doubled for each further one, up to five minutes.

    Default: BACKOFF; in a job of the training operator that of the kubelet.
    """
    stall: Duration | None = None
    """Seconds without a step after which the training tasks count as failed."""

    @property
    def first_backoff(self) -> float:
        """Seconds before the first restart."""
        return BACKOFF if self.backoff is None else self.backoff
