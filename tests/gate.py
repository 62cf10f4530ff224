"""Run the tests of `make test`, and give those that failed a second chance that hides nothing.

    python -m tests.gate OPTIONS [OPTIONS ...]

Each OPTIONS, such as "-n auto -m quick", is a run of pytest. What failed runs once more after all
of them, alone and one by one. What fails again fails the gate. What passes is printed as
`flaky: TEST` with its first failure, at the end; it is to be explained and mended before the next
feature. At its end the gate says what it did not test, and why.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tempfile
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WHERE = ("tests", "scenarios")
MOST_FAILED = 10
"""Where more tests failed than that, something is broken: none gets a second chance."""
MOST_FLAKY = 3
"""More flaky tests than that fail the gate."""

PASSED, FAILED = 0, 1
"""Exit codes of pytest. Those above mean that it could not do its work."""

NO_DOCKER = "no Docker engine answers"
"""How the reasons begin of all that needs Docker; the words after that differ."""


@dataclass(frozen=True)
class Outcome:
    """What a run of pytest reported."""

    code: int
    passed: frozenset[str] = frozenset()
    failed: Mapping[str, str] = field(default_factory=dict)
    """The first failure of each test, in order."""
    broken: tuple[str, ...] = ()
    """What failed and is no test, such as a file that can't be imported."""
    skipped: Mapping[str, str] = field(default_factory=dict)
    """The reason of each test."""


def outcome(code: int, lines: Iterable[str]) -> Outcome:
    """Return what a report log of pytest-reportlog has; tests with `xfail` are not in it (pure)."""
    passed: set[str] = set()
    failed: dict[str, str] = {}
    broken: list[str] = []
    skipped: dict[str, str] = {}
    for report in map(json.loads, lines):
        name, result = report.get("nodeid"), report.get("outcome")
        if result == "failed" and report["$report_type"] == "TestReport":
            failed.setdefault(name, _text(report["longrepr"]))
        elif result == "failed":
            broken.append(f"{name}: {_text(report['longrepr'])}")
        elif result == "skipped" and isinstance(report["longrepr"], list):
            skipped[name] = report["longrepr"][2].removeprefix("Skipped: ")
        elif result == "passed" and report.get("when") == "call":
            passed.add(name)
    return Outcome(code, frozenset(passed - failed.keys()), failed, tuple(broken), skipped)


def _text(failure: Any) -> str:
    """Return a failure as its test printed it: its lines, or the message of its traceback."""
    if isinstance(failure, dict):
        crash = failure.get("reprcrash") or {}
        return f"{crash.get('path')}:{crash.get('lineno')}: {crash.get('message')}"
    return str(failure)


def deserves_second_chance(outcomes: Sequence[Outcome]) -> bool:
    """Return whether tests failed, few of them, and nothing else is wrong (pure)."""
    failed = sum(len(one.failed) for one in outcomes)
    is_explained = all(
        one.code == PASSED or (one.code == FAILED and one.failed and not one.broken)
        for one in outcomes
    )
    return is_explained and 0 < failed <= MOST_FAILED


@dataclass(frozen=True)
class Verdict:
    """What the gate says."""

    code: int
    lines: tuple[str, ...]
    """Printed at the end."""


def verdict(outcomes: Sequence[Outcome], again: Mapping[str, Outcome]) -> Verdict:
    """Return what the gate says of its runs and of the second chances, by test (pure)."""
    failed = {name: text for one in outcomes for name, text in one.failed.items()}
    flaky = [name for name, one in again.items() if one.code == PASSED and name in one.passed]
    lines = _not_tested(outcomes)
    for name in flaky:
        lines += [f"flaky: {name}", textwrap.indent(failed[name], "    ")]
    lines += [f"failed: {name}" for name in failed if name not in flaky]
    lines += [f"failed: {name.splitlines()[0]}" for one in outcomes for name in one.broken]
    lines += [f"pytest ended with {one.code}" for one in outcomes if one.code > FAILED]
    if len(failed) > MOST_FAILED:
        lines.append(f"{len(failed)} tests failed: more than {MOST_FAILED} get no second chance.")
    if len(flaky) > MOST_FLAKY:
        lines.append(f"{len(flaky)} tests are flaky, and {MOST_FLAKY} may be.")
    bad = [one.code for one in outcomes if one.code != PASSED]
    is_mended = bool(failed) and len(flaky) == len(failed) <= MOST_FLAKY
    return Verdict(max(bad, default=PASSED) if bad and not is_mended else PASSED, tuple(lines))


def _not_tested(outcomes: Sequence[Outcome]) -> list[str]:
    """Return a line for each reason for which tests were skipped."""
    places: dict[str, Counter[str]] = defaultdict(Counter)
    for one in outcomes:
        for name, why in one.skipped.items():
            cause = NO_DOCKER if why.lower().startswith(NO_DOCKER.lower()) else why
            places[cause][name.partition("::")[0]] += 1
    return [
        f"not tested, because {why}: "
        + ", ".join(f"{place} ({number})" for place, number in sorted(by_file.items()))
        for why, by_file in places.items()
    ]


# --- Effects -------------------------------------------------------------------------------------


def run(where: Sequence[str], options: Sequence[str]) -> Outcome:
    """Run pytest, which prints as ever, and return what it reported."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "report.jsonl")
        command = [sys.executable, "-m", "pytest", *where, *options, f"--report-log={log}"]
        code = subprocess.run(command, check=False).returncode
        return outcome(code, log.read_text().splitlines() if log.exists() else [])


def main(runs: Sequence[str], where: Sequence[str] = WHERE) -> int:
    """Run the gate on some folders, print its verdict, and return the exit code."""
    options = [shlex.split(one) for one in runs]
    outcomes = [run(where, one) for one in options]
    again: dict[str, Outcome] = {}
    if deserves_second_chance(outcomes):
        for of, found in zip(options, outcomes, strict=True):
            for name in found.failed:
                print(f"\nonce more, alone: {name}", flush=True)
                again[name] = run([name], [*of, "-n", "0"])
    end = verdict(outcomes, again)
    if end.lines:
        print("\n" + "\n".join(end.lines), flush=True)
    return end.code


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
