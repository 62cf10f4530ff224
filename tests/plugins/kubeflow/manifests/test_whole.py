"""The whole of what is made of a file, or all that is wrong with it: `NAME.made`; and of exports.

An export is beside the scenario that it is of: `NAME.FORMAT.yaml`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from emulator.errors import ScenarioError
from emulator.plugins.kubeflow.manifests.out.export import export, target
from emulator.plugins.kubeflow.manifests.security import obstacles
from emulator.scenario.assembly import as_text, format_of
from emulator.scenario.given import read_scenario
from emulator.scenario.loader import parse
from emulator.scenario.manifests import Options, read_documents
from tests.plugins.kubeflow.manifests.out.exporting import LOADER, documents
from tests.plugins.kubeflow.manifests.validation import check

WHOLE = Path(__file__).parent / "whole"
EXPORTS = WHOLE.parent / "out" / "whole"


def made(path: Path) -> dict[str, Any]:
    """Return the scenario, the notes, and the place of each value; or the mistakes."""
    given = read_documents(path.read_text(), path.name)
    try:
        found = format_of(given, path.name).convert(given, Options())
    except ScenarioError as error:
        return {"problems": [str(problem) for problem in error.problems]}
    origins = {
        ".".join(map(str, at)): f"{origin.place.partition(':')[2]} {origin.path}"
        for at, origin in found.origins.items()
    }
    notes = [str(note) for note in found.notes]
    return {"scenario": found.scenario, "notes": notes, "origins": origins}


@pytest.mark.parametrize("expected", sorted(WHOLE.glob("*.made")), ids=lambda path: str(path.stem))
def test_the_whole_of_a_conversion(expected: Path) -> None:
    check_conversion(expected)


def check_conversion(expected: Path) -> None:
    found = made(expected.with_suffix(""))
    assert found == yaml.safe_load(expected.read_text())
    if "program" in found.get("scenario", {}):  # else `--command` or `--faults` is needed
        parse(as_text(found["scenario"]))


def head(text: str, folder: Path = EXPORTS) -> list[str]:
    """Return the comments, each note on one line."""
    joined = re.sub(r"(?<=-)\n#   (?! )", "", text.replace(str(folder), "HERE"))
    joined = re.sub(r"\n#   (?! )", " ", joined)
    return [line for line in joined.splitlines() if line.startswith("#")]


@pytest.mark.parametrize("path", sorted(EXPORTS.glob("*.*.yaml")), ids=lambda path: str(path.stem))
def test_the_whole_of_an_export(path: Path) -> None:
    name, _, _ = path.stem.partition(".")
    check_export(path, EXPORTS / f"{name}.yaml")


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
    if to not in ("compose", "helm-values"):
        for document in documents(written):
            check(document)
        named = read_scenario(source).parse(["kubernetes.run_as=1000"])
        written = export(named, target(to, named), destination=source.parent)
        found = [obstacles(one, "restricted") for one in pods(documents(written))]
        assert found
        assert not any(found), found


def pods(found: Any) -> Iterator[Any]:
    """Yield the pod templates in objects."""
    if isinstance(found, dict):
        if "containers" in found:
            yield {"spec": found}
        found = [*found.values()]
    for one in found if isinstance(found, list) else ():
        yield from pods(one)
