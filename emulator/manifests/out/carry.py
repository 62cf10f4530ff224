"""Where a manifest keeps what it can't say (pure)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from emulator.manifests.out.spec import Documents
from emulator.manifests.spec import OVERLAY


def carry_in(kind: str) -> Callable[[Documents, Any], None]:
    """Return how it is kept in an annotation of the document of a kind, as JSON."""

    def carry(documents: Documents, patch: Any) -> None:  # noqa: ANN401  YAML
        document = next(one for one in documents if one["kind"] == kind)
        annotations = document["metadata"].setdefault("annotations", {})
        annotations[OVERLAY] = _as_json(patch)

    return carry


def _as_json(patch: Any) -> str:  # noqa: ANN401  YAML
    """Return a patch as JSON in which no two braces follow each other, which begin a template."""
    return json.dumps(patch, ensure_ascii=False).replace("{{", "{\\u007b")


def carry_under(key: str) -> Callable[[Documents, Any], None]:
    """Return how it is kept under a key of the only document."""

    def carry(documents: Documents, patch: Any) -> None:  # noqa: ANN401  YAML
        text = _as_json(patch)
        documents[0][key] = text if "\\u007b" in text else patch

    return carry
