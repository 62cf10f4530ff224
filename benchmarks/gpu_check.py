"""What the GPU sampler sees on a real GPU: two tasks load it, and the figures are checked.

Needs an NVIDIA GPU, Python 3.11 with torch and nvidia-ml-py, and no Docker. Each task is a process
group, as the process engine starts it: `heavy` multiplies matrices without a pause, `light` holds
memory and does nothing. Prints the samples, how long each took, what nvidia-smi says, and whether
each thing that docs/gpus.md promises was seen; exits with 1 where one was not.

    python benchmarks/gpu_check.py
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # also where emulate is not installed

from emulator.metrics.catalog import GpuShare, GpuUsage
from emulator.metrics.gpu.sampler import GpuSampler

HOLDS = {"heavy": 4 * 2**30, "light": 2 * 2**30}
"""Bytes that each task holds."""
LOAD = """
import sys, torch
held = torch.empty(int(sys.argv[1]), dtype=torch.uint8, device="cuda")
factor = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
torch.cuda.synchronize()
print("ready", flush=True)
if sys.argv[2] == "light":
    sys.stdin.read()
while True:
    for _ in range(50):
        factor @ factor
    torch.cuda.synchronize()
"""
QUERY = "index,utilization.gpu,memory.used,power.draw,temperature.gpu,clocks.sm,clocks.mem"


def main() -> None:
    """Load the GPU, sample it, and judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--interval", type=float, default=1.0)
    options = parser.parse_args()
    with GpuSampler() as sampler:
        print(f"driver: {sampler.found.driver or sampler.found.why_none}")
        for gpu in sampler.found.gpus:
            print(f"found:  {gpu}")
        print(f"never told: {dict(sampler.unavailable) or 'nothing'}")
        if not sampler.found.gpus:
            sys.exit("no GPU, nothing to check")
        print(f"idle:   {as_json(sampler.sample({}))}")
        with tasks() as running:
            pids = {name: group(process.pid) for name, process in running.items()}
            print(f"pids:   {pids}; NVML lists {listed_pids()}")
            samples = sampled(sampler, pids, options.seconds, options.interval)
            nvidia_smi()
        after = sampled_after(sampler, pids)
        print(f"never told: {dict(sampler.unavailable) or 'nothing'}")
    sys.exit(0 if judged(samples, after) else 1)


@contextmanager
def tasks() -> Iterator[dict[str, subprocess.Popen[str]]]:
    """Start both, each under a shell, so that it is a group of two; kill them at the end."""
    running: dict[str, subprocess.Popen[str]] = {}
    try:
        for name, size in HOLDS.items():
            python = [sys.executable, "-c", LOAD, str(size), name]
            running[name] = subprocess.Popen(
                ["sh", "-c", '"$@"; exit $?', "sh", *python],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        for name, process in running.items():
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                sys.exit(f"{name} did not get its memory on the GPU; see above")
        yield running
    finally:
        for process in running.values():
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def group(number: int) -> list[int]:
    """Return the pids of a process group."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(folder.name)) == number:
                found.append(int(folder.name))
        except ProcessLookupError:
            continue
    return sorted(found)


def listed_pids() -> dict[int, list[int]]:
    """Return the pids that NVML gives for each device, whoever they belong to."""
    import pynvml

    pynvml.nvmlInit()
    found = {}
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        try:
            running = pynvml.nvmlDeviceGetComputeRunningProcesses_v3(handle)
            found[index] = [process.pid for process in running]
        except pynvml.NVMLError as error:
            print(f"GPU {index} lists no processes: {error}")
    pynvml.nvmlShutdown()
    return found


def sampled(
    sampler: GpuSampler, pids: Mapping[str, Sequence[int]], seconds: float, interval: float
) -> list[list[GpuUsage]]:
    """Sample at the interval, and print each with the time that it took."""
    samples, took = [], []
    for _ in range(max(2, round(seconds / interval))):
        time.sleep(interval)
        began = time.perf_counter()
        samples.append(sampler.sample(pids))
        took.append(1000 * (time.perf_counter() - began))
        print(f"{took[-1]:6.2f} ms {as_json(samples[-1])}")
    print(f"a sample took {statistics.median(took):.2f} ms (median), {max(took):.2f} ms at most")
    return samples


def sampled_after(sampler: GpuSampler, pids: Mapping[str, Sequence[int]]) -> list[GpuUsage]:
    """Sample until the driver has cleared up after the tasks, for five seconds at most."""
    ended = time.monotonic()
    while True:
        after = sampler.sample(pids)
        if not any(usage.tasks for usage in after) or time.monotonic() - ended > 5:
            print(f"after {time.monotonic() - ended:.1f} s: {as_json(after)}")
            return after
        time.sleep(0.1)


def as_json(usages: Sequence[GpuUsage]) -> str:
    """Return one line."""
    return json.dumps([asdict(usage) for usage in usages])


def nvidia_smi() -> None:
    """Print what NVIDIA's own tool says of the same moment."""
    if shutil.which("nvidia-smi"):
        command = ["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv"]
        print(subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip())


def judged(samples: Sequence[Sequence[GpuUsage]], after: Sequence[GpuUsage]) -> bool:
    """Print what was seen and what was not; say whether all was."""
    last = [usage for usage in samples[-1] if usage.tasks]
    shares = {name: [u.tasks[name] for u in last if name in u.tasks] for name in HOLDS}
    whole = last[0] if last else samples[-1][0]
    seen: dict[str, bool] = {"no device is lost": not any(usage.lost for usage in samples[-1])}
    for name, size in HOLDS.items():
        seen[f"{name} is on a device"] = len(shares[name]) == 1
        seen[f"{name} has the memory that it holds"] = memory_of(shares[name]) >= size
    seen |= {
        "the tasks' memory is within the device's": sum(map(memory_of, shares.values()))
        <= (whole.memory or 0),
        "heavy is busy": utilisation_of(shares["heavy"]) > 0.5,
        "light is idle": utilisation_of(shares["light"]) < 0.1,
        "the device is busy": (whole.utilisation or 0) > 0.5,
        "power, temperature and clocks are told": None
        not in (whole.power, whole.temperature, whole.sm_clock, whole.memory_clock),
        "nothing of the tasks is left after their end": not any(usage.tasks for usage in after),
    }
    for what, holds in seen.items():
        print(f"{'ok  ' if holds else 'NOT '} {what}")
    return all(seen.values())


def memory_of(shares: Sequence[GpuShare]) -> int:
    """Return bytes, 0 where nothing is known."""
    return sum(share.memory or 0 for share in shares)


def utilisation_of(shares: Sequence[GpuShare]) -> float:
    """Return the share of the time, 0 where nothing is known."""
    return sum(share.utilisation or 0.0 for share in shares)


if __name__ == "__main__":
    main()
