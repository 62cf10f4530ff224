"""Errors for the user: a sentence with the problem, what to try next, and the exit code.

    EmulatorError                exit 4   the emulator or the engine failed
    ├── UsageError               exit 2   the command line is wrong
    │   ├── InUse                exit 2   another emulate process uses the run
    │   ├── RunOver              exit 2   a run was asked for something after its end
    │   ├── ScenarioError        exit 2   the scenario is wrong; has all problems
    │   ├── Misfit               exit 2   a value exceeds the engine's machine
    │   └── Unsupported          exit 2   this engine can't do what the scenario asks for
    ├── EngineError              exit 4   the engine refused or failed
    │   ├── EngineMissing        exit 4   no engine answers
    │   ├── NotRunning           exit 4   what was asked for needs a task that runs
    │   ├── NameTaken            exit 4   something that is not the run's has its name
    │   └── EngineLost           exit 4   the connection to the engine was lost during a run
    ├── ImageError               exit 4   an image is missing or does not build
    ├── RecordError              exit 4   the run folder can't be written or read
    └── ProgramFailed            exit 1   the user's program fails without a fault

Errors of Docker and of the operating system are translated where they enter: in `engines/`,
`record/` and `planning/leases.py`. Any other exception is a bug, except signals.Interruption
(exit 130).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

__all__ = [
    "EmulatorError",
    "EngineError",
    "EngineLost",
    "EngineMissing",
    "ImageError",
    "InUse",
    "Misfit",
    "NameTaken",
    "NotRunning",
    "Problem",
    "ProgramFailed",
    "RecordError",
    "RunOver",
    "ScenarioError",
    "Unsupported",
    "UsageError",
    "printable",
    "shown",
]


def printable(text: str, keep: str = "\n\t") -> str:
    """Return `text` with control characters escaped as in Python, except those in `keep`.

    Names of files, processes and containers could contain commands to the terminal.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in keep else repr(one)[1:-1] for one in text)


class EmulatorError(Exception):
    """An error for the user: what happened (`message`) and what to try next (`hint`)."""

    exit_code = 4

    def __init__(self, message: str, hint: str = "") -> None:
        self.message = printable(message)
        self.hint = printable(hint)
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


class ProgramFailed(EmulatorError):
    """The user's program does not succeed, even without a fault."""

    exit_code = 1


class UsageError(EmulatorError):
    """The command line is wrong."""

    exit_code = 2


class RunOver(UsageError):
    """A run was asked for something after its supervisor had ended."""

    def __init__(self) -> None:
        super().__init__("The run is over.")


class InUse(UsageError):
    """Another emulate process has the run's lock."""


class Misfit(UsageError):
    """A value in a scenario exceeds the engine's machine; the loader adds its line."""

    def __init__(self, path: tuple[str | int, ...], message: str, hint: str = "") -> None:
        super().__init__(
            f"{'.'.join(map(str, path))}: {message}.", f"{hint[:1].upper()}{hint[1:]}."
        )
        self.path, self.problem = path, (message, hint)


def shown(text: str, most: int = 200) -> str:
    """Return `text` printable on one line; the middle of more than `most` characters is cut out."""
    if len(text) > most:
        text = f"{text[: most // 2]}…{text[-most // 2 :]}"
    return printable(text, keep="")


@dataclass(frozen=True)
class Problem:
    """One error in a scenario: its place, what is wrong, what to write instead."""

    place: str
    """`file:line`, or the option that set the value."""
    path: str
    """The key, dotted: `cluster.worker.replicas`."""
    message: str
    hint: str = ""

    def __str__(self) -> str:
        where = f"{self.place}: {self.path}: " if self.path else f"{self.place}: "
        return shown(where + self.message + (f" ({self.hint})" if self.hint else ""), 1000)


class ScenarioError(UsageError):
    """A scenario is wrong; `problems` has all errors, and the message a line for each."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


WITHOUT_GPUS = "`--without-gpus` runs it on the CPU; `emulate doctor` says what GPUs there are."
"""What to do about GPUs that this machine does not have."""


class Unsupported(UsageError):
    """The engine can't do something that the scenario asks for.

    `lacks` names what another machine may have: an engine, `gpu`, or `network` (its kernel). `keys`
    are those of the scenario that ask for it, each with what it asks; the loader adds their lines.
    """

    def __init__(
        self,
        message: str,
        hint: str = "",
        *,
        lacks: Collection[str] = (),
        keys: Sequence[tuple[tuple[str | int, ...], str]] = (),
    ) -> None:
        super().__init__(message, hint)
        self.lacks, self.keys = frozenset(lacks), tuple(keys)


class EngineError(EmulatorError):
    """The engine refused or failed."""


class NotRunning(EngineError):
    """What was asked for needs a task that runs, and this one does not (any more)."""


class EngineMissing(EngineError):
    """An engine does not answer; `engine` is its name, set by `engines.choose`.

    `configured`: the user chose it, or something listens at its address.
    """

    engine = ""

    def __init__(self, message: str, hint: str = "", *, configured: bool = False) -> None:
        super().__init__(message, hint)
        self.configured = configured


class NameTaken(EngineError):
    """Something on the engine has a name of the run, which did not make it.

    Raised by `Engine.prepare` before it has made anything, or once that is removed: what the engine
    has under the run's id is another's.
    """


class EngineLost(EngineError):
    """The connection to the engine was lost during a run."""


class ImageError(EmulatorError):
    """An image is missing or does not build."""


class RecordError(EmulatorError):
    """The run folder can't be written or read."""
