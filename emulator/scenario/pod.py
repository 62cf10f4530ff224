"""What a scenario says about the other containers of a task: init steps and side-cars.

They follow the containers of a Kubernetes pod. Init steps run one after the other, each to exit
code 0, before the program of a task that starts on a fresh disk; side-cars run beside it.
https://kubernetes.io/docs/concepts/workloads/pods/init-containers/
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from emulator.scenario.container import ContainerBase
from emulator.scenario.image import Image
from emulator.validation.fields import Command, Env
from emulator.validation.limits import PARTS

# A label of RFC 1123, as the names of a pod's containers.
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def _name(name: str) -> str:
    if not _NAME.fullmatch(name):
        hint = "lower-case letters, digits and dashes, at most 63"
        raise ValueError(f"{name!r} is not the name of a container: {hint}")
    return name


class PodContainer(ContainerBase):
    """A container of a task beside its own."""

    name: Annotated[str, AfterValidator(_name)] = Field(examples=["fetch"])
    """Its name, unique in the role."""
    command: Command = []
    """What it runs; empty: the image's own command."""
    env: Env = {}
    """Its variables, besides those with the values of its task."""
    image: Image | None = None
    """Its image; default: the task's."""


InitSteps = Annotated[
    list[PodContainer],
    Field(max_length=PARTS, examples=[[{"name": "fetch", "command": ["python", "fetch.py"]}]]),
]
Sidecars = Annotated[
    list[PodContainer],
    Field(max_length=PARTS, examples=[[{"name": "proxy", "image": "envoy:1"}]]),
]
