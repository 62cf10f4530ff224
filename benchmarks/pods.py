"""What a Pod costs the emulator: CPU time and requests to the API server, from 12 Pods to 100.

Each run is `emulate up` of a program in the shell on the test cluster (`make kubernetes`), from its
start until everything is removed. The requests are those in the API server's own audit log. A run
of one Pod is what every run costs; what the others cost beyond it is divided by their number.

    python -m benchmarks.pods --pods 12 25 50 100

Pods of other users of the cluster make these runs take longer, and cost the emulator nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure
from emulator.engines.docker import DockerEngine
from emulator.record.reader import Record
from scripts.kubernetes.api import Api, Refused
from scripts.kubernetes.layout import Layout, state_folder

PODS = (12, 25, 50, 100)
ROUNDS_UP_TO = 50
"""Small runs are repeated: as often as they have together so many Pods."""
STEPS = 5
JOB = (
    f"n=0; while [ $n -lt {STEPS} ]; do n=$((n + 1)); "
    'echo "{\\"emulate\\": \\"step\\", \\"step\\": $n}"; sleep 1; done'
)
NEVER = "1d"
"""An interval that no run here lives to see: no sampling."""
FLUSHED_WITHIN = 60.0
"""Seconds until the API server has written a request to its audit log."""


@dataclass(frozen=True)
class Cost:
    """What one run has cost."""

    pods: int
    cpu: float
    """CPU seconds of the emulator, from its start to its end."""
    requests: Counter[str]
    """By verb and resource."""
    running: float
    """Seconds until all tasks ran."""
    took: float
    """Seconds from the start of the command to its end."""


def main() -> None:
    """Run each number of Pods, and print what they cost."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pods", type=int, nargs="+", default=PODS)
    show(measured(parser.parse_args().pods))


def measure(pods: Sequence[int] = PODS) -> list[Figure]:
    """Return CPU and requests a Pod, and how these grow from the smallest run to the largest."""
    one, *runs = measured(pods)
    found = []
    for run in runs:
        cpu, requests = each(run, one)
        found += [
            Figure(f"pods.cpu{run.pods}", f"{run.pods} Pods: CPU a Pod", 1000 * cpu, "ms"),
            Figure(f"pods.requests{run.pods}", "requests a Pod", requests, "requests"),
        ]
    first, last = each(runs[0], one), each(runs[-1], one)
    between = f"{runs[-1].pods} against {runs[0].pods}"
    return [
        *found,
        Figure("pods.cpu_growth", f"CPU a Pod, {between}", last[0] / first[0], "times", 1.2),
        Figure("pods.growth", f"requests a Pod, {between}", last[1] / first[1], "times", 1.2),
        Figure("pods.watches", "watches of the largest run", watches(runs[-1]), "watches", 2),
    ]


def measured(pods: Sequence[int]) -> list[Cost]:
    """Run one Pod, and then each number of them."""
    layout = Layout(state_folder())
    if not layout.admin.is_file():
        raise SystemExit("there is no test cluster; `make kubernetes` starts it")
    with contextlib.closing(DockerEngine()) as engine:
        image = engine.images.base(lambda line: None)
    _rounds(layout, image, 1, 1)  # it compiles what is imported
    return [_rounds(layout, image, number, max(1, ROUNDS_UP_TO // number)) for number in (1, *pods)]


def _rounds(layout: Layout, image: str, pods: int, rounds: int) -> Cost:
    """Return the run with the median CPU of some rounds, at most five."""
    found = []
    for _ in range(min(rounds, 5)):
        with namespace(layout) as name:
            found.append(run(layout, name, image, pods))
        print(f"{pods:4} Pods: {told(found[-1])}", flush=True)
    return sorted(found, key=lambda one: one.cpu)[len(found) // 2]


def show(costs: Sequence[Cost]) -> None:
    """Print what a Pod costs beyond the first, and which requests it takes."""
    one, *runs = costs
    for run in runs:
        cpu, requests = each(run, one)
        print(f"{run.pods:4} Pods: {1000 * cpu:.1f} ms of CPU and {requests:.2f} requests a Pod")
    for what, count in sorted(runs[-1].requests.items()):
        print(f"{what:40} {count:5}  {count / runs[-1].pods:.2f} a Pod")


def told(cost: Cost) -> str:
    """Return a run's figures in words."""
    return (
        f"{cost.cpu:.2f} s of CPU, {cost.requests.total()} requests, "
        f"all running after {cost.running:.1f} s, took {cost.took:.1f} s"
    )


def each(run: Cost, one: Cost) -> tuple[float, float]:
    """Return CPU seconds and requests for each Pod beyond the first."""
    more = run.pods - one.pods
    return (run.cpu - one.cpu) / more, (run.requests.total() - one.requests.total()) / more


def watches(run: Cost) -> int:
    """Return how many watches a run has opened at the most for one kind of object."""
    return max(count for what, count in run.requests.items() if what.startswith("watch "))


# --- One run --------------------------------------------------------------------------------------


def run(layout: Layout, namespace: str, image: str, pods: int) -> Cost:
    """Run a job of so many Pods to its end."""
    with tempfile.TemporaryDirectory() as out:
        scenario = Path(out, "scenario.yaml")
        scenario.write_text(
            f"name: pods\nframework: none\nimage: {image}\nsuccess: all-workers\n"
            f"program: {{command: [sh, -c, {json.dumps(JOB)}]}}\ncluster: {{worker: {pods}}}\n"
            f"metrics: {{interval: {NEVER}}}\n"
            f"kubernetes: {{namespace: {namespace}, shared: none, start_timeout: 20m}}\n"
            f"expect: {{outcome: succeeded, final_step: {STEPS}}}\n"
        )
        command = [sys.executable, "-m", "emulator", "up", str(scenario), "--engine=kubernetes"]
        began = time.perf_counter()
        process = subprocess.Popen(
            [*command, "--out", out],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "KUBECONFIG": str(layout.admin)},
            text=True,
        )
        assert process.stdout is not None
        with process.stdout:
            said = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        took = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise SystemExit(f"the run of {pods} Pods ended with {process.returncode}:\n{said}")
        summary = Record.find("last", Path(out)).summary
        assert summary is not None
        running = float(summary["startup"]["all_running"])
    cpu = used.ru_utime + used.ru_stime
    return Cost(pods, cpu, requests(layout, namespace), running, took)


@contextlib.contextmanager
def namespace(layout: Layout) -> Iterator[str]:
    """Make a namespace for a run, and remove it."""
    api, name = Api(layout.pki), f"benchmark-{uuid.uuid4().hex[:8]}"
    api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    wait_for(lambda: exists(api, f"/api/v1/namespaces/{name}/serviceaccounts/default"))
    try:
        yield name
    finally:
        api.call("DELETE", f"/api/v1/namespaces/{name}")


def exists(api: Api, path: str) -> bool:
    """Say whether there is an object."""
    try:
        api.get(path)
    except Refused as refused:
        if refused.status != HTTPStatus.NOT_FOUND:
            raise
        return False
    return True


def wait_for(reached: Callable[[], bool]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + FLUSHED_WITHIN
    while not reached():
        if time.monotonic() > deadline:
            raise SystemExit(f"the cluster has not done within {FLUSHED_WITHIN:g} s what was asked")
        time.sleep(0.2)


# --- The audit log --------------------------------------------------------------------------------


def requests(layout: Layout, namespace: str) -> Counter[str]:
    """Return what the emulator has asked for in a namespace, by verb and resource."""
    # The server writes its log in batches: what is in it after this mark is complete before it.
    mark = f"/api/v1/namespaces/{namespace}/configmaps/mark-{uuid.uuid4().hex[:8]}"
    exists(Api(layout.pki), mark)
    wait_for(lambda: any(mark in line for line in _log(layout)))
    seen = (json.loads(line) for line in _log(layout) if namespace in line)
    found = {
        one["auditID"]: f"{one['verb']} {_resource(one['objectRef'])}"
        for one in seen
        if one.get("userAgent") == "emulator" and _namespace(one) == namespace
    }
    return Counter(found.values())


def _namespace(one: Mapping[str, Any]) -> str:
    return str(one.get("objectRef", {}).get("namespace", ""))


def _resource(reference: Mapping[str, str]) -> str:
    """Return the name of a resource in Roles: `pods/log`."""
    return "/".join(filter(None, (reference["resource"], reference.get("subresource"))))


def _log(layout: Layout) -> Iterator[str]:
    """Yield the lines of the audit log, also of its last part that was put aside."""
    parts = sorted(layout.audit_log.parent.glob(f"{layout.audit_log.stem}-*.log"))
    for path in (*parts[-1:], layout.audit_log):
        with path.open(encoding="utf-8") as log:
            yield from log


if __name__ == "__main__":
    main()
