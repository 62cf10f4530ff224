"""What the page of a run that goes on costs: `emulate ui`, the run, and the browser.

25 processes that report 10 steps a second each, and a page of them in Chromium. CPU times are those
of the processes `emulate ui` and `emulate up`. A long task keeps the page from answering its user;
the browser is asked for each task's time on the CPU, too, which a busy machine does not lengthen.

    python -m benchmarks.live_page [SECONDS]
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from playwright.sync_api import CDPSession, Page, sync_playwright

from benchmarks.figures import Figure

ROOT = Path(__file__).parents[1]
TASKS, RATE = 25, 10
PROGRAM = """
$| = 1;
for (my $i = 1; !-e $ARGV[0]; $i++) {
  printf("{\\"emulate\\": \\"step\\", \\"step\\": %d, \\"loss\\": %f}\\n", $i, 1 / $i);
  select(undef, undef, undef, 1 / RATE);
}
"""
SETTLED = 30.0
"""Seconds of the run before anything is measured: by then its history is merged."""
LONG = 50.0
"""Milliseconds of a task that the browser calls long."""


def measure(seconds: float = 60.0) -> list[Figure]:
    """Measure everything."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stop = folder / "stop"
        run = _start(
            "up", str(_scenario(folder, stop)), "--engine", "process", "--plain", at=folder
        )
        ui = _start("ui", at=folder)
        try:
            assert ui.stdout is not None
            address = ui.stdout.readline().decode().strip()
            time.sleep(SETTLED)
            alone = _share(run.pid, seconds / 2)
            return _watched(address, folder, run.pid, ui.pid, seconds, alone)
        finally:
            stop.touch()
            run.wait()
            ui.terminate()
            ui.wait()


def _scenario(folder: Path, stop: Path) -> Path:
    (folder / "train.pl").write_text(PROGRAM.replace("RATE", str(RATE)))
    scenario = folder / "scenario.yaml"
    scenario.write_text(
        "name: many\nframework: none\nimage: none\n"
        f"program: {{source: train.pl, command: [perl, train.pl, {stop}]}}\n"
        f"cluster: {{worker: {TASKS}}}\n"
    )
    return scenario


def _start(*arguments: str, at: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "emulator", *arguments],
        cwd=at,
        stdout=subprocess.PIPE if arguments[0] == "ui" else subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def _watched(
    address: str, folder: Path, run: int, ui: int, seconds: float, alone: float
) -> list[Figure]:
    run_id = next((folder / "runs").iterdir()).name
    with sync_playwright() as playwright:
        path = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(180_000)
        page.goto(address)
        page.goto(f"{address.partition('/enter')[0]}/runs/{run_id}/")
        page.wait_for_selector("html[data-drawn]")
        session = page.context.new_cdp_session(page)
        before, begin = {pid: _cpu(pid) for pid in (ui, run)}, time.perf_counter()
        drawn = _drawn(page)
        tasks = _traced(session, page, seconds)
        took = time.perf_counter() - begin
        served, made = ((_cpu(pid) - then) / took for pid, then in before.items())
        pictures = (_drawn(page) - drawn) / took
        browser.close()
    wall, cpu = (sorted(times, reverse=True) for times in zip(*tasks, strict=True))
    return _figures(served, made, alone, wall, cpu, took, pictures)


def _figures(
    served: float,
    made: float,
    alone: float,
    wall: Sequence[float],
    cpu: Sequence[float],
    took: float,
    pictures: float,
) -> list[Figure]:
    of = f"{TASKS} tasks, {RATE} steps a second each"
    long, long_wall = (sum(one >= LONG for one in times) * 60 / took for times in (cpu, wall))
    share = "% of a core"
    wall_words = f"its tasks of {LONG:g} ms by the clock and more"
    found: list[tuple[str, str, float, str, float | None]] = [
        ("server", f"{of}: CPU of `emulate ui`", 100 * served, share, 5),
        ("run", "the same: CPU of the run, watched", 100 * made, share, None),
        ("alone", "the same: CPU of the run, alone", 100 * alone, share, None),
        ("cpu", "longest task of the page, on the CPU", cpu[0], "ms", LONG),
        ("wall", "longest task of the page, by the clock", wall[0], "ms", None),
        ("long", f"its tasks of {LONG:g} ms on the CPU and more", long, "a minute", 0),
        (
            "long_wall",
            wall_words,
            long_wall,
            "a minute",
            None,
        ),
        ("drawn", "time between two charts that are drawn", 1 / (pictures or 1e-9), "s", 1),
    ]
    return [Figure(f"live_page.{key}", a, b, c, goal) for key, a, b, c, goal in found]


def _drawn(page: Page) -> int:
    return int(page.locator("html").get_attribute("data-drawn") or 0)


def _traced(session: CDPSession, page: Page, seconds: float) -> list[tuple[float, float]]:
    """Return the milliseconds of each task of the page's main thread: by the clock, on the CPU."""
    events: list[dict[str, Any]] = []
    over: list[object] = []
    session.on("Tracing.dataCollected", lambda data: events.extend(data["value"]))
    session.on("Tracing.tracingComplete", lambda data: over.append(data))
    session.send(
        "Tracing.start", {"traceConfig": {"includedCategories": ["toplevel", "__metadata"]}}
    )
    page.wait_for_timeout(1000 * seconds)
    session.send("Tracing.end")
    while not over:
        page.wait_for_timeout(50)
    threads = {
        (one["pid"], one["tid"])
        for one in events
        if one.get("name") == "thread_name" and one["args"]["name"] == "CrRendererMain"
    }
    return [
        (one["dur"] / 1000, one.get("tdur", 0) / 1000)
        for one in events
        if one.get("ph") == "X" and (one["pid"], one["tid"]) in threads and "RunTask" in one["name"]
    ]


def _cpu(pid: int) -> float:
    """Return the CPU seconds of a process's threads so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _share(pid: int, seconds: float) -> float:
    before, begin = _cpu(pid), time.perf_counter()
    time.sleep(seconds)
    return (_cpu(pid) - before) / (time.perf_counter() - begin)


def main() -> None:
    """Measure and print."""
    for one in measure(*map(float, sys.argv[1:2])):
        print(f"{one.title:58} {one.value:8.3g} {one.unit:16} goal {one.goal}")


if __name__ == "__main__":
    main()
