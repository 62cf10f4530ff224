"""The volumes that a run makes for its tasks."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from emulator.validation.fields import Model, Size
from emulator.validation.limits import MIB


def _at_least_a_mebibyte(size: int) -> int:
    if size < MIB:
        raise ValueError("a volume can't be smaller than 1m")
    return size


class SharedVolume(Model):
    """The volume that all tasks have."""

    size: Annotated[Size, AfterValidator(_at_least_a_mebibyte)] | None = None
    """Its size, from the start; it is then in memory, and its tasks get a real ENOSPC when it is
    full. Default: that of the disk on which it is."""


class Volumes(Model):
    """The volumes that a run makes."""

    shared: SharedVolume = SharedVolume()
    """The volume that all tasks have, /shared."""
