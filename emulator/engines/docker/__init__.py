"""The Docker engine: one container a task, and the images that tasks run in."""

from __future__ import annotations

from emulator.engines.docker.engine import DockerEngine

__all__ = ["DockerEngine"]
