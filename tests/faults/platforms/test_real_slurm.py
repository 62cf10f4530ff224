"""What Slurm does to the processes of a job, and that the emulator does the same.

One program observes it: as a step of a real controller and node, and as a task of a run.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import yaml

from emulator.faults.platforms.slurm import SCONTROL, environments
from emulator.record.events import Restart, TaskExit
from emulator.record.reader import Record
from tests.conftest import Emulate
from tests.slurm import GRACE, KILL_WAIT, Said, Slurm

OBSERVER = Path(__file__).with_name("observer.py")
ASKED = {"SIGCONT", "SIGTERM"}
STEP = ("main", "child")
ROUNDED = 1.0
"""Seconds by which Slurm, which counts whole ones, may be early."""


# --- A real one -----------------------------------------------------------------------------------


def submit(slurm: Slurm, *options: str, step: Sequence[str] = ()) -> str:
    """Submit a job with a step that observes; return its id."""
    python, pipe = sys.executable, str(slurm.pipe)
    command = ["srun", "--quiet", python, str(OBSERVER), "main", pipe, *step]
    return slurm.submit([python, str(OBSERVER), "batch", pipe, *command], *options)


def begin(slurm: Slurm, *options: str) -> str:
    """Submit a job, and wait until all of its processes observe; return its id."""
    job = submit(slurm, *options)
    slurm.until("batch ready", "main ready", "child ready")
    return job


def until_killed(slurm: Slurm) -> tuple[list[Said], float]:
    """Return the signals of a job's processes, and when the last of them had ended."""
    *said, end = slurm.until("")
    return [one for one in said if one.what.startswith("SIG")], end.at


def of(process: str, said: Sequence[Said]) -> list[Said]:
    return [one for one in said if one.process == process]


def names(said: Sequence[Said]) -> set[str]:
    return {one.what for one in said}


def rounds(said: Sequence[Said]) -> tuple[list[Said], list[Said]]:
    """Return the signals of a process before the longest time without one, and after it."""
    gaps = [later.at - earlier.at for earlier, later in pairwise(said)]
    longest = gaps.index(max(gaps)) + 1
    return [*said[:longest]], [*said[longest:]]


def test_a_preempted_job_is_told_twice_and_killed_and_the_preset_tells_it(
    slurm: Slurm, emulate: Emulate, tmp_path: Path
) -> None:
    begin(slurm, "--partition=low", "--requeue")
    slurm.submit(["/bin/true"], "--partition=high")
    said, end = until_killed(slurm)
    slurm.until("main restarted-1", "")
    for process in STEP:
        notice, last = rounds(of(process, said))
        assert (names(notice), names(last)) == (ASKED, ASKED)
        assert last[0].at - notice[0].at > GRACE - ROUNDED
        assert end - last[-1].at > KILL_WAIT - ROUNDED
    # The batch script, which the emulator has none of, is told only when the others have to go.
    assert names(of("batch", said)) == ASKED
    assert of("batch", said)[0].at > min(rounds(of(process, said))[1][0].at for process in STEP)
    times = "grace: 3s, kill_wait: 2s, down: 0s, keep_away: 0s"
    fault = f"{{preempt: worker-0, like: slurm-preempt, {times}}}"
    ours, record = observed(emulate, tmp_path, fault=fault)
    for process in STEP:
        notice, last = rounds(of(process, ours))
        assert (names(notice), names(last)) == (ASKED, ASKED)
    (ended,) = (one for one in record.history if isinstance(one, TaskExit) and one.fault)
    assert ended.exit_code == 128 + signal.SIGKILL


def test_at_its_time_limit_a_job_is_asked_and_killed_and_the_preset_does_so(
    slurm: Slurm, emulate: Emulate, tmp_path: Path
) -> None:
    job = begin(slurm, "--partition=low", "--time=1", "--signal=USR1@50")
    # The controller looks every 30 s; the shortest limit is a minute.
    slurm.ask("scontrol", "update", f"job={job}", "EndTime=now+1")
    said, end = until_killed(slurm)
    for process in STEP:
        assert names(of(process, said)) == {*ASKED, "SIGUSR1"}
        assert end - of(process, said)[-1].at > KILL_WAIT - ROUNDED
    assert names(of("batch", said)) == ASKED  # `--signal=B:` would be for this one alone
    fault = "{preempt: worker-0, like: slurm-timelimit, grace: 3s, down: 0s, keep_away: 0s}"
    ours, _ = observed(emulate, tmp_path, fault=fault)
    for process in STEP:
        assert ASKED == names(of(process, ours)) <= names(of(process, said))


def test_a_job_that_requeues_itself_is_asked_killed_and_started_again_and_so_is_ours(
    slurm: Slurm, emulate: Emulate, tmp_path: Path
) -> None:
    submit(slurm, "--partition=low", "--requeue", step=["requeue"])
    said, end = until_killed(slurm)
    slurm.until("main restarted-1", "")
    ours, record = observed(emulate, tmp_path, step=["requeue"])
    for process in STEP:
        assert names(of(process, said)) == ASKED
        assert end - of(process, said)[-1].at > KILL_WAIT - ROUNDED
    # What is no fault signals the task's own command alone.
    assert [names(of(process, ours)) for process in STEP] == [{"SIGTERM"}, set()]
    (restart,) = (one for one in record.history if isinstance(one, Restart))
    assert (restart.task, restart.scope, restart.requeued) == ("worker-0", "job", True)


def test_our_scontrol_answers_as_slurms_does(slurm: Slurm, tmp_path: Path) -> None:
    (variables,) = environments("run", "job", {"worker-0": "worker-0"}).values()
    program = tmp_path / "scontrol"
    program.write_text(variables[SCONTROL])
    for command in (
        ["show", "hostnames", "a-[0-2,5],b,c[08-11]"],
        ["show", "hostname", "worker-0"],
        ["requeue"],
        ["requeue", "99"],
    ):
        real = subprocess.run(["scontrol", *command], env=slurm.environment, capture_output=True)
        own = subprocess.run(["sh", program, *command], env=variables, capture_output=True)
        assert (own.returncode, own.stdout, own.stderr) == (
            real.returncode,
            real.stdout,
            real.stderr,
        )


# --- The emulator's -------------------------------------------------------------------------------


def observed(
    emulate: Emulate, tmp_path: Path, *, fault: str = "", step: Sequence[str] = ()
) -> tuple[list[Said], Record]:
    """Run the observer as a task, with a fault once all of it is there; return its signals."""
    command = [sys.executable, OBSERVER.name, "main", "-", *step]
    faults = [{**yaml.safe_load(fault), "at": {"log": "child ready"}}] if fault else []
    scenario = {
        "name": "observed",
        **{"framework": "none", "image": "none", "slurm": True, "cluster": {"worker": 1}},
        "program": {"source": str(OBSERVER), "command": command},
        "faults": faults,
    }
    file = tmp_path / "observed.yaml"
    file.write_text(yaml.safe_dump(scenario))
    emulate.up(file, "--engine", "process").ended()
    (folder,) = emulate.out.glob("observed-*")
    record = Record(folder)
    lines = (folder / "logs" / "worker-0.log").read_text().splitlines()
    said = [Said.read(line) for line in lines if not line.startswith("{") and line]
    assert said[-1].text == "main restarted-1"
    return [one for one in said if one.what.startswith("SIG")], record
