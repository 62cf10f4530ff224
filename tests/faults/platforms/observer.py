"""Prints each signal that it gets: run as a step of Slurm, and as a task of the emulator.

`main` has a child, as a training has its data loaders; with `requeue` that requeues the job.
`batch` is a batch script, and starts a step with its arguments. Each prints its name, what it got
and when (seconds since 1970) as a line. One that was started again says so, and ends. A file of its
own instead of the output is opened in each process, because srun, which passes the output of a step
on, ends before the step.
"""

import os
import signal
import subprocess
import sys
import time

NAMED = {signal.SIGTERM, signal.SIGCONT, signal.SIGUSR1}


def main() -> None:
    """Arguments: its name; the file for its lines, or `-`; `requeue`, of `batch` its step."""
    name, path, *rest = sys.argv[1:]
    if path != "-":
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), 1)
    # Blocked, and asked for one after the other: no handler may be late for another signal.
    signal.pthread_sigmask(signal.SIG_BLOCK, {*NAMED, signal.SIGCHLD})
    again = os.environ.get("SLURM_RESTART_COUNT", "0") != "0"
    if name == "main" and again:
        say(name, f"restarted-{os.environ['SLURM_RESTART_COUNT']}")
        return
    if name != "child":
        ours = rest if name == "batch" else [sys.executable, __file__, "child", path, *rest]
        subprocess.Popen(ours, stdout=None if path == "-" else 2)
    say(name, "ready")
    if name == "child" and rest:
        subprocess.run(["scontrol", *rest, os.environ["SLURM_JOB_ID"]], check=True)
    while True:
        got = signal.sigwaitinfo({*NAMED, signal.SIGCHLD}).si_signo
        if got == signal.SIGCHLD:
            if name == "batch":
                return
        else:
            say(name, signal.Signals(got).name)


def say(name: str, what: str) -> None:
    """Print a line at once, and whole: others write into the same file."""
    os.write(1, f"{name} {what} {time.time()}\n".encode())


if __name__ == "__main__":
    main()
