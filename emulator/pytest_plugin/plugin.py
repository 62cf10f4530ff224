"""The plugin as pytest loads it at its start: options, markers, hooks.

Modules for engines, scenarios and records are imported when the first test needs them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from emulator.engines import HELP, WARM_SESSION
from emulator.pytest_plugin.fixtures import (
    EMULATOR,
    FAILED,
    RUN,
    emulator,
    emulator_engine,
    emulator_image,
    emulator_out,
    memory_cluster,
    pytest_timeout_cancel_timer,
    pytest_timeout_set_timer,
    run,
    settings_of,
)

if TYPE_CHECKING:
    from emulator.results import Result
    from emulator.scenario.matrix import Variant
    from emulator.scenario.schema import Scenario

__all__ = [
    "emulator",
    "emulator_engine",
    "emulator_image",
    "emulator_out",
    "memory_cluster",
    "pytest_timeout_cancel_timer",
    "pytest_timeout_set_timer",
    "run",
]

SUFFIXES = (".yaml", ".yml")
MARKER = (
    "scenario(path, set={}, seed=None, engine=None, check=True): "
    "runs a scenario and gives the test its result as the fixture `run`; unless check is False its "
    "expectations must hold. At a class or module one run is for all its tests."
)
REPLACED = (
    "A fixture `run` of your own has replaced the emulator's, and the scenario was not run; let it "
    "use the emulator's: `def run(run): ...`."
)
MISPLACED = (
    "The scenario of this test was not run: the marker works for test functions only, and must be "
    "there when they are collected."
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options; `emulator_scenarios` and `emulator_engine` also stand in the ini file."""
    add = parser.getgroup("emulator", "training clusters").addoption
    several: dict[str, Any] = {"action": "append", "default": []}
    image = "instead of the scenarios' own; a role's own `image:` stays"
    keep = "leave the clusters of failed tests, and print how to inspect them"
    warm = "fork tasks from processes that have imported their framework; these wait between tests"
    require = "an engine, gpu, network: fail where the machine lacks it, instead of skipping"
    vary = "collect every scenario file once for each value"
    engine = HELP.replace("{engines}", "one of a plug-in")
    add("--emulator-engine", metavar="NAME", help=engine)
    add("--emulator-image", metavar="IMAGE", help=image)
    add("--emulator-out", metavar="DIR", help="where run folders go [runs/ below the rootdir]")
    add("--emulator-keep", action="store_true", help=keep)
    add("--emulator-warm", action="store_true", help=warm)
    add("--emulator-require", **several, metavar="WHAT,WHAT", help=require)
    add("--emulator-set", **several, metavar="KEY=VALUE", help="override a value in every scenario")
    add("--emulator-vary", "--vary", **several, metavar="KEY=VALUE,VALUE", help=vary)
    add("--emulator-cpus", type=float, metavar="N", help="cores that scenarios share [all]")
    add("--emulator-memory", metavar="SIZE", help="memory that they share [all]")
    parser.addini(
        "emulator_scenarios", "folders whose *.yaml are scenarios", type="paths", default=[]
    )
    parser.addini("emulator_engine", engine, default="")
    parser.addini("emulator_warm", warm, type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and check the settings."""
    config.addinivalue_line("markers", MARKER)
    for folder in settings_of(config).folders:
        if not folder.is_dir():
            raise pytest.UsageError(f"emulator_scenarios: there is no folder {folder}")
    if settings_of(config).warm and not hasattr(config, "workerinput"):
        # What this session leaves waiting is removed at its end; xdist's workers inherit it.
        os.environ[WARM_SESSION] = f"{os.getpid()}-{time.time_ns()}"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Have xdist's controller wait for what its workers remove when it is told to end."""
    from emulator.pytest_plugin.interrupts import interrupt_on_signals

    interrupt_on_signals(config)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> ScenarioFile | None:
    """Collect a YAML file that was named, or that is in a folder of scenarios."""
    if file_path.suffix not in SUFFIXES:
        return None
    folders = settings_of(parent.config).folders
    if not (parent.session.isinitpath(file_path) or file_path.parent in folders):
        return None
    return ScenarioFile.from_parent(parent, path=file_path)


class ScenarioFile(pytest.Module):
    """A YAML file with a scenario; a pytest module, so that fixtures of modules work for it."""

    obj = None

    def collect(self) -> Iterator[ScenarioItem]:
        """Yield a test for each variant. Raises CollectError with all problems of the file."""
        from emulator.errors import UsageError
        from emulator.planning.requested import RequestedScenario
        from emulator.scenario.given import read_scenario
        from emulator.scenario.matrix import variants
        from emulator.scenario.pytest_options import mark_arguments
        from emulator.session.variants import read_all

        settings = settings_of(self.config)
        try:
            given = read_scenario(self.path)
            base = RequestedScenario(given, self.path, chosen=settings.sets)
            grid = base.scenario.parametrize
            expanded = variants(settings.varied, settings.sets, parametrize=grid)
            read = read_all(base, expanded)
            if any(mark_arguments(mark)[0] == "parametrize" for mark in base.scenario.marks):
                raise UsageError(
                    f"{self.path.name}: marks: a scenario has no mark `parametrize`.",
                    "Write `parametrize: {KEY: [VALUES]}` beside `marks:`.",
                )
        except UsageError as error:
            raise self.CollectError(str(error)) from None
        for variant, one in zip(expanded, read, strict=True):
            yield ScenarioItem.from_variant(self, variant, one.scenario)


class ScenarioItem(pytest.Function):
    """One variant of a scenario: its expectations are its assertions."""

    @classmethod
    def from_variant(
        cls, parent: ScenarioFile, variant: Variant, scenario: Scenario
    ) -> ScenarioItem:
        """Return the test of a variant, with the marks of the scenario."""
        from emulator.scenario.pytest_options import mark_arguments

        label = f"[{variant.label}]" if variant.overrides else ""
        name = scenario.name + label
        item: ScenarioItem = cls.from_parent(parent, name=name, callobj=_nothing_more)
        item.add_marker(pytest.mark.scenario(parent.path, set=list(variant.overrides)))
        for mark in scenario.marks:
            mark_name, args, kwargs = mark_arguments(mark)
            decorator: pytest.MarkDecorator = getattr(pytest.mark, mark_name)
            item.add_marker(decorator.with_args(*args, **kwargs))
            if mark_name == "usefixtures":
                item.fixturenames[:0] = [n for n in args if n not in item.fixturenames]
        return item

    def reportinfo(self) -> tuple[os.PathLike[str] | str, int | None, str]:
        """Return its file, which has the scenario from the first line on."""
        return self.path, 0, self.name


def _nothing_more(run: Result) -> None:
    """Pass: the expectations of the run were checked before."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Make a test with the marker run its scenario, even if it does not request the result."""
    if not isinstance(item, pytest.Function) or "run" in item.fixturenames:
        return
    if item.get_closest_marker("scenario") is not None:
        item.fixturenames.append("run")


def _has_scenario(item: pytest.Item) -> bool:
    """Return whether a test has the marker; a module's does not apply to its doctests."""
    if isinstance(item, pytest.Function):
        return item.get_closest_marker("scenario") is not None
    return any(mark.name == "scenario" for mark in item.own_markers)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Check the expectations of the test's run before the test's own assertions."""
    if _has_scenario(item) and RUN not in item.stash:
        requested = "run" in getattr(item, "fixturenames", ())
        pytest.fail(REPLACED if requested else MISPLACED, pytrace=False)
    result, check = item.stash.get(RUN, (None, False))
    if result is not None and check:
        try:
            result.check()
        except AssertionError as error:  # a traceback would show our own lines
            raise pytest.fail.Exception(str(error), pytrace=False) from None
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add a summary of each run to the report of a failed test."""
    report = yield
    if report.failed and isinstance(item, pytest.Function):
        for node in item.listchain():  # a class may share a run
            node.stash[FAILED] = True
        for emulator in (node.stash.get(EMULATOR, None) for node in item.listchain()):
            if emulator is None:
                continue
            from emulator.pytest_plugin.reporting import sections

            try:
                report.sections += sections(emulator)
            except Exception as error:  # the test's own failure must be reported in any case
                report.sections.append(("emulator", f"Its runs can't be reported: {error!r}"))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the runs with their numbers and reports."""
    properties = {
        report.nodeid: report.user_properties
        for group in terminalreporter.stats.values()
        for report in group
        if isinstance(report, pytest.TestReport)
        and report.user_properties
        and report.when == "teardown"
    }
    if not properties:
        return
    from emulator.pytest_plugin.reporting import lines

    failed = {report.nodeid for report in terminalreporter.stats.get("failed", ())}
    if shown := list(lines(properties, failed)):
        terminalreporter.section("emulated runs")
        for line in shown:
            terminalreporter.write_line(line)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Remove what failed runs and killed xdist workers have left."""
    from emulator.runtime.files import cache_dir

    worker = hasattr(session.config, "workerinput")
    # Whether there is any claim, without the imports that reading one takes.
    if not worker and any(cache_dir("leases").glob("*/*.json")):
        from emulator.pytest_plugin.harness import sweep

        sweep()
    if session_id := os.environ.pop(WARM_SESSION, "") if not worker else "":
        from emulator.pytest_plugin.harness import remove_waiting

        remove_waiting(session_id)
