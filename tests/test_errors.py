"""The tree of errors: what its docstring draws is what the classes are."""

from __future__ import annotations

import inspect
import re

import pytest

from emulator import errors
from emulator.errors import EmulatorError, Problem, ScenarioError, printable

CLASSES = {
    name: thing
    for name, thing in vars(errors).items()
    if inspect.isclass(thing) and issubclass(thing, EmulatorError)
}


def drawn() -> dict[str, tuple[str, int]]:
    """Read the docstring's tree: name -> (parent's name, exit code)."""
    result: dict[str, tuple[str, int]] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        if match := re.match(r"    ([│├└─ ]*)(\w+) +exit (\d)   ", line):
            depth = len(match[1]) // 4
            path[depth:] = [match[2]]
            result[match[2]] = (path[depth - 1] if depth else "Exception", int(match[3]))
    return result


def test_the_tree_in_the_docstring_is_the_tree_of_the_classes_and_all_are_public() -> None:
    assert drawn() == {
        name: (error.__bases__[0].__name__, error.exit_code) for name, error in CLASSES.items()
    }
    assert set(errors.__all__) == {*CLASSES, "Problem", "printable", "shown"}


PROBLEMS = [Problem("s.yaml:1", "a", "is wrong"), Problem("s.yaml:2", "b", "is missing")]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (EmulatorError("It broke.", "Mend it."), "It broke. Mend it."),
        (EmulatorError("It broke."), "It broke."),
        (Problem("s.yaml:3", "a.b", "is wrong", "write c"), "s.yaml:3: a.b: is wrong (write c)"),
        (Problem("s.yaml:3", "a.b", "is wrong"), "s.yaml:3: a.b: is wrong"),
        (Problem("s.yaml:3", "", "is no YAML"), "s.yaml:3: is no YAML"),
        (ScenarioError(PROBLEMS), "s.yaml:1: a: is wrong\ns.yaml:2: b: is missing"),
    ],
)
def test_an_error_says_what_happened_and_what_to_try_and_a_problem_is_a_line(
    error: EmulatorError | Problem, text: str
) -> None:
    assert str(error) == text
    assert not isinstance(error, ScenarioError) or error.problems == tuple(PROBLEMS)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Größe … 3", "Größe … 3"),
        ("one\n\ttwo", "one\n\ttwo"),
        ("\x1b]52;c;aGk=\x07", r"\x1b]52;c;aGk=\x07"),
        ("a\rb\x00c\x9bd", r"a\rb\x00c\x9bd"),
        ("\u202etxt.exe", r"\u202etxt.exe"),  # turns the direction of what follows
        ("\udc80", r"\udc80"),
    ],
)
def test_control_characters_of_others_are_written_out(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert str(EmulatorError(f"There is no {text}.", text)) == f"There is no {shown}. {shown}"
