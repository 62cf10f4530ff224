"""What a run used in total."""

from __future__ import annotations

from emulator.metrics.catalog import GpuUsage, Usage
from emulator.metrics.samples import Sample
from emulator.metrics.totals import GpuTotals, Totals, gpu_totals, totals


def at(t: float, **tasks: Usage) -> Sample:
    return Sample(t, t, tasks)


def test_all_starts_of_a_task_count() -> None:
    samples = [
        at(1, w=Usage(1.0, memory=50, throttled=0.1, received=10, sent=1, read=4, written=5)),
        at(2, w=Usage(2.0, memory=90, throttled=0.2, received=20, sent=2, read=4, written=5)),
        at(4, w=Usage(3.0, memory=20, throttled=0.3, received=30, sent=3, read=4, written=5)),
        at(5),
        at(6, w=Usage(0.5, memory=10, throttled=0.0, received=5, sent=1, read=0, written=1)),
        at(7, w=Usage(1.0, memory=10, throttled=0.5, received=6, sent=2, read=0, written=2)),
    ]
    assert totals(samples, "w") == Totals(
        cpu_seconds=4.0,
        cpu=round((3.0 - 1.0 + 1.0 - 0.5) / (3 + 1), 4),
        memory_peak=90,
        throttled=0.8,
        received=36,
        sent=5,
        read=4,
        written=7,
    )


def test_values_without_a_measurement_are_unknown() -> None:
    assert totals([at(1, w=Usage(1.0))], "w") == Totals(1.0, *[None] * 7)
    assert totals([at(1, w=Usage(1.0))], "other") is None
    assert totals([], "w") is None


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
        Sample(10.0 * n, 10.0 * n, {"a": Usage(6.0 * n, measured=100.0 + 12 * n)}) for n in range(3)
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
