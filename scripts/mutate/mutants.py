"""What a mutant is: one change to one module of those that decide."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
DECIDE = (
    *("analysis", "faults", "metrics", "planning", "record", "report", "scenario"),
    *("supervisor", "validation", "pytest_plugin/harness.py"),
    *("engines/kit/byte_stream.py", "engines/kit/lines.py", "engines/kit/origin.py"),
    *("engines/kit/recipes.py", "engines/memory.py", "engines/requirements.py"),
    "engines/docker/dockerfiles.py",
    *("engines/docker/task_groups.py", "engines/docker/container_request.py"),
    "engines/docker/warm/cluster.py",
    *("plugins/kubeflow/manifests", "plugins/exports/trace.py"),
    *("plugins/kubernetes/log_lines.py", "plugins/kubernetes/nodes.py"),
    *("plugins/kubernetes/refusals.py", "plugins/kubernetes/pod_objects.py"),
    "plugins/kubernetes/security.py",
    *("plugins/kubernetes/status.py", "plugins/kubernetes/pods.py"),
)
"""Packages and modules of `emulator/` whose code computes something. The others do something."""
NOT_CODE = ("metrics/gpu", "record/events.py")
"""Below those: what needs a GPU, what is written from other code, and plain lists of fields."""
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
    lines: range
    """From the first line of the statement to the last of what is replaced."""
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
        for line, node in _code(self._tree, 1):
            for kind, part, became in _changes(node):
                yield self._mutant(line, kind, part, became)

    def _mutant(self, line: int, kind: str, part: ast.expr | ast.stmt, became: str) -> Mutant:
        lines = range(min(line, part.lineno), (part.end_lineno or 0) + 1)
        if isinstance(part, ast.stmt):  # where one begins is where it runs
            lines = range(part.lineno, part.lineno + 1)
        start = self._lines[part.lineno - 1] + part.col_offset
        end = self._lines[(part.end_lineno or 0) - 1] + (part.end_col_offset or 0)
        return Mutant(self._path, part.lineno, lines, kind, start, end, became)


def _code(node: ast.AST, line: int) -> Iterator[tuple[int, ast.AST]]:
    """Yield the nodes that run, each with the line in which its statement begins.

    No annotations, decorators, docstrings or `if TYPE_CHECKING`.
    """
    yield line, node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.Assert | ast.JoinedStr):
                continue
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            begins = child.lineno if isinstance(child, ast.stmt | ast.ExceptHandler) else line
            yield from _code(child, begins)


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
