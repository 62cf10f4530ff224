"""Every format of manifests that is read, in the order in which they are tried."""

from __future__ import annotations

from collections.abc import Sequence

from emulator.plugins.kubeflow import training_jobs
from emulator.plugins.kubeflow.manifests.cluster_json import CLUSTER_JSON
from emulator.plugins.kubeflow.manifests.helm_values import HELM_VALUES
from emulator.scenario.manifests import Format

FORMATS: Sequence[Format] = (*training_jobs.FORMATS, HELM_VALUES, CLUSTER_JSON)
