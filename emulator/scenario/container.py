"""What a scenario says about containers: limits, mounts, files, ports; init steps."""

from __future__ import annotations

import base64
import binascii
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)

from emulator.scenario.image import Image
from emulator.scenario.paths import MountPath
from emulator.scenario.program import SHARED, WORKDIR
from emulator.validation.fields import Command, Cores, Env, Memory, Model, Size
from emulator.validation.limits import FILES, MOUNTS, PARTS, PORTS
from emulator.validation.units import format_size, parse_size

RESERVED = (SHARED, "/proc", "/sys", "/dev", "/.emulator")
"""Folders of a container in which nothing else can be mounted."""
KERNEL = ("/proc", "/sys", "/dev")
UNLIMITED = "unlimited"


def _shortened(kinds: type | tuple[type, ...], schema: object, *keys: str) -> BeforeValidator:
    """Return a validator that reads a plain value as the value of these keys."""

    def read(value: object) -> object:
        is_short = isinstance(value, kinds) and not isinstance(value, bool)
        return dict.fromkeys(keys, value) if is_short else value

    return BeforeValidator(read, json_schema_input_type=schema)


# --- Mounts ---------------------------------------------------------------------------------------


def _target(path: str) -> str:
    """Check the path at which something is mounted in a container."""
    if not path.startswith("/") or not path.isprintable():
        raise ValueError(f"{path!r} is not a path in a container, such as /data")
    if path != posixpath.normpath(path) or path.startswith("//"):
        raise ValueError(f"{path!r} is not in its shortest form; write {_normal(path)}")
    if path == "/" or path == WORKDIR:
        raise ValueError(f"{path} can't be mounted over; mount at a folder below it")
    for folder in RESERVED:
        if is_in(path, folder):
            raise ValueError(f"nothing can be mounted in {folder}; choose another path")
    return path


def _normal(path: str) -> str:
    return "/" + posixpath.normpath(path).lstrip("/")


def is_in(path: str, folder: str) -> bool:
    """Return whether a path is a folder or something in it (pure)."""
    inside = PurePosixPath(path)
    return PurePosixPath(folder) in (inside, *inside.parents)


# As the engine checks it: https://github.com/moby/moby/blob/v20.10.24/volume/names.go
_VOLUME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{1,99}")


def _volume(name: str) -> str:
    if not _VOLUME.fullmatch(name):
        hint = "two or more letters, digits, '_', '.' and '-'"
        raise ValueError(f"{name!r} is not the name of a volume: {hint}")
    return name


# A label of RFC 1123, as the names of volumes and containers of a Kubernetes pod.
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def _scratch(name: str) -> str:
    if not _LABEL.fullmatch(name):
        hint = "lower-case letters, digits and dashes, at most 63"
        raise ValueError(f"{name!r} can't be the name of a scratch volume: {hint}")
    return name


SOURCES = ("path", "volume", "tmpfs", "scratch")
"""The keys of a mount that say what is mounted."""


class Mount(Model):
    """What is mounted at a path of a container: `path`, `volume`, `tmpfs` or `scratch`."""

    path: MountPath | None = Field(None, examples=["../data"])
    """A folder or file of this machine, read-only unless `writable` is set."""
    volume: Annotated[str, AfterValidator(_volume)] | None = Field(None, examples=["datasets"])
    """A volume of the engine by name, which is made if missing, and never removed."""
    tmpfs: Annotated[Size, Field(gt=0)] | None = None
    """The size of a file system in memory, which is empty at each start."""
    scratch: Annotated[str, AfterValidator(_scratch)] | None = Field(None, examples=["cache"])
    """An empty volume of the task, by a name that its init steps can mount as well.

    A restart in place keeps it; a replacement of the task has a new one.
    """
    writable: bool | None = None
    """Whether tasks can write there; default: volumes are writable, folders are not."""

    @model_validator(mode="after")
    def _one(self) -> Mount:
        given = [key for key in SOURCES if getattr(self, key) is not None]
        if len(given) != 1:
            found = " and ".join(given) or "none"
            raise ValueError(
                f"a mount has one of `path`, `volume`, `tmpfs` and `scratch`; this has {found}"
            )
        if self.tmpfs is not None and self.writable is False:
            raise ValueError("a tmpfs is empty and always writable; leave `writable` out")
        return self

    @property
    def is_writable(self) -> bool:
        """Whether a task can write there."""
        return self.path is None if self.writable is None else self.writable


Target = Annotated[str, AfterValidator(_target)]
Mounts = Annotated[
    dict[Target, Annotated[Mount, _shortened(str, Mount | str, "path")]],
    Field(max_length=MOUNTS, examples=[{"/data": "../data"}]),
]
"""What is mounted, by the path in the container; text is a path of this machine."""


# --- Files and working directory ------------------------------------------------------------------

_MODE = re.compile(r"0?[0-7]{3}")


def _mode(mode: object) -> object:
    if not isinstance(mode, str) or not _MODE.fullmatch(mode):
        raise ValueError(f"{mode!r} is not a file's mode; write it in quotes, such as '0755'")
    return mode


class File(Model):
    """A small file that is put into a container: its `text`, or its bytes as `base64`."""

    text: str | None = Field(None, examples=["rate: 0.1"])
    """Its content as text."""
    base64: str | None = Field(None, examples=["aGVsbG8="])
    """Its content as base64, for bytes that are no text."""
    mode: Annotated[str, BeforeValidator(_mode)] = Field("0644", examples=["0755"])
    """Its permissions, in octal digits."""

    @model_validator(mode="after")
    def _one(self) -> File:
        if (self.text is None) == (self.base64 is None):
            raise ValueError("a file has either `text` or `base64`")
        try:
            self.content  # noqa: B018  raises if it has none
        except UnicodeEncodeError:
            raise ValueError("its text is not valid UTF-8; write its bytes as `base64`") from None
        except binascii.Error:
            raise ValueError("its `base64` is not base64") from None
        return self

    @property
    def content(self) -> bytes:
        """Its bytes."""
        if self.text is not None:
            return self.text.encode()
        return base64.b64decode("".join((self.base64 or "").split()), validate=True)

    @property
    def permissions(self) -> int:
        """Its mode as a number."""
        return int(self.mode, 8)


Files = Annotated[
    dict[Target, Annotated[File, _shortened(str, File | str, "text")]],
    Field(max_length=FILES, examples=[{"/etc/app/config.json": '{"rate": 0.1}'}]),
]
"""Small files by the path in the container; text is short for `{text: ...}`."""


def _working_dir(path: str) -> str:
    if not path.startswith("/") or not path.isprintable():
        raise ValueError(f"{path!r} is not a path in a container, such as /app")
    if path != "/" and (path != posixpath.normpath(path) or path.startswith("//")):
        raise ValueError(f"{path!r} is not in its shortest form; write {_normal(path)}")
    for folder in KERNEL:
        if is_in(path, folder):
            raise ValueError(f"{path} is a folder of the kernel; choose another one")
    return path


WorkingDir = Annotated[str, Field(max_length=1000, examples=["/app"]), AfterValidator(_working_dir)]
Entrypoint = Literal["image", "none"]
"""`image`: the image's own entry point gets the command; `none`: the command is all that runs."""


# --- Ports ----------------------------------------------------------------------------------------

Number = Annotated[int, Field(strict=True, ge=1, le=65535)]


class Port(Model):
    """A TCP port of a container that is published on 127.0.0.1."""

    port: Number = Field(examples=[6006])
    """The TCP port in the container."""
    host_port: Number | None = Field(None, examples=[6006])
    """The port of this machine; default: any free one."""


def _distinct(ports: list[Port]) -> list[Port]:
    for key in ("port", "host_port"):
        numbers = [number for port in ports if (number := getattr(port, key)) is not None]
        if twice := sorted({number for number in numbers if numbers.count(number) > 1}):
            raise ValueError(f"{key} {twice[0]} is there twice")
    return ports


Ports = Annotated[
    list[Annotated[Port, _shortened(int, Port | Number, "port")]],
    Field(max_length=PORTS, examples=[[6006]]),
    AfterValidator(_distinct),
]


# --- Limits ---------------------------------------------------------------------------------------


def _limit(value: object) -> object:
    """Read `unlimited` as -1, which the engine takes for no limit, and sizes as bytes."""
    if value == UNLIMITED:
        return -1
    try:
        return parse_size(value) if isinstance(value, str) else value
    except ValueError:
        raise ValueError(
            f"{value!r} is no limit; write a number, a size such as 64m, or {UNLIMITED}"
        ) from None


UlimitValue = Annotated[
    int,
    BeforeValidator(_limit),
    Field(strict=True, ge=-1, le=2**63 - 1),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": -1}, {"type": "string"}]}),
]


class Ulimit(Model):
    """A limit of each process: a number, or a size in bytes; -1: unlimited."""

    soft: UlimitValue = Field(examples=[1024])
    """The limit when the process starts."""
    hard: UlimitValue = Field(examples=["unlimited"])
    """The most to which it can raise the limit itself."""

    @model_validator(mode="after")
    def _ordered(self) -> Ulimit:
        if self.hard != -1 and not 0 <= self.soft <= self.hard:
            raise ValueError("the soft limit is above the hard one")
        return self

    @property
    def shown(self) -> str:
        """As `emulate plan` shows it."""
        numbers = dict.fromkeys((self.soft, self.hard))
        return "/".join(UNLIMITED if number == -1 else str(number) for number in numbers)


# The names of setrlimit(2).
UlimitName = Literal[
    "core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nice", "nofile", "nproc",
    "rss", "rtprio", "rttime", "sigpending", "stack",
]  # fmt: skip
Ulimits = Annotated[
    dict[
        UlimitName,
        Annotated[Ulimit, _shortened((int, str), Ulimit | UlimitValue, "soft", "hard")],
    ],
    Field(examples=[{"nofile": 65536, "memlock": "unlimited"}]),
]


ShmSize = Annotated[Size, Field(gt=0)]


class ContainerSettings(BaseModel):
    """What engines give a container, as a scenario says it and a plan has it."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    cpus: Cores | None = None
    """The CPU limit in cores; default: none."""
    memory: Memory | None = None
    """The memory limit."""
    processes: int | None = Field(strict=True, default=None, ge=16, le=4_194_304, examples=[4096])
    """The limit of processes and threads."""
    mounts: Mounts = {}
    """What its container has mounted, by the path there; for a task, besides what the job has."""
    shm_size: ShmSize | None = None
    """The size of /dev/shm; default: the engine's, 64 MiB with Docker."""
    ulimits: Ulimits = {}
    """Limits of its processes, by the names of setrlimit(2)."""


@dataclass(frozen=True)
class Setting:
    """A row of SETTINGS."""

    need: str
    """What an engine without the capability can't do, for `{}`."""
    capability: str
    shown: Callable[[Any], str]
    """A value as `emulate plan` shows it."""
    docker: Callable[[Any], Mapping[str, Any]]
    """What a value is in Docker's HostConfig."""
    pod: Callable[[Any], Mapping[str, Any]] = lambda value: {}
    """What a value adds to a container of a Pod."""


SETTINGS: dict[str, Setting] = {
    "shm_size": Setting(
        need="a size of /dev/shm for {}",
        capability="limits",
        shown=lambda size: f"/dev/shm of {format_size(size)}",
        docker=lambda size: {"ShmSize": size},
    ),
    "ulimits": Setting(
        need="ulimits for {}",
        capability="process-limits",
        shown=lambda limits: ", ".join(f"{key} {limits[key].shown}" for key in limits),
        docker=lambda limits: {
            "Ulimits": [
                {"Name": k, "Soft": one.soft, "Hard": one.hard} for k, one in limits.items()
            ]
        },
    ),
}
"""What becomes of settings, by key; the memory of /dev/shm is a volume of a Pod."""


def settings(spec: object) -> Iterator[tuple[str, Setting, Any]]:
    """Yield those that a container, or a scenario for all of its tasks, has, with their values."""
    for key, setting in SETTINGS.items():
        if value := getattr(spec, key, None):
            yield key, setting, value


class ContainerBase(Model, ContainerSettings):
    """What any container can have: that of a task, a helper or an init step."""

    files: Files = {}
    """Small files in its container, by their path there."""
    entrypoint: Entrypoint | None = None
    """`image`: the image's own entry point gets the command; `none`: the command is all that runs.
    Default: `image`; for a role that of the program."""
    working_dir: WorkingDir | None = None
    """Where its program starts, and `source` is copied; default: the image's own, or /job."""


class Container(ContainerBase):
    """The container of a task or a helper."""

    ports: Ports = []
    """TCP ports that are published on 127.0.0.1; a number is short for `{port: ...}`."""


# --- Init steps -----------------------------------------------------------------------------------
# They follow the init containers of a Kubernetes pod: they run one after the other, each to exit
# code 0, before the program of a task that starts on a fresh disk.
# https://kubernetes.io/docs/concepts/workloads/pods/init-containers/


def _name(name: str) -> str:
    if not _LABEL.fullmatch(name):
        hint = "lower-case letters, digits and dashes, at most 63"
        raise ValueError(f"{name!r} is not the name of a container: {hint}")
    return name


class PodContainer(ContainerBase):
    """An init step of a task, which is a container beside its own."""

    name: Annotated[str, AfterValidator(_name)] = Field(examples=["fetch"])
    """Its name, unique in the role."""
    command: Command = []
    """What it runs; empty: the image's own command."""
    env: Env = {}
    """Its variables, besides those with the values of its task."""
    image: Image | None = None
    """Its image; default: the task's."""


InitSteps = Annotated[
    list[PodContainer],
    Field(max_length=PARTS, examples=[[{"name": "fetch", "command": ["python", "fetch.py"]}]]),
]
