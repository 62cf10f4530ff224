"""Starts and stops the cluster: flat lists of steps, each safe to do twice."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from scripts.kubernetes import parts, pki, processes
from scripts.kubernetes.api import Api, Refused
from scripts.kubernetes.errors import Problem
from scripts.kubernetes.layout import (
    API_SERVICE_IP,
    KUBELET_PLACES,
    NODE,
    PAUSE_IMAGE,
    PORTS,
    PROVISIONED,
    Layout,
)
from scripts.kubernetes.node_services import DNS_PORT

READY_WITHIN = 120.0
"""Seconds; an idle machine takes ten."""
CONTAINERS = "label=io.kubernetes.docker.type"
"""Every kubelet on Docker gives this label, and takes containers that have it for its own."""


class Cluster:
    """The machine's one cluster."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    # --- Start and stop --------------------------------------------------------------------------

    def start(self, binaries: Path) -> None:
        """Start it and wait until Pods can run; do nothing where it is ready. Raises Problem."""
        if self.is_ready():
            _ensure_pause(self._layout)  # which a `docker image prune` takes
            return
        if not self._all_run():
            self.stop()  # what is left of one that the machine's end or a crash took
        self._refuse_where_another_lives()
        try:
            self._start_parts(binaries, _node_ip())
        except Problem:
            self.stop()
            raise

    def _start_parts(self, binaries: Path, node_ip: str) -> None:
        layout = self._layout
        layout.state.mkdir(parents=True, exist_ok=True)
        _remember_made(layout)
        layout.binaries.symlink_to(binaries)
        pki.make_all(layout)
        self._write_configuration(node_ip)
        _ensure_pause(layout)
        _ensure_address()
        self._run(parts.etcd(layout))
        self._run(parts.api_server(layout, node_ip))
        api = Api(layout.pki)
        self._wait("api-server", "the API server answers", lambda: api.get("/readyz") == "ok")
        api.create("/apis/storage.k8s.io/v1/storageclasses", parts.storage_class())
        self._run(parts.controllers(layout))
        self._run(parts.scheduler(layout))
        self._run(parts.node_services(layout, node_ip))
        self._run(parts.kubelet(layout, node_ip))
        self._wait("kubelet", "the node is ready", self._node_is_ready)
        self._wait("controllers", "Pods may be made", self._pods_may_be_made)

    def stop(self) -> None:
        """End it and remove what it has made; do nothing where there is none. Raises Problem."""
        layout = self._layout
        if not layout.state.exists():
            return
        for name in reversed(parts.ORDER):
            processes.stop(layout.state, name)
        made = _made(layout)
        if made is not None:
            _remove_containers()
            _unmount_below(layout.kubelet_root)
            _docker("rmi", "--force", PAUSE_IMAGE, check=False)
            _ip("addr", "del", f"{API_SERVICE_IP}/32", "dev", "lo", check=False)
            for place in made:
                shutil.rmtree(place, ignore_errors=True)
        shutil.rmtree(layout.state)

    def is_ready(self) -> bool:
        """Say whether all parts run and Pods can be made."""
        if not self._all_run():
            return False
        with contextlib.suppress(OSError, Refused):
            return self._node_is_ready() and self._pods_may_be_made()
        return False

    def binaries(self) -> Path:
        """Return the folder of the binaries that it runs on."""
        return self._layout.binaries.readlink()

    # --- Bad luck on purpose ---------------------------------------------------------------------

    def stop_api(self) -> None:
        """Take the API server away; Pods go on."""
        processes.stop(self._layout.state, "api-server")

    def start_api(self) -> None:
        """Bring the API server back, and wait until it answers."""
        self._run(parts.api_server(self._layout, _node_ip()))
        api = Api(self._layout.pki)
        self._wait("api-server", "the API server answers", lambda: api.get("/readyz") == "ok")

    def stop_kubelet(self) -> None:
        """Lose the node: its containers go on, and nobody reports them."""
        processes.stop(self._layout.state, "kubelet")

    def start_kubelet(self) -> None:
        """Bring the node back, and wait until it is ready."""
        self._run(parts.kubelet(self._layout, _node_ip()))
        self._wait("kubelet", "the node is ready", self._node_is_ready)

    # --- Steps -----------------------------------------------------------------------------------

    def _all_run(self) -> bool:
        return all(processes.is_running(self._layout.state, name) for name in parts.ORDER)

    def _run(self, process: processes.Process) -> None:
        process.start(self._layout.state)

    def _wait(self, part: str, what: str, is_so: Callable[[], bool]) -> None:
        until = time.monotonic() + READY_WITHIN
        while True:
            with contextlib.suppress(OSError, Refused):
                if is_so():
                    return
            runs = processes.is_running(self._layout.state, part)
            if not runs or time.monotonic() > until:
                why = f"not after {READY_WITHIN:.0f} s" if runs else f"{part} has ended"
                words = processes.last_words(self._layout.state, part)
                raise Problem(f"waited until {what}, but {why}. The last words of {part}:\n{words}")
            time.sleep(0.1)

    def _node_is_ready(self) -> bool:
        node = Api(self._layout.pki).get(f"/api/v1/nodes/{NODE}")
        taints = [taint["key"] for taint in node["spec"].get("taints") or []]
        ready = {c["type"]: c["status"] for c in node["status"].get("conditions") or []}
        return ready.get("Ready") == "True" and "node.kubernetes.io/not-ready" not in taints

    def _pods_may_be_made(self) -> bool:
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        return bool(Api(self._layout.pki).get(account).get("secrets"))

    def _write_configuration(self, node_ip: str) -> None:
        state = self._layout.state
        driver = _docker("info", "--format", "{{.CgroupDriver}}")
        kubelet = parts.kubelet_configuration(self._layout, node_ip, driver)
        (state / "kubelet.json").write_text(json.dumps(kubelet, indent=1))
        (state / "audit-policy.json").write_text(json.dumps(parts.audit_policy(), indent=1))

    def _refuse_where_another_lives(self) -> None:
        """Raise Problem where a kubelet that is not ours is at home, or holds our ports."""
        ours = _made(self._layout) or []
        if found := [place for place in KUBELET_PLACES if place.exists() and place not in ours]:
            raise Problem(
                f"another kubelet is at home on this machine: {found[0]} exists. There can be "
                "one only. Use its cluster: EMULATOR_TEST_KUBECONFIG=~/.kube/config."
            )
        if not ours and _docker("ps", "--all", "--quiet", "--filter", CONTAINERS):
            raise Problem(
                "the Docker engine has containers of another kubelet (`docker ps --all --filter "
                f"{CONTAINERS}`); a second one would take them for its own."
            )
        for port in PORTS:
            if _is_taken("127.0.0.1", port, socket.SOCK_STREAM):
                raise Problem(f"something listens on 127.0.0.1:{port} already.")
        if _is_taken(_node_ip(), DNS_PORT, socket.SOCK_DGRAM):
            raise Problem(f"something answers DNS on {_node_ip()}:{DNS_PORT} already.")


# --- What is outside the cluster's own folder ----------------------------------------------------


def _remember_made(layout: Layout) -> None:
    """Note which places the kubelet will make: these are removed in the end, and no others."""
    if _made(layout) is None:
        made = [str(place) for place in (*KUBELET_PLACES, PROVISIONED) if not place.exists()]
        (layout.state / "made.json").write_text(json.dumps(made))


def _made(layout: Layout) -> list[Path] | None:
    """Return the places outside its folder that are the cluster's; None if it never got there."""
    with contextlib.suppress(OSError, ValueError):
        return list(map(Path, json.loads((layout.state / "made.json").read_text())))
    return None


def _node_ip() -> str:
    """Return this machine's address on the engine's own bridge: Pods reach the machine by it."""
    name = '{{index .Options "com.docker.network.bridge.name"}}'
    bridge = _docker("network", "inspect", "bridge", "--format", name)
    found = re.search(r" inet ([0-9.]+)/", _ip("-4", "-oneline", "addr", "show", "dev", bridge))
    if found is None:
        raise Problem(f"the Docker engine's bridge {bridge} has no address on this machine.")
    return found.group(1)


def _ensure_pause(layout: Layout) -> None:
    """Import the image of the process that holds each Pod's namespaces: upstream's, static."""
    if _docker("images", "--quiet", PAUSE_IMAGE):
        return
    packed = subprocess.run(
        ["tar", "--directory", str(layout.binaries), "--create", "pause"],
        check=True,
        capture_output=True,
    ).stdout
    change = 'ENTRYPOINT ["/pause"]'
    _docker("import", "--change", change, "-", PAUSE_IMAGE, given=packed)


def _ensure_address() -> None:
    """Give the loopback the cluster IP of the API, so that Pods' packets to it end here."""
    if f" {API_SERVICE_IP}/" not in _ip("-4", "addr", "show", "dev", "lo"):
        _ip("addr", "add", f"{API_SERVICE_IP}/32", "dev", "lo")


def _remove_containers() -> None:
    if ids := _docker("ps", "--all", "--quiet", "--filter", CONTAINERS).split():
        _docker("rm", "--force", *ids)


def _unmount_below(folder: Path) -> None:
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    # The kubelet mounts its own folder over itself; what is in it comes first.
    for place in sorted((m for m in mounts if Path(m).is_relative_to(folder)), reverse=True):
        subprocess.run(["umount", place], check=True)


def _is_taken(address: str, port: int, kind: socket.SocketKind) -> bool:
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(kind == socket.SOCK_STREAM))
        try:
            probe.bind((address, port))
        except OSError:
            return True
    return False


def _docker(*arguments: str, check: bool = True, given: bytes | None = None) -> str:
    return _output("docker", *arguments, check=check, given=given)


def _ip(*arguments: str, check: bool = True) -> str:
    return _output("ip", *arguments, check=check)


def _output(*command: str, check: bool, given: bytes | None = None) -> str:
    try:
        done = subprocess.run(command, input=given, capture_output=True, check=False)
    except OSError as error:
        raise Problem(f"`{command[0]}` can't be run: {error.strerror}.") from None
    if check and done.returncode:
        raise Problem(f"`{' '.join(command)}` failed: {done.stderr.decode().strip()}")
    return done.stdout.decode().strip()


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Let one command at a time change the cluster."""
    import fcntl

    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "cluster.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def require_root() -> None:
    """Raise Problem unless a kubelet can run here as who we are."""
    if os.geteuid() != 0:
        raise Problem("a kubelet needs root: `sudo make kubernetes`.")
