"""HTML documents with charts: templates, styles, scripts and the policy that allows only those.

A document contains a part of Plotly's JavaScript and the charts' data, both gzipped and unpacked by
the browser, and loads nothing: a content security policy allows only its two scripts, by their
hashes. jinja2 escapes all texts.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

import jinja2
from markupsafe import Markup, escape

from emulator import __version__
from emulator.faults.spec import Trigger
from emulator.report.charts import Chart, line_style
from emulator.report.text import printable
from emulator.report.timeline_chart import colour
from emulator.runtime.files import cache_dir
from emulator.validation.units import format_duration, format_rate, format_size

_MARKS = {"ok": "✓", "failed": "✗", "unknown": "?", "running": "…"}


def document(
    template: str,
    charts: Mapping[str, Chart],
    *,
    data: Mapping[str, object] = MappingProxyType({}),
    **context: Any,  # noqa: ANN401
) -> str:
    """Return a template with its charts, its scripts and the policy that allows only those.

    `data` is more that scripts read, by the ids of elements, and may be packed already.
    """
    plotly_digest, plotly = _plotly()
    script = _source("page.js")
    digests = f"{_digest(script.encode())} {plotly_digest}"
    policy = (
        "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; "
        f"script-src {digests}; base-uri 'none'; form-action 'none'"
    )
    return (
        environment()
        .get_template(template)
        .render(
            policy=policy,
            style=Markup(_source("style.css")),
            script=Markup(script),
            plotly=plotly,
            packed={k: packed(v) for k, v in {"charts": charts, **data}.items()},
            heights={name: chart["height"] for name, chart in charts.items()},
            version=__version__,
            **context,
        )
    )


def linker(folder: Path, place: Path) -> Callable[[str], str]:
    """Return a function that links from a page in `place` to files of the run."""
    relative = os.path.relpath(folder, place)
    return lambda name: quote(name if relative == "." else f"{relative}/{name}")


def load(template: str) -> None:
    """Load everything that a document needs besides its data."""
    _plotly()
    for name in (template, "base.html.j2", "macros.html.j2"):
        environment().get_template(name)


@lru_cache(maxsize=1)
def _plotly() -> tuple[str, Markup]:
    """Return the digest of Plotly's JavaScript, and it gzipped in base64: 0.51 MB instead of 1.2.

    scripts/vendor_plotly.py has made the archive.
    """
    packed = (resources.files(__package__) / "plotly" / "plotly-basic.min.js.gz").read_bytes()
    return _digest(gzip.decompress(packed)), Markup(base64.b64encode(packed).decode("ascii"))


class _CompiledTemplates(jinja2.FileSystemBytecodeCache):
    """Keeps compiled templates in the user's cache, if it can be used."""

    def load_bytecode(self, bucket: jinja2.bccache.Bucket) -> None:
        """Load a compiled template, if it is stored."""
        with contextlib.suppress(OSError):
            super().load_bytecode(bucket)

    def dump_bytecode(self, bucket: jinja2.bccache.Bucket) -> None:
        """Store a compiled template."""
        with contextlib.suppress(OSError):
            Path(self.directory).mkdir(parents=True, exist_ok=True)
            super().dump_bytecode(bucket)


def _source(name: str) -> str:
    return (resources.files(__package__) / "templates" / name).read_text(encoding="utf-8")


def _digest(script: bytes) -> str:
    """Return the source expression that allows exactly this script (CSP level 2)."""
    digest = hashlib.sha256(script).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def packed(value: object) -> Markup:
    """Return JSON gzipped in base64, which is safe inside a script element; if packed, as it is."""
    if isinstance(value, Markup):
        return value
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return Markup(base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode("ascii"))


@lru_cache(maxsize=1)
def environment() -> jinja2.Environment:
    """Return the templates of the pages; all texts in them are escaped."""
    found = jinja2.Environment(
        loader=jinja2.PackageLoader("emulator.report"),
        bytecode_cache=_CompiledTemplates(str(cache_dir("pages"))),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {
        "duration": _known(format_duration),
        "size": _known(format_size),
        "rate": _known(format_rate),
        "grouped": grouped,
        "code": code,
        "printable": lambda value: "" if value is None else printable(str(value)),
        "colour": colour,
        "style": line_style,
        "mark": _MARKS.__getitem__,
        "trigger": Trigger.in_words,
    }
    return found


_LONG = re.compile(r"(?<![\w.,:-])\d{4,}(?![\w:-])")


def grouped(text: object) -> str:
    """Return a text with separators of thousands in its numbers: `13,941`."""
    return _LONG.sub(lambda match: f"{int(match[0]):,}", "" if text is None else str(text))


def code(text: str) -> Markup:
    """Return a text as HTML, with what stands between backticks as code."""
    parts = re.split(r"`([^`\n]+)`", printable(text))
    return Markup().join(
        Markup("<code>{}</code>").format(part) if number % 2 else escape(part)
        for number, part in enumerate(parts)
    )


def _known(form: Callable[[Any], str]) -> Callable[[Any], str]:
    """Return a filter that leaves unknown values empty."""
    return lambda value: "" if value is None else form(value)
