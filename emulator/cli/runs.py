"""`ps`, `top`, `logs`, `down`, `clean`: look at runs, and remove what they left."""

from __future__ import annotations

import contextlib
import fnmatch
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from emulator.cli.options import (
    Out,
    RunArgument,
    RunOption,
    WhichEngine,
    chosen_run,
    complete_logs,
    complete_runs,
    console,
    find_live_run,
    live_folder,
    moment,
    note,
    print_json,
)
from emulator.errors import RecordError, UsageError
from emulator.runtime import signals

if TYPE_CHECKING:
    from emulator.record.folder import RunFolder
    from emulator.record.task_log import Printed

CRASHED = "crashed"
"""The state of a run whose emulator was killed, as the list of runs has it."""
REMOVES = "this ends once nothing is half removed"
"""Printed for a signal meanwhile."""


def ps(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN", help="Tasks and faults of this one.", autocompletion=complete_runs
        ),
    ] = None,
    out: Out = Path("runs"),
    every: Annotated[
        bool, typer.Option("--all", "-a", help="Also finished runs that have left nothing.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="As data.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the names of runs.")] = False,
    output: Annotated[
        Literal["wide", "json"] | None,
        typer.Option(
            "-o",
            "--output",
            help="`wide`: also the conditions of jobs of a training operator; `json`: as --json.",
        ),
    ] = None,
) -> None:
    """List runs under way, and what others have left."""
    from emulator.record.folder import RunFolder, runs_in
    from emulator.report.listings import print_conditions, print_runs, print_status
    from emulator.supervisor.cleanup import find_all

    json = json or output == "json"
    if run is not None:
        status = _status(RunFolder.find(run, out))
        print_json(status) if json else print_status(status, console())
        if status["state"] == CRASHED and not json:
            takes = f"`emulate attach {status['run_id']}` takes it over, where its engine can"
            note(f"its emulator was killed; {takes}, and `emulate down` removes it")
        if output == "wide" and not json:
            print_conditions({status["run_id"]: status.get("conditions", ())}, console())
        return

    found = find_all(out, note)
    left = Counter(thing.run_id for thing in found)
    records = {record.run_id: record for record in runs_in(out)}
    shown = [r for r in records.values() if every or r.live or left[r.run_id]]
    if json:
        print_json([_listed(one, left[one.run_id]) for one in shown])
        return
    if quiet:
        for one in shown:
            typer.echo(one.run_id)
        return
    print_runs(shown, left, console())
    if output == "wide":
        print_conditions({r.run_id: _conditions(r) for r in shown}, console())
    if elsewhere := sorted({thing.run_id for thing in found if thing.run_id not in records}):
        names = ", ".join(elsewhere)
        note(f"other runs on this machine, whose records are not in {out}: {names}")


def _listed(record: RunFolder, left: int) -> dict[str, Any]:
    """Return a run of the list as data."""
    head = {"run_id": record.run_id, "live": record.live}
    return {**head, "summary": _summary(record), "left": left}


def _summary(record: RunFolder) -> dict[str, Any] | None:
    """Return a run's summary; None also where it is of another format."""
    try:
        return record.summary
    except RecordError:
        return None


def _conditions(folder: RunFolder) -> list[dict[str, Any]]:
    """Return the conditions of a run's job, also of one under way; none if it can't be read."""
    from emulator.record.reader import Record
    from emulator.results import conditions_of

    with contextlib.suppress(RecordError):
        return conditions_of(Record(folder.path).timeline)
    return []


def _status(folder: RunFolder) -> dict[str, Any]:
    """Return tasks and faults of a run, asked of its supervisor or read from its folder."""
    from emulator.api.client import Cluster
    from emulator.record.reader import Record
    from emulator.results import judge

    record = Record(folder.path)
    if record.live:
        # Its API answers once all tasks run, and until the last has ended.
        with contextlib.suppress(UsageError), Cluster(record) as cluster:
            found = _conditions(folder)
            return {**cluster.status(), **({"conditions": found} if found else {})}
    summary = judge(record)[2]
    tasks = [
        {"name": name, "step": task["last_step"], **task} for name, task in summary["tasks"].items()
    ]
    faults = [{**fault, "stage": fault["status"]} for fault in summary["faults"]]
    was_killed = not record.live and record.result("summary.json") is None
    state = CRASHED if was_killed else summary["outcome"]
    return {**summary, "state": state, "tasks": tasks, "faults": faults}


def top(
    run: RunArgument = None,
    option: RunOption = None,
    out: Out = Path("runs"),
    once: Annotated[
        bool,
        typer.Option("--once", help="Print it once and end, as where there is no terminal."),
    ] = False,
) -> None:
    """Show a run: tasks, progress, faults, usage, last lines. `q` leaves it; the run continues.

    For a finished run, the last state is printed.
    """
    from emulator.record.lock import wait_until_over
    from emulator.record.reader import Record
    from emulator.report.top import print_snapshot, watch

    record = find_live_run(chosen_run(run, option), out)
    screen = console()
    if record.live and not once and sys.stdout.isatty() and not screen.is_dumb_terminal:
        if not watch(record, screen):
            return
        wait_until_over(record.path)
    # What has been read of it before is not all any more.
    print_snapshot(Record(record.path), screen)


def logs(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN] [TASK]...",
            help="A run (default: the latest), and names or globs of its tasks (default: all).",
            autocompletion=complete_logs,
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow the output until the run has finished.")
    ] = False,
    tail: Annotated[
        int | None,
        typer.Option("--tail", "-n", min=0, help="Only so many last lines of each task."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Only what was printed since: 30s, 10m, 2026-11-23T06:20:11Z."
        ),
    ] = None,
    timestamps: Annotated[
        bool, typer.Option("--timestamps", "-t", help="With the time of each line.")
    ] = False,
    run: RunOption = None,
    out: Out = Path("runs"),
) -> None:
    """Print what the tasks of a run have printed."""
    from emulator.report.text import shown_line

    record, wanted = _run_and_tasks(names or [], run, out)
    begin = None if since is None else moment(since, "--since")
    if follow and record.live:
        from emulator.record.reader import Record
        from emulator.report.live import LivePrinter

        LivePrinter(sys.stdout, verbose=True).follow(
            Record(record.path).plan,
            (
                (line.task, _stamp(line, wanted=timestamps) + shown_line(line.text))
                for line in _followed(record, wanted, tail, begin)
            ),
        )
        return
    width = max(map(len, wanted), default=0)
    for line in record.printed(wanted, last=tail, since=begin):
        head = f"{line.task:<{width}} | " if len(wanted) > 1 else ""
        typer.echo(head + _stamp(line, wanted=timestamps) + shown_line(line.text))


def _followed(
    record: RunFolder, tasks: Sequence[str], last: int | None, since: float | None
) -> Iterator[Printed]:
    """Yield what tasks print, until the run is over.

    One that is not up yet is waited for; one that ends before it is followed is read.
    """
    from emulator.api.client import NotAnswering, when_up

    only = tasks[0] if len(tasks) == 1 else None
    while (cluster := when_up(record, note)) is not None:
        begun = False
        try:
            with cluster:
                for line in cluster.printed(only, last=last, since=since):
                    begun = True
                    if line.task in tasks:
                        yield line
            return
        except NotAnswering:
            if begun:
                raise
    yield from record.printed(tasks, last=last, since=since)


def _stamp(line: Printed, *, wanted: bool) -> str:
    """Return the time before a line, as docker and kubectl write it but to the millisecond."""
    if not wanted:
        return ""
    time = datetime.fromtimestamp(line.wall, UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z ")


def _run_and_tasks(names: Sequence[str], run: str | None, out: Path) -> tuple[RunFolder, list[str]]:
    """Return the run that comes first, else the latest, and the tasks that the names match.

    Raises UsageError for a name that matches none.
    """
    from emulator.record.folder import AmbiguousRun

    record, patterns, several = None, list(names), None
    if run is not None:
        record = live_folder(run, out)
    elif patterns:
        try:
            record = live_folder(patterns[0], out)
            del patterns[0]
        except AmbiguousRun as error:
            several = error
        except UsageError:
            pass
    if record is None:
        record = live_folder("last", out)
    found = {pattern: _matching(record, pattern) for pattern in patterns}
    if strange := [pattern for pattern, tasks in found.items() if not tasks]:
        if several and strange[0] == names[0]:
            raise several
        no_run = "" if len(patterns) < len(names) else f"{strange[0]} is no run in {out}, and "
        raise UsageError(
            f"{no_run}{record.run_id} has no task {strange[0]}.",
            f"It has {', '.join(_printing(record))}.",
        )
    wanted = dict.fromkeys(chain.from_iterable(found.values()))
    return record, list(wanted) if patterns else _printing(record)


def _printing(record: RunFolder) -> list[str]:
    outline = record.outline
    return [*outline.tasks, *outline.helpers]


def _matching(record: RunFolder, pattern: str) -> list[str]:
    return [name for name in _printing(record) if fnmatch.fnmatchcase(name, pattern)]


def down(run: RunArgument = None, option: RunOption = None, out: Out = Path("runs")) -> None:
    """Stop a run, or remove what a kept or crashed one has left."""
    from emulator.record.remains import SOCKET
    from emulator.supervisor.cleanup import stop_or_remove

    record = live_folder(chosen_run(run, option), out)
    with signals.deferred(REMOVES):
        # Before its API answers, and afterwards, a signal stops it.
        if (record.path / SOCKET).exists() and _stopped(record):
            note(f"{record.run_id} was stopped")
            return
        note(stop_or_remove(record, note))


def _stopped(record: RunFolder) -> bool:
    """Stop a run by its API and wait for its end; return whether the API answered."""
    from emulator.api.client import Cluster
    from emulator.record.lock import wait_until_over
    from emulator.record.reader import Record
    from emulator.report.progress import under_way

    with contextlib.suppress(UsageError), Cluster(Record(record.path)) as cluster:
        with under_way(f"stopping {record.run_id}, and removing what it made"):
            cluster.stop()
            wait_until_over(record.path)
        return True
    return False


def clean(
    out: Out = Path("runs"),
    engine: WhichEngine = "auto",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list it.")] = False,
    warm: Annotated[
        bool, typer.Option("--warm", help="Also what waits for the next warm run.")
    ] = False,
    host: Annotated[
        list[str] | None,
        typer.Option(help="Also clean up runs of that machine; they must have ended (repeatable)."),
    ] = None,
) -> None:
    """Remove what crashed runs have left behind.

    These are containers, networks, volumes and processes that carry our label and belong to no run
    that is under way.
    """
    from emulator.supervisor.cleanup import clean as clean_up
    from emulator.supervisor.cleanup import counted

    def say(text: str) -> None:
        signals.check()  # between two runs
        note(text)

    with signals.deferred(REMOVES):
        count = clean_up(
            out, engine_name=engine, dry_run=dry_run, say=say, warm=warm, over=host or ()
        )
    done = "found" if dry_run else "removed"
    note(f"{counted(count)} {done}" if count else "nothing to remove")
