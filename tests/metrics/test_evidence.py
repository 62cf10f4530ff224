"""Which source in an output has the steps: by evidence from all of them, all the time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pytest

from emulator.engines.kit.lines import DrawnLine, LineSplitter
from emulator.metrics.steps import ENOUGH, Observation, Seen, StepReader
from tests.metrics.test_formats import EXPECTED, RECORDED, WITHOUT_STEPS, recorded, truths


def steps(seen: Sequence[Observation]) -> list[object]:
    return [one.data["step"] for one in seen if one.event == "step"]


def bar(done: int, total: int, title: str = "") -> str:
    head = f"{title}: " if title else ""
    return f"\r{head}{done * 100 // total:3}%|#####     | {done}/{total} [00:05<00:05, 19.5it/s]"


# --- Whole outputs --------------------------------------------------------------------------------

DRAWN_IN = 6
"""Steps between two drawings of a bar, at most: 0.1 s at 20 ms a step, and a slow machine."""
NOT_KNOWN = {
    # After a resume within an epoch Lightning draws `Training: 1/?`, without the epoch.
    "resumed-lightning",
    "resumed-lightning-stream",
}
"""What can't be read right from what is printed."""


@dataclass(frozen=True)
class Life:
    """The true steps of one start of a task."""

    printed: bytes
    first: int
    last: int


def corpus() -> Mapping[str, Sequence[Life]]:
    """Return every recorded output, as the lives of its task."""
    lives: dict[str, Sequence[Life]] = {}
    for name, expected in EXPECTED.items():
        if name != "diffusers-2":
            lives[name] = [Life(recorded(name), 1, expected.lines[-1])]
    lives["diffusers-1"] = [
        Life(recorded("diffusers-1"), 1, 26),
        Life(recorded("diffusers-2"), 21, 64),
    ]
    for name, parts in truths().items():
        lives[name] = [Life(recorded(part), *true) for part, true in parts.items()]
    return lives


def read(reader: StepReader, printed: bytes, size: int = 50) -> list[object]:
    """Return the steps of an output that comes in pieces."""
    splitter, drawn = LineSplitter(), DrawnLine()
    seen: list[Observation] = []
    for at in range(0, len(printed), size):
        piece = printed[at : at + size]
        drawn.feed(piece)
        for line in splitter.feed(piece):
            seen += reader.read(line)
        if drawn.is_drawn:
            seen += reader.read_part(drawn.take_drawn())
    for line in splitter.finish():
        seen += reader.read(line)
    return steps([*seen, *reader.finish()])


def is_right(lives: Sequence[Life]) -> bool:
    """Return whether what is read of an output is what was done, as far as it was drawn."""
    reader = StepReader()
    for number, life in enumerate(lives):
        reader = reader.again() if number else reader
        found = read(reader, life.printed)
        if any(one.retracts for one in reader.take_news()):
            return False
        is_last = number == len(lives) - 1
        if not found or found[-1] not in range(life.last - DRAWN_IN * (not is_last), life.last + 1):
            return False
        # What a bar draws before its first step is where it goes on.
        if number and found[0] not in range(life.first - 1, life.first + DRAWN_IN):
            return False
    return True


def test_what_is_read_of_recorded_outputs_is_true(capsys: pytest.CaptureFixture[str]) -> None:
    entries = corpus()
    assert len(entries) >= 50
    assert sum(len(lives) > 1 for lives in entries.values()) * 3 >= len(entries)
    right = {name for name, lives in entries.items() if is_right(lives)}
    with capsys.disabled():
        print(f"\nrecorded outputs: right in {len(right)} of {len(entries)}")  # noqa: T201
    assert entries.keys() - right == NOT_KNOWN


def test_an_output_without_steps_has_none() -> None:
    assert read(StepReader(), recorded(WITHOUT_STEPS)) == []


# --- What counts, and from when -------------------------------------------------------------------


def test_what_a_source_had_before_it_advanced_twice_counts_at_its_own_time() -> None:
    reader = StepReader()
    lines = [f"step {n}0: loss 0.{n}" for n in range(1, 5)]
    assert ENOUGH == 2
    found = [reader.read(line, wall=float(at)) for at, line in enumerate(lines, 100)]
    assert [steps(each) for each in found] == [[], [], [10, 20, 30], [40]]
    assert [one.wall for each in found for one in each] == [100, 101, 102, 103]
    assert reader.take_news() == [Seen("lines `step N`", counts=True)]


def test_what_is_held_back_when_a_task_ends_counts_then() -> None:
    reader = StepReader()
    assert [*reader.read("step 10: loss 0.5"), *reader.read("step 20: loss 0.4")] == []
    assert steps(reader.finish()) == [10, 20]
    assert reader.finish() == []
    single = StepReader()
    assert [*single.read("step 10: loss 0.5"), *single.finish()] == []


def test_after_a_restart_what_had_the_steps_counts_at_once() -> None:
    reader = StepReader()
    for n in range(1, 5):
        reader.read(f"step {n}: loss 0.5")
    again = reader.again()
    assert steps(again.read("step 3: loss 0.5")) == [3]
    assert again.take_news() == []


SENTENCES = (
    "Continuing training from global step 100",
    "[INFO|trainer.py:2539] 2026-11-29 05:00:00,000 >>   Continuing training from global step 100",
    "Loading pretrained weights from /models/gpt/global_step5000/mp_rank_00_model_states.pt",
    "Config: total step = 1000",
    "total step = 1000, save every step = 100",
    "max step = 5000",
    "checkpoint every step = 500",
    "target global step: 9000",
    "Saved checkpoint at step 100",
    "saving model at global_step 200 to out/ckpt-200",
    "Starting from epoch 3, step 100 of 200",
    "Resumed: step 7, loss 0.5, epoch 1",
    "Epoch 3 begins",
    "Total optimization steps = 200",
)


def test_a_sentence_about_a_step_is_no_progress_however_often_it_comes() -> None:
    reader = StepReader()
    for number in range(1, 8):
        for line in SENTENCES:
            assert reader.read(line.replace("00", f"{number}0")) == []
    assert reader.finish() == []


def test_json_and_a_pattern_count_from_their_first_line_and_before_all_else() -> None:
    reader = StepReader()
    for n in range(1, 4):
        reader.read(f"step {n}00: loss 0.5")
    json_line = '{"emulate": "step", "step": 1}'
    assert steps(reader.read(json_line)) == [1]
    assert reader.take_news()[-1] == Seen("lines of JSON", counts=True, retracts=True)
    assert reader.read("step 400: loss 0.5") == []
    given = StepReader(r"it (?P<step>\d+)")
    assert steps(given.read(json_line)) == [1]
    assert steps(given.read("it 7")) == [7]
    assert given.read(json_line) == []  # what the user gave comes first


# --- Of several sources ---------------------------------------------------------------------------

SUMMARIES = (
    "Epoch {e}, Loss: {l:.4f}",
    "Epoch {e}/3 - Loss: {l:.4f}",
    "Epoch {e} | train loss {l:.4f} | acc {l:.2f}",
    "epoch: {e}, loss: {l:.4f}",
    "Epoch {e} in {l:.2f} sec",
)


@pytest.mark.parametrize("summary", SUMMARIES)
def test_a_summary_of_an_epoch_is_coarser_than_the_bar_before_it(summary: str) -> None:
    """The commonest loop there is: `for batch in tqdm(loader)`, and a line at the end."""
    reader, found = StepReader(), list[object]()
    for epoch in (1, 2, 3):
        drawn = [bar(n, 60) for n in range(1, 61)]
        for text in drawn:
            found += steps(reader.read_part(text))
        found += steps(reader.read("".join(drawn)))
        found += steps(reader.read(summary.format(e=epoch, l=1 / epoch)))
    assert [*dict.fromkeys(found)] == [*range(1, 181)]
    used = [one.words for one in reader.take_news() if one.counts]
    assert used == ["a bar without a title (60)"]


def test_lines_of_steps_within_a_bar_without_a_title_leave_it_the_steps() -> None:
    reader, found = StepReader(), list[object]()
    for n in range(1, 61):
        found += steps(reader.read_part(bar(n, 60)))
        if n % 10 == 0:
            found += steps(reader.read(f"step {n}: loss 0.5"))
    assert [*dict.fromkeys(found)] == [*range(1, 61)]
    assert [one.words for one in reader.take_news()] == [
        "a bar without a title (60)",
        "lines `step N`",
    ]


def test_a_bar_of_data_gives_way_to_the_lines_of_training() -> None:
    reader = StepReader()
    assert steps(reader.read("".join(bar(n, 1000) for n in (1, 500, 1000)))) == [1000]
    found = [steps(reader.read(f"step {n}: loss 0.5")) for n in range(1, 5)]
    assert found[2:] == [[1, 2, 3], [4]]
    assert reader.take_news()[-1].retracts
    epochs = StepReader()
    epochs.read("".join(bar(n, 1000) for n in (1, 500, 1000)))
    lines = [epochs.read(f"Epoch {n}, Loss: 0.5") for n in range(1, 4)]
    assert steps(lines[-1]) == [1, 2, 3]


def test_of_two_bars_without_a_title_the_one_that_comes_again_is_the_training() -> None:
    reader, found = StepReader(), list[object]()
    for text in [bar(n, 1000) for n in (1, 500, 1000)]:
        found += steps(reader.read_part(text))
    for _ in range(2):
        for n in range(1, 21):
            found += steps(reader.read_part(bar(n, 20)))
    assert found[-1] == 40
    assert reader.take_news()[-1] == Seen("a bar without a title (20)", True, True)
    validated, found = StepReader(), []
    for _ in range(2):  # one bar of training, one of validation
        for text in [*(bar(n, 60) for n in range(1, 61)), *(bar(n, 9) for n in range(1, 10))]:
            found += steps(validated.read_part(text))
    assert found == [*range(1, 121)]


def test_a_finer_source_that_is_as_far_takes_over() -> None:
    reader, found = StepReader(), list[object]()
    for n in range(1, 101):
        if n % 10 == 0:
            found += steps(reader.read(f"[2026-11-29 05:00:00] epoch 1 step {n} loss 0.5"))
        if n > 40:
            found += steps(reader.read(f"iter {n}: loss 0.5"))
    assert found[-1] == 100
    assert found == sorted(found, key=lambda step: int(str(step)))
    assert [one.words for one in reader.take_news() if one.counts][-1] == "lines `iter N`"


# --- Several writers on one output ----------------------------------------------------------------


def interleaved(length: int, epochs: int, lag: Callable[[int], int]) -> Iterator[str]:
    """Yield what two ranks draw, of which one is behind by some steps."""
    for _ in range(epochs):
        yield bar(0, length)
        yield bar(0, length)
        for n in range(1, length + 1):
            yield bar(n, length)
            if n - lag(n) > 0:
                yield bar(n - lag(n), length)
        yield bar(length, length)


@pytest.mark.parametrize("lag", [0, 1, 2, 4])
def test_two_ranks_that_draw_on_one_output_are_one_count(lag: int) -> None:
    reader, found = StepReader(), list[object]()
    for text in interleaved(100, 2, lambda n: min(lag, n)):
        found += steps(reader.read_part(text))
    assert found == [*range(1, 201)]


def test_two_ranks_that_print_lines_are_one_count() -> None:
    reader, found = StepReader(), list[object]()
    for n in range(1, 31):
        for rank, behind in enumerate((0, 2, 1)):
            found += steps(reader.read(f"[default{rank}]:step: {max(n - behind, 1)} loss: 0.5"))
    assert [*dict.fromkeys(found)] == [*range(1, 31)]


def test_a_source_that_goes_back_and_goes_on_from_there_has_gone_back() -> None:
    """As torchrun's agent, which starts its trainer again within one task."""
    reader, found = StepReader(), list[object]()
    for n in [*range(1, 51), *range(31, 61)]:
        found += steps(reader.read(f"step {n}: loss 0.5"))
    assert found == [*range(1, 51), *range(31, 61)]


# --- Bars without a length, of another length, of what is left ------------------------------------


def drawn(*texts: str) -> list[object]:
    reader = StepReader()
    return steps([one for text in texts for one in reader.read_part(f"\r{text}")])


def test_bars_without_a_length_count() -> None:
    plain = [f"{n}it [00:0{n}, 10.0it/s]" for n in range(1, 6)]
    assert drawn(*plain) == [1, 2, 3, 4, 5]
    titled = [f"Training: {n}batch [00:0{n}, 10.0batch/s, loss=0.5]" for n in range(1, 6)]
    assert drawn(*titled) == [1, 2, 3, 4, 5]
    rate = "[00:01<00:00, 10.0it/s, v_num=0, train_loss=0.5]"
    lightning = [f"Epoch {e}: |          | {n}/? {rate}" for e in (0, 1) for n in range(1, 4)]
    assert drawn(*lightning) == [1, 2, 3, 4, 5, 6]


def test_a_length_that_is_what_is_left_is_none_of_an_epoch() -> None:
    """Lightning over a stream: `0: 100/300`, `1: 100/200`, `2: 100/100`."""
    rate = "[00:01<00:00, 10.0it/s, train_loss=0.5]"
    places = [(e, n, 300 - 100 * e) for e in range(3) for n in range(0, 101, 10)]
    texts = [f"Epoch {e}:  50%|###  | {n}/{total} {rate}" for e, n, total in places]
    found = drawn(*texts)
    assert found == [*range(10, 301, 10)]


def test_lengths_that_change_from_epoch_to_epoch_add_up() -> None:
    texts = [
        f"Epoch {epoch}:  50%|###  | {n}/{total} [00:01<00:00, 10.0it/s]"
        for epoch, total in ((1, 97), (2, 103), (3, 95))
        for n in (0, 1, 50, total)
    ]
    assert drawn(*texts) == [1, 50, 97, 98, 147, 200, 201, 250, 295]


def test_numbers_that_unit_scale_has_shortened_are_read() -> None:
    texts = [f"train:  {n}0%|###| {n}.00k/10.0k [00:01<00:01, 1.0kit/s]" for n in range(1, 5)]
    assert drawn(*texts) == [1000, 2000, 3000, 4000]


def test_the_titles_of_yolo_and_verl_are_training() -> None:
    columns = "0G    0.11   0.02   0.01   10   640"
    yolo = [
        f"        {e}/4        {columns}:  10%|###| {n}/100 [00:01<00:01, 10.0it/s]"
        for e in (0, 1)
        for n in (50, 100)
    ]
    assert drawn(*yolo) == [50, 100, 150, 200]
    for title in ("Running step", "Training Progress"):
        assert drawn(*(bar(n, 100, title)[1:] for n in (1, 2, 3))) == [1, 2, 3]


def test_a_bar_behind_a_logger_is_a_bar() -> None:
    rate = "[00:01<00:01, 10.0it/s, loss=0.5]"
    assert drawn(*(f"INFO:levanter:  0%|  | {n}/100 {rate}" for n in (1, 2, 3))) == [1, 2, 3]


def test_recorded_truths_are_of_recorded_outputs() -> None:
    named = json.loads((RECORDED / "truths.json").read_text())
    assert {*named} == {*truths()}
