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
            [sys.executable, "-W", "error", "-m", "tests.metrics.sampling"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
            cwd=SOURCE.parents[2],
        )
        self.write("")

    def write(self, *lines: str) -> None:
        self.state.write_text("".join(f"{line}\n" for text in lines for line in text.splitlines()))

    def open(self, now: float = 0.0) -> Any:
        return self._ask({"do": "open", "now": now})

    def sample(self, pids: Mapping[str, Collection[int]] | None = None, now: float = 1.0) -> Any:
        """Return the rows."""
        return self.look(pids, now)["gpus"]

    def look(self, pids: Mapping[str, Collection[int]] | None = None, now: float = 1.0) -> Any:
        """Return the rows, and what was never told."""
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

    def _ask(self, asked: Mapping[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"it died with {self._process.wait()}"
        return json.loads(answer)
