"""samples.jsonl stays bounded, and is readable at any moment."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest

from emulator.errors import RecordError
from emulator.metrics.catalog import Usage
from emulator.metrics.sample_file import SampleFile, read
from emulator.metrics.samples import Sample, from_json, totals
from emulator.record.task_log import whole_lines


def sample(number: int) -> Sample:
    return Sample(float(number), 100.0 + number, {"w": Usage(number * 0.5, memory=number % 7)})


def append(path: Path, samples: Iterable[Sample], max_lines: int) -> list[Sample]:
    """Return what is in the file afterwards."""
    file = SampleFile(path, max_lines=max_lines)
    for one in samples:
        file.append(one)
    file.close()
    return list(read(path))


def test_every_sample_is_there_at_once(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    file = SampleFile(path)
    for number in range(5):
        file.append(sample(number))
        assert len(list(read(path))) == number + 1
    file.close()
    assert list(read(path)) == [sample(number) for number in range(5)]


def test_a_line_that_is_no_sample_is_named_and_one_that_is_not_whole_is_the_end(
    tmp_path: Path,
) -> None:
    path = tmp_path / "samples.jsonl"
    assert append(path, [sample(1)], 9) == [sample(1)]
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:-5] + b"\n" + whole)
    assert list(read(path)) == [sample(1)]
    path.write_bytes(whole + b'{"t": 1}\n')
    with pytest.raises(RecordError, match=r"samples\.jsonl, line 2: wall: .*\.$"):
        list(read(path))


@pytest.mark.parametrize("many", [99, 100, 101, 1000, 12_345])
def test_a_long_run_is_thinned_and_loses_no_total(tmp_path: Path, many: int) -> None:
    kept = append(path := tmp_path / "samples.jsonl", map(sample, range(many)), 100)
    assert path.stat().st_mode & 0o77 == 0  # for its owner only, also once it was replaced
    assert min(many, 49) <= len(kept) <= 100
    assert (kept[-1].t, kept[-1].tasks["w"].cpu) == (many - 1, (many - 1) * 0.5)
    assert all(one.t < two.t for one, two in pairwise(kept))


def test_a_long_run_lacks_at_most_one_line_of_each_life(tmp_path: Path) -> None:
    used = (number % 150 + 1 for number in range(8000))  # seconds since the start, with 2 cores
    tasks = ({"w": Usage(seconds * 2.0, received=seconds)} for seconds in used)
    every = [Sample(float(number), 0.0, task) for number, task in enumerate(tasks)]
    kept = append(tmp_path / "samples.jsonl", every, 400)
    assert len(kept) <= 400
    line = max(two.t - one.t for one, two in pairwise(kept))
    found, exact = totals(kept, "w"), totals(every, "w")
    assert found is not None
    assert exact is not None
    lives = 8000 // 150
    assert exact.cpu_seconds - 2 * line * lives <= found.cpu_seconds <= exact.cpu_seconds
    assert (exact.received or 0) - line * lives <= (found.received or 0) <= (exact.received or 0)


def test_tasks_that_are_started_again_all_the_time_keep_to_the_bound(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    file = SampleFile(path, max_lines=100)
    for number in range(3000):
        file.append(Sample(float(number), 0.0, {"w": Usage(1.0 - number % 2)}))
        assert number % 100 or len(list(read(path))) <= 100
    file.close()
    assert len(list(read(path))) <= 100


def test_all_moments_of_a_long_run_are_equally_far_apart(tmp_path: Path) -> None:
    kept = append(tmp_path / "samples.jsonl", map(sample, range(64 * 16)), 64)
    assert len({two.t - one.t for one, two in pairwise(kept)}) == 1


def test_a_torn_line_and_what_follows_it_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    append(path, map(sample, (1, 2)), 100)
    for cut in range(1, path.stat().st_size // 2 - 1):
        torn = tmp_path / "torn.jsonl"
        torn.write_bytes(path.read_bytes()[:-cut])
        # Without its newline alone the line is whole.
        assert list(read(torn)) == [sample(1), sample(2)][: 2 if cut == 1 else 1]
    assert list(read(tmp_path / "nothing.jsonl")) == []


@pytest.mark.parametrize("polls", [1, 2, 7, 20])
def test_a_follower_sees_each_moment_once_while_the_file_is_thinned(
    tmp_path: Path, polls: int
) -> None:
    """As the API and /metrics follow it: what has come since, without what they had before."""
    path, offsets = tmp_path / "samples.jsonl", dict[str, int]()
    file, seen, every = SampleFile(path, max_lines=64), list[Sample](), 1
    for number in range(64 * 9):
        file.append(sample(number))
        if number % polls == 0:
            lines = [from_json(json.loads(line)) for line in whole_lines(path, "s", offsets)]
            seen += [one for one in lines if not seen or one.t > seen[-1].t]
            # All that is in the file is known by now.
            assert seen[-1].t == list(read(path))[-1].t
            every = max(every, 1 + number // 32)
    file.close()
    assert all(one.t < two.t for one, two in pairwise(seen))
    assert max(two.t - one.t for one, two in pairwise(seen)) <= polls + every
    assert all(one.tasks["w"].cpu == one.t * 0.5 for one in seen)


def test_a_writer_that_opens_the_file_again_keeps_to_the_bound(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    for number in range(0, 300, 30):
        kept = append(path, map(sample, range(number, number + 30)), 100)
    assert len(kept) <= 100
    assert kept[-1].tasks["w"].cpu == 299 * 0.5
