"""Answers of the Docker engine of which the SDK passes on only what it has decoded.

Its session, address and version are public, and so are requests with them. `answer_behind` knows
the inside of a generator of the SDK; a test runs it with the installed one.
"""

from __future__ import annotations

import inspect
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any

from docker.errors import create_api_error_from_http_exception
from requests import HTTPError, Response

if TYPE_CHECKING:
    import docker


def streamed(
    api: docker.APIClient,
    method: str,
    path: str,
    *,
    query: Mapping[str, str | int] | None = None,
    **options: Any,  # noqa: ANN401  of requests
) -> Response:
    """Send a request; return the answer with its body unread. Raises APIError for a refusal."""
    options.setdefault("timeout", api.timeout)
    url = f"{api.base_url}/v{api.api_version}{path}"
    response = api.request(method, url, params=query, stream=True, **options)
    try:
        response.raise_for_status()
    except HTTPError as error:
        raise create_api_error_from_http_exception(error) from None
    return response


def answer_behind(output: Generator[Any, None, None]) -> Response | None:
    """Return the answer that a generator of the SDK decodes; None once it has ended."""
    response: Response | None = inspect.getgeneratorlocals(output).get("response")
    return response
