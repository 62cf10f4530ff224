"""Commands that act on a run under way: `preempt`, `fault`, `heal`, `wait`, ..."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from emulator.cli.command import Command
from emulator.cli.options import (
    ApiPort,
    Keep,
    Out,
    Plain,
    Quiet,
    RunArgument,
    RunOption,
    Verbose,
    check_verbosity,
    chosen_run,
    complete_faults,
    complete_tasks,
    console,
    find_live_run,
    find_run,
    note,
    perhaps_unread,
    print_json,
)
from emulator.errors import UsageError

if TYPE_CHECKING:
    from emulator.api.client import Cluster
    from emulator.faults.spec import FaultSpec


class _FaultCommand(Command):
    """Takes options of the fault table too, which is imported when the command is called."""

    _of_faults: Sequence[Any] = ()

    def make_context(self, *args: Any, **extra: Any) -> Any:  # noqa: ANN401  as in Typer
        """Parse with the options of all kinds, or with those of the kind of that name."""
        from emulator.faults.kinds import FAULTS

        kind = FAULTS.get(str(self.name))
        own = [one for one in self.params if one not in self._of_faults]
        self._of_faults = _options([kind] if kind else [*FAULTS.values()])
        self.params = [*own, *self._of_faults]
        for parameter in self.params:
            if parameter.name == "kind":
                parameter.help = f"{', '.join(FAULTS)}."  # type: ignore[attr-defined]
        return super().make_context(*args, **extra)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401
        """Pass them on as the `obj` of the context."""
        ctx.obj = {str(one.name): ctx.params.pop(one.name) for one in self._of_faults}
        return super().invoke(ctx)


def _options(kinds: Sequence[type[FaultSpec]]) -> Sequence[Any]:
    """Return an option for each key of kinds of faults; of several kinds, it names its own."""
    texts: dict[str, dict[str, list[str]]] = {}
    flags: set[str] = set()
    for kind in kinds:
        for key, name in kind.key_fields().items():
            if key not in (kind.kind, "at", "name"):
                field = kind.model_fields[name]
                what = (field.description or key).partition("\n")[0].removesuffix(".")
                texts.setdefault(key, {}).setdefault(what, []).append(kind.kind)
                flags |= {key} if field.annotation is bool else set()
    options = []
    for key, of in texts.items():
        each = (f"{what} ({', '.join(of[what])})." if len(kinds) > 1 else f"{what}." for what in of)
        is_flag, name = key in flags, f"{key}_" if key == "for" else key
        type_: Any = bool if is_flag else str | None
        given = Annotated[type_, typer.Option(f"--{key.replace('_', '-')}", help=" ".join(each))]
        default = False if is_flag else None
        options.append(Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=given))

    def take(**given: object) -> None: ...

    vars(take)["__signature__"] = Signature(options)
    one = typer.Typer(add_completion=False)
    one.command()(take)
    return typer.main.get_command(one).params


def _complete_kinds() -> list[str]:
    from emulator.faults.kinds import FAULTS

    return list(FAULTS)


def preempt(
    context: typer.Context,
    target: Annotated[
        str,
        typer.Argument(
            metavar="TASK", help="A task's name, or a glob.", autocompletion=complete_tasks
        ),
    ],
    run: RunOption = None,
    out: Out = Path("runs"),
) -> None:
    """Preempt a task now.

    It gets SIGTERM, the grace period, SIGKILL, is down, and starts again on a fresh disk. With
    `--loss silent` it loses power instead of SIGTERM.
    """
    _inject("preempt", [target], run, out, context.obj)


def fault(
    context: typer.Context,
    kind: Annotated[
        str,
        typer.Argument(metavar="KIND", help="A kind of fault.", autocompletion=_complete_kinds),
    ],
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="TASK...",
            help="A name or glob; for partition groups: a,b c.",
            autocompletion=complete_tasks,
        ),
    ],
    run: RunOption = None,
    out: Out = Path("runs"),
) -> None:
    """Inject a fault of any kind now."""
    _inject(kind, targets, run, out, context.obj)


preempt.command_class = fault.command_class = _FaultCommand  # type: ignore[attr-defined]


def heal(
    fault: Annotated[
        str,
        typer.Argument(
            metavar="FAULT",
            help="A fault's id or name [default: all].",
            autocompletion=complete_faults,
            show_default=False,
        ),
    ] = "all",
    run: RunOption = None,
    out: Out = Path("runs"),
) -> None:
    """Heal a fault, or restart a preempted task, now."""
    from emulator.api.client import Cluster

    with Cluster(find_live_run(run or "last", out)) as cluster:
        healed = cluster.heal(fault)
    note(f"healing {', '.join(healed)}" if healed else "there is nothing to heal")


def wait(
    run: RunArgument = None,
    option: RunOption = None,
    out: Out = Path("runs"),
    json: Annotated[bool, typer.Option("--json", help="The summary as data.")] = False,
) -> None:
    """Wait until a run has finished. Prints its summary; exit codes are those of `up`."""
    from emulator.record.lock import wait_until_over
    from emulator.report.terminal import print_summary
    from emulator.results import exit_code, judge

    record = find_run(chosen_run(run, option), out)
    wait_until_over(record.path)
    analysis, verdicts, summary = judge(record)
    with perhaps_unread():
        if json:
            print_json(summary)
        else:
            print_summary(summary, console())
    raise typer.Exit(exit_code(analysis.outcome, verdicts))


def attach(
    run: RunArgument = None,
    option: RunOption = None,
    out: Out = Path("runs"),
    keep: Keep = False,
    plain: Plain = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    api_port: ApiPort = None,
) -> None:
    """Take over a run whose emulator was killed.

    It is run to its end and judged, as by `up`. A run whose emulator is alive is only followed:
    what its tasks print, until it has finished.
    """
    from emulator.api.client import when_up
    from emulator.api.tcp import TcpEndpoint
    from emulator.engines import choose
    from emulator.report.live import view
    from emulator.report.terminal import print_result
    from emulator.session.run import attach as take_over

    check_verbosity(quiet, verbose)
    record = find_run(chosen_run(run, option), out)
    if record.live and quiet:
        wait(str(record.path), out=out)
    if record.live:
        # One that has just been killed may seem alive for a moment: this waits until it is not.
        if (cluster := when_up(record, note)) is not None:
            _follow(cluster, verbose=verbose)
        if cluster is not None or record.result("summary.json") is not None:
            wait(str(record.path), out=out)
    with view(plain=plain, quiet=quiet, verbose=verbose) as shown:
        endpoint = None if api_port is None else TcpEndpoint(api_port)
        with contextlib.closing(choose(record.plan.engine)) as engine:
            result = take_over(
                record, engine, keep=keep, endpoint=endpoint, callbacks=shown.callbacks()
            )
    with perhaps_unread():
        print_result(result, console(), kept=keep)
    raise typer.Exit(result.exit_code)


def _follow(cluster: Cluster, *, verbose: bool) -> None:
    """Print what tasks print, until the run is over."""
    from emulator.api.client import NotAnswering
    from emulator.record.lock import wait_until_over
    from emulator.report.live import LivePrinter

    record = cluster.record
    with cluster:
        try:
            LivePrinter(verbose=verbose).follow(record.plan, cluster.lines())
        except NotAnswering:  # it ended before its first line was asked for, or was killed
            wait_until_over(record.path)
            if record.result("summary.json") is None:
                raise


def _inject(
    name: str,
    targets: Sequence[str],
    run: str | None,
    out: Path,
    options: Mapping[str, object],
) -> None:
    from emulator.api.client import Cluster
    from emulator.faults.kinds import FAULTS, refusal

    if refused := refusal({name: targets}):
        raise UsageError(f"{refused}.")
    if (kind := FAULTS.get(name)) is None:
        from emulator.validation.similar import suggestion

        raise UsageError(f"There is no fault {name!r}.", suggestion(name, FAULTS, "Faults"))
    if len(targets) > 1 and not kind.lists_groups:
        raise UsageError(f"`{kind.kind}` takes one task or glob.", "Inject one for each.")
    given = {key.removesuffix("_"): value for key, value in options.items() if value}
    given = {key: v if key in kind.with_units() else _number(v) for key, v in given.items()}
    if kind.lasting:
        given.setdefault("for", "forever")
    target = [group.split(",") for group in targets] if kind.lists_groups else targets[0]
    with Cluster(find_live_run(run or "last", out)) as cluster:
        ids = cluster.fault(**{kind.kind: target}, **given)
    note(f"{cluster.run_id}: fault {', '.join(ids)}; `emulate heal {ids[0]}` heals it")


def _number(value: object) -> object:
    """Pass numbers on as such, and other texts as they are: 3, 0.05, or 5%."""
    try:
        if isinstance(value, str):
            return int(value) if value.isdecimal() else float(value)
        return value
    except ValueError:
        return value
