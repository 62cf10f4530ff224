"""`exec`: a command in a task of a run under way."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Annotated

import typer

from emulator.cli.command import Command
from emulator.cli.options import Out, RunOption, complete_exec, live_folder
from emulator.errors import EngineError, UsageError

SHELL = ("sh", "-c", "command -v bash >/dev/null 2>&1 && exec bash; exec sh")
"""The best shell that there is."""


class _ExecCommand(Command):
    """Leaves everything behind the task to the command."""

    allow_interspersed_args = False


def exec_(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[RUN] TASK [-- COMMAND...]",
            help="A task, and what to run in it [default: a shell].",
            autocompletion=complete_exec,
        ),
    ],
    run: RunOption = None,
    out: Out = Path("runs"),
) -> None:
    """Run a command in a running task, or a shell. The exit code is that of the command.

    It has the environment, the folder and the network of the task. It gets a terminal where stdin
    and stdout are one. For containers it needs the command docker, or kubectl.
    """
    from emulator.engines import choose
    from emulator.engines.base import Configuring, Executing
    from emulator.engines.capabilities import capable
    from emulator.record.reader import Record
    from emulator.runtime.files import os_errors

    name, task, command = _parts(words, run, out)
    record = Record(live_folder(name, out).path)
    plan = record.plan
    with contextlib.closing(choose(plan.engine)) as engine:
        if isinstance(engine, Configuring):
            engine.configure(plan.scenario)
        if task not in plan.printing:
            raise UsageError(
                f"{plan.run_id} has no task {task}.", f"It has {', '.join(plan.printing)}."
            )
        terminal = os.isatty(0) and os.isatty(1)
        found = capable(engine, Executing).command_line(
            plan, record.path, task, command, terminal=terminal
        )
    with os_errors(EngineError, f"Can't run {found.arguments[0]} in {task}"):
        os.chdir(found.folder or ".")
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
            signal.signal(number, signal.SIG_DFL)
        # It takes the place of this process: its signals and its exit code are the command's.
        os.execvpe(found.arguments[0], list(found.arguments), found.environment or os.environ)


exec_.command_class = _ExecCommand  # type: ignore[attr-defined]


def _parts(words: list[str], run: str | None, out: Path) -> tuple[str, str, list[str]]:
    """Return the run, the task and the command.

    Two words before `--` are a run and a task. Without `--` the first word is a task, if the run
    has one of that name.
    """
    head = words[1:2] if _is_task(words[0], out) else words[1:3]
    if "--" not in words and (behind := [one for one in head if one.startswith("-")]):
        raise UsageError(
            f"{behind[0]} is behind the task: it would be the command.",
            "Write options before the task.",
        )
    if "--" in words[:3]:
        end = words.index("--")
        head, command = words[:end], words[end + 1 :]
    else:
        end = 1 if run or len(words) < 2 or _is_task(words[0], out) else 2
        head, command = words[:end], words[end:]
    if len(head) == 2 and run:
        raise UsageError(f"Two runs were given: {run} and {head[0]}.", "Leave one of them out.")
    return head[0] if len(head) == 2 else run or "last", head[-1], command or list(SHELL)


def _is_task(word: str, out: Path) -> bool:
    with contextlib.suppress(UsageError):
        outline = live_folder("last", out).outline
        return word in (*outline.tasks, *outline.helpers)
    return False
