"""The end of a program, in the Python that is installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from emulator.runtime.at_exit import before_threads_end

def late():
    thread = Thread(target=lambda: print("a thread", flush=True), daemon=True)
    thread.start()
    thread.join()
    with ThreadPoolExecutor() as pool:
        pool.submit(print, "a pool", flush=True).result()

before_threads_end(late)
{then}
"""


@pytest.mark.parametrize("then", ["", "raise SystemExit(3)", "1 / 0"])
def test_threads_and_pools_can_be_used_at_the_end(then: str) -> None:
    command = [sys.executable, "-c", PROGRAM.format(then=then)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.stdout == "a thread\na pool\n", done.stderr
