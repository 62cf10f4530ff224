"""`preempt`, `fault`, `heal`, `wait`, `attach`: a run that goes on, by hand."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from emulator.cli.common import (
    ApiPort,
    Out,
    Plain,
    RunArgument,
    complete_runs,
    console,
    find_live_run,
    find_run,
    note,
    perhaps_unread,
    print_json,
)
from emulator.errors import UsageError
from emulator.scenario.strikes import STRIKES

__all__ = ["add_to"]

Run = Annotated[
    str,
    typer.Option("--run", help="A run id, its folder, or `last`.", autocompletion=complete_runs),
]
Grace = Annotated[
    str | None, typer.Option("--grace", metavar="TIME", help="Between SIGTERM and SIGKILL [30s].")
]
Down = Annotated[
    str | None, typer.Option("--down", metavar="TIME", help="Until it is back, or forever [10s].")
]
Address = Annotated[
    str | None, typer.Option("--address", metavar="new|same", help="Of the task when it is back.")
]


def add_to(app: typer.Typer) -> None:
    """Add this theme's commands."""
    app.command()(preempt)
    app.command()(fault)
    app.command()(heal)
    app.command()(wait)
    app.command()(attach)


def preempt(
    target: Annotated[str, typer.Argument(metavar="TASK", help="A task's name, or a glob.")],
    grace: Grace = None,
    down: Down = None,
    address: Address = None,
    run: Run = "last",
    out: Out = Path("runs"),
) -> None:
    """Preempt a task of a running scenario: SIGTERM, grace, SIGKILL, down, back on a fresh disk."""
    _strike(run, out, {"preempt": target, "grace": grace, "down": down, "address": address})


def fault(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND", help=", ".join(STRIKES) + ".", autocompletion=lambda: list(STRIKES)
        ),
    ],
    targets: Annotated[
        list[str],
        typer.Argument(metavar="TASK...", help="A name or glob; for partition groups: a,b c."),
    ],
    for_: Annotated[
        str | None,
        typer.Option("--for", metavar="TIME", help="How long; until it is healed where not said."),
    ] = None,
    grace: Grace = None,
    down: Down = None,
    address: Address = None,
    cpus: Annotated[float | None, typer.Option(help="throttle: cores that are left.")] = None,
    to: Annotated[str | None, typer.Option(metavar="TASK", help="shape: towards whom.")] = None,
    oneway: Annotated[bool, typer.Option("--oneway", help="Only what the first sends.")] = False,
    delay: Annotated[str | None, typer.Option(metavar="TIME", help="shape: of packets.")] = None,
    jitter: Annotated[str | None, typer.Option(metavar="TIME", help="shape: around it.")] = None,
    loss: Annotated[str | None, typer.Option(metavar="SHARE", help="shape: such as 5%.")] = None,
    bandwidth: Annotated[str | None, typer.Option(metavar="RATE", help="shape: 10mbit.")] = None,
    run: Run = "last",
    out: Out = Path("runs"),
) -> None:
    """Strike a running scenario with any fault, now. See docs/faults.md for the kinds."""
    if kind not in STRIKES:
        raise UsageError(f"There is no fault {kind!r}.", f"Faults: {', '.join(STRIKES)}.")
    if kind != "partition" and len(targets) > 1:
        raise UsageError(f"`{kind}` takes one task or glob.", "Strike once for each.")
    lasts = kind in ("pause", "throttle", "partition", "shape")
    said = {
        kind: [group.split(",") for group in targets] if kind == "partition" else targets[0],
        "for": for_ or ("forever" if lasts else None),
        "grace": grace,
        "down": down,
        "address": address,
        "cpus": cpus,
        "to": to,
        "oneway": oneway or None,
        "delay": delay,
        "jitter": jitter,
        "loss": _share(loss),
        "bandwidth": bandwidth,
    }
    _strike(run, out, said)


def heal(
    fault: Annotated[
        str, typer.Argument(metavar="FAULT", help="A fault's id or name; all of them if not said.")
    ] = "all",
    run: Run = "last",
    out: Out = Path("runs"),
) -> None:
    """Heal a fault that lasts, or bring back now what was preempted."""
    from emulator.api.client import Cluster

    with Cluster(find_live_run(run, out)) as cluster:
        healed = cluster.heal(fault)
    note(f"healing {', '.join(healed)}" if healed else "there is nothing to heal")


def wait(
    run: RunArgument = "last",
    out: Out = Path("runs"),
    json: Annotated[bool, typer.Option("--json", help="The summary as data.")] = False,
) -> None:
    """Wait until a run is over, and print its summary. Exit codes are those of `up`."""
    from emulator.record.folder import wait_until_over
    from emulator.report.terminal import print_summary
    from emulator.results import exit_code, judge

    record = find_run(run, out)
    wait_until_over(record.path)
    analysis, verdicts, summary = judge(record)
    with perhaps_unread():
        if json:
            print_json(summary)
        else:
            print_summary(summary, console())
    raise typer.Exit(exit_code(analysis.outcome, verdicts))


def attach(
    run: RunArgument = "last",
    out: Out = Path("runs"),
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave containers, network and volume for a look.")
    ] = False,
    plain: Plain = False,
    api_port: ApiPort = None,
) -> None:
    """Take over a run whose emulator was killed, and see it through; its history has the gap.

    A run that somebody is at work on is only followed: what its tasks print, until it is over.
    """
    from emulator.api.client import Cluster
    from emulator.api.loopback import Loopback
    from emulator.engines import choose
    from emulator.report.live import view
    from emulator.report.terminal import LivePrinter, print_result
    from emulator.run import attach as take_over

    record = find_run(run, out)
    if record.live:
        with Cluster(record) as cluster:
            LivePrinter().follow(record.plan, cluster.lines())
        wait(run, out)
    with view(plain=plain) as shown:
        loopback = None if api_port is None else Loopback(api_port)
        with contextlib.closing(choose(record.plan.engine)) as engine:
            result = take_over(
                record, engine, keep=keep, loopback=loopback, listener=shown.listener()
            )
    with perhaps_unread():
        print_result(result, console(), kept=keep)
    raise typer.Exit(result.exit_code)


def _strike(run: str, out: Path, said: dict[str, object]) -> None:
    from emulator.api.client import Cluster

    with Cluster(find_live_run(run, out)) as cluster:
        struck = cluster.fault(**said)
    note(f"{cluster.run_id}: fault {', '.join(struck)}; `emulate heal {struck[0]}` heals it")


def _share(text: str | None) -> object:
    """Pass a share on as scenarios write it: 0.05, or 5%."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text
