"""Helm values, run with containers: what a chart's program is given is there, and names resolve."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Emulate

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("docker_engine")]

PROGRAM = """\
echo "$POD_NAME on $(hostname) of $CLUSTER_CONFIG"
for name in worker-0 worker-0.demo ps-0.demo.svc.cluster.local; do
  getent hosts $name >/dev/null || exit 3
done
touch /shared/$POD_NAME
until test -e /shared/ps-0 && test -e /shared/worker-0; do sleep 0.05; done
"""


def test_values_run_as_in_their_cluster(emulate: Emulate, tmp_path: Path) -> None:
    values = {
        "tfCluster": {
            "service": {"internalPort": 8080, "command": json.dumps(["sh", "-c", PROGRAM])},
            "image": {"repo": "registry.example.com", "name": "demo", "dockerTag": "1.0"},
            "settings": {"jobs": {"ps": 1, "worker": 1}},
        },
        "emulator": {"expect": {"steps": "none"}, "success": "all-workers", "timeout": "1m"},
    }
    path = tmp_path / "demo.values.yaml"
    path.write_text(json.dumps(values))
    images = ["--image=ps=network", "--image=registry.example.com/demo:1.0=network"]
    done = emulate.up(path, "--engine", "docker", *images)
    assert done.returncode == 0, done.stderr
    cluster = (
        '{"ps": ["ps-0.demo.svc.cluster.local:8080"], '
        '"worker": ["worker-0.demo.svc.cluster.local:8080"]}'
    )
    for task in ("ps-0", "worker-0"):
        (log,) = emulate.out.glob(f"demo-*/logs/{task}.log")
        assert log.read_text() == f"{task} on {task} of {cluster}\n"
