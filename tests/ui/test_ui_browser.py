"""`emulate ui` in a real browser: what its user does with it, and what other pages can't."""

from __future__ import annotations

import http.server
import json
import re
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Error, Page, expect

from emulator.engines.memory import Script
from emulator.runtime.waiting import for_event
from emulator.ui.gate import ENTRY
from emulator.ui.server import UiServer
from emulator.ui.site import Site
from tests.conftest import BROWSER_PATIENCE, Emulate
from tests.report.runs import a_run, step_line
from tests.report.test_browser import CONTRASTS, DARK, PHONE

PROGRAM = """\
for i in $(seq 1 20); do
  echo '{"emulate": "step", "step": '$i', "loss": '$((20 / i))'}'
  sleep 0.1
done
"""
SCENARIO = """\
name: clicked
framework: tensorflow
image: none
program: {source: train.sh, command: [sh, train.sh]}
cluster: {worker: 1}
expect: {final_step: 20}
"""


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A browser of its own; nothing may be wrong with the pages of the server."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(BROWSER_PATIENCE)
    expect.set_options(timeout=BROWSER_PATIENCE)
    yield context
    context.close()


def watched(page: Page) -> list[str]:
    """Return what goes wrong in a page, as it happens."""
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    return wrong


def test_a_run_is_started_watched_found_and_compared(
    context: BrowserContext, emulate: Emulate, tmp_path: Path
) -> None:
    (tmp_path / "train.sh").write_text(PROGRAM)
    (tmp_path / "clicked.yaml").write_text(SCENARIO)
    serving = emulate.start("ui", "--out", emulate.out, cwd=tmp_path)
    assert serving.stdout is not None
    address = serving.stdout.readline().strip()
    page = context.new_page()
    wrong = watched(page)
    page.goto(address)
    expect(page).to_have_url(re.compile(r"^http://127\.0\.0\.1:\d+/$"))  # without the token
    expect(page.locator("#none")).to_be_visible()
    other = context.new_page()  # which stays on the list
    wrong_there = watched(other)
    other.goto(page.url)
    other.wait_for_selector("html[data-events=open]")
    for step in (20, 19):
        page.goto(page.url.partition("/start")[0].rstrip("/") + "/start")
        page.get_by_label("Scenario").fill("clicked.yaml")
        page.get_by_label("Changed values").fill(f"expect.final_step={step}")
        page.get_by_label("Engine").select_option("process")
        start = page.get_by_role("button", name="Start")
        expect(start).to_be_disabled()  # nothing starts before its plan was seen
        page.get_by_role("button", name="Show the plan").click()
        expect(page.locator("#planned")).to_contain_text("worker-0")
        start.click()
        expect(page).to_have_url(re.compile(r"/$"))
        # Both pages are told of its beginning and its end.
        for one in (page, other):
            row = one.locator("tr[data-verdict=ok]", has_text="clicked")
            expect(row).to_have_count(1 if step == 20 else 2)
    ids = [one.get_attribute("data-run") for one in other.locator("tr[data-run]").all()]
    assert all(run_id and run_id.startswith("clicked-") for run_id in ids)
    expect(other.locator("td.spark svg")).to_have_count(2)
    # By keys alone: filter, select both, compare.
    other.keyboard.press("/")
    other.keyboard.type("clicked")
    expect(other.locator("#count")).to_have_text("2 of 2")
    other.keyboard.press("Escape")
    for key in ("j", "x", "j", "x", "c"):
        other.keyboard.press(key)
    expect(other.get_by_role("heading", name="Runs side by side")).to_be_visible()
    other.wait_for_selector("html[data-charts=drawn]")
    other.locator("#runs tbody a").first.click()
    other.wait_for_selector("html[data-charts=drawn]")
    expect(other.locator("#verdict")).to_contain_text("ok")
    other.get_by_role("link", name="Runs", exact=True).click()
    other.get_by_role("link", name="clicked", exact=True).first.click()
    expect(other.locator("svg.history").last.locator("circle")).to_have_count(2)
    serving.send_signal(signal.SIGINT)
    stdout, stderr = serving.communicate(timeout=540)
    assert (serving.returncode, stdout, stderr) == (0, "", "")
    gone = "net::ERR_"  # the streams of pages that outlive the server
    assert [text for text in (*wrong, *wrong_there) if gone not in text] == []


def test_up_with_ui_shows_the_run_and_ends_with_it(
    context: BrowserContext, emulate: Emulate, tmp_path: Path
) -> None:
    # The task goes on once the page has been seen.
    (tmp_path / "train.sh").write_text(f"until [ -e {tmp_path}/seen ]; do sleep 0.1; done\n")
    (tmp_path / "clicked.yaml").write_text(SCENARIO.replace("expect: {final_step: 20}\n", ""))
    up = ("up", "clicked.yaml", "--engine", "process", "--ui", "--out", emulate.out)
    running = emulate.start(*up, cwd=tmp_path)
    assert running.stderr is not None
    address = next(line for line in running.stderr if "in the browser: " in line).split()[-1]
    page = context.new_page()
    page.goto(address)
    expect(page).to_have_url(re.compile(r"/runs/clicked-[^/]*/$"))
    expect(page.locator("h1")).to_have_text("clicked")
    (tmp_path / "seen").touch()
    _, stderr = running.communicate(timeout=540)
    assert running.returncode == 0, stderr
    with pytest.raises(Error, match="ERR_CONNECTION_REFUSED"):
        page.goto(address)


# --- Other pages ----------------------------------------------------------------------------------


class Served:
    """A server of this process, and what it was asked to start."""

    def __init__(self, out: Path) -> None:
        self.started: list[Sequence[str]] = []
        self.server = UiServer(Site(out, self._launch))
        self.server.start()
        self.here = f"http://127.0.0.1:{self.server.port}"

    def _launch(self, arguments: Sequence[str], run_id: str, say: Callable[[str], None]) -> int:
        self.started.append(arguments)
        return 4


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    steps = [(float(t), step_line(t)) for t in range(1, 9)]
    for number in range(3):
        a_run(
            tmp_path / "runs",
            "cluster: {worker: 1}\nfaults: [{preempt: worker-0, at: 4s, grace: 0s, down: 1s}]\n",
            {"worker-0": Script(steps, exits_at=9.0)},
            f"run-{number}",
        )
    found = Served(tmp_path / "runs")
    yield found
    found.server.stop()
    for_event(found.server.ended)


# What a page of somebody else can try in its visitor's browser, with the visitor's cookies.
ATTACK = """<!doctype html><title>attack</title><script>
const target = "TARGET", body = JSON.stringify({scenario: "quickstart", engine: "process"});
const send = (options) => fetch(target + "/start", {method: "POST", body, ...options});
const read = (path, options) => fetch(target + path, options).then((answer) => answer.text());
const loaded = (tag, path) => new Promise((resolve, reject) => {
  const one = document.createElement(tag);
  one.onload = resolve; one.onerror = reject; one.src = target + path;
  document.body.append(one);
});
const framed = (path) => new Promise((resolve) => {
  const frame = document.createElement("iframe");
  frame.onload = () => { let seen = "";
    try { seen = frame.contentDocument.body.textContent; } catch { seen = ""; }
    resolve(seen); };
  frame.src = target + path; document.body.append(frame);
});
const posted = () => new Promise((resolve) => {
  const frame = document.createElement("iframe"); frame.name = "posted";
  document.body.append(frame);
  const form = document.createElement("form");
  Object.assign(form, {action: target + "/start", method: "POST", enctype: "text/plain"});
  form.target = "posted";
  const field = document.createElement("input"); field.name = body.slice(0, -1); field.value = "}";
  form.append(field); document.body.append(form);
  frame.onload = () => resolve(""); form.submit();
});
const tries = {
  "post": () => send({mode: "no-cors", credentials: "include"}).then(() => ""),
  "post with the header": () => send({credentials: "include", headers: {"X-Emulate-UI": "1"}}),
  "read": () => read("/", {credentials: "include"}),
  "read a run": () => read("/runs/run-0/logs/worker-0.log", {credentials: "include"}),
  "script": () => loaded("script", "/sparks?run=run-0"),
  "image": () => loaded("img", "/"),
  "frame": () => framed("/"),
  "form": posted,
};
(async () => {
  const got = {};
  for (const [name, attempt] of Object.entries(tries)) {
    try { got[name] = String(await attempt()); } catch (error) { got[name] = "refused"; }
  }
  got.events = await new Promise((resolve) => {
    const events = new EventSource(target + "/events", {withCredentials: true});
    events.onopen = () => resolve("open"); events.onerror = () => resolve("refused");
  });
  document.body.dataset.got = JSON.stringify(got);
})();
</script><body></body>"""


@pytest.fixture
def elsewhere() -> Iterator[Callable[[str], int]]:
    """Serves a page on another port of this machine; returns the port."""
    servers: list[http.server.ThreadingHTTPServer] = []

    def serve(page: str) -> int:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("content-type", "text/html")
                self.end_headers()
                self.wfile.write(page.encode())

            def log_message(self, *_: Any) -> None: ...

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server.server_port

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_page_elsewhere_reads_nothing_and_starts_nothing(
    host: str, served: Served, context: BrowserContext, elsewhere: Callable[[str], int]
) -> None:
    mine = context.new_page()
    mine.goto(served.server.url)
    expect(mine.locator("tr[data-run]")).to_have_count(3)  # the browser has the cookie
    page = context.new_page()
    page.goto(f"http://{host}:{elsewhere(ATTACK.replace('TARGET', served.here))}/")
    page.wait_for_selector("body[data-got]")
    got = json.loads(page.evaluate("document.body.dataset.got"))
    assert {name for name, text in got.items() if text not in ("", "refused")} == set()
    assert served.started == []
    # It can't open the page and hold it either, and what it links to is not opened for it.
    page.evaluate("(target) => { window.opened = open(target + '/'); }", served.here)
    link = page.evaluate("(target) => { location.href = target + '/start'; }", served.here)
    assert link is None
    expect(page.locator("body")).to_contain_text(re.compile("Another page|Open the address"))
    # What it has tried is possible for the server's own page, so the refusals are real.
    answer = mine.evaluate(
        """() => fetch("/start", {method: "POST", headers: {"X-Emulate-UI": "1"},
           body: JSON.stringify({scenario: "quickstart", sets: [], engine: "process"})})
           .then((answer) => answer.status)"""
    )
    assert answer == 201


def test_a_stolen_address_is_worth_nothing_in_another_browser(
    served: Served, context: BrowserContext
) -> None:
    page = context.new_page()
    page.goto(f"{served.here}{ENTRY}?token=guessed")
    expect(page.locator("body")).to_contain_text("not that of the server")
    page.goto(served.here)
    expect(page.locator("body")).to_contain_text("Open the address")
    assert context.cookies() == []


# --- Looks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("look", [{}, DARK, PHONE], ids=["light", "dark", "phone"])
def test_every_page_fits_and_can_be_read(
    look: dict[str, Any], served: Served, browser: Browser
) -> None:
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **look})
    context.set_default_timeout(BROWSER_PATIENCE)
    page = context.new_page()
    wrong = watched(page)
    page.goto(served.server.url)
    expect(page.locator("td.spark svg")).to_have_count(3, timeout=BROWSER_PATIENCE)
    for path in ("/", "/scenarios/test", "/start", "/runs/run-0/", "/compare?run=run-0&run=run-1"):
        page.goto(served.here + path)
        if path.startswith(("/runs", "/compare")):
            page.wait_for_selector("html[data-charts=drawn]")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        low = [(round(ratio, 2), text) for ratio, text in page.evaluate(CONTRASTS) if ratio < 4.5]
        assert (path, low) == (path, [])
    assert wrong == []
    context.close()


def test_screen_readers_find_names_and_roles(served: Served, context: BrowserContext) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = context.new_page()
    page.goto(served.server.url)
    expect(page.locator("td.spark svg")).to_have_count(3)
    for path in ("/", "/scenarios/test", "/start", "/runs/run-0/", "/compare?run=run-0&run=run-1"):
        page.goto(served.here + path)
        if path.startswith(("/runs", "/compare")):
            page.wait_for_selector("html[data-charts=drawn]")
        found = axe.run(page).response["violations"]
        wrong = [(one["id"], [node["html"][:120] for node in one["nodes"]][:3]) for one in found]
        assert (path, wrong) == (path, [])
