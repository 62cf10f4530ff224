"""What commands import: most of a short command's time. Counts of modules, which can't flake."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
import typer

from emulator.cli import app
from emulator.record.version import header
from tests.conftest import python

HEAVY = {
    *("docker", "httpx", "jinja2", "numpy", "plotly", "prometheus_client", "pyarrow", "pytest"),
    *("starlette", "tensorboard", "uvicorn"),
}
"""Libraries that a command imports only where it uses them."""
OF_SCENARIOS = {"pydantic", "yaml", "emulator.scenario", "emulator.record", "emulator.analysis"}
MODELS = {
    *("filelock", "platformdirs", "pydantic", "regex", "yaml", "emulator.analysis.analyse"),
    *("emulator.faults.spec", "emulator.planning.plan", "emulator.record.events"),
    *("emulator.record.reader", "emulator.scenario.container", "emulator.scenario.schema"),
}
"""What lists, logs and removal do without."""


def imported(tmp_path: Path, *command: str) -> set[str]:
    """Run a command; return the modules that it has imported."""
    listing = tmp_path / "modules"
    text = (
        "import atexit, sys\n"
        f"atexit.register(lambda: open({str(listing)!r}, 'w').write('\\n'.join(sys.modules)))\n"
        f"sys.argv = ['emulate', *{command!r}]\n"
        "from emulator.__main__ import main\n"
        "main()"
    )
    env = {**os.environ, "DOCKER_HOST": f"unix://{tmp_path}/no-engine"}
    python(text, cwd=tmp_path, env=env)
    return set(listing.read_text().split())


@pytest.mark.parametrize(
    ("command", "needless", "most"),
    [
        (("--help",), HEAVY | OF_SCENARIOS, 32),
        (("--nonsense",), HEAVY | OF_SCENARIOS, 11),
        (("fault", "--help"), HEAVY | {"emulator.record", "emulator.analysis"}, 39),
        (
            ("plan", "quickstart", "--engine", "process"),
            HEAVY | {"emulator.record.events", "emulator.scenario.assembly"},
            114,
        ),
        (("ps", "--all"), HEAVY - {"docker"} | MODELS, 82),
        (("down", "old"), HEAVY | MODELS | {"rich"}, 55),
        (("down", "nothing"), HEAVY | MODELS | {"rich", "psutil"}, 31),
        (("logs", "old"), HEAVY | MODELS | {"rich", "psutil"}, 27),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_command_imports_no_more_than_it_uses(
    tmp_path: Path, command: tuple[str, ...], needless: set[str], most: int
) -> None:
    old = tmp_path / "runs" / "old"  # as much of a record as lists, logs and removal read
    old.mkdir(parents=True)
    plan = {"run_id": "old", "engine": "process", "variant": "", "scenario": {"name": "hello"}}
    for name in ("plan.json", "summary.json"):
        (old / name).write_text(json.dumps({**header(), **plan, "tasks": [{"name": "worker-0"}]}))
    modules = imported(tmp_path, *command)
    assert "emulator.cli" in modules
    assert not modules & needless
    ours = sorted(name for name in modules if name.partition(".")[0] == "emulator")
    assert len(ours) <= most, ours


def test_a_value_that_needs_no_pydantic_is_what_typer_makes_of_it(tmp_path: Path) -> None:
    group: Any = typer.main.get_command(app)
    commands = [group, *group.commands.values()]
    parameters = [one for command in commands for one in command.get_params(typer.Context(command))]
    assert len(parameters) > 100
    for one in parameters:
        for value in (None, "text", ("a", "b"), ["a"], [], Path("runs"), tmp_path):
            with contextlib.suppress(typer.BadParameter):  # of another type
                by_typer = type(one).get_runtime_param(one).coerce(value, one, None)
                assert one.get_runtime_param().coerce(value, one, None) == by_typer, one.name
