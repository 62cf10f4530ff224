"""A running scenario as an object; `emulate preempt`, `fault`, `wait` are made of it.

    with emulator.connect("last") as cluster:
        cluster.wait_for(step=100)
        cluster.preempt("worker-1", grace=5, down=10)
        assert cluster.wait().verdict == "ok"

Times are seconds, or texts such as "5s".
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from emulator.analysis.explanation import in_short
from emulator.errors import EmulatorError, EngineError, EngineLost, UsageError
from emulator.faults.kinds import FAULTS
from emulator.metrics.samples import Sample, from_json
from emulator.record.events import Entry, FaultEvent, Step, entry_of
from emulator.record.lock import is_being_removed, wait_until_over
from emulator.record.reader import Record
from emulator.record.remains import SOCKET
from emulator.record.task_log import Printed
from emulator.results import Result, load_result
from emulator.runtime import signals
from emulator.runtime.sockets import close_unconnected
from emulator.runtime.waiting import each
from emulator.validation.units import parse_duration

if TYPE_CHECKING:
    import httpx

    from emulator.planning.plan import Plan
    from emulator.record.folder import RunFolder

Time = float | str
_BASE = "http://run/v1"
LOOK_AGAIN = 0.2
"""Seconds between two looks at a run whose API does not answer yet: nothing tells when it does."""


class NotAnswering(UsageError):
    """The API of a run does not answer: it is not up yet, is just ending, or is over."""


def connect(run: str | Path = "last", out: str | Path = "runs") -> Cluster:
    """Return the running scenario that `run` means: an id, its beginning, a folder, or `last`.

    Raises UsageError if there is none, or if it is over.
    """
    return Cluster(Record.find(str(run), Path(out)))


def when_up(record: RunFolder, say: Callable[[str], None]) -> Cluster | None:
    """Return a running scenario once its API answers; None if it has no supervisor any more.

    Raises NotAnswering for one that is being removed.
    """
    said = False
    while record.live:
        with contextlib.suppress(NotAnswering):
            with contextlib.ExitStack() as if_it_fails:
                cluster = if_it_fails.enter_context(Cluster(Record(record.path)))
                cluster.status()
                if_it_fails.pop_all()
            return cluster
        if is_being_removed(record.path):
            raise NotAnswering(_why_not(Record(record.path)))
        if not said:
            say(f"waiting for {record.run_id}: it is not up yet, or is just ending")
            said = True
        signals.check()
        time.sleep(LOOK_AGAIN)
    return None


class Cluster:
    """A running scenario. Its methods raise UsageError if a request makes no sense.

    Every kind of fault has a method of its name, which takes the target, and the options by name:
    `cluster.pause("worker-1", for_="5s")`. A fault that lasts does so until it is healed, unless
    `for_` says how long. The methods return the ids of the faults.
    """

    def __init__(self, record: Record, *, over: bool = False) -> None:
        """With `over` it may be over already: its record can be read all the same."""
        self.record = record
        self.folder, self.run_id = record.path, record.run_id
        if not over and not (self.folder / SOCKET).exists():
            raise NotAnswering(_why_not(Record(record.path)))
        self._lock = threading.Lock()
        self._clients: dict[str, httpx.Client] = {}
        """By socket: a supervisor that takes the run over opens one of its own."""

    def status(self) -> dict[str, Any]:
        """Return tasks and faults as they are now."""
        return self._ask("GET", "/run")

    def preempt(
        self,
        target: str,
        *,
        grace: Time | None = None,
        down: Time | None = None,
        address: str | None = None,
        loss: str | None = None,
    ) -> list[str]:
        """SIGTERM, `grace`, SIGKILL, `down` ("forever": for good), back on a fresh disk.

        With `loss="silent"` it loses power instead of SIGTERM.
        """
        return self.fault(preempt=target, grace=grace, down=down, address=address, loss=loss)

    def partition(
        self, *groups: list[str], for_: Time = "forever", oneway: bool = False
    ) -> list[str]:
        """Cut groups of tasks off from each other, for a time or until it is healed."""
        return self.fault(partition=groups, for_=for_, oneway=oneway or None)

    def fault(self, **fault: object) -> list[str]:
        """Inject a fault now, with the keys of an entry of `faults:`; return its ids."""
        written = {
            key.removesuffix("_"): "forever" if value == math.inf else value
            for key, value in fault.items()
            if value is not None
        }
        return list(self._ask("POST", "/faults", json=written)["faults"])

    def __getattr__(self, name: str) -> Callable[..., list[str]]:
        """Return the method of a kind of fault."""
        if name not in FAULTS:
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
        until_healed = {"for_": "forever"} if FAULTS[name].lasting else {}

        def inject(target: object, **options: object) -> list[str]:
            return self.fault(**{name: target, **until_healed, **options})

        return inject

    def heal(self, fault: str = "all") -> list[str]:
        """Heal a fault, by its id or name, or all; return the ids of those that were healed."""
        return list(self._ask("DELETE", f"/faults/{quote(fault, safe='')}")["healed"])

    def stop(self) -> None:
        """End the job as Ctrl-C does; a second time: at once."""
        self._ask("POST", "/stop")

    def history(
        self, after: int = -1, *, timeout: float | None = None
    ) -> Generator[Entry, None, None]:
        """Yield events as they happen, from number `after` + 1 on, until the run is over.

        Raises TimeoutError after `timeout` seconds.
        """
        with contextlib.closing(self._stream("/history", within=timeout, after=after)) as events:
            yield from map(entry_of, events)

    def samples(self, *, last: int | None = None) -> Iterator[Sample]:
        """Yield the usage of tasks and GPUs as it is measured, until the run is over.

        From the beginning, or from the `last` so many samples.
        """
        for line in self._stream("/samples", last=last):
            yield from_json(line)

    def lines(
        self, task: str | None = None, *, last: int | None = None
    ) -> Iterator[tuple[str, str]]:
        """Yield (task, line) as it is printed, until the run is over.

        From the beginning, or from the `last` so many lines of each task.
        """
        for line in self.printed(task, last=last):
            yield line.task, line.text

    def printed(
        self, task: str | None = None, *, last: int | None = None, since: float | None = None
    ) -> Iterator[Printed]:
        """Yield lines with their times as they are printed, until the run is over.

        From the beginning, or from the `last` so many lines of each task, and none from before
        `since`, in seconds since 1970.
        """
        for line in self._stream("/lines", task=task, last=last, since=since):
            yield Printed(**line)

    def wait_for(
        self,
        *,
        step: int | None = None,
        event: str | None = None,
        task: str | None = None,
        fault: str | None = None,
        stage: str = "applied",
        timeout: Time | None = None,
    ) -> Entry:
        """Return the first event of this name, of this task, that reports at least this step.

        A step of an evaluator, which is that of a checkpoint, only if it is the `task`.
        With `fault`, an id as `fault()` returns it, the event with which it reached this `stage`.
        Raises UsageError if the run is over before, or the fault was skipped, EngineError if it
        failed, and TimeoutError if none of this has happened within `timeout`.
        """
        __tracebackhide__ = True  # in a test, the traceback ends where it calls this
        within = parse_duration(timeout) if isinstance(timeout, str) else timeout

        unwanted = _unwanted(step, task, Record(self.folder).plan)

        def fits(entry: Entry) -> bool:
            if fault is not None:
                return _has_reached(entry, fault, stage)
            return (
                task in (None, entry.task)
                and event in (None, entry.event)
                and (step is None or (isinstance(entry, Step) and entry.step >= step))
                and entry.task not in unwanted
            )

        try:
            with contextlib.closing(self.history(timeout=within)) as events:
                found = next(filter(fits, events), None)
        except (EmulatorError, TimeoutError) as error:
            raise error.with_traceback(None) from None  # the sentence says enough
        if found is not None:
            return found
        awaited = _awaited(step, event, task, fault and f"fault {fault} was {stage}")
        record = Record(self.folder)
        raise UsageError(
            f"{self.run_id} was over before {awaited}: {in_short(record.timeline, record.tail)}."
        )

    def wait(self) -> Result:
        """Wait until the run is over; return its result. Raises EngineLost."""
        wait_until_over(self.folder)
        record = Record(self.folder)
        if record.result("summary.json") is None:
            raise EngineLost(f"{self.run_id} ended without a summary.", "Try `emulate check`.")
        return load_result(record)

    def close(self) -> None:
        """Close the connection; the run continues."""
        for client in self._clients.values():
            client.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _ask(self, method: str, path: str, **request: Any) -> dict[str, Any]:  # noqa: ANN401
        with self._client() as client:
            answer = client.request(method, _BASE + path, **request)
        _raise_for(answer)
        return dict(answer.json())

    def _stream(
        self,
        path: str,
        *,
        within: float | None = None,
        **query: Any,  # noqa: ANN401
    ) -> Generator[dict[str, Any], None, None]:
        """Yield what is sent until the run is over; after `within` seconds raise TimeoutError."""
        params = {key: value for key, value in query.items() if value is not None}
        answers: list[httpx.Response] = []
        cancelled = threading.Event()

        def lines(client: httpx.Client) -> Iterator[str]:
            with client.stream("GET", _BASE + path, params=params, timeout=None) as answer:
                answers.append(answer)
                if cancelled.is_set():
                    return
                if answer.is_error:
                    answer.read()
                _raise_for(answer)
                yield from answer.iter_lines()

        def cancel() -> None:
            cancelled.set()
            for answer in answers:
                connection = answer.extensions["network_stream"].get_extra_info("socket")
                with contextlib.suppress(OSError):  # it has ended by itself
                    connection.shutdown(socket.SHUT_RDWR)

        expired = threading.Event()
        try:
            with (
                _after(within, expired, cancel),
                self._client() as client,
                contextlib.closing(each(lines(client), cancel=cancel)) as received,
            ):
                for line in received:
                    yield json.loads(line)
        except UsageError:  # of the connection, which was cut
            if not expired.is_set():
                raise
        if expired.is_set():
            raise TimeoutError(f"{self.run_id}: that did not happen within {within:g} s.")

    @contextlib.contextmanager
    def _client(self) -> Iterator[httpx.Client]:
        """Yield a client; turn a connection that fails into a sentence."""
        import httpx

        # The path of the socket may be too long; that of the file that it links to is not.
        address = os.path.realpath(self.folder / SOCKET)
        with self._lock:  # streams are followed on other threads
            if address not in self._clients:
                # A connection that is kept may be closed by the server just as it is used again.
                limits = httpx.Limits(max_keepalive_connections=0)
                transport = httpx.HTTPTransport(uds=address, limits=limits)
                self._clients[address] = httpx.Client(transport=transport, timeout=90.0)
        try:
            yield self._clients[address]
        except httpx.TransportError as error:
            close_unconnected(error)
            raise NotAnswering(_why_not(self.record)) from None


@contextlib.contextmanager
def _after(
    seconds: float | None, expired: threading.Event, call: Callable[[], None]
) -> Iterator[None]:
    """Set `expired` and call something when so many seconds are over, unless this ends before."""
    if seconds is None:
        yield
        return

    def expire() -> None:
        expired.set()
        call()

    timer = threading.Timer(seconds, expire)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _awaited(step: int | None, event: str | None, task: str | None, fault: str | None) -> str:
    """Return in words what was waited for (pure)."""
    if fault:
        return fault
    what = [f"step {step}"] * (step is not None) + [f"event {event}"] * (event is not None)
    return " ".join([" and ".join(what) or "an event", *([f"of {task}"] if task else [])])


def _unwanted(step: int | None, task: str | None, plan: Plan) -> Collection[str]:
    """Return the tasks whose events are not waited for (pure)."""
    return () if step is None or task else plan.evaluators


def _has_reached(entry: Entry, fault: str, stage: str) -> bool:
    """Return whether a fault reached a stage with this event; raise if it never will (pure)."""
    if not isinstance(entry, FaultEvent) or entry.id != fault:
        return False
    if entry.stage == stage:
        return True
    reason = f"The fault {fault} {{}} before it was {stage}: {entry.reason or ''}."
    if entry.stage == "failed":
        raise EngineError(reason.format("failed"))
    if entry.stage == "skipped":
        raise UsageError(reason.format("was skipped"))
    return False


def _raise_for(answer: httpx.Response) -> None:
    if not answer.is_error:
        return
    try:
        sentence = str(answer.json()["error"])
    except (ValueError, KeyError):
        sentence = f"The API failed: {answer.text}."
    if answer.status_code == 410:
        raise NotAnswering(sentence)
    raise UsageError(sentence) if answer.status_code == 422 else EngineLost(sentence)


def _why_not(record: Record) -> str:
    """Return the sentence for a run that can't be reached."""
    if record.live:
        return (
            f"{record.run_id} is not up yet, is just ending, or is being removed; its API answers "
            "once all tasks run."
        )
    if record.result("summary.json") is None:
        return (
            f"The emulator of {record.run_id} is gone; `emulate attach {record.run_id}` takes the "
            "run over."
        )
    return f"{record.run_id} is over."
