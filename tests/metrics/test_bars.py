"""Which progress bars are training, and how their steps are counted."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from emulator.metrics import steps as steps_module
from emulator.metrics.bars import TRAINER_LINES, BarCounter, rank_of
from emulator.metrics.readings import Rank
from emulator.metrics.steps import Observation, Seen, StepReader


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each source counts from its first line: test_evidence.py has what decides."""
    monkeypatch.setattr(steps_module, "ENOUGH", 0)


def bar(done: int, total: int, title: str = "", unit: str = "it", values: str = "") -> str:
    head = f"{title}: " if title else ""
    beside = f", {values}" if values else ""
    return f"\r{head} 50%|█████     | {done}/{total} [00:01<00:01, 5.0{unit}/s{beside}]"


def drawn(reader: StepReader, *bars: str) -> list[object]:
    return [one.data["step"] for text in bars for one in reader.read_part(text)]


TRAINING = "training step 5 done (global step: 8)"


def line(reader: StepReader, *bars: str) -> None:
    reader.read("".join(bars))


def used(news: Iterable[Seen]) -> list[str]:
    return [one.words for one in news if one.counts]


@pytest.mark.parametrize(
    ("title", "unit", "rank"),
    [
        # Bars of data and of evaluation are never training.
        ("Adding EOS to train dataset", " examples", Rank.NONE),
        ("Adding EOS to train dataset", "it", Rank.NONE),
        ("Running tokenizer on dataset", "it", Rank.NONE),
        ("Grouping texts in chunks of #", "it", Rank.NONE),
        ("Resolving data files", "it", Rank.NONE),
        ("Map", "it", Rank.NONE),
        ("Map (num_proc=#)", " examples", Rank.NONE),
        ("Generating train split", " examples", Rank.NONE),
        ("Creating parquet from Arrow format", "ba", Rank.NONE),
        ("Loading checkpoint shards", "it", Rank.NONE),
        ("Training", " examples", Rank.NONE),
        *(("", unit, Rank.NONE) for unit in (" examples", "ba", "B", "MB")),
        ("model.safetensors", "MB", Rank.NONE),
        ("Epoch # [Valid]", "it", Rank.NONE),
        ("Epoch # val", "it", Rank.NONE),
        ("Evaluating epoch #", "it", Rank.NONE),
        ("Sanity Checking DataLoader #", "it", Rank.NONE),
        ("Testing", "step", Rank.NONE),
        # Others say more or less.
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
def test_the_title_and_the_unit_say_what_a_bar_is(title: str, unit: str, rank: Rank | None) -> None:
    assert rank_of(title, unit.strip()) is rank


def test_a_bar_with_evidence_takes_over_and_the_steps_before_are_retracted() -> None:
    reader = StepReader()
    training = [bar(n, 60, "Training") for n in (3, 4)]
    assert drawn(reader, bar(500, 1000), *training) == [500, 3, 4]
    assert reader.take_news()[1:] == [Seen("the bar `Training` (60)", counts=True, retracts=True)]
    assert drawn(reader, bar(1000, 1000)) == []
    reader = StepReader()
    assert drawn(reader, bar(3, 20), bar(3, 60, "Training"), bar(4, 60, "Training")) == [3, 4]
    assert reader.take_news()[1:] == [Seen("the bar `Training` (60)", counts=True)]


def test_a_bar_that_becomes_evident_stays_so_also_without_values() -> None:
    reader = StepReader()
    accuracy = "accuracy=0.9"  # of another format, which may be its own while nothing is evident
    assert drawn(reader, bar(3, 20)) == [3]
    assert reader.read(accuracy) == [Observation("step", {"step": 3, "accuracy": 0.9})]
    assert drawn(reader, bar(4, 20, values="loss=1"), bar(5, 20)) == [4, 5]
    assert drawn(reader, bar(1, 60, "Training"), bar(6, 20)) == [6]
    assert reader.read(accuracy) == []
    assert reader.read(bar(5, 10, "Epoch 1", values="loss=3")) == []
    assert used(reader.take_news()) == ["a bar without a title (20)"]


def test_after_a_takeover_the_source_of_the_steps_is_the_one_of_the_record() -> None:
    words, training = "the bar `Training` (60)", bar(5, 60, "Training")
    reader = StepReader()
    reader.continue_with(words)
    assert drawn(reader, bar(3, 20), training) == [5]
    assert reader.take_news() == [Seen("a bar without a title (20)", counts=False)]
    reader.continue_with(words)  # it goes on
    assert drawn(reader, training) == []
    reader.continue_with("the bar `Epoch` (60)")  # it was another, and may come again
    assert drawn(reader, *(bar(n, 60, "Training") for n in range(5, 16))) == [*range(5, 16)]
    assert used(reader.take_news()) == [words]


def test_the_steps_that_a_line_has_drawn_are_known_before_it_is_read() -> None:
    reader, plain = StepReader(), bar(2, 60, "Training").strip("\r")
    assert reader.steps_drawn(plain + bar(3, 60, "Training")) == [2, 3]
    assert reader.steps_drawn(plain) == []  # it was never drawn without its end
    assert reader.steps_drawn("a\rb") == []
    assert drawn(reader, plain) == [2]


def test_lines_of_a_known_format_take_over() -> None:
    reader = StepReader()
    line(reader, bar(500, 1000))
    assert reader.read(TRAINING) == [Observation("step", {"step": 8})]
    assert reader.take_news()[-1].retracts
    assert reader.read("accuracy=0.9") == []


def test_a_loss_that_the_trainer_prints_shows_which_bar_is_its_own() -> None:
    """Standard output and standard error are two streams: the line comes while a bar is drawn."""
    reader = StepReader()
    line(reader, bar(1000, 1000))
    for printed, number, steps in (
        ("eval_loss", 3, []),
        ("loss", 4, [2, 3, 4]),
    ):  # none of training
        assert drawn(reader, bar(number - 1, 60)) == []
        reader.read(f"{{'{printed}': '0.7065', 'epoch': '0.5'}}")
        assert drawn(reader, bar(number, 60)) == steps
    assert drawn(reader, bar(5, 60)) == [5]
    titles = [f"a bar without a title ({total})" for total in (1000, 60)]
    assert used(reader.take_news()) == titles
    again = reader.again()
    assert drawn(again, bar(900, 1000), bar(26, 60)) == [26]


def test_other_numbers_in_a_title_are_none_of_an_epoch() -> None:
    bars = [bar(n, 20, f"Training step {n}") for n in range(1, 6)]
    reader = StepReader()
    assert drawn(reader, *bars) == [1, 2, 3, 4, 5]
    again = reader.again()
    assert drawn(again, bars[0]) == [1]
    assert again.take_news() == []  # it is known by its first words
    for title, step in (("[2/3]", 23), ("0.5", 3)):  # of numbers only, with one that can be it
        assert drawn(StepReader(), bar(3, 20, title)) == [step]


def test_a_step_that_begins_again_with_each_epoch_is_not_the_global_one() -> None:
    places = ((15, 0), (3, 1), (4, 1))
    bars = [bar(n, 16, f"Epoch {epoch}", values=f"step={n}") for n, epoch in places]
    bars.insert(1, bar(16, 16, "Epoch 0"))  # without it the last one is still known
    assert drawn(StepReader(), *bars) == [15, 19, 20]


def test_an_elastic_program_may_come_back_with_another_length() -> None:
    reader = StepReader()
    drawn(reader, bar(5, 16))
    assert drawn(reader.again(), bar(5, 32)) == [5]


def test_of_what_has_no_steps_ten_are_told_of_and_each_once() -> None:
    reader = StepReader()
    others = [bar(1, 9, f"Loading {letter}") for letter in "abcdefghijkl"]
    assert drawn(reader, *(one for one in others for _ in "12")) == []
    assert [one.words for one in reader.take_news()] == [
        f"the bar `Loading {letter}` (9)" for letter in "abcdefghij"
    ]
    trainer, told = "{'loss': '0.7065', 'epoch': '0.5'}", [Seen(TRAINER_LINES, counts=False)]
    reader = StepReader()
    assert (reader.read(trainer), reader.take_news()) == ([], told)
    reader = StepReader()
    drawn(reader, bar(1, 9), bar(9, 9))
    assert reader.read(trainer) == [Observation("step", {"step": 9, "loss": 0.7065, "epoch": 0.5})]
    assert reader.take_news() == [Seen("a bar without a title (9)", counts=True)]


def test_many_bars_are_not_kept_for_ever() -> None:
    counter = BarCounter()
    for total in range(2, 200):
        counter.read_text(bar(1, total, "Training").strip("\r"))
    assert [int(key.partition("|")[2]) for key in counter.bars] == [*range(180, 200)]


def test_a_value_beside_a_bar_is_evidence() -> None:
    ranks = {"loss=0.4": Rank.EVIDENT, "acc=0.4": Rank.PLAIN, "": Rank.NONE}
    for values, rank in ranks.items():
        seen = BarCounter().read_text(bar(3, 60, "MNIST", values=values).strip("\r"))
        assert seen is not None
        assert seen.source is not None
        assert seen.source.rank is rank


# --- Where a bar opens, and ends ------------------------------------------------------------------


def opening(done: int, total: int, title: str = "") -> str:
    head = f"{title}: " if title else ""
    return f"\r{head}{done * 100 // total:3}%|##        | {done}/{total} [00:00<?, ?it/s]"


def opened(reader: StepReader, *bars: str) -> list[tuple[object, int | None]]:
    return [(one.data["step"], one.opened) for text in bars for one in reader.read_part(text)]


def test_a_bar_opens_with_the_step_from_which_it_goes_on_which_is_no_step_itself() -> None:
    reader = StepReader()
    assert opened(reader, opening(0, 200)) == []
    assert opened(reader, bar(10, 200), bar(20, 200)) == [(10, 0), (20, None)]
    again = reader.again()
    assert opened(again, opening(50, 200), opening(50, 200)) == []
    assert opened(again, bar(60, 200), bar(70, 200)) == [(60, 50), (70, None)]


def test_a_whole_line_of_a_bar_tells_where_it_opened_too() -> None:
    reader = StepReader()
    (seen,) = reader.read(opening(50, 200) + bar(60, 200) + bar(200, 200, values="loss=1"))
    assert (seen.data["step"], seen.opened) == (200, 50)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Epoch 0/3 ━━━━━━ {}/60 0:00:00 • -:--:-- {}it/s", "Epoch 1"),  # of Rich
        ("Epoch 1:  50%|##   | {}/60 [00:00<?, {}it/s]", "Epoch 2"),
    ],
)
def test_each_epoch_opens_where_the_one_before_ended(first: str, second: str) -> None:
    reader = StepReader()
    opened(reader, first.format(5, 9.00), first.format(60, 9.00))
    again, second = reader.again(), second + first[7:]
    assert opened(again, second.format(0, 0.00)) == []
    assert opened(again, second.format(5, 9.00)) == [(65, 60)]


def test_keras_tells_with_the_line_of_an_epoch_where_it_goes_on() -> None:
    reader, drawing = StepReader(), "\r{}/100 [====>.........] - ETA: 1s - loss: 0.4"
    assert opened(reader, drawing.format(1), drawing.format(7)) == [(1, 0), (7, None)]
    again = reader.again()
    again.read("Epoch 3/5")
    assert opened(again, drawing.format(1), drawing.format(7)) == [(201, 200), (207, None)]


def test_a_bar_is_at_its_end_until_another_one_opens() -> None:
    reader = StepReader()
    ends = []
    for text in (opening(0, 20), bar(10, 20), bar(20, 20)):
        reader.read_part(text)
        ends.append(reader.is_at_end)
    reader.read(opening(0, 20) + bar(10, 20) + bar(20, 20))
    ends.append(reader.is_at_end)
    for text in (opening(0, 20), bar(10, 20)):
        reader.read_part(text)
        ends.append(reader.is_at_end)
    assert ends == [False, False, True, True, False, False]


def test_the_last_drawing_of_a_bar_has_its_own_time() -> None:
    """Its line may be finished much later: when the bar is closed, or the program ends."""
    reader, last = StepReader(), bar(5, 20, values="loss=0.5")
    assert [one.wall for one in reader.read_part(last, 1.0)] == [1.0]
    assert reader.read_part(last, 3.0) == []  # drawn again
    (seen,) = reader.read(last, 5.0)
    assert (seen.data, seen.wall) == ({"step": 5, "loss": 0.5}, 1.0)
    reader.read_part(bar(7, 20), 6.0)
    (seen,) = reader.read(bar(7, 20) + bar(9, 20), 8.0)
    assert (seen.data, seen.wall) == ({"step": 9}, 8.0)  # this one was not drawn before


def test_of_a_bar_not_every_step_is_seen_and_of_lines_each_is() -> None:
    reader = StepReader()
    opened(reader, bar(5, 20))
    assert [one.is_drawn for one in reader.take_news()] == [True]
    line(reader, TRAINING)
    assert [one.is_drawn for one in reader.take_news() if one.counts] == [False]
