"""The documents tell of all plug-ins: where one was taken out, they are not checked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
_DESCRIBED = re.findall(
    r"\.\./emulator/plugins/(\w+)/", (ROOT / "docs" / "architecture.md").read_text()
)
MISSING = sorted({n for n in _DESCRIBED if not (ROOT / "emulator" / "plugins" / n).is_dir()})
"""Plug-ins of which the documents tell, and that were taken out."""
of_all_plugins = pytest.mark.skipif(
    bool(MISSING), reason=f"the documents tell of {', '.join(MISSING)}, which is not here"
)
