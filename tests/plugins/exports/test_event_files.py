"""The event files for TensorBoard, and what a real TensorBoard shows."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from emulator.metrics.samples import Sample
from emulator.plugins.exports.event_files import JOB, Moment, moments, write_event_file
from emulator.record.events import Entry
from emulator.record.timeline import Timeline
from tests.conftest import Finished, python
from tests.histories import BEGAN, history, step
from tests.runs import DURATION, TEXT, a_history, a_plan, some_samples

Points = list[tuple[float, int, float]]
"""Wall time, step, value."""

WITHOUT_STEPS = "name: test\nprogram: {command: [a]}\ncluster: {worker: 1}\n"


def points(found: Sequence[Moment], tag: str) -> Points:
    return [(m.wall, m.step, m.scalars[tag]) for m in found if tag in m.scalars]


def tags(found: Sequence[Moment]) -> set[str]:
    return {tag for moment in found for tag in moment.scalars}


def of(
    steps: Sequence[Entry], until: float, samples: Sequence[Sample] = (), plan: str = TEXT
) -> Mapping[str, Sequence[Moment]]:
    """Return what is written of a run with these entries."""
    return moments(Timeline(a_plan(plan), history(steps)), samples, until)


@pytest.fixture
def found() -> Mapping[str, Sequence[Moment]]:
    return of(a_history(), DURATION, some_samples())


def test_reported_values_are_at_the_training_step(found: dict[str, list[Moment]]) -> None:
    assert points(found["worker-0"], "training/loss") == [
        (BEGAN + 2, 10, 2.5),
        (BEGAN + 3, 20, 1.5),
        (BEGAN + 8, 20, 1.4),
        (BEGAN + 9, 30, 1.0),
    ]
    assert points(found["worker-0"], "training/accuracy") == [(BEGAN + 9, 30, 0.75)]
    # Neither truth nor text is a scalar, and a step is the axis.
    assert not tags(found["worker-0"]) & {"training/converged", "training/note", "training/step"}


EIGHT = step(4, "worker-0", 8)
MERGED = step(4, "worker-0", 8, examples=256, coalesced={"first": 1, "count": 8})


@pytest.mark.parametrize(
    ("more", "steps"),
    [
        # Merged steps count as each of them.
        ("", [step(0, "worker-0", 0, examples=0), MERGED]),
        # Examples may be known from the scenario.
        ("metrics: {examples_per_step: 32}\n", [step(0, "worker-0", 0), EIGHT]),
    ],
)
def test_the_throughput_of_eight_steps_of_32_examples_in_four_seconds(
    more: str, steps: list[Entry]
) -> None:
    found = of(steps, 4, plan=WITHOUT_STEPS + more)[JOB]
    rates = [rate for *_, rate in points(found, "throughput/steps_per_second")]
    assert sum(rates) == pytest.approx(40)
    examples = [rate for *_, rate in points(found, "throughput/examples_per_second")]
    assert examples == [pytest.approx(64.0)] * 20


def test_without_values_there_is_no_run(found: dict[str, list[Moment]]) -> None:
    assert list(found) == [JOB, "worker-0", "worker-1"]
    assert of([], 0.0) == {}


LARGE = 10**400


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), LARGE, -1, "much", None, [1], {}],
    ids=lambda t: str(t)[:9],
)
def test_no_value_that_a_program_prints_can_break_it(value: object, tmp_path: Path) -> None:
    values = {"x": value, "examples": 1 if value == LARGE else value}
    steps = [step(n, "worker-0", number, **values) for n, number in ((1, 1), (2, 9))]
    found = of([*steps, step(3, "worker-0", 2**70, loss=1.0)], 3)
    for run, of_run in found.items():
        write_event_file(tmp_path / f"{run}.tfevents", of_run, BEGAN)


def test_no_name_that_a_program_gives_a_number_can_break_it(tmp_path: Path) -> None:
    found = of([step(1, "worker-0", 1, **{"a\ud800": 1.5, "": 2})], 1)["worker-0"]
    assert tags(found) >= {"training/a\\ud800", "training/"}
    write_event_file(tmp_path / "worker-0.tfevents", found, BEGAN)


# --- In a real TensorBoard ------------------------------------------------------------------------


@contextmanager
def a_tensorboard(logdir: Path, *flags: str) -> Iterator[httpx.Client]:
    """Start TensorBoard on a free port, wait until it names it, and stop it in the end."""
    # Both loaders keep every point; by default TensorBoard draws a random 1000 of them.
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(logdir)]
    options = ["--host", "127.0.0.1", "--port", "0", "--samples_per_plugin", "scalars=100000"]
    process = subprocess.Popen(
        [*command, *options, *flags], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    try:
        output = ""
        for line in process.stdout:
            output += line
            if match := re.search(r"http://127\.0\.0\.1:\d+", line):
                break
        else:
            raise AssertionError(f"TensorBoard ended: {output}")
        with httpx.Client(base_url=f"{match[0]}/data/plugin/scalars", timeout=300) as client:
            yield client
    finally:
        process.terminate()
        process.communicate()


def shown(tensorboard: httpx.Client) -> dict[tuple[str, str], Points]:
    """Return every scalar that it shows, by run and tag."""
    found = tensorboard.get("/tags").raise_for_status().json()
    return {(run, tag): _of(tensorboard, run, tag) for run in found for tag in found[run]}


def _of(tensorboard: httpx.Client, run: str, tag: str) -> Points:
    answer = tensorboard.get("/scalars", params={"run": run, "tag": tag}).raise_for_status()
    # It writes NaN as JSON knows none.
    return [(wall, number, float(value)) for wall, number, value in answer.json()]


def expected(found: Mapping[str, Sequence[Moment]]) -> dict[tuple[str, str], Points]:
    return {
        (run, tag): points(of_run, tag) for run, of_run in found.items() for tag in tags(of_run)
    }


def as_it_shows(written: Points) -> Points:
    """Leave out what a later point at the same or an earlier step takes the place of.

    So TensorBoard's data server shows every training that went back: what was done again, instead
    of what was lost.
    """
    kept: Points = []
    for wall, number, value in written:
        kept = [point for point in kept if point[1] < number]
        kept.append((wall, number, value))
    return kept


def approximately(points: Any) -> Any:
    return {key: [pytest.approx(point, rel=1e-6) for point in of] for key, of in points.items()}


@pytest.fixture
def logdir(tmp_path: Path, found: dict[str, list[Moment]]) -> Path:
    for run, of_run in found.items():
        (tmp_path / run).mkdir()
        write_event_file(tmp_path / run / "events.out.tfevents.1.emulate", of_run, BEGAN)
    return tmp_path


def test_tensorboard_shows_every_number(logdir: Path, found: dict[str, list[Moment]]) -> None:
    # It reads once, and serves only after that, so that all is there.
    once = ("--load_fast", "false", "--reload_interval", "0", "--reload_task", "blocking")
    with a_tensorboard(logdir, *once) as tensorboard:
        assert shown(tensorboard) == approximately(expected(found))
        about = tensorboard.get("/tags").json()["worker-0"]["usage/cpu_cores"]["description"]
        assert about == "<p>cores, used since the sample before</p>"


def test_so_does_its_fast_data_server(logdir: Path, found: dict[str, list[Moment]]) -> None:
    """As users start it. It serves while it reads, and does not report when it has read all.

    So it is asked again until it shows what it should, for a minute at most.
    """
    right = {key: as_it_shows(of) for key, of in expected(found).items()}
    target = approximately(right)
    with a_tensorboard(logdir) as tensorboard:
        deadline = time.monotonic() + 60
        while (now := shown(tensorboard)) != target and time.monotonic() < deadline:
            time.sleep(0.05)
        assert now == target
    assert [number for _, number, _ in now["worker-0", "training/loss"]] == [10, 20, 30]


def test_no_tensorflow_is_loaded_for_it(tmp_path: Path) -> None:
    """Where TensorFlow is installed, tensorboard's own writer would load it: that takes seconds."""
    fake = tmp_path / "tensorflow"
    fake.mkdir()
    (fake / "__init__.py").write_text("raise SystemExit('TensorFlow was loaded')")
    code = (
        "import sys, warnings; from pathlib import Path\n"
        "warnings.simplefilter('error')\n"
        "from emulator.plugins.exports.event_files import Moment, write_event_file\n"
        "write_event_file(Path('x'), [Moment(1, 2.0, {'a': 3.0})], 1.0)\n"
        "print('tensorflow' in sys.modules)"
    )
    # The folder that it runs in is the first in which modules are looked for.
    assert python(code, cwd=tmp_path) == Finished(0, "False\n", "")
