"""CPU time until `cluster-25.yaml` makes its first step, over that of 25 bare imports.

A TensorFlow task costs seconds of CPU before it does anything. The reference is 25 containers of
the same image, started at once, that `import tensorflow` and end; the cluster of chief, 16 workers
and 8 parameter servers does that too, and then connects and traces. Both are counted by the
kernel, in the containers' own cgroups, and alternate.

    python benchmarks/first_step.py --rounds 3
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

from emulator.engines.docker import DockerEngine
from emulator.planning.requested import RunOptions
from emulator.record.events import Entry, TaskRunning
from emulator.results import RunCallbacks
from emulator.runtime.bundled import scenario_path
from emulator.scenario.loader import load
from emulator.scenario.schema import Role, Scenario
from emulator.session.launch import read
from emulator.session.run import up

CGROUPS = Path("/sys/fs/cgroup")


def main() -> None:
    """Alternate the two, and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    scenario = load(scenario_path(Path("cluster-25")))
    imports: list[float] = []
    firsts: list[float] = []
    for number in range(-1, rounds):
        bare = cpu_of_imports(scenario)
        first = cpu_until_first_step(scenario)
        print(f"{number:3} 25 imports {bare:.1f} s, first step {first:.1f} s, {first / bare:.2f}")
        if number >= 0:  # round -1 fills the page cache
            imports.append(bare)
            firsts.append(first)
    ratio = statistics.median(f / i for f, i in zip(firsts, imports, strict=True))
    print(
        f"medians: 25 imports {statistics.median(imports):.1f} s, "
        f"first step {statistics.median(firsts):.1f} s, ratio {ratio:.2f}"
    )


def cpu_of_imports(scenario: Scenario) -> float:
    """Return CPU seconds of as many bare imports as the cluster has tasks.

    Each container stays until all have imported, so that its cgroup can still be read.
    """
    tasks = sum(role.replicas for role in scenario.cluster.values())
    code = "import os; os.environ['TF_CPP_MIN_LOG_LEVEL'] = '2'; import tensorflow"
    script = f'python -c "{code}"; echo imported; sleep 1000'
    changed = {
        "name": "imports",
        "framework": "none",
        "cluster": {"worker": Role(replicas=tasks)},
        "program": scenario.program.model_copy(update={"command": ["sh", "-c", script]}),
    }
    return _cpu_when(scenario.model_copy(update=changed), "imported", tasks)


def cpu_until_first_step(scenario: Scenario) -> float:
    """Return CPU seconds of all tasks up to the job's first step event."""
    return _cpu_when(scenario, '"step"', 1)


def _cpu_when(scenario: Scenario, words: str, times: int) -> float:
    """Run a scenario until so many lines had `words`; return its tasks' CPU seconds by then."""
    engine = DockerEngine()
    ids: list[str] = []
    seen, taken = 0, [0.0]

    def entry(entry: Entry) -> None:
        if isinstance(entry, TaskRunning):
            ids.append(entry.id)

    def lines(lines: Sequence[tuple[str, str]]) -> None:
        nonlocal seen
        seen += sum(words in text for _, text in lines)
        if seen >= times and not taken[0]:
            taken[0] = sum(_cpu_seconds(container) for container in ids)
            os.kill(os.getpid(), signal.SIGTERM)  # as Ctrl-C would: the run ends and is removed

    with tempfile.TemporaryDirectory() as out, contextlib.closing(engine):
        callbacks = RunCallbacks(entry=entry, lines=lines)
        up(read(scenario, [Path()]), engine, RunOptions(out=Path(out)), callbacks=callbacks)
    return taken[0]


def _cpu_seconds(container: str) -> float:
    """Read the kernel's account of a container (cgroup v1 or v2)."""
    for usage in CGROUPS.glob(f"cpuacct/docker/{container}*/cpuacct.usage"):
        return int(usage.read_text()) / 1e9
    for stat in CGROUPS.glob(f"**/docker-{container}*.scope/cpu.stat"):
        return int(stat.read_text().split()[1]) / 1e6
    raise SystemExit(f"no cgroup of {container} is readable here; this needs a local engine")


if __name__ == "__main__":
    main()
