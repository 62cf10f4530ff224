#!/usr/bin/env python3
"""Measure how large the package is, and how much of it one has to know to change a part.

.venv/bin/python -m scripts.structure
make check-size
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "emulator"

MOST = {"emulator": 74_100, "tests": 71_100}
"""Lines of Python at most; `make check-size` looks, and nothing that decides what lands does."""

PARAMETERS = 6
"""A function of more is counted."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """What is counted of a file."""

    name: str
    lines: int
    imports: frozenset[str]
    """All modules of the package that it imports, also inside of functions."""
    needs: frozenset[str]
    """Those of them without which it can't be imported."""
    methods: int
    """Public methods and properties of the class that has the most."""
    function: int
    """Lines of the longest function."""
    crowded: tuple[str, ...]
    """Functions of more than PARAMETERS parameters."""


@cache
def modules(package: Path = PACKAGE) -> dict[str, Module]:
    """Return the modules of a package, by name."""
    files = {_name(path, package): path for path in sorted(package.rglob("*.py"))}
    return {name: _module(name, path, files.keys()) for name, path in files.items()}


def _name(path: Path, package: Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _module(name: str, path: Path, known: Set[str]) -> Module:
    text = path.read_text()
    tree = ast.parse(text)
    functions = [node for node in ast.walk(tree) if isinstance(node, Function)]
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    return Module(
        name,
        len(text.splitlines()),
        frozenset(_imported(_nodes(tree, lazy=True), known)) - {name},
        frozenset(_imported(_nodes(tree, lazy=False), known)) - {name},
        max(map(_public, classes), default=0),
        max((_lines(one) for one in functions), default=0),
        tuple(f"{name}.{one.name}" for one in functions if _parameters(one) > PARAMETERS),
    )


def _nodes(node: ast.AST, *, lazy: bool) -> Iterator[ast.AST]:
    """Yield what runs when a module is imported; with `lazy` also what its functions run."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        if lazy or not isinstance(child, Function | ast.Lambda):
            yield from _nodes(child, lazy=lazy)


def _imported(nodes: Iterator[ast.AST], known: Set[str]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names} & known
            yield from inner or {node.module} & known


@cache
def names(module: str) -> tuple[str, ...]:
    """Return the identifiers and strings in the code of a module, without its docstrings."""
    path = PACKAGE.joinpath(*module.split(".")[1:])
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return tuple({*_texts(ast.parse(path.read_text()))})


def _texts(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return  # a docstring
    values = (getattr(node, key, None) for key in ("id", "attr", "arg", "name", "module", "value"))
    yield from (value for value in values if isinstance(value, str))
    for child in ast.iter_child_nodes(node):
        yield from _texts(child)


def _public(node: ast.ClassDef) -> int:
    return sum(isinstance(one, Function) and not one.name.startswith("_") for one in node.body)


def _lines(node: Function) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _parameters(node: Function) -> int:
    given = node.args
    names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


def longest_chain(found: Mapping[str, Module]) -> list[str]:
    """Return the longest chain of modules each of which needs the next."""

    @cache
    def chain(name: str) -> tuple[str, ...]:
        below = [chain(other) for other in sorted(found[name].needs)]
        return (name, *(max(below, key=len) if below else ()))

    longest = max((chain(name) for name in found), key=len)
    return list(longest)


def edges(found: Mapping[str, Module]) -> int:
    """Return how many imports there are in all."""
    return sum(len(one.imports) for one in found.values())


def with_one_importer(found: Mapping[str, Module]) -> list[str]:
    """Return the modules that one other imports."""
    importers: dict[str, set[str]] = {name: set() for name in found}
    for one in found.values():
        for name in one.imports:
            importers[name].add(one.name)
    return [name for name, by in importers.items() if len(by) == 1]


def measured(found: Mapping[str, Module]) -> dict[str, float]:
    """Return the numbers of the package."""
    entries = [path.name for path in PACKAGE.iterdir() if not path.name.startswith(("__pyc", "."))]
    return {
        "lines": sum(one.lines for one in found.values()),
        "modules": len(found),
        "entries": len(entries),
        "imports a module": edges(found) / len(found),
        "modules that one other imports": len(with_one_importer(found)),
        "modules of the longest chain of imports": len(longest_chain(found)),
        "public methods of a class": max(one.methods for one in found.values()),
        "lines of a function": max(one.function for one in found.values()),
    }


def lines_of(folder: str) -> int:
    """Return the lines of Python in a folder of the project."""
    return sum(len(path.read_bytes().splitlines()) for path in (ROOT / folder).rglob("*.py"))


def check() -> bool:
    """Print the lines of each folder that has a limit, and return whether all are within it."""
    counts = {folder: lines_of(folder) for folder in MOST}
    for folder, count in counts.items():
        print(f"{folder}: {count:,} lines of at most {MOST[folder]:,}")
    return all(count <= MOST[folder] for folder, count in counts.items())


def main() -> None:
    """Print the numbers, and what they come from."""
    found = modules()
    for name, count in measured(found).items():
        print(f"{count:9,.5g}  {name}")
    print("\nlongest chain:", *longest_chain(found), sep="\n  ")
    print("\nmost public methods:")
    for one in sorted(found.values(), key=lambda one: -one.methods)[:5]:
        print(f"  {one.methods:4} {one.name}")
    print("\nlongest functions:")
    for one in sorted(found.values(), key=lambda one: -one.function)[:10]:
        print(f"  {one.function:4} {one.name}")
    crowded = [name for one in found.values() for name in one.crowded]
    print(f"\nmore than {PARAMETERS} parameters:", *crowded, sep="\n  ")


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit(0 if check() else 1)
    main()
