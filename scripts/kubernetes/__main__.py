"""The command of the test cluster: `python3 -m scripts.kubernetes start`."""

from __future__ import annotations

import argparse
import sys
import time

from scripts.kubernetes.cluster import Cluster, alone, require_root
from scripts.kubernetes.errors import Problem
from scripts.kubernetes.layout import Layout, cache_folder, state_folder
from scripts.kubernetes.recipe import binaries, ensure_binaries

COMMANDS = {
    "start": "start the cluster and wait until it is ready; build it where it is missing",
    "stop": "stop it, and remove all that it has made but the binaries",
    "status": "say whether it is ready",
    "stop-api": "take the API server away for a while",
    "start-api": "bring it back",
    "stop-kubelet": "lose the node",
    "start-kubelet": "bring it back",
}


def main() -> int:
    """Do one of COMMANDS; return the exit code."""
    parser = argparse.ArgumentParser(prog="python3 -m scripts.kubernetes", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in COMMANDS.items():
        commands.add_parser(name, help=text)
    command = parser.parse_args().command
    layout = Layout(state_folder())
    cluster = Cluster(layout)
    try:
        if command == "status":
            is_ready = cluster.is_ready()
            print(f"ready: KUBECONFIG={layout.admin}" if is_ready else "no cluster is ready")
            return 0 if is_ready else 1
        require_root()
        with alone(cache_folder()):
            began = time.monotonic()
            _do(cluster, command)
            print(f"{command}: done in {time.monotonic() - began:.1f} s")
        if command == "start":
            print(f"KUBECONFIG={layout.admin}")
    except Problem as problem:
        print(f"kubernetes: {problem}", file=sys.stderr)
        return 1
    return 0


def _do(cluster: Cluster, command: str) -> None:
    match command:
        case "start":
            cluster.start(ensure_binaries())
            if cluster.binaries() != binaries():
                print("the running cluster is of another recipe; `stop` it for the present one")
        case "stop":
            cluster.stop()
        case "stop-api":
            cluster.stop_api()
        case "start-api":
            cluster.start_api()
        case "stop-kubelet":
            cluster.stop_kubelet()
        case "start-kubelet":
            cluster.start_kubelet()


if __name__ == "__main__":
    sys.exit(main())
