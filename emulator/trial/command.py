"""What a command runs, as far as its words and the text of its script say it.

The script is parsed and never imported: what it would do is not done here.
"""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from emulator.errors import UsageError
from emulator.scenario.frameworks.pytorch import MODULES, torchrun
from emulator.scenario.frameworks.spec import FrameworkName
from emulator.validation.files import text_of
from emulator.validation.limits import MIB

FRAMEWORKS: Mapping[str, FrameworkName] = {
    **dict.fromkeys(("tensorflow", "keras", "tf_keras"), "tensorflow"),
    **dict.fromkeys(
        ("torch", "lightning", "pytorch_lightning", "transformers", "accelerate", "deepspeed"),
        "pytorch",
    ),
    **dict.fromkeys(("jax", "flax", "optax"), "jax"),
}
"""What a script imports, and the framework that this is."""
DISTRIBUTED = frozenset(
    {"init_process_group", "DistributedDataParallel", "DDP", "FullyShardedDataParallel", "FSDP"}
    | {"fully_shard", "Accelerator", "DistributedSampler", "init_device_mesh", "num_nodes"}
    | {"MultiWorkerMirroredStrategy", "ParameterServerStrategy", "TFConfigClusterResolver"}
)
"""Names that a script uses which trains with several tasks."""
VARIABLES = frozenset({"RANK", "WORLD_SIZE", "MASTER_ADDR", "TF_CONFIG"})
"""Variables that such a script reads."""
MODULES_READ = 50
"""Modules of the program's own that are read, beside the script."""


@dataclass(frozen=True)
class Program:
    """What a command runs."""

    command: tuple[str, ...]
    script: Path | None = None
    """Relative to the current folder; None: the command has no script in Python."""
    framework: FrameworkName = "none"
    imported: str = ""
    """What says so: an import, or torchrun."""
    workers: int = 1
    why: str = ""
    """Why so many, in words."""
    is_lightning: bool = False
    """It imports Lightning, which shows no progress without a terminal where rich is installed."""

    @property
    def is_distributed(self) -> bool:
        """Whether its tasks train together."""
        return self.workers > 1


@dataclass
class _Text:
    """What the text of a script has."""

    imports: list[str] = field(default_factory=list)
    """The first parts of the names of modules, in order."""
    names: list[str] = field(default_factory=list)
    texts: set[str] = field(default_factory=set)


LIGHTNING = {"lightning", "pytorch_lightning"}


def look(command: Sequence[str], folder: Path, path: str | None = None) -> Program:
    """Return what a command runs in a folder.

    `path` are the folders in which its program is looked for, as in PATH; None: it is elsewhere,
    such as in an image. Raises UsageError if it has no program, or if its script is not there or is
    not Python.
    """
    if not command:
        raise UsageError(
            "There is no command to try.", "For example: emulate try -- python train.py."
        )
    words = tuple(command)
    if words[0].endswith(".py"):
        raise UsageError(
            f"{words[0]} is a script, not a command.",
            f"Run it with Python: emulate try -- python {' '.join(words)}.",
        )
    is_python = re.fullmatch(r"python[\d.]*", words[0])  # the engine has it for each task
    if path is not None and not (is_python or shutil.which(words[0], path=path)):
        raise UsageError(f"There is no program {words[0]}.", "The first word is what runs.")
    script = _script(words, folder)
    if script is None:
        launched = torchrun(words) is not None
        return Program(words, framework="pytorch" if launched else "none")
    text = _read(folder, script)
    name = next((name for name in text.imports if name in FRAMEWORKS), "")
    framework, imported = FRAMEWORKS.get(name, "none"), f"import {name}" if name else ""
    workers, why = _workers(words, text)
    if launcher := torchrun(words):
        framework, imported = "pytorch", "torchrun"
        if launcher.standalone or _nodes(words) == "1":
            workers, why = 1, "its torchrun is of one node"
        else:
            workers, why = 2, "torchrun connects them"
    is_lightning = bool(LIGHTNING & {*text.imports})
    return Program(words, script, framework, imported, workers, why, is_lightning)


def _workers(words: Sequence[str], text: _Text) -> tuple[int, str]:
    """Return how many workers a script is for, and why."""
    if "jax" in text.imports and "distributed" in text.names:
        return 2, "it uses jax.distributed"
    if used := next((name for name in text.names if name in DISTRIBUTED), ""):
        return 2, f"it uses {used}"
    if read := sorted(text.texts & VARIABLES):
        return 2, f"it reads {read[0]}"
    return 1, "nothing in it trains with several tasks"


def _nodes(words: Sequence[str]) -> str:
    """Return the value of torchrun's --nnodes; empty if it is not given."""
    parts = [part for word in words for part in word.replace("_", "-").split("=", 1)]
    return next((b for a, b in pairwise(parts) if a == "--nnodes"), "")


def _script(words: Sequence[str], folder: Path) -> Path | None:
    """Return the script in a command. Raises UsageError if it is not there."""
    name = next((word for word in words[1:] if word.endswith(".py")), None)
    if name is None and "-m" in words[1:-1]:
        module = words[words.index("-m") + 1]
        if module in MODULES:
            return None
        inside = Path(*module.split("."))
        found = (inside.with_suffix(".py"), inside / "__main__.py")
        return next((path for path in found if (folder / path).is_file()), None)
    if name is None:
        return None
    if not (folder / name).is_file():
        raise UsageError(f"There is no {name} in {folder}.", "Run it where the program is.")
    return Path(name)


def _read(folder: Path, script: Path) -> _Text:
    """Return what a script and the modules of the program that it imports have.

    Raises UsageError if the script is not Python.
    """
    found = _Text()
    todo, seen = [script], {script}
    while todo and len(seen) <= MODULES_READ:
        path = todo.pop(0)
        try:
            tree = ast.parse(text_of(folder / path, MIB))
        except ValueError as error:
            if path == script:
                raise UsageError(f"{script} can't be read: {error}.") from None
            continue
        except SyntaxError as error:
            if path == script:
                raise UsageError(
                    f"{script}:{error.lineno}: {error.msg}.", "Mend it first."
                ) from None
            continue
        modules = list(_look_into(tree, found))
        beside = [near for name in modules for near in _near(folder, path.parent, name)]
        todo += [one for one in beside if one not in seen]
        seen |= {*beside}
    return found


def _look_into(tree: ast.AST, found: _Text) -> Iterator[str]:
    """Note what a text has; yield the names of modules that it imports."""
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                for one in node.names:
                    found.imports.append(one.name.partition(".")[0])
                    yield one.name
            case ast.ImportFrom(module=str(module)):
                found.imports.append(module.partition(".")[0])
                found.names += [one.name for one in node.names]
                yield module
            case ast.Attribute():
                found.names.append(node.attr)
            case ast.Name():
                found.names.append(node.id)
            case ast.keyword(arg=str(name)):
                found.names.append(name)
            case ast.Constant(value=str(text)) if len(text) < 40:
                found.texts.add(text)


def _near(folder: Path, beside: Path, module: str) -> Iterator[Path]:
    """Yield the file of a module of the program's own."""
    inside = Path(*module.split("."))
    for where in dict.fromkeys((beside, Path())):
        for path in (where / inside.with_suffix(".py"), where / inside / "__init__.py"):
            if (folder / path).is_file():
                yield path
