"""A run that goes on, as an object: what `emulate preempt`, `fault`, `wait` stand on.

    with emulator.connect("last") as cluster:
        cluster.wait_for(step=100)
        cluster.preempt("worker-1", grace=5, down=10)
        assert cluster.wait().verdict == "ok"

Times are seconds, or texts such as "5s".
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from emulator.api.server import SOCKET
from emulator.errors import EngineError, EngineLost, UsageError
from emulator.faults.table import FAULTS
from emulator.metrics.samples import Sample, from_json
from emulator.record.events import Entry, FaultEvent, Step, entry_of
from emulator.record.lock import wait_until_over
from emulator.record.reader import Record
from emulator.results import Result, load_result
from emulator.runtime.sockets import close_unconnected
from emulator.runtime.waiting import each

if TYPE_CHECKING:
    import httpx

__all__ = ["Cluster", "connect"]

Time = float | str
_BASE = "http://run/v1"


def connect(run: str | Path = "last", out: str | Path = "runs") -> Cluster:
    """Return the running scenario that `run` means: an id, its beginning, a folder, or `last`.

    Raises UsageError where there is none, or where it is over.
    """
    return Cluster(Record.find(str(run), Path(out)))


class Cluster:
    """A run that goes on. Its methods raise UsageError where a request makes no sense."""

    def __init__(self, record: Record, *, over: bool = False) -> None:
        """`over`: it may be over already; all that it was is in its folder."""
        self.record = record
        self.folder, self.run_id = record.path, record.run_id
        if not over and not (self.folder / SOCKET).exists():
            raise UsageError(_why_not(record))
        self._lock = threading.Lock()
        self._clients: dict[str, httpx.Client] = {}
        """By the socket that they talk to: who takes a run over opens one of its own."""

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
    ) -> list[str]:
        """SIGTERM, `grace`, SIGKILL, `down` ("forever": for good), back on a fresh disk."""
        return self.fault(preempt=target, grace=grace, down=down, address=address)

    def kill(self, target: str) -> list[str]:
        """SIGKILL; the restart policy decides."""
        return self.fault(kill=target)

    def terminate(self, target: str) -> list[str]:
        """SIGTERM; the restart policy decides."""
        return self.fault(terminate=target)

    def pause(self, target: str, *, for_: Time = "forever") -> list[str]:
        """Freeze a task, for a time or until it is healed."""
        return self.fault(pause=target, for_=for_)

    def partition(
        self, *groups: list[str], for_: Time = "forever", oneway: bool = False
    ) -> list[str]:
        """Cut groups of tasks off from each other, for a time or until it is healed."""
        return self.fault(partition=groups, for_=for_, oneway=oneway or None)

    def fault(self, **fault: object) -> list[str]:
        """Inject a fault now, with the keys of an entry of `faults:`; return its ids.

        Every kind has a method of its name as well: `cluster.oom("worker-1")`.
        """
        said = {key.removesuffix("_"): v for key, v in fault.items() if v is not None}
        times = {key for kind in FAULTS.keys() & said for key in FAULTS[kind].times()}
        body = {key: _with_unit(v) if key in times else v for key, v in said.items()}
        return list(self._ask("POST", "/faults", json=body)["faults"])

    def __getattr__(self, name: str) -> Callable[..., list[str]]:
        """Return the method of a kind of fault: it takes the target, and its options by name."""
        if name not in FAULTS:
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
        until_healed = {"for_": "forever"} if FAULTS[name].lasting else {}

        def inject(target: object, **options: object) -> list[str]:
            return self.fault(**{name: target, **until_healed, **options})

        return inject

    def heal(self, fault: str = "all") -> list[str]:
        """Heal a fault, by its id or name, or all; return which were healed."""
        return list(self._ask("DELETE", f"/faults/{quote(fault, safe='')}")["healed"])

    def stop(self) -> None:
        """End the job as Ctrl-C does; a second time: at once."""
        self._ask("POST", "/stop")

    def history(self, after: int = -1) -> Iterator[Entry]:
        """Yield events as they happen, from number `after` + 1 on, until the run is over."""
        for line in self._stream("/history", after=after):
            yield entry_of(line)

    def samples(self, *, last: int | None = None) -> Iterator[Sample]:
        """Yield what tasks and GPUs use as it is measured, until the run is over.

        From the beginning, or from the last so many that there are.
        """
        for line in self._stream("/samples", last=last):
            yield from_json(line)

    def lines(
        self, task: str | None = None, *, last: int | None = None
    ) -> Iterator[tuple[str, str]]:
        """Yield (task, line) as it is printed, until the run is over.

        From the beginning, or from the last so many lines of each task.
        """
        for line in self._stream("/lines", task=task, last=last):
            yield line["task"], line["text"]

    def wait_for(
        self,
        *,
        step: int | None = None,
        event: str | None = None,
        task: str | None = None,
        fault: str | None = None,
        stage: str = "applied",
    ) -> Entry:
        """Return the first event that fits: at least this step, or of this name, of this task.

        With `fault`, an id as `fault()` returns it, the event with which it came to this `stage`.
        Raises UsageError where the run is over before, or the fault was skipped, and EngineError
        where it failed.
        """
        for entry in self.history():
            if fault is not None:
                if _came_to(entry, fault, stage):
                    return entry
                continue
            if task is not None and entry.task != task:
                continue
            if step is not None and not (isinstance(entry, Step) and entry.step >= step):
                continue
            if event is not None and entry.event != event:
                continue
            return entry
        raise UsageError(f"{self.run_id} was over before that happened.")

    def wait(self) -> Result:
        """Wait until the run is over; return what came of it. Raises EngineLost."""
        wait_until_over(self.folder)
        record = Record(self.folder)
        if record.result("summary.json") is None:
            raise EngineLost(f"{self.run_id} ended without a summary.", "Try `emulate check`.")
        return load_result(record)

    def close(self) -> None:
        """Close the connection; the run goes on."""
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
        with self._reached() as client:
            answer = client.request(method, _BASE + path, **request)
        _raise_for(answer)
        return dict(answer.json())

    def _stream(self, path: str, **query: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401
        said = {key: value for key, value in query.items() if value is not None}
        answers: list[httpx.Response] = []
        left = threading.Event()

        def lines(client: httpx.Client) -> Iterator[str]:
            with client.stream("GET", _BASE + path, params=said, timeout=None) as answer:
                answers.append(answer)
                if left.is_set():
                    return
                if answer.is_error:
                    answer.read()
                _raise_for(answer)
                yield from answer.iter_lines()

        def hang_up() -> None:
            left.set()
            for answer in answers:
                _shut_down(answer)

        with (
            self._reached() as client,
            contextlib.closing(each(lines(client), cancel=hang_up)) as found,
        ):
            for line in found:
                yield json.loads(line)

    @contextlib.contextmanager
    def _reached(self) -> Iterator[httpx.Client]:
        """Turn a connection that breaks, or is not to be had, into a sentence."""
        import httpx

        address = _door(self.record)
        with self._lock:  # who follows a stream does so on a thread of its own
            if address not in self._clients:
                transport = httpx.HTTPTransport(uds=address)
                self._clients[address] = httpx.Client(transport=transport, timeout=90.0)
        try:
            yield self._clients[address]
        except httpx.TransportError as error:
            close_unconnected(error)
            raise UsageError(_why_not(self.record)) from None


def _came_to(entry: Entry, fault: str, stage: str) -> bool:
    """Say whether a fault came to a stage with this event; raise where it never will (pure)."""
    if not isinstance(entry, FaultEvent) or entry.id != fault:
        return False
    now = entry.stage
    if now == stage:
        return True
    reason = f"The fault {fault} {{}} before it was {stage}: {entry.reason or ''}."
    if now == "failed":
        raise EngineError(reason.format("failed"))
    if now == "skipped":
        raise UsageError(reason.format("was skipped"))
    return False


def _raise_for(answer: httpx.Response) -> None:
    """Raise what an answer says has gone wrong, in its words."""
    if not answer.is_error:
        return
    try:
        said = str(answer.json()["error"])
    except (ValueError, KeyError):
        said = f"The API failed: {answer.text}."
    raise UsageError(said) if answer.status_code == 422 else EngineLost(said)


def _shut_down(answer: httpx.Response) -> None:
    """End a stream that another thread waits for."""
    connection = answer.extensions["network_stream"].get_extra_info("socket")
    with contextlib.suppress(OSError):  # it has ended by itself
        connection.shutdown(socket.SHUT_RDWR)


def _door(record: Record) -> str:
    """Return the path of a run's socket: it may be long, what it is a link to is not."""
    return os.path.realpath(record.path / SOCKET)


def _why_not(record: Record) -> str:
    """Say why a run can't be reached."""
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


def _with_unit(value: object) -> object:
    """Write a time as scenarios do."""
    return f"{value}s" if isinstance(value, int | float) else value
