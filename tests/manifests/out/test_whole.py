"""The whole of each export, beside the scenario that it is of: `whole/NAME.FORMAT.yaml`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from emulator.manifests.convert import read_scenario
from emulator.manifests.out.export import export, target
from tests.manifests.out.exporting import LOADER, documents
from tests.manifests.validation import check

WHOLE = Path(__file__).parent / "whole"


def head(text: str, folder: Path = WHOLE) -> list[str]:
    """Return the comments, each note on one line."""
    joined = re.sub(r"(?<=-)\n#   (?! )", "", text.replace(str(folder), "HERE"))
    joined = re.sub(r"\n#   (?! )", " ", joined)
    return [line for line in joined.splitlines() if line.startswith("#")]


@pytest.mark.parametrize("path", sorted(WHOLE.glob("*.*.yaml")), ids=lambda path: str(path.stem))
def test_the_whole_of_an_export(path: Path) -> None:
    name, _, _ = path.stem.partition(".")
    check_export(path, WHOLE / f"{name}.yaml")


def check_export(path: Path, source: Path) -> None:
    """Compare an export with the file that has it; `source` is its scenario."""
    to = path.stem.partition(".")[2]
    scenario = read_scenario(source).parse()
    written = export(scenario, target(to, scenario), destination=source.parent, file="f.yaml")
    expected = path.read_text()
    assert documents(written) == list(yaml.load_all(expected, LOADER))
    assert head(written.text, source.parent) == head(expected)
    assert max(map(len, re.findall("(?m)^# - .*", written.text)), default=0) <= 100
    assert [line[4:] for line in head(written.text, source.parent) if line.startswith("# - ")] == [
        note.replace(str(source.parent), "HERE") for note in written.notes
    ]
    for document in documents(written) if to not in ("compose", "helm-values") else ():
        check(document)
