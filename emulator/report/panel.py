"""The current state of a run as a few lines of text, which fit a given width and height.

Laid out without rich.Table, which takes several milliseconds: this runs several times a second
while the training uses the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from rich.cells import cell_len
from rich.text import Text

from emulator.analysis.run_state import Estimate, LiveTask, RunState
from emulator.metrics import catalog
from emulator.metrics.catalog import GpuShare, GpuUsage
from emulator.record.timeline import FaultTimeline
from emulator.report.event_text import trigger_in_words
from emulator.validation.units import format_duration, format_number, format_size

__all__ = ["lines"]

FOLD = 12
"""With more tasks than this, equal ones share a line, as in the final table."""
BAR = 40
"""Cells of the progress bar at most; narrowing a terminal wraps longer ones."""
STATES = {
    "pending": "dim",
    "starting": "yellow",
    "running": "green",
    "backoff": "yellow",
    "down": "red",
    "ended": "dim",
}
STAGES = {
    "waiting": "dim",
    "preparing": "yellow",
    "triggered": "yellow",
    "applied": "yellow",
    "healed": "green",
    "skipped": "dim",
    "failed": "red",
}
OUTCOMES = {"running": "green", "succeeded": "green", "interrupted": "yellow"}


def lines(
    live: RunState, *, width: int, height: int | None = None, ascii_only: bool = False
) -> list[Text]:
    """Return tasks, progress, faults and devices, in at most `height` lines (None: all)."""
    head = _head(live, ascii_only=ascii_only)
    progress = _progress(live, width, ascii_only=ascii_only)
    faults = [_fault(live, fault, width) for fault in _by_interest(live)]
    devices = [_device(gpu) for gpu in live.gpus]
    if height is not None and height < 4:
        text = [head, progress]
    elif height is not None:
        # Tasks first; each other part gets one line if possible, and more if there is room.
        room = max(1, height - 3)  # without the two heads and the progress
        rows = len(_grouped(live, fold=room < len(live.tasks)))
        left = max(0, room - rows)
        some = max(left, min(len(faults), 1 + room // 5)) if faults else 0
        faults = _cut(faults, some, "faults")
        devices = devices[: max(0, left - len(faults))]
        room -= len(faults) + len(devices)
        text = [head, *_table(live, width, max(1, room)), progress, *faults, *devices]
    else:
        text = [head, *_table(live, width, None), progress, *faults, *devices]
    for line in text:
        line.truncate(width, overflow="crop" if ascii_only else "ellipsis")
    return text[: height or None]


def _cut(items: list[Text], most: int, what: str) -> list[Text]:
    if len(items) <= most:
        return items
    if most <= 0:
        return []
    return [*items[: most - 1], Text(f"and {len(items) - most + 1} more {what}", "dim")]


def _head(live: RunState, *, ascii_only: bool) -> Text:
    """Return the head line, state first, because a narrow terminal cuts off the end."""
    colour = OUTCOMES.get(live.outcome or live.state, "red" if live.outcome else "yellow")
    head = Text("-- " if ascii_only else "── ")
    head.append(live.outcome or live.state, f"bold {colour}")
    head.append(f" {_roughly(live.t)}  {live.plan.run_id} on {live.plan.engine}")
    return head.append(f": {live.reason}" if live.outcome else "")


def _roughly(seconds: float) -> str:
    """Return whole seconds; fractions would flicker, and estimates are not that precise."""
    return f"{seconds:.0f}s" if seconds < 59.5 else format_duration(seconds)


# --- Tasks --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Column:
    """A column of the table; without room, columns of the highest `spare` are dropped first."""

    title: str
    cell: Callable[[RunState, Sequence[LiveTask]], str]
    spare: int = 0
    right: bool = True


def _grouped(live: RunState, *, fold: bool) -> list[list[LiveTask]]:
    """Return the tasks of each line: one task, or several equal ones."""
    if not fold and len(live.tasks) <= FOLD:
        return [[task] for task in live.tasks.values()]
    alike: dict[tuple[object, ...], list[LiveTask]] = {}
    for name, task in live.tasks.items():
        key = (task.task.role, _state(live, task), task.restarts, bool(live.impairments(name)))
        alike.setdefault(key, []).append(task)
    return list(alike.values())


def _table(live: RunState, width: int, rows: int | None) -> list[Text]:
    """Return the head and rows of the task table, without empty columns."""
    groups = _grouped(live, fold=rows is not None and rows < len(live.tasks))
    more = 0
    if rows is not None and len(groups) > rows:
        more = len(groups) - rows + 1
        groups = groups[: rows - 1]
    cells = {c: [c.title, *(c.cell(live, tasks) for tasks in groups)] for c in _COLUMNS}
    cells = {c: texts for c, texts in cells.items() if not c.spare or any(texts[1:])}
    widths = {c: max(map(cell_len, texts)) for c, texts in cells.items()}
    for column in sorted(widths, key=lambda c: -c.spare):
        if sum(widths.values()) + 2 * (len(widths) - 1) > width and column.spare:
            del widths[column]
    lines = [Text("  ".join(_padded(c, cells[c][0], widths[c]) for c in widths), "dim")]
    for n, tasks in enumerate(groups, start=1):
        row = Text()
        for c, wide in widths.items():
            style = STATES[tasks[0].state] if c.title == "state" else ""
            if c.title == "state" and live.impairments(tasks[0].name):
                style = "red"
            row.append(_padded(c, cells[c][n], wide), style).append("  ")
        row.rstrip()
        lines.append(row)
    if more:
        lines.append(Text(f"and {more} more", "dim"))
    return lines


def _padded(column: _Column, text: str, width: int) -> str:
    space = " " * (width - cell_len(text))
    return space + text if column.right else text + space


def _name(live: RunState, tasks: Sequence[LiveTask]) -> str:
    if len(tasks) == 1:
        return tasks[0].name
    return f"{tasks[0].name} .. {tasks[-1].name} ({len(tasks)})"


def _state(live: RunState, task: LiveTask) -> str:
    if task.state == "ended" and task.exit_code is not None:
        return f"ended ({task.exit_code})"
    if task.state == "running" and (active := live.impairments(task.name)):
        return f"running ({', '.join(fault.kind for fault in active)})"
    return task.state


def _step(live: RunState, tasks: Sequence[LiveTask]) -> str:
    known = [task.step for task in tasks if task.step is not None]
    if not known:
        return ""
    low, high = min(known), max(known)
    return str(low) if low == high else f"{low}..{high}"


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _rate(rate: float | None) -> str:
    if rate is None:
        return ""
    if 0 < rate < 1:
        return f"{rate:.2g}"
    return format_number(rate, 0 if rate >= 100 else 1)


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
    shares = [share for task in tasks for share in task.gpus.values()]
    if not shares:
        return ""
    return f"{len(shares)}: {_share(shares)}" if len(shares) > 1 else _share(shares)


def _share(shares: Sequence[GpuShare]) -> str:
    """Return the mean utilisation and the total memory."""
    busy = _mean([share.utilisation for share in shares])
    memory = [share.memory for share in shares if share.memory is not None]
    parts = [f"{busy:.0%}"] if busy is not None else []
    parts += [format_size(sum(memory))] if memory else []
    return " ".join(parts)


_COLUMNS = (
    _Column("task", _name, right=False),
    _Column("state", lambda live, tasks: _state(live, tasks[0]), right=False),
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
    rate, examples = _rate(live.steps_per_second), _rate(live.examples_per_second)
    rates = [f"{rate} steps/s"] if rate else []
    rates += [f"{examples} examples/s"] if examples else []
    if estimate.target is None:
        return _fitting(width, "  ".join([f"step {live.step}", *rates, estimate.why_not]))
    share = min(1.0, live.step / estimate.target) if estimate.target else 1.0
    left = _left(live, estimate)
    head, tail = (
        f"step {live.step} of {estimate.target} ",
        "  ".join([f" {share:.0%}", *rates, left]),
    )
    room = min(BAR, width - cell_len(head) - cell_len(tail.rstrip()))
    if room < 8:
        short = [
            f"{live.step}/{estimate.target}",
            f"{share:.0%}",
            left.removeprefix("no estimate: "),
            f"{rate}/s" if rate else "",
        ]
        return _fitting(
            width, head.rstrip() + tail.rstrip(), "  ".join(part for part in short if part)
        )
    full, rest = ("#", "-") if ascii_only else ("━", "─")
    done = int(room * share)
    text = Text(head).append(full * done, "green").append(rest * (room - done), "dim")
    return text.append(tail.rstrip())


def _left(live: RunState, estimate: Estimate) -> str:
    if live.outcome or estimate.seconds == 0:
        return ""
    if estimate.seconds is None:
        return f"no estimate: {estimate.why_not}"
    return f"about {_roughly(estimate.seconds)} left"


def _fitting(width: int, *texts: str) -> Text:
    """Return the first text that fits the width, else the last."""
    return Text(next((text for text in texts if cell_len(text) <= width), texts[-1]))


def _by_interest(live: RunState) -> list[FaultTimeline]:
    """Return active faults, then past ones, latest first, then scheduled ones."""

    def rank(fault: FaultTimeline) -> tuple[int, float]:
        if fault.in_force:
            return 0, -(fault.since or 0.0)
        return (1, -fault.since) if fault.since is not None else (2, 0.0)

    return sorted(live.faults.values(), key=rank)


def _fault(live: RunState, fault: FaultTimeline, width: int) -> Text:
    stage = _stage(live, fault)
    what = f"{fault.kind} {fault.planned.target}"
    text = Text(f"fault {fault.id}: {what}  ").append(stage, STAGES[fault.stage])
    if cell_len(text.plain) <= width:
        return text
    # The stage first, because the end is cut off.
    return Text(f"{fault.id}: ").append(stage, STAGES[fault.stage]).append(f"  {what}")


def _stage(live: RunState, fault: FaultTimeline) -> str:
    if fault.since is None:
        return f"waits for {trigger_in_words(fault.planned.trigger)}"
    text = f"{fault.stage} {_roughly(live.t - fault.since)} ago"
    if fault.stage == "healed" and fault.triggered is not None:
        text += f", after {format_duration(fault.since - fault.triggered)}"
    return f"{text}: {fault.reason}" if fault.reason else text


def _device(gpu: GpuUsage) -> Text:
    text = Text(f"GPU {gpu.index} {gpu.name}".rstrip() + "  ")
    if gpu.lost:
        return text.append("lost: it no longer answers", "red")
    return text.append("  ".join(catalog.in_words(gpu)))
