"""A scenario as a program asks for it."""

from __future__ import annotations

from pathlib import Path

from emulator.planning.requested import RequestedScenario
from emulator.scenario.given import Given


def asked(text: str, folder: Path = Path()) -> RequestedScenario:
    """Return the scenario of a text; paths in it are relative to `folder`."""
    return RequestedScenario(Given(folder / "scenario.yaml", text), None)
