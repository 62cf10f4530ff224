"""Which progress bars are training, and how their steps are counted."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from emulator.metrics.bars import BarCounter, rank_of
from emulator.metrics.readings import Rank
from emulator.metrics.steps import Seen, StepReader


def bar(done: int, total: int, title: str = "", unit: str = "it", values: str = "") -> str:
    head = f"{title}: " if title else ""
    beside = f", {values}" if values else ""
    return f"\r{head} 50%|█████     | {done}/{total} [00:01<00:01, 5.0{unit}/s{beside}]"


def drawn(reader: StepReader, *bars: str) -> list[object]:
    return [one.data["step"] for text in bars if (one := reader.read_part(text))]


def line(reader: StepReader, *bars: str) -> None:
    reader.read("".join(bars))


def used(news: Iterable[Seen]) -> list[str]:
    return [one.words for one in news if one.counts]


@pytest.mark.parametrize(
    ("title", "unit"),
    [
        ("Adding EOS to train dataset", " examples"),
        ("Adding EOS to train dataset", "it"),
        ("Running tokenizer on dataset", "it"),
        ("Grouping texts in chunks of #", "it"),
        ("Resolving data files", "it"),
        ("Map", "it"),
        ("Map (num_proc=#)", " examples"),
        ("Generating train split", " examples"),
        ("Creating parquet from Arrow format", "ba"),
        ("Loading checkpoint shards", "it"),
        ("Training", " examples"),
        ("", " examples"),
        ("", "ba"),
        ("", "B"),
        ("", "MB"),
        ("model.safetensors", "MB"),
        ("Epoch # [Valid]", "it"),
        ("Epoch # val", "it"),
        ("Evaluating epoch #", "it"),
        ("Sanity Checking DataLoader #", "it"),
        ("Testing", "step"),
    ],
)
def test_bars_of_data_and_of_evaluation_are_never_training(title: str, unit: str) -> None:
    assert rank_of(title, unit.strip()) is Rank.NONE


@pytest.mark.parametrize(
    ("title", "unit", "rank"),
    [
        ("Training", "it", Rank.EVIDENT),
        ("Epoch #", "it", Rank.EVIDENT),
        ("Epoch #/#", "img", Rank.EVIDENT),
        ("Train Epoch: # [test skipped]", "it", Rank.EVIDENT),
        ("Steps", "it", Rank.EVIDENT),
        ("Iteration", "it", Rank.EVIDENT),
        ("", "batch", Rank.EVIDENT),
        ("", "step", Rank.EVIDENT),
        ("loss", "it", Rank.EVIDENT),
        ("", "it", Rank.PLAIN),
        ("[#/#]", "it", Rank.PLAIN),
        ("rank #", "it", Rank.PLAIN),
        ("Epoch", "it", Rank.EPOCHS),
        ("epochs", "it", Rank.EPOCHS),
        ("", "epoch", Rank.EPOCHS),
        ("MNIST", "it", None),
    ],
)
def test_titles_and_units_that_say_more_or_less(title: str, unit: str, rank: Rank | None) -> None:
    assert rank_of(title, unit) is rank


def test_a_value_beside_a_bar_is_evidence() -> None:
    with_loss = BarCounter().take(bar(3, 60, "MNIST", values="loss=0.4").strip("\r"))
    with_accuracy = BarCounter().take(bar(3, 60, "MNIST", values="acc=0.4").strip("\r"))
    with_nothing = BarCounter().take(bar(3, 60, "MNIST").strip("\r"))
    found = [one.source for one in (with_loss, with_accuracy, with_nothing) if one and one.source]
    assert [one.rank for one in found] == [Rank.EVIDENT, Rank.PLAIN, Rank.NONE]


def test_a_bar_without_a_title_counts_where_there_is_nothing_better() -> None:
    reader = StepReader()
    assert drawn(reader, bar(3, 20), bar(4, 20)) == [3, 4]
    line(reader, bar(20, 20))
    assert drawn(reader, bar(3, 10), bar(2, 20)) == [22]  # an evaluation, and the next epoch
    assert reader.take_news() == [
        Seen("a bar without a title (20)", counts=True),
        Seen("a bar without a title (10)", counts=False),
    ]


def test_a_bar_with_evidence_takes_over_and_the_steps_before_are_retracted() -> None:
    reader = StepReader()
    assert drawn(reader, bar(500, 1000), bar(3, 60, "Training"), bar(4, 60, "Training")) == [
        500,
        3,
        4,
    ]
    assert reader.take_news()[1:] == [Seen("the bar `Training` (60)", counts=True, retracts=True)]
    assert drawn(reader, bar(1000, 1000)) == []


def test_lines_of_a_known_format_take_over() -> None:
    reader = StepReader()
    line(reader, bar(500, 1000))
    seen = reader.read("global step: 8")
    assert seen is not None
    assert seen.data == {"step": 8}
    assert reader.take_news()[-1].retracts


def test_a_loss_that_the_trainer_prints_shows_which_bar_is_its_own() -> None:
    """Standard output and standard error are two streams: the line comes while a bar is drawn."""
    reader = StepReader()
    line(reader, bar(1000, 1000))
    assert drawn(reader, bar(3, 60)) == []
    reader.read("{'loss': '0.7065', 'epoch': '0.5'}")
    assert drawn(reader, bar(4, 60), bar(5, 60)) == [4, 5]
    assert used(reader.take_news()) == [
        "a bar without a title (1000)",
        "a bar without a title (60)",
    ]
    again = reader.again()
    assert drawn(again, bar(900, 1000), bar(26, 60)) == [26]


def test_the_bar_of_epochs_counts_until_one_within_an_epoch_is_seen() -> None:
    reader = StepReader()
    assert drawn(reader, bar(1, 3, "Epoch")) == [1]
    assert drawn(reader, bar(2, 20), bar(2, 3, "Epoch")) == [2]


def test_a_loss_in_the_title_is_a_value_and_no_number_of_an_epoch() -> None:
    reader = StepReader()
    line(reader, bar(3, 20, "Epoch 1 loss: 1.25"))
    seen = reader.read(bar(4, 20, "Epoch 2 loss: 0.75"))
    assert seen is not None
    assert seen.data == {"step": 24, "loss": 0.75}
    assert used(reader.take_news()) == ["the bar `Epoch loss` (20)"]


def test_other_numbers_in_a_title_are_none_of_an_epoch() -> None:
    reader = StepReader()
    assert drawn(reader, *(bar(n, 20, f"Training step {n}") for n in range(1, 6))) == [
        1,
        2,
        3,
        4,
        5,
    ]


def test_a_step_beside_the_bar_is_the_step() -> None:
    reader = StepReader()
    assert drawn(reader, bar(5, 16, "Epoch 1", values="loss=0.1, step=21")) == [21]
    assert drawn(reader, bar(6, 16, "Epoch 1", values="loss=0.1, step=21")) == []
    assert drawn(reader, bar(1, 16, "Epoch 2")) == []  # it will say
    seen = reader.read(bar(2, 16, "Epoch 2", values="step=34"))
    assert seen is not None
    assert seen.data == {"step": 34}


def test_a_step_that_begins_again_with_each_epoch_is_not_the_global_one() -> None:
    reader = StepReader()
    steps = drawn(
        reader,
        bar(15, 16, "Epoch 0", values="step=15"),
        bar(3, 16, "Epoch 1", values="step=3"),
        bar(4, 16, "Epoch 1", values="step=4"),
    )
    assert steps == [15, 19, 20]


def test_after_a_restart_epochs_have_the_numbers_that_they_had() -> None:
    from_0, from_1 = StepReader(), StepReader()
    assert drawn(from_0, bar(5, 16, "Epoch 0")) == [5]
    assert drawn(from_1, bar(5, 16, "Epoch 1")) == [5]
    from_0 = from_0.again()
    assert drawn(from_0, bar(5, 16, "Epoch 1")) == [21]
    assert from_0.take_news() == []  # it was said before the restart
    assert drawn(from_1.again(), bar(5, 16, "Epoch 2")) == [21]


def test_an_elastic_program_may_come_back_with_another_length() -> None:
    reader = StepReader()
    drawn(reader, bar(5, 16))
    assert drawn(reader.again(), bar(5, 32)) == [5]


def test_many_bars_are_not_kept_for_ever() -> None:
    counter = BarCounter()
    for total in range(2, 200):
        counter.take(bar(1, total, "Training").strip("\r"))
    assert len(counter.bars) <= 20
