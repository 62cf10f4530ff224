"""A scenario file as a test, one for each of its variants."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from emulator.errors import UsageError
from emulator.manifests.convert import read_scenario
from emulator.planning.requested import RequestedScenario
from emulator.pytest_plugin.fixtures import settings_of
from emulator.scenario.matrix import Variant, variants
from emulator.scenario.pytest_options import mark_arguments
from emulator.session.sweep import read_all

if TYPE_CHECKING:
    from emulator.results import Result
    from emulator.scenario.schema import Scenario


class ScenarioFile(pytest.Module):
    """A YAML file with a scenario; a pytest module, so that fixtures of modules work for it."""

    obj = None

    def collect(self) -> Iterator[ScenarioItem]:
        """Yield a test for each variant. Raises CollectError with all problems of the file."""
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
