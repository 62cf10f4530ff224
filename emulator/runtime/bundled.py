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


def project_files() -> dict[str, Path]:
    """Return what the emulator is installed from, by its path in a checkout.

    Nothing that is made there is among it, nor what `images/build` holds for a build.
    """
    files = [ROOT / name for name in ("pyproject.toml", "constraints.txt", "README.md", "LICENSE")]
    files += sorted(ROOT.glob("Dockerfile.*"))
    files += [ROOT / "images" / "build" / "README.md"]
    for folder in ("programs", "requirements", "starters", "suite"):
        files += _below(ROOT / "images" / folder)
    files += _below(ROOT / "scenarios")
    named = {file.relative_to(ROOT).as_posix(): file for file in files}
    own = [file for file in _below(_PACKAGE) if ROOT == _CHECKOUT or ROOT not in file.parents]
    return named | {f"emulator/{file.relative_to(_PACKAGE).as_posix()}": file for file in own}


def _below(folder: Path) -> list[Path]:
    """Return the files in a folder, without what Python has compiled."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path for path in files if "__pycache__" not in path.parts)


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
