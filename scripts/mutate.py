#!/usr/bin/env python3
"""Break the package at random places, and say which of the mistakes no quick test finds.

    .venv/bin/python -m scripts.mutate --count 100 --seed 7

Each mutant is one change to one module that decides: a comparison, an operator, a constant, a
condition, a statement, the order of two arguments, or the exception that is caught. It runs against
the quick tests: those of files named like the module, then those of its folder, then all. What
passes them all survives; look at each, since some change nothing.

Mutated code could delete anything, so this needs root: the tests run in a copy of the repository,
as a user who may read all files and write to none but that copy.
"""

from __future__ import annotations

import argparse
import ast
import concurrent.futures
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).parent.parent
DECIDE = (
    *("analysis", "faults", "manifests", "metrics", "planning", "record", "report", "scenario"),
    *("supervisor", "validation", "exports/trace.py", "pytest_plugin/harness.py"),
    *("engines/byte_stream.py", "engines/lines.py", "engines/memory.py", "engines/origin.py"),
    *("engines/recipes.py", "engines/requirements.py", "engines/docker/dockerfiles.py"),
    *("engines/docker/pods.py", "engines/docker/requests.py", "engines/docker/warm/answers.py"),
    *("engines/kubernetes/log_lines.py", "engines/kubernetes/nodes.py"),
    *("engines/kubernetes/refusals.py", "engines/kubernetes/requests.py"),
    *("engines/kubernetes/status.py", "engines/kubernetes/table.py"),
)
"""Packages and modules of `emulator/` whose code computes something. The others do something."""
NOT_CODE = ("metrics/gpu", "record/events.py")
"""Below those: what needs a GPU, what is written from other code, and plain lists of fields."""
NOBODY = 65534
RIGHTS = (
    *("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"),
    *("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"),  # Python may be in /root
)
QUICK = ("-x", "-q", "-m", "quick", "--timeout", "60")
PATIENCE = 900
"""Seconds; tests that take longer found the mutant: it does not end."""
MEMORY = 6 << 30

COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
}


@dataclass(frozen=True)
class Mutant:
    """One change to one file."""

    path: Path
    """Relative to the repository."""
    line: int
    kind: str
    start: int
    """Of what is replaced, in bytes of the file."""
    end: int
    became: str

    def of(self, source: bytes) -> bytes:
        """Return the file with the change."""
        return source[: self.start] + self.became.encode() + source[self.end :]

    def __str__(self) -> str:
        was = (ROOT / self.path).read_bytes()[self.start : self.end].decode()
        return f"{self.path}:{self.line} [{self.kind}] `{_one_line(was)}` -> `{self.became}`"


def _one_line(text: str) -> str:
    return " ".join(text.split())[:100]


def modules() -> list[Path]:
    """Return the files that are mutated, relative to the repository."""
    package = ROOT / "emulator"
    found = (path for name in DECIDE for path in sorted(_files(package / name)))
    left_out = [package / name for name in NOT_CODE]
    return [
        path.relative_to(ROOT)
        for path in found
        if not any(path.is_relative_to(other) for other in left_out)
    ]


def _files(path: Path) -> Iterator[Path]:
    return path.rglob("*.py") if path.is_dir() else iter([path])


def mutants(path: Path) -> list[Mutant]:
    """Return all mutants of a file."""
    return list(_Finder(path, (ROOT / path).read_bytes()).found())


class _Finder:
    def __init__(self, path: Path, source: bytes) -> None:
        self._path = path
        self._lines = [0]
        for line in source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self._tree = ast.parse(source)

    def found(self) -> Iterator[Mutant]:
        for node in _code(self._tree):
            for kind, part, became in _changes(node):
                yield self._mutant(kind, part, became)

    def _mutant(self, kind: str, part: ast.expr | ast.stmt, became: str) -> Mutant:
        start = self._lines[part.lineno - 1] + part.col_offset
        end = self._lines[(part.end_lineno or 0) - 1] + (part.end_col_offset or 0)
        return Mutant(self._path, part.lineno, kind, start, end, became)


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that run: no annotations, decorators, docstrings or `if TYPE_CHECKING`."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.Assert | ast.JoinedStr):
                continue
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            yield from _code(child)


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    """Yield what can become of one node: the kind of change, what is replaced, and by what."""
    match node:
        case ast.Compare(left, [operator], [right]):
            for other in COMPARED[type(operator)]:
                yield "comparison", node, _text(ast.Compare(left, [other()], [right]))
        case ast.BoolOp(operator, values):
            swapped = ast.And() if isinstance(operator, ast.Or) else ast.Or()
            yield "and/or", node, _text(ast.BoolOp(swapped, values))
        case ast.BinOp(left, operator, right) if type(operator) in COMPUTED:
            if not any(
                isinstance(side, ast.Constant | ast.JoinedStr) and not _is_number(side)
                for side in (left, right)
            ):  # text is not added to, it is put together
                yield "operator", node, _text(ast.BinOp(left, COMPUTED[type(operator)](), right))
        case ast.UnaryOp(ast.Not(), operand):
            yield "negation", node, _text(operand)
        case ast.Constant(bool() as value):
            yield "constant", node, str(not value)
        case ast.Constant(int() | float() as value):
            yield "constant", node, f"({value + random.Random(value).choice((-1, 1))})"
        case ast.If(test=test) | ast.IfExp(test=test):
            yield "guard", test, "True"
            yield "guard", test, "False"
        case ast.Call(func=ast.Name("max" | "min")):
            return  # the order of its arguments changes nothing
        case ast.Call(args=[first, second, *_]) if not _stars(first, second):
            swapped_call = ast.Call(node.func, [second, first, *node.args[2:]], node.keywords)
            if ast.dump(first) != ast.dump(second):
                yield "arguments", node, _text(swapped_call)
        case ast.ExceptHandler(type=ast.expr() as caught):
            yield "exception", caught, "ZeroDivisionError"
        case ast.Raise() | ast.AugAssign() | ast.Continue() | ast.Break():
            yield "statement", node, "pass"
        case ast.Expr(ast.Call()):
            yield "statement", node, "pass"


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


def _stars(*nodes: ast.expr) -> bool:
    return any(isinstance(node, ast.Starred) for node in nodes)


def _text(node: ast.expr) -> str:
    return f"({ast.unparse(node)})"


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

    def passes(self, tests: Sequence[str], *options: str) -> bool:
        """Return whether quick tests pass."""
        try:
            done = subprocess.run(
                [*RIGHTS, sys.executable, "-m", "pytest", *QUICK, *options, *tests],
                cwd=self.root,
                env=self._environment,
                preexec_fn=_limit,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=PATIENCE,
                check=False,
                text=True,
            )
        except subprocess.TimeoutExpired:
            return False
        self.said = done.stdout
        return done.returncode in (0, 5)  # 5: none of these tests is quick

    def survived(self, mutant: Mutant) -> str:
        """Return the stage that found a mutant, or "" if none did."""
        path = self.root / mutant.path
        source = path.read_bytes()
        path.write_bytes(mutant.of(source))
        try:
            for stage, tests in stages(mutant.path):
                if not self.passes(tests):
                    return stage
        finally:
            path.write_bytes(source)
        return ""


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
        run(sample, [Path(folder, str(number)) for number in range(chosen.jobs)])


def run(sample: Sequence[Mutant], folders: Sequence[Path]) -> None:
    """Try each mutant in one of the folders, and print what became of it."""
    copies: SimpleQueue[Copy] = SimpleQueue()
    for folder in folders:
        folder.mkdir()
        copies.put(Copy(folder))
    whole = copies.get()
    if not whole.passes(["tests"], "-n", str(len(folders))):
        sys.exit(f"The quick tests fail without a mutant:\n{whole.said[-3000:]}")
    copies.put(whole)

    def one(mutant: Mutant) -> str:
        copy = copies.get()
        try:
            return copy.survived(mutant)
        finally:
            copies.put(copy)

    found: Counter[str] = Counter()
    with concurrent.futures.ThreadPoolExecutor(len(folders)) as pool:
        for mutant, stage in zip(sample, pool.map(one, sample), strict=True):
            found[stage] += 1
            print(f"{stage or 'SURVIVED':9} {mutant}", flush=True)
    by = ", ".join(f"{count} by {stage}" for stage, count in found.items() if stage)
    print(f"found: {len(sample) - found['']} of {len(sample)} ({by})")


if __name__ == "__main__":
    main()
