"""The values of a Helm chart for TensorFlow, with a map of jobs, as a scenario (pure).

A chart may give any key any meaning, in its templates. So the keys that are known are in a table,
as data; a key that is not in it is a mistake if it is nearly one that is, else ignored with a note.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from emulator.errors import Problem, ScenarioError, shown
from emulator.plugins.kubeflow.manifests.common import Images, Options, as_name, gathered, stem_of
from emulator.plugins.kubeflow.manifests.expansion import expand, written
from emulator.scenario.document import KeyPath
from emulator.scenario.frameworks.tensorflow import TENSORFLOW
from emulator.scenario.manifests import (
    RENDER,
    Conversion,
    ConversionNote,
    Document,
    Format,
    OptionValues,
    SourceLocation,
    dotted,
)
from emulator.validation.quantities import as_cores, as_size, parse_quantity
from emulator.validation.similar import closest

RELEASE = "release"
"""The name of a release whose file has none."""
LONGEST = 10
"""Characters of a number that is text."""
UNKNOWN = "it is not known what the chart makes of it"
OF_STATEFUL_SETS = (
    "is a value of a chart of stateful sets, which is not read any more",
    "write a scenario: `framework: none`, `cluster: {ps: 1, worker: 2}`, and its command",
)
"""What is wrong with them, and what to write instead."""
ROOT = "tfCluster"
_JOBS = {"ps", "worker", "workers"}


def _recognises(documents: Sequence[Document]) -> bool:
    return any(_is_values(document) for document in documents)


def _is_values(document: Document) -> bool:
    data = document.data
    if not isinstance(data, Mapping) or "kind" in data or "apiVersion" in data:
        return False
    numbers = [data[key] for key in _JOBS & data.keys()]
    return isinstance(data.get(ROOT), Mapping) or any(
        isinstance(number, int | Mapping) for number in numbers
    )


def _convert(documents: Sequence[Document], given: OptionValues) -> Conversion:
    values = next(document for document in documents if _is_values(document))
    others = [document for document in documents if document is not values]
    if others:
        problem = others[0].problem((), "is another document; values are one", "leave it out")
        raise ScenarioError([problem])
    data, reader, options = values.data, _Values(values), Options.of(given)
    release = _release_of(values)
    if isinstance(data.get(ROOT), Mapping):
        return _convert_jobs(reader, release, options, (ROOT,))
    if "workerImage" in data:
        problem = values.problem(("workerImage",), "is a value of Arena's chart", RENDER)
        raise ScenarioError([problem])
    for role in sorted(_JOBS):
        if isinstance(data.get(role), Mapping) and "image" in data[role]:
            raise ScenarioError([values.problem((role, "image"), *OF_STATEFUL_SETS)])
    return _convert_jobs(reader, release, options, ())


def _release_of(values: Document) -> str:
    """Return the name of the release: Helm has it from its command line, here the file has it.

    `shards.values.yaml` is of the release `shards`.
    """
    given = values.get("fullnameOverride") or values.get("nameOverride")
    stem = stem_of(values.file)
    return as_name(given) or as_name("" if stem == "values" else stem) or RELEASE


HELM_VALUES = Format("Helm values", _recognises, _convert)
"""Values of a chart with a map of jobs."""


# --- Reading --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Key:
    """A key of the values of a chart."""

    path: str
    """Dotted; `*` is any name, `a|b` either."""
    how: Literal["honoured", "ignored"]
    text: str
    """What is made of it, or why nothing is."""
    quiet: bool = False
    """There is no note about it: it could mean nothing here, or it says what is done anyway."""

    @property
    def steps(self) -> tuple[tuple[str, ...], ...]:
        """The names that each part of the path may have."""
        return tuple(tuple(step.split("|")) for step in self.path.split("."))


Table = Sequence[Key]
OF_ANY_CHART: Table = (Key("fullnameOverride|nameOverride", "honoured", "the name of the release"),)


@dataclass
class _Values:
    """The values of a chart: reads them, and keeps what is wrong with them."""

    document: Document
    problems: list[Problem] = field(default_factory=list)
    notes: list[ConversionNote] = field(default_factory=list)
    origins: dict[KeyPath, SourceLocation] = field(default_factory=dict)

    def get(self, *path: str | int) -> Any:  # noqa: ANN401  YAML
        """Return the value at a path; None if there is none."""
        return self.document.get(*path)

    def first(self, *paths: KeyPath) -> KeyPath:
        """Return the first of some paths that has a value, else the first."""
        return next((path for path in paths if self.get(*path) is not None), paths[0])

    def count(self, path: KeyPath, default: int = 0, most: int = 10_000) -> int:
        """Return a whole number; text of one counts, as the `int` of templates reads it."""
        value = self.get(*path)
        if value is None:
            return default
        is_text = isinstance(value, str) and value.isdecimal() and len(value) < LONGEST
        number = int(value) if is_text else value
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= most:
            self.problem(path, f"{_written(value)} should be a whole number from 0 to {most:,}")
            return default
        return number

    def port(self, path: KeyPath, default: int) -> int:
        """Return the number of a port."""
        number = self.count(path, default, 65535)
        if number == 0:
            self.problem(path, "0 is not a port", f"a number from 1 on, such as {default}")
            return default
        return number

    def _valid(self, path: KeyPath, what: str, *types: type) -> Any:  # noqa: ANN401  YAML
        """Return a value of one of these types; one of another is a mistake, and None."""
        value = self.get(*path)
        if value is None or (
            bool in types if isinstance(value, bool) else isinstance(value, types)
        ):
            return value
        self.problem(path, f"{_written(value)} should be {what}")
        return None

    def flag(self, path: KeyPath) -> bool:
        """Return true or false."""
        return bool(self._valid(path, "true or false", bool))

    def text(self, path: KeyPath, default: str = "") -> str:
        """Return a text; a number is the text that a template would print."""
        value = self._valid(path, "text", str, int, float)
        return default if value is None else str(value)

    def mapping(self, path: KeyPath) -> Mapping[str, Any]:
        """Return a mapping."""
        return self._valid(path, "a mapping of keys and values", dict) or {}

    def variables(self, path: KeyPath) -> dict[str, str]:
        """Return variables, a mapping of their names to their values, which are no references."""
        return {name: _literal(self.text((*path, name))) for name in self.mapping(path)}

    def limits(self, path: KeyPath) -> dict[str, Any]:
        """Return the limits of a role from quantities of Kubernetes."""
        made: dict[str, Any] = {}
        for name, key, write in (("cpu", "cpus", as_cores), ("memory", "memory", as_size)):
            if (value := self.get(*path, name)) is not None:
                try:
                    made[key] = write(parse_quantity(value))
                except ValueError as error:
                    self.problem((*path, name), str(error))
        return made

    def command(self, path: KeyPath) -> list[str] | None:
        """Return a command: a list, or one as JSON, as charts put it into a template."""
        value = self.get(*path)
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                value = None
            if value is None:
                hint = 'write [python, train.py], or \'["python", "train.py"]\''
                self.problem(path, f"{_written(self.get(*path))} is not a list of words", hint)
        if value is None:
            return None
        if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
            return [_literal(word) for word in value]
        self.problem(path, f"{_written(value)} should be a list of words")
        return None

    def problem(self, path: KeyPath, message: str, hint: str = "") -> None:
        """Add a mistake."""
        self.problems.append(self.document.problem(path, message, hint))

    def origin(self, scenario: KeyPath, path: KeyPath) -> None:
        """Say where a value of the scenario comes from."""
        self.origins[scenario] = SourceLocation(self.document.place(path), dotted(path))

    def conversion(self, scenario: dict[str, Any], table: Table) -> Conversion:
        """Return the conversion, with notes on the keys that do not do what they do in a cluster.

        Raises ScenarioError with all that is wrong.
        """
        self._check(table, self.document.data, ())
        if self.problems:
            raise ScenarioError(list(dict.fromkeys(self.problems)))
        return Conversion(scenario, tuple(self.notes), self.origins)

    def _check(self, table: Table, data: Mapping[str, Any], path: KeyPath) -> None:
        depth = len(path)
        here = [key for key in table if len(key.steps) > depth and _begins(key, path)]
        names = {name for key in here for name in key.steps[depth] if name != "*"}
        for name, value in data.items():
            at = (*path, name)
            fitting = [key for key in here if {name, "*"} & {*key.steps[depth]}]
            exact = next((key for key in fitting if len(key.steps) == depth + 1), None)
            if exact is not None:
                if exact.how == "ignored" and not exact.quiet:
                    self._note(at, value, exact.text)
            elif fitting and isinstance(value, dict):
                self._check(table, value, at)
            elif fitting and value is not None:
                self.problem(at, f"{_written(value)} should be a mapping of keys and values")
            elif not fitting and (hint := closest(name, names - data.keys())):
                self.problem(at, "unknown key", hint)
            elif not fitting:
                self._note(at, value, UNKNOWN)

    def _note(self, path: KeyPath, value: object, text: str) -> None:
        """Add a note of a key that is ignored, if it says anything."""
        if value not in (None, False, "", [], {}):
            self.notes.append(ConversionNote(dotted(path), "ignored", text))


def _begins(key: Key, path: KeyPath) -> bool:
    return all({name, "*"} & {*names} for name, names in zip(path, key.steps, strict=False))


def _literal(text: str) -> str:
    """Return a text of a container as a scenario writes it; there, `${name}` would be a value."""
    return written(expand(text, {}))


def _written(value: object) -> str:
    return shown(json.dumps(value, default=str) if not isinstance(value, str) else repr(value), 80)


# --- A map of jobs, `tfCluster.settings.jobs: {ps: 8, worker: 16}` --------------------------------

# Each task gets the cluster as JSON in CLUSTER_CONFIG and its name in POD_NAME; only workers get
# GPUs. The same map at the top of the values, `ps: 8`, is read the same way.

OWN = ("auto", "cpu", "gpu", "pytorch", "jax", "python", "network")
"""Images of the emulator, which have no program of their own."""
ROLES = TENSORFLOW.roles.names
ALIASES = {f"{role}s": role for role in ROLES}
"""Other names of roles: `workers`."""
COUNTS = ("replicas", "number", "count")
"""Keys with the number of tasks, where a job is a mapping."""
PORT = 8080
"""The chart's own default."""
_BELOW_ROOT = (
    Key("deploy", "ignored", "the cluster is what is run", quiet=True),
    Key("service.internalPort", "honoured", "the port of every task"),
    Key("service.command", "honoured", "the command of every task; default: the image's own"),
    Key("service.*", "ignored", "a run has no services; its tasks have the names", quiet=True),
    Key("image.repo|repository", "honoured", "the image, with name and tag"),
    Key("image.name", "honoured", "the image"),
    Key("image.dockerTag|tag", "honoured", "the tag, unless there is one for CPU or GPU"),
    Key("image.dockerTagCpu|dockerTagGpu", "honoured", "the tag, by settings.isGpu"),
    Key("image.pullPolicy", "ignored", "an image that is here is not pulled", quiet=True),
    Key("env.*", "honoured", "variables of every task"),
    Key("resources.limits.cpu|memory", "honoured", "the limits of every task"),
    Key("resources.requests", "ignored", "limits are what counts on one machine", quiet=True),
)
_OF_GPUS = (
    Key("isGpu", "honoured", "whether workers get GPUs"),
    Key("nbGpuPerNode", "honoured", "GPUs of each worker, with isGpu; others get none"),
)
_NUMBER = "the number of tasks of a role, or {replicas}"
KEYS = (
    *(replace(one, path=f"{ROOT}.{one.path}") for one in _BELOW_ROOT),
    *(replace(one, path=f"{ROOT}.settings.{one.path}") for one in _OF_GPUS),
    Key(f"{ROOT}.settings.jobs.*", "honoured", _NUMBER),
    *OF_ANY_CHART,
)
"""What is made of the values of such a chart."""
PLAIN_KEYS = (
    *_BELOW_ROOT,
    *_OF_GPUS,
    Key("|".join([*ROLES, *ALIASES]), "honoured", _NUMBER),
    *OF_ANY_CHART,
)
"""What is made of values with the map at the top."""


def _convert_jobs(values: _Values, release: str, options: Options, root: KeyPath) -> Conversion:
    """Return the scenario of a map of jobs below `root`; without one, it is at the top."""
    settings, jobs = ((*root, "settings"), (*root, "settings", "jobs")) if root else ((), ())
    if not values.mapping(jobs):
        values.problem(jobs, "has no tasks", "write `{ps: 8, worker: 16}`")
    is_gpu = values.flag((*settings, "isGpu"))
    gpus = values.count((*settings, "nbGpuPerNode"), default=1)
    image = _image(values, (*root, "image"), is_gpu=is_gpu)
    images = Images(options.images)
    limits = values.limits((*root, "resources", "limits"))
    program = _program(values, root)
    roles: dict[str, dict[str, Any]] = {}
    for role, path in _roles(values, jobs).items():
        if not (count := _count(values, path)):
            continue
        used = images.instead(image, role, role)
        roles[role] = {
            "replicas": count,
            **({"image": used} if used else {}),
            **({"command": []} if used and used not in OWN else {}),  # the image's own
            **program,
            **limits,
            **({"gpus": gpus} if is_gpu and role == "worker" and gpus else {}),
        }
        values.origin(("cluster", role), path)
    values.problems += images.problems()
    port = (*root, "service", "internalPort")
    host = f"{{task}}.{release}.svc.cluster.local"
    address = {"host": host, "port": values.port(port, PORT)}
    values.origin(("addresses", "port"), port)
    values.origin(("image",), (*root, "image"))
    top, program, cluster = gathered(roles)
    made = {
        "name": release,
        "framework": "tensorflow",
        "rendezvous": "cluster-config",
        "addresses": address,
        **top,
        **({"program": program} if program else {}),
        "cluster": cluster,
    }
    return values.conversion(made, KEYS if root else PLAIN_KEYS)


def _program(values: _Values, root: KeyPath) -> dict[str, Any]:
    """Return the command and the variables of every task."""
    command = values.command((*root, "service", "command"))
    values.origin(("program", "command"), (*root, "service", "command"))
    # As a container of Kubernetes with `command`: the entry point of the image is not run.
    given = {"command": command, "entrypoint": "none"} if command else {}
    values.origin(("program", "env"), (*root, "env"))
    return {**given, "env": values.variables((*root, "env"))}


def _roles(values: _Values, jobs: KeyPath) -> dict[str, KeyPath]:
    found: dict[str, KeyPath] = {}
    for name in values.mapping(jobs):
        role = ALIASES.get(name, name)
        if role in ROLES and role in found:
            values.problem((*jobs, name), f"are tasks of the role {role}, as {found[role][-1]}")
        elif role in ROLES:
            found[role] = (*jobs, name)
        elif jobs:
            hint = "TF2 rejects 'master'; write chief" if name == "master" else ""
            known = f"roles: {', '.join(ROLES)}"
            values.problem((*jobs, name), "is no role", hint or closest(name, ROLES) or known)
    return found


def _count(values: _Values, path: KeyPath) -> int:
    """Return the number of tasks: a number, or one in a mapping."""
    if not isinstance(values.get(*path), dict):
        return values.count(path)
    for key in values.get(*path):
        if key not in COUNTS:
            values.problem((*path, key), "unknown key", closest(key, COUNTS) or "write `replicas`")
    return values.count(values.first(*((*path, key) for key in COUNTS)), default=1)


def _image(values: _Values, path: KeyPath, *, is_gpu: bool) -> str:
    """Return the image reference; empty if there is none."""
    repository = values.text(values.first((*path, "repo"), (*path, "repository")))
    name = "/".join(filter(None, [repository.rstrip("/"), values.text((*path, "name"))]))
    own = "dockerTagGpu" if is_gpu else "dockerTagCpu"
    tag = values.text(values.first((*path, own), (*path, "dockerTag"), (*path, "tag")), "latest")
    return f"{name}:{tag}" if name else ""
