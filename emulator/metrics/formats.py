r"""How programs report their progress: one table of formats, and how each counts its steps (pure).

A format is the patterns of its lines and a counter. A counter takes one drawing after another: a
line, or what a progress bar drew between two carriage returns. It returns the global step in it and
the values with it, and it is the only place that has a state: the epoch, the length of a bar.

Of a line, the last drawing with a reading counts; but all are taken, because one line may have the
bars of several epochs.

To add a format, add an entry to FORMATS and a recorded output of the real library to
tests/metrics/recorded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from emulator.metrics.bars import ENDLESS, BarCounter
from emulator.metrics.readings import NOTHING, Counter, Rank, Reading, fields_of, number
from emulator.metrics.step_lines import HAS_STEP, HINTS, FieldsCounter
from emulator.validation.patterns import Pattern


@dataclass(frozen=True)
class Format:
    """One way to report progress."""

    shows: str
    """What it reads, for the documentation."""
    hints: Sequence[str]
    """Every line of this format has one of these in it: most lines of a program have none."""
    counter: Callable[[], Counter]
    filter: re.Pattern[str] | None = None
    """And all of these lines match this."""
    rank: Rank = Rank.EVIDENT
    is_drawn: bool = False
    """It is read as it is drawn, before its line is finished."""


LONGEST = 4000
"""Characters of a text that is read: the time of a search may grow with the square of its length.
"""
ACCURACY = (
    "acc",
    "sparse_categorical_accuracy",
    "categorical_accuracy",
    "binary_accuracy",
    "train_accuracy",
    "train_acc",
    "eval_accuracy",
    "val_accuracy",
    "val_acc",
    "test_accuracy",
    "test_acc",
)
"""Names of an accuracy; the first that is there is `accuracy`, where nothing has that name."""


def with_accuracy(values: Mapping[str, object]) -> dict[str, object]:
    """Return values with an `accuracy`, if one of them is one."""
    found = [values[name] for name in ("accuracy", *ACCURACY) if name in values]
    return {**values, **({"accuracy": found[0]} if found else {})}


# --- Keras ----------------------------------------------------------------------------------------

_KERAS_BAR = re.compile(
    r"^\s*(?P<batch>\d+)/(?P<batches>\d+|Unknown)\s+(?P<rest>(?:\[|━|\S*\s*\d+s).*)",
    re.ASCII,
)
_KERAS_EPOCH = re.compile(r"^Epoch (\d+)/\d+\s*$", re.ASCII)


@dataclass
class KerasCounter:
    """`Epoch 2/5`, then `12/100 [==>...] - loss: 0.41` or `12/100 ━━━ 1s 5ms/step - loss: 0.41`.

    Without more than one epoch there is no `Epoch` line. Over data of unknown length the first
    epoch draws `12/Unknown`. After a resume in the fifth epoch over such data, Keras 2 shows five
    times the steps of an epoch: `30/150`. `evaluate` and `predict` draw bars too, and downloads do.
    """

    epoch: int = 0
    """From 0."""
    batch: int = 0
    """The last one of this epoch."""
    batches: int = 0
    """Steps of an epoch; 0: not known yet."""
    has_epoch_lines: bool = False
    usual: int = 0
    """Steps of an epoch in an earlier start, where this one does not know them yet."""
    shown: int = 0
    """The total that Keras 2 shows after a resume; 0: that of an epoch."""
    download: int = 0
    """Bytes of the last download; -1: its bar is the next."""

    def read_text(self, text: str) -> Reading | None:
        """Return the step, counted across epochs."""
        head = text[:40].lstrip()[:20]  # many lines have a path in them, and few begin with one
        if not head[:1].isdigit() or "/" not in head:
            self._note(text)
            return None
        if not (match := _KERAS_BAR.search(text)):
            return None
        batch, total = int(match[1]), int(match[2]) if match[2] != "Unknown" else 0
        if total and not self.batches and 0 < self.batch < self.batch * (self.epoch + 1) <= total:
            self.shown = total
        if total == self.shown > 0:
            total = total // (self.epoch + 1) if not self.batches else self.batches
            batch = min(batch, total)
        if self.download < 0 < total:
            self.download = total
        if self.download < 0 or 0 < total == self.download:
            return NOTHING
        rest = match[3]
        # Before its end, the bar of Keras 2 shows sums over replicas.
        has_values = batch == total and " ETA: " not in rest
        values = fields_of(rest.split(" - "), ": ") if has_values else {}
        if not self._trains(batch, total, is_bar="[" in rest or "━" in rest):
            return Reading(None, values)
        begins = not self.batch
        self.batch, self.batches = batch, total or self.batches
        length = self.batches or self.usual
        if self.epoch and not length:
            return NOTHING  # how many steps the epochs before it had is not known
        before = self.epoch * length
        opened = before if begins else None
        return Reading(before + batch, values, is_over=batch == total, opened=opened)

    def _note(self, text: str) -> None:
        if text.startswith("Downloading data"):
            self.download = -1
        elif text.startswith("Epoch ") and (match := _KERAS_EPOCH.search(text)):
            self.epoch, self.batch = int(match[1]) - 1, 0
            self.has_epoch_lines, self.download = True, max(self.download, 0)

    def _trains(self, batch: int, total: int, *, is_bar: bool) -> bool:
        """Return whether a bar is one of `fit`; without `Epoch` lines a second one is the next."""
        if total and self.batches and total != self.batches:
            # Only the first epoch of unknown length ends otherwise than it began.
            return False
        is_over = 0 < self.batches == self.batch
        if not is_over:
            return batch >= self.batch
        if self.has_epoch_lines or (batch == total and is_bar):
            return batch == total  # drawn again, maybe after what a callback has printed
        self.epoch, self.batch = self.epoch + 1, 0
        return True

    def again(self) -> Self:
        """Return a counter for the next start: the length of an epoch may be another."""
        return type(self)(usual=self.batches or self.usual)


# --- Lines ----------------------------------------------------------------------------------------


EPOCH_GROUPS = ("epoch", "steps_per_epoch")
"""With both of these groups, `step` is a step of the epoch."""


@dataclass
class GroupsCounter:
    """The named groups of a pattern: `step` is the global step, others are values.

    With the groups of EPOCH_GROUPS, steps are counted across epochs. Without `step`, all groups are
    values of the last step.
    """

    pattern: Pattern | re.Pattern[str]
    first_epoch: int = 1
    """0 in programs that count from 0."""

    def read_text(self, text: str) -> Reading | None:
        """Return the groups, as numbers where they are."""
        match = self.pattern.search(text)
        if not match:
            return None
        texts = ((name, match[group]) for name, group in self.pattern.groupindex.items())
        values = {name: number(text) for name, text in texts if text}
        if "step" not in self.pattern.groupindex:
            return Reading(None, values)
        step = values.pop("step", None)
        # The group may match something that is no number, or take no part in the match.
        return Reading(self._across_epochs(step, values), values) if isinstance(step, int) else None

    def _across_epochs(self, step: int, values: Mapping[str, object]) -> int:
        epoch, length = (values.get(name) for name in EPOCH_GROUPS)
        if not isinstance(epoch, int) or not isinstance(length, int):
            return step
        self.first_epoch = min(self.first_epoch, epoch)
        return (epoch - self.first_epoch) * length + step

    def again(self) -> Self:
        """Return a counter for the next start, which knows the number of the first epoch."""
        return replace(self)


_TF1_HOOKS = re.compile(
    r"^loss = (?P<loss>[\d.eE+-]+), (?:global_)?step = (?P<step>\d+)(?: \([\d.]+ sec\))?$",
    re.ASCII,
)
_TF1_GLOBAL_STEP = re.compile(
    r"^(?:[\d.]+: )?(?:Worker \d+: )?[Tt]raining step \d+ done \(global step: (?P<step>\d+)\)$",
    re.ASCII,
)
_PYTORCH_EXAMPLE = re.compile(
    r"^Train Epoch: (\d+) \[(\d+)/(\d+) \(\s*\d+%\)\](?:\s+[Ll]oss[:=] ?(\d+(?:\.\d+)?))?",
    re.ASCII,
)
_PYTORCH_RESULT = re.compile(r"(?:^accuracy=|Accuracy: )(\d+(?:\.\d+)?)(?:/(\d+))?", re.ASCII)


@dataclass
class ExamplesCounter:
    """`Train Epoch: 2 [640/60000 (1%)]  Loss: 0.41`: the step is the number of examples seen."""

    first_epoch: int = 1
    """0 in programs that count from 0."""

    def read_text(self, text: str) -> Reading | None:
        """Return the number of examples, counted across epochs, or the accuracy of a test."""
        if match := _PYTORCH_EXAMPLE.search(text):
            epoch, examples, total = (int(match[group]) for group in (1, 2, 3))
            self.first_epoch = min(self.first_epoch, epoch)
            examples += (epoch - self.first_epoch) * total
            loss = {"loss": float(match[4])} if match[4] else {}
            return Reading(examples, {"examples": examples, **loss})
        if match := _PYTORCH_RESULT.search(text):
            right, of = float(match[1]), float(match[2] or 1)
            return Reading(None, {"accuracy": right / of}) if 0 <= right <= of else NOTHING
        return None

    def again(self) -> Self:
        """Return a counter for the next start, which knows the number of the first epoch."""
        return replace(self)


_IMAGENET = re.compile(
    r"^Epoch: \[(\d+)\]\[ *(\d+)/(\d+)\]\s(?:.*\bLoss (\d+(?:\.\d+)?(?:[eE][+-]?\d+)?) )?",
    re.ASCII,
)
_TIMM = re.compile(
    r"^Train: (\d+) \[ *(\d+)/(\d+) \( *\d+%\)\](?:.*?\bLoss: *(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?))?",
    re.ASCII,
)
_IMAGENET_RESULT = re.compile(r"^ ?\* +(?:Prec|Acc)@1 (\d+(?:\.\d+)?)", re.ASCII)


@dataclass
class BatchesCounter:
    """`Epoch: [2][10/5005]  Loss 6.9e+00 (7.0e+00)`, `Train: 2 [10/5005 (0%)]`: epochs from 0."""

    first_batch: int = 1
    """0 in programs that count from 0."""

    def read_text(self, text: str) -> Reading | None:
        """Return the number of batches, counted across epochs, or the accuracy of a test."""
        if match := _IMAGENET.search(text) or _TIMM.search(text):
            epoch, batch, batches = (int(match[group]) for group in (1, 2, 3))
            self.first_batch = min(self.first_batch, batch)
            loss = {"loss": float(match[4])} if match[4] else {}
            return Reading(epoch * batches + batch + 1 - self.first_batch, loss)
        if match := _IMAGENET_RESULT.search(text):
            percent = float(match[1])
            return Reading(None, {"accuracy": percent / 100}) if percent <= 100 else NOTHING
        return None

    def again(self) -> Self:
        """Return a counter for the next start, which knows the number of the first batch."""
        return replace(self)


_TUTORIAL_EPOCH = re.compile(r"^Epoch (\d+)$", re.ASCII)
_TUTORIAL = re.compile(r"^loss: (\d+(?:\.\d+)?) +\[ *(\d+)/ *(\d+)\]$", re.ASCII)
_TUTORIAL_RESULT = re.compile(r"^ ?Accuracy: (\d+(?:\.\d+)?)%, Avg loss: ", re.ASCII)


@dataclass
class TutorialCounter:
    """`Epoch 2`, then `loss: 0.41  [  640/60000]`: the step is the number of examples seen."""

    epoch: int = 0
    """From 0."""

    def read_text(self, text: str) -> Reading | None:
        """Return the number of examples, counted across epochs, or the accuracy of a test."""
        if match := _TUTORIAL_EPOCH.search(text):
            self.epoch = max(int(match[1]) - 1, 0)
        if match := _TUTORIAL.search(text):
            examples = self.epoch * int(match[3]) + int(match[2])
            return Reading(examples, {"examples": examples, "loss": float(match[1])})
        if match := _TUTORIAL_RESULT.search(text):
            percent = float(match[1])
            return Reading(None, {"accuracy": percent / 100}) if percent <= 100 else NOTHING
        return None

    def again(self) -> Self:
        """Return a counter for the next start, which begins with the first epoch."""
        return type(self)()


_TF_BENCHMARKS = re.compile(
    r"^(?P<step>\d+)\t(?:images|examples)/sec: [^\t]*\t(?P<loss>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)",
    re.ASCII,
)
_ROUND = re.compile(r"^\[(\d+)\]\t(\S+:\d.*)", re.ASCII)


class RoundsCounter:
    """`[10]<tab>validation-logloss:0.49` of XGBoost: the step is the number of boosting rounds."""

    def read_text(self, text: str) -> Reading | None:
        """Return the number of rounds, which are counted from 0, with what was evaluated."""
        if match := _ROUND.search(text):
            return Reading(int(match[1]) + 1, fields_of(match[2].split("\t"), ":"))
        return None

    def again(self) -> Self:
        """Return a counter for the next start."""
        return type(self)()


_EPOCH = re.compile(
    r"^[Ee]poch:? (\d+)(?: in \d+(?:\.\d+)? sec$|(?:,|/\d+ -) (\w+: \d.*)|: \{('\w+': \d.*)\}$)",
    re.ASCII,
)
_EPOCH_RESULT = re.compile(r"^Test set accuracy (\d+(?:\.\d+)?)$", re.ASCII)


@dataclass
class EpochsCounter:
    """`Epoch: 2, accuracy: 0.94, train_loss: 0.19.`: the step is the number of epochs."""

    first_epoch: int = 1
    """0 in programs that count from 0."""

    def read_text(self, text: str) -> Reading | None:
        """Return the number of epochs with their values, or the accuracy of a test."""
        if match := _EPOCH.search(text):
            epoch = int(match[1])
            self.first_epoch = min(self.first_epoch, epoch)
            fields = (
                (match[2] or match[3] or "").rstrip(".").lower().replace(" - ", ", ").split(", ")
            )
            values = fields_of(fields, ": ")
            for name, value in values.items():
                # Some print percent. NaN is neither.
                if "accuracy" in name and isinstance(value, int | float) and 1 < value <= 100:
                    values[name] = value / 100
            return Reading(epoch + 1 - self.first_epoch, values)
        if match := _EPOCH_RESULT.search(text):
            return Reading(None, {"accuracy": float(match[1])})
        return None

    def again(self) -> Self:
        """Return a counter for the next start, which knows the number of the first epoch."""
        return replace(self)


FORMATS: Mapping[str, Format] = {
    "keras": Format(
        "`Epoch 2/5`, then `12/100 [==>...] - loss: 0.41` of Keras 2 or"
        " `12/100 ━━━ 1s - loss: 0.41` of Keras 3; steps are counted across epochs",
        ("/", "Downloading data"),
        KerasCounter,
        is_drawn=True,
    ),
    "tqdm": Format(
        "bars of tqdm, Lightning, Hugging Face's Trainer and Ignite, such as"
        " `12%|█▏  | 12/100 [00:01<00:07, 11.5it/s, loss=0.41]`; steps are counted across bars",
        ("%|", " • ", "{'", "/? [", *(f"{unit} [" for unit in ENDLESS)),
        BarCounter,
        is_drawn=True,
    ),
    "tf1-hooks": Format(
        "`loss = 0.41, step = 200` of `LoggingTensorHook` and Estimator",
        ("step = ",),
        lambda: GroupsCounter(_TF1_HOOKS),
    ),
    "tf1-global-step": Format(
        "`training step 1951 done (global step: 8084)`",
        ("global",),
        lambda: GroupsCounter(_TF1_GLOBAL_STEP),
    ),
    "pytorch-example": Format(
        "`Train Epoch: 1 [640/60000 (1%)]  Loss: 0.41`; the step is the number of examples",
        ("Train Epoch: ", "ccuracy"),
        ExamplesCounter,
    ),
    "pytorch-imagenet": Format(
        "`Epoch: [2][10/5005]  Time 0.2  Loss 6.9e+00 (7.0e+00)` and ` * Acc@1 75.1` of PyTorch's"
        " ImageNet example, `Train: 2 [  10/5005 (  0%)]  Loss: 6.9` of timm; steps are counted"
        " across epochs",
        ("Epoch: [", "@1 ", "Train: "),
        BatchesCounter,
    ),
    "pytorch-tutorial": Format(
        "`Epoch 2`, then `loss: 0.41  [  640/60000]` and ` Accuracy: 98.3%, Avg loss: 0.06` of"
        " PyTorch's tutorials; the step is the number of examples",
        ("Epoch ", "loss: "),
        TutorialCounter,
    ),
    "tf-benchmarks": Format(
        "`10  images/sec: 5.6 +/- 0.1 (jitter = 0.2)  7.4` of tf_cnn_benchmarks",
        ("s/sec: ",),
        lambda: GroupsCounter(_TF_BENCHMARKS),
    ),
    "xgboost": Format(
        "`[10]  validation-logloss:0.49` of XGBoost; the step is the number of rounds",
        ("]\t",),
        RoundsCounter,
    ),
    "epochs": Format(
        "`Epoch: 2, accuracy: 0.94, train_loss: 0.19` of TensorFlow's custom loops, `Epoch 2/5 -"
        " Loss: 0.41, Acc: 0.9` of Kubeflow's JAX example, `epoch 2:"
        " {'accuracy': 0.94}` of Accelerate's examples, `Epoch 2 in 0.52 sec` and `Test set"
        " accuracy 0.9` of JAX' examples; the step is the number of epochs",
        ("poch", "Test set accuracy"),
        EpochsCounter,
        rank=Rank.EPOCHS,
    ),
    "fields": Format(
        "any line that is all names and numbers, with a step and a second number or a total, such"
        " as `step 10: loss 1.81`, `Epoch [1/3], Step [10/60], Loss: 0.5`, `iter 10: loss 4.1, time"
        " 10.00ms`",
        HINTS,
        FieldsCounter,
        HAS_STEP,
    ),
}
"""Every format, by its name in `metrics: {steps: ...}`; `auto` tries them in this order."""
