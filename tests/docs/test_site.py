"""The documentation as a site: it builds strictly, and a broken link fails the build."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort

from scripts import site_pages

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
CONFIG = str(ROOT / "mkdocs.yml")


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_MKDOCS_2_WARNING", "1")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_site_builds_strictly(tmp_path: Path) -> None:
    build(load_config(CONFIG, site_dir=str(tmp_path / "site")))
    home = (tmp_path / "site" / "index.html").read_text()
    assert not re.search(r'(src|href)="https?://[^"]*\.(js|css|woff2?)', home)  # all is its own
    assert "unpkg" not in home
    assert 'href="tutorial.html"' in home
    notebook = (tmp_path / "site" / "notebook.html").read_text()
    assert "&lt;Result notebook-" in notebook
    assert 'href="CONTRIBUTING.html"' in home
    code = tmp_path / "site" / "source" / "emulator" / "supervisor" / "strategy.py.html"
    assert "class" in code.read_text()
    assert (tmp_path / "site" / "source" / "ci" / "run.html").is_file()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("link", ["gone.md", "page.md#no-such-heading", "../emulator/gone.py"])
def test_a_link_that_leads_nowhere_fails_the_build(tmp_path: Path, link: str) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text(f"# Page\n\n[there]({link})\n")
    config = load_config(
        CONFIG,
        docs_dir=str(tmp_path / "docs"),
        site_dir=str(tmp_path / "site"),
        hooks=[],
        nav=[{"Page": "page.md"}],
        plugins=[],
    )
    with pytest.raises(Abort):
        build(config)


@pytest.mark.parametrize(
    ("page", "link", "there"),
    [
        ("README.md", "docs/scenario.md#metrics", "scenario.md#metrics"),
        ("docs/scenario.md", "results.md", "results.md"),
        ("docs/python.md", "notebook.ipynb", "notebook.md"),
        ("docs/gallery/ddp.md", "../numbers.md#throughput", "../numbers.md#throughput"),
        ("docs/faults.md", "../CHANGELOG.md", "CHANGELOG.md"),
        ("docs/faults.md", "../emulator/faults/held.py", "source/emulator/faults/held.py.md"),
        ("docs/gallery/ddp.md", "../../Makefile", "../source/Makefile.md"),
        ("CONTRIBUTING.md", ".ci/run", "source/ci/run.md"),
        ("README.md", "https://example.org/docs/x.md", "https://example.org/docs/x.md"),
        ("README.md", "#commands", "#commands"),
    ],
)
def test_links_lead_to_the_place_in_the_site(page: str, link: str, there: str) -> None:
    name = site_pages.place(ROOT / page)
    assert site_pages.rewritten(f"[a]({link})", ROOT / page, name) == f"[a]({there})"
