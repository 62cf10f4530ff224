"""`scenarios`: what comes with the emulator, to run or to copy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from emulator.cli.options import console, print_json
from emulator.errors import UsageError
from emulator.runtime.bundled import scenarios as bundled


def _complete_themes() -> list[str]:
    return sorted({path.parent.name for path in bundled()})


def scenarios(
    theme: Annotated[
        str | None,
        typer.Argument(
            metavar="THEME",
            help="Only those of a theme, such as faults.",
            autocompletion=_complete_themes,
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="As data.")] = False,
) -> None:
    """List the scenarios that come with the emulator, by theme."""
    from emulator.report.listings import print_scenarios

    paths = sorted(bundled(), key=lambda path: (path.parent.name, path.stem))
    themes = dict.fromkeys(path.parent.name for path in paths)
    if theme is not None and theme not in themes:
        from emulator.validation.similar import suggestion

        raise UsageError(f"There is no theme {theme}.", suggestion(theme, themes, "Themes"))
    found = [_about(path) for path in paths if theme in (None, path.parent.name)]
    if json:
        print_json(found)
        return
    print_scenarios(found, console())


def _about(path: Path) -> dict[str, str]:
    """Return what a scenario says of itself; those that come with the emulator are valid."""
    import yaml

    content = yaml.load(
        path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    )
    return {
        "theme": path.parent.name,
        "name": path.stem,
        "description": content.get("description", ""),
        "file": str(path),
    }
