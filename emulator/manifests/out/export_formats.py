"""The table of formats that scenarios are written in. A new one is one file and its entry here."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from emulator.manifests.out.compose import COMPOSE
from emulator.manifests.out.helm_values import HELM_VALUES
from emulator.manifests.out.kubernetes import KUBERNETES
from emulator.manifests.out.spec import ExportFormat
from emulator.manifests.out.trainjob import TRAINJOB
from emulator.scenario.extension import added

_ADDED: list[ExportFormat] = [*chain.from_iterable(added("targets"))]
TARGETS: Mapping[str, ExportFormat] = {
    target.name: target for target in (*_ADDED, TRAINJOB, COMPOSE, KUBERNETES, HELM_VALUES)
}
"""Every format by the value of `--to`."""

IN_CLUSTER = "kubernetes-job"
"""The value of `--to` for a Job that runs the emulator itself; `engines/kubernetes/job.py` writes
it."""
