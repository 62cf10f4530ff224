"""Read a scenario from any file that has one: a scenario as it is, or a manifest, converted.

A manifest becomes the text of a scenario, from which everything else continues: `emulate up FILE`
is `emulate convert FILE`, and `emulate up` of the result.
"""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from emulator.errors import UsageError
from emulator.runtime import plugins
from emulator.runtime.bundled import SCENARIO
from emulator.scenario import loader
from emulator.scenario.loader import Origins, scenario_text
from emulator.validation.files import text_of
from emulator.validation.limits import MANIFEST_BYTES, SCENARIO_BYTES
from emulator.validation.units import format_size

if TYPE_CHECKING:
    from emulator.scenario.manifests import ConversionNote, OptionValues
    from emulator.scenario.schema import Scenario

# Keys at the beginning of a line. Scenarios have one of the first, manifests of the second.
_KEY = re.compile(r"""(?m)^["']?([A-Za-z][\w-]*)["']?[ \t]*:(?=\s|$)""")
_OF_SCENARIOS = {"program", "cluster"}
_OF_MANIFESTS = {"apiVersion", "kind", "tfCluster", "task", "environment"}
PIPED = Path("standard input")
"""What a scenario that came through a pipe is called where others have their file: it is read in
the current folder, to which its paths are relative."""


@dataclass(frozen=True)
class Additions:
    """What the command line adds to a file."""

    images: Mapping[str, str] = field(default_factory=dict)
    """Container name, role or image reference -> the image to use instead."""
    faults: Path | None = None
    """A file with a part of a scenario, which is merged over it: faults, expectations."""
    command: Sequence[str] = ()
    own: OptionValues = field(default_factory=dict)
    """What the options of plug-ins say, of those that were given."""

    @property
    def arguments(self) -> list[str]:
        """The options of the command line that add this."""
        return [
            *(f"--image={name}={image}" for name, image in self.images.items()),
            *(f"--{n}={key}={value}" for n, own in self.own.items() for key, value in own.items()),
            *([] if self.faults is None else [f"--faults={self.faults}"]),
            *([f"--command={shlex.join(self.command)}"] if self.command else []),
        ]

    def again(self, path: Path, engine: str, sets: Sequence[str]) -> str:
        """Return the command that runs the file with this and with overrides, from any folder."""
        absolute = replace(
            self,
            faults=None if self.faults is None else self.faults.absolute(),
            own={
                one.name: {
                    key: str(Path(value).absolute()) if one.is_path else value
                    for key, value in self.own[one.name].items()
                }
                for one in plugins.options()
                if one.name in self.own
            },
        )
        options = [f"--engine={engine}", *absolute.arguments, *(f"--set={one}" for one in sets)]
        return shlex.join(["emulate", "up", str(path.absolute()), *options])


def again_piped(given: Given, record: Path, engine: str, sets: Sequence[str]) -> str:
    """Return the command that runs a piped scenario again, from its copy in the folder `record`.

    That copy has what was added to it.
    """
    options = [f"--engine={engine}", *(f"--set={one}" for one in sets)]
    there, copy = shlex.quote(str(given.folder)), shlex.quote(str(record.absolute() / SCENARIO))
    return f"(cd {there} && {shlex.join(['emulate', 'up', '-', *options])}) < {copy}"


NOTHING = Additions()


@dataclass(frozen=True)
class Given:
    """A scenario as it was given: its text, and where it comes from."""

    path: Path
    text: str
    """As YAML; paths in it are relative to the folder of `path`."""
    origins: Origins | None = None
    """Where its values come from, if the text was made from other files."""
    notes: tuple[ConversionNote, ...] = ()
    """What of a manifest the scenario does not have as it is there."""
    kept: Mapping[str, str] = field(default_factory=dict)
    """The files as they were given, for the run folder, by their name there."""
    title: str = ""
    """What messages call it; default: its path."""
    piped: str | None = None
    """What came on standard input, if it is from there."""

    @property
    def folder(self) -> Path:
        """The folder to which its paths are relative."""
        return self.path.resolve().parent

    def parse(
        self, sets: Sequence[str] = (), called: Callable[[str], str] = loader.OPTION
    ) -> Scenario:
        """Return the scenario with `key.path=value` overrides. Raises as `loader.parse`."""
        return loader.parse(
            self.text,
            file=self.title or str(self.path),
            folder=self.folder,
            sets=sets,
            origins=self.origins,
            called=called,
        )

    def placed(
        self, sets: Sequence[str] = (), called: Callable[[str], str] = loader.OPTION
    ) -> contextlib.AbstractContextManager[None]:
        """Return a context in which a Misfit, and what is not supported, get file and line."""
        file = self.title or str(self.path)
        return loader.placed(self.text, file, sets, self.origins, called)

    @property
    def warnings(self) -> tuple[str, ...]:
        """The notes as sentences."""
        return tuple(map(str, self.notes))


def load(path: Path, sets: Sequence[str] = (), added: Additions = NOTHING) -> Scenario:
    """Read and validate the scenario at `path`, or the one that a manifest there is converted to.

    `sets` are `key.path=value` overrides. Raises ScenarioError with all problems, UsageError if
    the file can't be read.
    """
    return read_scenario(path, added).parse(sets)


def read_scenario(path: Path, added: Additions = NOTHING) -> Given:
    """Return the text of the scenario at `path`; a manifest there is converted.

    Raises ScenarioError with all mistakes of a manifest or of the file of `--faults`; those of
    the scenario itself are found by `parse`. UsageError if a file can't be read.
    """
    text = manifest_text(path)
    if is_scenario(text) and len(text.encode()) > SCENARIO_BYTES:
        text = scenario_text(path)  # which says what is the most
    return _given(path, text, added)


def piped_scenario(text: str, added: Additions = NOTHING) -> Given:
    """Return the scenario that came on standard input; a manifest is converted.

    Raises as `read_scenario`.
    """
    if is_scenario(text) and len(text.encode()) > SCENARIO_BYTES:
        raise UsageError(
            f"Can't read {PIPED}: it has more than {format_size(SCENARIO_BYTES)}.",
            "Mount large files as a folder.",
        )
    return replace(_given(PIPED, text, added), piped=text)


def _given(path: Path, text: str, added: Additions) -> Given:
    if added == NOTHING and is_scenario(text):
        return Given(path, text)
    from emulator.scenario.assembly import assembled

    return assembled(path, text, added)


def manifest_text(path: Path) -> str:
    """Return the text of a scenario or a manifest. Raises UsageError if it can't be read."""
    try:
        return text_of(path, MANIFEST_BYTES)
    except ValueError:
        return scenario_text(path)  # which says why


def is_scenario(text: str) -> bool:
    """Say whether a text is a scenario, by the keys at the beginning of its lines (pure).

    Almost all files are scenarios, and to parse one twice would take as long as all the rest. One
    that is written otherwise, as JSON is, is recognised when it has been parsed.
    """
    return keys_of_scenario({match[1] for match in _KEY.finditer(text)})


def keys_of_scenario(keys: Collection[str]) -> bool:
    """Say whether a file with these keys is a scenario, rather than a manifest (pure)."""
    return not _OF_SCENARIOS.isdisjoint(keys) and _OF_MANIFESTS.isdisjoint(keys)
