"""The fixtures; a suite may override each of them in a conftest."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from emulator.pytest_plugin.harness import Emulator
    from emulator.pytest_plugin.memory_cluster import MemoryCluster
    from emulator.pytest_plugin.settings import Settings
    from emulator.results import Result
    from emulator.session.launch import ScenarioLike

SETTINGS = pytest.StashKey["Settings"]()
EMULATOR = pytest.StashKey["Emulator"]()
"""Of a test, class or module: its emulator."""
RUN = pytest.StashKey[tuple["Result", bool]]()
"""Of a test: the run of its marker, and whether the run's expectations must hold."""
FAILED = pytest.StashKey[bool]()
_PROPERTIES = pytest.StashKey[list[tuple[str, object]]]()
"""Of a test: the properties of the runs of its last try."""
_SHARED = pytest.StashKey[dict[str, "Result"]]()
"""Of a class or module: the runs of its markers."""
_WAITING = pytest.StashKey[pytest.Item]()
"""Of a class or module: the test whose timer is suspended while their run waits."""


def settings_of(config: pytest.Config) -> Settings:
    """Return the settings of the session, read once. Raises pytest.UsageError."""
    if SETTINGS not in config.stash:
        from emulator.errors import UsageError
        from emulator.pytest_plugin.settings import Settings

        try:
            config.stash[SETTINGS] = Settings.from_config(config)
        except UsageError as error:
            raise pytest.UsageError(str(error)) from None
    return config.stash[SETTINGS]


@pytest.fixture(scope="session")
def emulator_engine(pytestconfig: pytest.Config) -> str:
    """The name of the engine that scenarios run on, or `auto`."""
    return settings_of(pytestconfig).engine


@pytest.fixture(scope="session")
def emulator_image(pytestconfig: pytest.Config) -> str | Mapping[str, Any] | None:
    """The image that scenarios run in, as in `image:`; None: the image of each scenario."""
    return settings_of(pytestconfig).image


@pytest.fixture(scope="session")
def emulator_out(pytestconfig: pytest.Config) -> Path:
    """The folder of the run folders; the default one is ignored by git, as pytest's cache is."""
    settings = settings_of(pytestconfig)
    if settings.is_in_project:
        with contextlib.suppress(OSError):  # it exists already; or the run says why it can't be
            settings.out.mkdir()
            (settings.out / ".gitignore").write_text("*\n")
    return settings.out


@pytest.fixture
def emulator(
    request: pytest.FixtureRequest,
    emulator_engine: str,
    emulator_image: str | Mapping[str, Any] | None,
    emulator_out: Path,
) -> Iterator[Emulator]:
    """Runs scenarios for one test: `emulator.run("x.yaml")`, `with emulator.up("x.yaml")`."""
    from emulator.errors import EmulatorError
    from emulator.pytest_plugin.harness import Emulator
    from emulator.pytest_plugin.interrupts import interrupt_on_signals
    from emulator.pytest_plugin.reporting import progress, properties

    item = request.node
    emulator = Emulator(
        item,
        settings_of(request.config),
        engine=emulator_engine,
        image=emulator_image,
        out=emulator_out,
        untimed=lambda: untimed(item),
        say=progress(request.config),
    )
    _forget_last_try(item)
    item.stash[EMULATOR] = emulator
    interrupt_on_signals(request.config)
    try:
        yield emulator
    finally:
        try:
            emulator.close(failed=item.stash[FAILED])
        finally:
            with contextlib.suppress(EmulatorError):  # a damaged record has no numbers
                # The run of the marker, which may be shared, comes first.
                marked, _ = item.stash.get(RUN, (None, False))
                results = [] if marked is None else [marked]
                results += [run.result for run in emulator.runs()]
                each_once = {result.run_id: result for result in results}.values()
                item.stash[_PROPERTIES] = list(properties(each_once))
                item.user_properties += item.stash[_PROPERTIES]


def _forget_last_try(item: pytest.Item) -> None:
    """Reset the state of a test: plugins repeat failed tests."""
    item.stash[FAILED] = False
    if RUN in item.stash:
        del item.stash[RUN]
    old = item.stash.get(_PROPERTIES, [])
    item.user_properties[:] = [pair for pair in item.user_properties if pair not in old]


@pytest.fixture
def run(request: pytest.FixtureRequest, emulator: Emulator) -> Result:
    """The finished run of the test's `scenario` marker."""
    from emulator.errors import EmulatorError

    marked = next(request.node.iter_markers_with_node("scenario"), None)
    if marked is None:
        pytest.fail(
            'the fixture `run` is the run of a marker: write @pytest.mark.scenario("x.yaml")',
            pytrace=False,
        )
    node, mark = marked
    try:
        path, check, options = _marker_arguments(*mark.args, **mark.kwargs)
    except TypeError:
        raise pytest.fail.Exception(
            f"{mark} is not as it should be: @pytest.mark.scenario(path, *, set={{}}, seed=None, "
            "engine=None, check=True)",
            pytrace=False,
        ) from None
    try:
        if node is request.node:
            result = emulator.run(path, **options)
        else:
            node.stash[_WAITING] = request.node
            result = _shared_run(emulator, node, repr(mark), path, options)
    except EmulatorError as error:
        raise pytest.fail.Exception(str(error), pytrace=False) from None
    request.node.stash[RUN] = result, check
    return result


def _marker_arguments(
    path: ScenarioLike,
    *,
    check: bool = True,
    set: Any = (),  # noqa: ANN401
    seed: int | None = None,
    engine: str | None = None,
) -> tuple[ScenarioLike, bool, dict[str, Any]]:
    """Return the scenario, whether its expectations must hold, and the options of `run`."""
    return path, check, {"set": set, "seed": seed, "engine": engine}


def _shared_run(
    emulator: Emulator, node: pytest.Item, mark: str, path: ScenarioLike, options: dict[str, Any]
) -> Result:
    """Return the run of a class or a module; it is kept until the last test there has ended."""
    if EMULATOR not in node.stash:
        shared = replace(emulator, item=node, untimed=lambda: untimed(node.stash[_WAITING]))
        node.stash[EMULATOR] = shared
        node.addfinalizer(lambda: shared.close(failed=node.stash.get(FAILED, False)))
    runs = node.stash.setdefault(_SHARED, {})
    if mark not in runs:
        runs[mark] = node.stash[EMULATOR].run(path, **options)
    return runs[mark]


@pytest.fixture
def memory_cluster(request: pytest.FixtureRequest, tmp_path: Path) -> MemoryCluster:
    """Runs scenarios on the memory engine, with scripts for programs, in milliseconds."""
    from emulator.pytest_plugin.memory_cluster import MemoryCluster

    return MemoryCluster(request.node, settings_of(request.config), tmp_path / "runs")


# --- Suspending a test's timeout while it waits for its lease (hooks of pytest-timeout) -----------

TIMER = pytest.StashKey[Any]()


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:  # noqa: ANN401  its own type
    """Save the timer's settings, so that it can be set again."""
    item.stash[TIMER] = settings


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> None:
    """Forget the timer: another try of the test sets its own."""
    if TIMER in item.stash:
        del item.stash[TIMER]


@contextlib.contextmanager
def untimed(item: pytest.Item) -> Iterator[None]:
    """Stop the test's timer; it restarts from zero afterwards."""
    settings = item.stash.get(TIMER, None)
    if settings is None:
        yield
        return
    item.ihook.pytest_timeout_cancel_timer(item=item)
    try:
        yield
    finally:
        item.ihook.pytest_timeout_set_timer(item=item, settings=settings)
