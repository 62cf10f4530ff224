"""The fixtures, one for each thing that a suite may want otherwise; override them in a conftest."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from emulator.pytest_plugin.harness import Emulator
    from emulator.pytest_plugin.memory_cluster import MemoryCluster
    from emulator.pytest_plugin.scenario_source import Given
    from emulator.pytest_plugin.settings import Settings
    from emulator.results import Result

__all__ = [
    "CHECKED",
    "FAILED",
    "RUN",
    "TESTED",
    "emulator",
    "emulator_engine",
    "emulator_image",
    "emulator_out",
    "memory_cluster",
    "pytest_timeout_cancel_timer",
    "pytest_timeout_set_timer",
    "run",
]

SETTINGS = pytest.StashKey["Settings"]()
TESTED = pytest.StashKey["Emulator"]()
"""Of a test: what ran its scenarios."""
RUN = pytest.StashKey["Result"]()
"""Of a test: the run of its marker, which may be that of its class."""
CHECKED = pytest.StashKey["Result"]()
"""Of a test: the run whose expectations must hold."""
FAILED = pytest.StashKey[bool]()
_TOLD = pytest.StashKey[list[tuple[str, object]]]()
"""Of a test: the properties that its last try came to."""
_SHARED = pytest.StashKey[dict[str, "Result"]]()
"""Of a class or module: the runs of markers that stand there."""
_ASKING = pytest.StashKey[pytest.Item]()
"""Of a class or module: the test whose timer stands while their run waits."""


def settings_of(config: pytest.Config) -> Settings:
    """Return what the session was told, read once; raises pytest.UsageError."""
    if SETTINGS not in config.stash:
        from emulator.errors import UsageError
        from emulator.pytest_plugin.settings import Settings

        try:
            config.stash[SETTINGS] = Settings.of(config)
        except UsageError as error:
            raise pytest.UsageError(str(error)) from None
    return config.stash[SETTINGS]


@pytest.fixture(scope="session")
def emulator_engine(pytestconfig: pytest.Config) -> str:
    """The name of the engine that scenarios run on, or `auto`."""
    return settings_of(pytestconfig).engine


@pytest.fixture(scope="session")
def emulator_image(pytestconfig: pytest.Config) -> str | Mapping[str, Any] | None:
    """The image that scenarios run in, as in `image:`; None leaves what each names."""
    return settings_of(pytestconfig).image


@pytest.fixture(scope="session")
def emulator_out(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where run folders go."""
    return settings_of(pytestconfig).out or tmp_path_factory.getbasetemp() / "runs"


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
    from emulator.pytest_plugin.reporting import progress, properties

    item = request.node
    made = Emulator(
        item,
        settings_of(request.config),
        engine=emulator_engine,
        image=emulator_image,
        out=emulator_out,
        untimed=lambda: untimed(item),
        say=progress(request.config),
    )
    _forget_last_try(item)
    item.stash[TESTED] = made
    try:
        yield made
    finally:
        try:
            made.close(failed=item.stash[FAILED])
        finally:
            with contextlib.suppress(EmulatorError):  # a record that is torn has no numbers
                item.stash[_TOLD] = list(properties(_results(item, made)))
                item.user_properties += item.stash[_TOLD]


def _results(item: pytest.Item, made: Emulator) -> Iterable[Result]:
    """Return a test's runs, that of its marker first, also where others share it."""
    marked = item.stash.get(RUN, None)
    shared = {} if marked is None else {marked.run_id: marked}
    return {**shared, **{ran.result.run_id: ran.result for ran in made.results()}}.values()


def _forget_last_try(item: pytest.Item) -> None:
    """Begin anew: plugins run a test again that has failed."""
    item.stash[FAILED] = False
    for key in (RUN, CHECKED):
        if key in item.stash:
            del item.stash[key]
    told = item.stash.get(_TOLD, [])
    item.user_properties[:] = [known for known in item.user_properties if known not in told]


@pytest.fixture
def run(request: pytest.FixtureRequest, emulator: Emulator) -> Result:
    """The finished run of the test's `scenario` marker."""
    marked = next(request.node.iter_markers_with_node("scenario"), None)
    if marked is None:
        pytest.fail(
            'the fixture `run` is the run of a marker: write @pytest.mark.scenario("x.yaml")',
            pytrace=False,
        )
    node, mark = marked
    try:
        path, check, wanted = _asked(*mark.args, **mark.kwargs)
    except TypeError:
        raise pytest.fail.Exception(
            f"{mark} is not as it should be: @pytest.mark.scenario(path, *, set={{}}, seed=None, "
            "engine=None, check=True)",
            pytrace=False,
        ) from None
    if node is request.node:
        result = _ran(emulator, path, wanted)
    else:
        node.stash[_ASKING] = request.node
        result = _shared(emulator, node, repr(mark), path, wanted)
    request.node.stash[RUN] = result
    if check:
        request.node.stash[CHECKED] = result
    return result


def _asked(
    path: Given,
    *,
    check: bool = True,
    set: Any = (),  # noqa: ANN401
    seed: int | None = None,
    engine: str | None = None,
) -> tuple[Given, bool, dict[str, Any]]:
    """Return what a marker says."""
    return path, check, {"set": set, "seed": seed, "engine": engine}


def _ran(emulator: Emulator, path: Given, wanted: dict[str, Any]) -> Result:
    from emulator.errors import EmulatorError

    try:
        return emulator.run(path, **wanted)
    except EmulatorError as error:
        raise pytest.fail.Exception(str(error), pytrace=False) from None


def _shared(
    emulator: Emulator, node: pytest.Item, mark: str, path: Given, wanted: dict[str, Any]
) -> Result:
    """Return the run of a class or a module, which ends with the last test there."""
    if TESTED not in node.stash:
        made = replace(emulator, item=node, untimed=lambda: untimed(node.stash[_ASKING]))
        node.stash[TESTED] = made
        node.addfinalizer(lambda: made.close(failed=node.stash.get(FAILED, False)))
    shared = node.stash.setdefault(_SHARED, {})
    if mark not in shared:
        shared[mark] = _ran(node.stash[TESTED], path, wanted)
    return shared[mark]


@pytest.fixture
def memory_cluster(request: pytest.FixtureRequest, tmp_path: Path) -> MemoryCluster:
    """Runs scenarios on the fake, with scripts for programs, in milliseconds."""
    from emulator.pytest_plugin.memory_cluster import MemoryCluster

    return MemoryCluster(request.node, settings_of(request.config), tmp_path / "runs")


# --- A test's timeout stands still while it waits for its turn (hooks of pytest-timeout) ----------

TIMER = pytest.StashKey[Any]()


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:  # noqa: ANN401  its own type
    """Note how the timer was set, so that it can be set again."""
    item.stash[TIMER] = settings


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> None:
    """Forget it: another try of the test sets its own."""
    if TIMER in item.stash:
        del item.stash[TIMER]


@contextlib.contextmanager
def untimed(item: pytest.Item) -> Iterator[None]:
    """Stop the test's timer meanwhile; it starts anew afterwards."""
    settings = item.stash.get(TIMER, None)
    if settings is None:
        yield
        return
    item.ihook.pytest_timeout_cancel_timer(item=item)
    try:
        yield
    finally:
        item.ihook.pytest_timeout_set_timer(item=item, settings=settings)
