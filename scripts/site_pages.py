"""A hook of MkDocs: what the pages of docs/ link to outside that folder is part of the site.

README.md, CONTRIBUTING.md and the like become pages beside those of docs/. Any other file that a
page links to becomes a page with its text, and a folder one with the names of its files: so the
site needs no repository on some host, and a link to a file that is gone fails the build.
"""

from __future__ import annotations

import json
import posixpath
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
ROOT_PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
"""Files of the root that are pages of their own."""
NOTEBOOK, NOTEBOOK_PAGE = ROOT / "docs" / "notebook.ipynb", "notebook.md"
"""It is a page with its outputs."""
SOURCES = "source"
"""The folder of the site with the texts of other files."""
_LINK = re.compile(r"(?P<before>!?\[[^\]]*\]\()(?P<target>[^)\s#]+)(?P<after>#[^)\s]*)?\)")
_LANGUAGES = {".py": "python", ".yaml": "yaml", ".yml": "yaml", ".toml": "toml", ".c": "c"}


def on_files(files: Any, config: Any) -> Any:  # noqa: ANN401  MkDocs' own types
    """Add the pages of the root, and one for each file that some page links to."""
    from mkdocs.structure.files import File

    for name in ROOT_PAGES:
        files.append(File.generated(config, name, content=page_of_root(name)))
    files.append(File.generated(config, NOTEBOOK_PAGE, content=page_of_notebook(NOTEBOOK)))
    linked = {path for file in pages() for _, path in outside(file)}
    for path in sorted(linked):
        files.append(File.generated(config, source_page(path), content=listing(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:  # noqa: ANN401
    """Lead links that leave docs/ to their pages in the site."""
    name = page.file.src_uri
    if name in ROOT_PAGES or name.startswith(f"{SOURCES}/"):
        return markdown
    return rewritten(markdown, ROOT / "docs" / name, name)


def pages() -> Iterator[Path]:
    """Yield every file that is a page, in docs/ and in the root."""
    yield from sorted((ROOT / "docs").rglob("*.md"))
    yield from (ROOT / name for name in ROOT_PAGES)


def page_of_root(name: str) -> str:
    """Return a file of the root as a page of the site."""
    return rewritten((ROOT / name).read_text("utf-8"), ROOT / name, name)


def outside(file: Path) -> Iterator[tuple[str, Path]]:
    """Yield the links of a file to files of the project that are no pages, with their paths."""
    for found in _LINK.finditer(file.read_text("utf-8")):
        path = target_of(file, found["target"])
        if path is not None and place(path) == source_page(path) and path.exists():
            yield found["target"], path


def target_of(file: Path, target: str) -> Path | None:
    """Return the path in the project that a link leads to; None for an address."""
    if ":" in target:
        return None
    path = Path(posixpath.normpath(file.parent / target))
    return path if ROOT in (path, *path.parents) else None


def place(path: Path) -> str:
    """Return where a file of the project is in the site."""
    relative = path.relative_to(ROOT)
    if path == NOTEBOOK:
        return NOTEBOOK_PAGE
    if relative.parts[:1] == ("docs",):
        return Path(*relative.parts[1:]).as_posix()
    if relative.as_posix() in ROOT_PAGES:
        return relative.as_posix()
    return source_page(path)


def source_page(path: Path) -> str:
    """Return the page with the text of a file; MkDocs leaves out what begins with a dot."""
    parts = (part.lstrip(".") for part in path.relative_to(ROOT).parts)
    return f"{SOURCES}/{'/'.join(parts)}.md"


def rewritten(markdown: str, file: Path, name: str) -> str:
    """Return the text of a page with its links as they are in the site."""

    def link(found: re.Match[str]) -> str:
        path = target_of(file, found["target"])
        if path is None:
            return found[0]
        there = posixpath.relpath(place(path), posixpath.dirname(name) or ".")
        return f"{found['before']}{there}{found['after'] or ''})"

    return _LINK.sub(link, markdown)


def listing(path: Path) -> str:
    """Return a page with the text of a file, or with the names of a folder's files."""
    name = path.relative_to(ROOT).as_posix()
    head = f"---\nsearch: {{exclude: true}}\n---\n# {name}\n\n"
    if path.is_dir():
        command = ["git", "-C", str(ROOT), "ls-files", name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return head + "\n".join(f"- `{file}`" for file in done.stdout.split("\n") if file)
    text = path.read_text("utf-8", "replace").rstrip()
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall(r"`{3,}", text) or [""]))
    return f"{head}{fence}{_LANGUAGES.get(path.suffix, 'text')}\n{text}\n{fence}\n"


def page_of_notebook(path: Path) -> str:
    """Return a notebook as a page: its texts, its code, and its outputs as tables or as text."""
    parts = []
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        parts += map(_output, cell.get("outputs", ()))
    return "\n\n".join(parts) + "\n"


def _output(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    if "text/html" in data:
        return "".join(data["text/html"])
    return "```text\n" + "".join(data.get("text/plain", output.get("text", ""))).rstrip() + "\n```"
