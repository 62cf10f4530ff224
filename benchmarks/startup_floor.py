"""The floor of `startup.py`: a network and N containers by bare SDK calls, all in parallel."""

from __future__ import annotations

import signal
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor

import docker


def main() -> None:
    """Start IMAGE as N tasks, say so, wait for SIGTERM, remove them."""
    image, tasks = sys.argv[1], int(sys.argv[2])
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    api = docker.APIClient(version="auto", max_pool_size=16)
    name = f"floor-{uuid.uuid4().hex[:8]}"
    network = api.create_network(name, driver="bridge")

    def start(index: int) -> str:
        host_config = api.create_host_config(network_mode=name, init=True)
        container: str = api.create_container(
            image, ["sleep", "1000"], name=f"{name}-{index}", host_config=host_config
        )["Id"]
        api.start(container)
        return container

    with ThreadPoolExecutor(tasks) as pool:
        containers = list(pool.map(start, range(tasks)))
        print("all running", flush=True)
        signal.sigwait({signal.SIGTERM})
        list(pool.map(lambda c: api.remove_container(c, force=True), containers))
    api.remove_network(network["Id"])


if __name__ == "__main__":
    main()
