"""Takes the pictures of docs/ui.md: `python -m scripts.take_ui_pictures [FOLDER]`.

It runs a scenario a few times with processes, serves the folder, and looks at
it with the Chromium of `make browser`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from emulator.runtime.waiting import for_event
from emulator.ui.server import UiServer
from emulator.ui.site import Site

PICTURES = Path(__file__).parent.parent / "docs" / "pictures"
PROGRAM = """\
import os, signal, sys, time
saved = os.path.join(os.environ.get("EMULATOR_SHARED", "."), "step")
step = int(open(saved).read()) if os.path.exists(saved) else 0
every, rest = int(os.environ["EVERY"]), float(os.environ["REST"])
while step < 300:
    step += 1
    time.sleep(rest)
    if step % every == 0:
        with open(saved + ".new", "w") as file:
            file.write(str(step))
        os.replace(saved + ".new", saved)
    print('{"emulate": "step", "step": %d, "loss": %.4f}' % (step, 3 / step), flush=True)
"""
SCENARIO = """\
name: spot-training
framework: none
image: none
program: {{source: train.py, command: [python3, train.py]}}
cluster: {{worker: {{replicas: 1, env: {{EVERY: "{every}", REST: "{rest}"}}}}}}
faults: [{{preempt: worker-0, at: {{step: 150}}, grace: 0s, down: {down}}}]
expect: {{final_step: 300, max_lost_steps: {most}}}
"""
RUNS = [
    {"every": 10, "rest": 0.01, "down": "1s"},
    {"every": 10, "rest": 0.01, "down": "1s"},
    {"every": 10, "rest": 0.011, "down": "1s"},
    {"every": 40, "rest": 0.01, "down": "1s"},
    {"every": 100, "rest": 0.01, "down": "2s"},
    {"every": 10, "rest": 0.02, "down": "1s"},
    {"every": 10, "rest": 0.01, "down": "1s"},
]


def main(folder: Path) -> None:
    """Run, serve, look."""
    (folder / "train.py").write_text(PROGRAM)
    out = folder / "runs"
    for number, values in enumerate(RUNS):
        (folder / "scenario.yaml").write_text(SCENARIO.format(most=45, **values))
        up = (sys.executable, "-m", "emulator", "up", str(folder), "--engine", "process")
        done = subprocess.run([*up, "--out", str(out), "--quiet"], check=False)
        print(f"run {number + 1} of {len(RUNS)}: {done.returncode}")
    server = UiServer(Site(out))
    server.start()
    with sync_playwright() as playwright:
        path = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 640}, device_scale_factor=1)
        page.goto(server.url)
        page.wait_for_selector("html[data-events=open]")
        for spark in page.locator("td.spark svg").all():
            spark.wait_for()
        page.locator("td.spark svg").nth(len(RUNS) - 1).wait_for()
        _take(page, "ui-runs")
        page.get_by_role("link", name="spot-training", exact=True).first.click()
        page.wait_for_selector("svg.history")
        page.set_viewport_size({"width": 1280, "height": 1000})
        _take(page, "ui-history")
        browser.close()
    server.stop()
    for_event(server.ended)


def _take(page: Page, name: str) -> None:
    PICTURES.mkdir(exist_ok=True)
    page.screenshot(path=PICTURES / f"{name}.png")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(temporary))
