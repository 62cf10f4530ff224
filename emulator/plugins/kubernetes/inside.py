"""What the Job of `emulate export --to kubernetes-job` runs: the emulator, and then the store.

    python -m emulator.plugins.kubernetes.inside emulate up scenario.yaml --engine kubernetes

It unpacks the scenario's files, runs the command, and stores the run folder in a ConfigMap, because
nothing else of the Pod remains when it has ended. Its exit code is that of the command.
"""

from __future__ import annotations

import base64
import contextlib
import io
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from emulator.errors import EmulatorError, EngineError, EngineLost, EngineMissing
from emulator.validation.units import format_size

if TYPE_CHECKING:
    from emulator.plugins.kubernetes.connection import ApiServer

MOUNTED, WORK = "/scenario", "/work"
"""Where the Pod has the ConfigMaps, and where the emulator runs."""
SCENARIO_FILE = "scenario.yaml"
ARCHIVE = "files.tar.gz"
"""Its parts end with `.00`, `.01` and so on."""
JOB_NAME, JOB_UID = "EMULATOR_JOB_NAME", "EMULATOR_JOB_UID"
"""Variables: the Job, which owns the ConfigMap with the run: that is gone with it."""
RUN_FILE = "run.tar.gz"
MOST_BYTES = 900 * 2**10
"""Of what is stored: Kubernetes takes 1 MiB of data."""
PAUSES = (5.0, 20.0, 60.0)
"""Seconds before each further attempt to store a run, whose only copy it is."""
NEVER = frozenset({"report.html"})
"""Not stored: `emulate report` writes the page again."""
LEFT_OUT: Sequence[frozenset[str]] = (
    frozenset(),
    frozenset({"logs"}),
    frozenset({"logs", "samples.jsonl"}),
)
"""What is left out of a run folder that is too large, as far as needed."""


def main(command: Sequence[str] | None = None) -> int:
    """Unpack, run the command, store its run; return its exit code."""
    work = Path(WORK)
    unpack(Path(MOUNTED), work)
    code = run(sys.argv[1:] if command is None else command, work)
    try:
        print(keep(work / "runs"), file=sys.stderr)  # noqa: T201
    except EmulatorError as error:  # the command's exit code is worth more
        print(f"emulate: the run is not stored: {error}", file=sys.stderr)  # noqa: T201
    return code


def unpack(mounted: Path, work: Path) -> None:
    """Put the scenario and its files where the emulator runs."""
    (work / SCENARIO_FILE).write_bytes((mounted / SCENARIO_FILE).read_bytes())
    pieces = sorted(mounted.glob(f"{ARCHIVE}.*"))
    if pieces:
        whole = io.BytesIO(b"".join(piece.read_bytes() for piece in pieces))
        with tarfile.open(fileobj=whole, mode="r:gz") as tar:
            # Python 3.11.2, which Debian 12 has, knows no filters; the files are our own.
            tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
            tar.extractall(work)


def run(command: Sequence[str], work: Path) -> int:
    """Run a command, which gets the signals that this process gets; return its exit code.

    A process without a handler would not get them at all here: it would be PID 1.
    """
    received: list[int] = []
    process: list[subprocess.Popen[bytes]] = []

    def forward(number: int, _: FrameType | None) -> None:
        received.append(number)
        for one in process:
            one.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, forward)
    process.append(subprocess.Popen(command, cwd=work))
    for early in received:  # while there was no process yet
        process[0].send_signal(early)
    code = process[0].wait()
    return code if code >= 0 else 128 - code


def keep(runs: Path, environ: Mapping[str, str] = os.environ) -> str:
    """Store the only run of `runs` in a ConfigMap; return a line on it. Raises EngineError."""
    folder = next((path.parent for path in runs.glob("*/plan.json")), None)
    if folder is None:
        return "emulate: there is no run to store"
    content, left_out = packed(folder)
    body = config_map(environ[JOB_NAME], environ[JOB_UID], content)
    _store(body)
    without = f", without {' and '.join(sorted(left_out))}" if left_out else ""
    return f"emulate: the run is in the ConfigMap {body['metadata']['name']}{without}"


def _store(body: Mapping[str, Any]) -> None:
    """Create a ConfigMap, or replace it; an API server that is away is waited for."""
    from emulator.plugins.kubernetes.connection import ApiServer, ignoring_missing
    from emulator.scenario.kubernetes import Kubernetes

    for pause in (*PAUSES, None):
        try:
            with contextlib.closing(ApiServer.open(Kubernetes())) as cluster:
                path = cluster.namespaced("configmaps", body["metadata"]["name"])
                ignoring_missing(partial(_remove, cluster, path, body))
                cluster.post(cluster.namespaced("configmaps"), body)
                return
        except (EngineMissing, EngineLost):
            if pause is None:
                raise
            time.sleep(pause)


def _remove(cluster: ApiServer, path: str, body: Mapping[str, Any]) -> None:
    cluster.delete(path, replacing(cluster.get(path), body))


def replacing(found: Mapping[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
    """Return DeleteOptions for a ConfigMap that another one replaces (pure).

    Raises EngineError if it is of no Job of that name: it is somebody else's.
    """
    (owner,) = body["metadata"]["ownerReferences"]
    owners = found["metadata"].get("ownerReferences") or ()
    if not any((one["kind"], one["name"]) == ("Job", owner["name"]) for one in owners):
        raise EngineError(
            f"There is a ConfigMap {body['metadata']['name']}, which no Job {owner['name']} made."
        )
    return {"preconditions": {"uid": found["metadata"]["uid"]}}


def results_name(job: str) -> str:
    """Return the name of the ConfigMap with the run of a Job (pure)."""
    return f"{job}-run"


def config_map(job: str, uid: str, content: bytes) -> dict[str, Any]:
    """Return the ConfigMap with a run, which belongs to the Job (pure)."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": uid}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": results_name(job), "ownerReferences": [owner]},
        "binaryData": {RUN_FILE: base64.b64encode(content).decode()},
    }


def packed(folder: Path) -> tuple[bytes, frozenset[str]]:
    """Return a run folder as a compressed tar, and what of it had to be left out.

    Raises EngineError if it is too large in any case.
    """
    for left_out in LEFT_OUT:
        content = _archive(folder, NEVER | left_out)
        if len(content) <= MOST_BYTES:
            return content, left_out
    raise EngineError(
        f"It has {format_size(len(content))} even without {' and '.join(sorted(left_out))}, and a "
        f"ConfigMap takes {format_size(MOST_BYTES)}.",
        "A shorter run, or a longer metrics.interval, makes a smaller record.",
    )


def _archive(folder: Path, left_out: Collection[str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for path in sorted(folder.iterdir()):
            if path.name not in left_out and not path.is_socket():
                tar.add(path, f"{folder.name}/{path.name}")
    return buffer.getvalue()


if __name__ == "__main__":
    sys.exit(main())
