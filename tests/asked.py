"""A scenario as a program asks for it."""

from __future__ import annotations

from pathlib import Path

from emulator.manifests.convert import Given
from emulator.planning.requested import RequestedScenario


def asked(text: str, folder: Path = Path()) -> RequestedScenario:
    """Return the scenario of a text; paths in it are relative to `folder`."""
    return RequestedScenario(Given(folder / "scenario.yaml", text), None)
