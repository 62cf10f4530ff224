"""Programs that run beside the tasks of a job: modules that need only Python, as one text."""

from __future__ import annotations

import functools
from pathlib import Path

PACKAGE = Path(__file__).parent.parent
_LOADER = """
import sys, types
for name, text in MODULES.items():
    package, _, own = name.rpartition(".")
    parts = package.split(".")
    for count in range(1, len(parts) + 1):
        sys.modules.setdefault(".".join(parts[:count]), types.ModuleType(parts[count - 1]))
    module = sys.modules[name] = types.ModuleType(name)
    setattr(sys.modules[package], own, module)
    exec(compile(text, own + ".py", "exec"), vars(module))
sys.modules[MAIN].main(sys.argv[1:])
"""


@functools.cache
def program_of(*modules: str, main: str) -> str:
    """Return modules as one program that runs `main` of one of them.

    They are named from the package on (`faults.held_call`), each after those that it imports.
    """
    texts = {
        f"emulator.{name}": (PACKAGE / f"{name.replace('.', '/')}.py").read_text("utf-8")
        for name in modules
    }
    return f"MODULES = {texts!r}\nMAIN = {f'emulator.{main}'!r}\n{_LOADER}"
