r"""Lines of names and numbers, such as `step 10 | loss: 0.41`: their step and values (pure).

Most training programs print their progress with a `print` of their own, behind what a launcher or a
logger puts before each line. A line is progress if all of it is names and numbers, one of the names
is one of a step (STEP_NAMES), and something is measured beside it. So sentences, paths and
configurations (`Resumed at step 10`, `max step = 5000`) are none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

from emulator.metrics.readings import Rank, Reading, Source

HINTS = (*("tep", "ter", "poch", "atch", "pdate", "TEP", "POCH", "] loss", "]\tLoss"),)
"""Every line that FieldsCounter reads has one of these in it."""
LENGTH = 2000
"""Characters of a line that can be one of fields."""
NAME_WORDS = 5
"""Words of a name: more are a sentence."""
EPOCHS = 1000
"""Epochs whose first step is kept; of further ones the oldest is forgotten."""

# --- What stands before a line --------------------------------------------------------------------

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_HEAD = 300
"""Characters of a line in which prefixes are looked for."""
_PREFIXES = 8
"""Prefixes of a line that are removed."""
_BEGINS = "[(0123456789IDNWE>"
"""What a prefix can begin with: most lines begin otherwise."""

_LEVEL = r"(?:INFO|DEBUG|NOTICE|WARNING|WARN|ERROR)"
_TIME = (
    r"(?:\d{2,4}[-/]\d\d(?:[-/]\d{2,4})?[T ])?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
    r"(?:Z|[+-]\d\d:?\d\d)?"
)
_LAUNCHER = re.compile(
    r"(?:\[[A-Za-z_]+\d+\]:"  # torchrun --tee, NCCL's way of naming ranks
    r"|\[(?:[Rr]ank|RANK|GPU|gpu)[ :=]?\d+\]:?"
    r"|\(\w+ pid=\d+(?:, ip=[\d.:a-f]+)?\)"  # Ray
    r"|\[\d+,\d+\]<std(?:out|err)>:"  # mpirun --tag-output
    r"|\[[\w.-]+\](?= \[?\d{4}-\d\d-\d\d[T ])"  # torchtitan
    r")\s*"
)
_LOGGER = re.compile(
    rf"(?:\[{_TIME}(?: [A-Za-z_][\w.]*)?\]:?"
    rf"|{_TIME}(?![\w:])"
    r"|[IWEFD]\d{4,8} \d\d:\d\d:\d\d\.\d+ +\d+ [\w./-]+:\d+\]"  # glog, absl
    rf"|\[{_LEVEL}(?:\|[\w.-]+:\d+)?\]"
    rf"|{_LEVEL}:[A-Za-z_][\w.]*:(?![\d.])"
    rf"|{_LEVEL}(?=[\s:|-])"
    r"|\[[\w./-]+\.py:\d+(?::\w+)?\]"
    rf"|\[[A-Za-z_][\w.]*\](?=\[{_LEVEL}\])"  # Hydra
    r"|>>(?= )"
    r")(?::|\s*[|-](?=\s))?\s*"
)
_LOGGER_NAME = re.compile(r"([A-Za-z_][\w.]*)(?::\w+)*(?:\t| +[|-] )\s*(?![\d.+-])")


def body_of(line: str) -> str:
    """Return a line without ANSI codes and without what launchers and loggers put before it."""
    if "\x1b" in line:
        line = _ANSI.sub("", line)
    line = line.lstrip()
    if line[:1] not in _BEGINS:
        return line
    at, is_logged = 0, False
    for _ in range(_PREFIXES):
        if match := _LOGGER.match(line, at, _HEAD):
            is_logged = True
        elif not (match := _LAUNCHER.match(line, at, _HEAD)) and is_logged:
            match = _LOGGER_NAME.match(line, at, _HEAD)
            if match and _is_label(match[1].lower()):
                break
        if not match:
            break
        at = match.end()
    return line[at:].lstrip() if at else line


def _is_label(name: str) -> bool:
    """Return whether a word where a logger's name may be says what the line is about."""
    return _EVALUATES.search(name) is not None or name in {"epoch", *STEP_NAMES}


# --- Names and numbers ----------------------------------------------------------------------------

_NUMBER = (
    r"[-+]?(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
    r"|(?<!of )-?(?i:nan|inf)\b"  # `number of nan iterations` is a name
)
_TOKEN = re.compile(
    # A time, and a list: values that are no number.
    r"(?:(?P<other>(?:\d+ days?, )?\d+:\d\d(?::\d\d)?(?:\.\d+)?(?![\w:])"
    r"|\d+[dhm]\d+[hms](?:\d+s)?\b"
    r"|[\[(]{1,2}[-+\d.e ]{1,40},[-+\d.e(), naif]{1,200}[\])])"
    rf"|(?P<number>{_NUMBER})(?:(?:\s{{0,20}}/\s{{0,20}}|\sof\s)(?P<total>{_NUMBER})"
    rf"|\s?(?:\+/-|\+-|±)\s?(?:{_NUMBER}))?(?P<unit>%|[A-Za-zµ][A-Za-z/]{{0,20}})?(?![\w.@/])"
    r"|(?P<word>[^\W\d](?:[\w./@-]*\w)?)"
    r"|(?P<note>\([^\W\d][\w %/.-]{0,30}(?:\(\w{1,10}\))?\))"
    r"|(?P<bracket>[\[\](){}])"
    r"|(?P<separator>(?:[\s:=,|;'\"#]|-(?![\d.]))+))\s*"
)
_HARD = re.compile(r"[,|;]")
"""A separator after which no name goes on."""
_PAIR = re.compile(r"\[(\d+)(?:/\d+)?(?:, *|\] ?\[)(\d+)(?:/(\d+))?\](?=\s)")
"""`[1,  2000] loss: 2.2` and `[1/5][20/100]  Loss_D: 0.5` of PyTorch's tutorials."""
_NO_NUMBER = frozenset({"n/a", "none", "true", "false"})
_UNITS = frozenset({
    "%", "ms", "us", "µs", "ns", "s", "sec", "secs", "second", "seconds", "m", "min", "mins",
    "minutes", "h", "hr", "hrs", "hours", "d", "days", "b", "kb", "mb", "gb", "tb", "kib", "mib",
    "gib", "tib", "k", "g", "t", "x", "it", "its", "tokens", "tok", "samples", "examples", "images",
    "steps", "tflops", "gflops", "w", "c",
})  # fmt: skip
_RATE = re.compile(r"[a-z]+(?:/[a-z]+){1,2}")


class Field(NamedTuple):
    """A name, and the number after it."""

    name: str
    """Lower-cased and with spaces: `global step`."""
    value: float | None
    """An int, where it is one. None: a time, a list, `n/a`."""
    total: int | None = None
    unit: str = ""
    """Attached to the number."""


class Fields(NamedTuple):
    """What a line has in it."""

    label: str
    """What stands before the first name: `train | step: 10`; empty: nothing."""
    fields: Sequence[Field]


def fields_in(body: str) -> Fields | None:
    """Return the fields of a line; None where anything of it is no name and no number."""
    if len(body) > LENGTH:
        return None
    fields: list[Field] = []
    at = 0
    if match := _PAIR.match(body):
        if "loss" not in body.lower():
            return None
        total = int(match[3]) if match[3] else None
        fields += [Field("epoch", int(match[1])), Field("batch", int(match[2]), total)]
        at = match.end()
    parser = _Parser(fields)
    while at < len(body):
        token = _TOKEN.match(body, at)
        if token is None or not parser.takes(token):
            return None
        at = token.end()
    return Fields(" ".join(parser.label), fields) if parser.ends_name() and fields else None


class _Parser:
    """Takes one token of a line after another."""

    def __init__(self, fields: list[Field]) -> None:
        self.fields = fields
        self.label: list[str] = []
        self.words: list[str] = []
        """Of the name before the next number."""
        self.depth = 0
        """Parentheses that are open."""
        self.is_assigned = False
        """A colon or an equals sign is after the words."""
        self.is_after_number = False
        """The next word may be its unit."""
        self.is_unit = False
        """The only word may be the unit of the number before it."""
        self.is_bare = False
        """That number has no name, so it needs a unit: `| 5.1 ms |`."""

    def takes(self, token: re.Match[str]) -> bool:
        """Take a token; return whether it fits."""
        kind = token.lastgroup or ""
        text = token[kind]
        if kind == "separator":
            return self._separator(text)
        if kind == "word":
            if self.words and text.lower() in _NO_NUMBER:
                return self._value(None)
            return self._word(text)
        if kind == "other":
            return self._value(None)
        if kind == "note":
            self._take_unit()
            if self.words and text != "(train)":
                self.words[-1] += f" {text}"
            return True
        if kind == "bracket":
            return self._bracket(text)
        number, total, unit = token.group("number", "total", "unit")
        if unit and not _is_unit(unit):
            return False
        whole = _number(total) if total else None
        return self._value(_number(number), whole if isinstance(whole, int) else None, unit or "")

    def ends_name(self) -> bool:
        """Return whether the words may end without a number: as a label, or as a unit."""
        self._take_unit()
        if self.words and (self.fields or len(self.label) > NAME_WORDS):
            return False
        self.label += self.words
        self._begin_name()
        return not self.is_bare

    def _begin_name(self) -> None:
        self.words = []
        self.is_assigned = self.is_after_number = self.is_unit = False

    def _take_unit(self) -> None:
        if self.is_unit and not self.is_assigned:
            self._begin_name()
            self.is_bare = False

    def _word(self, text: str) -> bool:
        self._take_unit()
        if self.is_assigned and not self.ends_name():
            return False
        may_be_unit = self.is_after_number and (len(text) > 1 or text in "sh")
        self.is_unit = may_be_unit and _is_unit(text)
        self.is_after_number = False
        self.words.append(text)
        return len(self.words) <= NAME_WORDS

    def _separator(self, text: str) -> bool:
        if _HARD.search(text):
            return self.ends_name()
        if self.words and (":" in text or "=" in text):
            self.is_assigned = True
        return True

    def _bracket(self, text: str) -> bool:
        if text == "(":
            self.depth += 1
        elif text == ")":
            self.depth = max(self.depth - 1, 0)
        elif text == "{" and self.is_assigned:
            self._begin_name()  # the name of the dictionary
        self.is_after_number = False
        return text in "[({" or self.ends_name()

    def _value(self, value: float | None, total: int | None = None, unit: str = "") -> bool:
        if self.is_bare:
            return False
        if self.words:
            name = " ".join(self.words).lower().replace("_", " ")
            self.fields.append(Field(name, value, total, unit))
        elif not self.depth:  # else it is the average of the one before, or its share
            if not self.fields:
                return False
            if total is not None and self.fields[-1].name in EPOCH_NAMES:
                self.fields.append(Field("batch", value, total, unit))
            else:
                self.is_bare = not unit
        self._begin_name()
        self.is_after_number = not unit
        return True


def _number(text: str) -> int | float:
    digits = text.replace(",", "")
    return int(digits) if digits.lstrip("+-").isdigit() else float(digits)


def _is_unit(word: str) -> bool:
    word = word.lower()
    return word in _UNITS or ("/" in word and _RATE.fullmatch(word) is not None)


# --- What the fields say --------------------------------------------------------------------------

_GLOBAL = (
    *("global step", "num updates", "total timesteps", "global iter", "completed step"),
    *("optimizer step", "training step", "train step"),
)
"""Names of steps that don't begin again with each epoch."""
STEP_NAMES = (
    *(*_GLOBAL, "step", "steps", "iter", "iters", "iteration", "iterations"),
    *("update", "updates", "batch"),
)
"""Names of a step, lower-cased and with spaces; of several in a line the first of these counts."""
EPOCH_NAMES = frozenset({"epoch", "train epoch", "training epoch"})

_EVALUATES = re.compile(
    r"(?<![a-z])(?:val|valid\w*|eval\w*|test\w*|predict\w*|infer\w*|sanity|dev)(?![a-z])"
)
_PREPARES = re.compile(
    r"(?<![a-z])(?:resum|restor|continu|start|skip|load|sav(?:e|ing)|checkpoint|ckpt|config|arg|hyper"
    r"|best)"
)
_SETTING_WORDS = frozenset({
    "step", "steps", "iter", "iters", "iteration", "iterations", "it", "epoch", "epochs", "batch",
    "batches", "update", "updates", "max", "min", "total", "num", "number", "of", "per", "every",
    "warmup", "interval", "size", "batchsize", "global", "micro", "local", "train", "training",
    "optimization", "optimizer", "gradient", "accumulation", "target", "start", "last", "first",
    "seed", "rank", "world", "worker", "workers", "gpu", "gpus", "node", "nodes", "device",
})  # fmt: skip
"""A name of nothing but these is a setting, and not measured."""
_WORDS = re.compile(r"[^\W\d_]+")


def _is_measured(one: Field) -> bool:
    if one.value is None or _PREPARES.search(one.name):
        return False
    return not _SETTING_WORDS.issuperset(_WORDS.findall(one.name))


def _is_count(one: Field) -> bool:
    return isinstance(one.value, int) and one.value >= 0 and not one.unit


# --- Counting -------------------------------------------------------------------------------------

HAS_STEP = re.compile(
    r"(?:[Ss]teps?|STEPS?|[Ii]ter(?:ation)?s?|ITER|[Uu]pdates?|[Bb]atch|BATCH"
    r"|(?:[Ee]poch|EPOCH)(?:\s?\(train\))?)\W+[\d.]"
    r"|\]\s[Ll]oss"
)
"""Most lines with a hint are sentences without it."""
_TABLE = re.compile(r"(?:\| +)?total_timesteps +\| +(\d+) +\|\s*")
_TABLE_SOURCE = Source("fields||total timesteps", "lines `total_timesteps | N`", Rank.EVIDENT)


@dataclass
class FieldsCounter:
    """`iter 10: loss 0.41`, `Epoch [1/3], Step [10/600], Loss: 0.41`, `[1,  2000] loss: 0.41`.

    A step within an epoch is counted across epochs: by the total beside it, or by the last step of
    each epoch before. Without a total, steps are within an epoch once they went back while the
    epoch grew.
    """

    first_epoch: int = 1
    """0 in programs that count from 0."""
    epoch: int = -1
    """The last one; -1: none yet."""
    step: int = 0
    """The last one, as printed."""
    is_local: bool = False
    """The printed step begins again with each epoch."""
    has_step_0: bool = False
    """An epoch whose last step is 9 has ten of them."""
    starts: Mapping[int, int] = field(default_factory=dict)
    """The steps before each epoch; replaced, not changed: a copy of the counter reads ahead."""

    def read_text(self, text: str) -> Reading | None:
        """Return the step, counted across epochs, with what was measured."""
        if len(text) > 2 * LENGTH:
            return None
        body = body_of(text)
        if "total_timesteps" in body and (match := _TABLE.fullmatch(body)):
            return Reading(int(match[1]), {}, _TABLE_SOURCE)
        line = fields_in(body)
        return None if line is None else self._reading(line)

    def again(self) -> Self:
        """Return a counter for the next start, which knows the epochs of this one."""
        return replace(self)

    def _reading(self, line: Fields) -> Reading | None:
        epoch = next((one for one in line.fields if one.name in EPOCH_NAMES), None)
        if epoch is not None and not _is_count(epoch):
            epoch = None  # half an epoch
        steps = [one for one in line.fields if one.name in STEP_NAMES and _is_count(one)]
        step = min(steps, key=lambda one: STEP_NAMES.index(one.name), default=epoch)
        if step is None:
            return None
        before = line.fields[: line.fields.index(step)]
        about = " ".join([line.label, *(one.name for one in before)]).lower()
        if _EVALUATES.search(about) or _PREPARES.search(about):
            return None
        measured = [one for one in line.fields if one is not step and _is_measured(one)]
        if not measured and (step is epoch or step.total is None):
            return None
        values: dict[str, object] = {}
        for one in line.fields:
            if one is not step and one.value is not None:
                values.setdefault(one.name.replace(" ", "_"), one.value)
        source = _source(line.label, step, epoch, measured)
        return Reading(self._count(step, epoch, is_after=epoch in before), values, source)

    def _count(self, step: Field, epoch: Field | None, *, is_after: bool) -> int:
        """Return the global step; `is_after` says that the epoch is before it in the line."""
        number = step.value
        assert isinstance(number, int)
        if epoch is None:
            return number
        at = epoch.value
        assert isinstance(at, int)
        self.first_epoch = min(self.first_epoch, at)
        if step is epoch or step.name in _GLOBAL:
            return number
        self.has_step_0 = self.has_step_0 or number == 0
        if 0 <= self.epoch < at:
            self.is_local = self.is_local or number <= self.step
            length = self.step + self.has_step_0
            before = self.starts.get(self.epoch, 0) + (at - self.epoch) * length
            kept = {one: self.starts[one] for one in [*self.starts][1 - EPOCHS :] if one != at}
            # After a resume the epoch may be known already: its steps keep their numbers.
            self.starts = {**kept, at: max(before, self.starts.get(at, 0))}
        self.epoch, self.step = at, number
        if step.total is not None and (is_after or self.is_local):
            return (at - self.first_epoch) * step.total + number
        return self.starts.get(at, 0) + number if self.is_local else number


def _source(label: str, step: Field, epoch: Field | None, measured: Sequence[Field]) -> Source:
    shown = f"{step.name} N" if epoch in (None, step) else f"epoch N, {step.name} N"
    rank = Rank.EPOCHS if step is epoch else Rank.EVIDENT
    if rank is Rank.EVIDENT and any(_EVALUATES.search(one.name) for one in measured):
        rank = Rank.PLAIN  # nanoGPT prints `step 250: train loss 4, val loss 4` among its `iter 1:`
    title = f"{label} | {shown}" if label else shown
    return Source(f"fields|{label}|{step.name}", f"lines `{title}`", rank)
