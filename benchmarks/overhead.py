"""What emulation costs a training, and what `emulate` itself costs.

The training: one job, once by hand with the docker command alone (a network, a volume, `docker
create`, `docker cp`, `docker start`; the same image, program, environment and limits, and nobody
who looks) and once under `emulate up`, which samples every second. They alternate over the rounds,
and each round is a pair; the throughput is taken between the first and the last step, by the stamps
that the engine gave the lines, in both. Trainings differ by a tenth from one time to the next, with
or without an emulator; so the CPU time that is used beside the training is taken as well: of the
engine's own processes (they hand out the lines that somebody follows), and of the emulator from its
start to its verdict and report.

The emulator: ten tasks that print a step some times a second, and the CPU time of the process of
`emulate up`, between two lines that it printed once all tasks ran. Without sampling too, for the
part of it that sampling is.

    python benchmarks/overhead.py --rounds 5
    python benchmarks/overhead.py --rounds 0 --seconds 60    # the emulator's own CPU alone
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from emulator.engines.docker import DockerEngine
from emulator.engines.docker.container_request import SHARED, WORKDIR, cpu_quota, program_archive
from emulator.engines.kit.lines import seconds
from emulator.metrics.steps import StepReader
from emulator.planning.plan import Plan, Task
from emulator.planning.requested import RequestedScenario
from emulator.record.events import Step
from emulator.record.reader import Record
from emulator.runtime.bundled import scenario_path
from emulator.scenario.given import read_scenario
from emulator.session.ready import make_ready

TASKS = 10
NEVER = "1d"
"""An interval that no run here lives to see: no sampling."""

Stamped = tuple[float, int]
"""Seconds since 1970 by the engine's clock, and the step that a task told of."""
Trained = tuple[list[Stamped], float]
"""The steps, and the CPU seconds beside the training."""


def main() -> None:
    """Run the rounds, then the emulator alone, and print both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scenario", default="mwms")
    parser.add_argument(
        "--set",
        dest="sets",
        nargs="*",
        default=[
            "program.command=[python, mwms.py, --steps, 3000, --save-every, 500]",
            "cluster.worker={replicas: 2, cpus: 1, memory: 2g}",
        ],
        help="what is changed in the scenario, for both",
    )
    parser.add_argument("--seconds", type=int, default=30, help="for the emulator's own CPU")
    parser.add_argument("--rates", type=int, nargs="*", default=[1, 10], help="steps/s of a task")
    options = parser.parse_args()
    if options.rounds:
        compare(options.scenario, options.sets, options.rounds)
    for rate in options.rates:
        for interval in ("1s", NEVER):
            share = own_cpu(interval, rate, options.seconds)
            what = "no sampling" if interval == NEVER else f"sampling every {interval}"
            print(
                f"{TASKS} tasks, {rate:2} steps/s each, {what}: {share:.2%} of a core", flush=True
            )


# --- The training -------------------------------------------------------------------------------


def compare(scenario: str, sets: list[str], rounds: int) -> None:
    """Alternate the two ways, and print each pair and the medians."""
    pairs: list[tuple[float, float]] = []
    beside: list[float] = []
    for number in range(-1, rounds):
        ways = [bare, emulated] if number % 2 else [emulated, bare]
        trained = {way: way(scenario, sets) for way in ways}
        rates = {way: throughput(steps) for way, (steps, _) in trained.items()}
        steps, used = trained[emulated]
        more = used - trained[bare][1]
        share = more / (max(steps)[0] - min(steps)[0])
        print(
            f"{number:3} bare {rates[bare]:.2f} steps/s, emulated {rates[emulated]:.2f} steps/s, "
            f"ratio {rates[emulated] / rates[bare]:.3f}; beside it {more:+.2f} CPU s for "
            f"{len(steps)} lines, {share:.1%} of a core",
            flush=True,
        )
        if number >= 0:  # round -1 fills the page cache
            pairs.append((rates[bare], rates[emulated]))
            beside.append(share)
    by_hand = statistics.median(bare for bare, _ in pairs)
    by_us = statistics.median(emulated for _, emulated in pairs)
    ratio = statistics.median(emulated / bare for bare, emulated in pairs)
    print(
        f"medians: bare {by_hand:.2f} steps/s, emulated {by_us:.2f} steps/s, ratio of medians "
        f"{by_us / by_hand:.3f}, of pairs {ratio:.3f}; beside it {statistics.median(beside):.1%} "
        "of a core"
    )


def cpu_beside() -> float:
    """Return the CPU seconds so far of the engine's own processes and of our ended children."""
    total = sum(os.times()[2:4])
    for process in psutil.process_iter(["name", "cpu_times"]):
        if str(process.info["name"]) in ("dockerd", "containerd") and process.info["cpu_times"]:
            total += process.info["cpu_times"].user + process.info["cpu_times"].system
    return total


def throughput(steps: list[Stamped]) -> float:
    """Return steps per second from the first that was told to the furthest."""
    first, last = min(steps), max(steps, key=lambda stamped: (stamped[1], -stamped[0]))
    return (last[1] - first[1]) / (last[0] - first[0])


def emulated(scenario: str, sets: list[str]) -> Trained:
    """Train under `emulate up`, as users call it; sampling every second."""
    with tempfile.TemporaryDirectory() as out:
        changes = [f"--set={one}" for one in [*sets, "metrics.interval=1s"]]
        command = [sys.executable, "-m", "emulator", "up", scenario, "--engine", "docker"]
        before = cpu_beside()
        subprocess.run([*command, *changes, "--out", out], check=True, capture_output=True)
        used = cpu_beside() - before
        record = Record.find("last", Path(out))
        assert record.samples, "it was to be measured with sampling"
        steps = [(e.wall, e.step) for e in record.history if isinstance(e, Step)]
        return steps, used


def bare(scenario: str, sets: list[str]) -> Trained:
    """Train by hand: what the plan says, told to docker itself."""
    engine = DockerEngine()
    try:
        path = scenario_path(Path(scenario))
        requested = RequestedScenario(read_scenario(path), path, chosen=tuple(sets))
        plan, _ = make_ready(requested, engine)
        engine.ensure_images(plan.scenario, lambda text: None)  # the image, if it is not there yet
    finally:
        engine.close()
    before = cpu_beside()
    with made(plan):
        docker("start", *(container(plan, task) for task in plan.tasks))
        docker("wait", container(plan, plan.tasks[0]))
        used = cpu_beside() - before
        return [stamped for task in plan.tasks for stamped in told(plan, task)], used


@contextmanager
def made(plan: Plan) -> Iterator[None]:
    """Create network, volume and containers, and remove them whatever happens."""
    try:
        docker("network", "create", "--internal", plan.run_id)
        docker("volume", "create", plan.run_id)
        for task in plan.tasks:
            docker("create", *arguments(plan, task), task.image, *task.command)
            archive = program_archive(task.copied)
            docker("cp", "-", f"{container(plan, task)}:/", stdin=archive)
        yield
    finally:
        names = [container(plan, task) for task in plan.tasks]
        subprocess.run(["docker", "rm", "-f", *names], capture_output=True)
        subprocess.run(["docker", "volume", "rm", plan.run_id], capture_output=True)
        subprocess.run(["docker", "network", "rm", plan.run_id], capture_output=True)


def container(plan: Plan, task: Task) -> str:
    """Return a container's name."""
    return f"{plan.run_id}-{task.name}"


def arguments(plan: Plan, task: Task) -> list[str]:
    """Return a task's options of `docker create`: what the engine is asked under `emulate`."""
    limits = [f"--cpu-period=100000 --cpu-quota={cpu_quota(task.cpus)}"] if task.cpus else []
    limits += [f"--memory={task.memory} --memory-swap={task.memory}"] if task.memory else []
    return [
        *("--name", container(plan, task), "--hostname", task.name, "--init"),
        *("--network", plan.run_id, "--network-alias", task.name),
        *("--volume", f"{plan.run_id}:{SHARED}", "--workdir", WORKDIR),
        *("--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--log-driver", "json-file"),
        *" ".join(limits).split(),
        *(f"--env={key}={value}" for key, value in task.env.items()),
    ]


def told(plan: Plan, task: Task) -> Iterator[Stamped]:
    """Yield the steps in a container's log, read after the end."""
    reader = StepReader(plan.scenario.metrics.rules)
    for line in docker("logs", "--timestamps", container(plan, task)).splitlines():
        stamp, _, text = line.partition(" ")
        for seen in reader.read(text, seconds(stamp)):
            if seen.event == "step":
                yield seen.wall, int(str(seen.data["step"]))


def docker(*words: str, stdin: bytes | None = None) -> str:
    """Run the docker command; return its stdout."""
    done = subprocess.run(["docker", *words], input=stdin, capture_output=True)
    if done.returncode:
        raise SystemExit(f"docker {words[0]}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout.decode(errors="replace")


# --- The emulator itself ------------------------------------------------------------------------


def own_cpu(interval: str, rate: int, lasting: int) -> float:
    """Return the share of a core that `emulate up` takes while ten tasks train.

    From the second in which the first task has printed for three seconds, so without the start.
    """
    loop = (
        'i=0; while true; do i=$((i+1)); echo "{\\"emulate\\": \\"step\\", \\"step\\": $i}"; '
        f"sleep {1 / rate}; done"
    )
    with tempfile.TemporaryDirectory() as folder:
        scenario = Path(folder, "scenario.yaml")
        scenario.write_text(
            f"name: overhead\nframework: none\nimage: {base_image()}\n"
            f"program: {{command: [sh, -c, {json.dumps(loop)}]}}\n"
            f"cluster: {{worker: {TASKS}}}\nmetrics: {{interval: {interval}}}\n"
        )
        command = [sys.executable, "-m", "emulator", "up", str(scenario), "--engine", "docker"]
        process = subprocess.Popen(
            [*command, "--out", folder], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        try:
            began, before = when_it_prints(process, 3 * rate)
            ended, after = when_it_prints(process, (3 + lasting) * rate)
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate()
    return (after - before) / (ended - began)


def when_it_prints(process: subprocess.Popen[str], step: int) -> tuple[float, float]:
    """Wait until the first task told of a step; return the time and the CPU seconds by then."""
    assert process.stdout is not None
    for line in process.stdout:
        if "worker-0 " in line and f'"step": {step}}}' in line:
            used = psutil.Process(process.pid).cpu_times()
            return time.perf_counter(), used.user + used.system
    raise SystemExit("`emulate up` ended before its tasks had made enough steps")


def base_image() -> str:
    """Return a small image with a shell."""
    engine = DockerEngine()
    try:
        return engine.images.base(lambda line: None)
    finally:
        engine.close()


if __name__ == "__main__":
    main()
