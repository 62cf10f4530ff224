"""Bytes in a step: how they follow from samples and steps, and how they are judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from emulator.analysis.analyse import Analysis, analyse
from emulator.analysis.expectations import judge
from emulator.analysis.traffic import Traffic
from emulator.metrics.catalog import Usage
from emulator.metrics.samples import Sample
from emulator.record.events import Entry
from emulator.scenario.schema import Expectations
from tests.histories import happened, job, step, timeline


def samples(*counters: tuple[float, Mapping[str, tuple[int, int]]]) -> list[Sample]:
    """Return samples from (time, bytes sent and received by task); the CPU counter only grows."""
    return [
        Sample(t, t, {task: Usage(t, sent=out, received=in_) for task, (out, in_) in tasks.items()})
        for t, tasks in counters
    ]


def steadily(number: int, each: float = 1.0, received: int = 0) -> list[Sample]:
    """Return samples in which a worker has sent 100 bytes a second."""
    times = [each * n for n in range(number)]
    return samples(*((t, {"worker-0": (round(100 * t), round(received * t))}) for t in times))


def steps(times: Mapping[int, float], **values: float) -> list[Entry]:
    return [
        happened(0, "run"),
        *(step(t, "worker-0", number, **values) for number, t in times.items()),
        job(max(times.values()) + 1),
    ]


def analysed(
    events: Sequence[Entry], sampled: Sequence[Sample], cluster: str = "{worker: 1}"
) -> Analysis:
    return analyse(timeline(events, cluster), sampled)


def test_bytes_are_counted_from_the_first_step_to_the_last() -> None:
    """What was sent before the first step and after the last one is no part of a step."""
    counted = {0: (0, 0), 2: (5000, 9000), 3: (5100, 9020), 4: (5200, 9040), 6: (9999, 9999)}
    sampled = samples(*((float(t), {"worker-0": counters}) for t, counters in counted.items()))
    result = analysed(steps({1: 2.0, 2: 3.0, 3: 4.0}), sampled)
    assert result.bytes_per_step == {"worker": Traffic(100, 20)}


def test_a_counter_is_interpolated_between_two_samples() -> None:
    result = analysed(steps({10: 5.0, 50: 75.0}), steadily(9, 10.0, received=200))
    assert result.bytes_per_step == {"worker": Traffic(175, 350)}


@pytest.mark.parametrize(
    ("times", "known"),
    [
        ({1: 5.0, 50: 9.0}, False),  # between the same two samples
        ({1: 5.0, 30: 9.0, 50: 15.0}, False),  # 20 of 49 steps follow the first one that counts
        ({1: 5.0, 20: 9.0, 50: 15.0}, True),
        ({1: 5.0, 50: 85.0}, False),  # the samples end before the steps
        ({1: 5.0, 20: 75.0, 50: 85.0}, False),
        ({1: 5.0, 40: 75.0, 50: 85.0}, True),
    ],
)
def test_less_than_half_of_the_steps_say_nothing(times: dict[int, float], known: bool) -> None:
    assert bool(analysed(steps(times), steadily(9, 10.0)).bytes_per_step) is known


@pytest.mark.parametrize(
    ("number", "late"),
    [
        (12, 5.0),  # the first five steps were read late: they have the time of the fifth
        (9, 0.0),  # the last steps are after the last sample
    ],
)
def test_steps_read_late_or_after_the_last_sample_change_nothing(number: int, late: float) -> None:
    """Ten steps of 100 bytes, one each second."""
    times = {n: max(late, float(n)) for n in range(1, 11)}
    result = analysed(steps(times), steadily(number))
    assert result.bytes_per_step == {"worker": Traffic(100, 0)}


def test_a_task_that_was_started_again_counts_from_zero() -> None:
    sampled = [
        Sample(t, t, {"worker-0": Usage(cpu, sent=sent, received=sent)})
        for t, cpu, sent in ((1, 5, 50), (2, 6, 150), (3, 0, 0), (4, 1, 200), (5, 2, 300))
    ]
    result = analysed(steps({1: 1.0, 5: 5.0}), sampled)
    assert result.bytes_per_step == {"worker": Traffic(100, 100)}  # 150 + 300 - 50 in 4 steps


# --- Verdicts -------------------------------------------------------------------------------------

MIB = 2**20
COUNTED = samples((1.0, {"worker-0": (0, 0)}), (4.0, {"worker-0": (6 * MIB, 3 * MIB)}))
"""2 MiB sent and 1 MiB received in each of three steps."""


def judged(
    bounds: Mapping[str, Any],
    values: Mapping[str, float] = {},
    sampled: Sequence[Sample] = COUNTED,
) -> list[tuple[str, str, str, str]]:
    expect = Expectations.model_validate({"bytes_per_step": {"worker": bounds}})
    events = steps({1: 1.0, 4: 4.0}, **values)
    replayed = timeline(events, "{worker: 1}")
    return [
        (v.expectation.removeprefix("bytes_per_step.worker."), v.status, v.expected, v.actual)
        for v in judge(expect, analyse(replayed, sampled), replayed)
        if v.expectation.startswith("bytes_per_step.")
    ]


def test_bytes_are_compared_with_what_the_program_predicts() -> None:
    bounds = {"sent": {"at_least": 0.9, "at_most": 1.1, "of": "predicted"}}
    actual = "0.8, 2.00 MiB of 2.50 MiB"
    assert judged(bounds, {"predicted": 2.5 * MIB}) == [
        ("sent.at_least", "failed", "at least 0.9 of predicted", actual),
        ("sent.at_most", "ok", "at most 1.1 of predicted", actual),
    ]


def test_where_the_prediction_changes_the_worst_share_counts() -> None:
    """Two steps of 100 bytes, then two of 3000: predicted are 50 and 2000."""
    sent = {1: 0, 2: 100, 3: 200, 4: 4200, 5: 7200, 6: 10200}
    sampled = samples(*((float(t), {"worker-0": (bytes_, 0)}) for t, bytes_ in sent.items()))
    predicted = {1: 50, 2: 50, 3: 50, 4: 2000, 5: 2000, 6: 2000}
    events = [step(float(n), "worker-0", n, predicted=value) for n, value in predicted.items()]
    replayed = timeline([happened(0, "run"), *events, job(7)], "{worker: 1}")
    bounds = {"at_least": 1.6, "at_most": 1.9, "of": "predicted"}
    expect = Expectations.model_validate({"bytes_per_step": {"worker": {"sent": bounds}}})
    least, most = judge(expect, analyse(replayed, sampled), replayed)[-2:]
    assert (least.status, least.actual) == ("failed", "1.5, 2.93 KiB of 1.95 KiB")
    assert (most.status, most.actual) == ("failed", "2, 100 B of 50 B")


@pytest.mark.parametrize("values", [{}, {"predicted": 0.0}, {"predicted": float("nan")}])
def test_without_a_prediction_a_share_is_unknown(values: dict[str, float]) -> None:
    ((*_, status, _, actual),) = judged({"sent": {"at_most": 2, "of": "predicted"}}, values)
    assert (status, actual) == ("unknown", "the tasks did not report it")


def test_without_counters_every_bound_is_unknown() -> None:
    bounds = {"sent": {"min": "1m", "at_most": 2, "of": "predicted"}}
    actual = "its bytes were not counted, or not often enough between the steps"
    found = [(status, why) for _, status, _, why in judged(bounds, {"predicted": 1.0}, [])]
    assert found == [("unknown", actual)] * 2


def test_a_role_is_known_if_all_its_tasks_are() -> None:
    """Tasks of a ps report no steps: the steps are those of the job."""
    events = steps({1: 1.0, 3: 3.0})
    sampled = samples(
        (1.0, {"worker-0": (0, 0), "worker-1": (0, 8), "ps-0": (0, 0)}),
        (3.0, {"worker-0": (20, 0), "worker-1": (60, 8), "ps-0": (40, 2)}),
    )
    cluster = "{worker: 2, ps: 1}"
    result = analysed(events, sampled, cluster).bytes_per_step
    assert result == {"worker": Traffic(20, 0), "ps": Traffic(20, 1)}
    sampled = samples((1.0, {"worker-0": (0, 0)}), (3.0, {"worker-0": (20, 0)}))
    assert analysed(events, sampled, cluster).bytes_per_step == {}
    for counted in (Usage(1), Usage(1, sent=5), Usage(1, received=5)):  # it counts not all bytes
        sampled = [Sample(t, t, {"worker-0": counted}) for t in (1.0, 3.0)]
        assert analysed(events, sampled).bytes_per_step == {}
