"""The schema of a scenario; `loader.py` loads one from a file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)

from emulator.faults.netem import Link
from emulator.faults.table import AnyEntry
from emulator.metrics.steps import PATTERNS
from emulator.scenario.paths import ContextPath, DockerfilePath, ProgramPath
from emulator.scenario.pytest_options import Marks, Parametrize, Reference
from emulator.validation.fields import (
    Command,
    Cores,
    Delay,
    Duration,
    Env,
    Memory,
    Model,
    Rate,
    Size,
    Variable,
    is_stored,
)
from emulator.validation.limits import FAULTS, TASKS
from emulator.validation.patterns import Pattern

Framework = Literal["tensorflow", "pytorch", "none"]
RestartPolicy = Literal["never", "on-failure", "always", "exit-code"]
RestartScope = Literal["task", "job"]
SuccessRule = Literal["auto", "chief", "all-workers"]
JobOutcome = Literal["succeeded", "failed", "timeout"]


class Program(Model):
    """The program of every task, unless its role sets another."""

    source: ProgramPath | None = None
    """A file or folder, copied into each task's working directory."""
    command: Command
    env: Env = {}


def _module(value: str) -> str:
    if not all(part.isidentifier() for part in value.split(".")):
        raise ValueError(f"{value!r} is not the name of a Python module, such as 'tensorflow'")
    return value


Module = Annotated[str, Field(max_length=200), AfterValidator(_module)]
Preload = Annotated[list[Module] | None, Field(max_length=50)]


class Dockerfile(Model):
    """An image built from the user's Dockerfile."""

    dockerfile: DockerfilePath
    context: ContextPath | None = None
    """The build context; default: the Dockerfile's folder."""
    args: dict[Variable, str] = {}
    preload: Preload = None
    """The modules that a warm start imports ahead; default: those of the framework."""


class NamedImage(Model):
    """An image by name, with what a warm start imports ahead."""

    name: Annotated[str, BeforeValidator(lambda value: _reference(value))]
    preload: Preload = None


# https://github.com/distribution/reference: registry, path, tag, digest.
_PART = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"(?:[A-Za-z0-9][A-Za-z0-9.-]*(?::[0-9]{{1,5}})?/)?{_PART}(?:/{_PART})*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@[A-Za-z0-9+._-]+:[0-9a-fA-F]+)?"
)
_REFERENCE_LENGTH = 500


def _reference(value: object) -> object:
    if isinstance(value, str) and (
        len(value) > _REFERENCE_LENGTH or not _REFERENCE.fullmatch(value)
    ):
        raise ValueError(f"{value!r} is not an image reference, such as 'python:3.11-slim'")
    return value


def _image(value: object) -> object:
    if isinstance(value, str | Mapping | Dockerfile | NamedImage):
        return _reference(value)
    raise ValueError("an image is 'cpu', 'gpu', 'auto', 'pytorch', a reference or a dockerfile:")


def _kind_of_image(value: object) -> str:
    if isinstance(value, str):
        return "Reference"
    named = isinstance(value, NamedImage) or (isinstance(value, Mapping) and "name" in value)
    return "NamedImage" if named else "Dockerfile"


Image = Annotated[
    Annotated[str, Tag("Reference")]
    | Annotated[NamedImage, Tag("NamedImage")]
    | Annotated[Dockerfile, Tag("Dockerfile")],
    # Not a plain union: that would report the errors of each kind of image.
    Discriminator(_kind_of_image),
    BeforeValidator(_image),
]
AnyImage = str | NamedImage | Dockerfile


class Gpus(Model):
    """GPUs of one task."""

    count: int = Field(strict=True, default=1, ge=0)
    shared: bool = False
    """Share devices with other tasks if too few are free."""


def _counted(key: str) -> BeforeValidator:
    def read(value: object) -> object:
        return {key: value} if isinstance(value, int) and not isinstance(value, bool) else value

    return BeforeValidator(read)


class Role(Model):
    """The tasks of one role; a bare number is the number of replicas."""

    replicas: int = Field(strict=True, default=1, ge=1, le=TASKS)
    cpus: Cores | None = None
    """CPU limit in cores."""
    memory: Memory | None = None
    """Memory limit in bytes."""
    processes: int | None = Field(strict=True, default=None, ge=16, le=4_194_304)
    """Limit of processes and threads of one task."""
    gpus: Annotated[Gpus, _counted("count")] = Gpus(count=0)
    command: Command | None = None
    env: Env = {}
    image: Image | None = None


Cluster = dict[str, Annotated[Role, _counted("replicas")]]


class Reserve(Model):
    """Resources reserved for a run on a shared machine; they limit nothing.

    Default: the sum of its tasks' limits.
    """

    cpus: Cores | None = None
    """Cores."""
    memory: Size | None = None
    """Bytes."""


class Restart(Model):
    """When a task that has ended is restarted; see `emulator/supervisor/restart_policy.py`."""

    policy: RestartPolicy = "never"
    scope: RestartScope = "task"
    limit: int = Field(strict=True, default=5, ge=0)
    backoff: Duration = 1.0
    """Seconds before the first restart; doubled for each further one, up to five minutes."""
    stall: Duration | None = None
    """Seconds without a step after which the training tasks count as failed."""


class Network(Model):
    """The cluster's network."""

    internet: bool = True
    delay: Delay = 0.0
    """Seconds added to each packet."""
    bandwidth: Rate | None = None
    """Bits per second of each task."""
    metadata: Literal["open", "closed"] = "open"
    """Whether tasks reach the metadata service of the machine (169.254.169.254)."""


class Metrics(Model):
    """How steps are parsed from task output, and how often usage is sampled."""

    steps: str = "auto"
    """`auto`, `json`, a named pattern (see docs/protocol.md), or a regex with `(?P<step>...)`."""
    examples_per_step: int | None = Field(strict=True, default=None, ge=1)
    interval: Duration = Field(default=1.0, ge=0.1)
    """Seconds between two usage samples."""

    @field_validator("steps")
    @classmethod
    def _known(cls, steps: str, info: ValidationInfo) -> str:
        if steps in {"auto", "json", *PATTERNS} or is_stored(info):
            return steps
        if "step" not in Pattern(steps).names:
            names = ", ".join(["auto", "json", *PATTERNS])
            raise ValueError(f"a regex needs a group (?P<step>\\d+); named patterns: {names}")
        return steps


class Share(Model):
    """Bounds on a rate as a share of the rate before the fault."""

    min: float | None = Field(strict=True, default=None, ge=0)
    max: float | None = Field(strict=True, default=None, ge=0)


class Throughput(Model):
    """Bounds on the job's rate in steps per second, and on its change by faults."""

    min: float | None = Field(strict=True, default=None, gt=0)
    max: float | None = Field(strict=True, default=None, gt=0)
    during: Share = Share()
    """From a fault until its target is restored, as a share of the ten seconds before it."""
    after: Share = Share()
    """In the ten seconds from the job's first step with the target restored."""
    at_least: float | None = Field(strict=True, default=None, gt=0)
    """The minimum rate, as a share of the stored baseline or the reference variant."""
    of: Literal["baseline", "reference"] | None = None

    @model_validator(mode="after")
    def _both(self) -> Throughput:
        if self.at_least is not None and self.of is None:
            raise ValueError("`at_least` needs `of`: `of: baseline` or `of: reference`")
        if self.of is not None and self.at_least is None:
            raise ValueError("`of` needs `at_least`, such as `at_least: 0.9`")
        return self


class Expectations(Model):
    """Expectations of a run, judged from its record alone."""

    outcome: JobOutcome = "succeeded"
    final_step: int | None = Field(strict=True, default=None, ge=0)
    """The least step that the job must reach."""
    accuracy: float | None = Field(strict=True, default=None, ge=0, le=1)
    """The least `accuracy` in the job's last step event that has one."""
    throughput: Throughput | None = None
    max_restarts: int | None = Field(strict=True, default=None, ge=0)
    max_lost_steps: int | None = Field(strict=True, default=None, ge=0)
    """Steps repeated after restarts, in total."""
    recovers_within: Duration | None = None
    """Seconds from a failure to the next step, for each recovery."""
    min_goodput: float | None = Field(strict=True, default=None, ge=0, le=1)
    saved_within_grace: bool = Field(strict=True, default=False)
    """Every preempted task saved a checkpoint between the notice and its end."""
    monotone_checkpoints: bool = Field(strict=True, default=False)
    """Saved steps never decrease, and every restored step was saved before."""
    single_chief: bool = Field(strict=True, default=False)
    """Never two incarnations of the chief at once, nor a step of one that had ended."""
    steps_exactly_once: bool = Field(strict=True, default=False)
    """The leading task reports every step exactly once: none repeated, none missing."""


class Scenario(Model):
    """One emulated training job."""

    name: str = Field(pattern=r"^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$", examples=["mwms-two-workers"])
    description: str = ""
    framework: Framework = "tensorflow"
    image: Image = "auto"
    program: Program
    cluster: Cluster = Field(min_length=1, examples=[{"worker": 2}])
    restart: Annotated[
        Restart, BeforeValidator(lambda v: {"policy": v} if isinstance(v, str) else v)
    ] = Restart()
    reserve: Reserve | None = None
    success: SuccessRule = "auto"
    faults: Annotated[list[AnyEntry], Field(max_length=FAULTS)] = []
    timeout: Duration | None = None
    """Seconds from the start of the first task; default: none."""
    seed: int = Field(default=0, strict=True)
    network: Network = Network()
    metrics: Metrics = Metrics()
    expect: Expectations = Expectations()
    parametrize: Parametrize = {}
    """Values of keys; pytest runs every combination as a test."""
    reference: Reference = {}
    """Overrides of the reference variant, which pytest runs to compare rates."""
    marks: Marks = []
    """Marks of its tests in pytest."""

    @property
    def network_parts(self) -> frozenset[str]:
        """The keys of `netem.PROBES` that the kernel must support for its network and faults."""
        network = self.network
        parts = Link("", "", delay=network.delay, bandwidth=network.bandwidth).parts
        return parts.union(*(fault.parts for fault in self.faults))


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a scenario file, for editors."""
    schema = Scenario.model_json_schema()
    role = {"$ref": "#/$defs/Role"}
    schema["properties"]["cluster"]["additionalProperties"] = {
        "anyOf": [role, {"type": "integer", "minimum": 1, "maximum": TASKS}]
    }
    schema["properties"]["restart"] = {
        "anyOf": [{"$ref": "#/$defs/Restart"}, {"enum": list(get_args(RestartPolicy))}]
    }
    schema["$defs"]["Role"]["properties"]["gpus"] = {
        "anyOf": [{"$ref": "#/$defs/Gpus"}, {"type": "integer", "minimum": 0}]
    }
    time = schema["$defs"]["Trigger"]["properties"]["time"]["anyOf"]
    for entry in schema["properties"]["faults"]["items"]["anyOf"]:
        keys = entry["properties"]
        keys["at"] = {"anyOf": [{"$ref": "#/$defs/Trigger"}, *time]}
        if "trace" in keys:
            file = {"type": "string", "examples": ["trace.csv"]}
            keys["trace"] = {"anyOf": [keys["trace"], file]}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
