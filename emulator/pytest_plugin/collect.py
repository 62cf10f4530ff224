"""A scenario file as a test, one for each of its variants."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from emulator.errors import UsageError
from emulator.pytest_plugin.fixtures import settings_of
from emulator.scenario.loader import load
from emulator.scenario.matrix import Variant, variants
from emulator.scenario.pytest_options import Mark
from emulator.scenario.schema import Scenario
from emulator.sweep import read_all

if TYPE_CHECKING:
    from emulator.results import Result

__all__ = ["ScenarioFile", "ScenarioItem"]


class ScenarioFile(pytest.Module):
    """A YAML file with a scenario; a module to pytest, whose fixtures of a module it may have."""

    obj = None

    def collect(self) -> Iterator[ScenarioItem]:
        """Yield a test for each variant; raises CollectError with every mistake of the file."""
        settings = settings_of(self.config)
        try:
            whole = load(self.path, settings.sets)
            found = variants(settings.varied, settings.sets, parametrize=whole.parametrize)
            scenarios = read_all(self.path, found, settings.sets)
            if any(mark.name == "parametrize" for mark in whole.marks):
                raise UsageError(
                    f"{self.path.name}: marks: parametrize is no mark of a scenario.",
                    "Write `parametrize: {KEY: [VALUES]}` beside `marks:`.",
                )
        except UsageError as error:
            raise self.CollectError(str(error)) from None
        for variant, scenario in zip(found, scenarios, strict=True):
            yield ScenarioItem.made(self, variant, scenario)


class ScenarioItem(pytest.Function):
    """One variant of a scenario: its expectations are its assertions."""

    @classmethod
    def made(cls, parent: ScenarioFile, variant: Variant, scenario: Scenario) -> ScenarioItem:
        """Return the test of a variant, with the marks that the scenario names."""
        label = f"[{variant.label}]" if variant.overrides else ""
        name = scenario.name + label
        item: ScenarioItem = cls.from_parent(parent, name=name, callobj=_judged)
        item.add_marker(pytest.mark.scenario(parent.path, set=list(variant.overrides)))
        for mark in scenario.marks:
            item.add_marker(_decorator(mark))
            if mark.name == "usefixtures":
                item.fixturenames[:0] = [n for n in mark.args if n not in item.fixturenames]
        return item

    def reportinfo(self) -> tuple[os.PathLike[str] | str, int | None, str]:
        """Return where it stands."""
        return self.path, 0, self.name


def _judged(run: Result) -> None:
    """Nothing more: that the run's expectations hold is asserted before."""


def _decorator(mark: Mark) -> pytest.MarkDecorator:
    decorator: pytest.MarkDecorator = getattr(pytest.mark, mark.name)
    return decorator(*mark.args, **mark.kwargs) if mark.args or mark.kwargs else decorator
