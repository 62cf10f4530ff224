"""samples.jsonl stays bounded, and is readable at any moment."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from emulator.metrics.sample_file import SampleFile, read
from emulator.metrics.samples import Sample, Usage
from emulator.metrics.totals import totals


def sample(number: int) -> Sample:
    return Sample(float(number), 100.0 + number, {"w": Usage(number * 0.5, memory=number % 7)})


def test_every_sample_is_there_at_once(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    file = SampleFile(path)
    for number in range(5):
        file.append(sample(number))
        assert len(list(read(path))) == number + 1
    file.close()
    assert list(read(path)) == [sample(number) for number in range(5)]


@pytest.mark.parametrize("many", [99, 100, 101, 1000, 12_345])
def test_a_long_run_is_thinned_and_loses_no_total(tmp_path: Path, many: int) -> None:
    path = tmp_path / "samples.jsonl"
    file = SampleFile(path, moments=100)
    for number in range(many):
        file.append(sample(number))
    file.close()
    kept = list(read(path))
    assert len(kept) <= 100
    assert len(kept) >= min(many, 49)
    assert (kept[-1].t, kept[-1].tasks["w"].cpu) == (many - 1, (many - 1) * 0.5)
    assert all(one.t < two.t for one, two in pairwise(kept))


def test_a_long_run_loses_no_total_of_a_life(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    file, every = SampleFile(path, moments=400), []
    for number in range(8000):
        life, age = divmod(number, 150)  # each is longer, and the next overtakes it in a moment
        every.append(Sample(float(number), 0.0, {"w": Usage(age * 9.5 * (life + 1), received=age)}))
        file.append(every[-1])
    file.close()
    kept = list(read(path))
    assert len(kept) <= 400
    found, exact = totals(kept, "w"), totals(every, "w")
    assert found is not None
    assert exact is not None
    assert (found.cpu_seconds, found.received) == (exact.cpu_seconds, exact.received)


def test_tasks_that_are_started_again_all_the_time_keep_to_the_bound(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    file = SampleFile(path, moments=100)
    for number in range(3000):
        file.append(Sample(float(number), 0.0, {"w": Usage(1.0 - number % 2)}))
        assert number % 100 or len(list(read(path))) <= 100
    file.close()
    assert len(list(read(path))) <= 100


def test_all_moments_of_a_long_run_are_equally_far_apart(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    file = SampleFile(path, moments=64)
    for number in range(64 * 16):
        file.append(sample(number))
    file.close()
    assert len({two.t - one.t for one, two in pairwise(read(path))}) == 1


def test_a_torn_line_and_what_follows_it_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    file = SampleFile(path)
    file.append(sample(1))
    file.append(sample(2))
    file.close()
    for cut in range(1, path.stat().st_size // 2 - 1):
        torn = tmp_path / "torn.jsonl"
        torn.write_bytes(path.read_bytes()[:-cut])
        assert list(read(torn)) == [sample(1)] or cut == 1  # the newline alone may be missing
    assert list(read(tmp_path / "nothing.jsonl")) == []


def test_who_goes_on_writing_keeps_to_the_bound(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    for number in range(0, 300, 30):
        file = SampleFile(path, moments=100)
        for one in range(number, number + 30):
            file.append(sample(one))
        file.close()
    kept = list(read(path))
    assert len(kept) <= 100
    assert kept[-1].tasks["w"].cpu == 299 * 0.5
