"""Break the package at random places, and say which of the mistakes no quick test finds.

    .venv/bin/python -m scripts.mutate --count 100 --seed 7

Each mutant is one change to one module that decides: a comparison, an operator, a constant, a
condition, a statement, the order of two arguments, or the exception that is caught. First it runs
against the quick tests that run its lines, in a fork of a process that has collected them. What
passes these, or changes what runs at import, runs in processes of its own: against the tests of
files named like the module, those of its folder, then all. What passes them all survives; look at
each, since some change nothing.

Mutated code could delete anything, so this needs root: the tests run in a copy of the repository,
as a user who may read all files and write to none but that copy.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from scripts.mutate.mutants import ROOT, Mutant, modules, mutants

NOBODY = 65534
RIGHTS = (
    *("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"),
    *("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"),  # Python may be in /root
)
QUICK = ("-x", "-q", "-m", "quick", "--timeout", "60")
PATIENCE = 900
"""Seconds; tests that take longer found the mutant: it does not end."""
MEMORY = 6 << 30


def stages(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the tests that a mutant of a file runs against, the likeliest first."""
    package, stem = path.relative_to("emulator").parent, path.stem
    tests = ROOT / "tests"
    words = {stem, stem.rstrip("s"), f"{stem}s"}
    named = [
        str(test.relative_to(ROOT))
        for test in sorted(tests.rglob("test_*.py"))
        if test.stem.removeprefix("test_") in words
        or (test.parent == tests / package and stem in test.stem)
    ]
    if named:
        yield "named", named
    folder = tests / package
    while not folder.is_dir():
        folder = folder.parent
    if folder != tests:
        yield "folder", [str(folder.relative_to(ROOT))]
    yield "quick", ["tests"]


class Copy:
    """A copy of the repository that `nobody` owns, for one mutant at a time."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "emulator"
        kept_out = shutil.ignore_patterns(".venv", ".git", "runs", ".*_cache", "*.pyc")
        shutil.copytree(ROOT, self.root, ignore=kept_out, symlinks=True)
        for name in ("home", "t"):
            (folder / name).mkdir()
        for path in (folder, *folder.rglob("*")):
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder / "home"),
            "TMPDIR": str(folder / "t"),
            "DOCKER_HOST": "unix:///nowhere",
        }
        requests, self._requests = os.pipe()
        self._answers, answers = os.pipe()
        self._session = subprocess.Popen(
            [*self._python("scripts.mutate.session"), str(requests), str(answers)],
            cwd=self.root,
            env=self._environment,
            preexec_fn=_limit,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[requests, answers],
        )
        os.close(requests)
        os.close(answers)
        self._reads = os.fdopen(self._answers, encoding="utf-8")
        self.tests: list[str] = json.loads(self._answer())

    def ask(self, **request: object) -> dict[str, Any]:
        """Return the answer of the session."""
        os.write(self._requests, (json.dumps(request) + "\n").encode())
        return dict(json.loads(self._answer()))

    def _answer(self) -> str:
        return self._reads.readline() or sys.exit("The quick tests can't be collected, or ended.")

    def survived(self, mutant: Mutant, tests: Sequence[int]) -> str:
        """Return which tests found a mutant, or "" if none did; `tests` are those of its lines."""
        path = self.root / mutant.path
        source = path.read_bytes()
        changed = mutant.of(source)
        said = self.ask(path=str(mutant.path), source=changed.decode(), tests=tests, enough=1)
        if said.get("failed") or said.get("lost"):
            return "lines"
        path.write_bytes(changed)
        try:
            # What has passed in a fork is tried once more: caches were filled before it.
            tried = list(stages(mutant.path))
            for stage, files in tried if "import" in said else tried[-1:]:
                if not self._passes(files):
                    return stage
        finally:
            path.write_bytes(source)
        return ""

    def _passes(self, tests: Sequence[str]) -> bool:
        """Return whether quick tests pass."""
        try:
            done = subprocess.run(
                [*self._python("pytest"), *QUICK, *tests],
                cwd=self.root,
                env=self._environment,
                preexec_fn=_limit,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=PATIENCE,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return False
        return done.returncode in (0, 5)  # 5: none of these tests is quick

    def _python(self, module: str) -> list[str]:
        return [*RIGHTS, sys.executable, "-m", module]


class Lines:
    """Which tests run which lines of the package; in one run of them, over all copies."""

    def __init__(self, copies: Sequence[Copy]) -> None:
        self._tests = copies[0].tests
        self._lines: dict[str, dict[str, set[int]]] = {}
        asked = [(copy, [first, len(copies)]) for first, copy in enumerate(copies)]
        with concurrent.futures.ThreadPoolExecutor() as pool:
            for part in pool.map(lambda one: one[0].ask(measure=one[1]), asked):
                if "lost" in part or part["failed"]:
                    failed = "\n".join(part.get("failed", []))
                    sys.exit(f"The quick tests fail without a mutant:\n{failed}")
                for file, lines in part["lines"].items():
                    for line, tests in lines.items():
                        self._lines.setdefault(file, {}).setdefault(line, set()).update(tests)
        self._size = Counter(
            test for lines in self._lines.values() for tests in lines.values() for test in tests
        )

    def tests(self, mutant: Mutant) -> list[int]:
        """Return the numbers of the tests that run a mutant's lines, the likeliest first.

        These are the tests named like the module, then those that run the least code.
        """
        lines = self._lines.get(str(mutant.path), {})
        found = {test for line in mutant.lines for test in lines.get(str(line), ())}
        named = tuple(
            file for stage, files in stages(mutant.path) for file in files if stage == "named"
        )
        key = {test: (not self._tests[test].startswith(named), self._size[test]) for test in found}
        return sorted(found, key=key.__getitem__)


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def main(arguments: Sequence[str] | None = None) -> None:
    """Sample, run and list."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=100, help="how many mutants are tried")
    parser.add_argument("--seed", type=int, default=0, help="chooses them; the same for the same")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="so many at a time")
    parser.add_argument("--list", action="store_true", help="print the mutants and run nothing")
    chosen = parser.parse_args(arguments)
    every = [mutant for path in modules() for mutant in mutants(path)]
    sample = random.Random(chosen.seed).sample(every, min(chosen.count, len(every)))
    print(f"{len(sample)} of {len(every)} mutants of {len(modules())} modules", flush=True)
    if chosen.list:
        print(*sample, sep="\n")
        return
    if os.geteuid() != 0:
        sys.exit("This needs root, so that the mutants can run as a user who may delete nothing.")
    with tempfile.TemporaryDirectory(prefix="mut-") as folder:
        os.chmod(folder, 0o755)
        run(sample, copies_in(Path(folder), chosen.jobs))


def copies_in(folder: Path, number: int) -> list[Copy]:
    """Return so many copies of the repository."""
    folders = [folder / str(one) for one in range(number)]
    for one in folders:
        one.mkdir()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        return list(pool.map(Copy, folders))


def run(sample: Sequence[Mutant], copies: Sequence[Copy]) -> None:
    """Try each mutant in one of the copies, and print what became of it."""
    lines = Lines(copies)
    free: SimpleQueue[Copy] = SimpleQueue()
    for copy in copies:
        free.put(copy)

    def one(mutant: Mutant) -> str:
        copy = free.get()
        try:
            return copy.survived(mutant, lines.tests(mutant))
        finally:
            free.put(copy)

    found: Counter[str] = Counter()
    with concurrent.futures.ThreadPoolExecutor(len(copies)) as pool:
        for mutant, stage in zip(sample, pool.map(one, sample), strict=True):
            found[stage] += 1
            print(f"{stage or 'SURVIVED':9} {mutant}", flush=True)
    by = ", ".join(f"{count} by {stage}" for stage, count in found.items() if stage)
    print(f"found: {len(sample) - found['']} of {len(sample)} ({by})")


if __name__ == "__main__":
    main()
