"""The notebook of the documentation, run by a real kernel; and the view of a run under way."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
import pytest

import emulator
from emulator.report.live import NotebookView, in_notebook
from scripts.run_notebook import RAN, digest, small
from tests.conftest import python
from tests.session.conftest import shell

DOCS = Path(__file__).parents[2] / "docs"
NOTEBOOK, PAGE = DOCS / "notebook.ipynb", DOCS / "python.md"


def texts(outputs: list[Any], kind: str) -> str:
    return "\n".join(one.data[kind] for one in outputs if kind in one.get("data", {}))


EXECUTE = """\
import nbformat, sys
from pathlib import Path
from scripts.run_notebook import executed
notebook = nbformat.read(sys.argv[1], as_version=4)
nbformat.write(executed(notebook, Path.cwd()), "executed.ipynb")
"""


@pytest.fixture
def executed(tmp_path: Path) -> list[Any]:
    """The outputs of each cell with code."""
    python(EXECUTE, NOTEBOOK, cwd=tmp_path).ended()
    notebook = nbformat.read(tmp_path / "executed.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    return [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]


def test_the_notebook_runs_as_it_stands(executed: list[Any]) -> None:
    _, ran, steps, faults, killed, compared, as_yaml = executed
    assert "<Result notebook-" in texts(ran, "text/plain")
    assert "<iframe" in texts(ran, "text/html")
    assert "worker-1" in texts(steps, "text/html")
    # On a busy machine the task may have ended before the fault reaches it.
    assert re.search("applied|skipped", texts(faults, "text/html"))
    assert texts(killed, "text/plain").startswith("<Result notebook-")
    assert ": interrupted" in texts(killed, "text/plain")
    assert texts(killed, "text/html").count("<iframe") == 1
    assert len(texts(compared, "text/plain").splitlines()) == 3
    assert "for: 0.5s" in as_yaml[0].text


def test_the_page_runs_as_it_stands(tmp_path: Path) -> None:
    blocks = re.findall(r"(?s)```python\n(.*?)```", PAGE.read_text())
    assert len(blocks) == 5
    printed = python("\n".join(blocks), cwd=tmp_path).ended().stdout
    assert "succeeded, verdict ok" in printed
    assert "preempt: worker-1" in printed


def test_it_is_stored_with_the_outputs_of_its_code() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    assert notebook.metadata[RAN] == digest(notebook), "run `python -m scripts.run_notebook`"
    imports, *others = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert imports.outputs == []
    assert all(cell.outputs for cell in others)
    assert all(small([output]) == [output] for cell in others for output in cell.outputs)
    assert ": succeeded, verdict ok" in texts(others[0].outputs, "text/plain")
    assert NOTEBOOK.stat().st_size < 50_000


def test_a_change_of_the_code_is_seen() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    notebook.cells[1].source += "\n1 + 1"
    assert notebook.metadata[RAN] != digest(notebook)


class Display:
    """What IPython gives: a place in the output of a cell."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def update(self, data: Mapping[str, str], *, raw: bool) -> None:
        assert raw
        self.shown.append(data["text/html"])


def test_a_run_shows_its_panel_and_its_latest_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not in_notebook()
    display = Display()
    view = NotebookView(display)
    monkeypatch.setattr("emulator.session.from_python.view_for", lambda progress: view)
    script = 'for n in 1 2 3 4 5 6 7; do echo "line <$n>"; done'
    result = emulator.run(shell(script), engine="process", out=tmp_path)
    last = display.shown[-1]
    assert "succeeded" in last
    assert result.run_id in last
    assert "line &lt;7&gt;" in last
    assert "line &lt;1&gt;" not in last  # only the latest lines
    assert last.startswith("<pre")
