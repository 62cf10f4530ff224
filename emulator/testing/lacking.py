"""What a machine lacks skips a test, or fails it where that is required."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import pytest

from emulator.engines import engine_class
from emulator.engines.requirements import machine_needs, needs
from emulator.errors import EngineMissing, Unsupported
from emulator.scenario.model import Scenario

__all__ = ["skipping"]


@contextlib.contextmanager
def skipping(scenarios: Iterable[Scenario], required: frozenset[str]) -> Iterator[None]:
    """Skip the test where the engine, or something else that its scenarios take, is not there.

    It fails where any of that is `required`.
    """
    __tracebackhide__ = True
    try:
        yield
    except EngineMissing as error:
        asked = {capability for scenario in scenarios for _, capability in needs(scenario)}
        lacks = machine_needs(engine_class(error.engine), asked)
        raise _lacking(str(error), lacks & required) from None
    except Unsupported as error:
        raise _lacking(str(error), error.lacks & required) from None


def _lacking(said: str, required: frozenset[str]) -> BaseException:
    if required:
        what = ",".join(sorted(required))
        return pytest.fail.Exception(f"--emulator-require {what}, but: {said}", pytrace=False)
    return pytest.skip.Exception(said)
