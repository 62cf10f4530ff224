"""Values with a map of jobs, `tfCluster.settings.jobs: {ps: 8, worker: 16}`, as a scenario (pure).

Each task gets the cluster as JSON in CLUSTER_CONFIG and its name in POD_NAME; only workers get
GPUs. The same map at the top of the values, `ps: 8`, is read the same way.
"""

from __future__ import annotations

from typing import Any

from emulator.manifests.common import gathered
from emulator.manifests.images import Images
from emulator.manifests.spec import Conversion, Options
from emulator.manifests.values import OF_ANY_CHART, Key, Values
from emulator.scenario.frameworks.tensorflow import TENSORFLOW
from emulator.validation.similar import closest

OWN = ("auto", "cpu", "gpu", "pytorch", "jax", "network")
"""Images of the emulator, which have no program of their own."""
ROLES = TENSORFLOW.roles.names
ALIASES = {f"{role}s": role for role in ROLES}
"""Other names of roles: `workers`."""
COUNTS = ("replicas", "number", "count")
"""Keys with the number of tasks, where a job is a mapping."""
PORT = 8080
"""The chart's own default."""
ROOT = "tfCluster"
_JOB = "|".join([*ROLES, *ALIASES])

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
_IN_SETTINGS = (
    Key("isGpu", "honoured", "whether workers get GPUs"),
    Key("nbGpuPerNode", "honoured", "GPUs of each worker, with isGpu; others get none"),
    Key("jobs.*", "honoured", "the number of tasks of a role, or {replicas}"),
)
KEYS = (
    *(Key(f"{ROOT}.{one.path}", one.how, one.text, one.quiet) for one in _BELOW_ROOT),
    *(Key(f"{ROOT}.settings.{one.path}", one.how, one.text, one.quiet) for one in _IN_SETTINGS),
    *OF_ANY_CHART,
)
"""What is made of the values of such a chart."""
PLAIN_KEYS = (
    *_BELOW_ROOT,
    *(one for one in _IN_SETTINGS if one.path != "jobs.*"),
    Key(_JOB, "honoured", "the number of tasks of a role, or {replicas}"),
    *KEYS[-2:],
)
"""What is made of values with the map at the top."""


def convert_jobs(values: Values, release: str, options: Options) -> Conversion:
    """Return the scenario of `tfCluster.settings.jobs`. Raises ScenarioError."""
    jobs = (ROOT, "settings", "jobs")
    if not values.mapping(jobs):
        values.problem(jobs, "has no tasks", "write `{ps: 8, worker: 16}`")
    made = _converted(values, release, options, (ROOT,), (ROOT, "settings"), jobs)
    values.check(KEYS)
    return Conversion(made, tuple(values.notes), values.origins)


def convert_plain(values: Values, release: str, options: Options) -> Conversion:
    """Return the scenario of `ps: 8` and `worker: 16` at the top. Raises ScenarioError."""
    made = _converted(values, release, options, (), (), ())
    values.check(PLAIN_KEYS)
    return Conversion(made, tuple(values.notes), values.origins)


def _converted(
    values: Values,
    release: str,
    options: Options,
    root: tuple[str, ...],
    settings: tuple[str, ...],
    jobs: tuple[str, ...],
) -> dict[str, Any]:
    """Return the scenario; the arguments are where its parts are in the values."""
    is_gpu = values.flag((*settings, "isGpu"))
    gpus = values.count((*settings, "nbGpuPerNode"), default=1)
    image = _image(values, (*root, "image"), is_gpu=is_gpu)
    images = Images(options.images)
    limits = values.limits(
        (*root, "resources", "limits", "cpu"), (*root, "resources", "limits", "memory")
    )
    program = _program(values, root)
    roles: dict[str, dict[str, Any]] = {}
    for role, path in _roles(values, jobs).items():
        if not (count := _count(values, path)):
            continue
        used = images.instead(image, role, role)
        command: dict[str, Any] = (
            {"command": []} if used and used not in OWN else {}
        )  # the image's own
        more = {"gpus": gpus} if is_gpu and role == "worker" and gpus else {}
        named = {"image": used} if used else {}
        roles[role] = {"replicas": count, **named, **command, **program, **limits, **more}
        values.origin(("cluster", role), path)
    values.problems += images.problems()
    port = (*root, "service", "internalPort")
    address = {
        "host": f"{{task}}.{release}.svc.cluster.local",
        "port": values.port(port, PORT),
    }
    values.origin(("addresses", "port"), port)
    values.origin(("image",), (*root, "image"))
    top, program, cluster = gathered(roles) if roles else ({}, {}, {})
    return {
        "name": release,
        "framework": "tensorflow",
        "rendezvous": "cluster-config",
        "addresses": address,
        **top,
        **({"program": program} if program else {}),
        "cluster": cluster,
    }


def _program(values: Values, root: tuple[str, ...]) -> dict[str, Any]:
    """Return the command and the variables of every task."""
    command = values.command((*root, "service", "command"))
    values.origin(("program", "command"), (*root, "service", "command"))
    # As a container of Kubernetes with `command`: the entry point of the image is not run.
    given = {"command": command, "entrypoint": "none"} if command else {}
    values.origin(("program", "env"), (*root, "env"))
    return {**given, "env": values.variables((*root, "env"))}


def _roles(values: Values, jobs: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
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


def _count(values: Values, path: tuple[str, ...]) -> int:
    """Return the number of tasks: a number, or one in a mapping."""
    if not isinstance(values.get(*path), dict):
        return values.count(path)
    for key in values.get(*path):
        if key not in COUNTS:
            values.problem((*path, key), "unknown key", closest(key, COUNTS) or "write `replicas`")
    return values.count(values.first(*((*path, key) for key in COUNTS)), default=1)


def _image(values: Values, path: tuple[str, ...], *, is_gpu: bool) -> str:
    """Return the image reference; empty if there is none."""
    repository = values.text(values.first((*path, "repo"), (*path, "repository")))
    name = "/".join(filter(None, [repository.rstrip("/"), values.text((*path, "name"))]))
    own = "dockerTagGpu" if is_gpu else "dockerTagCpu"
    tag = values.text(values.first((*path, own), (*path, "dockerTag"), (*path, "tag")), "latest")
    return f"{name}:{tag}" if name else ""
