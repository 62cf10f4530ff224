"""YAML as people write it: lines below each other, no references (pure)."""

from __future__ import annotations

import re
from collections.abc import Sequence

import yaml

WIDTH = 100
"""Characters of a line, about."""


_TYPED = re.compile(r"[-+]?(0o[0-7_]+|\.?[0-9][0-9_.]*[eE][-+]?[0-9]+)|[yYnN]")
"""Text that kubectl reads as a number or as yes and no (YAML 1.1 and 1.2 in Go), and PyYAML as
text, so that it would not quote it."""


class Dumper(yaml.SafeDumper):
    """Writes each value in full, and text of several lines as a block."""

    def ignore_aliases(self, data: object) -> bool:
        """Write the same list twice, where it is there twice."""
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Indent the entries of a list."""
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else "'" if _TYPED.fullmatch(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _list(dumper: yaml.SafeDumper, items: Sequence[object]) -> yaml.SequenceNode:
    is_of_numbers = bool(items) and all(type(one) is int for one in items)
    style = True if is_of_numbers else None
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=style)


Dumper.add_representer(str, _text)
Dumper.add_representer(list, _list)


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
