"""What the suite may cost is held."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import ratchet


def test_no_folder_of_tests_has_more_lines_than_it_may() -> None:
    found = ratchet.lines(Path(__file__).parent)
    assert found.keys() == ratchet.LINES.keys()
    more = {name: count for name, count in found.items() if count > ratchet.LINES[name]}
    assert not more


def test_lines_are_those_of_a_folder_and_all_below(tmp_path: Path) -> None:
    (tmp_path / "cli" / "deep").mkdir(parents=True)
    for name, text in {"cli/a.py": "1\n2\n", "cli/deep/b.py": "3\n", "c.py": "4\n"}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "cli" / "notes.txt").write_text("5\n")
    assert ratchet.lines(tmp_path) == {"cli": 3, "": 1}


@pytest.mark.parametrize(("most", "code"), [(1e9, 0), (1.0, 1)])
def test_a_run_of_quick_tests_that_takes_too_much_fails(
    pytester: pytest.Pytester, most: float, code: int
) -> None:
    pytester.makeconftest(
        f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parents[1])!r})
        from tests import ratchet
        from tests.ratchet import *
        ratchet.WORK, ratchet.WHOLE = {most}, 1

        def pytest_collection_modifyitems(items):
            for item in items:
                item.add_marker("quick")
        """
    )
    pytester.makeini("[pytest]\nmarkers = quick")
    pytester.makepyfile("def test_a(): pass")
    done = pytester.runpytest_subprocess("-n", "2", "-m", "quick", "-p", "no:hypothesispytest")
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(["work of the quick tests: * of at most *"])
    assert done.ret == code
    done = pytester.runpytest_subprocess("-n", "2", "-p", "no:hypothesispytest")
    assert (done.ret, "work of" in done.stdout.str()) == (0, False)
