"""Rates from counters, and thinning: totals and peaks survive it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.metrics.catalog import (
    CHARTS,
    GPU,
    GPU_SHARE,
    RATES,
    USAGE,
    GpuShare,
    GpuUsage,
    Metric,
    Usage,
)
from emulator.metrics.samples import (
    GpuTotals,
    Sample,
    Totals,
    device_numbers,
    from_json,
    gpu_totals,
    halved,
    rates,
    series,
    to_json,
    totals,
)


def test_a_restart_counts_from_zero_and_is_never_negative() -> None:
    before = Usage(50.0, received=9000)
    found = rates(before, Usage(0.5, received=100), 1.0)
    assert (found.cpu, found.received) == (0.5, 100.0)
    # It is known by the CPU, even where another counter has overtaken.
    assert rates(Usage(50.0, received=100), Usage(0.5, received=150), 1.0).received == 150.0
    # A task that computes nothing was not started again; one counter may be reset by itself.
    found = rates(Usage(1.0, None, 9.0, 100, 7), Usage(1.0, None, 2.0, 150, 7), 1.0)
    assert (found.cpu, found.throttled, found.received, found.sent) == (0.0, 2.0, 50.0, 0.0)


def test_devices_have_their_index_and_their_parts_follow_it() -> None:
    gpus = [GpuUsage(index, uuid) for index, uuid in ((0, "a"), (1, "b"), (0, "c"), (0, "d"))]
    samples = [Sample(t, t, {}, gpus[: int(t)]) for t in (1.0, 3.0, 4.0, 2.0)]
    assert device_numbers(samples) == {"a": "0", "b": "1", "c": "0.1", "d": "0.2"}


@pytest.mark.parametrize("earlier", [None, Usage(1.0)])
def test_what_is_not_known_stays_so(earlier: Usage | None) -> None:
    found = rates(earlier, Usage(2.0, memory=5), 1.0)
    assert found.memory == 5
    assert found.cpu == (None if earlier is None else 1.0)
    unknown = (found.received, found.throttled, found.cpu_share, found.memory_share)
    assert unknown == (None,) * 4


def test_a_task_that_comes_back_has_no_rate_over_its_absence() -> None:
    used = {1.0: 1.0, 2.0: 1.5, 3.0: None, 4.0: 0.2, 5.0: 0.6}
    samples = [Sample(t, t, {} if cpu is None else {"w": Usage(cpu)}) for t, cpu in used.items()]
    cpus = [(t, rate.cpu) for t, rate in series(samples, "w")]
    assert cpus == [(1.0, None), (2.0, 0.5), (4.0, None), (5.0, pytest.approx(0.4))]
    assert series(samples, "unknown") == []


counts = st.lists(st.integers(0, 1000), min_size=1, max_size=40)


@given(counts, st.integers(1, 4))
def test_thinning_keeps_totals_peaks_and_order(steps: list[int], times: int) -> None:
    total, samples = 0, []
    for number, used in enumerate(steps):
        total += used
        usage = Usage(float(total), memory=used, received=total)
        samples.append(Sample(number, number, {"w": usage}))
    kept = samples
    for _ in range(times):
        kept = halved(kept)
    assert kept[-1].tasks["w"].cpu == samples[-1].tasks["w"].cpu
    assert max(s.tasks["w"].memory or 0 for s in kept) == max(steps)
    assert all(one.t < two.t for one, two in pairwise(kept))
    assert len(kept) <= len(samples) / 2**times + 1
    # What was used between two moments that are left is what it was before.
    by_time = {s.t: s.tasks["w"].received or 0 for s in samples}
    for one, two in pairwise(kept):
        used = (two.tasks["w"].received or 0) - (one.tasks["w"].received or 0)
        assert used == by_time[two.t] - by_time[one.t]


def thinned(one: GpuUsage, two: GpuUsage) -> GpuUsage:
    ((gpu,),) = (kept.gpus for kept in halved([Sample(1, 1, {}, [one]), Sample(2, 2, {}, [two])]))
    return gpu


def test_thinning_averages_a_gpu_and_keeps_its_errors_its_peak_and_that_it_was_lost() -> None:
    one = GpuUsage(0, "GPU-a", utilisation=0.2, memory=5, power=100.0, xid=79)
    two = GpuUsage(0, "GPU-a", utilisation=0.6, memory=3, power=None, tasks={"w": GpuShare(1)})
    gpu = thinned(one, two)
    assert gpu.utilisation == pytest.approx(0.4)
    assert (gpu.memory, gpu.xid, gpu.tasks) == (5, 79, {"w": GpuShare(1)})
    full = GpuUsage(0, "GPU-a", utilisation=0.5, memory=5, power=100.0, ecc_errors=2)
    empty, lost = GpuUsage(0, "GPU-a", memory=0), GpuUsage(0, "GPU-a", lost=True)
    assert (thinned(full, empty).memory, thinned(full, empty).utilisation) == (5, 0.5)
    assert thinned(full, lost) == replace(full, lost=True)
    assert thinned(lost, empty).lost


def test_a_task_that_left_between_two_moments_is_kept() -> None:
    (kept,) = halved([Sample(1, 1, {"w": Usage(3.0)}), Sample(2, 2, {})])
    assert kept.tasks == {"w": Usage(3.0)}


def test_a_line_holds_all_of_a_sample_and_nothing_that_is_not_known() -> None:
    gpu = GpuUsage(1, "GPU-b", "H200", 0.5, lost=False, tasks={"w": GpuShare(utilisation=0.25)})
    sample = Sample(1.5, 2.5, {"w": Usage(0.5, 100)}, (gpu,))
    line = json.loads(json.dumps(to_json(sample)))
    assert line["tasks"] == {"w": {"cpu": 0.5, "memory": 100}}
    assert from_json(line) == sample
    assert "gpus" not in to_json(Sample(1.5, 2.5, {}))


def test_rates_are_per_second_between_two_measurements_where_these_are_not_the_samples() -> None:
    before, now = Usage(2.0, measured=1000.0), Usage(8.0, memory=7, measured=1012.0)
    assert rates(before, now, 10.0).cpu == 0.5
    repeated = rates(now, now, 10.0)
    assert (repeated.cpu, repeated.memory) == (None, 7)
    assert rates(Usage(2.0), now, 10.0).cpu == 0.6


# --- What a run used in total ---------------------------------------------------------------------


def at(t: float, **tasks: Usage) -> Sample:
    return Sample(t, t, tasks)


def gpu(t: float, **columns: object) -> Sample:
    return Sample(t, t, {}, (GpuUsage(0, "GPU-a", "H200", **columns),))  # type: ignore[arg-type]


def test_a_device_has_its_mean_its_peak_and_its_energy() -> None:
    samples = [
        gpu(1, utilisation=0.5, memory=10, power=100.0),
        gpu(3, utilisation=1.0, memory=30, power=200.0),
        gpu(4, utilisation=0.0, memory=20, power=50.0),
        gpu(5, lost=True),
    ]
    assert gpu_totals(samples) == {"GPU-a": GpuTotals("H200", 0.5, 30, 450.0, lost=True)}
    assert gpu_totals([at(1)]) == {}


def test_the_mean_is_over_the_time_between_measurements() -> None:
    samples = [
        Sample(0.5 * n, 0.5 * n, {"a": Usage(7 + n / 8, measured=100 + n / 4)}) for n in range(3)
    ]
    found = totals(samples, "a")
    assert found is not None
    assert found.cpu == 0.5


def test_totals_have_as_many_digits_as_are_of_use() -> None:
    third = 1 / 3
    found = totals([at(0, w=Usage(0.0, throttled=0)), at(3, w=Usage(1.0, throttled=third))], "w")
    assert found is not None
    assert (found.cpu, found.throttled) == (0.3333, 0.333333)
    found = totals([at(0, w=Usage(1.0))], "w")
    assert found == Totals(1.0, None, None, None, None, None, None, None)  # no time has gone by
    gpus = [GpuUsage(0, "a", utilisation=u, power=third) for u in (0.0, 0.0, 1.0)]
    (gpu,) = gpu_totals([Sample(t, t, {}, [gpu]) for t, gpu in enumerate(gpus)]).values()
    assert (gpu.utilisation, gpu.energy, gpu.lost) == (0.3333, 0.7, False)
    unknown = gpu_totals([Sample(0, 0, {}, [GpuUsage(0, "a")])])["a"]
    assert (unknown.utilisation, unknown.memory_peak, unknown.energy) == (None, None, None)


# --- The catalogue of metrics: what an entry refers to is there, and names are unique -------------

LIMITS = {"cpus", "memory_limit"}
KEYS = {metric.key for metric in USAGE}


def test_each_rate_is_made_of_something_that_is_measured() -> None:
    assert {metric.of for metric in RATES} | LIMITS | {"measured"} == KEYS
    assert {metric.limit for metric in RATES} - {""} == LIMITS


def test_each_chart_shows_rates_and_asks_for_limits() -> None:
    assert {key for chart in CHARTS for key in chart.of} == {metric.key for metric in RATES}
    assert {chart.limit for chart in CHARTS} | {chart.unlimited for chart in CHARTS} == {
        *LIMITS,
        "",
    }


@pytest.mark.parametrize("metrics", [USAGE, RATES, GPU, GPU_SHARE])
@pytest.mark.parametrize("name", ["prometheus", "tensorboard", "column"])
def test_no_two_metrics_have_one_name(metrics: tuple[Metric, ...], name: str) -> None:
    names = Counter(getattr(metric, name) for metric in metrics)
    assert [name for name, count in names.items() if name and count > 1] == []


def test_types_are_those_of_the_fields() -> None:
    types = {metric.key: metric.type for metric in (*USAGE, *GPU)}
    assert (types["cpu"], types["received"]) == ("float", "int")
    assert (types["uuid"], types["lost"], types["xid"]) == ("text", "bool", "int")
