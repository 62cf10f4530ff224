"""What `emulate init` makes of its template for a folder (pure)."""

from __future__ import annotations

import re

TEMPLATE_NAME = "starter"
"""The name of the template's scenario, which a folder without letters keeps."""
SCHEMA_FILE = "scenario.schema.json"
"""What the template's first line names: editors that know YAML read it from beside the scenario."""
_LONGEST = 40
"""Characters of a scenario's name."""


def name_from(folder: str) -> str:
    """Return the name of a scenario in a folder of this name: `My model_2` is `my-model-2`."""
    words = re.sub(r"[^a-z0-9]+", "-", folder.lower())
    name = re.sub(r"^[^a-z]+", "", words)[:_LONGEST].rstrip("-")
    return name or TEMPLATE_NAME


def named(template: str, folder: str) -> str:
    """Return the template with the name of its scenario replaced by that for the folder."""
    return template.replace(f"\nname: {TEMPLATE_NAME}\n", f"\nname: {name_from(folder)}\n", 1)
