"""The current state of a run as a few lines of text, which fit a given width and height.

Laid out without rich.Table: with 12 tasks that takes 7 ms instead of 1.4, several times a second
(3 % of a core at 4 paints a second), while the training uses the CPU.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from rich.cells import cell_len
from rich.text import Text

from emulator.analysis.run_state import COURSE, Estimate, LiveTask, RunState
from emulator.analysis.values import importance
from emulator.metrics import catalog
from emulator.metrics.catalog import GpuUsage
from emulator.record.timeline import FaultTimeline
from emulator.report.tables import FOLD, STYLES, fold, name_list, range_label
from emulator.report.text import printable
from emulator.validation.units import format_duration, format_rate, format_size

VALUES = 3
"""Reported values in their line."""
BAR = 40
"""Cells of the progress bar at most; narrowing a terminal wraps longer ones."""


def lines(
    live: RunState, *, width: int, height: int = sys.maxsize, ascii_only: bool = False
) -> list[Text]:
    """Return tasks, progress, faults and devices, in at most `height` lines."""
    text = [_head(live, ascii_only=ascii_only), _progress(live, width, ascii_only=ascii_only)]
    if height >= 4:
        if height >= 6 and (values := _values(live, ascii_only=ascii_only)):
            text.append(values)
        # Tasks first; each other part gets one line if possible, and more if there is room.
        room = height - 1 - len(text)  # without the head of the table
        left = max(0, room - len(_groups(live, room)))
        faults = [_fault(live, fault, width) for fault in _by_interest(live)]
        faults = _cut(faults, max(left, min(len(faults), 1 + room // 5)))
        devices = [_device(gpu) for gpu in live.gpus][: max(0, left - len(faults))]
        text[1:1] = _table(live, width, max(1, room - len(faults) - len(devices)))
        text += [*faults, *devices]
    for line in text:
        line.truncate(width, overflow="crop" if ascii_only else "ellipsis")
    return text[:height]


def _cut(faults: list[Text], most: int) -> list[Text]:
    if len(faults) <= most:
        return faults
    return [*faults[: most - 1], Text(f"and {len(faults) - most + 1} more faults", "dim")]


def _head(live: RunState, *, ascii_only: bool) -> Text:
    """Return the head line, state first, because a narrow terminal cuts off the end."""
    state = live.outcome or live.state
    head = Text("-- " if ascii_only else "── ").append(state, f"bold {STYLES[state]}")
    head.append(f" {_roughly(live.t)}  {live.plan.run_id} on {live.plan.engine}")
    return head.append(f": {live.reason}" if live.outcome else "")


def _roughly(seconds: float) -> str:
    """Return whole seconds; fractions would flicker, and estimates are not that precise."""
    return f"{seconds:.0f}s" if seconds < 59.5 else format_duration(seconds)


# --- Tasks --------------------------------------------------------------------------------------


def _groups(live: RunState, rows: int) -> list[list[LiveTask]]:
    """Return the tasks of each line: several equal ones if there are more tasks than rows."""

    def key(name: str) -> object:
        task = live.tasks[name]
        return _state(live, task), task.restarts, bool(live.impairments(name))

    groups = fold(live.tasks, key, min(FOLD, rows))
    return [[live.tasks[name] for name in names] for names in groups]


def _table(live: RunState, width: int, rows: int) -> list[Text]:
    """Return the head and rows of the task table, without empty columns."""
    groups = _groups(live, rows)
    more = len(groups) - rows + 1 if len(groups) > rows else 0
    groups = groups[: rows - 1] if more else groups
    cells = {c: [c.title, *(c.cell(live, tasks) for tasks in groups)] for c in _COLUMNS}
    widths = {
        column: max(map(cell_len, texts))
        for column, texts in cells.items()
        if not column.spare or any(texts[1:])
    }
    for column in sorted(widths, key=lambda c: -c.spare):
        if sum(widths.values()) + 2 * (len(widths) - 1) > width and column.spare:
            del widths[column]
    lines = [Text("  ".join(_padded(cells[c][0], c, widths[c]) for c in widths), "dim")]
    for number, tasks in enumerate(groups, start=1):
        row = Text()
        for column, cell_width in widths.items():
            style = ""
            if column.title == "state":
                style = "red" if live.impairments(tasks[0].name) else STYLES[tasks[0].state]
            row.append(_padded(cells[column][number], column, cell_width), style).append("  ")
        row.rstrip()
        lines.append(row)
    return [*lines, Text(f"and {more} more", "dim")] if more else lines


@dataclass(frozen=True)
class _Column:
    """A column of the table; without room, columns of the highest `spare` are dropped first."""

    title: str
    cell: Callable[[RunState, Sequence[LiveTask]], str]
    spare: int = 0


def _padded(text: str, column: _Column, width: int) -> str:
    space = " " * (width - cell_len(text))
    return text + space if column.title in ("task", "state") else space + text


def _state(live: RunState, task: LiveTask) -> str:
    if task.state == "ended" and task.exit_code is not None:
        return f"ended ({task.exit_code})"
    if task.state == "running" and (active := live.impairments(task.name)):
        return f"running ({', '.join(fault.kind for fault in active)})"
    return task.state


def _step(live: RunState, tasks: Sequence[LiveTask]) -> str:
    steps = [task.step for task in tasks if task.step is not None]
    return "..".join(str(step) for step in dict.fromkeys((min(steps), max(steps)))) if steps else ""


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _rate(rate: float | None) -> str:
    return "" if rate is None else format_rate(rate)


def _cpu(live: RunState, tasks: Sequence[LiveTask]) -> str:
    cores = _mean([task.rates.cpu for task in tasks if task.rates])
    limit = _mean([task.usage.cpus for task in tasks if task.usage])
    if cores is None:
        return ""
    return f"{cores:.2f}" + (f" of {limit:g}" if limit else "")


def _memory(live: RunState, tasks: Sequence[LiveTask]) -> str:
    used = _mean([task.rates.memory for task in tasks if task.rates])
    share = _mean([task.rates.memory_share for task in tasks if task.rates])
    if used is None:
        return ""
    return format_size(used) + (f" {share:.0%}" if share is not None else "")


def _gpu(live: RunState, tasks: Sequence[LiveTask]) -> str:
    """Return the number of shares, their mean utilisation and their total memory."""
    shares = [share for task in tasks for share in task.gpus.values()]
    busy = _mean([share.utilisation for share in shares])
    memory = [share.memory for share in shares if share.memory is not None]
    parts = [f"{len(shares)}:"] if len(shares) > 1 else []
    parts += [f"{busy:.0%}"] if busy is not None else []
    return " ".join([*parts, format_size(sum(memory))] if memory else parts)


_COLUMNS = (
    _Column("task", lambda live, tasks: range_label([task.name for task in tasks])),
    _Column("state", lambda live, tasks: _state(live, tasks[0])),
    _Column("restarts", lambda live, tasks: str(tasks[0].restarts), spare=5),
    _Column("step", _step, spare=1),
    _Column(
        "steps/s", lambda live, tasks: _rate(_mean([t.steps_per_second for t in tasks])), spare=2
    ),
    _Column("CPU", _cpu, spare=3),
    _Column("memory", _memory, spare=4),
    _Column("GPU", _gpu, spare=3),
)


# --- Progress, faults, devices ------------------------------------------------------------------


def _progress(live: RunState, width: int, *, ascii_only: bool) -> Text:
    """Return the progress: `step 120 of 400 ━━━╸──── 30%  12.1 steps/s  23s left`."""
    if live.step is None:
        return Text("no step yet", "dim")
    estimate = live.eta()
    if waits_for := live.finishing:
        since = _roughly(live.t - live.front.at)
        return Text(
            f"finishing: waiting for {name_list(waits_for)} to exit ({since})  "
            f"step {live.step} of {estimate.target}"
        )
    rate, examples = _rate(live.steps_per_second), _rate(live.examples_per_second)
    rates = [f"{rate} steps/s"] if rate else []
    rates += [f"{examples} examples/s"] if examples else []
    if estimate.target is None:
        return Text("  ".join([f"step {live.step}", *rates, estimate.why_not]))
    share = min(1.0, live.step / estimate.target) if estimate.target else 1.0
    left = _left(live, estimate)
    head = f"step {live.step} of {estimate.target} "
    tail = "  ".join([f" {share:.0%}", *rates, left]).rstrip()
    room = min(BAR, width - cell_len(head) - cell_len(tail))
    if room >= 8:
        full, rest = ("#", "-") if ascii_only else ("━", "─")
        done = int(room * share)
        bar = Text(head).append(full * done, "green").append(rest * (room - done), "dim")
        return bar.append(tail)
    if cell_len(text := head.rstrip() + tail) <= width:
        return Text(text)
    short = [f"{live.step}/{estimate.target}", f"{share:.0%}", left.removeprefix("no estimate: ")]
    return Text("  ".join(filter(None, [*short, f"{rate}/s" if rate else ""])))


def _left(live: RunState, estimate: Estimate) -> str:
    if live.outcome or estimate.seconds == 0:
        return ""
    if estimate.seconds is None:
        return f"no estimate: {estimate.why_not}"
    return f"about {_roughly(estimate.seconds)} left"


def _values(live: RunState, *, ascii_only: bool) -> Text | None:
    """Return what tasks report with their steps: `loss 0.412 ▇▆▄▂▁  at step 120`."""
    names = sorted(live.values, key=importance)[:VALUES]
    if not names:
        return None
    text = Text()
    for name in names:
        value = live.values[name]
        text.append(f"{printable(name)} {value.value:.3g}")
        if not ascii_only and len(value.points) > 1:
            text.append(f" {_course(value.points)}", "dim")
        text.append("  ")
    first = live.values[names[0]]
    return text.append(f"at step {first.step} of {first.task}", "dim")


def _course(points: Sequence[float]) -> str:
    """Return values as a line of bars: the last ones, thinned to their width."""
    every = -(-len(points) // COURSE)
    shown = list(reversed(points[::-1][::every]))
    low, high = min(shown), max(shown)
    span = high / 2 - low / 2  # halves: the difference of two finite numbers may be infinite
    scale = len(_BARS) - 1 if span else 0
    return "".join(_BARS[round((point / 2 - low / 2) / (span or 1.0) * scale)] for point in shown)


_BARS = "▁▂▃▄▅▆▇█"


def _by_interest(live: RunState) -> list[FaultTimeline]:
    """Return active faults, then past ones, latest first, then scheduled ones."""

    def rank(fault: FaultTimeline) -> tuple[int, float]:
        if fault.since is None:
            return 2, 0.0
        return 0 if fault.in_force else 1, -fault.since

    return sorted(live.faults.values(), key=rank)


def _fault(live: RunState, fault: FaultTimeline, width: int) -> Text:
    stage, target = Text(_stage(live, fault), STYLES[fault.stage]), fault.planned.target
    text = Text.assemble(f"fault {fault.id}: {fault.kind} {target}  ", stage)
    if text.cell_len <= width:
        return text
    # The stage first, because the end is cut off.
    return Text.assemble(f"{fault.id}: ", stage, f"  {fault.kind} {target}")


def _stage(live: RunState, fault: FaultTimeline) -> str:
    if fault.since is None:
        return f"waits for {fault.planned.trigger.in_words()}"
    text = f"{fault.stage} {_roughly(live.t - fault.since)} ago"
    if fault.stage == "healed" and fault.triggered is not None:
        text += f", after {format_duration(fault.since - fault.triggered)}"
    return f"{text}: {fault.reason}" if fault.reason else text


def _device(gpu: GpuUsage) -> Text:
    text = Text(f"GPU {gpu.index} {gpu.name}".rstrip() + "  ")
    if gpu.lost:
        return text.append("lost: it no longer answers", "red")
    return text.append("  ".join(catalog.in_words(gpu)))
