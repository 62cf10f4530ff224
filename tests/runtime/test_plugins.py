"""Another package's plug-in of each group: what it adds, and what it costs where it is broken."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import get_args

import pytest

from emulator.errors import UsageError
from emulator.runtime import plugins
from tests.cli.typed import typed
from tests.conftest import Emulate, python

MODULE = '''\
from pathlib import Path
from pydantic import BaseModel
from emulator.faults.held import Pause
from emulator.runtime.plugins import Command, Export, Option
from emulator.scenario.manifests import Conversion, Format, Manifests
from emulator.validation.fields import Glob

class Cloud(BaseModel):
    """How it runs in a cloud."""
    region: str = "here"

class Nap(Pause):
    """It naps."""
    kind = "nap"
    nap: Glob
    pause: str = ""

def convert(documents, options):
    region = options.get("region", {}).get("of", "none")
    return Conversion({
        "name": "toy", "framework": "none", "image": "none", "cloud": {"region": region},
        "program": {"command": ["sleep", "2"]}, "cluster": {"worker": documents[0].get("toys")},
    })

TOYS = Manifests([Format("Toy", lambda them: them[0].get("kind") == "Toy", convert)],
                 {"Game": "write a Toy"})

def write(record, analysis, target):
    Path(target).write_text(f"{record.run_id} {analysis.outcome}")
    return f"an outcome in {target}"

LINE = Export("FILE", "One line.", write)

def hello() -> None:
    """Say hello."""
    print("hello")

HELLO = Command(hello, "Look", "emulate hello")
SET = Option("set", "KEY=VALUE", "Not ours.", "a=b", "nothing")
REGION = Option("region", "NAME=VALUE", "Of a toy: where it is.", "of=here", "`cloud:`")
'''
ROOT = Path(__file__).parent.parent.parent
ADDED = {
    "engines": {"toy": "toys:Engine"},
    "sections": {"cloud": "toys:Cloud", "cluster": "toys:Cloud", "job_name": "toys:Cloud"},
    "faults": {"nap": "toys:Nap", "kill": "toys:Nap"},
    "manifests": {"toys": "toys:TOYS"},
    "exports": {"line": "toys:LINE"},
    "commands": {
        "hello": "toys:HELLO",
        "region": "toys:REGION",
        "up": "toys:HELLO",
        "set": "toys:SET",
    },
}
BROKEN = {group: {f"bad-{group}": "no_such_module:It"} for group in ADDED}
BROKEN["sections"]["cluster"] = BROKEN["faults"]["kill"] = "no_such_module:It"
TOY = "kind: Toy\ntoys: 2\n"
NAP = "faults: [{nap: worker-1, at: 200ms, for: 200ms}]\nexpect: {steps: none}\n"


def installed(folder: Path, added: dict[str, dict[str, str]]) -> dict[str, str]:
    """Install a distribution with these entry points; return the environment that has it."""
    info = folder / "toys-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toys\nVersion: 1.0\n")
    lines = [
        line
        for group, entries in added.items()
        for line in (f"[emulator.{group}]", *(f"{n} = {place}" for n, place in entries.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    (folder / "toys.py").write_text(MODULE)
    path = [str(folder), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}


def test_entry_points_are_found_ours_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {group: plugins.names(group) for group in get_args(plugins.Group)}
    taken = {group: dict.fromkeys(ours, "toys:Nap") for group, ours in before.items()}
    installed(tmp_path, {**ADDED, **taken, "faults": {**taken["faults"], "nap": "no_such:Nap"}})
    monkeypatch.syspath_prepend(tmp_path)
    for group, ours in before.items():
        assert plugins.names(group)[: len(ours)] == ours
        for name in ours:
            assert getattr(plugins.load(group, name), "__module__", "") != "toys"
    with pytest.raises(UsageError, match="nap can't be loaded from no_such:Nap"):
        plugins.load("faults", "nap")
    assert [*plugins.broken("faults")] == ["nap"]
    assert [*dict(plugins.added("faults", {}))] == [*before["faults"]]


def test_each_group_adds_what_it_is_for(emulate: Emulate, tmp_path: Path) -> None:
    env = installed(tmp_path / "site", ADDED)
    (manifest := tmp_path / "toy.yaml").write_text(TOY)
    (faults := tmp_path / "faults.yaml").write_text(NAP)
    given = (manifest, "--region", "of=there", "--faults", faults)
    done = emulate("convert", *given, env=env).ended()
    assert "cloud: {region: there}" in done.stdout
    assert "nap: worker-1" in done.stdout
    done = emulate(
        "up", *given, "--engine", "process", "--out", emulate.out, "--json", "--set=seed=7", env=env
    ).ended()
    out = tmp_path / "line.txt"
    run = emulate.out / done.json["run_id"]
    emulate("export", run, "--line", out, env=env).ended()
    assert out.read_text() == f"{run.name} succeeded"
    assert emulate("hello", env=env).ended().stdout == "hello\n"
    listed = emulate("--help", env=env).ended().stdout
    assert "hello      Say hello." in listed
    assert "up         Run a scenario" in listed  # nobody takes the place of ours


ASK = """
import json, sys
from tests.cli.typed import typed
print(json.dumps([typed(*words).stderr for words in json.loads(sys.argv[1])]))
"""


def test_what_can_not_be_loaded_costs_its_own_feature_a_sentence(tmp_path: Path) -> None:
    env = installed(tmp_path / "site", BROKEN)
    base = "name: a\nframework: none\nimage: none\nprogram: {command: [a]}\ncluster: {worker: 1}\n"
    (plain := tmp_path / "s.yaml").write_text(f"{base}faults: [{{kill: worker-0, at: 1s}}]\n")
    (section := tmp_path / "section.yaml").write_text(f"{base}bad-sections: {{}}\n")
    (fault := tmp_path / "fault.yaml").write_text(
        f"{base}faults: [{{bad-faults: worker-0, at: 1s}}]"
    )
    (toy := tmp_path / "toy.yaml").write_text(TOY)
    process = ("--engine", "process")
    asked = [
        ("plan", plain, *process),
        ("plan", section, *process),
        ("plan", fault, *process),
        ("plan", toy, *process),
        ("plan", plain, "--engine", "bad-engines"),
        ("plan", plain, *process, "--bad-commands", "a=b"),
        ("bad-commands",),
        ("export", "x", "--bad-exports", "y"),
    ]
    words = [[str(word) for word in one] for one in asked]
    done = python(ASK, json.dumps(words), env=env, cwd=tmp_path).ended()
    whole, *said = json.loads(done.stdout)
    assert whole == ""
    groups = ("sections", "faults", "manifests", "engines", "commands", "commands", "exports")
    for text, group in zip(said, groups, strict=True):
        assert f"bad-{group} can't be loaded from no_such_module:It" in text
        assert "Install what it needs, or remove the package that it comes from" in text
        assert len(text.splitlines()) == 1


def test_doctor_says_what_can_not_be_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path, {"exports": BROKEN["exports"]})
    monkeypatch.syspath_prepend(tmp_path)
    assert "plug-in bad-exports" in typed("doctor").stdout
