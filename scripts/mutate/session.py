"""The quick tests, collected once: each mutant runs against them in a fork of this process.

`python -m scripts.mutate.session IN OUT` reads a request a line from the file descriptor IN and
writes an answer a line to OUT, as JSON. The first answer is the list of the tests. Then:

- {"measure": [FIRST, STEP]}: run every STEPth test from the first on; {"failed": names of tests,
  "lines": {file: {line of the package: numbers of the tests that run it}}}
- {"path": FILE, "source": TEXT, "tests": NUMBERS, "enough": COUNT}: run tests as if the file had
  this text, until so many have failed; {"failed": numbers}; {"import": true} if what runs when the
  module is imported would differ, which only a process of its own can show.

{"lost": true} if the fork was killed, or did not end.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from scripts.mutate.patch import AtImport, patch

ROOT = Path.cwd()
PATIENCE = 300
"""Seconds; tests that take longer found the mutant: it does not end."""


class Session:
    """A plugin of pytest: what it does in place of running the tests."""

    def __init__(self, requests: int, answers: int) -> None:
        self._requests = os.fdopen(requests, encoding="utf-8")
        self._answers = os.fdopen(answers, "w", encoding="utf-8")
        self._failed = False

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Answer requests, as long as there are any."""
        self._items = session.items
        self._answer([item.nodeid for item in self._items])
        for request in map(json.loads, self._requests):
            task = partial(self._measured if "measure" in request else self._tried, **request)
            self._answer(_forked(task, None if "measure" in request else PATIENCE))
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Look whether a part of a test has failed."""
        self._failed = self._failed or report.failed

    def _answer(self, value: object) -> None:
        self._answers.write(json.dumps(value) + "\n")
        self._answers.flush()

    def _tried(self, path: str, source: str, tests: Sequence[int], enough: int) -> dict[str, Any]:
        file = ROOT / path
        try:
            patch(file, file.read_bytes(), source.encode())
        except AtImport:
            return {"import": True}
        failed: list[int] = []
        for number, fails in self._results(tests):
            if fails:
                failed.append(number)
            if len(failed) == enough:
                break
        return {"failed": failed}

    def _measured(self, measure: tuple[int, int]) -> dict[str, Any]:
        from coverage import Coverage

        coverage = Coverage(data_file=None, source=[str(ROOT / "emulator")], config_file=False)
        numbers = range(measure[0], len(self._items), measure[1])
        failed = []
        coverage.start()
        coverage.switch_context(str(numbers[0]))
        for number, fails in self._results(numbers):
            coverage.switch_context(str(number + numbers.step))  # the next one
            if fails:
                failed.append(self._items[number].nodeid)
        coverage.stop()
        data = coverage.get_data()
        lines = {
            str(Path(file).relative_to(ROOT)): {
                line: [int(one) for one in contexts if one]
                for line, contexts in data.contexts_by_lineno(file).items()
            }
            for file in data.measured_files()
        }
        return {"failed": failed, "lines": lines}

    def _results(self, numbers: Sequence[int]) -> Iterator[tuple[int, bool]]:
        """Run tests, and yield whether each fails."""
        items = [self._items[number] for number in numbers]
        for number, item, following in zip(numbers, items, [*items[1:], None], strict=True):
            self._failed = False
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            yield number, self._failed


def _forked(work: Callable[[], dict[str, Any]], patience: float | None) -> dict[str, Any]:
    """Return what `work` returns in a fork of this process, which has so many seconds."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        with os.fdopen(writes, "w", encoding="utf-8") as answer:
            answer.write(json.dumps(work()))
        os._exit(0)
    os.close(writes)
    said = bytearray()
    while select.select([reads], [], [], patience)[0] and (more := os.read(reads, 1 << 20)):
        said += more
    os.close(reads)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    try:
        return dict(json.loads(said))
    except ValueError:
        return {"lost": True}


if __name__ == "__main__":
    reads, writes = map(int, sys.argv[1:3])
    options = ("tests", "-q", "-m", "quick", "--timeout", "60", "-p", "no:cacheprovider")
    with contextlib.suppress(BrokenPipeError):
        sys.exit(pytest.main([*options, *sys.argv[3:]], plugins=[Session(reads, writes)]))
