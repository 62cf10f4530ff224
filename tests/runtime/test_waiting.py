"""Waits of the main thread that a signal surely ends.

A signal that comes between Python's last look for one and the blocking call does not wake that
call. A signal that another thread is given does the same at will, so that is how it is shown here.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

import pytest

from emulator.engines.base import Inbox
from emulator.planning.claims import Capacity, Claim, Need
from emulator.planning.leases import Broker, Lease, transaction
from emulator.record.lock import acquire, release, wait_until_over
from emulator.results import Result, RunCallbacks
from emulator.runtime.clock import RealClock
from emulator.runtime.waiting import AHEAD, Event, each, for_event, for_lock, result_of
from emulator.session.threaded import Running
from tests.conftest import python

ALL = Capacity(1, 0)


class Told(Exception):
    """What the handler of a signal raises."""


def tell(number: int, frame: FrameType | None) -> None:
    raise Told


def stands_still(frames: Callable[[], FrameType]) -> None:
    """Return once a thread has been at the same instruction for a while."""
    same, last = 0, (0, 0)
    while same < 20:
        frame = frames()
        here = (id(frame.f_code), frame.f_lasti)
        same, last = (same + 1 if here == last else 0), here
        time.sleep(0.001)


@contextlib.contextmanager
def a_signal_that_wakes_no_thread() -> Iterator[None]:
    """Let another thread be given a signal once this one, the main thread, stands still."""
    waits_here = threading.get_ident()
    over = threading.Event()

    def take() -> None:
        stands_still(lambda: sys._current_frames()[waits_here])
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        over.wait()

    before = signal.signal(signal.SIGUSR1, tell)
    thread = threading.Thread(target=take)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        signal.signal(signal.SIGUSR1, before)


def endless() -> Iterator[int]:
    threading.Event().wait()
    yield 0


def runs_until_asked() -> Running:
    """Return a run that ends when it is asked to."""
    asked = threading.Event()

    def perform(callbacks: RunCallbacks) -> Result:
        callbacks.stoppable(asked.set)
        asked.wait()
        raise AssertionError("the result is not read")

    return Running(perform, RunCallbacks())


@dataclass(frozen=True)
class Held:
    """What others have, for good, in a folder."""

    folder: Path
    lock: IO[str]
    share: Path
    """Where another has the whole machine."""


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    with contextlib.ExitStack() as closing:
        closing.callback(release, acquire(tmp_path))
        for name in ("held", "mutex"):
            taken = closing.enter_context((tmp_path / name).open("w"))
            fcntl.flock(taken, fcntl.LOCK_EX)
        other = closing.enter_context((tmp_path / "held").open("w"))
        claim = Claim(0, "another", os.getpid(), Need(1), ALL)
        lease = closing.enter_context(Lease(tmp_path / "share", claim))
        transaction(lease.folder, lease.enter)
        transaction(lease.folder, lease.look)
        yield Held(tmp_path, other, lease.folder)


def my_share(folder: Path) -> Lease:
    """Return a share of the machine, once it is free."""
    return Broker(folder).acquire("me", Need(1), ALL, recover=print)


WAITS: dict[str, Callable[[Held], object]] = {
    "an event": lambda held: for_event(Event()),
    "a call": lambda held: result_of(threading.Event().wait),
    "a lock": lambda held: for_lock(held.lock.fileno(), fcntl.LOCK_EX),
    "a source": lambda held: next(each(endless())),
    "the next event of an inbox": lambda held: RealClock().next_event(Inbox(), None),
    "the end of a run": lambda held: wait_until_over(held.folder),
    "the broker's mutex": lambda held: my_share(held.folder),
    "another's share of the machine": lambda held: my_share(held.share),
    "a run that is to begin": lambda held: runs_until_asked().begin(),
    "a run's result": lambda held: runs_until_asked().result(),
}


@pytest.mark.parametrize("name", WAITS)
def test_a_signal_that_wakes_no_thread_ends_every_wait(name: str, held: Held) -> None:
    with pytest.raises(Told), a_signal_that_wakes_no_thread():
        WAITS[name](held)


def test_a_run_is_over_before_its_stop_returns_whatever_interrupts_that() -> None:
    """CPython 3.11 takes a thread whose join was interrupted for one that has ended."""
    main = threading.main_thread().ident
    assert main is not None
    asked: list[str] = []
    enough, returned = threading.Event(), threading.Event()
    early: list[bool] = []

    def stop() -> None:
        asked.append("stop")
        if len(asked) == 4:
            enough.set()

    def perform(callbacks: RunCallbacks) -> Result:
        callbacks.stoppable(stop)
        callbacks.reachable()
        while not enough.is_set():  # three interrupts, each once the last has been dealt with
            count = len(asked)
            if count:
                stands_still(lambda: sys._current_frames()[main])
                signal.pthread_kill(main, signal.SIGUSR1)
                while len(asked) == count:
                    time.sleep(0.001)
        early.append(returned.wait(0.5))  # what the run made is being removed
        raise AssertionError("the result is not read")

    before = signal.signal(signal.SIGUSR1, tell)
    try:
        running = Running(perform, RunCallbacks())
        running.begin()
        with pytest.raises(Told):
            running.stop()
        assert running.over
        returned.set()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert early == [False]
    assert len(asked) == 4


def test_a_run_that_was_called_off_never_begins() -> None:
    begun: list[str] = []

    def perform(callbacks: RunCallbacks) -> Result:
        begun.append("begun")
        raise AssertionError("it was called off")

    running = Running(perform, RunCallbacks())
    running.stop()
    running._run()  # as its thread does
    assert begun == []


ALARMS = """
import random, signal, sys, threading
from emulator.results import RunCallbacks
from emulator.session.threaded import Running

class Told(Exception):
    pass

def handler(number, frame):
    raise Told

signal.signal(signal.SIGALRM, handler)
chance = random.Random(7)
for n in range(int(sys.argv[1])):
    asked = threading.Event()

    def perform(callbacks):
        callbacks.stoppable(asked.set)
        asked.wait()
        raise KeyError("the result is not read")

    running = Running(perform, RunCallbacks())
    try:
        signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.0001, 0.002))
        running.result()
    except Told:
        assert running.over or not running._begun
print("done")
"""


def test_alarms_at_any_moment_end_the_wait_for_a_run() -> None:
    """With `Thread.join` about one of a hundred was never seen."""
    assert python(ALARMS, "300").ended().stdout == "done\n"


def test_items_and_errors_of_a_source_are_passed_on() -> None:
    def source() -> Iterator[int]:
        yield from range(3 * AHEAD)
        raise KeyError("its end")

    actual: list[int] = []
    with pytest.raises(KeyError, match="its end"):
        actual.extend(each(source()))
    assert actual == list(range(3 * AHEAD))


def test_a_source_that_is_left_is_cancelled_and_ends() -> None:
    left, ended = threading.Event(), threading.Event()

    def source() -> Iterator[int]:
        yield 1
        left.wait()
        ended.set()

    with contextlib.closing(each(source(), cancel=left.set)) as actual:
        assert next(actual) == 1
    assert ended.is_set()


def test_a_source_that_is_read_to_its_end_is_not_cancelled() -> None:
    assert list(each([1, 2], cancel=pytest.fail)) == [1, 2]


def test_what_is_checked_ends_the_wait_for_a_source_that_yields_without_end() -> None:
    def source() -> Iterator[int]:
        while not left.is_set():
            yield 0

    def check() -> None:
        if next(checks) == 5:
            raise Told

    left, checks = threading.Event(), iter(range(10))
    with pytest.raises(Told):
        list(each(source(), cancel=left.set, check=check))


def test_a_lock_is_not_taken_after_its_wait_was_interrupted(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with path.open("w") as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)

        def stop() -> None:
            raise Told

        with pytest.raises(Told), path.open("w") as waits:
            for_lock(waits.fileno(), fcntl.LOCK_EX, stop)
    with path.open("w") as free:
        for_lock(free.fileno(), fcntl.LOCK_EX)  # whoever waited has it for a moment at most


def test_a_lock_is_acquired_after_a_wait(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with path.open("w") as first, path.open("w") as second, path.open("w") as third:
        fcntl.flock(first, fcntl.LOCK_EX)
        threading.Timer(0.05, fcntl.flock, (first, fcntl.LOCK_UN)).start()
        for_lock(second.fileno(), fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError):
            fcntl.flock(third, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_an_inbox_that_is_waited_for_hands_out_at_once_and_ends_in_time() -> None:
    inbox, clock = Inbox(), RealClock()
    inbox.put("event")
    assert clock.next_event(inbox, None) == "event"
    until = clock.now() + 0.7  # more than a slice
    assert clock.next_event(inbox, until) is None
    assert clock.now() >= until


# --- The end of a program, in the Python that is installed ----------------------------------------

PROGRAM = """
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from emulator.session.from_python import before_threads_end

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
    done = python(PROGRAM.format(then=then))
    assert done.stdout == "a thread\na pool\n", done.stderr
