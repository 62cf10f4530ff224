"""Runs of scenarios on this machine's engine, by this process, and what their tasks print."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emulator.engines.docker import DockerEngine
from emulator.planning.requested import RunOptions
from emulator.results import Result, RunCallbacks
from emulator.session.run import up
from tests.asked import asked
from tests.engines.pods import Noting


@dataclass
class Site(Noting):
    """Runs scenarios whose tasks run one program of a test, and notes what they print."""

    folder: Path
    image: str
    interpreter: str = "sh"
    printed: list[str] = field(default_factory=list)

    def text(self, program: str = "", extra: str = "") -> str:
        """Write the program, and return a scenario of it; `extra` goes before what is usual."""
        (self.folder / "job").write_text(program)
        usual = {
            "name": "site",
            "framework": "none",
            "image": self.image,
            "timeout": "5m",
            "program": f"{{source: job, command: [{self.interpreter}, job]}}",
            "cluster": "{worker: 1}",
        }
        given = re.findall(r"(?m)^(\w+):", extra)
        return "".join(f"{key}: {usual[key]}\n" for key in usual if key not in given) + extra

    def path(self, program: str = "", extra: str = "") -> Path:
        """Write a scenario for the command; return its path."""
        path = self.folder / "scenario.yaml"
        path.write_text(self.text(program, extra))
        return path

    def run(
        self,
        program: str = "",
        extra: str = "",
        *,
        engine: DockerEngine | None = None,
        run_id: str | None = None,
        warm: bool = False,
        **callbacks: Any,
    ) -> Result:
        """Run a scenario to its end; a given engine is closed as well."""
        text = self.text(program, extra)
        with contextlib.closing(engine or DockerEngine()) as used:
            return up(
                asked(text, self.folder),
                used,
                RunOptions(out=self.folder / "runs", run_id=run_id, warm=warm, reports=False),
                callbacks=RunCallbacks(lines=self.note, **callbacks),
            )
