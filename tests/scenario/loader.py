"""A process that reads scenarios, of which it is known how long and how much memory each takes.

Run as a program it answers requests on stdin: each is a line of JSON with the bytes of a scenario
and its overrides, each answer one with the outcome. Nothing is started: a scenario is read,
planned, and the plan is written and read again as its record is.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parent.parent.parent
SECONDS = 10.0
"""Of CPU time for one scenario. A bomb takes minutes; a sound one up to a second, on a busy machine
(whose cores are shared) up to three.
"""
MEGABYTES = 500
"""Of memory, all together: with Python, pydantic and whatever else is loaded before. A network of
500 tasks, each with a delay to all others, takes 350.
"""
GIVE_UP = 60.0
"""Seconds until a process that does not answer is killed: it is stuck outside of Python."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a scenario."""

    kind: str
    """`plan`, `refused`, or `defect` with a traceback."""
    output: str
    seconds: float
    """Of CPU time."""
    megabytes: float
    """The most that the process has ever had."""

    @property
    def sound(self) -> bool:
        """Whether a user would have got an answer in time."""
        return (
            self.kind in ("plan", "refused")
            and bool(self.output)
            and all(line.isprintable() for line in self.output.splitlines())
            and self.seconds <= SECONDS
            and self.megabytes <= MEGABYTES
        )


class Loader:
    """The process, seen from the test; one that dies is a defect, and another takes its place."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        """Where scenarios lie: beside `traces`, and `../images/programs`."""
        self._process: subprocess.Popen[str] | None = None

    def load(self, content: bytes | str, *sets: str) -> Outcome:
        """Have a scenario read and planned."""
        if isinstance(content, str):
            content = content.encode("utf-8", "surrogatepass")
        process = self._running()
        request = {"content": base64.b64encode(content).decode(), "sets": sets}
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        answers, _, _ = select.select([process.stdout], [], [], GIVE_UP)
        line = process.stdout.readline() if answers else ""
        if not line:
            process.kill()
            code = process.wait()
            return Outcome("defect", f"the process ended with {code}", GIVE_UP, 0)
        return Outcome(**json.loads(line))

    def close(self) -> None:
        """End it."""
        if self._process is not None:
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    stream.close()
            self._process.kill()
            self._process.wait()

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__)), str(self.folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
        return self._process


@contextlib.contextmanager
def loader(tmp_path: Path) -> Iterator[Loader]:
    """Yield a loader whose folder has what the bundled scenarios name."""
    (tmp_path / "images").mkdir()
    shutil.copytree(ROOT / "images" / "programs", tmp_path / "images" / "programs")
    shutil.copytree(ROOT / "scenarios", tmp_path / "scenarios")
    made = Loader(tmp_path / "scenarios" / "faults")
    try:
        yield made
    finally:
        made.close()


# --- The process --------------------------------------------------------------------------------


class TooSlow(BaseException):
    """The time is over; nothing that handles errors may take it for one."""


def over(number: int, frame: FrameType | None) -> None:
    raise TooSlow("".join(traceback.format_stack(frame)[-6:]))


def plan(path: Path, sets: Sequence[str]) -> str:
    """Read, plan, write and read again; return how large the plan is."""
    from emulator.engines.docker.container_request import container_request
    from emulator.engines.memory import MemoryEngine
    from emulator.planning.plan import Plan
    from emulator.planning.planner import make_plan
    from emulator.runtime.clock import ManualClock
    from emulator.scenario.loader import load

    engine = MemoryEngine(ManualClock(), gpus=("0", "1"))
    made = make_plan(load(path, sets), "run-1", engine.plan_context("run-1", path.parent))
    written = made.model_dump_json()
    assert Plan.model_validate_json(written, context={"stored": True}) == made
    for task in made.everything:
        json.dumps(container_request(made, task, {}), allow_nan=False).encode()
    return f"{len(made.tasks)} tasks, {len(written)} bytes"


def answer(folder: Path, request: dict[str, Any]) -> Outcome:
    from emulator.errors import EmulatorError

    path = folder / "scenario.yaml"
    path.write_bytes(base64.b64decode(request["content"]))
    begin = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, 1.5 * SECONDS)
    try:
        kind, output = "plan", plan(path, request["sets"])
    except EmulatorError as error:
        kind, output = "refused", str(error)
    except TooSlow as error:
        kind, output = "defect", f"too slow: {error}"
    except BaseException:
        kind, output = "defect", traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return Outcome(kind, output, time.process_time() - begin, most_memory())


def most_memory() -> float:
    """Return the most memory that this process has had, in MB.

    Not `ru_maxrss` where it can be helped: Linux counts the process in it that started this one.
    """
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6  # bytes on macOS
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1000


def main(folder: Path) -> None:
    # Beyond it Python says MemoryError instead of taking the machine with it.
    resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31))
    signal.signal(signal.SIGPROF, over)
    # What is loaded once counts for none.
    plan(ROOT / "scenarios" / "strategies" / "quickstart.yaml", ())
    for line in sys.stdin:
        found = answer(folder, json.loads(line))
        print(json.dumps(found.__dict__), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]))
