"""A TFJob, run with containers: its files, variables, volumes and names are those of its pods."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Emulate

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("docker_engine")]

PROGRAM = """\
set -e
echo "$(hostname) has $*"
echo "$(cat /work/fetched) $(stat -c %a /programs/run.sh) $(df -m /dev/shm | tail -1 | xargs)" \\
    | cut -d' ' -f1-5
for name in tiny-ps-0 tiny-ps-0.team tiny-worker-0.team.svc; do getent hosts $name >/dev/null; done
test "$TF_CONFIG" = "$2"
touch /shared/$POD_NAME
until test -e /shared/tiny-ps-0 && test -e /shared/tiny-worker-0; do sleep 0.05; done
"""
JOB = """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: tiny, namespace: team}
spec:
  successPolicy: AllWorkers
  tfReplicaSpecs:
    PS: &replica
      template:
        spec:
          initContainers:
          - name: fetch
            image: registry.example.com/tiny:1
            command: [sh, -c, "echo fetched by $(POD) > /work/fetched"]
            env: [{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
            volumeMounts: [{name: work, mountPath: /work}]
          containers:
          - name: tensorflow
            image: registry.example.com/tiny:1
            command: [sh, /programs/run.sh]
            args: ["$(RATE) $$(RATE) ${HOME}", $(TF_CONFIG)]
            env:
            - {name: RATE, valueFrom: {configMapKeyRef: {name: settings, key: rate}}}
            - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
            volumeMounts:
            - {name: work, mountPath: /work}
            - {name: programs, mountPath: /programs}
            - {name: shm, mountPath: /dev/shm}
            - {name: data, mountPath: /shared}
          volumes:
          - {name: work, emptyDir: {}}
          - {name: programs, configMap: {name: programs, defaultMode: 0750}}
          - {name: shm, emptyDir: {medium: Memory, sizeLimit: 32Mi}}
          - {name: data, persistentVolumeClaim: {claimName: data}} # the run's own is there
    Worker: *replica
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: team}
data: {rate: "0.1"}
"""


def test_a_job_has_what_its_pods_have(emulate: Emulate, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(PROGRAM)
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "more.yaml").write_text("expect: {steps: none}\ntimeout: 1m\n")
    done = emulate.up(
        tmp_path / "job.yaml",
        "--engine=docker",
        "--image=registry.example.com/tiny:1=network",
        f"--configmap=programs={tmp_path / 'run.sh'}",
        f"--faults={tmp_path / 'more.yaml'}",
    )
    assert done.returncode == 0, done.stderr
    cluster = {
        "ps": ["tiny-ps-0.team.svc:2222"],
        "worker": ["tiny-worker-0.team.svc:2222"],
    }
    for role in ("ps", "worker"):
        (log,) = emulate.out.glob(f"tiny-*/logs/{role}-0.log")
        config = {"cluster": cluster, "task": {"type": role, "index": 0}, "environment": "cloud"}
        written = json.dumps(config, separators=(",", ":"))
        assert log.read_text().splitlines()[:2] == [
            f"tiny-{role}-0 has 0.1 $(RATE) ${{HOME}} {written}",
            f"fetched by tiny-{role}-0 750 shm",
        ]
