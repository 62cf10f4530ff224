"""Parameter sweeps: run the variants of a scenario in sequence, and compare runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from emulator.analysis.comparison import Row, rows
from emulator.errors import EmulatorError, ScenarioError, UsageError
from emulator.record.reader import Record
from emulator.results import Judged, Result, judge
from emulator.runtime.signals import Interruption
from emulator.session.ready import make_ready

if TYPE_CHECKING:
    from emulator.engines.base import Engine
    from emulator.planning.requested import RequestedScenario, RunOptions
    from emulator.scenario.matrix import Variant

INTERRUPTED = 130
_WORST_FIRST = (INTERRUPTED, EmulatorError.exit_code, 1, 3, 0)


@dataclass(frozen=True)
class PlannedVariant:
    """A validated variant, ready to run."""

    number: int
    """From 1."""
    requested: RequestedScenario
    options: RunOptions
    folder: Path


@dataclass
class Sweep:
    """The results of a sweep."""

    records: list[Record] = field(default_factory=list)
    """The records of the variants that have one, in order."""
    exit_codes: list[int] = field(default_factory=list)
    failure: EmulatorError | None = None
    """The error that ended the sweep early."""

    @property
    def exit_code(self) -> int:
        """The worst exit code: interrupted, an error, failed, unknown, ok."""
        return min(self.exit_codes, key=_WORST_FIRST.index)


def compare(runs: Sequence[tuple[Record, Judged]], baseline: Record | None = None) -> list[Row]:
    """Return a row for each of some judged runs. Raises RecordError."""
    reference = None if baseline is None else (baseline.plan, *judge(baseline)[:2])
    return rows([(record.plan, *judged[:2]) for record, judged in runs], reference)


def judge_all(records: Sequence[Record]) -> list[tuple[Record, Judged]]:
    """Judge runs from their folders. Raises RecordError."""
    return [(record, judge(record)) for record in records]


def read_all(requested: RequestedScenario, variants: Sequence[Variant]) -> list[RequestedScenario]:
    """Return a scenario in every variant, parsed.

    Raises UsageError with every problem at once, each with the label of its variant.
    """

    def read(_: int, variant: Variant) -> RequestedScenario:
        one = requested.variant([*requested.chosen, *variant.overrides])
        one.scenario  # noqa: B018  raises here, not later
        return one

    return _for_all(variants, read)


def plan_all(
    variants: Sequence[Variant],
    read: Sequence[RequestedScenario],
    engine: Engine,
    options: RunOptions,
) -> list[PlannedVariant]:
    """Check that the engine can run every variant, each in a new folder.

    Their run ids are the given one, or a new one, with their number. Raises UsageError as
    `read_all` does.
    """
    stem = options.named(read[0].scenario)

    def plan(number: int, variant: Variant) -> PlannedVariant:
        requested = read[number - 1]
        own = replace(options, run_id=f"{stem}-{number}", variant=variant.label)
        _, folder = make_ready(requested, engine, own)
        if (folder / "plan.json").exists():
            raise UsageError(f"There is a run in {folder} already.", "Choose another --run-id.")
        return PlannedVariant(number, requested, own, folder)

    return _for_all(variants, plan)


_T = TypeVar("_T")


def _for_all(variants: Sequence[Variant], do: Callable[[int, Variant], _T]) -> list[_T]:
    """Call `do` for every variant, also after one was refused; raise all problems together."""
    problems: dict[str, list[str]] = {}
    done: list[_T] = []
    for number, variant in enumerate(variants, start=1):
        try:
            done.append(do(number, variant))
        except UsageError as error:
            for text in _as_varied(error, variant):
                problems.setdefault(text, []).append(variant.label)
    if problems:
        raise UsageError("\n".join(_labelled(problems, len(variants))))
    return done


def _as_varied(error: UsageError, variant: Variant) -> Iterator[str]:
    """Yield the problems, with `--vary` in place of `--set` for what the variant has set."""
    texts = [str(p) for p in error.problems] if isinstance(error, ScenarioError) else [str(error)]
    for text in texts:
        for override in variant.overrides:
            text = text.replace(f"--set {override}", f"--vary {override}")
        yield text


def _labelled(problems: dict[str, list[str]], variants: int) -> Iterator[str]:
    """Yield each problem once, with its first variant; without a label if all have it."""
    for text, labels in problems.items():
        more = f" (and {len(labels) - 1} more)" if len(labels) > 1 else ""
        yield text if len(labels) == variants else f"{labels[0]}{more}: {text}"


def up_all(planned: Sequence[PlannedVariant], run: Callable[[PlannedVariant], Result]) -> Sweep:
    """Run the variants in sequence; Ctrl-C or an EmulatorError ends the sweep.

    After an error the state of the engine is unknown, and would affect the remaining variants.
    """
    sweep = Sweep()
    for variant in planned:
        try:
            code = run(variant).exit_code
        except (KeyboardInterrupt, Interruption):
            code = INTERRUPTED  # no supervisor was running to handle the signal
        except EmulatorError as error:
            code, sweep.failure = EmulatorError.exit_code, error
        sweep.exit_codes.append(code)
        if (variant.folder / "plan.json").is_file():
            sweep.records.append(Record(variant.folder))
        if code == INTERRUPTED or sweep.failure:
            break
    return sweep
