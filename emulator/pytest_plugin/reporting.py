"""What a session says of its runs: below a failed test, at its end, and in junit.xml."""

from __future__ import annotations

import contextlib
import math
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

from emulator.analysis.figures import FIGURES, in_summary

if TYPE_CHECKING:
    from emulator.pytest_plugin.harness import Emulator
    from emulator.results import Result

__all__ = ["lines", "progress", "properties", "sections"]

OURS = ("run", "verdict", "report")
"""What is always told of a run; a test may have properties of its own by some of these names."""

FIGURES_OF_A_TEST = ("steps_per_second", "goodput", "lost_steps", "worst_recovery")
"""Figures of each run of a test."""

Properties = Iterable[tuple[str, object]]


def sections(made: Emulator) -> Iterator[tuple[str, str]]:
    """Yield the story of each run of a test, with its title."""
    from emulator.report.failure_summary import story

    for ran in made.results():
        folder = shlex.quote(str(ran.result.folder))
        more = [f"again   {ran.command}"] if ran.command else []
        if ran.kept:
            looks = _looks(ran.result)
            more += [f"{'' if n else 'look':<8}{command}" for n, command in enumerate(looks)]
            more += [f"kept    `emulate down {folder}` removes it"]
        yield f"emulator: {ran.result.run_id}", "\n".join([story(ran.result), *more])


def _looks(result: Result) -> Iterator[str]:
    """Yield the commands that show what is left of a run, as far as its engine knows some."""
    from emulator.engines import choose
    from emulator.engines.base import Explaining
    from emulator.errors import EmulatorError

    with (
        contextlib.suppress(EmulatorError),
        contextlib.closing(choose(result.summary["engine"])) as engine,
    ):
        if isinstance(engine, Explaining):
            yield from engine.inspect_commands(result.run_id, result.folder)


def properties(results: Iterable[Result]) -> Iterator[tuple[str, object]]:
    """Yield what junit.xml has of a test's runs; of the second and later ones with a number."""
    for number, result in enumerate(results, start=1):
        figures = {key: in_summary(result.summary, key) for key in FIGURES_OF_A_TEST}
        report = (result.folder / "report.html").as_uri()
        known = {"run": result.run_id, "verdict": result.verdict, **figures, "report": report}
        for name, value in known.items():
            if value is not None and value != math.inf:
                yield (name if number == 1 else f"{name}.{number}"), value


def lines(told: Mapping[str, Properties]) -> Iterator[str]:
    """Yield a line for each run of a session: verdict, numbers, test, and the report below it.

    One that several tests share is told of once.
    """
    tests: dict[object, list[str]] = {}
    about: dict[object, tuple[Mapping[str, object], str]] = {}
    for test, found in told.items():
        known = dict(found)
        for number in ("", *(f".{number}" for number in range(2, len(known)))):
            if {f"{name}{number}" for name in OURS} <= known.keys():
                run = known[f"run{number}"]
                tests.setdefault(run, []).append(test)
                about[run] = known, number
    for run, (first, *others) in tests.items():
        yield from _about(first + (f" and {len(others)} more" if others else ""), *about[run])


def _about(test: str, known: Mapping[str, object], number: str) -> Iterator[str]:
    figures = {key: known.get(key + number) for key in FIGURES_OF_A_TEST}
    said = [
        FIGURES[key].in_words(value)
        for key, value in figures.items()
        if isinstance(value, int | float) and (value or key != "lost_steps")
    ]
    yield f"{known['verdict' + number]:<8}{test}  {', '.join(said)}".rstrip()
    yield f"{'':8}{known['report' + number]}"


def progress(config: pytest.Config) -> Callable[[str], None]:
    """Return what shows the building of an image, where somebody looks on; else it is logged."""
    import logging

    log = logging.getLogger("emulator")
    terminal = config.pluginmanager.getplugin("terminalreporter")
    capturing = config.pluginmanager.getplugin("capturemanager")
    if terminal is None or capturing is None or not terminal.isatty:
        return log.info

    def say(text: str) -> None:
        log.info(text)
        if not text.startswith("  "):
            with capturing.global_and_fixture_disabled():
                terminal.ensure_newline()
                terminal.write_line(f"emulate | {text}")

    return say
