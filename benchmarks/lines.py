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
for my $i (1 .. %d) {
  syswrite(STDOUT, "%s\\n");
  select(undef, undef, undef, %f) if $i %% %d == 0;
}
"""
FAST = 'for my $i (1 .. %d) { print "line $i of a program that prints as fast as it can\\n" }'
LONG = 'my $piece = "x" x 1048576; for (1 .. %d) { print $piece }'


@dataclass(frozen=True)
class Ran:
    """What a run of `emulate up` took."""

    seconds: float
    cpu: float
    """Seconds of the emulator's process."""
    memory: int
    """Its largest resident size, in bytes."""


def emulated(program: str, tasks: int = 1, more: str = "") -> Ran:
    """Run a Perl program in `tasks` containers under `emulate up`."""
    with tempfile.TemporaryDirectory() as folder:
        scenario = Path(folder, "scenario.yaml")
        words = json.dumps(["perl", "-e", program])
        scenario.write_text(
            f"name: lines\nframework: none\nimage: {base_image()}\n"
            f"program: {{command: {words}}}\ncluster: {{worker: {tasks}}}\n{more}"
        )
        command = [sys.executable, "-m", "emulator", "up", str(scenario), "--engine", "docker"]
        began = time.perf_counter()
        with open(os.devnull, "wb") as nowhere:
            process = subprocess.Popen(
                [*command, "--out", folder],
                stdout=nowhere,
                stderr=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
            assert process.stderr is not None
            errors = process.stderr.read()
            _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(errors.decode(errors="replace"))
        seconds = time.perf_counter() - began
        return Ran(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)


def bare(program: str) -> float:
    """Return the seconds that the same program takes under `docker run`."""
    command = ["docker", "run", "--rm", "--network", "none", base_image(), "perl", "-e", program]
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


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
    """Measure everything; a run that prints nothing is subtracted where lines are meant."""
    idle = emulated(f"sleep({seconds})", more="metrics: {interval: 1d}\n")
    alone = emulated(paced(seconds, 50), more="metrics: {interval: 1d}\n")
    idle_25 = emulated(f"sleep({seconds})", 25, "metrics: {interval: 1d}\n")
    many = emulated(paced(seconds, 100), 25, "metrics: {interval: 1d}\n")
    sampled = emulated(paced(seconds, 10, step=True), 10)
    idle_10 = emulated("sleep(1)", 10, "metrics: {interval: 1d}\n")
    fast, fast_bare = emulated(FAST % 1_000_000), bare(FAST % 1_000_000)
    kept, kept_bare = (
        emulated(paced(seconds, 20_000, together=20)),
        bare(paced(seconds, 20_000, together=20)),
    )
    short, long = emulated(LONG % 100), emulated(LONG % 200)
    return [
        Figure(
            "lines.alone",
            "CPU of a line that comes alone (50 a second)",
            1000 * (alone.cpu - idle.cpu) / (seconds * 50),
            "ms",
            0.05,
        ),
        Figure(
            "lines.of_25",
            "25 tasks, 100 lines a second each: CPU",
            100 * (many.cpu - idle_25.cpu) / (many.seconds - idle_25.seconds + seconds),
            "% of a core",
            15,
        ),
        Figure(
            "lines.of_10_sampled",
            "10 tasks, 10 steps a second each, sampled every second: CPU",
            100 * (sampled.cpu - idle_10.cpu) / (sampled.seconds - idle_10.seconds + 1),
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
