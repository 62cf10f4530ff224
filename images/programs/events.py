"""Report the progress of training to the emulator: JSON on stdout, one event per line.

The emulator needs no library inside a task: any program that prints such lines is understood.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager


def step(step: int, **numbers: float) -> None:
    """Report that `step` is done: {"emulate": "step", "step": 120, "examples": 7680, "loss": 0.41}.

    `examples` counts the examples of the whole job's global batches from step 0 to this one.
    """
    _print({"emulate": "step", "step": step, **numbers})


def phase(name: str, state: str, **values: float | str) -> None:
    """Report a phase: {"emulate": "phase", "phase": "checkpoint", "state": "begin"}.

    Phases: startup, data, compile, checkpoint, restore, eval. States: begin, end. Of a checkpoint
    and a restore, `step` and `digest` say what was saved and loaded.
    """
    _print({"emulate": "phase", "phase": name, "state": state, **values})


@contextmanager
def during(name: str, **numbers: float) -> Iterator[None]:
    """Report the begin of a phase and, unless an exception is raised, its end."""
    phase(name, "begin", **numbers)
    yield
    phase(name, "end", **numbers)


def _print(event: dict[str, str | float]) -> None:
    line = {key: round(v, 4) if isinstance(v, float) else v for key, v in event.items()}
    # Pipes are block-buffered: without a flush, a killed task would lose its last steps.
    print(json.dumps(line), flush=True)
