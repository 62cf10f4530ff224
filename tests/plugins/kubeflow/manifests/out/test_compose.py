"""An exported Compose file says what the tasks are, and runs with docker-compose."""

from __future__ import annotations

import shutil
import subprocess
import uuid
from pathlib import Path
from typing import Any

import pytest

from emulator.plugins.kubeflow.manifests.out.export import Written
from tests.plugins.kubeflow.manifests.out.exporting import documents, exported, given

SCENARIO: dict[str, Any] = {
    "name": "meet",
    "framework": "none",
    "image": "tiny",
    "program": {
        "source": "say.sh",
        "command": ["sh", "say.sh", "${task}", "${address.worker-1}", "it costs 5$ $HOME"],
        "env": {"OTHERS": "${addresses}", "PRICE": "$$5 ${index}"},
    },
    "cluster": {
        "ingest": {"before": "training", "command": ["sh", "-c", "echo done > /shared/data"]},
        "worker": {"replicas": 2, "mounts": {"/fast": {"tmpfs": "1m"}}, "memory": "64m"},
    },
}
SAY = """
both() { : > "/shared/$1-$2"; until [ -e "/shared/$1-worker-0" ] && [ -e "/shared/$1-worker-1" ]
do sleep 0.05; done; }
read -r data < /shared/data
both running "$1"
getent hosts worker-0 worker-1 > /dev/null && found=found
both found "$1"
echo "$1 | $2 | $3 | $OTHERS | $PRICE | $data | $found | $(hostname) | $(stat -f -c %T /fast)"
"""


def test_a_file_says_what_the_tasks_are(tmp_path: Path) -> None:
    (tmp_path / "say.sh").write_text(SAY)
    (file,) = documents(exported(given(SCENARIO, tmp_path), "compose", tmp_path))
    worker = file["services"]["worker-1"]
    assert worker["command"][-1] == "it costs 5$$ $$HOME"
    assert worker["environment"]["PRICE"] == "$$$$5 1"
    assert worker["depends_on"] == {"ingest-0": {"condition": "service_completed_successfully"}}
    assert "depends_on" not in file["services"]["ingest-0"]
    assert (worker["mem_limit"], worker["working_dir"]) == (64 * 2**20, "/job")
    assert {"type": "bind", "source": "./say.sh", "target": "/job/say.sh", "read_only": True} in (
        worker["volumes"]
    )


@pytest.mark.docker
@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="docker-compose is missing")
def test_docker_compose_runs_it(tmp_path: Path, tiny_image: str) -> None:
    (tmp_path / "say.sh").write_text(SAY)
    written = exported(given(SCENARIO, tmp_path), "compose", tmp_path, {"tiny": tiny_image})
    (tmp_path / "compose.yaml").write_text(written.text)
    project = f"emulator-test-{uuid.uuid4().hex[:8]}"
    command = ["docker-compose", "-p", project, "-f", "compose.yaml", "--no-ansi"]

    def run(*words: str) -> str:
        done = subprocess.run(
            [*command, *words], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    try:
        run("up")
        lines = {line.partition("| ")[2] for line in run("logs", "--no-color").splitlines()}
    finally:
        run("down", "--volumes", "--timeout", "1")
    all_of_them = "worker-0:2222,worker-1:2222"
    for index in range(2):
        assert (
            f"worker-{index} | worker-1:2222 | it costs 5$ $HOME | {all_of_them} | $$5 {index} | "
            f"done | found | worker-{index} | tmpfs" in lines
        )


def written(tmp_path: Path, cluster: Any, **more: Any) -> Written:
    data = {"name": "a", "program": {"command": ["true"]}, "cluster": cluster, **more}
    return exported(given(data, tmp_path), "compose", tmp_path)


WAIT = "docker wait $(docker-compose -f FILE ps -aq"


@pytest.mark.parametrize(
    ("cluster", "command"),
    [
        ({"worker": 2}, "docker-compose -f FILE up"),
        ({"worker": {"replicas": 2, "init": [{"name": "fetch"}]}}, f"{WAIT} worker-0 worker-1)"),
        ({"chief": 1, "worker": 2, "ps": 1}, f"{WAIT} chief-0)"),
        ({"worker": {"mounts": {"/a": {"volume": "kept"}}}}, "docker volume create kept"),
    ],
)
def test_how_a_file_is_used(cluster: dict[str, Any], command: str, tmp_path: Path) -> None:
    assert f"#     {command}\n" in written(tmp_path, cluster).text
