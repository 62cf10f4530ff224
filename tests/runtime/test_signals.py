"""Where Ctrl-C, SIGTERM and SIGHUP go during a command, and in another program."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from types import FrameType

import pytest

from emulator.runtime import signals
from emulator.runtime.signals import check, deferred

pytestmark = pytest.mark.usefixtures("default_hangup")

OWN = (
    "import os, signal, sys, threading, time\n"
    "from emulator.runtime import signals\n"
    "signals.install()\n"
)


def reported(program: str, *numbers: signal.Signals, before: str = "") -> tuple[int, str, str]:
    """Run a program, send it each signal once it has printed a line; return how it ended."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", before + OWN + program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for number in numbers:
        assert process.stdout.readline() == "now\n"
        process.send_signal(number)
    process.wait(timeout=300)
    stdout, stderr = process.communicate()
    return process.returncode, stdout, stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_has_made_nothing_ends_with_a_line(number: signal.Signals) -> None:
    """Whatever it waits for: nothing would ever wake this one."""
    ended = reported(
        "print('now')\nwaits = threading.Lock()\nwaits.acquire()\nwaits.acquire()", number
    )
    assert ended == (130, "", f"emulate: interrupted by {number.name}\n")


def test_a_hangup_counts_once_and_not_if_it_was_ignored() -> None:
    """The shell and the kernel each send one: the second must not kill what the first one ends."""
    program = """
received = []
with signals.deferred() as deferral:
    deferral.hand_to(received.append)
    os.kill(os.getpid(), signal.SIGHUP)
    os.kill(os.getpid(), signal.SIGHUP)
    os.kill(os.getpid(), signal.SIGTERM)
    while signal.SIGTERM not in received:
        time.sleep(0.001)
    print(*(number.name for number in received))
"""
    assert reported(program) == (0, "SIGHUP SIGTERM\n", "")
    nohup = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    assert reported(program, before=nohup) == (0, "SIGTERM\n", "")


def test_a_signal_during_imports_is_no_traceback() -> None:
    program = "print('now')\nwhile True:\n    import json\n    del sys.modules['json']"
    ended = reported(program, signal.SIGINT)
    assert ended == (130, "", "emulate: interrupted by SIGINT\n")


def test_a_deferred_signal_ends_the_work_at_the_next_check() -> None:
    program = """
try:
    with signals.deferred("removing"):
        print("now")
        while True:  # what can't be interrupted, and then a place where it may end
            time.sleep(0.001)
            signals.check()
except signals.Interruption as interruption:
    print(interruption)
"""
    ended = reported(program, signal.SIGTERM)
    assert ended == (0, "interrupted by SIGTERM\n", "emulate: removing\n")


def test_a_deferred_signal_ends_the_block_and_nothing_after_it_begins() -> None:
    program = """
try:
    with signals.deferred():
        print("now")
        while not signals._owner.pending:
            time.sleep(0.001)
        print("all of the block")
    print("never")
except signals.Interruption:
    pass
try:
    with signals.deferred():
        print("never")
except signals.Interruption:
    print("once more")
"""
    assert reported(program, signal.SIGINT) == (0, "all of the block\nonce more\n", "")


def test_pending_and_later_signals_are_handed_over() -> None:
    program = """
from queue import SimpleQueue
received = SimpleQueue()
with signals.deferred() as deferral:
    print("now")
    while not signals._owner.pending:
        time.sleep(0.001)
    deferral.hand_to(received.put)
    first = received.get().name
    print("now")
    print(first, received.get().name)
print("its own end")
"""
    ended = reported(program, signal.SIGINT, signal.SIGTERM)
    assert ended == (0, "SIGINT SIGTERM\nits own end\n", "")


def test_once_all_is_settled_a_signal_changes_nothing_until_the_end() -> None:
    program = """
import atexit
printed = threading.Event()
def say(text):
    print(text)
    printed.set()
with signals.deferred() as deferral:
    deferral.settle(say, "settled")
print("now")
printed.wait()
signals.ignore()
atexit.register(os.kill, os.getpid(), signal.SIGINT)
atexit.register(os.kill, os.getpid(), signal.SIGTERM)
sys.exit(7)
"""
    assert reported(program, signal.SIGINT) == (7, "settled\n", "")


def test_a_full_pipe_is_not_waited_for() -> None:
    """The pipe is full, like a terminal after Ctrl-S."""
    program = """
os.set_blocking(2, False)
try:
    while os.write(2, b"x" * 4096):
        pass
except BlockingIOError:
    os.set_blocking(2, True)
print("now", flush=True)
threading.Event().wait()
"""
    code, _, _ = reported(program, signal.SIGINT)
    assert code == 130


# --- In a program that is not ours ----------------------------------------------------------------


@pytest.fixture
def handled() -> Iterator[list[int]]:
    """What the handler of another program receives."""
    result: list[int] = []

    def handler(number: int, frame: FrameType | None) -> None:
        result.append(number)

    before = {one: signal.signal(one, handler) for one in (signal.SIGINT, signal.SIGTERM)}
    yield result
    for one, old in before.items():
        signal.signal(one, old)


def test_signals_of_others_are_taken_only_between_hand_to_and_the_end(handled: list[int]) -> None:
    taken: list[int] = []
    with deferred("never printed") as one:
        os.kill(os.getpid(), signal.SIGINT)
        check()
        assert handled == [signal.SIGINT]
        one.hand_to(taken.append)
        os.kill(os.getpid(), signal.SIGTERM)
        assert taken == [signal.SIGTERM]
    os.kill(os.getpid(), signal.SIGTERM)
    assert handled == [signal.SIGINT, signal.SIGTERM]


def test_a_late_signal_is_raised_again_unless_one_was_handed_over(handled: list[int]) -> None:
    taken: list[int] = []
    for early in (False, True):
        texts: list[str] = []
        with deferred() as one:
            one.hand_to(taken.append)
            if early:
                os.kill(os.getpid(), signal.SIGINT)
            one.settle(texts.append, "removing")
            os.kill(os.getpid(), signal.SIGINT)
            assert (texts, len(taken)) == (["removing"], int(early))
            assert len(handled) == int(early)
        assert handled == [signal.SIGINT]
    assert taken == [signal.SIGINT]


def test_nothing_is_owned_here() -> None:
    assert signals._owner is None
