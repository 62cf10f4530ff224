"""Frameworks whose programs need more than Python, as containers find each other with them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

import certifi
import pytest

from emulator.engines.docker import DockerEngine
from emulator.engines.docker.images import BuildOptions
from tests.conftest import Emulate

MPI_IMAGE = """\
    FROM {base}
    RUN apt-get update && apt-get install -y --no-install-recommends \\
            openmpi-bin openssh-server python3-mpi4py && rm -rf /var/lib/apt/lists/*
    # A server of any other user than root needs no privileges, which tasks do not have.
    RUN useradd --create-home mpi
    USER mpi
    RUN mkdir -m 700 /home/mpi/.ssh && cd /home/mpi/.ssh \\
        && ssh-keygen -q -t ed25519 -N "" -f id_ed25519 && cp id_ed25519.pub authorized_keys \\
        && printf 'Port 2222\\nHostKey %s/id_ed25519\\nPidFile none\\n' "$PWD" > sshd_config
    """
MPI_PROGRAM = """\
    import json, socket
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    for step in range(1, 21):
        total = world.allreduce(world.rank + step)
        if world.rank == 0:
            print(json.dumps({"emulate": "step", "step": step, "total": total}), flush=True)
    print("rank", world.rank, "on", socket.gethostname(), flush=True)
    """
MPI_SCENARIO = """\
    name: mpi
    framework: mpi
    image: {dockerfile: image/Dockerfile}
    program:
      source: program
      command: [/usr/sbin/sshd, -De, -f, /home/mpi/.ssh/sshd_config]
    cluster:
      launcher: {command: [mpirun, python3, sums.py]}
      worker: 2
    timeout: 3m
    expect: {final_step: 20}
    """
RAY_IMAGE = """\
    FROM {base}
    COPY ca-bundle.pem /etc/
    ENV PIP_CERT=/etc/ca-bundle.pem
    RUN python3 -m venv /opt/venv && /opt/venv/bin/pip install --no-cache-dir ray==2.60.0
    ENV PATH=/opt/venv/bin:$PATH
    ENV RAY_raylet_start_wait_time_s=120
    """
RAY_PROGRAM = """\
    import json, socket, time
    import ray

    ray.init()
    while len(ray.nodes()) < 3:
        time.sleep(0.2)

    @ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
    def where(n):
        time.sleep(0.5)
        return socket.gethostname()

    hosts = ray.get([where.remote(n) for n in range(6)])
    print(json.dumps({"emulate": "step", "step": 6}), flush=True)
    print("ran on", *sorted(set(hosts)), flush=True)
    """
RAY_SCENARIO = """\
    name: ray
    framework: ray
    image: {dockerfile: image/Dockerfile}
    program:
      source: program
      command: [ray, start, "--address=${address.head-0}", --block, --num-cpus=1]
    cluster:
      head: {command: [sh, -c, "ray start --head --port=2222 --num-cpus=1 && python where.py"]}
      worker: 2
    timeout: 5m
    expect: {final_step: 6}
    """


def printed(emulate: Emulate, folder: Path, files: Mapping[str, str], task: str) -> str:
    """Run the scenario of these files in Docker; return what a task printed."""
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(dedent(text))
    done = emulate.up(folder / "scenario.yaml", "--engine", "docker")
    assert done.returncode == 0, done.stderr[-3000:]
    (run,) = emulate.out.iterdir()
    return (run / "logs" / f"{task}.log").read_text()


@pytest.mark.docker
def test_mpirun_on_a_launcher_uses_the_workers(
    emulate: Emulate, docker_engine: DockerEngine, tiny_image: str, tmp_path: Path
) -> None:
    """The job ends with the launcher, though the servers of the workers never end."""
    image = {"image/Dockerfile": MPI_IMAGE.format(base=tiny_image)}
    program = {"program/sums.py": MPI_PROGRAM, "scenario.yaml": MPI_SCENARIO}
    output = printed(emulate, tmp_path, image | program, "launcher-0")
    assert "rank 0 on worker-0" in output
    assert "rank 1 on worker-1" in output
    assert '"step": 20, "total": 41' in output


@pytest.mark.docker
def test_ray_runs_on_the_head_and_the_workers(
    emulate: Emulate, docker_engine: DockerEngine, tiny_image: str, tmp_path: Path
) -> None:
    # In a network that intercepts TLS, pip trusts this machine's bundle alone.
    trusted = BuildOptions.from_environment().ca_bundle or Path(certifi.where())
    image = {
        "image/Dockerfile": RAY_IMAGE.format(base=tiny_image),
        "image/ca-bundle.pem": trusted.read_text(),
    }
    program = {"program/where.py": RAY_PROGRAM, "scenario.yaml": RAY_SCENARIO}
    output = printed(emulate, tmp_path, image | program, "head-0")
    assert "ran on head-0 worker-0 worker-1" in output
