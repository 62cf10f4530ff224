"""Values of the chart distributed-tensorflow, `worker: {number, image}`, as a scenario (pure).

Its containers get PS_HOSTS, WORKER_HOSTS, JOB_NAME and POD_NAME, and a command that the chart has.
Source: helm/charts, stable/distributed-tensorflow, values.yaml and the templates of its stateful
sets.
"""

from __future__ import annotations

from typing import Any

from emulator.manifests.common import gathered
from emulator.manifests.images import Images
from emulator.manifests.spec import Conversion, Options
from emulator.manifests.values import OF_ANY_CHART, Key, Values

CHART = "distributed-tensorflow"
PORTS = {"ps": 8000, "worker": 9000}
"""Defaults of the chart."""
TASKS = 2
"""Tasks of a role without a number; also the chart's default."""

KEYS = (
    Key("worker|ps.number|replicas", "honoured", "the number of tasks"),
    Key("worker|ps.image.repository|tag", "honoured", "the image"),
    Key("worker|ps.image.pullPolicy", "ignored", "an image that is here is not pulled", quiet=True),
    Key("worker|ps.port", "honoured", "the port of its tasks"),
    Key("worker|ps.env.*", "honoured", "variables of its tasks"),
    Key("worker.gpuCount", "honoured", "GPUs of each worker, and --num_gpus of the command"),
    Key("worker|ps.resources.limits.cpu|memory", "honoured", "limits of its tasks"),
    Key("worker|ps.resources.requests", "ignored", "limits are what counts on one machine",
        quiet=True),
    Key("worker|ps.podManagementPolicy", "ignored", "all tasks start at the same time", quiet=True),
    Key("worker|ps.privileged", "ignored", "containers have no privileges"),
    Key("hyperparams.batchsize|learningrate", "honoured", "arguments of the command"),
    Key("hyperparams.*", "ignored", "the command of the chart does not get it"),
    Key("volumes", "ignored", "write `mounts:` in the file of --faults"),
    Key("volumeMounts", "ignored", "write `mounts:` in the file of --faults"),
    *OF_ANY_CHART,
)  # fmt: skip
"""What is made of the values of this chart."""


def convert_statefulsets(values: Values, release: str, options: Options) -> Conversion:
    """Return the scenario of such values. Raises ScenarioError."""
    images, roles = Images(options.images), dict[str, dict[str, Any]]()
    for role in ("ps", "worker"):
        if values.get(role) is not None and (made := _role(values, role, release, images)):
            roles[role] = made
            values.origin(("cluster", role), (role,))
    if not roles:
        values.problem(("worker",), "has no tasks", "write `number: 2`")
    for made in roles.values():
        made["env"] |= {
            f"{other.upper()}_HOSTS": f"${{addresses.{other}}}" for other in roles
        }  # of a role that has no tasks, the list would be empty
    ports = {role: values.port((role, "port"), PORTS[role]) for role in roles}
    values.problems += images.problems()
    values.check(KEYS)
    full = release if CHART in release else f"{release}-{CHART}"
    top, program, cluster = gathered(roles)
    made = {
        "name": release,
        "framework": "none",  # its programs find each other by these variables alone
        "addresses": {"host": f"{release}-{{role}}-{{index}}.{full}-{{role}}", "port": ports},
        **top,
        "program": program,
        "cluster": cluster,
    }
    return Conversion(made, tuple(values.notes), values.origins)


def _role(values: Values, role: str, release: str, images: Images) -> dict[str, Any]:
    """Return a role with what the chart gives to its containers; empty if it has no tasks."""
    count = values.count(values.first((role, "number"), (role, "replicas")), TASKS)
    repository = values.text((role, "image", "repository"))
    tag = values.text((role, "image", "tag"), "latest")
    image = images.instead(f"{repository}:{tag}" if repository else "", role, role)
    gpus = values.count((role, "gpuCount")) if role == "worker" else 0
    limits = values.limits(
        (role, "resources", "limits", "cpu"), (role, "resources", "limits", "memory")
    )
    own = {"POD_NAME": f"{release}-{role}-${{index}}", "JOB_NAME": role}
    if not count:
        return {}
    return {
        "replicas": count,
        **({"image": image} if image else {}),
        "command": _command(values, gpus),
        "entrypoint": "none",
        **limits,
        **({"gpus": gpus} if gpus else {}),
        "env": {**own, **values.variables((role, "env"))},
    }


def _command(values: Values, gpus: int) -> list[str]:
    rate = values.text(("hyperparams", "learningrate"), "0.001")
    batch = values.text(("hyperparams", "batchsize"), "20")
    devices = ["--num_gpus", str(gpus)] if gpus else []
    rest = ["--learning_rate", rate, "--batch_size", batch]
    return ["python", "train_distributed.py", *devices, *rest]
