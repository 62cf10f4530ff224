"""The process engine: tasks as processes of this machine, without Docker."""

from __future__ import annotations

from emulator.engines.process.engine import ProcessEngine

__all__ = ["ProcessEngine"]
