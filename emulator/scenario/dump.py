"""YAML as people write it: lines below each other, no references (pure)."""

from __future__ import annotations

import yaml

WIDTH = 100
"""Characters of a line, about."""


class Dumper(yaml.SafeDumper):
    """Writes each value in full, and text of several lines as a block."""

    def ignore_aliases(self, data: object) -> bool:
        """Write the same list twice, where it is there twice."""
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Indent the entries of a list."""
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


Dumper.add_representer(str, _text)


def dump(data: object, *, short: bool = False) -> str:
    """Return data as YAML; `short`: lists and mappings without inner ones are on one line."""
    return yaml.dump(
        data,
        Dumper=Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=WIDTH,
        default_flow_style=None if short else False,
    )
