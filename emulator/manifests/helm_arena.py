"""Values of Arena's chart tfjob, `workers: 2, ps: 1, workerImage: ...`, as a scenario (pure).

The chart makes a TFJob of them, which Kubeflow's operator runs.
Source: kubeflow/arena, charts/tfjob, values.yaml and templates/tfjob.yaml.
"""

from __future__ import annotations

import re
from typing import Any

from emulator.manifests.common import gathered
from emulator.manifests.images import Images
from emulator.manifests.spec import Conversion, Options
from emulator.manifests.values import OF_ANY_CHART, Key, Values, literal

ROLES = {"chief": "chief", "worker": "workers", "ps": "ps", "evaluator": "evaluator"}
"""The key with the number of tasks, by role."""
IMAGES = {"ps": "psImage", "evaluator": "evaluatorImage"}
"""The key of the image; that of other roles is the worker's."""
CONTAINER = "tensorflow"
"""The name of the chart's containers."""
MARKS = frozenset({"workerImage", "psImage", "chiefName", "workPort", "workerPort", "psPort"})
"""Keys by which values of this chart are told from those of others."""
_CLEAN = {"None": "none", "Running": "running", "All": "all"}
_SAFE = re.compile(r"[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?")
_NONE_HERE = "there is one machine"

KEYS = (
    Key("chief|workers|ps|evaluator", "honoured", "the number of tasks of a role"),
    Key("chiefName", "honoured", "Chief or Master"),
    Key("workerImage|psImage|evaluatorImage", "honoured", "the images"),
    Key("chiefPort|workPort|workerPort|psPort", "honoured", "the ports; default: 2222"),
    Key("chiefCPU|chiefCpu|workerCPU|workerCpu|psCPU|psCpu|evaluatorCPU|evaluatorCpu", "honoured",
        "limits of the tasks"),
    Key("chiefMemory|workerMemory|psMemory|evaluatorMemory", "honoured", "limits of the tasks"),
    Key("gpuCount", "honoured", "GPUs of each task that is no parameter server"),
    Key("command", "honoured", "the command of every task, which a shell reads"),
    Key("envs.*", "honoured", "variables of every task"),
    Key("workingDir", "honoured", "the working directory"),
    Key("cleanPodPolicy", "honoured", "what is stopped at the end"),
    Key("dataset.*", "honoured", "claims and where they are mounted, as named volumes"),
    Key("dataDirs", "approximated", "each task has an empty volume there; mount a folder instead"),
    Key("privileged", "ignored", "containers have no privileges"),
    Key("useTensorboard", "ignored", "write a helper: `helpers: {board: {command: ...}}`"),
    Key("tensorboardImage|tensorboardImagePullpolicy|tensorboardServiceType|trainingLogdir|"
        "isLocalLogging|hostLogPath", "ignored", "a helper says it", quiet=True),
    Key("syncMode", "ignored", "nothing is fetched; write `program: {source: ...}`"),
    Key("syncSource|syncImage|syncGitProjectName|rsyncImage|gitImage", "ignored",
        "nothing is fetched", quiet=True),
    Key("useHostNetwork|useHostPID|useHostIPC", "ignored", "tasks have a network of their own",
        quiet=True),
    Key("imagePullPolicy", "ignored", "an image that is here is not pulled", quiet=True),
    Key("binpack|hasGangScheduler|enableGangScheduler|schedulerName|enableRDMA", "ignored",
        _NONE_HERE, quiet=True),
    Key("nvidiaPath", "ignored", "the engine has the driver", quiet=True),
    *OF_ANY_CHART,
)  # fmt: skip
"""What is made of the values of this chart."""


def convert_arena(values: Values, release: str, options: Options) -> Conversion:
    """Return the scenario of such values. Raises ScenarioError."""
    images, ports = Images(options.images), dict[str, int]()
    roles: dict[str, dict[str, Any]] = {}
    chief = values.text(("chiefName",), "Chief").lower()
    if chief not in ("chief", "master"):
        values.problem(("chiefName",), "is neither Chief nor Master")
    of_all = {**_program(values), **_mounts(values)}
    for kind, key in ROLES.items():
        count = values.count((key,), default=1 if kind == "worker" else 0)
        role = chief if kind == "chief" else kind
        image = values.text(values.first((IMAGES.get(kind, "workerImage"),), ("workerImage",)))
        if not count:
            continue
        named = images.instead(image, CONTAINER, role)
        limits = _limits(values, kind)
        roles[role] = {"replicas": count, **({"image": named} if named else {}), **of_all, **limits}
        values.origin(("cluster", role), (key,))
        names = ("workerPort", "workPort") if kind == "worker" else (f"{kind}Port",)
        port = values.first(*((name,) for name in names))
        if values.get(*port) is not None:
            ports[role] = values.port(port, 2222)
    values.problems += images.problems()
    operator = {
        "kind": "TFJob",
        "job": release,
        **({"ports": ports} if ports else {}),
        **({"restart": {"worker": "on-failure"}} if {"worker", chief} <= roles.keys() else {}),
        **_clean_pods(values),
    }
    if not roles:
        values.problem(("workers",), "the job has no tasks", "write `workers: 2`")
    values.check(KEYS)
    top, program, cluster = gathered(roles)
    made = {
        "name": release,
        "framework": "tensorflow",
        "operator": operator,
        **top,
        **({"program": program} if program else {}),
        "cluster": cluster,
    }
    return Conversion(made, tuple(values.notes), values.origins)


def _limits(values: Values, kind: str) -> dict[str, Any]:
    cpu = values.first((f"{kind}CPU",), (f"{kind}Cpu",))
    gpus = values.count(("gpuCount",)) if kind != "ps" else 0
    limits = values.limits(cpu, (f"{kind}Memory",))
    return {**limits, **({"gpus": gpus} if gpus else {})}


def _program(values: Values) -> dict[str, Any]:
    """Return what every container has of the program; without a command there is none."""
    program: dict[str, Any] = {}
    if command := values.text(("command",)):
        program = {"command": ["sh", "-c", literal(command)], "entrypoint": "none"}
        values.origin(("program", "command"), ("command",))
    if env := values.variables(("envs",)):
        program["env"] = env
        values.origin(("program", "env"), ("envs",))
    if folder := values.text(("workingDir",)):
        program["working_dir"] = folder
        values.origin(("program", "working_dir"), ("workingDir",))
    return program


def _clean_pods(values: Values) -> dict[str, str]:
    given = values.text(("cleanPodPolicy",))
    if given and given not in _CLEAN:
        values.problem(("cleanPodPolicy",), f"{given!r} is not None, Running or All")
    return {"clean_pods": _CLEAN[given]} if given in _CLEAN else {}


def _mounts(values: Values) -> dict[str, Any]:
    """Return the claims as named volumes, and folders of nodes as empty ones of each task."""
    mounts: dict[str, Any] = {}
    for claim in values.mapping(("dataset",)):
        target = values.text(("dataset", claim))
        if not _SAFE.fullmatch(claim):
            values.problem(("dataset", claim), "is not the name of a claim")
        mounts[target] = {"volume": f"pvc-default-{claim}"}
        values.origin(("mounts", target), ("dataset", claim))
    folders = values.get("dataDirs") or []
    for number, one in enumerate(folders if isinstance(folders, list) else [None]):
        folder = one if isinstance(one, dict) else {}
        name, inside = folder.get("name"), folder.get("containerPath")
        if not (isinstance(name, str) and _SAFE.fullmatch(name) and isinstance(inside, str)):
            values.problem(("dataDirs",), f"entry {number} needs a name and a containerPath")
            continue
        mounts[inside] = {"scratch": name}
        values.origin(("mounts", inside), ("dataDirs",))
    return {"mounts": mounts} if mounts else {}
