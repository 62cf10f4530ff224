"""A JobSet on a cluster that has neither JobSet nor Trainer: as Pods, with the same restarts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from emulator.record.reader import Record
from tests.clusters import ForTest
from tests.conftest import Emulate

STEPS = r"""
trap 'exit 143' TERM
n=0
while [ $n -lt 120 ]; do
    n=$((n + 1)); echo "{\"emulate\": \"step\", \"step\": $n}"; sleep 0.1
done
"""
PREEMPTED = """
faults: [{preempt: worker-1, at: {step: 5}, grace: 10s, down: 1s}]
restart: {backoff: 1s}
"""
DISRUPTED = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]}
GANG = {"backoffLimit": 0, "podFailurePolicy": {"rules": [DISRUPTED]}}


def job_set(rules: dict[str, Any], **spec: Any) -> dict[str, Any]:
    node = {"name": "node", "image": "any", "command": ["sh", "-c", STEPS]}
    pod = {"spec": {"restartPolicy": "Never", "containers": [node]}}
    job = {"spec": {"parallelism": 2, "completions": 2, **rules, "template": pod}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "train"},
        "spec": {"replicatedJobs": [{"name": "worker", "template": job}], **spec},
    }


@pytest.mark.parametrize(
    ("manifest", "started"),
    [
        (job_set({}), {"worker-0": 1, "worker-1": 2}),
        (job_set(GANG, failurePolicy={"maxRestarts": 1}), {"worker-0": 2, "worker-1": 2}),
    ],
    ids=["its Pod is replaced alone", "all start again"],
)
def test_a_preempted_pod_of_a_job_set(
    kubernetes_cluster: ForTest,
    emulate: Emulate,
    tiny_image: str,
    tmp_path: Path,
    manifest: dict[str, Any],
    started: dict[str, int],
) -> None:
    path, part = tmp_path / "job.yaml", tmp_path / "part.yaml"
    path.write_text(yaml.dump(manifest))
    part.write_text(PREEMPTED)
    given = ("--image", f"node={tiny_image}", "--faults", str(part))
    done = emulate.up(
        path, *kubernetes_cluster.arguments, *given, env=kubernetes_cluster.environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (folder,) = emulate.out.iterdir()
    lives = {name: len(one.incarnations) for name, one in Record(folder).timeline.tasks.items()}
    assert lives == started
