"""SIGTERM and SIGHUP end a session that has clusters as Ctrl-C does, so that these are removed."""

from __future__ import annotations

import signal
import threading
from functools import partial
from types import FrameType

import pytest

NUMBERS = (signal.SIGTERM, signal.SIGHUP)


def interrupt_on_signals(config: pytest.Config) -> None:
    """Have these signals raise KeyboardInterrupt until the end of the session.

    Those that are ignored, as by `nohup`, or that something else handles already, are left alone.
    """
    if threading.current_thread() is not threading.main_thread():
        return  # only the main thread may set a handler
    for number in NUMBERS:
        if signal.getsignal(number) is signal.SIG_DFL:
            config.add_cleanup(partial(_restore, number))
            signal.signal(number, _interrupt)


def _restore(number: signal.Signals) -> None:
    signal.signal(number, signal.SIG_DFL)


def _interrupt(number: int, frame: FrameType | None) -> None:
    if number == signal.SIGHUP:  # the shell and the kernel each send one
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt(signal.Signals(number).name)
