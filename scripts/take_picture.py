"""Take a picture of a run's page for the documents: its verdict and its timeline, 1280 pixels wide.

    python -m scripts.take_picture runs/careless-... docs/report.png

The run should be of a quiet machine: what is seen are its rates.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.gallery.pictures import page

WIDTH = 1280
ONLY = """
nav.contents, main > :not(#timeline), #timeline > .keep > :not(figure):not(.graph):not(.legend),
#timeline .panels, #timeline .legend ~ * { display: none }
#timeline { margin-top: 0 }
"""
"""The style that leaves the head of the page, and of the rest the timeline with its legend."""


def take(report: Path, target: Path) -> None:
    """Take a picture of a report. Raises FileNotFoundError without Chromium."""
    with page() as browser:
        browser.set_viewport_size({"width": WIDTH, "height": 900})
        browser.goto(report.resolve().as_uri())
        browser.locator("#timeline .main-svg").first.wait_for()
        browser.add_style_tag(content=ONLY)
        box = browser.locator("#timeline").bounding_box()
        assert box is not None
        clip = {"x": 0, "y": 0, "width": WIDTH, "height": box["y"] + box["height"] + 12}
        browser.screenshot(path=target, clip=clip, full_page=True)


if __name__ == "__main__":
    run, target = map(Path, sys.argv[1:])
    take(run / "report.html", target)
