"""The command `emulate`, also as `python -m emulator`: signals first, then everything else."""

from __future__ import annotations

import contextlib
import gc
import os
import sys

from emulator.runtime import signals

ALLOCATIONS = 100_000
"""Objects between two searches for reference cycles. With Python's 700 these take a tenth of a
short command's time: imports make many objects and no garbage."""


def main() -> None:
    """Run the command line; an error is one sentence, never a traceback."""
    signals.own()
    gc.set_threshold(ALLOCATIONS)
    code = _run()
    signals.ignore()  # the code stands
    _flush()
    gc.freeze()  # else Python searches all objects for cycles at its exit: 60 ms after a run
    sys.exit(code)


def _run() -> str | int | None:
    """Return the exit code, as `sys.exit` takes it."""
    from emulator.errors import EmulatorError  # from here on there is a lot to load

    try:
        from emulator.cli import app

        app()
    except signals.Interruption as interruption:
        return _report(interruption, interruption.exit_code)
    except EmulatorError as error:
        return _report(error, error.exit_code)
    except SystemExit as leaving:
        unread = isinstance(leaving.__context__, BrokenPipeError)  # `| head` has seen enough
        return 0 if unread else leaving.code
    return 0


def _report(error: BaseException, code: int) -> int:
    with contextlib.suppress(BrokenPipeError):
        print(f"emulate: {error}", file=sys.stderr)  # noqa: T201
    return code


def _flush() -> None:
    """Write what is buffered; at its exit Python would report a closed pipe."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


if __name__ == "__main__":
    main()
