"""Pictures of reports and charts, taken with the machine's Chromium."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright
from plotly.graph_objects import Figure

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDTH, HEIGHT = 900, 420


@contextmanager
def page() -> Iterator[Page]:
    """Yield a page of a headless browser. Raises FileNotFoundError if there is no Chromium."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        raise FileNotFoundError("pictures need Chromium: `make browser` installs it")
    with sync_playwright() as playwright:
        # Its own sandbox refuses to run as root, and the pages are our own.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser.new_page(viewport={"width": WIDTH, "height": 1000})
        browser.close()


def of_report(page: Page, report: Path, target: Path) -> None:
    """Take a picture of a report's timeline with its legend."""
    page.goto(report.resolve().as_uri())
    timeline = page.locator("#timeline figure").first  # where steps go back, theirs follows
    timeline.locator(".main-svg").first.wait_for()
    boxes = [timeline.bounding_box(), page.locator("#timeline .legend").first.bounding_box()]
    figure, legend = (box for box in boxes if box is not None)
    figure["height"] = legend["y"] + legend["height"] - figure["y"]
    page.screenshot(path=target, clip=figure, full_page=True)


def of_charts(page: Page, charts: Mapping[str, Figure], folder: Path) -> None:
    """Take a picture of each chart."""
    for name, figure in charts.items():
        height = figure.layout.height or HEIGHT
        figure.update_layout(width=WIDTH, height=height, template="plotly_white", margin={"t": 30})
        with tempfile.NamedTemporaryFile("w", suffix=".html", encoding="utf-8") as file:
            file.write(figure.to_html(include_plotlyjs=True))
            file.flush()
            page.goto(Path(file.name).as_uri())
            page.locator(".main-svg").first.wait_for()
            page.locator(".plotly-graph-div").screenshot(path=folder / f"{name}.png")
