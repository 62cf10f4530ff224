"""The Docker engine: one container a task, and the images that tasks run in."""

from __future__ import annotations

from emulator.engines.docker.warm.starts import WarmStarts as DockerEngine

__all__ = ["DockerEngine"]
