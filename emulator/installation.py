"""How this emulator was installed, so that another machine can install the same."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

__all__ = ["Checkout", "requirement", "requirement_here"]

NAME = "emulator[test]"
"""Never alone: in public registries that name is another project's."""


@dataclass(frozen=True)
class Checkout:
    """A clone on this machine."""

    origin: str
    commit: str


def requirement_here() -> str | None:
    """Return the line of a requirements file that installs this emulator; None where only this
    machine has it.
    """
    try:
        text = importlib.metadata.distribution("emulator").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return None
    direct = json.loads(text) if text else {}
    is_folder = "dir_info" in direct
    return requirement(direct, _checkout(_path(direct["url"])) if is_folder else None)


def requirement(direct: Mapping[str, Any], checkout: Checkout | None = None) -> str | None:
    """Return the same from a direct_url.json (PEP 610); of a folder, what git says of it (pure)."""
    match direct:
        case {"url": str(url), "vcs_info": {"vcs": str(vcs), "commit_id": str(commit)}}:
            source = f"{vcs}+{url}@{commit}"
        case {"url": str(url), "archive_info": {}}:
            source = url
        case {"dir_info": {}} if checkout is not None:
            url = _as_url(checkout.origin)
            source = f"git+{url}@{checkout.commit}"
        case _:
            return None
    if not _is_remote(url):
        return None
    fragments = [*_subdirectory(direct), *_hash(direct)]
    return f"{NAME} @ {source}" + ("#" + "&".join(fragments) if fragments else "")


def _subdirectory(direct: Mapping[str, Any]) -> list[str]:
    return [f"subdirectory={direct['subdirectory']}"] if direct.get("subdirectory") else []


def _hash(direct: Mapping[str, Any]) -> list[str]:
    hashes = direct.get("archive_info", {}).get("hashes", {})
    return [f"sha256={hashes['sha256']}"] if "sha256" in hashes else []


def _as_url(origin: str) -> str:
    """Return a remote of git as a URL, without a password or a token that it may hold."""
    if short := re.fullmatch(r"(?P<host>[^/:]+@[^/:]+):(?P<path>[^/].*)", origin):
        return f"ssh://{short['host']}/{short['path']}"  # git@host:owner/name, as only git knows it
    url = urlsplit(origin)
    user, at, host = url.netloc.rpartition("@")
    user = user.partition(":")[0] + at if url.scheme == "ssh" else ""
    return urlunsplit(url._replace(netloc=user + host))


def _is_remote(url: str) -> bool:
    return urlsplit(url).scheme in ("https", "http", "ssh", "git")


def _path(url: str) -> Path:
    return Path(unquote(urlsplit(url).path))


def _checkout(folder: Path) -> Checkout | None:
    """Return what git says of a folder; None where it is no clone, or at a commit of its own."""
    if not (folder / ".git").exists():
        return None
    git = ["git", "-C", str(folder)]
    try:
        said = [
            subprocess.run(
                [*git, *asked], capture_output=True, text=True, check=True
            ).stdout.strip()
            for asked in (
                ["remote", "get-url", "origin"],
                ["rev-parse", "HEAD"],
                ["branch", "--remotes", "--contains", "HEAD"],
            )
        ]
    except (OSError, subprocess.CalledProcessError):
        return None
    origin, commit, pushed = said
    return Checkout(origin, commit) if pushed else None
