"""A base image made with debootstrap from this machine's own package sources.

For machines that reach their distribution's mirror but no image registry.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from emulator.errors import ImageError
from emulator.runtime import signals
from emulator.runtime.waiting import each

NAME = "emulator-base"
LAST_LINES = 15
"""Lines of output that the error of a failed build has."""
LEFT_OUT = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "proc", "sys")


@dataclass(frozen=True)
class AptSource:
    """Where this machine gets its own packages from."""

    distribution: str
    suite: str
    uri: str

    def arguments(self, folder: str) -> list[str]:
        """Return debootstrap's arguments for a small system with Python."""
        components = "main,universe" if self.distribution == "ubuntu" else "main"
        return [
            "--variant=minbase",
            f"--components={components}",
            "--include=python3,python3-venv,ca-certificates",
            self.suite,
            folder,
            self.uri,
        ]


def os_release() -> Mapping[str, str]:
    """Return the fields of /etc/os-release; none where there is no such file."""
    try:
        return platform.freedesktop_os_release()
    except OSError:
        return {}


def apt_source(release: Mapping[str, str], etc: Path = Path("/etc/apt")) -> AptSource:
    """Return the first of apt's sources that has the component `main` of this machine's release.

    Raises ImageError where there is none, as on a machine that is no Debian or Ubuntu.
    """
    suite = release.get("VERSION_CODENAME", "")
    index = re.compile(rf"(?m)^'(\S+)/dists/{re.escape(suite)}/main/binary-")
    uris = index.findall(_index_uris(etc)) if suite else []
    if not uris:
        raise ImageError(
            "No image registry answers, and this machine is no Debian or Ubuntu whose package "
            "sources a base image could be made from.",
            "Name an image that the engine has with --base.",
        )
    return AptSource(release.get("ID", "debian"), suite, uris[-1])  # apt prints the first one last


def _index_uris(etc: Path) -> str:
    """Return what `apt-get update` would download: apt reads both formats of its sources."""
    with tempfile.TemporaryDirectory() as no_lists:  # apt omits what it has downloaded before
        options = ["-o", f"Dir::Etc={etc}", "-o", f"Dir::State::lists={no_lists}"]
        command = ["apt-get", *options, "update", "--print-uris"]
        try:
            return subprocess.run(command, capture_output=True, text=True, check=False).stdout
        except OSError:
            return ""


@contextmanager
def packed(source: AptSource, say: Callable[[str], None]) -> Iterator[IO[bytes]]:
    """Make a small system with Python, and yield it as a stream of tar without caches.

    Takes about a minute. Raises ImageError where debootstrap is missing or not allowed.
    """
    tool = shutil.which("debootstrap")
    if tool is None or os.geteuid() != 0:
        reason = "debootstrap is not installed" if tool is None else "that takes root"
        raise ImageError(
            f"No image registry answers, and no base image can be made here: {reason}.",
            "Install debootstrap and run this as root once, or name an image that the engine "
            "has with --base.",
        )
    with tempfile.TemporaryDirectory(prefix="emulator-base-") as folder:
        _debootstrap([tool, *source.arguments(folder)], say)
        say(f"importing {NAME}:{source.suite}")
        command = ["tar", "-C", folder, "-c", *(f"--exclude=./{path}/*" for path in LEFT_OUT), "."]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            yield process.stdout
        if process.returncode:
            raise ImageError(f"Packing the base image failed with exit code {process.returncode}.")


def _debootstrap(command: Sequence[str], say: Callable[[str], None]) -> None:
    last = deque[str](maxlen=LAST_LINES)
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        lines = each(process.stdout, cancel=process.terminate, check=signals.check)
        with closing(lines):
            for line in lines:
                last.append(f"  {line.rstrip()}")
                say(last[-1])
    if process.returncode:
        output = "\n".join(last)
        raise ImageError(f"debootstrap failed with exit code {process.returncode}:\n{output}")
