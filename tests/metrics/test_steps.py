"""Lines of a task's output: which are steps and phases, and that none can do harm."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.metrics import steps
from emulator.metrics.formats import FORMATS
from emulator.metrics.steps import PHASES, Observation, Seen, StepReader, samples_in


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each source counts from its first line: test_evidence.py has what decides."""
    monkeypatch.setattr(steps, "ENOUGH", 0)


def step(**data: object) -> Observation:
    return Observation("step", data)


def read(reader: StepReader, line: str) -> Observation | None:
    """Return what is read of a line, which is no more than one thing."""
    return next(iter([*reader.read(line), None]))


@pytest.mark.parametrize("rule", ["auto", "json", "keras"])
def test_a_line_of_json_is_a_step_under_every_rule(rule: str) -> None:
    line = '{"emulate": "step", "step": 120, "examples": 7680, "loss": 0.41}'
    assert read(StepReader(rule), line) == step(step=120, examples=7680, loss=0.41)


@pytest.mark.parametrize("phase", PHASES)
def test_a_line_of_json_is_a_phase(phase: str) -> None:
    line = json.dumps({"emulate": "phase", "phase": phase, "state": "begin", "step": 3})
    seen = read(StepReader(), line)
    assert seen == Observation("phase", {"phase": phase, "state": "begin", "step": 3})


def test_a_program_can_not_overwrite_the_fields_of_the_history() -> None:
    fields = {"emulate": "step", "step": 1, "n": 9, "t": 9, "wall": 9, "event": "x", "task": "y"}
    assert read(StepReader(), json.dumps({**fields, "loss": 0.5})) == step(step=1, loss=0.5)
    seen = read(StepReader(r"(?P<task>\w+) at (?P<step>\d+)"), "ps at 7")
    assert seen == step(step=7)


GLOBAL_STEP = "training step 5 done (global step: {})"

READINGS: Mapping[str, Sequence[tuple[str, dict[str, object]]]] = {
    "keras": [
        ("12/100 [==>...........] - ETA: 1s - loss: 0.4100", {"step": 12}),
        ("100/100 - 1s - loss: 2e-05 - 1s/epoch", {"step": 100, "loss": 2e-05}),
        (
            "\x1b[1m10/10\x1b[0m \x1b[32m━━━\x1b[0m 0s 3ms/step - loss: 1.5",
            {"step": 10, "loss": 1.5},
        ),
        ("3/10 [====>.....] - ETA: 0s", {"step": 3}),
    ],
    "tqdm": [
        (" 12%|█▏        | 12/100 [00:01<00:07, 11.50it/s]", {"step": 12}),
        (
            "Epoch 0:  5%|▌  | 5/100 [00:01<00:07, 1.50s/it, v_num=0, loss=0.41]",
            {"step": 5, "v_num": 0, "loss": 0.41},
        ),
        ("Epoch [1/3]: [3/20]  15%|█▌   , loss=0.7 [00:00<00:01]", {"step": 3, "loss": 0.7}),
        (" 50%|█████     | 1/2 [1:00:01<1:00:01, 3601.00s/it]", {"step": 1}),
        (
            "Epoch 1/2 ━━━━╸━━━ 5/20 0:00:01 • 0:00:02 50.0it/s v_num: 3 loss: 0.41",
            {"step": 25, "v_num": 3, "loss": 0.41},
        ),
    ],
    "tf1-hooks": [
        ("INFO:tensorflow:loss = 0.41, step = 200 (0.5 sec)", {"step": 200, "loss": 0.41}),
        ("loss = 2e-3, global_step = 300", {"step": 300, "loss": 2e-3}),
    ],
    "tf1-global-step": [
        ("training step 1951 done (global step: 8084)", {"step": 8084}),
        ("1763.5: Worker 0: training step 2 done (global step: 4)", {"step": 4}),
    ],
    "pytorch-example": [
        (
            "Train Epoch: 1 [640/60000 (1%)]\tLoss: 0.41",
            {"step": 640, "examples": 640, "loss": 0.41},
        ),
        ("Train Epoch: 3 [0/60000 (0%)]", {"step": 120000, "examples": 120000}),
    ],
    "pytorch-imagenet": [
        ("Epoch: [2][10/100]\tTime 0.2 ( 0.3)\tLoss 6.9e+00 (7.0e+00)", {"step": 210, "loss": 6.9}),
        ("Epoch: [1][  0/100]\tTime 0.2 ( 0.3)", {"step": 101}),
    ],
    "tf-benchmarks": [
        ("10\timages/sec: 5.6 +/- 0.1 (jitter = 0.2)\t7.405", {"step": 10, "loss": 7.405}),
    ],
    "xgboost": [
        (
            "[9]\tvalidation-logloss:0.49\ttrain-auc:0.9",
            {"step": 10, "validation-logloss": 0.49, "train-auc": 0.9},
        ),
    ],
    "pytorch-tutorial": [
        ("loss: 0.743335  [  640/60000]", {"step": 640, "examples": 640, "loss": 0.743335}),
    ],
    "epochs": [
        ("epoch 0: {'accuracy': 0.75, 'f1': 0.5}", {"step": 1, "accuracy": 0.75, "f1": 0.5}),
        (
            "Epoch: 0, accuracy: 0.75, train_loss: 0.5.",
            {"step": 1, "accuracy": 0.75, "train_loss": 0.5},
        ),
        ("Epoch 2, Loss: 0.5, Accuracy: 75.0", {"step": 2, "loss": 0.5, "accuracy": 0.75}),
        ("Epoch 2 in 0.52 sec", {"step": 2}),
    ],
    "fields": [
        ("step 10: loss 1.81", {"step": 10, "loss": 1.81}),
        ("INFO:train:Epoch [2/3], Step [10/60], Loss: .5", {"step": 70, "loss": 0.5, "epoch": 2}),
    ],
}


def test_every_named_pattern_has_readings_here() -> None:
    assert READINGS.keys() == FORMATS.keys()


@pytest.mark.parametrize("rule", ["by its name", "auto"])
@pytest.mark.parametrize(
    ("pattern", "line", "data"),
    [(name, line, data) for name, rows in READINGS.items() for line, data in rows],
)
def test_a_named_pattern_reads_its_lines(
    pattern: str, line: str, data: Mapping[str, object], rule: str
) -> None:
    reader = StepReader("auto" if rule == "auto" else pattern)
    assert read(reader, line) == Observation("step", data)


@pytest.mark.parametrize(
    ("rule", "lines", "expected"),
    [
        # Epochs are counted; those of PyTorch's examples may begin at 0.
        (
            "keras",
            ["Epoch 1/3", "100/100 [====]", "Epoch 2/3", "5/100 [>...]", "Epoch 3/3", "1/100 [>.]"],
            [None, {"step": 100}, None, {"step": 105}, None, {"step": 201}],
        ),
        (
            "auto",
            ["Train Epoch: 0 [640/1000 (64%)]", "Train Epoch: 1 [640/1000 (64%)]"],
            [{"step": 640, "examples": 640}, {"step": 1640, "examples": 1640}],
        ),
        # So does Keras over data of unknown length, in the first epoch.
        ("auto", ["     12/Unknown - 3s 5ms/step - loss: 0.41"], [{"step": 12}]),
        # So may epochs of one batch. A bar of as many bytes as a download is the download's.
        (
            "keras",
            ["Epoch 1/2", "1/1 [====]", "Epoch 2/2", "1/1 [====]"],
            [None, {"step": 1}, None, {"step": 2}],
        ),
        ("keras", ["Downloading data from h", "1/1 [====]", "1/1 [====]"], [None] * 3),
        # Without lines of epochs what comes after a whole bar is of the next epoch.
        (
            "keras",
            ["10/10 [====]", "10/10 [====]", "3/10 [>.]"],
            [{"step": 10}, None, {"step": 13}],
        ),
        ("keras", ["1/1 - 0s", "1/1 - 0s"], [{"step": 1}, {"step": 2}]),
        # A redrawn line counts once with its last reading.
        (
            "keras",
            [
                "1/9 [>....] - loss: 3.0\b\b2/9 [=>..] - loss: 2.0",
                "3/9 [>....] - loss: 3.0\r4/9 [=>..] - loss: 2.0\b\b\b9/9 [===] - loss: 1.0",
            ],
            [{"step": 2}, {"step": 9, "loss": 1.0}],
        ),
        # `auto` stays with the pattern that fitted first; lines of JSON are read under every rule.
        (
            "auto",
            [GLOBAL_STEP.format(8), "12/100 [==>.....]", '{"emulate": "step", "step": 9}'],
            [{"step": 8}, None, {"step": 9}],
        ),
        # A program that prints step events is not read by patterns, nor is one under `json`.
        (
            "auto",
            ['{"emulate": "step", "step": 10}', "12/100 [==>...] - loss: 0.41"],
            [{"step": 10}, None],
        ),
        ("json", [GLOBAL_STEP.format(8)], [None]),
        # Nor are the values in other lines its own; under the name of a format that is read too.
        ("auto", ['{"emulate": "step", "step": 10}', "accuracy=0.9"], [{"step": 10}, None]),
        (
            "keras",
            ['{"emulate": "step", "step": 10}', "100/100 [====]"],
            [{"step": 10}, {"step": 100}],
        ),
        ("phases", ['{"emulate": "step", "step": 10}', GLOBAL_STEP.format(8)], [None, None]),
        # A value that is drawn after a step is of that step.
        (
            "auto",
            ["Train Epoch: 1 [640/60000 (1%)]\rAccuracy: 9/10"],
            [{"step": 640, "examples": 640, "accuracy": 0.9}],
        ),
        # A step that can't be stored is none.
        (
            "auto",
            ["Train Epoch: 1 [7/60 (1%)]", f"Train Epoch: 1 [{2**64}/60 (1%)]", "Accuracy: 9/10"],
            [{"step": 7, "examples": 7}, None, {"step": 7, "accuracy": 0.9}],
        ),
    ],
)
def test_lines_one_after_the_other(
    rule: str, lines: Sequence[str], expected: Sequence[Mapping[str, object] | None]
) -> None:
    reader = StepReader(rule)
    seen = [read(reader, line) for line in lines]
    assert seen == [data and Observation("step", data) for data in expected]


@pytest.mark.parametrize(
    ("first", "line", "accuracy"),
    [
        ("Train Epoch: 1 [640/60000 (1%)]", "accuracy=1.0", 1.0),
        ("Train Epoch: 1 [640/60000 (1%)]", "accuracy=1.1", None),
        ("Train Epoch: 1 [640/60000 (1%)]", "Accuracy: 0/10", 0.0),
        ("Train Epoch: 1 [640/60000 (1%)]", "Accuracy: 10/10", 1.0),
        ("Train Epoch: 1 [640/60000 (1%)]", "Accuracy: 11/10", None),
        ("Epoch: [0][1/10]\tTime 0.2", " * Acc@1 100.0", 1.0),
        ("Epoch: [0][1/10]\tTime 0.2", " * Acc@1 100.5", None),
        ("loss: 0.5  [  640/60000]", " Accuracy: 100.0%, Avg loss: 1", 1.0),
        ("loss: 0.5  [  640/60000]", " Accuracy: 100.5%, Avg loss: 1", None),
        ("Epoch 1, loss: 0.5", "Epoch 2, accuracy: 1", 1),
        ("Epoch 1, loss: 0.5", "Epoch 2, accuracy: 100.0", 1.0),
        ("Epoch 1, loss: 0.5", "Epoch 2, accuracy: 100.5", 100.5),
        ("Epoch 1, loss: 0.5", "Test set accuracy 0.75", 0.75),
        ("1/2 [=>..] - ETA: 0s", "2/2 [====] - acc: 0.5", 0.5),
        # Of several the first of a list; a plain one counts in any case.
        ("1/2 [=>..] - ETA: 0s", "2/2 [====] - val_acc: 0.5 - acc: 0.25", 0.25),
        ("1/2 [=>..] - ETA: 0s", "2/2 [====] - acc: 0.5 - accuracy: 0.75", 0.75),
    ],
)
def test_an_accuracy_is_a_share(first: str, line: str, accuracy: float | None) -> None:
    reader = StepReader()
    assert read(reader, first)
    seen = read(reader, line)
    assert (seen and seen.data["accuracy"]) == accuracy


def test_bytes_that_are_no_text_are_in_no_value_and_no_name_of_a_bar() -> None:
    pattern = StepReader(r"at (?P<step>\d+) in (?P<room>\S+)")
    assert read(pattern, "at 7 in a\udcffé") == step(step=7, room="a?é")
    bar = StepReader("tqdm")
    assert read(bar, "Train \udcff:  12%|█▏  | 12/100 [00:01<00:07, 11.5it/s, loss=0.4]")
    assert [one.words for one in bar.take_news()] == ["the bar `Train ?` (100)"]


def test_what_has_the_steps_is_told_once() -> None:
    reader = StepReader()
    json_lines = [f'{{"emulate": "step", "step": {n}}}' for n in (9, 10)]
    for line in (GLOBAL_STEP.format(8), GLOBAL_STEP.format(9), *json_lines):
        assert read(reader, line)
    words = ("lines of the format `tf1-global-step`", "lines of JSON")
    assert reader.take_news() == [Seen(one, counts=True) for one in words]
    assert reader.take_news() == []
    for line in ('{"emulate": "phase", "phase": "eval", "state": "end"}', TRAINED):
        assert read(StepReader("phases"), line) == read(StepReader("json"), line)
    only = StepReader()
    assert read(only, '{"emulate": "step", "step": 9}')
    assert only.take_news() == []  # that is what is asked for


def test_a_regex_needs_no_more_than_a_group_of_a_name() -> None:
    assert read(StepReader(r"^(?P<step>\d+)$"), "7") == step(step=7)
    with pytest.raises(ValueError, match=r"^a regex needs a group \(\?P<step>"):
        StepReader(r"(\d+)")


@pytest.mark.parametrize("caught", ["many", "1.5", ""])
def test_a_regex_whose_step_is_no_integer_matches_nothing(caught: str) -> None:
    assert read(StepReader(r"step=(?P<step>\S*);"), f"step={caught};") is None


JUST_OUTPUT = (
    '{"emulate": "step"}',
    '{"emulate": "step", "step": "12"}',
    '{"emulate": "step", "step": true}',
    '{"emulate": "step", "step": 1.5}',
    '{"emulate": "phase", "phase": "data", "state": "middle"}',
    '{"emulate": "phase", "phase": 3, "state": "begin"}',
    '{"emulate": "stop", "step": 1}',
    '{"step": 12}',
    '{"emulate": "step", "step": 12',
    '[{"emulate": "step", "step": 12}]',
    "",
    "epoch 3 of 4, 10 steps to go",
    "Epoch 2/5",
    " 45%|████▌     | 12.0M/26.4M [00:01<00:01, 11.5MB/s]",
    "model.bin:  45%|████▌     | 120/264 [00:01<00:01, 11.5MB/s]",
    "Map:  50%|█████     | 500/1000 [00:00<00:00, 12345.6 examples/s]",
    "Validation DataLoader 0:  50%|█████     | 5/10 [00:00<00:00, 50.0it/s]",
    "  0%|          | 0/20 [00:00<?, ?it/s]",
    "{'loss': '0.7065', 'epoch': '0.5'}",
    "2024-05-01 12/31 was a Tuesday",
    # Numbers of any length do no harm.
    "9" * 5000 + "/10 [==>..]",
    "Train Epoch: " + "1" * 5000 + " [640/60000 (1%)]",
    "global step: " + "1" * 5000,
    '{"emulate": "step", "step": ' + "1" * 5000 + "}",
    '{"emulate": "step", "step": ' + "1" * 400 + "}",
    '{"emulate": "step", "step": 9223372036854775808}',
    '{"a":' * 100_000,
)
HUGE = '{"emulate": "step", "step": 1, "loss": NaN, "examples": ' + "1" * 400 + "}"
NORMS = '{"emulate": "step", "step": 1, "norms": [1e999, -Infinity, 0.5]}'


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        *((line, None) for line in JUST_OUTPUT),
        ("5/10 [==>..] - loss: 1.2.3", step(step=5)),
        ("5/10 [==>..] - loss: -", step(step=5)),
        ("Train Epoch: 1 [640/60000 (1%)]\tLoss: ...", step(step=640, examples=640)),
        ('{"emulate": "step", "step": 9223372036854775807}', step(step=2**63 - 1)),
        (HUGE, step(step=1, loss=None, examples=None)),
        (NORMS, step(step=1, norms=[None, None, 0.5])),
    ],
    ids=lambda value: str(value)[:30],
)
def test_other_lines_are_just_output_and_malformed_numbers_do_no_harm(
    line: str, seen: Observation | None
) -> None:
    assert read(StepReader(), line) == seen


@given(
    st.lists(
        st.text()
        | st.sampled_from([line for rows in READINGS.values() for line, _ in rows])
        | st.from_regex(r"\d{1,3}/\d{1,3} \[=>\] - loss: [0-9.eE+-]{0,5}", fullmatch=True)
        | st.dictionaries(st.text(), st.integers() | st.text()).map(
            lambda data: json.dumps({"emulate": "step", "step": 1, **data})
        ),
        max_size=5,
    ),
    st.sampled_from(["auto", "json", *FORMATS]),
)
def test_whatever_is_printed_a_reading_is_nothing_or_has_a_whole_step(
    lines: Sequence[str], rule: str
) -> None:
    reader = StepReader(rule)
    for line in lines:
        seen = read(reader, line)
        if seen is not None and seen.event == "step":
            assert type(seen.data["step"]) is int


# --- Patterns of the user's -----------------------------------------------------------------------

TRAINED = "Train Epoch: 1 [640/60000 (1%)]\tLoss: 0.41"


def test_a_pattern_without_a_step_adds_values_to_the_steps_of_others() -> None:
    reader = StepReader(r"precision (?P<accuracy>\S+)")
    assert read(reader, "precision 0.5") is None  # of no step yet
    assert read(reader, TRAINED) == step(step=640, examples=640, loss=0.41)
    assert read(reader, "precision 0.75") == step(step=640, accuracy=0.75)
    json_lines = StepReader(["auto", r"precision (?P<accuracy>\S+)"])
    assert read(json_lines, '{"emulate": "step", "step": 9}') == step(step=9)
    assert read(json_lines, "precision 0.75") == step(step=9, accuracy=0.75)


def test_a_named_format_beside_a_pattern_leaves_the_other_formats_out() -> None:
    reader = StepReader(["keras", r"it (?P<step>\d+)"])
    read(reader, "it 3")
    assert read(reader, TRAINED) is None
    assert read(reader, "100/100 [=====] - loss: 0.5") == step(step=3, loss=0.5)


def test_a_pattern_may_count_across_epochs() -> None:
    """As timm prints it; the first epoch is known after a restart."""
    line = "Train: {} [  2/32 (  9%)]  Loss: 6.9"
    for first in (0, 1):
        reader = StepReader(r"Train: (?P<epoch>\d+) \[ *(?P<step>\d+)/(?P<steps_per_epoch>\d+)")
        seen = [read(reader, line.format(epoch)) for epoch in (first, first + 1)]
        seen.append(read(reader.again(), line.format(first + 2)))
        assert [one.data["step"] for one in seen if one] == [2, 34, 66]


def test_a_value_never_takes_the_place_of_the_step() -> None:
    seen = read(StepReader(), "Epoch 0: 50%|█| 5/10 [00:01<00:01, 5it/s, step=3.5, loss=1]")
    assert seen == step(step=5, loss=1)


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ('{"emulate": "samples", "ids": [4, 2]}', None),
        ('{"emulate": "samples", "step": 7, "ids": [4, 2]}', 7),
        ('{"emulate": "samples", "step": true, "ids": [4, 2]}', None),
    ],
)
def test_samples_have_the_digest_of_their_ids(line: str, step: int | None) -> None:
    assert samples_in(line) == ("40c817682000b8d7", step)


@pytest.mark.parametrize(
    "line", ['{"emulate": "samples"}', '{"emulate": "samples", "ids": [', '{"a": "samples"}', "x"]
)
def test_what_reports_no_samples(line: str) -> None:
    assert samples_in(line) is None
