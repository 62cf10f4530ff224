"""What all pages of `emulate ui` share: the runs, their changes, and how a page is made."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emulator.report import document
from emulator.report.document import Served
from emulator.ui.changes import Changes
from emulator.ui.listing import Listing
from emulator.ui.starting import Launch, Starts

if TYPE_CHECKING:
    import jinja2

    from emulator.report.charts import Chart

LINKS = (("Runs", "/"), ("Start a run", "/start"))
"""The pages that every page links to."""


def _cannot(arguments: Sequence[str], run_id: str, say: Callable[[str], None]) -> int:
    say("no run can be started here")
    return 4


@dataclass
class Site:
    """The pages of one folder of runs."""

    out: Path
    launch: Launch = _cannot
    expected: frozenset[str] = frozenset()
    """Runs that are about to begin: their pages wait for them."""
    listing: Listing = field(init=False)
    changes: Changes = field(init=False)
    starts: Starts = field(init=False)

    def __post_init__(self) -> None:
        self.listing, self.changes = Listing(self.out), Changes(self.out)
        self.starts = Starts(self.out, self.launch, self.changes.tell)

    def page(
        self,
        template: str,
        charts: Mapping[str, Chart] | None = None,
        *,
        scripts: Sequence[str] = (),
        **context: Any,  # noqa: ANN401
    ) -> str:
        """Return a page of this server's own templates, with these scripts of its own."""
        return document.document(
            template,
            charts or {},
            served=served(scripts, charts=bool(charts)),
            templates=templates(),
            **context,
        )


def served(scripts: Sequence[str] = (), *, charts: bool = True) -> Served:
    """Return what a page loads: styles, with `charts` what draws them, and scripts by name."""
    names = [*(["plotly.js", "page.js"] if charts else []), *scripts]
    return Served([url(name) for name in ("style.css", "ui.css")], list(map(url, names)), LINKS)


@cache
def templates() -> jinja2.Environment:
    """Return the templates of the report, and this server's own beside them."""
    import jinja2

    shared = document.environment()
    own = jinja2.PackageLoader("emulator.ui")
    assert shared.loader is not None
    return shared.overlay(loader=jinja2.ChoiceLoader([own, shared.loader]))


# --- Files that pages load ------------------------------------------------------------------------

TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}


@cache
def static() -> Mapping[str, bytes]:
    """Return the files that pages load, by name: those of the report, and those of this server."""
    folder = resources.files(__package__) / "static"
    own = {one.name: one.read_bytes() for one in folder.iterdir() if Path(one.name).suffix in TYPES}
    return {**document.assets(), **own}


@cache
def url(name: str) -> str:
    """Return the address of a file; another one when it changes, so that browsers keep it."""
    return f"/static/{hashlib.sha256(static()[name]).hexdigest()[:16]}/{name}"
