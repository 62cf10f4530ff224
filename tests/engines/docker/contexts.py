"""Dockerfiles of users and build contexts, for tests."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from emulator.scenario.schema import Dockerfile


def a_dockerfile(folder: Path, text: str, **args: str) -> Dockerfile:
    """Write a Dockerfile into a folder of its own."""
    folder.mkdir(exist_ok=True)
    (folder / "Dockerfile").write_text(text)
    return Dockerfile(dockerfile=folder / "Dockerfile", args=args)


def unpacked(context: bytes) -> dict[str, bytes]:
    """Return the content of the files in an archive."""
    with tarfile.open(fileobj=io.BytesIO(context)) as tar:
        files = ((entry.name, tar.extractfile(entry)) for entry in tar)
        return {name: file.read() for name, file in files if file is not None}
