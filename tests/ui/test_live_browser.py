"""A whole run that goes on, in a real browser: watched, broken by buttons, and its report.

Its page goes on by itself, too, when the run is taken over, and when the server is started again.
"""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from emulator.record.reader import Record
from tests.conftest import BROWSER_PATIENCE, Emulate, end, own, wait_for_line
from tests.report.test_browser import CONTRASTS, DARK, PHONE

# Trains until it is told to stop, so that nothing depends on speed. What a page looks for is
# printed again and again, because it shows the last lines only.
PROGRAM = """\
import json, os, sys, time

step = 0
while step < 20 or not os.path.exists(sys.argv[1]):
    if step % 20 == 0:
        print("<img src=x onerror=alert(1)>", flush=True)
    step += 1
    print(json.dumps({"emulate": "step", "step": step, "loss": 1 / step}), flush=True)
    time.sleep(0.05)
"""
SCENARIO = """\
name: watched
framework: none
image: none
program: {{source: train.py, command: [python3, train.py, {stop}]}}
cluster: {{worker: 2}}
metrics: {{interval: 500ms}}
expect: {{max_restarts: 0}}
"""
SHARES = """() => {
  const points = document.querySelector('[data-chart="timeline"]').data
    .filter((one) => one.type === "scatter" && ["job", "repeated"].includes(one.name))
    .flatMap((one) => one.y);
  const most = Math.max(...points);
  const first = points.findIndex((y) => y > most / 3);
  const low = points.findIndex((y, n) => n > first && y < most / 10);
  return low >= 0 && points.slice(low).some((y) => y > most / 3);
}"""
"""Whether the curve of the job's rate has fallen and come back."""


@pytest.fixture
def contexts(browser: Browser) -> Iterator[list[BrowserContext]]:
    """A screen in light, and a phone in the dark."""
    expect.set_options(timeout=BROWSER_PATIENCE)
    dark_phone: dict[str, Any] = {**PHONE, **DARK}
    found = [
        browser.new_context(viewport={"width": 1280, "height": 900}),
        browser.new_context(**dark_phone),
    ]
    for context in found:
        context.set_default_timeout(BROWSER_PATIENCE)
    yield found
    for context in found:
        context.close()


def lane(page: Page, task: str, state: str) -> None:
    """Wait until the lane of a task says so."""
    expect(page.locator(f'tr[data-task="{task}"] .state')).to_have_text(state)


def press(page: Page, name: str) -> None:
    """Press a button by keyboard."""
    page.get_by_role("button", name=name, exact=True).press("Enter")


def test_a_run_is_watched_broken_by_buttons_and_becomes_its_report(
    contexts: list[BrowserContext], emulate: Emulate, tmp_path: Path
) -> None:
    stop = tmp_path / "stop"
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "watched.yaml").write_text(SCENARIO.format(stop=stop))
    up = ("up", tmp_path / "watched.yaml", "--engine", "process", "--out", emulate.out, "--run-id")
    stop.touch()
    assert emulate(*up, "before").returncode == 0
    stop.unlink()
    serving = emulate.start("ui", "--out", emulate.out)
    assert serving.stdout is not None
    address = serving.stdout.readline().strip()
    running = emulate.start(*up, "live", unread=True)
    page, phone = (context.new_page() for context in contexts)
    wrong: list[str] = []
    for one in (page, phone):
        one.on("console", lambda message: wrong.append(message.text))
        one.on("pageerror", lambda error: wrong.append(str(error)))
        one.goto(address)
        one.locator('tr[data-run="live"] a').first.click()
        lane(one, "worker-1", "running")
        expect(one.locator("#pace")).to_contain_text("steps/s")
        expect(one.locator("#verdict")).to_contain_text("running")
        assert one.title() == "watched: running"
    # Expectations tick, and what tasks print is followed and searched, as text.
    expect(page.locator("#expectations")).to_contain_text("max_restarts")
    page.locator("#output summary").press("Enter")
    page.locator("#search").fill("ONERROR")
    shown = page.locator("#lines div:not([hidden])")
    expect(shown).not_to_have_count(0)
    expect(shown.first).to_contain_text("<img src=x")
    assert page.locator("main img").count() == 0
    # Both stand still: the curve falls, and comes back when they are let go.
    page.locator("#by-hand").scroll_into_view_if_needed()
    press(page, "pause worker-0")
    press(page, "pause worker-1")
    for one in (page, phone):
        lane(one, "worker-0", "paused")
        lane(one, "worker-1", "paused")
        expect(one.locator("#pace")).to_contain_text(re.compile(r", 0 steps/s"))
        assert one.evaluate("document.documentElement.scrollWidth <= innerWidth")
        low = [found for found in one.evaluate(CONTRASTS) if found[0] < 4.5]
        assert low == []
    expect(page.locator("html")).to_have_attribute("data-drawn", re.compile("."))
    for name in ("heal worker-0", "heal worker-1"):
        press(page, name)
    lane(phone, "worker-0", "running")
    lane(page, "worker-1", "running")
    while not page.evaluate(SHARES):  # at most until the test is given up
        drawn = page.locator("html").get_attribute("data-drawn") or ""
        expect(page.locator("html")).not_to_have_attribute("data-drawn", drawn)
    # What the command line refuses is refused in the same words.
    press(page, "slow worker-1")
    expect(page.locator("#answer.refused")).to_contain_text("The process engine can't do this")
    page.get_by_label("down of preempt").fill("1s")
    press(page, "preempt worker-1")
    fault = page.locator('#hands li[data-fault="manual-3"]')
    expect(fault).to_contain_text("preempt worker-1, healed")
    press(page, "copy manual-3 as scenario")
    expect(fault.locator("pre")).to_contain_text(
        re.compile(r"preempt: worker-1[^$]*at: {step: \d+}")
    )
    # It is over: the page is the report, with all that was done by hand.
    stop.touch()
    for one in (page, phone):
        expect(one).to_have_title("watched: ok")
        expect(one.locator("#recoveries")).to_contain_text("manual-3: preempt worker-1")
        expect(one.locator("#by-hand")).to_have_count(0)
    running.wait(timeout=540)
    found = Record.find("live", emulate.out)
    assert set(found.timeline.faults) == {"manual-1", "manual-2", "manual-3"}
    page.get_by_role("link", name="Runs", exact=True).click()
    for run_id in ("live", "before"):
        page.locator(f'tr[data-run="{run_id}"] input').check()
    page.locator("#compare").click()
    expect(page.get_by_role("heading", name="Runs side by side")).to_be_visible()
    page.wait_for_selector("html[data-charts=drawn]")
    assert wrong == []
    serving.send_signal(signal.SIGINT)
    assert serving.wait(timeout=540) == 0


# --- A page whose run or whose server is another one ----------------------------------------------

RUN = own("goes-on")
IN_SHELL = """\
step=0
until [ -e /shared/stop ]; do
  step=$((step + 1))
  echo '{"emulate": "step", "step": '$step'}'
  sleep 0.1
done
"""
ON_DOCKER = """\
name: taken-over
framework: none
image: {image}
program: {{source: train.sh, command: [sh, train.sh]}}
cluster: {{worker: 2}}
metrics: {{interval: 500ms}}
"""
TICKS = "(t) => parseFloat(document.getElementById('clock').textContent) > t"
"""Whether the run's time is after that."""
CURVE = """(t) => document.querySelector('[data-chart="timeline"]').data
  .filter((one) => one.type === "scatter" && one.name === "job")
  .some((one) => one.x.some((x, n) => x > t && one.y[n] > 0))"""
"""Whether the curve of the job's rate has steps after that time."""

CLEAR = "document.getElementById('lines').textContent = ''"
"""What the page has of the output; only what comes from now on is there then."""


def served(emulate: Emulate, *arguments: str) -> tuple[subprocess.Popen[str], str]:
    """Start the server; return it with the address that it prints."""
    serving = emulate.start("ui", "--out", emulate.out, *arguments)
    assert serving.stdout is not None
    return serving, serving.stdout.readline().strip()


def link(page: Page, words: str) -> None:
    """Wait until the page says that of the run and of its own connection."""
    expect(page.locator("#link")).to_contain_text(words)


def clock(page: Page) -> float:
    """Return the run's time, as the page has it."""
    return float(page.locator("#clock").inner_text().removesuffix(" s"))


@pytest.mark.docker
def test_the_page_of_a_killed_run_goes_on_when_it_is_taken_over(
    contexts: list[BrowserContext], emulate: Emulate, tmp_path: Path, tiny_image: str
) -> None:
    (tmp_path / "train.sh").write_text(IN_SHELL)
    (tmp_path / "taken-over.yaml").write_text(ON_DOCKER.format(image=tiny_image))
    up = ("up", tmp_path / "taken-over.yaml", "--engine", "docker", "--out", emulate.out)
    running = emulate.start(*up, "--run-id", RUN, unread=True)
    while not (emulate.out / RUN / "api.sock").exists():
        assert running.poll() is None
    _, address = served(emulate)
    page = contexts[0].new_page()
    page.goto(address)
    page.locator(f'tr[data-run="{RUN}"] a').first.click()
    lane(page, "worker-0", "running")
    page.locator("#output summary").press("Enter")
    expect(page.locator("#lines div")).not_to_have_count(0)
    press(page, "pause worker-1")
    lane(page, "worker-1", "paused")
    page.locator('[data-chart="timeline"]').scroll_into_view_if_needed()
    page.wait_for_function(CURVE, arg=0)
    end(running, signal.SIGKILL)
    link(page, "the emulator of this run was killed; `emulate attach` takes it over")
    killed = clock(page)
    attach = emulate.start("attach", RUN, "--out", emulate.out, "--plain")
    wait_for_line(attach, "taken over after")
    # State, time, curve and output go on; what was paused before is healed, with the same buttons.
    link(page, "running")
    expect(page.locator("html")).to_have_attribute("data-state", "running")
    page.wait_for_function(TICKS, arg=killed)
    page.wait_for_function(CURVE, arg=clock(page))
    lane(page, "worker-1", "paused")
    press(page, "heal worker-1")
    lane(page, "worker-1", "running")
    page.evaluate(CLEAR)
    expect(page.locator("#lines div")).not_to_have_count(0)
    page.get_by_label("down of preempt").fill("1s")
    press(page, "preempt worker-0")
    fault = page.locator('#hands li[data-fault="manual-2"]')
    expect(fault).to_contain_text("preempt worker-0, healed")
    touch = ("--", "touch", "/shared/stop")
    emulate("exec", "--out", emulate.out, RUN, "worker-1", *touch).ended()
    expect(page).to_have_title("taken-over: ok")
    expect(page.locator("#by-hand")).to_have_count(0)
    expect(page.locator("#recoveries")).to_contain_text("manual-2: preempt worker-0")
    _, said = attach.communicate(timeout=540)
    assert attach.returncode == 0, said


def test_a_page_goes_on_with_the_next_server_of_its_port(
    contexts: list[BrowserContext], emulate: Emulate, tmp_path: Path
) -> None:
    stop = tmp_path / "stop"
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "watched.yaml").write_text(SCENARIO.format(stop=stop))
    up = ("up", tmp_path / "watched.yaml", "--engine", "process", "--out", emulate.out)
    running = emulate.start(*up, "--run-id", RUN, unread=True)
    while not (emulate.out / RUN / "api.sock").exists():
        assert running.poll() is None
    serving, address = served(emulate)
    port = address.partition("/enter")[0].rpartition(":")[2]
    page = contexts[0].new_page()
    page.goto(address)
    page.locator(f'tr[data-run="{RUN}"] a').first.click()
    lane(page, "worker-1", "running")
    page.locator("#output summary").press("Enter")
    expect(page.locator("#lines div")).not_to_have_count(0)
    assert end(serving, signal.SIGINT).returncode == 0
    link(page, "connecting again")
    stood = clock(page)
    # The next one has another secret; who opens its address once opens it for all pages.
    serving, address = served(emulate, "--port", port)
    link(page, "Open the address that `emulate ui` has printed")
    assert clock(page) == stood
    page.evaluate(CLEAR)
    other = contexts[0].new_page()
    other.goto(address)
    link(page, "running")
    page.wait_for_function(TICKS, arg=stood)
    expect(page.locator("#lines div")).not_to_have_count(0)
    press(page, "pause worker-0")
    lane(page, "worker-0", "paused")
    press(page, "heal worker-0")
    # It ends while no server answers: the page learns of it from the next one.
    assert end(serving, signal.SIGINT).returncode == 0
    link(page, "connecting again")
    stop.touch()
    running.wait(timeout=540)
    serving, address = served(emulate, "--port", port)
    other.goto(address)
    expect(page).to_have_title("watched: ok")
    expect(page.locator("#by-hand")).to_have_count(0)
    assert end(serving, signal.SIGINT).returncode == 0
