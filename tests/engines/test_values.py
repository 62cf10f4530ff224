"""Tasks print the values in their commands and variables, and meet at the addresses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from emulator.scenario.values import PLAIN
from tests.conftest import Emulate

NAMES = [*PLAIN, "address.worker-0", "hosts.worker", "addresses.ps", "size.ps"]
PROGRAM = """\
import json, os, pathlib, socket, sys, time
host, port, other, task = sys.argv[2:6]
shared = pathlib.Path(os.environ["EMULATOR_SHARED"])
if task == "worker-0":  # it answers at its own address, the other asks at the one that it was given
    server = socket.create_server((host, int(port)))
    server.settimeout(60)
    connection, _ = server.accept()
    connection.sendall(b"met")
    connection.close()
elif task == "worker-1":
    name, _, number = other.rpartition(":")
    for attempt in range(600):
        try:
            with socket.create_connection((name, int(number)), timeout=1) as connection:
                assert connection.recv(3) == b"met"
            break
        except OSError:
            time.sleep(0.1)
    else:
        sys.exit(f"nothing answers at {other}")
own = {name: value for name, value in os.environ.items() if name.startswith("EMULATOR_")}
print(json.dumps({"values": json.loads(sys.argv[1]), "again": json.loads(os.environ["AGAIN"]),
                  "variables": own, "literal": sys.argv[6], "files": os.listdir()}))
if task == "worker-0":  # when it ends, the job has succeeded
    for attempt in range(600):
        if {path.name for path in shared.iterdir()} >= {"worker-1", "ps-0"}:
            break
        time.sleep(0.1)
else:
    (shared / task).touch()
"""


@pytest.mark.parametrize("engine", ["process", pytest.param("docker", marks=pytest.mark.docker)])
def test_a_task_gets_its_values_and_its_own_program(
    engine: str, request: pytest.FixtureRequest, emulate: Emulate, tmp_path: Path
) -> None:
    image = request.getfixturevalue("tiny_image") if engine == "docker" else "auto"
    for name in ("look.py", "serve.py"):
        (tmp_path / name).write_text(PROGRAM)
    # A JSON text in JSON: `cluster` has quotes of its own.
    of_workers = json.dumps({name: f"${{{name}}}" for name in NAMES if name != "cluster"})
    of_all = json.dumps({"task": "${task}", "index": "${index}"})
    scenario = {
        "name": "values",
        "image": image,
        "seed": 7,
        "program": {
            "source": "look.py",
            "command": ["python3", "look.py"],
            "env": {"AGAIN": of_all},
        },
        "cluster": {
            "worker": {
                "replicas": 2,
                "command": ["python3", "look.py", of_workers, "${host}", "${port}",
                            "${address.worker-0}", "${task}", "$${a} $HOME ${A:-b}"],
                "env": {"AGAIN": "${cluster}"},
            },
            "ps": {
                "source": "serve.py",
                "command": ["python3", "serve.py", of_all, "${host}", "${port}", "-", "${task}",
                            "$${a}"],
            },
        },
    }  # fmt: skip
    path = tmp_path / "scenario.yaml"
    path.write_text(yaml.safe_dump(scenario))
    # As in a task of another run.
    done = emulate.up(path, "--engine", engine, env={"EMULATOR_RANK": "9", "EMULATOR_SIZE": "9"})
    assert done.returncode == 0, done.stderr
    folder = next(emulate.out.glob("values-*"))
    plan = json.loads((folder / "plan.json").read_text())
    at = {task["name"]: (task["host"], str(task["port"])) for task in plan["tasks"]}
    if engine == "docker":
        assert at["worker-1"] == ("worker-1", "2222")
        shared = "/shared"
    else:
        assert {host for host, _ in at.values()} == {"127.0.0.1"}
        shared = str(folder / "shared")
    address = {task: ":".join(place) for task, place in at.items()}
    for rank, task in enumerate(("worker-0", "worker-1")):
        printed = said(folder, task)
        assert printed["values"] == {
            "task": task,
            "role": "worker",
            "index": str(rank),
            "rank": str(rank),
            "size": "2",
            "address": address[task],
            "host": at[task][0],
            "port": at[task][1],
            "addresses": f"{address['worker-0']},{address['worker-1']}",
            "hosts": f"{at['worker-0'][0]},{at['worker-1'][0]}",
            "shared": shared,
            "seed": "7",
            "pod": task,
            "namespace": "default",
            "address.worker-0": address["worker-0"],
            "hosts.worker": f"{at['worker-0'][0]},{at['worker-1'][0]}",
            "addresses.ps": address["ps-0"],
            "size.ps": "1",
        }
        assert printed["again"] == {
            "worker": [address["worker-0"], address["worker-1"]],
            "ps": [address["ps-0"]],
        }
        assert printed["literal"] == "${a} $HOME ${A:-b}"
        assert "look.py" in printed["files"]
        expected = {"ROLE": "worker", "INDEX": str(rank), "RANK": str(rank), "SIZE": "2"}
        variables = printed["variables"]
        assert {name: variables[f"EMULATOR_{name}"] for name in expected} == expected
    server = said(folder, "ps-0")
    assert server["values"] == server["again"] == {"task": "ps-0", "index": "0"}
    assert server["literal"] == "${a}"
    assert "EMULATOR_RANK" not in server["variables"]
    assert "serve.py" in server["files"]  # its own program,
    assert "look.py" not in server["files"]  # and no other


def said(folder: Path, task: str) -> dict[str, Any]:
    """Return what a task printed last."""
    log = (folder / "logs" / f"{task}.log").read_text()
    return dict(json.loads(log[log.index('{"values"') :].splitlines()[0]))
