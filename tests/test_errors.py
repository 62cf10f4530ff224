"""The tree of errors: what its docstring draws is what the classes are."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from emulator import errors
from emulator.errors import EmulatorError, Problem, ScenarioError, printable
from emulator.runtime.files import FOR_IMAGES, FOR_RUNS, Disk, disk, shortages

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


# --- Disks that are nearly full -------------------------------------------------------------------

GIB = 2**30
RUNS, DOCKER = Path("/runs/r"), Path("/var/lib/docker")


def test_each_nearly_full_disk_has_a_warning() -> None:
    enough = Disk("the run folder", RUNS, FOR_RUNS), Disk("Docker", DOCKER, FOR_IMAGES, FOR_IMAGES)
    assert list(shortages(enough)) == []
    runs = Disk("the run folder", RUNS, 2 * GIB - 1, device=1)
    assert list(shortages([runs, Disk("Docker", DOCKER, 3 * GIB, FOR_IMAGES, device=2)])) == [
        "the disk of Docker (/var/lib/docker) has 3.0 GiB left; 10.0 GiB or more should be free",
        "the disk of the run folder (/runs/r) has 2.0 GiB left; 2.0 GiB or more should be free",
    ]


def test_one_disk_has_one_warning_with_the_largest_need() -> None:
    both = Disk("the run folder", RUNS, GIB, device=1), Disk("Docker", DOCKER, GIB, FOR_IMAGES, 1)
    (reported,) = shortages(both)
    assert "Docker" in reported
    unknown = Disk("the run folder", RUNS, GIB), Disk("Docker", DOCKER, GIB, FOR_IMAGES)
    assert len(list(shortages(unknown))) == 2


def test_a_folder_that_is_not_there_yet_is_on_the_disk_of_the_nearest_that_is(
    tmp_path: Path,
) -> None:
    (here,) = disk("the run folder", tmp_path)
    (later,) = disk("the run folder", tmp_path / "runs" / "one")
    assert later.device == here.device >= 0
    assert later.free > 0
