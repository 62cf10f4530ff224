"""What a line of output costs the emulator, and how many it can take.

Programs that do nothing but print, in Docker: CPU time is that of the process `emulate up`, so
neither the program nor the engine counts. Where a reference helps, it is the same container under
`docker run`, whose output goes to /dev/null.

    python benchmarks/lines.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures import Figure
from emulator.engines.docker import DockerEngine

ROOT = Path(__file__).parents[1]
STEP = '{\\"emulate\\": \\"step\\", \\"step\\": $i}'
PACED = """
syswrite(STDOUT, "FROM HERE\\n");
for my $i (1 .. %d) {
  syswrite(STDOUT, "%s\\n");
  select(undef, undef, undef, %f) if $i %% %d == 0;
}
syswrite(STDOUT, "TO HERE\\n");
"""
FAST = 'for my $i (1 .. %d) { print "line $i of a program that prints as fast as it can\\n" }'
LONG = 'my $piece = "x" x 1048576; for (1 .. %d) { print $piece }'


@dataclass(frozen=True)
class Ran:
    """What a run of `emulate up` took."""

    seconds: float
    memory: int
    """The largest resident size of its process, in bytes."""


def emulated(program: str) -> Ran:
    """Run a Perl program in a container under `emulate up`."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        process = _start(program, 1, "", folder, subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"`emulate up` ended with exit code {process.returncode}")
        return Ran(time.perf_counter() - began, used.ru_maxrss * 1024)


def cpu_between(program: str, tasks: int, more: str = "") -> float:
    """Return the share of a core that the emulator uses while its first task prints.

    That is from the line FROM HERE to the line TO HERE of worker-0.
    """
    with tempfile.TemporaryDirectory() as folder:
        process = _start(program, tasks, more, folder, subprocess.PIPE)
        assert process.stdout is not None
        marks = []
        for line in process.stdout:
            if line.startswith(b"worker-0 ") and line.rstrip().endswith(b" HERE"):
                marks.append((time.perf_counter(), _on_cpu(process.pid)))
                if len(marks) == 2:
                    break
        process.stdout.read()
        process.wait()
    (begin, before), (end, after) = marks
    return (after - before) / (end - begin)


def _on_cpu(pid: int) -> float:
    """Return the CPU seconds of a process's threads so far, which the kernel counts in ns."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(one.read_text().split()[0]) for one in threads) / 1e9


def _start(
    program: str, tasks: int, more: str, folder: str, output: int
) -> subprocess.Popen[bytes]:
    scenario = Path(folder, "scenario.yaml")
    words = json.dumps(["perl", "-e", program])
    scenario.write_text(
        f"name: lines\nframework: none\nimage: {base_image()}\n"
        f"program: {{command: {words}}}\ncluster: {{worker: {tasks}}}\n{more}"
    )
    command = [sys.executable, "-m", "emulator", "up", str(scenario), "--engine", "docker"]
    return subprocess.Popen(
        [*command, "--out", folder],
        stdout=output,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def bare(program: str) -> float:
    """Return the seconds that the same program takes under `docker run`."""
    command = ["docker", "run", "--rm", "--network", "none", base_image(), "perl", "-e", program]
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def followed(program: str) -> float:
    """Return the seconds until `docker logs --follow` has all that the same program prints."""
    name = f"lines-{os.getpid()}"
    command = ["docker", "run", "--detach", "--name", name, "--network", "none", base_image()]
    began = time.perf_counter()
    try:
        subprocess.run([*command, "perl", "-e", program], check=True, stdout=subprocess.DEVNULL)
        follow = ["docker", "logs", "--follow", "--timestamps", name]
        subprocess.run(follow, check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - began
    finally:
        subprocess.run(["docker", "rm", "--force", name], check=True, stdout=subprocess.DEVNULL)


def base_image() -> str:
    """Return a small image with Perl."""
    engine = DockerEngine()
    try:
        return engine.images.base(lambda line: None)
    finally:
        engine.close()


def paced(seconds: int, rate: int, *, step: bool = False, together: int = 1) -> str:
    """Return a program that prints about `rate` lines a second, so many `together`."""
    text = STEP if step else "line $i of some length, as lines of logs have"
    return PACED % (seconds * rate, text, together / rate, together)


def measure(seconds: int = 15) -> list[Figure]:
    """Measure everything."""
    unsampled = "metrics: {interval: 1d}\n"
    alone = cpu_between(paced(seconds, 20), 1, unsampled)
    many = cpu_between(paced(seconds, 100), 25, unsampled)
    sampled = cpu_between(paced(seconds, 10, step=True), 10)
    million = FAST % 1_000_000
    fast, fast_bare, fast_followed = emulated(million), bare(million), followed(million)
    flood = paced(seconds, 20_000, together=20)
    kept, kept_bare = emulated(flood), bare(flood)
    short, long = emulated(LONG % 100), emulated(LONG % 200)
    return [
        Figure(
            "lines.alone", "CPU of a line that comes alone (20 a second)", 50 * alone, "ms", 0.05
        ),
        Figure(
            "lines.of_25",
            "25 tasks, 100 lines a second each: CPU",
            100 * many,
            "% of a core",
            15,
        ),
        Figure(
            "lines.of_10_sampled",
            "10 tasks, 10 steps a second each, sampled every second: CPU",
            100 * sampled,
            "% of a core",
            1,
        ),
        Figure(
            "lines.kept_up",
            "20,000 lines a second: time of the run",
            kept.seconds / kept_bare,
            "of `docker run`",
            1.15,
        ),
        Figure("lines.million", "1 M lines: time of the run", fast.seconds, "s"),
        Figure(
            "lines.million_ratio",
            "the same",
            fast.seconds / fast_bare,
            "of `docker run`",
        ),
        Figure(
            "lines.million_followed",
            "the same",
            fast.seconds / fast_followed,
            "of `docker logs --follow`",
            2.0,
        ),
        Figure(
            "lines.long",
            "a line of 200 MB: time over that of 100 MB",
            long.seconds / short.seconds,
            "times",
            2.2,
        ),
        Figure(
            "lines.long_memory",
            "a line of 200 MB: memory of the emulator",
            long.memory / 2**20,
            "MiB",
            200,
        ),
    ]


def main() -> None:
    """Measure and print."""
    for one in measure():
        print(f"{one.title:62} {one.value:8.3g} {one.unit:16} goal {one.goal}")


if __name__ == "__main__":
    main()
