"""Restart policies of a scenario in the words of Kubernetes (pure)."""

from __future__ import annotations

import math

from emulator.scenario.schema import Scenario


def seconds(duration: float | None) -> int | None:
    """Return a duration in whole seconds, rounded up, as Kubernetes counts them."""
    return None if duration is None else max(1, math.ceil(duration))


def limit(scenario: Scenario) -> int:
    """Return how often a task may be restarted."""
    return 0 if scenario.restart.policy == "never" else scenario.restart.limit
