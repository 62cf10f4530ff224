"""The second chance of a test that failed in `make test`: it hides nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests import gate
from tests.gate import Outcome, deserves_second_chance, outcome, verdict

A, B, C, D = (f"tests/test_x.py::test_{name}" for name in "abcd")
FINE = Outcome(0, frozenset({A}))


def failed(*names: str, code: int = 1, broken: tuple[str, ...] = ()) -> Outcome:
    return Outcome(code, frozenset(), {name: f"why {name}" for name in names}, broken)


def passed(name: str) -> Outcome:
    return Outcome(0, frozenset({name}))


def report(name: str, result: str, failure: object = None, **more: object) -> str:
    about = {"$report_type": "TestReport", "when": "call", **more}
    return json.dumps({"nodeid": name, "outcome": result, "longrepr": failure, **about})


# --- What a run reported -------------------------------------------------------------------------


def test_the_first_failure_of_each_test_counts() -> None:
    crash = {"reprcrash": {"path": "x.py", "lineno": 3, "message": "assert 1 == 2"}}
    lines = [
        json.dumps({"pytest_version": "9", "$report_type": "SessionStart"}),
        report(A, "passed", when="setup"),
        report(A, "failed", crash),
        report(A, "failed", "as it ended", when="teardown"),
        report(B, "passed"),
        report(C, "skipped", ["x.py", 1, "Skipped: no engine"], when="setup"),
        report(D, "skipped", crash),  # it failed as its mark `xfail` expects
    ]
    assert outcome(1, lines) == Outcome(
        1, frozenset({B}), {A: "x.py:3: assert 1 == 2"}, (), {C: "no engine"}
    )


def test_a_test_that_passed_and_could_not_be_cleaned_up_has_failed() -> None:
    lines = [report(A, "passed"), report(A, "failed", "left a thread", when="teardown")]
    assert outcome(1, lines) == Outcome(1, frozenset(), {A: "left a thread"})


def test_a_file_that_can_not_be_imported_is_no_test() -> None:
    line = report("tests/test_x.py", "failed", "SyntaxError", **{"$report_type": "CollectReport"})
    assert outcome(2, [line]).broken == ("tests/test_x.py: SyntaxError",)


# --- Who gets a second chance --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcomes", "does"),
    [
        ([FINE, FINE], False),
        ([failed(A), FINE], True),
        ([FINE, failed(A)], True),
        ([failed(A, B), failed(C)], True),
        ([failed(*map(str, range(10)))], True),
        ([failed(*map(str, range(11)))], False),
        ([failed(*map(str, range(6))), failed(*map(str, range(6, 12)))], False),
        ([failed(A), failed(code=2)], False),
        ([failed(A), failed(code=3)], False),
        ([failed(A, code=3)], False),
        ([failed(A), failed(code=5)], False),  # no test was there
        ([failed(A), failed(code=-9)], False),
        ([failed(A, broken=("tests/test_y.py",))], False),
        ([failed()], False),  # something failed that is no test
    ],
)
def test_few_failed_tests_get_a_second_chance_and_nothing_else(
    outcomes: list[Outcome], does: bool
) -> None:
    assert deserves_second_chance(outcomes) is does


# --- What the gate says --------------------------------------------------------------------------


def test_a_gate_without_failures_passes_and_says_nothing() -> None:
    assert verdict([FINE, FINE], {}) == gate.Verdict(0, ())


def test_what_passes_alone_is_flaky_and_shown_with_its_first_failure() -> None:
    end = verdict([failed(A), FINE], {A: passed(A)})
    assert end == gate.Verdict(0, (f"flaky: {A}", f"    why {A}"))


def test_three_flaky_tests_pass_and_four_do_not() -> None:
    names = [A, B, C, D]
    assert verdict([failed(A, B), failed(C)], {name: passed(name) for name in names[:3]}).code == 0
    end = verdict([failed(*names)], {name: passed(name) for name in names})
    assert end.code == 1
    assert [line for line in end.lines if line.startswith("flaky")] == [
        f"flaky: {name}" for name in names
    ]
    assert end.lines[-1] == "4 tests are flaky, and 3 may be."


@pytest.mark.parametrize(
    "again",
    [
        failed(B),
        Outcome(0, frozenset(), {}, (), {B: "no engine"}),  # skipped, this time
        failed(code=5),
        Outcome(0),
    ],
)
def test_what_does_not_pass_alone_fails_the_gate(again: Outcome) -> None:
    end = verdict([failed(A, B)], {A: passed(A), B: again})
    assert end == gate.Verdict(1, (f"flaky: {A}", f"    why {A}", f"failed: {B}"))


@pytest.mark.parametrize(
    ("outcomes", "code", "line"),
    [
        ([failed(code=1)], 1, None),
        ([failed(A), failed(code=3)], 3, "pytest ended with 3"),
        (
            [FINE, failed(code=2, broken=("tests/test_x.py: no\nmodule",))],
            2,
            "failed: tests/test_x",
        ),
        ([failed(*map(str, range(11)))], 1, "11 tests failed: more than 10 get no second chance."),
    ],
)
def test_without_a_second_chance_the_gate_fails(
    outcomes: list[Outcome], code: int, line: str | None
) -> None:
    end = verdict(outcomes, {})
    assert end.code == code
    assert line is None or any(one.startswith(line) for one in end.lines)


def test_a_run_that_was_killed_fails_the_gate() -> None:
    assert verdict([Outcome(-9), FINE], {}).code != 0


def test_what_was_not_tested_is_a_line_for_each_reason() -> None:
    skipped: Mapping[str, str] = {
        A: "no GPU",
        B: "no Docker engine answers; `make docker` starts one",
        C: "no GPU",
        "scenarios/a.yaml::a": "No Docker engine answers at unix:///x. Start Docker there.",
    }
    assert verdict([Outcome(0, frozenset(), {}, (), skipped)], {}).lines == (
        "not tested, because no GPU: tests/test_x.py (2)",
        "not tested, because no Docker engine answers: scenarios/a.yaml (1), tests/test_x.py (1)",
    )


# --- For real ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_test_that_fails_by_luck_passes_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_luck.py").write_text(
        """\
from pathlib import Path

def test_by_luck():
    seen = Path("seen")
    if not seen.exists():
        seen.touch()
        assert 1 == 2

def test_always():
    pass

def test_never():
    assert not Path("never").exists()
"""
    )
    monkeypatch.chdir(tmp_path)
    runs = ["-n 2 -k 'luck or always' -p no:emulator", "-k never -p no:emulator"]
    assert gate.main(runs, ["."]) == 0
    assert "flaky: test_luck.py::test_by_luck\n" in capfd.readouterr().out
    assert gate.main(runs, ["."]) == 0
    assert "flaky" not in capfd.readouterr().out
    (tmp_path / "never").touch()
    assert gate.main(runs, ["."]) == 1
    assert "failed: test_luck.py::test_never" in capfd.readouterr().out
