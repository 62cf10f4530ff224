"""The Dockerfiles, `images/` and `scenarios/`: next to the package in a checkout, inside it in an
installed wheel."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent
_CHECKOUT = _PACKAGE.parent
ROOT = _CHECKOUT if (_CHECKOUT / "Dockerfile.cpu").is_file() else _PACKAGE / "bundled"
"""The folder with the Dockerfiles, `images/` and `scenarios/`."""
SCENARIO = "scenario.yaml"
"""The file that a folder means where a scenario is asked for, as `emulate init` writes it."""


def scenarios() -> list[Path]:
    """Return the scenarios that come with the emulator, by name; each is in a folder by theme."""
    return sorted((ROOT / "scenarios").glob("*/*.yaml"), key=lambda path: path.stem)


def scenario_path(given: Path) -> Path:
    """Return `given`, the scenario.yaml of that folder, or else the bundled scenario of that name.

    `mwms`, `mwms.yaml`, `scenarios/mwms.yaml` and `scenarios/strategies/mwms.yaml` all find it.
    """
    try:
        if (given / SCENARIO).is_file():
            return given / SCENARIO
        if given.exists() or not given.name:
            return given
    except OSError:  # a name too long, a folder that can't be entered
        return given
    if given.parent != Path() and (given.is_absolute() or given.parts[0] != "scenarios"):
        return given
    name = given.with_suffix(".yaml").name
    return next((path for path in scenarios() if path.name == name), given)
