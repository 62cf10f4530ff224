"""Python imports this at its start; it begins `emulate_inside`, and then what it has replaced."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys


def _replaced() -> None:
    """Run the `sitecustomize` that Python would have imported without this one."""
    here = os.path.dirname(os.path.abspath(__file__))
    elsewhere = [one for one in sys.path if os.path.abspath(one) != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


importlib.import_module("emulate_inside").start()
_replaced()
