"""The mutants of `scripts/mutate` are code, differ from what they replace, and have tests."""

from __future__ import annotations

import ast
from pathlib import Path

from scripts.mutate.__main__ import stages
from scripts.mutate.mutants import ROOT, mutants

MODULE = Path("emulator/analysis/throughput.py")


def test_a_mutant_is_other_code() -> None:
    source = (ROOT / MODULE).read_bytes()
    before = ast.dump(ast.parse(source))
    found = mutants(MODULE)
    assert {"comparison", "guard", "constant", "operator"} <= {mutant.kind for mutant in found}
    for mutant in found:
        assert ast.dump(ast.parse(mutant.of(source))) != before, mutant


def test_a_mutant_runs_against_what_is_named_like_its_module_then_its_folder_then_all() -> None:
    assert list(stages(Path("emulator/analysis/traffic.py"))) == [
        ("named", ["tests/analysis/test_traffic.py"]),
        ("folder", ["tests/analysis"]),
        ("quick", ["tests"]),
    ]
