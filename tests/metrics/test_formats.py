"""Formats of progress, against what the real libraries print (tests/metrics/recorded)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from emulator.engines.kit.lines import DrawnLine, LineSplitter
from emulator.metrics.bars import TRAINER_LINES
from emulator.metrics.formats import FORMATS
from emulator.metrics.steps import Observation, StepReader

RECORDED = Path(__file__).parent / "recorded"


@dataclass(frozen=True)
class Expected:
    """What a recording reports."""

    format: str
    lines: Sequence[int]
    """The steps of its finished lines."""
    last: Mapping[str, float]
    """Some values of its last one."""
    drawn: int = 0
    """How many different steps its unfinished lines have, at least."""


EPOCHS = [20, 40, 60]
END_2 = {"loss": 0.6844, "accuracy": 0.5375, "val_loss": 0.6736, "val_accuracy": 0.5938}
END_3 = {"loss": 0.6844, "accuracy": 0.5422, "val_loss": 0.6730, "val_accuracy": 0.5875}

EXPECTED: Mapping[str, Expected] = {
    # A warning of TensorFlow, on standard error, finishes the first line in the middle.
    "keras-2-verbose-1": Expected("keras", [5, *EPOCHS], END_2, 25),
    "keras-2-verbose-2": Expected("keras", EPOCHS, END_2),
    "keras-2-unknown-size": Expected("keras", [5, *EPOCHS], {"accuracy": 0.5328}, 25),
    # What `evaluate` reports; no step is one of `evaluate`, `predict` or the download before.
    "keras-2-one-epoch": Expected("keras", [5, 20, 20], {"accuracy": 0.5531, "loss": 0.6791}, 8),
    # A callback prints in the middle of the line that ends an epoch.
    "keras-2-checkpoints": Expected(
        "keras", [5, 19, 20, 39, 40, 40], {"accuracy": 0.5688, "loss": 0.6758}, 15
    ),
    "keras-3-verbose-1": Expected("keras", EPOCHS, END_3, 25),
    "keras-3-verbose-2": Expected("keras", EPOCHS, END_3),
    "keras-3-unknown-size": Expected("keras", EPOCHS, {"accuracy": 0.5328}, 25),
    "keras-3-one-epoch": Expected("keras", [20, 20], {"accuracy": 0.5531, "loss": 0.6791}, 8),
    "keras-3-checkpoints": Expected(
        "keras", [20, 20, 40, 40, 40], {"accuracy": 0.5719, "loss": 0.6759}, 15
    ),
    "tf1-hooks": Expected("tf1-hooks", [1, 11, 21], {"loss": 0.04761905}),
    "tqdm-plain": Expected("tqdm", EPOCHS, {}, 10),
    "tqdm-epochs": Expected("tqdm", EPOCHS, {"loss": 0.0455, "acc": 0.9, "accuracy": 0.9}, 12),
    "tqdm-nested": Expected("tqdm", [*range(4, 61, 4)], {}, 1),
    "lightning": Expected(
        "tqdm", [20, 40, 60, 60, 60], {"train_loss": 0.567, "val_acc": 0.809, "accuracy": 0.809}, 55
    ),
    "lightning-rich": Expected("tqdm", [60], {"train_loss": 0.567}),
    "ignite": Expected("tqdm", [60], {"loss": 0.567}, 55),
    "ignite-persist": Expected("tqdm", EPOCHS, {"loss": 0.567}, 50),
    "hugging-face": Expected(
        "tqdm", [9, 20, 20, 30, 40, 40, 50, 59, 60, 60, 60], {"train_loss": 0.707}, 15
    ),
    # Bars of data preparation are drawn first; the Trainer's values come when the pipe is flushed.
    "trl-sft": Expected("tqdm", [60] * 14, {"train_loss": 5.785}, 30),
    "diffusers-1": Expected("tqdm", [9, 16, 19, 26], {"loss": 0.0385, "lr": 1e-4}, 24),
    "diffusers-2": Expected("tqdm", [29, 32, 39, 48, 49, 59, 64], {"loss": 0.0156}, 40),
    "tf1-global-step": Expected("tf1-global-step", [10, 20, 30], {}),
    "pytorch-example": Expected(
        "pytorch-example",
        [0, 640, 1280, 1920, 1920, 2560, 3200, 3840, 4480, 4480],
        {"accuracy": 0.982},
    ),
    "pytorch-imagenet": Expected("pytorch-imagenet", [1, 2, 2, 3, 4, 4], {"accuracy": 0.15625}),
    "pytorch-tutorial": Expected(
        "pytorch-tutorial",
        [
            *(0, 6400, 12800, 19200, 19200),
            *(20000, 26400, 32800, 39200, 39200),
            *(40000, 46400, 52800, 59200, 59200),
        ],
        {"accuracy": 0.994},
    ),
    "timm": Expected("pytorch-imagenet", [1, 17, 32, 33, 49, 64], {"loss": 0.212}),
    "tf-benchmarks": Expected("tf-benchmarks", [1, 10, 20], {"loss": 0.35}),
    "xgboost": Expected("xgboost", [*range(1, 21)], {"validation-error": 0.0}),
    "epochs-kubeflow-jax": Expected("epochs", [1, 2, 3, 4, 5], {"loss": 0.2, "accuracy": 0.9}),
    "epochs-tensorflow": Expected("epochs", [1, 2, 3], {"accuracy": 0.94442}),
    "epochs-jax": Expected(
        "epochs", [step for step in range(1, 11) for _ in "ab"], {"accuracy": 0.6040000319480896}
    ),
}


WITHOUT_STEPS = "trl-sft-no-bar"


def truths() -> Mapping[str, Mapping[str, tuple[int, int]]]:
    """Return the first and the last step of each part of the recordings of whole programs."""
    lives = {
        name: true["lives"]
        for name, true in json.loads((RECORDED / "truths.json").read_text()).items()
    }
    return {
        name: {
            f"{name}-{number}" if len(parts) > 1 else name: (part["first"], part["last"])
            for number, part in enumerate(parts, 1)
        }
        for name, parts in lives.items()
    }


def lines_of(name: str) -> list[str]:
    return recorded(name).decode().split("\n")


def recorded(name: str) -> bytes:
    return (RECORDED / f"{name}.txt").read_bytes()


def read(printed: bytes, rule: str, size: int) -> tuple[list[Observation], list[int]]:
    """Return what finished lines and unfinished ones report, where `size` bytes arrive at once."""
    reader, splitter, drawn = StepReader(rule), LineSplitter(), DrawnLine()
    lines: list[Observation] = []
    parts: list[int] = []
    reported = 0
    for at in range(0, len(printed), size):
        piece = printed[at : at + size]
        drawn.feed(piece)
        for line in splitter.feed(piece):
            for found in reader.read(line):
                assert int(str(found.data["step"])) >= reported
                lines.append(found)
                reported = int(str(found.data["step"]))
        for part in reader.read_part(drawn.take_drawn()) if drawn.is_drawn else ():
            assert set(part.data) == {"step"}
            parts.append(int(str(part.data["step"])))
            assert parts[-1] > reported
            reported = parts[-1]
    lines += [found for line in splitter.finish() for found in reader.read(line)]
    lines += reader.finish()
    return lines, parts


def test_every_recording_is_expected_here_and_every_format_recorded() -> None:
    names = {path.stem for path in RECORDED.glob("*.txt")}
    assert names == {
        *EXPECTED,
        WITHOUT_STEPS,
        *(part for parts in truths().values() for part in parts),
    }
    assert {one.format for one in EXPECTED.values()} | {"fields"} == FORMATS.keys()


@pytest.mark.parametrize("rule", ["auto", "by its name"])
@pytest.mark.parametrize("name", EXPECTED)
def test_a_recorded_output_is_read(name: str, rule: str) -> None:
    expected, printed = EXPECTED[name], recorded(name)
    lines, _ = read(printed, "auto" if rule == "auto" else expected.format, len(printed))
    assert [one.data["step"] for one in lines] == expected.lines
    data = lines[-1].data
    assert {key: data[key] for key in expected.last} == pytest.approx(expected.last)


@pytest.mark.parametrize("size", [1, 7, 100, 5000])
@pytest.mark.parametrize("name", EXPECTED)
def test_the_steps_within_an_unfinished_line_are_read_as_they_come(name: str, size: int) -> None:
    """Each later than the last; and no line reports another step than without them."""
    expected, printed = EXPECTED[name], recorded(name)
    lines, parts = read(printed, "auto", size)
    if size <= 100:
        assert len(parts) >= expected.drawn
    whole, _ = read(printed, "auto", len(printed))
    reported = [*parts, *(one.data["step"] for one in lines)]
    assert {one.data["step"] for one in whole} <= {*reported}
    with_values = [[one for one in each if len(one.data) > 1][-1:] for each in (lines, whole)]
    assert with_values[0] == with_values[1]


@pytest.mark.parametrize("name", EXPECTED)
def test_what_is_drawn_and_what_the_log_has_are_one_count(name: str) -> None:
    printed = recorded(name)
    log, splitter, counted = StepReader(), LineSplitter(), set[int]()
    for line in [*splitter.feed(printed), *splitter.finish()]:
        counted.update(log.steps_drawn(line))
        log.read(line)
    assert {*read(printed, "auto", 7)[1]} <= counted


def test_after_a_restart_a_program_that_counts_epochs_from_0_goes_on() -> None:
    """Killed at step 26, diffusers' example goes on after its checkpoint of step 20."""
    reader, of_bars = StepReader(), StepReader()
    steps, drawn = [], []
    for text in (recorded("diffusers-1").decode(), recorded("diffusers-2").decode()):
        steps.append([one.data["step"] for line in text.split("\n") for one in reader.read(line)])
        bars = re.sub(r", step=\d+", "", text).split("\r")  # without a step beside the bar
        drawn.append([one.data["step"] for bar in bars for one in of_bars.read_part(bar)])
        reader, of_bars = reader.again(), of_bars.again()
    assert steps == [[9, 16, 19, 26], [29, 32, 39, 48, 49, 59, 64]]
    assert drawn == [[*range(1, 27)], [*range(21, 65)]]


def test_a_trainer_without_its_bar_has_no_steps_and_says_so() -> None:
    reader = StepReader()
    assert [one for line in lines_of(WITHOUT_STEPS) for one in reader.read(line)] == []
    seen = [one.words for one in reader.take_news()]
    assert TRAINER_LINES in seen
    assert "the bar `Adding EOS to train dataset` (600)" in seen


@pytest.mark.parametrize("name", EXPECTED)
def test_every_hint_is_needed_and_enough(name: str) -> None:
    """A line with a reading has a hint of its format: others are not even looked at."""
    hints = FORMATS[EXPECTED[name].format].hints
    lines = [line.removesuffix("\r") for line in lines_of(name)]
    kept = [line for line in lines if any(hint in line for hint in hints)]
    every, only = StepReader(), StepReader()
    found = [
        [*(one for line in each for one in reader.read(line)), *reader.finish()]
        for reader, each in ((every, lines), (only, kept))
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize("name", [name for name in EXPECTED if name.startswith("keras-2")])
def test_of_keras_2_no_value_is_one_of_the_middle_of_an_epoch(name: str) -> None:
    """There its bar shows sums over replicas; in the recordings, such lines were interrupted."""
    lines, _ = read(recorded(name), "auto", 100)
    with_values = {one.data["step"] for one in lines if len(one.data) > 1}
    without = {one.data["step"] for one in lines if len(one.data) == 1}
    assert with_values <= {*EPOCHS}
    assert not without & with_values
