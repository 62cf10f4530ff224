"""Rates from counters, and thinning: totals and peaks survive it."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from itertools import pairwise

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.metrics.catalog import GpuShare, GpuUsage, Rates, Usage
from emulator.metrics.processes import ProcessSampler
from emulator.metrics.samples import (
    Sample,
    device_numbers,
    from_json,
    halved,
    rates,
    series,
    to_json,
)


def test_rates_are_what_was_used_per_second_of_the_time_between() -> None:
    one = Usage(10.0, 100, throttled=1.0, received=1000, sent=0, read=0, written=0, cpus=2.0)
    two = Usage(13.0, 300, 1.5, 5000, 800, 400, 4096, processes=7, cpus=2.0, memory_limit=1000)
    assert rates(one, two, 2.0) == Rates(
        cpu=1.5,
        cpu_share=0.75,
        throttled=0.25,
        memory=300,
        memory_share=0.3,
        received=2000.0,
        sent=400.0,
        read=200.0,
        written=2048.0,
        processes=7,
    )


def test_a_session_is_measured_with_what_it_has_read() -> None:
    found = ProcessSampler().usage({"a": os.getsid(0)})["a"]
    assert found.processes
    assert (found.read is not None) == hasattr(psutil.Process, "io_counters")


def test_a_restart_counts_from_zero_and_is_never_negative() -> None:
    before = Usage(50.0, received=9000)
    found = rates(before, Usage(0.5, received=100), 1.0)
    assert (found.cpu, found.received) == (0.5, 100.0)
    # It is known by the CPU, even where another counter has overtaken.
    assert rates(Usage(50.0, received=100), Usage(0.5, received=150), 1.0).received == 150.0


def test_a_counter_that_goes_back_by_itself_counts_from_zero() -> None:
    later = Usage(2.0, received=50, sent=70)
    found = rates(Usage(1.0, received=100, sent=70), later, 2.0)
    assert (found.cpu, found.received, found.sent) == (0.5, 25, 0)
    assert rates(Usage(1.0, received=100), later, 0.0).received is None  # at the same moment


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
