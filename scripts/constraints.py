"""Write constraints.txt: the versions of all that pip installs for `make` and for the images.

    make constraints

pip resolves, and installs nothing: what the checkout needs with all its tools, then the image of
each file in images/requirements, which keeps the versions that were found before. A conflict is
pip's own error.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
EXTRAS = "dev,tensorflow"
HEAD = """\
# The versions of all that pip installs for `make` and in the images, so that a release of somebody
# else changes nothing here. Written by `make constraints`. Whoever installs the wheel gets what
# pyproject.toml allows.
"""


def versions(report: Mapping[str, Any]) -> dict[str, str]:
    """Return the version of each distribution in a report of pip, but for this project's own.

    A local version, such as that of a build for CPUs, is left out (pure).
    """
    found = (entry["metadata"] for entry in report["install"] if not entry.get("is_direct"))
    return {canonicalize_name(one["name"]): one["version"].split("+")[0] for one in found}


def text(chosen: Mapping[str, str]) -> str:
    """Return the file of some versions (pure)."""
    return HEAD + "".join(f"{name}=={version}\n" for name, version in sorted(chosen.items()))


def resolved(what: Iterable[str], kept: Mapping[str, str]) -> dict[str, str]:
    """Return the versions that pip would install; those of `kept` are given."""
    with tempfile.TemporaryDirectory() as folder:
        given, report = Path(folder, "given.txt"), Path(folder, "report.json")
        given.write_text(text(kept))
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed"]
        command += ["--quiet", "--report", str(report), "--constraint", str(given), *what]
        subprocess.run(command, check=True, cwd=ROOT)
        return versions(json.loads(report.read_text()))


def main() -> None:
    """Write the file."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    chosen = resolved([f".[{EXTRAS}]", *project["build-system"]["requires"]], {})
    for path in sorted((ROOT / "images" / "requirements").glob("*.txt")):
        if path.stem != "network":  # packages of Debian
            chosen |= resolved(["-r", str(path)], chosen)
    CONSTRAINTS.write_text(text(chosen))
    print(f"{CONSTRAINTS.name}: {len(chosen)} versions")


if __name__ == "__main__":
    main()
