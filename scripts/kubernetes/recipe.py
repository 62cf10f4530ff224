"""Where the binaries are: a folder of the cache, named by the recipe that makes them."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from scripts.kubernetes.errors import Problem
from scripts.kubernetes.layout import cache_folder

HERE = Path(__file__).parent
RECIPE = (HERE / "build", HERE / "patches.py")
LAST_LINES = 15


def binaries() -> Path:
    """Return the folder of the binaries that the present recipe makes; it may not exist yet."""
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in RECIPE))
    return cache_folder() / f"binaries-{digest.hexdigest()[:12]}"


def ensure_binaries() -> Path:
    """Return their folder; build them where they are missing. Raises Problem."""
    out = binaries()
    if out.exists():
        return out
    # Beside its final place: it appears there complete or not at all.
    unfinished, work = out.with_name(f"{out.name}.unfinished"), out.with_name(f"{out.name}.work")
    log = out.with_name(f"{out.name}.log")
    out.parent.mkdir(parents=True, exist_ok=True)
    for folder in (unfinished, work):
        _remove(folder)
    print(f"building Kubernetes from Debian's source, for some minutes; see {log}", flush=True)
    try:
        with log.open("wb") as output:
            built = subprocess.run([HERE / "build", work, unfinished], stdout=output, stderr=output)
        if built.returncode:
            lines = log.read_text(errors="replace").splitlines()[-LAST_LINES:]
            raise Problem("\n".join(["the binaries can't be built. The last lines:", *lines]))
        os.rename(unfinished, out)
    finally:
        for folder in (unfinished, work):
            _remove(folder)
    return out


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
