"""Pushes an image to a registry, and says how far it has come."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import docker

from emulator.engines.docker.building import progress
from emulator.engines.docker.connection import translate_errors
from emulator.engines.recipes import in_registry, remember
from emulator.errors import ImageError
from emulator.runtime import signals
from emulator.validation.units import format_size

if TYPE_CHECKING:
    from collections.abc import Callable

STEP = 10
"""Percent between two lines of progress."""
NO_LOGIN = re.compile(r"unauthori[sz]ed|denied|authentication|no basic auth|forbidden", re.I)
NO_ANSWER = re.compile(r"refused|no such host|timeout|unreachable|no route|EOF", re.I)
NO_TLS = re.compile(r"HTTP response to HTTPS client|certificate|tls:|x509", re.I)


def push(
    api: docker.APIClient, tag: str, registry: str, say: Callable[[str], None]
) -> tuple[str, str]:
    """Push an image of the engine; return its reference in the registry, and its digest.

    The login is the one that `docker login` has stored. The digest is remembered for plans of this
    machine. Raises ImageError where the registry refuses it.
    """
    name = in_registry(tag, registry)
    repository, _, version = name.rpartition(":")
    digest = ""
    with translate_errors(f"push {name}", ImageError):
        had_name = bool(api.images(name))
        api.tag(tag, repository, version)
        try:
            say(f"pushing {name}")
            output = api.push(repository, tag=version, stream=True, decode=True)
            with signals.deferred(f"stopping the push of {name}"), progress(output) as messages:
                for line, found in steps(messages):
                    digest = found or digest
                    if line:
                        say(f"{name}: {line}")
        except PushError as error:
            raise refusal(name, registry, str(error)) from None
        finally:
            if not had_name:  # which the engine needs for the push only
                api.remove_image(name)
    if not digest:
        raise ImageError(f"The registry {registry} has given no digest for {name}.")
    remember(name, digest)
    return name, digest


class PushError(Exception):
    """What the engine says of a push that failed."""


def steps(messages: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield a line at every STEP percent, and the digest at the end (pure).

    Raises PushError.
    """
    done: dict[str, int] = {}
    total: dict[str, int] = {}
    said = 0
    for message in messages:
        if error := message.get("error"):
            raise PushError(str(error))
        if digest := (message.get("aux") or {}).get("Digest"):
            yield "", str(digest)
        detail, layer = message.get("progressDetail") or {}, str(message.get("id"))
        if detail.get("total"):
            # What is on the way grows a little beyond its size: it is packed as it is sent.
            total[layer] = int(detail["total"])
            done[layer] = min(int(detail.get("current", 0)), total[layer])
        elif message.get("status") == "Pushed" and layer in total:
            done[layer] = total[layer]
        else:
            continue
        size, sent = sum(total.values()), sum(done.values())
        if (percent := 100 * sent // size // STEP * STEP) > said:
            said = percent
            yield f"{percent} % of {format_size(size)}", ""


def refusal(name: str, registry: str, text: str) -> ImageError:
    """Return the error for what the engine says of a push that failed (pure)."""
    host = registry.partition("/")[0]
    if NO_LOGIN.search(text):
        hint = f"`docker login {host}` with an account that may push there."
    elif NO_TLS.search(text):
        hint = (
            f"The engine asks for TLS with a certificate that it trusts. For a registry without, "
            f'write {host} into "insecure-registries" of the engine\'s daemon.json.'
        )
    elif NO_ANSWER.search(text):
        hint = f"Does {host} answer the machine that the Docker engine runs on?"
    else:
        hint = "Check the name of the registry, and that it takes images of this name."
    return ImageError(f"{name} can't be pushed: {text.strip().rstrip('.')}.", hint)
