"""What a run makes under its names is never something that was there before.

The engine answers a request for a volume that exists with that volume, whosever it is. So its
labels are compared with those that were requested.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import docker
from docker.errors import APIError, NotFound

from emulator.engines.docker.requests import RUN
from emulator.errors import NameTaken


def require_no_volume(api: docker.APIClient, name: str) -> None:
    """Raise NameTaken if there is a volume of that name, whosever it is."""
    if labels_of_volume(api, name) is not None:
        raise NameTaken(*name_taken("volume", name))


def make_volume(api: docker.APIClient, request: Mapping[str, Any]) -> bool:
    """Make a volume; False: there is one of that name, which this run has not made."""
    made: dict[str, Any] = api.create_volume(**request)
    return bool(made["Labels"] == request["labels"])


def remove_volume(api: docker.APIClient, name: str, run_id: str) -> bool:
    """Remove a volume if the run has made it and no container has it; return whether it was."""
    if (labels_of_volume(api, name) or {}).get(RUN) != run_id:
        return False
    try:
        api.remove_volume(name)
    except APIError as error:
        if error.status_code not in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
            raise
        return False
    return True


def labels_of_volume(api: docker.APIClient, name: str) -> dict[str, str] | None:
    """Return the labels of a volume; None: there is none of that name."""
    try:
        return dict(api.inspect_volume(name)["Labels"] or {})
    except NotFound:
        return None


def name_taken(kind: str, name: str) -> tuple[str, str]:
    """Return the message and the hint for a name that the engine has already (pure)."""
    return (
        f"The Docker engine has a {kind} {name} already, which this run did not make.",
        "Choose another --run-id; if a run has left it, `emulate clean` removes it.",
    )
