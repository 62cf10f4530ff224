"""Trainer's status endpoint in a run: who serves it, what tasks are told of it, what a post means.

On a cluster with the feature gate TrainJobStatus, a program posts its progress to its TrainJob.
Here a helper takes the posts (`status_server.py`), and the steps of a task are read from them.
Sources: kubeflow/trainer v2.3.0, pkg/runtime/framework/plugins/trainjobstatus (variables);
transformers 5.24, integrations/integration_utils.py, KubeflowCallback (names of metrics).
"""

from __future__ import annotations

import re
import secrets
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emulator.metrics.event_steps import Reported, decoded
from emulator.metrics.formats import with_accuracy
from emulator.metrics.readings import number
from emulator.metrics.steps import observation_of
from emulator.plugins.kubeflow.trainer import status_server
from emulator.scenario.schema import Helper

if TYPE_CHECKING:
    from emulator.scenario.frameworks.spec import Member
    from emulator.scenario.image import AnyImage

SERVER = Path(status_server.__file__)
STEP = ("current_step", "global_step", "step")
"""Names of metrics that are the step; the first is that of Transformers."""
_STEP = re.compile("[0-9]{1,18}")


class StatusEndpoint:
    """The status endpoint of one job."""

    def __init__(self, job: str, namespace: str) -> None:
        self._path = (
            f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/trainjobs/{job}/status"
        )

    def helper(self, image: AnyImage | None) -> Helper:
        """Return the helper that serves it, in an image with Python."""
        command = ["python3", SERVER.name, "${host}", "${port}", self._path]
        return Helper(command=command, source=SERVER, image=image)

    def variables(self, task: str, server: Member, shared: str) -> Mapping[str, str]:
        """Return the variables of a task; `shared` is where it has the shared volume."""
        folder = f"{shared}/{status_server.FOLDER}"
        return {
            "KUBEFLOW_TRAINER_SERVER_URL": f"https://{server.host}:{server.port}{self._path}",
            "KUBEFLOW_TRAINER_SERVER_CA_CERT": f"{folder}/{status_server.CA}",
            "KUBEFLOW_TRAINER_SERVER_TOKEN": f"{folder}/{task}/{status_server.TOKEN}",
        }

    @staticmethod
    def files(tasks: Sequence[str], run_id: str, host: str) -> tuple[str, Mapping[str, Any]]:
        """Return a program that puts the files of a run into its shared volume, and its request.

        They are made for this run: a CA that nobody else trusts, and what tokens are made from.
        """
        import trustme  # few runs need it

        authority = trustme.CA(organization_name="emulator", organization_unit_name=run_id)
        certificate = authority.issue_cert(host)
        return SERVER.read_text("utf-8"), {
            "ca": authority.cert_pem.bytes().decode(),
            "server": certificate.private_key_and_cert_chain_pem.bytes().decode(),
            "secret": secrets.token_hex(32),
            "tasks": [*tasks],
        }

    @staticmethod
    def steps() -> StatusSteps:
        """Return what reads the steps."""
        return StatusSteps()


class StatusSteps:
    """Reads what the server prints of the posts of all tasks.

    A post has a step only where a metric says so: a percentage is cut off, and 100 is what programs
    post at their end, wherever that is. What a post without a step says are values of the last one;
    before the first step it is in the log of the helper alone.
    """

    def __init__(self) -> None:
        self._steps: dict[tuple[str, int], int] = {}
        """The last step of each start of a task."""

    def read(self, line: str, starts: Mapping[str, Sequence[float]]) -> Reported | None:
        """Return the step in a line, or None; never raises. See `HelperSteps`."""
        match decoded(line):
            case {
                "emulate": "trainer-status",
                "task": str(task),
                "wall": int() | float() as wall,
                "status": dict(status),
            } if task in starts:
                start = (task, bisect_right(starts[task], wall))
                if start[1] < len(starts[task]):
                    return None
                metrics = _metrics(status)
                step = _step(metrics)
                if step is not None:
                    self._steps[start] = step
                elif start not in self._steps:
                    return None
                values = _values(status, metrics)
                seen = observation_of("step", {**values, "step": self._steps[start]})
                return Reported(task, round(float(wall), 6), seen) if seen else None
        return None


def _metrics(status: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the metrics of a status by name."""
    return {one.get("name", ""): one.get("value", "") for one in status.get("metrics", ())}


def _step(metrics: Mapping[str, str]) -> int | None:
    found = [int(metrics[name]) for name in STEP if _STEP.fullmatch(metrics.get(name, ""))]
    return found[0] if found else None


def _values(status: Mapping[str, Any], metrics: Mapping[str, str]) -> Mapping[str, object]:
    """Return the metrics of a status that are numbers, without the step, and how far it is."""
    numbers = {name: number(text) for name, text in metrics.items() if name not in STEP}
    values: dict[str, object] = {
        name: value for name, value in numbers.items() if not isinstance(value, str)
    }
    for name, key in (
        ("progress_percentage", "progressPercentage"),
        ("estimated_remaining_seconds", "estimatedRemainingSeconds"),
    ):
        if key in status:
            values[name] = status[key]
    return with_accuracy(values)
