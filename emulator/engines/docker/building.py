"""Parts of an image build: its context, locks between builds, the engine's messages."""

from __future__ import annotations

import contextlib
import fcntl
import inspect
import io
import socket
import ssl
import tarfile
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from docker.utils.build import PatternMatcher
from filelock import FileLock, Timeout

from emulator.errors import UsageError
from emulator.files import cache_dir
from emulator.runtime import signals
from emulator.runtime.waiting import SLICE, each, for_lock
from emulator.scenario.schema import Dockerfile
from emulator.validation.files import text_of
from emulator.validation.limits import CONTEXT_BYTES, CONTEXT_FILES, DOCKERFILE_BYTES
from emulator.validation.units import format_size

__all__ = ["custom_context", "last_one_does", "one_at_a_time", "packed", "progress"]

ENDS_WITHIN = 30.0
"""Seconds that the engine gets to kill and remove the container of a build that is stopped."""


def custom_context(wanted: Dockerfile) -> bytes:
    """Return the build context of a user's image, with its Dockerfile as `Dockerfile.emulator`.

    Raises UsageError where it can't be read or is too large.
    """
    context = wanted.context or wanted.dockerfile.parent
    try:
        return packed({**_kept(context), "Dockerfile.emulator": wanted.dockerfile})
    except OSError as error:
        why = f"{error.filename or context}: {error.strerror or error}"
        raise UsageError(f"Can't read the build context: {why}.") from None


def _kept(context: Path) -> dict[str, Path]:
    """Return the files of a build context.

    Raises OSError, and UsageError as soon as they are too many or too large: the context may be the
    root of the disk.
    """
    names: list[str] = []
    size = 0
    walk = PatternMatcher([*_dockerignore(context), "!Dockerfile"]).walk(str(context))
    for name in walk:
        if len(names) >= CONTEXT_FILES:
            raise _too_much(context, f"{CONTEXT_FILES:,} files and folders")
        names.append(name)
        if (context / name).is_file():
            size += (context / name).stat().st_size
        if size > CONTEXT_BYTES:
            raise _too_much(context, format_size(CONTEXT_BYTES))
    return {name: context / name for name in sorted(names) if (context / name).is_file()}


def _too_much(context: Path, limit: str) -> UsageError:
    return UsageError(
        f"The build context {context} holds more than {limit}.",
        "Name a smaller folder as `context:`, or list in its .dockerignore what the image does "
        "not need.",
    )


def _dockerignore(context: Path) -> list[str]:
    """Return what is excluded: the user's list, and what would change the tag with every run."""
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
    """Let one process of this machine build a tag; others wait, and then find it."""
    lock = FileLock(_folder() / f"{tag.replace(':', '-')}.lock")
    try:
        while not lock.is_locked:
            with contextlib.suppress(Timeout):
                lock.acquire(timeout=SLICE)
            signals.check()
        yield
    finally:
        lock.release()  # nothing happens if it is not locked


@contextlib.contextmanager
def last_one_does(tidy: Callable[[], None]) -> Iterator[None]:
    """Build in parallel with others; the last one to finish tidies up, and new builds wait for it.

    To the engine a stage that another build is about to copy from looks unused.
    """
    with (_folder() / "builds.lock").open("w") as lock:
        for_lock(lock.fileno(), fcntl.LOCK_SH, signals.check)
        try:
            yield
        except BaseException:
            with contextlib.suppress(Exception):  # the error of the build is more useful
                _tidy_if_last(lock, tidy)
            raise
        _tidy_if_last(lock, tidy)


def _tidy_if_last(lock: IO[str], tidy: Callable[[], None]) -> None:
    # Unlocked first: otherwise of two that finish together neither would be the last.
    fcntl.flock(lock, fcntl.LOCK_UN)
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        tidy()


def _folder() -> Path:
    folder = cache_dir("locks")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def progress(
    output: Generator[dict[str, Any], None, None],
) -> Iterator[Iterator[dict[str, Any]]]:
    """Yield the engine's messages of a build or a pull; leaving the block early cancels it.

    The engine ends it when our half of the connection is closed: it removes the container of the
    step, and then ends its answer, which is read to its end. With TLS a half can't be closed.
    """
    response = inspect.getgeneratorlocals(output).get("response")

    def hang_up() -> None:
        with contextlib.suppress(AttributeError, OSError):  # it has ended by itself
            raw: Any = response.raw._fp.fp.raw  # type: ignore[union-attr]  # see CancellableStream
            connection = raw.sock if hasattr(raw, "sock") else raw._sock
            whole = isinstance(connection, ssl.SSLSocket)
            connection.shutdown(socket.SHUT_RDWR if whole else socket.SHUT_WR)

    messages = each(output, cancel=hang_up, check=signals.check, leaves_within=ENDS_WITHIN)
    with contextlib.closing(messages):
        yield messages
