"""What an exported Compose file says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from emulator.manifests.out.export import Written
from tests.manifests.out.exporting import documents, exported, given

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


def written(tmp_path: Path, cluster: Any, **more: Any) -> Written:
    data = {"name": "a", "program": {"command": ["true"]}, "cluster": cluster, **more}
    return exported(given(data, tmp_path), "compose", tmp_path)


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


WAIT = "docker wait $(docker-compose -f FILE ps -aq"


@pytest.mark.parametrize(
    ("cluster", "command"),
    [
        ({"worker": 2}, "docker-compose -f FILE up"),
        ({"worker": {"replicas": 2, "sidecars": [{"name": "log"}]}}, f"{WAIT} worker-0 worker-1)"),
        ({"worker": {"replicas": 2, "init": [{"name": "fetch"}]}}, f"{WAIT} worker-0 worker-1)"),
        ({"chief": 1, "worker": 2, "ps": 1}, f"{WAIT} chief-0)"),
        ({"worker": {"mounts": {"/a": {"volume": "kept"}}}}, "docker volume create kept"),
    ],
)
def test_how_a_file_is_used(cluster: dict[str, Any], command: str, tmp_path: Path) -> None:
    assert f"#     {command}\n" in written(tmp_path, cluster).text


def test_the_folders_that_a_file_needs_are_said(tmp_path: Path) -> None:
    (tmp_path / "programs").mkdir()
    (tmp_path / "data").mkdir()
    program = {"source": "programs", "command": ["true"]}
    more = {"program": program, "mounts": {"/data": "data"}, "restart": "on-failure"}
    notes = written(tmp_path, {"worker": 1}, **more).notes
    assert not [one for one in notes if "restart.scope" in one]
    assert [one for one in notes if "take it along" in one] == [
        "./programs is mounted: take it along with this file",
        "./data is mounted: take it along with this file",
    ]
