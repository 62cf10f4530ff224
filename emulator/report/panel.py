"""What a run looks like now, as a few lines of text that fit the place they are given.

Lines are laid out by hand: a rich table takes some milliseconds, and this is made several times a
second beside a training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from rich.cells import cell_len
from rich.text import Text

from emulator.analysis.live import Estimate, Live, LiveFault, LiveTask
from emulator.faults.spec import Trigger
from emulator.metrics.samples import GpuShare, GpuUsage
from emulator.units import format_duration, format_number, format_size

__all__ = ["in_words", "lines"]

FOLD = 12
"""Above so many tasks those that are alike share a line, as in the table at the end."""
BAR = 40
"""Cells of the longest progress bar; a short one is what narrowing a terminal does not break."""
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
    live: Live, *, width: int, height: int | None = None, ascii_only: bool = False
) -> list[Text]:
    """Return the view: tasks, progress, faults, devices; at most so many lines, None: all."""
    head = _head(live, ascii_only=ascii_only)
    progress = _progress(live, width, ascii_only=ascii_only)
    faults = [_fault(live, fault, width) for fault in _by_interest(live)]
    devices = [_device(gpu) for gpu in live.gpus]
    if height is not None and height < 4:
        text = [head, progress]
    elif height is not None:
        # Tasks come first: each other part has a line where it can, and more where there is room.
        room = max(1, height - 3)  # beside the two heads and the progress
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


def _cut(found: list[Text], most: int, what: str) -> list[Text]:
    if len(found) <= most:
        return found
    if most <= 0:
        return []
    return [*found[: most - 1], Text(f"and {len(found) - most + 1} more {what}", "dim")]


def _head(live: Live, *, ascii_only: bool) -> Text:
    """Return the state first: of the rest a narrow terminal may cut off something."""
    colour = OUTCOMES.get(live.outcome or live.state, "red" if live.outcome else "yellow")
    head = Text("-- " if ascii_only else "── ")
    head.append(live.outcome or live.state, f"bold {colour}")
    head.append(f" {_roughly(live.t)}  {live.plan.run_id} on {live.plan.engine}")
    return head.append(f": {live.reason}" if live.outcome else "")


def _roughly(seconds: float) -> str:
    """Return whole seconds: more of them would flicker, and an estimate is no better."""
    return f"{seconds:.0f}s" if seconds < 59.5 else format_duration(seconds)


# --- Tasks --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Column:
    """A column of the table; those of the highest `spare` go first where there is no room."""

    title: str
    cell: Callable[[Live, Sequence[LiveTask]], str]
    spare: int = 0
    right: bool = True


def _grouped(live: Live, *, fold: bool) -> list[list[LiveTask]]:
    """Return the tasks, each in a line of its own or with those that are alike."""
    if not fold and len(live.tasks) <= FOLD:
        return [[task] for task in live.tasks.values()]
    alike: dict[tuple[object, ...], list[LiveTask]] = {}
    for name, task in live.tasks.items():
        key = (task.task.role, _state(live, task), task.restarts, bool(live.impairments(name)))
        alike.setdefault(key, []).append(task)
    return list(alike.values())


def _table(live: Live, width: int, rows: int | None) -> list[Text]:
    """Return a head and the tasks; columns that nothing is known of are left out."""
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
    found = [Text("  ".join(_padded(c, cells[c][0], widths[c]) for c in widths), "dim")]
    for n, tasks in enumerate(groups, start=1):
        row = Text()
        for c, wide in widths.items():
            style = STATES[tasks[0].state] if c.title == "state" else ""
            if c.title == "state" and live.impairments(tasks[0].name):
                style = "red"
            row.append(_padded(c, cells[c][n], wide), style).append("  ")
        row.rstrip()
        found.append(row)
    if more:
        found.append(Text(f"and {more} more", "dim"))
    return found


def _padded(column: _Column, text: str, width: int) -> str:
    space = " " * (width - cell_len(text))
    return space + text if column.right else text + space


def _name(live: Live, tasks: Sequence[LiveTask]) -> str:
    if len(tasks) == 1:
        return tasks[0].name
    return f"{tasks[0].name} .. {tasks[-1].name} ({len(tasks)})"


def _state(live: Live, task: LiveTask) -> str:
    if task.state == "ended" and task.exit_code is not None:
        return f"ended ({task.exit_code})"
    if task.state == "running" and (struck := live.impairments(task.name)):
        return f"running ({', '.join(fault.kind for fault in struck)})"
    return task.state


def _step(live: Live, tasks: Sequence[LiveTask]) -> str:
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


def _cpu(live: Live, tasks: Sequence[LiveTask]) -> str:
    cores = _mean([task.rates.cpu for task in tasks if task.rates])
    limit = _mean([task.usage.cpus for task in tasks if task.usage])
    if cores is None:
        return ""
    return f"{cores:.2f}" + (f" of {limit:g}" if limit else "")


def _memory(live: Live, tasks: Sequence[LiveTask]) -> str:
    used = _mean([task.rates.memory for task in tasks if task.rates])
    share = _mean([task.rates.memory_share for task in tasks if task.rates])
    if used is None:
        return ""
    return format_size(used) + (f" {share:.0%}" if share is not None else "")


def _gpu(live: Live, tasks: Sequence[LiveTask]) -> str:
    shares = [share for task in tasks for share in task.gpus.values()]
    if not shares:
        return ""
    return f"{len(shares)}: {_share(shares)}" if len(shares) > 1 else _share(shares)


def _share(shares: Sequence[GpuShare]) -> str:
    """Return the mean utilisation and the memory of all."""
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


def _progress(live: Live, width: int, *, ascii_only: bool) -> Text:
    """Return how far the job is: `step 120 of 400 ━━━╸──── 30%  12.1 steps/s  23s left`."""
    if live.step is None:
        return Text("no step yet", "dim")
    estimate = live.eta()
    rate, examples = _rate(live.steps_per_second), _rate(live.examples_per_second)
    said = [f"{rate} steps/s"] if rate else []
    said += [f"{examples} examples/s"] if examples else []
    if estimate.target is None:
        return _fitting(width, "  ".join([f"step {live.step}", *said, estimate.why_not]))
    share = min(1.0, live.step / estimate.target) if estimate.target else 1.0
    left = _left(live, estimate)
    head, tail = (
        f"step {live.step} of {estimate.target} ",
        "  ".join([f" {share:.0%}", *said, left]),
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


def _left(live: Live, estimate: Estimate) -> str:
    if live.outcome or estimate.seconds == 0:
        return ""
    if estimate.seconds is None:
        return f"no estimate: {estimate.why_not}"
    return f"about {_roughly(estimate.seconds)} left"


def _fitting(width: int, *texts: str) -> Text:
    """Return the first that fits, else the last."""
    return Text(next((text for text in texts if cell_len(text) <= width), texts[-1]))


def _by_interest(live: Live) -> list[LiveFault]:
    """Return faults in force, then those that happened last, then those to come."""

    def rank(fault: LiveFault) -> tuple[int, float]:
        if fault.in_force:
            return 0, -(fault.since or 0.0)
        return (1, -fault.since) if fault.since is not None else (2, 0.0)

    return sorted(live.faults.values(), key=rank)


def _fault(live: Live, fault: LiveFault, width: int) -> Text:
    said = _stage(live, fault)
    what = f"{fault.kind} {fault.planned.target}"
    text = Text(f"fault {fault.id}: {what}  ").append(said, STAGES[fault.stage])
    if cell_len(text.plain) <= width:
        return text
    # Where it is cut off, what it is like now comes first.
    return Text(f"{fault.id}: ").append(said, STAGES[fault.stage]).append(f"  {what}")


def _stage(live: Live, fault: LiveFault) -> str:
    if fault.since is None:
        return f"waits for {in_words(fault.planned.trigger)}"
    said = f"{fault.stage} {_roughly(live.t - fault.since)} ago"
    if fault.stage == "healed" and fault.triggered is not None:
        said += f", after {format_duration(fault.since - fault.triggered)}"
    return f"{said}: {fault.reason}" if fault.reason else said


def in_words(trigger: Trigger) -> str:
    """Say when a fault strikes, as scenarios write it."""
    when = trigger.model_dump(mode="json", exclude_defaults=True)
    return " ".join(f"{key} {value}" for key, value in when.items())


def _device(gpu: GpuUsage) -> Text:
    text = Text(f"GPU {gpu.index} {gpu.name}".rstrip() + "  ")
    if gpu.lost:
        return text.append("lost: it no longer answers", "red")
    return text.append("  ".join(_of_device(gpu)))


def _of_device(gpu: GpuUsage) -> Iterator[str]:
    if gpu.utilisation is not None:
        yield f"{gpu.utilisation:.0%}"
    if gpu.memory is not None:
        total = f" of {format_size(gpu.memory_total)}" if gpu.memory_total else ""
        yield format_size(gpu.memory) + total
    if gpu.power is not None:
        yield f"{gpu.power:.0f} W"
    if gpu.temperature is not None:
        yield f"{gpu.temperature:.0f} °C"
    if gpu.ecc_errors:
        yield f"{gpu.ecc_errors} ECC errors"
    if gpu.xid is not None:
        yield f"Xid {gpu.xid}"
