"""Lines in which ordinary training programs print a step, and lines that only look like them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.metrics.readings import Rank
from emulator.metrics.step_lines import HINTS, FieldsCounter, body_of, fields_in

PREFIXES = [
    "[default0]:",
    "[rank0]:",
    "[Rank 0] ",
    "(RayTrainWorker pid=1, ip=1.2.3.4) ",
    "[1,0]<stdout>:",
    "[1,0]<stderr>:",
    "2026-11-29 05:00:01,000 ",
    "[2026-11-29 05:00:01.000] ",
    "2026/11/29 05:00:01 ",
    "2026-11-29T05:00:01.123456Z ",
    "2026-11-29T05:00:01+01:00 ",
    "05:00:01 ",
    "[06:58:47] ",
    "[11/29 05:00:01 d2.utils.events]:  ",
    "I1129 05:00:01.000000 1 train.py:1] ",
    "INFO ",
    "[INFO] ",
    "DEBUG: ",
    "INFO:tensorflow:",
    "INFO:levanter:",
    "[INFO|trainer.py:2519] 2026-11-29 05:00:01,000 >> ",
    "[2026-11-29 05:00:01,000] [INFO] [logging.py:96:log_dist] [Rank 0] ",
    "[titan] 2026-11-29 05:00:01,000 - root - INFO - ",
    "2026/11/29 05:00:01 - mmengine - INFO - ",
    "2026-11-29 05:00:01 | INFO | train_inner | ",
    "2026-11-29 05:00:01.000\trun:0\tolmo_core.train.callbacks.console_logger:100\tINFO\t",
    "2026-11-29 05:00:01.000 | INFO     | __main__:main:10 - ",
    "[2026-11-29 05:00:01,000][__main__][INFO] - ",
    "11/29/2026 05:00:01 - WARNING - __main__ - ",
    "[default0]:[2026-11-29 05:00:01,000] [INFO] ",
    "   ",
]

PROGRAMS: Mapping[str, tuple[str, Mapping[str, float]]] = {
    "Megatron-LM": (
        "iteration       30/     100 | consumed samples:          360 |"
        " elapsed time per iteration (ms): 100.1 | learning rate: 1.0E-04 |"
        " global batch size:    16 | lm loss: 9.3E+00 | loss scale: 1.0 | grad norm: 1.1 |"
        " number of skipped iterations:   0 | number of nan iterations:   0 |",
        {"lm_loss": 9.3, "learning_rate": 1e-4, "number_of_nan_iterations": 0},
    ),
    "torchtitan": (
        "\x1b[31mstep: 30  \x1b[32mloss:  7.3  \x1b[38;2;180;60;0mgrad_norm:  1.1"
        "  \x1b[38;2;54;234;195mmemory:  1.00GiB(1.00%)  \x1b[34mtps: 1,000"
        "  \x1b[36mtflops: 1.00  \x1b[35mmfu: 1.00%\x1b[39m",
        {"loss": 7.3, "memory": 1.0, "tps": 1000},
    ),
    "MaxText": (
        "completed step: 30, seconds: 0.100, TFLOP/s/device: 1.000,"
        " Tokens/s/device: 1000.000, total_weights: 1000, loss: 9.3",
        {"loss": 9.3, "tokens/s/device": 1000.0},
    ),
    "nanoGPT": ("iter 30: loss 4.3, time 10.00ms, mfu 1.00%", {"loss": 4.3, "time": 10.0}),
    "LitGPT": (
        "Epoch 1 | iter 30 step 30 | loss train: 4.3, val: n/a | iter time: 10.00 ms (step)"
        " remaining time: 0:00:10",
        {"loss_train": 4.3, "iter_time": 10.0, "iter": 30},
    ),
    "detectron2": (
        "eta: 0:00:10  iter: 30  total_loss: 1.3  loss_cls: 0.5  time: 0.1  lr: 0.001"
        "  max_mem: 100M",
        {"total_loss": 1.3, "lr": 0.001},
    ),
    "mmengine": (
        "Epoch(train)  [1][30/40]  lr: 1.0e-03  eta: 1 day, 0:00:10  time: 0.1  data_time: 0.01"
        "  loss: 0.3",
        {"epoch": 1, "loss": 0.3},
    ),
    "fairseq": (
        "epoch 001:     30 / 100 loss=9.3, ppl=500, wps=1000, ups=1, wpb=100, bsz=8,"
        " num_updates=30, lr=1e-05, gnorm=1, train_wall=1, wall=10",
        {"loss": 9.3, "ppl": 500},
    ),
    "OLMo-core": ("[step=30/1,000,epoch=1,eta=10m]", {"epoch": 1}),
    "Composer": ("[epoch=0][batch=30/100]:", {"epoch": 0}),
    "DeepSpeed": ("step=30, skipped=0, lr=[0.0001], mom=[(0.9, 0.999)]", {"lr": 0.0001}),
    "Orbit": (
        "train | step:     30 | steps/sec:   13.4 | output: {'loss': 0.3}",
        {"loss": 0.3, "steps/sec": 13.4},
    ),
    "tutorial": ("Epoch [1/5], Step [30/600], Loss: 0.3", {"loss": 0.3}),
    "SB3": ("|    total_timesteps      | 30     |", {}),
    "T5X": ("Step 30: loss = 9.3", {"loss": 9.3}),
    "DCGAN": (
        "[0/5][30/1583]\tLoss_D: 1.7\tLoss_G: 5.1\tD(x): 0.5\tD(G(z)): 0.46 / 0.02",
        {"loss_d": 1.7, "loss_g": 5.1},
    ),
    "PyTorch-GAN": ("[Epoch 1/9] [Batch 30/93] [D loss: 0.1, acc: 50.0%]", {"d_loss": 0.1}),
}

EVERYDAY = [
    ("step 10: loss 1.81", 10, 1.81),
    ("epoch 0 step 1 loss .5", 1, 0.5),
    ("Epoch [1/3], Step [1/5], Loss: .5", 1, 0.5),
    ("[1,  2000] loss: 2.2", 2000, 2.2),
    ("iter 1: loss .5", 1, 0.5),
    ("step 1/15 | train loss 0.5", 1, None),
    ("Epoch: 0 | Batch: 1 | Loss: 0.5", 1, 0.5),
    ("step=1 loss=0.5", 1, 0.5),
    ("Step 1, loss = 0.5", 1, 0.5),
    ("global_step=1, loss=0.5", 1, 0.5),
    ("[train] step 10 loss 0.5", 10, 0.5),
    ("{'step': 10, 'loss': 0.5}", 10, 0.5),
    ("loss = 0.41, step = 200 (3.2 sec)", 200, 0.41),
    ("step 10 of 100, loss 5.", 10, 5.0),
    ("step 10 | 5.6 tokens/s | 12 ms | loss 3", 10, 3),
    ("step 10: 5.6 +/- 0.1 images/sec, loss 3", 10, 3),
]

NO_PROGRESS = [
    "Resumed from step 10, loss 0.5",
    "Resuming: step 10, loss 0.5",
    "Checkpoint saved: step=10, loss=0.5",
    "saving model at epoch 1 step 10 loss 5",
    "Step 10: checkpoint saved in 0.5 s",
    "Saving step 10 took 5 s",
    "The loss at step 10 was 5",
    "Loading pretrained weights from /models/gpt/global_step5000/mp_rank_00",
    "epoch 3, lr 0.1 saved to ckpt/step_10.pt",
    "Config: total step = 1000",
    "Config: step = 10, lr = 0.1",
    "Total optimization steps = 200, batch size = 8",
    "checkpoint every step = 500",
    "max step = 5000",
    "target global step: 9000",
    "step = 5",
    "step=0, max_steps=100",
    "warmup steps: 10, lr: 0.1",
    "step: 0.35s, loss: 3",
    "[GPU0] Epoch 0 | Batchsize: 32 | Steps: 65",
    "eval | step: 10 | loss 0.5",
    "[eval] step 10 loss 0.5",
    "05:00:01 - valid - step 10 loss 5",
    "val_loss 0.3 step 10 lr 0.1",
    "Epoch(val)  [1][10/40]  loss: 5",
    "2026-11-29 05:00:01 | INFO | valid | epoch 001 | loss 5 | num_updates 10",
    "epoch 3 of 4, 10 steps to go",
    "Epoch 2/5",
    "2024-05-01 12/31 was a Tuesday",
    "{'loss': 0.3, 'grad_norm': 1.1, 'epoch': 1.0}",
    "train:  10%|# | 10/100 [00:01<00:01, 10.0it/s, loss=9.1]",
    "Epoch 0: | | 30/? [00:01<00:00, 10.0it/s, v_num=0, train_loss=0.3]",
    "[1, 2000] rows: 5",
    "",
]


def steps(counter: FieldsCounter, lines: Iterable[str]) -> list[int | None]:
    readings = [counter.read_text(line) for line in lines]
    return [None if one is None else one.step for one in readings]


def numbered(shape: str, epochs: Iterable[int], numbers: Iterable[int]) -> list[str]:
    kept = [*numbers]
    return [shape.format(epoch=epoch, step=step) for epoch in epochs for step in kept]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_prefix_is_removed(prefix: str) -> None:
    assert body_of(f"{prefix}step 10: loss 0.5 ") == "step 10: loss 0.5 "
    assert steps(FieldsCounter(), [f"{prefix}step 10: loss 0.5"]) == [10]


@pytest.mark.parametrize(
    "line",
    [
        "step 10: loss 0.5 ",
        "[train] step 10",
        "[eval] step 10",
        "Epoch [1/3]",
        "[1,  2000] loss: 2.2",
        "[step=10/1,000,epoch=1]",
        "10/100 [00:01<00:01]",
        "2024-05-01 12/31 was a Tuesday",
        "Information: none",
        "Iteration 10",
        "| total_timesteps | 3 |",
        "",
    ],
)
def test_a_line_without_a_prefix_comes_back_unchanged(line: str) -> None:
    assert body_of(line) == line


def test_what_says_what_a_line_is_about_is_no_logger() -> None:
    assert body_of("05:00:01 - eval - step 10") == "eval - step 10"
    assert body_of("05:00:01\tstep:10\tloss:0.5") == "step:10\tloss:0.5"


@pytest.mark.parametrize("prefix", ["", *PREFIXES])
@pytest.mark.parametrize("name", PROGRAMS)
def test_lines_of_well_known_programs_are_read(name: str, prefix: str) -> None:
    line, values = PROGRAMS[name]
    reading = FieldsCounter().read_text(prefix + line)
    assert reading is not None
    assert reading.step == 30
    assert {key: reading.values[key] for key in values} == pytest.approx(values)
    assert reading.source is not None
    assert reading.source.rank is Rank.EVIDENT
    assert any(hint in line for hint in HINTS)


@pytest.mark.parametrize(("line", "step", "loss"), EVERYDAY)
def test_everyday_prints_are_read(line: str, step: int, loss: float | None) -> None:
    reading = FieldsCounter().read_text(line)
    assert reading is not None
    assert (reading.step, reading.values.get("loss")) == (step, loss)


@pytest.mark.parametrize("line", NO_PROGRESS)
def test_what_is_no_progress_is_not_read(line: str) -> None:
    assert FieldsCounter().read_text(line) is None


def test_a_source_is_named_after_its_lines() -> None:
    lines = ["iter 1: loss 5", "epoch 1 step 2 loss 5", "train | step: 3 | loss: 5"]
    sources = [reading.source for line in lines if (reading := FieldsCounter().read_text(line))]
    assert [one and (one.key, one.words) for one in sources] == [
        ("fields||iter", "lines `iter N`"),
        ("fields||step", "lines `epoch N, step N`"),
        ("fields|train|step", "lines `train | step N`"),
    ]


def test_epochs_alone_are_steps_of_a_lower_rank() -> None:
    reading = FieldsCounter().read_text("Epoch 3 - train_loss: .5 - val_loss: .4")
    assert reading is not None
    assert (reading.step, reading.values) == (3, {"train_loss": 0.5, "val_loss": 0.4})
    assert reading.source is not None
    assert reading.source.rank is Rank.EPOCHS


def test_lines_with_values_of_an_evaluation_give_way_to_others() -> None:
    """nanoGPT prints both, and those of each iteration are to count."""
    reading = FieldsCounter().read_text("step 250: train loss 2.1, val loss 2.2")
    assert reading is not None
    assert reading.step == 250
    assert reading.source is not None
    assert reading.source.rank is Rank.PLAIN


@pytest.mark.parametrize(
    ("shape", "epochs", "numbers", "expected"),
    [
        ("Epoch [{epoch}/3], Step [{step}/5], Loss: .5", (1, 2), (1, 5), [1, 5, 6, 10]),
        ("[epoch={epoch}][batch={step}/5]:", (0, 1), (0, 4), [0, 4, 5, 9]),
        ("Epoch(train) [{epoch}][{step}/5] loss: 1", (1, 2), (1, 5), [1, 5, 6, 10]),
        ("epoch {epoch} step {step} loss .5", (0, 1, 2), (1, 2), [1, 2, 3, 4, 5, 6]),
        ("Epoch: {epoch} | Batch: {step} | Loss: 1", (0, 1), (0, 1), [0, 1, 2, 3]),
        ("[{epoch},  {step}] loss: 1", (1, 2), (20, 40), [20, 40, 60, 80]),
        ("step={step}/5,epoch={epoch}", (1, 2), (1, 5), [1, 5, 6, 10]),
    ],
)
def test_steps_within_epochs_are_counted_across_them(
    shape: str, epochs: tuple[int, ...], numbers: tuple[int, ...], expected: list[int]
) -> None:
    assert steps(FieldsCounter(), numbered(shape, epochs, numbers)) == expected


@pytest.mark.parametrize("shape", ["epoch {0} step {1} loss 1", "[step={1}/9,epoch={0}]"])
def test_global_steps_stay_as_they_are(shape: str) -> None:
    lines = [shape.format(step // 3, step) for step in range(9)]
    assert steps(FieldsCounter(), lines) == [*range(9)]


def test_after_a_resume_steps_within_epochs_go_on() -> None:
    shape, counter = "epoch {epoch} step {step} loss .5", FieldsCounter()
    steps(counter, numbered(shape, (0, 1), (1, 2, 3)))
    assert steps(counter, numbered(shape, (2,), (1, 2))) == [7, 8]
    counter = counter.again()
    assert steps(counter, numbered(shape, (2, 3), (1, 2, 3))) == [7, 8, 9, 10, 11, 12]
    counter = counter.again()
    assert steps(counter, numbered(shape, (1, 2), (1, 2, 3))) == [4, 5, 6, 7, 8, 9]


def test_a_program_that_was_killed_in_its_first_epoch_is_known_to_begin_with_0() -> None:
    shape, counter = "Epoch [{epoch}], Step [{step}/5], Loss: .5", FieldsCounter()
    steps(counter, numbered(shape, (0,), (1, 2)))
    assert steps(counter.again(), numbered(shape, (1,), (1,))) == [6]


def test_long_lines_and_huge_numbers_do_no_harm() -> None:
    """A search that takes a time that is quadratic in the length would not end here."""
    for unit in (
        "step 10 loss 0.5 ",
        "[",
        "(",
        "9",
        "1,000",
        "a-",
        "INFO ",
        " ",
        "step=1,",
        "\x1b[",
    ):
        line = unit * (1_000_000 // len(unit))
        assert FieldsCounter().read_text(line) is None
        body_of(line)
        fields_in(line)
        for length in (500, 1990, 3000):
            FieldsCounter().read_text("step 1 loss " + line[:length])
    assert FieldsCounter().read_text(f"step {'9' * 5000} loss 1") is None


TEXTS = st.lists(
    st.sampled_from([*PREFIXES, *(line for line, _, _ in EVERYDAY), *"[](){}:=,|; -/%'", "step "])
    | st.text(max_size=8)
    | st.floats().map(str)
    | st.integers().map(str),
    max_size=12,
).map("".join)


@given(TEXTS)
def test_nothing_but_a_value_error_is_raised(text: str) -> None:
    counter = FieldsCounter()
    try:
        reading = counter.read_text(text)
        body_of(text)
        fields_in(text)
    except ValueError:
        return
    if reading is not None:
        assert reading.step is not None
        assert reading.step >= 0
        assert reading.source is not None
        assert any(hint in text for hint in HINTS)
