"""The shared volume of a run with Docker, where it has a size: kept, filled, and given room again.

Such a volume is in memory (tmpfs). The engine empties it when the last container that has it ends,
so a helper has it as long as the run goes on. What fills it is another helper: both are found by
the run's label, whoever has started them.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import docker
from docker.errors import APIError, NotFound

from emulator.engines.docker.connection import Frames, remove_container, streamed
from emulator.engines.docker.container_request import (
    RUN,
    container_name,
    files_request,
    holder_request,
)
from emulator.errors import EngineError

HELD, FULL = "shared.held", "shared.full"
"""Names of the helpers, behind that of the run; no task has a point in its own."""
WAIT = ("sh", "-c", "exec tail -f /dev/null")


def hold(
    api: docker.APIClient, image: str, resources: str, labels: Mapping[str, str]
) -> dict[str, Any]:
    """Have a helper keep the run's volume as it is, until the run is removed; return its request.

    Raises EngineError where its image can't, APIError.
    """
    request = holder_request(image, resources, [*WAIT], labels)
    made = api.create_container_from_config(request, container_name(resources, HELD))["Id"]
    try:
        api.start(made)
    except APIError as error:
        remove_container(api, made)
        raise EngineError(
            f"The shared volume can't be kept: the image {image} has no sh and tail "
            f"({str(error.explanation)[:200]}).",
            "Use an image that has them, or leave shared_size out.",
        ) from None
    return request


def fill(
    api: docker.APIClient, image: str, resources: str, command: list[str], labels: Mapping[str, str]
) -> int:
    """Have a helper fill the run's volume; return how many bytes it has taken.

    One that does already goes on. Raises EngineError, APIError.
    """
    name = container_name(resources, FULL)
    with contextlib.suppress(NotFound):
        found = api.inspect_container(name)
        if found["Config"]["Labels"].get(RUN) != resources:
            raise EngineError(f"There is a container {name} already, which this run did not make.")
        if found["State"]["Running"] and (full := _answer(api, found["Id"])) is not None:
            return full
        remove_container(api, found["Id"])
    request = files_request(image, resources, command, labels)
    helper: str = api.create_container_from_config(request, name)["Id"]
    try:
        api.start(helper)
        if (full := _answer(api, helper)) is not None:
            return full
        said = api.logs(helper).decode("utf-8", "replace").strip()[-300:]
        with contextlib.suppress(ValueError, KeyError, TypeError):
            said = json.loads(said)["error"]
        raise EngineError(f"The shared volume could not be filled: {said}.")
    except BaseException:
        remove_container(api, helper)
        raise


def _answer(api: docker.APIClient, helper: str) -> int | None:
    """Wait for the first line of a helper; return the bytes that it has taken. None: it failed."""
    query: dict[str, str | int] = {"follow": 1, "stdout": 1, "stderr": 1}
    frames, text = Frames(), b""
    with contextlib.closing(streamed(api, "GET", f"/containers/{helper}/logs", query=query)) as log:
        for data in log.iter_content(None):  # as it arrives
            text += b"".join(part for _, part in frames.feed(data))
            if b"\n" in text:
                break
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return int(json.loads(text.partition(b"\n")[0])["full"])
    return None


def give_room(api: docker.APIClient, resources: str) -> None:
    """Remove what fills the run's volume, if there is such a helper. Raises APIError."""
    name = container_name(resources, FULL)
    try:
        found = api.inspect_container(name)
    except APIError as error:
        if error.status_code != HTTPStatus.NOT_FOUND:
            raise
        return
    if found["Config"]["Labels"].get(RUN) == resources:
        remove_container(api, found["Id"])
