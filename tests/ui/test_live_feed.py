"""How a page's updates follow a run from one supervisor to the next, without a browser."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from emulator.engines.memory import Script
from emulator.record.lock import acquire, release
from emulator.record.reader import Record
from emulator.record.remains import SOCKET
from emulator.ui.live.feed import Feed, Update
from emulator.ui.site import Site
from tests.report.runs import a_run, step_line

PATIENCE = 120.0
"""Seconds for what happens at once on an idle machine."""
Updates = AsyncGenerator[Update, None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run that is over."""
    steps = [(float(t), step_line(t)) for t in range(1, 9)]
    scripts = {"worker-0": Script(steps, exits_at=9.0)}
    return a_run(tmp_path, "cluster: {worker: 1}\n", scripts, "run-0").path


def follow(folder: Path, act: Callable[[Updates], Awaitable[None]]) -> None:
    """Do something with the updates of a run's page, while the folder of runs is watched."""

    async def following() -> None:
        site = Site(folder.parent)
        site.changes.start(asyncio.get_running_loop())
        try:
            async with asyncio.timeout(PATIENCE), aclosing(updates_of(site)) as updates:
                await act(updates)
        finally:
            site.changes.stop()

    async def updates_of(site: Site) -> Updates:
        async with aclosing(Feed(site, Record(folder)).updates()) as updates:
            async for update in updates:
                assert "failed" not in update, update["failed"]
                yield update

    asyncio.run(following())


async def until(updates: Updates, *, crashed: bool) -> None:
    """Read updates until one says whether the run's emulator was killed."""
    async for update in updates:
        if update.get("now", {}).get("crashed") is crashed:
            return
    raise AssertionError("the updates have ended")


def bound(folder: Path) -> socket.socket:
    """Return the socket of a run's API, which does not listen yet."""
    found = socket.socket(socket.AF_UNIX)
    found.bind(str(folder / SOCKET))
    found.setblocking(False)
    return found


def test_the_page_of_a_run_that_is_over_is_told_so_and_of_no_mistake(folder: Path) -> None:
    async def act(updates: Updates) -> None:
        assert [update.get("over") async for update in updates][-1] is True

    follow(folder, act)


def test_whoever_takes_a_killed_run_over_is_followed_to_its_end(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)  # the paths of sockets are short
    summary = folder / "summary.json"
    summary.rename(folder / "kept")

    async def act(updates: Updates) -> None:
        await until(updates, crashed=True)
        lock = acquire(folder)
        with bound(Path()) as api:
            await until(updates, crashed=False)
            api.listen()  # which nobody is told
            accepted, _ = await asyncio.get_running_loop().sock_accept(api)
            accepted.close()
            (folder / SOCKET).unlink()
        (folder / "kept").rename(summary)  # the API ends before the run does
        await anext(updates)
        release(lock)
        assert [update.get("over") async for update in updates][-1] is True

    follow(folder, act)


def test_without_a_page_nothing_asks_the_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    lock = acquire(folder)

    async def act(updates: Updates) -> None:
        loop = asyncio.get_running_loop()
        with bound(Path()) as api:
            api.listen()
            await anext(updates)
            asked = [(await loop.sock_accept(api))[0] for _ in ("history", "samples")]
            await updates.aclose()
            for one in asked:
                one.setblocking(False)
                while await loop.sock_recv(one, 4096):
                    pass
                one.close()

    follow(folder, act)
    release(lock)
