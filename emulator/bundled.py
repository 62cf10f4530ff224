"""The Dockerfiles, `images/` and `scenarios/`: next to the package in a checkout, inside it in an
installed wheel."""

from __future__ import annotations

from pathlib import Path

_CHECKOUT = Path(__file__).resolve().parent.parent
ROOT = _CHECKOUT if (_CHECKOUT / "Dockerfile.cpu").is_file() else _CHECKOUT / "emulator" / "bundled"
"""The folder with the Dockerfiles, `images/` and `scenarios/`."""


def scenarios() -> list[Path]:
    """Return the scenarios that come with the emulator."""
    return sorted((ROOT / "scenarios").glob("*.yaml"))


def scenario_path(given: Path) -> Path:
    """Return `given`, or if no such file exists the bundled scenario of that name.

    `quickstart`, `quickstart.yaml` and `scenarios/quickstart.yaml` all find the bundled one.
    """
    try:
        if given.exists() or not given.name:
            return given
    except OSError:  # a name too long, a folder that can't be entered
        return given
    bundled = ROOT / "scenarios" / given.with_suffix(".yaml").name
    return bundled if bundled.exists() and str(given.parent) in (".", "scenarios") else given
