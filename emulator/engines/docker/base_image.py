"""A base image made with debootstrap from this machine's own package sources.

For machines that reach their distribution's mirror but no image registry.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from emulator.errors import ImageError
from emulator.runtime import signals
from emulator.runtime.waiting import each

__all__ = ["NAME", "AptSource", "apt_source", "packed"]

NAME = "emulator-base"
LAST_LINES = 15
_ONE_LINE = re.compile(r"(?m)^deb[ \t]+(?:\[[^\]]*\][ \t]+)?(\S+)[ \t]+(\S+)[ \t]+.*\bmain\b")


@dataclass(frozen=True)
class AptSource:
    """Where this machine gets its own packages from."""

    distribution: str
    suite: str
    uri: str

    def arguments(self, folder: str) -> list[str]:
        """Return debootstrap's arguments for a small system with Python."""
        components = "main,universe" if self.distribution == "ubuntu" else "main"
        packages = "python3,python3-venv,ca-certificates"
        return [
            "--variant=minbase",
            f"--components={components}",
            f"--include={packages}",
            self.suite,
            folder,
            self.uri,
        ]


def apt_source(root: Path = Path("/")) -> AptSource:
    """Read the machine's release and its first package source, in either of apt's formats.

    Raises ImageError where the machine is no Debian or Ubuntu.
    """
    try:
        text = (root / "etc/os-release").read_text(encoding="utf-8")
    except OSError:
        text = ""
    release = dict(re.findall(r'(?m)^(\w+)="?([^"\n]*)"?$', text))
    suite = release.get("VERSION_CODENAME", "")
    for uri, suites in _source_lines(root / "etc/apt"):
        if suite and suite in suites:
            return AptSource(release.get("ID", "debian"), suite, uri)
    raise ImageError(
        "No image registry answers, and this machine is no Debian or Ubuntu whose package "
        "sources a base image could be made from.",
        "Name an image that the engine has with --base.",
    )


def _source_lines(apt: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield (URI, suites) of one-line and deb822 sources."""
    for file in [apt / "sources.list", *sorted(apt.glob("sources.list.d/*.list"))]:
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        for match in _ONE_LINE.finditer(text):
            yield match[1], [match[2]]
    for file in sorted(apt.glob("sources.list.d/*.sources")):
        for stanza in re.split(r"\n\s*\n", file.read_text(encoding="utf-8")):
            fields = dict(re.findall(r"(?m)^([A-Za-z-]+):[ \t]*(.*)$", stanza))
            off = fields.get("Enabled", "").strip().lower() == "no"
            if off or "deb" not in fields.get("Types", "").split():
                continue
            if "main" in fields.get("Components", "").split() and fields.get("URIs"):
                yield fields["URIs"].split()[0], fields.get("Suites", "").split()


@contextmanager
def packed(source: AptSource, say: Callable[[str], None]) -> Iterator[IO[bytes]]:
    """Make a small system with Python, and yield it as a stream of tar, caches left out.

    Takes about a minute. Raises ImageError where debootstrap is missing or not allowed.
    """
    tool = shutil.which("debootstrap")
    if tool is None or os.geteuid() != 0:
        lack = "debootstrap is not installed" if tool is None else "that takes root"
        raise ImageError(
            f"No image registry answers, and no base image can be made here: {lack}.",
            "Install debootstrap and run this as root once, or name an image that the engine "
            "has with --base.",
        )
    with tempfile.TemporaryDirectory(prefix="emulator-base-") as folder:
        _debootstrap([tool, *source.arguments(folder)], say)
        say(f"importing {NAME}:{source.suite}")
        excluded = ["var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man"]
        options = [f"--exclude=./{path}/*" for path in [*excluded, "proc", "sys"]]
        command = ["tar", "-C", folder, "-c", *options, "."]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            yield process.stdout
        if process.returncode:
            raise ImageError(f"Packing the base image failed with exit code {process.returncode}.")


def _debootstrap(command: Sequence[str], say: Callable[[str], None]) -> None:
    last = deque[str](maxlen=LAST_LINES)
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with process:
        assert process.stdout is not None
        lines = each(process.stdout, cancel=process.terminate, check=signals.check)
        with closing(lines):
            for line in lines:
                last.append(line.rstrip())
                say(f"  {line.rstrip()}")
    if process.returncode:
        said = "\n".join(f"  {line}" for line in last)
        raise ImageError(f"debootstrap failed with exit code {process.returncode}:\n{said}")
