r"""Progress bars of tqdm and its relatives: which of them is the training's, and its steps (pure).

Many bars are drawn that are no training: data is downloaded, tokenized and grouped, models are
loaded and evaluated. So a bar needs evidence (`Rank.EVIDENT`): its title (`Training`, `Epoch 3`),
its unit (`step/s`), a value such as a loss beside it, or the lines of Hugging Face's Trainer that
are printed while it is drawn. A bar without a title (`for batch in tqdm(loader)`) counts as long as
there is nothing better. A bar whose title or unit says something else never counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Self

from emulator.metrics.readings import NOTHING, Rank, Reading, Source, fields_of
from emulator.validation.patterns import Pattern

_TQDM = Pattern(
    r"^(?:(?P<title>.*?):? +)?\d+%\|[^|]*\| *(?P<done>\d+)/(?P<total>\d+)"
    r" \[[^,\]<]*<[^,\]]*, *(?P<rate>[^,\]]+)(?:, (?P<values>[^\]]*))?\]"
)
_IGNITE = Pattern(
    r"^(?:(?P<title>.*?):? +)?\[(?P<done>\d+)/(?P<total>\d+)\] +\d+%\|[^,|\[]*()"
    r"(?:, (?P<values>[^\[]*))?\[[^\]]*\]"
)
_RICH = Pattern(
    r"^(?P<title>Epoch \d+/\d+) +[━╸╺ ]*(?P<done>\d+)/(?P<total>\d+) +[\d:]+ • \S+"
    r" +(?P<rate>\S+it/s)(?: +(?P<values>.*))?"
)
_TRAINER = "{'"
"""Hugging Face's Trainer prints its values as a Python dictionary, without a step."""
TRAINER_LINES = "lines `{'loss': ..}` of Hugging Face's Trainer, which have no step"
BARS = 20
"""Different bars of a program that are counted; of further ones the oldest is forgotten."""

# --- What a title and a unit say ------------------------------------------------------------------

TITLE = 200
"""Characters of a title that are looked at, from its end."""
_LOSS_IN_TITLE = re.compile(r"(\w*loss\w*)\s?[:=]?\s?(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)", re.I)
_EPOCH_IN_TITLE = re.compile(r"\bep(?:och)?s?\b\W{0,3}(\d+)\b(?!\.\d)", re.I)
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_NUMBERS = re.compile(r"[\[(]?#(?: ?/ ?#)?[\])]?")
_WORD = re.compile(r"[a-z]+")
_UNIT = re.compile(r"([a-z]*)/([a-z]*)", re.I)

_TRAINS = ("train", "pretrain", "fit", "finetun", "fine", "optimi", "learning")
"""Beginnings of words that say that a bar is training."""
_COUNTS = frozenset({
    "epoch", "epochs", "ep", "step", "steps", "iter", "iters", "iteration", "iterations", "it",
    "batch", "batches", "update", "updates", "loss",
})  # fmt: skip
"""Words that say so too, where no other word says otherwise; and units of training."""
_OTHERWISE = (
    "validat", "eval", "test", "predict", "infer", "sampl", "denois", "sanity", "generat",
    "load", "download", "upload", "fetch", "read", "writ", "sav", "extract", "copy", "convert",
    "map", "filter", "tokeniz", "process", "preprocess", "prepar", "add", "apply", "pack", "group",
    "truncat", "cast", "creat", "build", "collect", "comput", "resolv", "cach", "index", "shuffl",
    "split", "merg", "scan", "check", "encod", "decod", "running", "push", "quantiz", "calibrat",
)  # fmt: skip
"""Beginnings of words that say that a bar is something else, where no word of training is first."""
_EXACTLY_OTHERWISE = frozenset({"val", "vals", "valid", "dev"})
_DATA = frozenset({
    "data", "dataset", "datasets", "tokenizer", "file", "files", "shard", "shards", "vocab",
    "vocabulary", "checkpoint", "checkpoints", "weights", "examples", "chunks", "corpus", "tokens",
    "split", "splits", "features",
})  # fmt: skip
"""Words of titles of data preparation, also beside `train`: `Adding EOS to train dataset`."""
_MACHINES = frozenset({"rank", "gpu", "cpu", "cuda", "device", "worker", "process", "proc", "node",
                       "local", "global", "main"})  # fmt: skip
"""A title of nothing but these and numbers is none."""
_UNITS = _COUNTS - {"it", "epoch", "epochs", "ep", "loss"}
_HAS_LOSS = re.compile(r"loss|^lr$|learning_rate|grad|reward|perplexity|^ppl$|^(global_)?step$")
"""Names of values that only training shows."""


def _says(words: Sequence[str]) -> bool | None:
    """Return whether the words of a title say that a bar is training; None: they don't say."""
    if _DATA.intersection(words):
        return False
    for word in words:
        if word.startswith(_TRAINS):
            return True
        if word.startswith(_OTHERWISE) or word in _EXACTLY_OTHERWISE:
            return False
    return True if _COUNTS.intersection(words) else None


@lru_cache(maxsize=1024)
def rank_of(kind: str, unit: str) -> Rank | None:
    """Return what the title and the unit of a bar say; None: that depends on its values.

    `kind` is the title with # for each number.
    """
    words = _WORD.findall(kind.lower())
    says = _says(words)
    if says is False or unit not in {"", "it", "epoch", *_UNITS}:
        # Others are of data: examples/s, ba/s, MB/s, files/s.
        return Rank.NONE if says is not True or unit.endswith("B") else _titled(unit)
    if unit == "epoch" or (words in (["epoch"], ["epochs"]) and "#" not in kind):
        return Rank.EPOCHS
    if says or unit in _UNITS:
        return Rank.EVIDENT
    return Rank.PLAIN if _MACHINES.issuperset(words) else None


_NEVER = frozenset({"examples", "example", "ex", "ba", "files", "file", "rows", "row"})
"""Units of data sets, whatever the title says."""


def _titled(unit: str) -> Rank:
    """Return the rank of a bar whose title says that it is training, with a unit of its own."""
    return Rank.NONE if unit in _NEVER else Rank.EVIDENT


def _unit(rate: str) -> str:
    """Return the unit of `11.5it/s`, `1.50s/it`, `345 examples/s`, as tqdm prints it."""
    if not (match := _UNIT.search(rate)):
        return ""
    return match[1] if match[2] == "s" else match[2]


# --- Counting -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Habits:
    """What holds for all bars of one title in a program, also after a restart."""

    first_epoch: int | None = None
    """What it calls its first epoch: 0 or 1."""
    has_step: bool = False
    """The global step is one of the values beside the bar."""
    has_local_step: bool = False
    """One of the values is named step, and begins again with each epoch."""


@dataclass(frozen=True)
class _Bar:
    """All bars of one title and one length."""

    before: int = 0
    """Steps of the bars before this one."""
    done: int = 0
    """Of this bar."""
    epoch: int | None = None
    step: int = 0
    """The last global step that was among its values."""


@dataclass(frozen=True)
class _Drawn:
    """What one drawing of a bar shows."""

    title: str
    done: int
    total: int
    unit: str
    values: Mapping[str, object]
    starts_at_0: bool = False
    """Its epochs are numbered from 0, whatever its first one is."""

    @property
    def epoch(self) -> int | None:
        """Return the number of the epoch: after that word, or in a title of numbers only."""
        if match := _EPOCH_IN_TITLE.search(self.title):
            return int(match[1])
        first = None if _WORD.search(self.title.lower()) else _NUMBER.search(self.title)
        return int(first[0]) if first and "." not in first[0] else None

    @property
    def kind(self) -> str:
        """Return the title with # for each number."""
        return _NUMBER.sub("#", self.title).strip(" :|-,")

    @property
    def name(self) -> str:
        """Return the title for users: without the numbers of epochs, which change."""
        if self.epoch is None:
            return self.title.strip(" :|-,")
        return " ".join(_NUMBERS.sub(" ", self.kind).split()).strip(" :|-,")


def _drawn(text: str) -> _Drawn | None:
    """Return what is drawn, if it is a bar."""
    for pattern in (_TQDM, _IGNITE, _RICH):
        if match := pattern.search(text):
            break
    else:
        return None
    title, done, total, rate, beside = (one or "" for one in match[1:6])
    title = title[-TITLE:]
    values = {**_bar_values(beside), **fields_of(_losses(title), "=")}
    if pattern is _IGNITE and not title:
        title = "Epoch"  # it names its first bar late
    return _Drawn(
        _LOSS_IN_TITLE.sub(r"\1", title),
        int(done),
        int(total),
        _unit(rate),
        values,
        starts_at_0=pattern is _RICH,
    )


def _losses(title: str) -> list[str]:
    """Return the losses in a title, as `loss=0.41`: some programs describe a bar with them."""
    return [f"{name.lower()}={value}" for name, value in _LOSS_IN_TITLE.findall(title)]


def _bar_values(text: str) -> dict[str, object]:
    """Return `loss=0.41, acc=0.9`, or `loss: 0.41 acc: 0.9` as Rich prints them."""
    if "=" in text:
        return fields_of(text.split(", "), "=")
    words = text.split()
    return fields_of([" ".join(pair) for pair in zip(words[::2], words[1::2], strict=False)], ": ")


@dataclass
class BarCounter:
    """Bars of tqdm: its own, and those of Lightning, Ignite and Hugging Face's Trainer.

    Each bar is counted by itself: bars with the same title and length are one. With the number of
    an epoch in the title the step is counted from that; without one each further bar is the next
    epoch. Where the bar shows a global step beside it (`step=29`), that is the step.
    """

    bars: Mapping[str, _Bar] = field(default_factory=dict)
    """Replaced, not changed: a copy of the counter reads ahead."""
    habits: Mapping[str, _Habits] = field(default_factory=dict)
    """By title."""
    evident: set[str] = field(default_factory=set)
    """Bars during which the Trainer printed a loss; no count, so copies share it."""
    drawn_last: str = ""
    """The bar that is being drawn; empty: none, or it is at its end."""

    def read_text(self, text: str) -> Reading | None:
        """Return the step, counted across bars."""
        if text.startswith(_TRAINER):
            return self._trainer(fields_of(text.strip("{}").split(", "), ": "))
        drawn = _drawn(text)
        return None if drawn is None else self._bar(drawn) if drawn.done else NOTHING

    def again(self) -> Self:
        """Return a counter for the next start: how epochs are numbered is known."""
        return type(self)(habits=self.habits, evident=self.evident)

    def _trainer(self, values: dict[str, object]) -> Reading:
        if "loss" not in values:
            return Reading(None, values)
        if self.drawn_last:
            self.evident.add(self.drawn_last)
        return Reading(None, values, Source("trainer", TRAINER_LINES, Rank.NONE))

    def _bar(self, drawn: _Drawn) -> Reading:
        source = self._source(drawn)
        if source.rank is Rank.NONE:
            return Reading(None, {}, source)
        self.drawn_last = source.key if drawn.done < drawn.total else ""
        values = {**drawn.values}
        shown = values.pop("step", values.pop("global_step", None))
        step = self._count(drawn, source.key, shown if isinstance(shown, int) else None)
        return Reading(step, values, source)

    def _source(self, drawn: _Drawn) -> Source:
        kind, key = drawn.kind, f"{drawn.kind}|{drawn.total}"
        rank = rank_of(kind, drawn.unit)
        if key in self.evident and rank is not Rank.NONE:
            rank = Rank.EVIDENT
        if rank in (None, Rank.PLAIN) and any(map(_HAS_LOSS.search, drawn.values)):
            rank = Rank.EVIDENT
        elif rank is None:
            rank = Rank.PLAIN if any("acc" in name for name in drawn.values) else Rank.NONE
        name = drawn.name
        title = f"the bar `{name}`" if name else "a bar without a title"
        return Source(key, f"{title} ({drawn.total})", rank)

    def _count(self, drawn: _Drawn, key: str, shown: int | None) -> int | None:
        """Return the global step of a bar; None where only the values beside it have one."""
        bar, habits = self.bars.get(key, _Bar()), self.habits.get(drawn.kind, _Habits())
        epoch, before = drawn.epoch, bar.before
        is_next = epoch != bar.epoch if epoch is not None else drawn.done < bar.done
        if epoch is not None:
            first = 0 if drawn.starts_at_0 else min(epoch, 1)
            if habits.first_epoch is not None:
                first = min(first, habits.first_epoch)
            habits = replace(habits, first_epoch=first)
            before = (epoch - first) * drawn.total
        elif is_next:
            before += bar.done
        if shown is not None:
            local = habits.has_local_step or (is_next and shown < bar.step)
            habits = replace(habits, has_step=not local, has_local_step=local)
        step = shown if habits.has_step else before + drawn.done
        bar = _Bar(before, drawn.done, epoch, bar.step if shown is None else shown)
        kept = {name: one for name, one in self.bars.items() if name != key}
        self.bars = {**dict([*kept.items()][1 - BARS :]), key: bar}
        self.habits = {**dict([*self.habits.items()][-BARS:]), drawn.kind: habits}
        return step
