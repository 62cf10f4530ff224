"""Reports about runs: below a failed test, at the end of the session, and in junit.xml."""

from __future__ import annotations

import contextlib
import math
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

from emulator.analysis.figures import FIGURES, AtMost, in_summary

if TYPE_CHECKING:
    from emulator.pytest_plugin.harness import Emulator
    from emulator.results import Result

OF_EVERY_RUN = ("run", "verdict", "report")
"""Properties of every run; a test may have properties of its own by some of these names."""

FIGURES_OF_A_TEST = ("steps_per_second", "goodput", "lost_steps", "worst_recovery")
"""Figures of each run of a test."""


def sections(emulator: Emulator) -> Iterator[tuple[str, str]]:
    """Yield the summary of each run of a test, with its title."""
    from emulator.report.terminal import story

    for run in emulator.runs():
        result = run.result
        more = [f"again   {run.command}"] if run.command else []
        if run.kept:
            commands = enumerate(_inspect_commands(result))
            more += [f"{'' if n else 'look':<8}{command}" for n, command in commands]
            more += [f"kept    `emulate down {shlex.quote(str(result.folder))}` removes it"]
        yield f"emulator: {result.run_id}", "\n".join([story(result), *more])


def _inspect_commands(result: Result) -> Iterator[str]:
    """Yield the commands that show the resources of a kept run, if its engine has such."""
    from emulator.engines.base import Explaining
    from emulator.errors import EmulatorError
    from emulator.record.folder import RunFolder
    from emulator.supervisor.cleanup import open_for

    with (
        contextlib.suppress(EmulatorError),
        contextlib.closing(open_for(RunFolder(result.folder))) as engine,
    ):
        if isinstance(engine, Explaining):
            yield from engine.inspect_commands(result.run_id, result.folder)


def properties(results: Iterable[Result]) -> Iterator[tuple[str, object]]:
    """Yield a test's runs as properties for junit.xml; those of later runs have a number."""
    for number, result in enumerate(results, start=1):
        figures = {key: in_summary(result.summary, key) for key in FIGURES_OF_A_TEST}
        if isinstance(lost := figures["lost_steps"], AtMost):  # xdist takes plain numbers only
            figures |= {"lost_steps": int(lost), "lost_at_least": lost.least}
        report = (result.folder / "report.html").as_uri()
        named = {"run": result.run_id, "verdict": result.verdict, **figures, "report": report}
        for name, value in named.items():
            if value is not None and value != math.inf:
                yield (name if number == 1 else f"{name}.{number}"), value


def lines(
    properties_of: Mapping[str, Iterable[tuple[str, object]]], failed: Collection[str] = ()
) -> Iterator[str]:
    """Yield two lines for each run of a session: verdict, test and numbers; and the report.

    A run that several tests share is listed once. Of one that was stopped because its test has
    `failed`, no verdict is to be had.
    """
    tests: dict[object, list[str]] = {}
    runs: dict[object, dict[str, object]] = {}
    for test, pairs in properties_of.items():
        named = dict(pairs)
        for suffix in ("", *(f".{number}" for number in range(2, len(named)))):
            if {f"{name}{suffix}" for name in OF_EVERY_RUN} <= named.keys():
                keys = (*OF_EVERY_RUN, *FIGURES_OF_A_TEST)
                run = {key: named.get(f"{key}{suffix}") for key in keys}
                least = named.get(f"lost_at_least{suffix}")
                run["lost_steps"] = AtMost.of(run["lost_steps"], least)
                tests.setdefault(run["run"], []).append(test)
                runs[run["run"]] = run
    for run_id, (first, *others) in tests.items():
        run = runs[run_id]
        figures = [
            FIGURES[key].in_words(value)
            for key in FIGURES_OF_A_TEST
            if isinstance(value := run[key], int | float) and (value or key != "lost_steps")
        ]
        test = first + (f" and {len(others)} more" if others else "")
        stopped = run["verdict"] == "unknown" and {first, *others} & {*failed}
        test += " (stopped: the test failed)" if stopped else ""
        yield f"{run['verdict']:<8}{test}  {', '.join(figures)}".rstrip()
        yield f"{'':8}{run['report']}"


def progress(config: pytest.Config) -> Callable[[str], None]:
    """Return a function that logs a message, and shows it if the output is a terminal."""
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
