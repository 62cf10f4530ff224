"""Follows a run for its pages: one reader of the run's API, whatever number of pages there is."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.concurrency import run_in_threadpool

from emulator.api.following import Gone, follow, has_socket
from emulator.errors import EmulatorError
from emulator.metrics.samples import from_json
from emulator.record.events import entry_of
from emulator.record.reader import Record
from emulator.report.charts import Chart
from emulator.runtime.unexpected import explained
from emulator.ui.live.kept import SAMPLES
from emulator.ui.live.page import Made, made
from emulator.ui.live.run import LiveRun, Seen
from emulator.ui.site import Site

TICK = 0.5
"""Seconds between two updates of a page."""
QUIET = 1.0
"""Seconds without an event after which it gets one all the same: time goes on."""
SHARE = 0.01
"""Of a core, for making the whole page again and again."""

Update = dict[str, Any]


@dataclass(eq=False)
class Reader:
    """One page; what it has not been sent yet is one update, however slowly it reads."""

    waiting: Update = field(default_factory=dict)
    told: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self, update: Update) -> None:
        """Add to what it is sent next; a chart replaces the one of that name."""
        charts = {**self.waiting.get("charts", {}), **update.get("charts", {})}
        self.waiting = {**self.waiting, **update, **({"charts": charts} if charts else {})}
        self.told.set()

    def take(self) -> Update:
        """Return what to send."""
        self.told.clear()
        update, self.waiting = self.waiting, {}
        return update


class Feed:
    """The updates of one run, as long as a page follows it."""

    def __init__(self, site: Site, record: Record) -> None:
        self._site, self._record = site, Record(record.path)
        self._run = LiveRun(self._record.plan)
        self._readers: set[Reader] = set()
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._state = ""
        """`over`, `crashed`; empty: it goes on."""
        self._made: Made | None = None
        self._sent: dict[str, str] = {}
        self._next = 0.0
        """When the whole page is made again, by the monotonic clock."""

    async def updates(self) -> AsyncGenerator[Update, None]:
        """Yield the updates of one page, beginning with all that there is."""
        reader = Reader()
        if not self._readers:
            self._begin()
        elif self._made is not None:
            reader.tell(self._whole(self._made))
        self._readers.add(reader)
        try:
            while True:
                await reader.told.wait()
                yield (update := reader.take())
                if update.get("over"):
                    return
        finally:
            self._readers.discard(reader)
            if not self._readers:
                for task in self._tasks:
                    task.cancel()

    @property
    def is_followed(self) -> bool:
        """Whether a page follows it; if not, another feed has to begin anew."""
        return bool(self._readers)

    def _begin(self) -> None:
        self._site.changes.attend(self._record.run_id)
        parts = (self._follow(), self._update())
        self._tasks = [asyncio.create_task(self._said(part)) for part in parts]

    async def _said(self, part: Coroutine[Any, Any, None]) -> None:
        """Do a part; tell pages why it can't go on, as when the record can't be read."""
        try:
            await part
        except Exception as error:
            why = str(error) if isinstance(error, EmulatorError) else str(explained(error))
            self._tell({"failed": why})

    # --- What comes in ----------------------------------------------------------------------------

    async def _follow(self) -> None:
        """Take events and samples until the run is over, from whichever supervisor has it."""
        for entry in await run_in_threadpool(lambda: Record(self._record.path).history):
            self._run.entry(entry)
        self._changed.set()
        with self._site.changes.follower() as follower:
            while not self._site.changes.over:
                history = self._stream("history", self._entries, after=self._run.last)
                await asyncio.gather(history, self._samples())
                self._state = await run_in_threadpool(self._how_it_is)
                self._changed.set()
                if self._state == "over":
                    return
                await self._news(follower.changed)

    async def _news(self, changed: Callable[[], Awaitable[set[str]]]) -> None:
        """Wait until the run has changed, and may answer."""
        # A supervisor that has only now bound its socket does not listen yet, and tells no more.
        opening = self._state == "" and has_socket(self._record.path)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TICK if opening else None):
                while not self._site.changes.over:
                    if self._record.run_id in await changed():
                        return

    async def _samples(self) -> None:
        await self._stream("samples", self._taken, last=SAMPLES)

    def _taken(self, samples: Sequence[Any]) -> None:
        for data in samples:
            self._run.sample(from_json(data))

    def _entries(self, entries: Sequence[Any]) -> None:
        self._run.batch([*map(entry_of, entries)])

    async def _stream(
        self, name: str, take: Callable[[Sequence[Any]], None], **query: object
    ) -> None:
        """Take what a stream of the run's API has, until it ends."""
        with contextlib.suppress(Gone):
            async for lines in follow(self._record.path, name, every=TICK, **query):
                self._state = ""
                take([json.loads(line) for line in lines])
                self._changed.set()

    def _how_it_is(self) -> str:
        """Return what became of a run whose API does not answer, and watch what becomes of it."""
        # First: its supervisor may end meanwhile. One that has taken it over is another one.
        self._site.changes.attend(self._record.run_id)
        if self._record.live:
            return ""
        if Record(self._record.path).result("summary.json") is not None:
            return "over"
        return "crashed"

    # --- What goes out ----------------------------------------------------------------------------

    async def _update(self) -> None:
        """Send updates to all pages, as often as TICK says."""
        while self._state != "over":
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), QUIET)
            self._changed.clear()
            if self._state != "crashed":
                self._run.tick(time.time())
            if self._state != "over" and time.monotonic() >= self._next:
                await self._make()
            self._tell(self._small())
            await asyncio.sleep(TICK)
        self._tell({"over": True})

    async def _make(self) -> None:
        """Make the whole page, and say when it may be made again."""
        seen = self._run.seen()
        made_, took = await run_in_threadpool(self._timed, seen)
        self._next = time.monotonic() + took / SHARE
        self._made = made_
        fresh: Update = {}
        if self._sent.get("html") != made_.html:
            self._sent["html"] = fresh["html"] = made_.html
        charts = {}
        for name, chart in made_.charts.items():
            text = json.dumps(chart)
            if name != "timeline" and self._sent.get(name) != text:
                self._sent[name], charts[name] = text, chart
        self._tell({**fresh, **({"charts": charts} if charts else {})})

    def _timed(self, seen: Seen) -> tuple[Made, float]:
        began = time.thread_time()
        return made(self._record, seen), time.thread_time() - began

    def _whole(self, made_: Made) -> Update:
        return {"html": made_.html, "charts": dict(made_.charts), **self._small()}

    def _small(self) -> Update:
        now = {**self._run.now(), "crashed": self._state == "crashed"}
        charts: Mapping[str, Chart] = {} if self._made is None else self._made.charts
        if "timeline" not in charts:
            return {"now": now}
        return {"now": now, "charts": {"timeline": self._run.grown(charts["timeline"])}}

    def _tell(self, update: Update) -> None:
        if update:
            for reader in self._readers:
                reader.tell(update)
