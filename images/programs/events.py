"""Lines that tell the emulator how training goes: JSON on stdout, one event a line.

The emulator needs no library inside a task: whatever prints such lines is understood.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager


def step(step: int, **numbers: float) -> None:
    """Report that `step` is done: {"emulate": "step", "step": 120, "examples": 7680, "loss": 0.41}.

    `examples` counts the examples of the whole job's global batches from step 0 to this one.
    """
    _print({"emulate": "step", "step": step, **numbers})


def phase(name: str, state: str, **numbers: float) -> None:
    """Report a phase: {"emulate": "phase", "phase": "checkpoint", "state": "begin"}.

    Phases: startup, data, compile, checkpoint, restore, eval. States: begin, end.
    """
    _print({"emulate": "phase", "phase": name, "state": state, **numbers})


@contextmanager
def during(name: str, **numbers: float) -> Iterator[None]:
    """Report that a phase begins and, unless an error cuts it short, that it ends."""
    phase(name, "begin", **numbers)
    yield
    phase(name, "end", **numbers)


def _print(event: dict[str, str | float]) -> None:
    line = {key: round(v, 4) if isinstance(v, float) else v for key, v in event.items()}
    # Flushed, because a pipe is buffered by the block: a killed task would take its steps along.
    print(json.dumps(line), flush=True)
