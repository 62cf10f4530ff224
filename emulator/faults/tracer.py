"""The program that traces a task, with all its rules, as one text."""

from __future__ import annotations

import functools
from pathlib import Path

PARTS = ("held_call", "disk_calls", "hang_calls", "late_calls")
"""Modules beside this one that need only Python, and each only those before it."""
_LOADER = """
import sys, types
for package in ("emulator", "emulator.faults"):
    sys.modules[package] = types.ModuleType(package)
for name, text in PARTS.items():
    module = sys.modules["emulator.faults." + name] = types.ModuleType(name)
    setattr(sys.modules["emulator.faults"], name, module)
    exec(compile(text, name + ".py", "exec"), vars(module))
sys.modules["emulator.faults.held_call"].main(sys.argv[1:])
"""


@functools.cache
def program() -> str:
    """Return it: what an engine runs beside the processes of a task, see `spec.Holding`."""
    folder = Path(__file__).parent
    texts = {name: (folder / f"{name}.py").read_text("utf-8") for name in PARTS}
    return f"PARTS = {texts!r}\n{_LOADER}"
