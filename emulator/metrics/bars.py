r"""Progress bars of tqdm and its relatives: which of them is the training's, and its steps (pure).

Many bars are drawn that are no training: data is downloaded, tokenized and grouped, models are
loaded and evaluated. So a bar needs evidence (`Rank.EVIDENT`): its title (`Training`, `Epoch 3`),
its unit (`step/s`), a value such as a loss beside it, or the lines of Hugging Face's Trainer that
are printed while it is drawn. A bar without a title (`for batch in tqdm(loader)`) counts as long as
there is nothing better. A bar whose title or unit says something else never counts.

The length of a bar is not fixed: it may be another in each epoch, or what is left. Several ranks of
one task may draw the same bar on one output, each at its own step.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Self

from emulator.metrics.readings import NOTHING, Rank, Reading, Source, fields_of

ENDLESS = ("it", "batch", "batches", "step", "steps", "iter", "update", "ex", "img", "sample")
"""Units of the bars without a length that are read."""
_AMOUNT = r"\d+(?:\.\d+)?[kMG]?"
_TQDM = re.compile(
    rf"^(?:(?P<title>.*?):? +)?\d+%\|[^|]*\| *(?P<done>{_AMOUNT})/(?P<total>{_AMOUNT})"
    r" \[[^,\]<]*<[^,\]]*, *(?P<rate>[^,\]]+)(?:, (?P<values>[^\]]*))?\]",
    re.ASCII,
)
_ENDLESS = re.compile(
    rf"^(?:(?P<title>.*?):? +)?(?P<done>{_AMOUNT})(?P<total>)(?:{'|'.join(ENDLESS)})"
    r" \[\d[\d:]*, *(?P<rate>[^,\]]+)(?:, (?P<values>[^\]]*))?\]\s*$",
    re.ASCII,
)
_LIGHTNING_ENDLESS = re.compile(
    r"^(?:(?P<title>.*?):? +)?\| +\| (?P<done>\d+)(?P<total>)/\?"
    r" \[[^,\]<]*<[^,\]]*, *(?P<rate>[^,\]]+)(?:, (?P<values>[^\]]*))?\]",
    re.ASCII,
)
_IGNITE = re.compile(
    r"^(?:(?P<title>.*?):? +)?\[(?P<done>\d+)/(?P<total>\d+)\] +\d+%\|[^,|\[]*()"
    r"(?:, (?P<values>[^\[]*))?\[[^\]]*\]",
    re.ASCII,
)
_RICH = re.compile(
    r"^(?P<title>Epoch \d+/\d+) +[━╸╺ ]*(?P<done>\d+)/(?P<total>\d+) +[\d:]+ • \S+"
    r" +(?P<rate>\S+it/s)(?: +(?P<values>.*))?",
    re.ASCII,
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
    "split", "merg", "scan", "check", "encod", "decod", "push", "quantiz", "calibrat",
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

_YOLO = re.compile(r"^\s*(\d+)/\d+\s+\S+(?:\s+\d\S*){3,}:?$")
"""The title of YOLO's bars: the epoch, then memory and losses."""
_FEW = 5
"""Steps by which one rank may be behind another without having begun again, at least."""


@dataclass(frozen=True)
class _Habits:
    """What holds for all bars of one title in a program, also after a restart."""

    first_epoch: int | None = None
    """What it calls its first epoch: 0 or 1."""
    has_step: bool = False
    """The global step is one of the values beside the bar."""
    has_local_step: bool = False
    """One of the values is named step, and begins again with each epoch."""
    lengths: Mapping[int, int] = field(default_factory=dict)
    """Steps of the epochs whose end was seen, by their number in the title."""
    reached: int = 0
    """The last step."""
    end: int = 0
    """The step at the end of the only bar, which has no number; 0: there were several, or it has no
    length."""

    def steps_before(self, epoch: int, first: int, length: int) -> int:
        """Return the steps of the epochs before one; an unknown one is as long as that."""
        known = [steps for number, steps in self.lengths.items() if first <= number < epoch]
        return sum(known) + length * (epoch - first - len(known))


EPOCHS = 10_000
"""Epochs of a program whose lengths are kept."""


@dataclass(frozen=True)
class _Bar:
    """All bars of one title and one length, or of lengths that follow each other."""

    key: str
    total: int
    """Its length now; 0: it has none."""
    before: int = 0
    """Steps of the bars before this one."""
    done: int = 0
    """Of this bar: the furthest of all ranks."""
    epoch: int | None = None
    step: int = 0
    """The last global step that was among its values."""
    is_shared: bool = False
    """Several ranks draw it."""

    @property
    def is_past_half(self) -> bool:
        """Whether the next bar may begin."""
        return self.done * 2 >= self.total if self.total else self.done > 2 * _FEW

    def begins_again(self, done: int) -> bool:
        """Return whether a drawing of less is the next bar, and not that of another rank.

        An epoch begins near 1 after one that has ended near its total. A bar is drawn with 0 first.
        """
        if done == 0 and self.done > 2 * _FEW:
            return True
        if done * 50 <= max(self.total, 100):
            return self.is_past_half
        return 0 < self.total * 4 <= self.done * 5 and done * 2 <= self.total

    def is_behind(self, done: int) -> bool:
        """Return whether a drawing is that of a rank that is still at the bar before."""
        return self.is_shared and 0 < self.total * 4 <= done * 5 and self.done * 5 <= self.total


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
    opens: bool = False
    """Nothing was done yet: `0/200`, or `50/200 [00:00<?, ?it/s]` of one that goes on from 50."""

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
    for pattern in (_TQDM, _IGNITE, _RICH, _LIGHTNING_ENDLESS, _ENDLESS):
        if match := pattern.search(text):
            break
    else:
        return None
    names = pattern.groupindex
    title, done, total, rate, beside = (
        (match[name] or "") if name in names else ""
        for name in ("title", "done", "total", "rate", "values")
    )
    title = title[-TITLE:]
    if yolo := _YOLO.search(title):
        title = f"Epoch {yolo[1]}"
    values = {**_bar_values(beside), **fields_of(_losses(title), "=")}
    if pattern is _IGNITE and not title:
        title = "Epoch"  # it names its first bar late
    return _Drawn(
        _LOSS_IN_TITLE.sub(r"\1", title),
        _amount(done),
        _amount(total or "0"),
        _unit(rate),
        values,
        starts_at_0=pattern is _RICH,
        opens=_amount(done) == 0 or rate.lstrip().startswith("?"),
    )


def _amount(text: str) -> int:
    """Return `120`, or what `unit_scale` makes of larger numbers: `1.50k`."""
    scale = {"k": 1e3, "M": 1e6, "G": 1e9}.get(text[-1:])
    return (
        int(text)
        if scale is None and "." not in text
        else round(float(text if scale is None else text[:-1]) * (scale or 1))
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

    Each bar is counted by itself: bars with the same title and length are one, and those of another
    length that follow them. With the number of an epoch in the title the step is counted from that;
    without one each further bar is the next epoch. Where the bar shows a global step beside it
    (`step=29`), that is the step.
    """

    bars: Mapping[str, _Bar] = field(default_factory=dict)
    """Replaced, not changed: a copy of the counter reads ahead. The one that was drawn last is the
    last."""
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
        return None if drawn is None else self._read_bar(drawn)

    def again(self) -> Self:
        """Return a counter for the next start: how epochs are numbered is known."""
        return type(self)(habits=self.habits, evident=self.evident)

    def _trainer(self, values: dict[str, object]) -> Reading:
        if "loss" not in values:
            return Reading(None, values)
        if self.drawn_last:
            self.evident.add(self.drawn_last)
        return Reading(None, values, Source("trainer", TRAINER_LINES, Rank.NONE))

    def _read_bar(self, drawn: _Drawn) -> Reading:
        habits = self.habits.get(drawn.kind, _Habits())
        bar = self._bar_of(drawn, habits)
        source = _source(drawn, bar.key, is_evident=bar.key in self.evident)
        if source.rank is Rank.NONE:
            return Reading(None, {}, source) if drawn.done else NOTHING
        values = {**drawn.values}
        shown = values.pop("step", values.pop("global_step", None))
        step = self._count(drawn, bar, habits, shown if isinstance(shown, int) else None)
        if drawn.opens:
            return NOTHING if step is None else Reading(None, {}, source, opened=step)
        is_over = drawn.done >= drawn.total > 0
        self.drawn_last = "" if is_over else source.key
        return Reading(step, values, source, is_over)

    def _bar_of(self, drawn: _Drawn, habits: _Habits) -> _Bar:
        """Return the bar that this is a drawing of, as it was."""
        last = None
        for key, bar in reversed([*self.bars.items()]):
            if key.rpartition("|")[0] == drawn.kind:
                if bar.total == drawn.total:
                    return bar
                last = last or bar
        if last is not None and _follows(drawn, last):
            return last
        new = _Bar(f"{drawn.kind}|{drawn.total}", drawn.total)
        left = habits.end - drawn.total
        if drawn.epoch is None and drawn.total and last is None and 0 < left <= habits.reached:
            return replace(new, before=left)  # the length is that of what is left
        return new

    def _count(self, drawn: _Drawn, bar: _Bar, habits: _Habits, shown: int | None) -> int | None:
        """Return the global step of a bar, and note where it is.

        None where only the values beside it have one.
        """
        if drawn.epoch is not None:
            bar, habits, is_next = _in_epoch(drawn, drawn.epoch, bar, habits)
        else:
            bar, is_next = _in_bar(drawn, bar)
        if shown is not None:
            local = habits.has_local_step or (is_next and shown < bar.step)
            habits = replace(habits, has_step=not local, has_local_step=local)
            bar = replace(bar, step=shown)
        done = bar.done if drawn.epoch is None else drawn.done
        step = shown if habits.has_step else bar.before + done
        is_only = drawn.epoch is None and not (is_next or (bar.before and habits.end == 0))
        habits = replace(
            habits,
            end=bar.before + drawn.total if is_only and drawn.total else 0,
            reached=bar.before + bar.done,
        )
        kept = {name: other for name, other in self.bars.items() if name != bar.key}
        self.bars = {**dict([*kept.items()][1 - BARS :]), bar.key: bar}
        self.habits = {**dict([*self.habits.items()][-BARS:]), drawn.kind: habits}
        return step


def _source(drawn: _Drawn, key: str, *, is_evident: bool) -> Source:
    rank = rank_of(drawn.kind, drawn.unit)
    if is_evident and rank is not Rank.NONE:
        rank = Rank.EVIDENT
    if rank in (None, Rank.PLAIN) and any(map(_HAS_LOSS.search, drawn.values)):
        rank = Rank.EVIDENT
    elif rank is None:
        rank = Rank.PLAIN if any("acc" in name for name in drawn.values) else Rank.NONE
    title = f"the bar `{drawn.name}`" if drawn.name else "a bar without a title"
    length = int(key.rpartition("|")[2])
    return Source(key, f"{title} ({length})" if length else title, rank)


def _follows(drawn: _Drawn, last: _Bar) -> bool:
    """Return whether a bar of another length is the next of those before."""
    if drawn.epoch is not None and last.epoch is not None:
        return drawn.epoch > last.epoch or not last.total
    is_near = abs(drawn.total - last.total) * 10 <= last.total
    is_titled = rank_of(drawn.kind, drawn.unit) is Rank.EVIDENT
    begins = drawn.done * 2 <= drawn.total if drawn.total else drawn.done <= _FEW
    return begins and last.is_past_half and (is_near or is_titled)


def _in_epoch(drawn: _Drawn, epoch: int, bar: _Bar, habits: _Habits) -> tuple[_Bar, _Habits, bool]:
    """Return where a bar with the number of an epoch is, and whether that epoch has just begun."""
    first = 0 if drawn.starts_at_0 else min(epoch, 1)
    if habits.first_epoch is not None:
        first = min(first, habits.first_epoch)
    habits = replace(habits, first_epoch=first)
    is_next = epoch != bar.epoch
    if is_next and bar.epoch is not None and epoch == bar.epoch + 1 and bar.done:
        lengths = {**habits.lengths, bar.epoch: _length(bar, drawn.total)}
        habits = replace(habits, lengths=dict([*lengths.items()][-EPOCHS:]))
    before = habits.steps_before(epoch, first, drawn.total or bar.done)
    # A bar is drawn empty before it gets its next title, and ranks are at different steps.
    done = drawn.done if is_next else max(drawn.done, bar.done)
    bar = replace(bar, before=before, done=done, total=drawn.total, epoch=epoch)
    return bar, habits, is_next


def _length(bar: _Bar, total: int) -> int:
    """Return the steps of a bar that has ended, where the next one has the length `total`."""
    left = bar.total - total  # of a bar whose length is that of what is left
    if 0 < total < bar.total and abs(left - bar.done) * 10 <= left:
        return left
    return bar.total if bar.done * 10 >= bar.total * 9 and bar.total else bar.done


def _in_bar(drawn: _Drawn, bar: _Bar) -> tuple[_Bar, bool]:
    """Return where a bar without a number is, and whether it has just begun."""
    done, is_longer = drawn.done, drawn.total != bar.total
    if is_longer or (done < bar.done and bar.begins_again(done)):
        before = bar.before + bar.done
        return replace(bar, before=before, done=done, total=drawn.total, epoch=None), True
    if done < bar.done:
        return replace(bar, is_shared=True), False
    if bar.is_behind(done):
        return bar, False
    return replace(bar, done=done, epoch=None), False
