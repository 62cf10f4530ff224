"""What the rate of a run is held against, as it stands in its plan (pure)."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Stored", "Yardstick"]


class Stored(BaseModel):
    """What a scenario came to once, for later runs to be held against."""

    model_config = ConfigDict(frozen=True)

    steps_per_second: float = Field(gt=0, allow_inf_nan=False)
    of_reference: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Its rate as a share of that of its reference, run in the same session."""
    engine: str
    machine: str
    """Rates are compared on such a machine only; shares of a reference on any."""
    measured: str
    """The day, as 2026-11-20."""


class Yardstick(BaseModel):
    """What one run is held against; it stands in the plan, so that a verdict needs no more."""

    model_config = ConfigDict(frozen=True)

    baseline: Stored | None = None
    reference: float | None = None
    """Steps per second of the reference variant, run in the same session."""
    reference_run: str = ""
    """Its run id."""
    reference_came: str = ""
    """Where it gave no rate, what came of it."""
    machine: str
    """Where this run is."""
    storing: bool = False
    """What it comes to becomes the baseline."""
