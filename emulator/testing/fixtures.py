"""The fixtures, one for each thing that a suite may want otherwise; override them in a conftest."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from emulator.results import Result
    from emulator.testing.harness import Emulator
    from emulator.testing.memory import MemoryCluster
    from emulator.testing.settings import Settings

__all__ = [
    "CHECKED",
    "FAILED",
    "TESTED",
    "emulator",
    "emulator_engine",
    "emulator_image",
    "emulator_out",
    "memory_cluster",
    "run",
]

SETTINGS = pytest.StashKey["Settings"]()
TESTED = pytest.StashKey["Emulator"]()
"""Of a test: what ran its scenarios."""
CHECKED = pytest.StashKey["Result"]()
"""Of a test: the run whose expectations must hold."""
FAILED = pytest.StashKey[bool]()
_SHARED = pytest.StashKey[dict[str, "Result"]]()
"""Of a class or module: the runs of markers that stand there."""


def settings_of(config: pytest.Config) -> Settings:
    """Return what the session was told, read once; raises pytest.UsageError."""
    if SETTINGS not in config.stash:
        from emulator.errors import UsageError
        from emulator.testing.settings import Settings

        try:
            config.stash[SETTINGS] = Settings.of(config)
        except UsageError as error:
            raise pytest.UsageError(str(error)) from None
    return config.stash[SETTINGS]


@pytest.fixture(scope="session")
def emulator_engine(pytestconfig: pytest.Config) -> str:
    """The engine of scenarios: docker, process, or auto."""
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
    from emulator.testing.harness import Emulator
    from emulator.testing.plugin import untimed
    from emulator.testing.telling import progress, properties

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
    item.stash[TESTED] = made
    item.stash[FAILED] = False  # it may be another try of the same test
    try:
        yield made
    finally:
        made.close(failed=item.stash[FAILED])
        with contextlib.suppress(EmulatorError):  # a record that is torn has no numbers
            item.user_properties += properties(result for result, _ in made.results())


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
    path, check, wanted = _asked(*mark.args, **mark.kwargs)
    shared: dict[str, Result] = {}
    if node is not request.node:
        shared = node.stash.setdefault(_SHARED, shared)
    if repr(mark) not in shared:
        try:
            shared[repr(mark)] = emulator.run(path, **wanted)
        except EmulatorError as error:
            raise pytest.fail.Exception(str(error), pytrace=False) from None
    result = shared[repr(mark)]
    if check:
        request.node.stash[CHECKED] = result
    return result


def _asked(
    path: str | Path | Mapping[str, Any],
    *,
    check: bool = True,
    **wanted: Any,  # noqa: ANN401
) -> tuple[str | Path | Mapping[str, Any], bool, dict[str, Any]]:
    """Return what a marker says."""
    return path, check, wanted


@pytest.fixture
def memory_cluster(request: pytest.FixtureRequest, tmp_path: Path) -> MemoryCluster:
    """Runs scenarios on the fake, with scripts for programs, in milliseconds."""
    from emulator.testing.memory import MemoryCluster

    return MemoryCluster(request.node, settings_of(request.config), tmp_path / "runs")
