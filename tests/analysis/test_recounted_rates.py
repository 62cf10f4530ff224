"""The rates of any history against a recount of it; see `tests/recount.py`."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.analysis.throughput import follow
from emulator.record.events import line_of
from emulator.record.timeline import Timeline
from tests.histories import (
    BEGAN,
    Told,
    a_plan,
    ended,
    fault,
    happened,
    history,
    in_time,
    step,
    written,
)
from tests.recount import made


def near(value: float | None) -> Any:
    return None if value is None else pytest.approx(value, abs=2e-4, rel=1e-3)


TASKS = ("worker-0", "worker-1", "worker-2")


def lived(seed: int) -> Iterator[Told]:
    """Yield events of tasks that step, repeat steps, hang, end, return and are paused."""
    rng = Random(seed)
    yield happened(0, "run")
    lines = rng.choice([1, 1, 5])
    for task in TASKS:
        t, number, frozen_until = rng.uniform(0, 2), 0, 0.0
        lasting: list[tuple[dict[str, str], float]] = []
        yield happened(t, "start", task)
        yield happened(t, "running", task)
        while t < 40:
            t = round(t + rng.choice([0.25, 0.25, 0.5, 1, rng.uniform(0, 9)]), 3)
            kinds = ["exit", "step", "back", "restore", "pause"]
            if t < frozen_until and rng.random() < 0.7:
                t = frozen_until + 0.1
            match rng.choices(kinds, [3, 60, 1, 2, 3] if t >= frozen_until else [1, 0, 0, 0, 0])[0]:
                case "step":
                    number += lines
                    yield step(t, task, number, examples=8 * number)
                case "back":
                    number = rng.randint(0, number)
                    yield step(t, task, number, examples=8 * number)
                case "restore":
                    number = rng.randint(0, number)
                    yield happened(t, "phase", task, phase="restore", state="end", step=number)
                case "exit":
                    yield ended(t, task, 1)
                    t, number = t + rng.uniform(0, 8), rng.randint(0, number)
                    yield happened(t, "start", task)
                    t += rng.uniform(0, 3)
                    yield happened(t, "running", task)
                    for about, end in lasting:
                        if t + 0.1 < end:
                            yield fault(t + 0.1, task, "reapplied", **about)
                case _:
                    for number_of in range(rng.choice([1, 1, 2])):  # a second one may outlast it
                        begin, end = t + number_of, t + number_of + rng.uniform(1, 9)
                        about = {"id": f"{task} {begin}", "kind": "pause"}
                        yield fault(begin, task, "applied", **about)
                        yield fault(end, task, "healed", **about)
                        lasting.append((about, end))
                        frozen_until = max(frozen_until, end)


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 1_000_000))
def test_what_was_made_is_the_same_counted_again(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    events = in_time(lived(seed))
    plan = a_plan("{worker: 3}")
    folder = tmp_path_factory.mktemp("made")
    lines = (line_of(one) for one in written(events))
    (folder / "history.jsonl").write_text("\n".join(lines))
    found, again = follow(Timeline(plan, history(events))), made(folder)
    for name, of in again.items():
        work = found[name]
        assert work.rate(None).steps_per_second == near(of.rate())
        for begin in range(0, 40, 7):
            rate = of.rate_between(BEGAN + begin, BEGAN + begin + 10)
            assert work.rate_within(begin, begin + 10) == near(rate), (name, begin)
    examples = made(folder, "examples")
    for name, work in found.items():
        if work.examples is not None:
            assert work.rate(None).examples_per_second == near(examples[name].rate())
