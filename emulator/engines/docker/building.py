"""Parts of an image build, and pushing: contexts, locks between builds, the engine's messages."""

from __future__ import annotations

import contextlib
import fcntl
import io
import re
import socket
import ssl
import tarfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import docker
from docker.utils.build import PatternMatcher

from emulator.engines.docker.connection import answer_behind, translate_errors
from emulator.engines.docker.dockerfiles import needs_context
from emulator.engines.kit.byte_stream import socket_of
from emulator.engines.kit.recipes import in_registry, remember
from emulator.errors import ImageError, UsageError
from emulator.runtime import signals
from emulator.runtime.files import FOR_OWNER, cache_dir
from emulator.runtime.waiting import each, for_lock
from emulator.validation.files import text_of
from emulator.validation.limits import CONTEXT_BYTES, CONTEXT_FILES, DOCKERFILE_BYTES
from emulator.validation.units import format_size

if TYPE_CHECKING:
    from emulator.scenario.schema import Dockerfile

LAST_LINES = 15
"""Lines of output that the error of a failed build has."""
END_TIMEOUT = 30.0
"""Seconds that the engine gets to kill and remove the container of a build that is stopped."""


def custom_context(image: Dockerfile) -> bytes:
    """Return the build context of a user's image, with its Dockerfile as `Dockerfile.emulator`.

    A Dockerfile that copies nothing gets no other files, unless the image names its context: the
    program beside it is copied into containers anyway, and builds nothing when it changes.
    Raises UsageError where it can't be read or is too large.
    """
    context = image.context or image.dockerfile.parent
    try:
        is_used = image.context is not None or needs_context(dockerfile_text(image))
        files = _context_files(context) if is_used else {}
        return packed({**files, "Dockerfile.emulator": image.dockerfile})
    except OSError as error:
        reason = f"{error.filename or context}: {error.strerror or error}"
        raise UsageError(f"Can't read the build context: {reason}.") from None


def dockerfile_text(image: Dockerfile) -> str:
    """Return the text of a user's Dockerfile. Raises UsageError where it can't be read."""
    try:
        return image.dockerfile.read_text("utf-8", "replace")
    except OSError as error:
        raise UsageError(f"Can't read {image.dockerfile}: {error.strerror}.") from None


def _context_files(context: Path) -> dict[str, Path]:
    """Return the files of a build context, sorted.

    Raises OSError, and UsageError as soon as they are too many or too large: the context may be the
    root of the disk.
    """
    files: dict[str, Path] = {}
    size = 0
    walk = PatternMatcher([*_excluded(context), "!Dockerfile"]).walk(str(context))
    for count, name in enumerate(walk, start=1):
        path = context / name
        if path.is_file():
            files[name] = path
            size += path.stat().st_size
        if count > CONTEXT_FILES or size > CONTEXT_BYTES:
            limit = format_size(CONTEXT_BYTES)
            if count > CONTEXT_FILES:
                limit = f"{CONTEXT_FILES:,} files and folders"
            raise UsageError(
                f"The build context {context} holds more than {limit}.",
                "Name a smaller folder as `context:`, or list in its .dockerignore what the image "
                "does not need.",
            )
    return dict(sorted(files.items()))


def _excluded(context: Path) -> list[str]:
    """Return the user's .dockerignore, and what would change the tag with every run."""
    file = context / ".dockerignore"
    try:
        lines = text_of(file, DOCKERFILE_BYTES).splitlines() if file.exists() else []
    except ValueError as error:
        raise UsageError(f"Can't read {file}: {error}.") from None
    return ["runs", ".git"] + [
        line.strip() for line in lines if line.strip() and not line.startswith("#")
    ]


def packed(files: Mapping[str, Path]) -> bytes:
    """Pack files so that the same content gives the same bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, path in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = path.stat().st_size, path.stat().st_mode & 0o755 | 0o444
            with path.open("rb") as content:
                tar.addfile(entry, content)
    return buffer.getvalue()


@contextlib.contextmanager
def one_at_a_time(tag: str) -> Iterator[None]:
    """Let one process of this machine build a tag; others wait, and then find it built."""
    with _locked(tag.replace(":", "-"), fcntl.LOCK_EX):
        yield


@contextlib.contextmanager
def last_build_runs(clean_up: Callable[[], None]) -> Iterator[None]:
    """Build in parallel with others; the last one to finish cleans up, and new builds wait for it.

    To the engine a stage that another build is about to copy from looks unused.
    """
    with _locked("builds", fcntl.LOCK_SH) as lock:
        try:
            yield
        except BaseException:
            with contextlib.suppress(Exception):  # the error of the build is more useful
                _if_last(lock, clean_up)
            raise
        _if_last(lock, clean_up)


def _if_last(lock: IO[str], clean_up: Callable[[], None]) -> None:
    # Unlocked first: otherwise of two that finish together neither would be the last.
    fcntl.flock(lock, fcntl.LOCK_UN)
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        clean_up()


@contextlib.contextmanager
def _locked(name: str, how: int) -> Iterator[IO[str]]:
    folder = cache_dir("locks")
    folder.mkdir(FOR_OWNER, parents=True, exist_ok=True)
    with (folder / f"{name}.lock").open("w") as lock:
        for_lock(lock.fileno(), how, signals.check)
        yield lock


@contextlib.contextmanager
def progress(
    output: Generator[dict[str, Any], None, None],
) -> Iterator[Iterator[dict[str, Any]]]:
    """Yield the engine's messages of a build or a pull; leaving the block early cancels it.

    The engine cancels it when our half of the connection is closed: it removes the container of the
    step, and then ends its answer, which is read to its end. With TLS a half can't be closed.
    """
    response = answer_behind(output)

    def shut_down() -> None:
        connection = socket_of(response.raw) if response is not None else None
        if connection is None:  # as with SSH
            return
        with contextlib.suppress(OSError):  # it has already ended
            whole = isinstance(connection, ssl.SSLSocket)
            connection.shutdown(socket.SHUT_RDWR if whole else socket.SHUT_WR)

    messages = each(output, cancel=shut_down, check=signals.check, leaves_within=END_TIMEOUT)
    with contextlib.closing(messages):
        yield messages


# --- Pushing --------------------------------------------------------------------------------------

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
