#!/usr/bin/env python3
"""Run docs/notebook.ipynb in a kernel of its own and store its outputs: code hosts show them.

What is large is left out: the report of a run has half a megabyte. A test fails while the code is
another than that which was run (tests/session/test_notebook.py).
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import nbformat

NOTEBOOK = Path(__file__).parent.parent / "docs" / "notebook.ipynb"
LARGEST = 20_000
"""Characters of an output in one form; a longer one is left out."""
RAN = "code_that_was_run"
"""The key in the metadata of the notebook, with the digest of its code."""


def digest(notebook: Any) -> str:  # noqa: ANN401  nbformat's own type
    """Return what changes with the code of a notebook."""
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    return hashlib.sha256("\0".join(code).encode()).hexdigest()[:16]


def small(outputs: list[Any]) -> list[Any]:
    """Return outputs without their large forms, and without styles of pandas."""
    kept = []
    for output in outputs:
        data = output.get("data", {})
        for kind in [kind for kind, text in data.items() if len(str(text)) > LARGEST]:
            del data[kind]
        if "text/html" in data:
            data["text/html"] = re.sub(r"(?s)<style scoped>.*?</style>\n?", "", data["text/html"])
        if data or output.get("text"):
            kept.append(output)
    return kept


def executed(notebook: Any, folder: Path) -> Any:  # noqa: ANN401
    """Run a notebook in a folder; return it with all outputs.

    Raises nbclient's CellExecutionError if a cell fails.
    """
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient

    for name, where in (("JUPYTER_RUNTIME_DIR", "runtime"), ("IPYTHONDIR", "ipython")):
        os.environ[name] = str(folder / where)
    # Over sockets in this folder: no other kernel of this machine can take one of its ports first.
    kernels = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=str(folder / "kernel"))
    resources = {"metadata": {"path": str(folder)}}
    return NotebookClient(notebook, km=kernels, timeout=500, resources=resources).execute()


def main() -> None:
    """Run the notebook, and write it with its outputs."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory() as folder:
        executed(notebook, Path(folder))
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # when it was run
        if cell.cell_type == "code":
            cell.outputs = small(cell.outputs)
    notebook.metadata[RAN] = digest(notebook)
    nbformat.write(notebook, NOTEBOOK)  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
