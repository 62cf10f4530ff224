"""What is done at the end of the program, while threads can still be used."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable


def before_threads_end(call: Callable[[], None]) -> None:
    """Have `call` called when the main thread has ended.

    Functions of `atexit` come too late: no pool of threads takes a call any more by then. Those of
    concurrent.futures, which forbid it, are registered where this registers, and earlier. A Python
    that has no such place any more, which a test would show, gets a function of `atexit`.
    """
    getattr(threading, "_register_atexit", atexit.register)(call)
