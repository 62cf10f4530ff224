"""A machine whose GPUs stand in a file: the fake library compiled, and a process that uses it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import pytest

SOURCE = Path(__file__).with_name("fake_nvml.c")
REQUIRE = "EMULATOR_REQUIRE_COMPILER"
NO_COMPILER = (
    "no C compiler (cc) for the fake NVIDIA library; Debian: apt-get install gcc libc6-dev"
)


def compiled(folder: Path, *, without: Sequence[str] = ()) -> Path:
    """Compile the fake into `folder` and return it; functions may be left `without`, by name."""
    compiler = shutil.which("cc")
    if sys.platform != "linux":
        pytest.skip("NVIDIA's library is for Linux")
    if compiler is None:
        if os.environ.get(REQUIRE) == "1":
            pytest.fail(f"{REQUIRE}=1, but: {NO_COMPILER}")
        pytest.skip(NO_COMPILER)
    library = folder / "libnvidia-ml.so.1"
    renamed = [f"-D{name}=without_{name}" for name in without]
    flags = ["-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1"]
    subprocess.run([compiler, *flags, *renamed, "-o", library, SOURCE], check=True)
    return folder


def environment(library: Path, state: Path) -> dict[str, str]:
    """Variables with which the loader takes the fake, also where a real driver is installed."""
    return {"LD_LIBRARY_PATH": str(library), "FAKE_NVML": str(state)}


class Machine:
    """What the sampler sees of the GPUs that `write` describes."""

    def __init__(self, library: Path, folder: Path) -> None:
        self.state = folder / "gpus.txt"
        self.log = folder / "calls.txt"
        env = {**os.environ, **environment(library, self.state), "FAKE_NVML_LOG": str(self.log)}
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "tests.metrics.sampler_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
            cwd=SOURCE.parents[2],
        )
        self.write("")

    def write(self, *lines: str) -> None:
        text = "".join(f"{line}\n" for text in lines for line in text.splitlines())
        self.state.write_bytes(text.encode(errors="surrogateescape"))

    def open(self, *lines: str, now: float = 0.0) -> Any:
        """Open the sampler, with these lines in the file if there are any."""
        if lines:
            self.write(*lines)
        return self._ask({"do": "open", "now": now})

    def sample(self, pids: Mapping[str, Collection[int]] | None = None, now: float = 1.0) -> Any:
        """Return the rows."""
        return self.look(pids, now)["gpus"]

    def look(self, pids: Mapping[str, Collection[int]] | None = None, now: float = 1.0) -> Any:
        """Return the rows, and the columns that are unavailable."""
        listed = {task: list(members) for task, members in (pids or {}).items()}
        return self._ask({"do": "sample", "pids": listed, "now": now})

    def devices(self) -> Any:
        return self._ask({"do": "devices"})

    def close(self) -> None:
        self._ask({"do": "close"})

    def calls(self) -> list[str]:
        return self.log.read_text().split()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def _ask(self, question: Mapping[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"it died with {self._process.wait()}"
        return json.loads(answer)


# --- What stands in the file, and what is sampled of it ------------------------------------------

GIB = 2**30
LOST = 15
"""NVML_ERROR_GPU_IS_LOST."""

FINE = {"why_none": "", "unavailable": {}}
"""What `Machine.open` returns where all is there."""
DRIVER = "driver 580.65.06"
COLUMNS = (
    *("utilisation", "memory", "memory_total", "power"),
    *("temperature", "sm_clock", "memory_clock", "ecc_errors"),
)


def gpu(index: int, *, compute: str = "", graphics: str = "", busy: str = "") -> str:
    return f"""\
{index}.uuid GPU-{index}
{index}.name NVIDIA H100
{index}.memory {80 * GIB} {GIB} {10 * GIB}
{index}.utilisation 93
{index}.power 212500
{index}.temperature 61
{index}.clock.1 1410
{index}.clock.2 1215
{index}.ecc 2
{index}.compute {compute}
{index}.graphics {graphics}
{index}.busy {busy}
{index}.events 8
"""


def row(index: int, **changed: Any) -> dict[str, Any]:
    """What is sampled of `gpu(index)`."""
    return {
        "index": index,
        "uuid": f"GPU-{index}",
        "name": "NVIDIA H100",
        "utilisation": 0.93,
        "memory": 10 * GIB,
        "memory_total": 80 * GIB,
        "power": 212.5,
        "temperature": 61,
        "sm_clock": 1410,
        "memory_clock": 1215,
        "ecc_errors": 2,
        "xid": None,
        "lost": False,
        "tasks": {},
        **changed,
    }


def lost(index: int, **known: Any) -> dict[str, Any]:
    return row(index, **dict.fromkeys(COLUMNS), lost=True, **known)


def share(memory: int | None, utilisation: float | None = 0.0) -> dict[str, Any]:
    return {"memory": memory, "utilisation": utilisation}


TWO = f"{DRIVER}\ndevices 2\n{gpu(0)}{gpu(1)}"
MIG = f"""\
{DRIVER}
devices 2
0.uuid GPU-0
0.name NVIDIA A100
0.memory {40 * GIB} 0 {7 * GIB}
0.power 100000
0.temperature 40
0.clock.1 1000
0.clock.2 1200
0.ecc 0
0.events 8
0.compute 10:{4 * GIB} 20:{3 * GIB}
0.mig 7
0.mig.0.uuid MIG-a
0.mig.0.name NVIDIA A100 MIG 3g.20gb
0.mig.0.memory {20 * GIB} 0 {4 * GIB}
0.mig.0.compute 10:{4 * GIB}
0.mig.0.instance 1
0.mig.5.uuid MIG-b
0.mig.5.name NVIDIA A100 MIG 2g.10gb
0.mig.5.memory {10 * GIB} 0 {3 * GIB}
0.mig.5.compute 20:{3 * GIB}
0.mig.5.instance 5
{gpu(1, compute=f"30:{GIB}")}"""
