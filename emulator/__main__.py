"""The command `emulate`, also as `python -m emulator`: signals first, then everything else."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading

from emulator.runtime import signals, streams

ALLOCATIONS = 100_000
"""Objects between two searches for reference cycles. With Python's 700 these take a tenth of a
short command's time: imports make many objects and no garbage."""


def main() -> None:
    """Run the command line; an error is one sentence, never a traceback."""
    streams.set_up()
    signals.install()
    threading.excepthook = _report_thread
    gc.set_threshold(ALLOCATIONS)
    code = _run()
    signals.ignore()  # the code stands
    if unwritten := streams.close():
        code = code or 4
        _report(f"Can't write to stdout: {unwritten.strerror}.", 4)
        streams.close()
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
    except Exception as error:
        return _report_unexpected(error)
    return 0


def _report_unexpected(error: Exception) -> int:
    from emulator.runtime.unexpected import explained

    explanation = explained(error)
    return _report(explanation, explanation.exit_code)


def _report_thread(failed: threading.ExceptHookArgs) -> None:
    if isinstance(failed.exc_value, Exception):
        _report_unexpected(failed.exc_value)


def _report(error: object, code: int) -> int:
    with contextlib.suppress(BrokenPipeError):
        print(f"emulate: {error}", file=sys.stderr)  # noqa: T201
    return code


if __name__ == "__main__":
    main()
