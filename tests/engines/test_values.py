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
                  "variables": own, "literal": sys.argv[6]}))
if task == "worker-0":  # when it ends, the job has succeeded
    for attempt in range(600):
        if {path.name for path in shared.iterdir()} >= {"worker-1", "ps-0"}:
            break
        time.sleep(0.1)
else:
    (shared / task).touch()
"""


@pytest.mark.parametrize("engine", ["process", pytest.param("docker", marks=pytest.mark.docker)])
def test_a_task_gets_its_values(
    engine: str, request: pytest.FixtureRequest, emulate: Emulate, tmp_path: Path
) -> None:
    image = request.getfixturevalue("tiny_image") if engine == "docker" else "auto"
    (tmp_path / "look.py").write_text(PROGRAM)
    # A JSON text in JSON: `cluster` has quotes of its own.
    of_workers = json.dumps({name: f"${{{name}}}" for name in NAMES if name != "cluster"})
    of_all = json.dumps({"task": "${task}", "index": "${index}"})
    scenario = {
        "name": "values",
        "image": image,
        "seed": 7,
        "program": {
            "source": "look.py",
            "command": ["python3", "look.py", of_all, "${host}", "${port}", "-", "${task}",
                        "$${a}"],
            "env": {"AGAIN": of_all},
        },
        "cluster": {
            "worker": {
                "replicas": 2,
                "command": ["python3", "look.py", of_workers, "${host}", "${port}",
                            "${address.worker-0}", "${task}", "$${a} $HOME ${A:-b}"],
                "env": {"AGAIN": "${cluster}"},
            },
            "ps": 1,
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
        expected = {"ROLE": "worker", "INDEX": str(rank), "RANK": str(rank), "SIZE": "2"}
        variables = printed["variables"]
        assert {name: variables[f"EMULATOR_{name}"] for name in expected} == expected
    server = said(folder, "ps-0")
    assert server["values"] == server["again"] == {"task": "ps-0", "index": "0"}
    assert server["literal"] == "${a}"
    assert "EMULATOR_RANK" not in server["variables"]


def said(folder: Path, task: str) -> dict[str, Any]:
    """Return what a task printed last."""
    log = (folder / "logs" / f"{task}.log").read_text()
    found: dict[str, Any] = json.loads(log[log.index('{"values"') :].splitlines()[0])
    return found


@pytest.mark.parametrize("engine", ["process", pytest.param("docker", marks=pytest.mark.docker)])
def test_each_role_has_its_own_program(
    engine: str, request: pytest.FixtureRequest, emulate: Emulate, tmp_path: Path
) -> None:
    image = request.getfixturevalue("tiny_image") if engine == "docker" else "auto"
    for name in ("train.py", "serve.py"):
        (tmp_path / name).touch()
    # Each says what is in its working directory; the first ends when the other has said so.
    look = "ls; touch $EMULATOR_SHARED/$EMULATOR_ROLE; "
    wait = "for n in $(seq 600); do [ -e $EMULATOR_SHARED/client ] && break; sleep 0.1; done"
    path = tmp_path / "scenario.yaml"
    path.write_text(
        f"name: programs\nframework: none\nimage: {image}\nsuccess: auto\n"
        f"program: {{source: train.py, command: [sh, -c, '{look}{wait}']}}\n"
        f"cluster:\n  server: 1\n  client: {{source: serve.py, command: [sh, -c, '{look}']}}\n"
    )
    done = emulate.up(path, "--engine", engine)
    assert done.returncode == 0, done.stderr
    folder = next(emulate.out.glob("programs-*"))
    assert "train.py" in (folder / "logs" / "server-0.log").read_text().split()
    assert "serve.py" in (folder / "logs" / "client-0.log").read_text().split()
    assert "train.py" not in (folder / "logs" / "client-0.log").read_text()


@pytest.mark.parametrize("engine", ["process", pytest.param("docker", marks=pytest.mark.docker)])
def test_a_task_gets_the_older_form_of_the_rendezvous(
    engine: str, request: pytest.FixtureRequest, emulate: Emulate, tmp_path: Path
) -> None:
    image = request.getfixturevalue("tiny_image") if engine == "docker" else "auto"
    look = (
        'echo "$POD_NAME $CLUSTER_CONFIG ${TF_CONFIG:-none}"; touch $EMULATOR_SHARED/$POD_NAME; '
        "for n in $(seq 600); do [ -e $EMULATOR_SHARED/ps-0 ] && break; sleep 0.1; done"
    )
    path = tmp_path / "scenario.yaml"
    scenario = {
        "name": "older",
        "image": image,
        "rendezvous": "cluster-config",
        "program": {"command": ["sh", "-c", look]},
        "cluster": {"worker": 2, "ps": 1},
        "success": "all-workers",
        "expect": {"steps": "none"},
    }
    path.write_text(yaml.safe_dump(scenario))
    done = emulate.up(path, "--engine", engine)
    assert done.returncode == 0, done.stderr
    folder = next(emulate.out.glob("older-*"))
    tasks = json.loads((folder / "plan.json").read_text())["tasks"]
    at = {task["name"]: f"{task['host']}:{task['port']}" for task in tasks}
    for task in ("worker-0", "worker-1", "ps-0"):
        name, rest = (folder / "logs" / f"{task}.log").read_text().split(maxsplit=1)
        cluster, _, outer = rest.strip().rpartition(" ")
        assert name == task
        assert json.loads(cluster) == {
            "ps": [at["ps-0"]],
            "worker": [at["worker-0"], at["worker-1"]],
        }
        assert outer == "none"
