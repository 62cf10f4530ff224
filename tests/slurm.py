"""A real Slurm for a test: a controller and a node on the loopback; `make slurm` brings them.

They run as the user of the tests, from the folder into which their packages were unpacked, with no
authentication, and only jobs of this user. Their times are short, and a job that was requeued is
started as soon as its old credential has expired, which takes 5 seconds at the least.
"""

from __future__ import annotations

import contextlib
import getpass
import itertools
import os
import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from platformdirs import user_cache_path

from emulator.runtime.sockets import is_free

REQUIRE = "EMULATOR_REQUIRE_SLURM"
NO_SLURM = "no Slurm is here; `make slurm` brings it"
PROGRAMS = user_cache_path("emulator") / "slurm"
"""Where `make slurm` puts it, now: tests that run a pytest of their own have another home."""
WITHIN = 240.0
"""Seconds that each event may take at the most."""
GRACE, KILL_WAIT = 6, 3
"""Seconds."""
PORTS = range(29_000, 31_000)
"""Neither those of tasks nor those that the kernel gives to outgoing connections."""

CONFIGURATION = """\
ClusterName=tests
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
AuthInfo=cred_expire=5
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
SwitchType=switch/none
MpiDefault=none
MailProg=/bin/true
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
PluginDir={plugins}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SchedulerParameters=sched_interval=1,bf_interval=1
KillWait={kill_wait}
NodeName=localhost NodeAddr=127.0.0.1 CPUs=1 State=UNKNOWN
PartitionName=low Nodes=localhost Default=YES PriorityTier=1 GraceTime={grace} MaxTime=INFINITE
PartitionName=high Nodes=localhost PriorityTier=10 PreemptMode=OFF MaxTime=INFINITE
"""


@dataclass(frozen=True)
class Said:
    """A line of `tests/faults/platforms/observer.py`."""

    at: float
    """Seconds since 1970."""
    process: str
    what: str

    @classmethod
    def read(cls, line: str) -> Said:
        process, what, at = line.split()
        return cls(float(at), process, what)

    @property
    def text(self) -> str:
        return f"{self.process} {self.what}".strip()


class Slurm:
    """A cluster with one node, whose jobs write into a named pipe."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder, self.environment = folder, environment
        self.pipe = folder / "pipe"
        """What the programs of a job have to open, and write into."""
        self._said = queue.Queue[Said]()
        os.mkfifo(self.pipe)
        threading.Thread(target=self._read, daemon=True).start()

    def ask(self, *command: str) -> str:
        """Run one of Slurm's commands; return what it prints."""
        found = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=WITHIN
        )
        assert found.returncode == 0, found.stderr
        return found.stdout

    def submit(self, command: Sequence[str], *options: str) -> str:
        """Submit a batch job whose script becomes a program; return its id."""
        script = self._folder / "job.sh"
        quoted = " ".join(f"'{word}'" for word in command)
        script.write_text(f"#!/bin/sh\nexec {quoted}\n")
        given = ["--parsable", "--output", f"{self._folder}/job.log", "--open-mode", "append"]
        return self.ask("sbatch", *given, *options, str(script)).strip()

    def next(self) -> Said:
        """Wait for the next line of a job's processes, or for their end."""
        try:
            return self._said.get(timeout=WITHIN)
        except queue.Empty:
            logs = "".join(one.read_text() for one in sorted(self._folder.glob("*.log")))
            raise AssertionError(f"{self.ask('scontrol', 'show', 'job')}\n{logs}") from None

    def until(self, *texts: str) -> list[Said]:
        """Return what is said until all of some lines were, in any order.

        An empty one is said when all processes of a job have ended.
        """
        left, said = [*texts], list[Said]()
        while left:
            said.append(self.next())
            with contextlib.suppress(ValueError):
                left.remove(said[-1].text)
        return said

    def _read(self) -> None:
        while True:
            with self.pipe.open() as lines:  # waits for one who writes
                for line in lines:
                    self._said.put(Said.read(line))
            self._said.put(Said(time.time(), "", ""))


@pytest.fixture
def slurm() -> Iterator[Slurm]:
    """A controller and a node of a test's own, which are gone after it."""
    controller = PROGRAMS / "usr/sbin/slurmctld-wlm"
    if not controller.is_file():
        if os.environ.get(REQUIRE) == "1":
            pytest.fail(f"{REQUIRE}=1, but: {NO_SLURM}")
        pytest.skip(NO_SLURM)
    plugins = next((PROGRAMS / "usr/lib").glob("*/slurm-wlm"))
    path = os.pathsep.join([str(PROGRAMS / "usr/bin"), os.environ["PATH"]])
    # Inherited by the jobs: the node's own programs need it as well.
    environment = {"PATH": path, "LD_LIBRARY_PATH": f"{plugins}{os.pathsep}{plugins.parent}"}
    ports = _free_ports()
    for number in itertools.count():
        with contextlib.ExitStack() as running:
            # Not that of the test: its path may be too long for the names of sockets (108 bytes).
            folder = Path(
                running.enter_context(
                    tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True)
                )
            )
            configured = {**environment, "SLURM_CONF": f"{folder}/slurm.conf"}
            _configure(folder, plugins, next(ports), next(ports))
            conf = ["-D", "-v", "-f", configured["SLURM_CONF"]]
            words = [str(controller), *conf]
            log = folder / "slurmctld.log"
            if not running.enter_context(_served(words, configured, "Running as primary", log)):
                assert number < 10, "Slurm does not start"
                continue  # another program has taken the port
            step = str(PROGRAMS / "usr/sbin/slurmstepd-wlm")
            words = [str(PROGRAMS / "usr/sbin/slurmd-wlm"), *conf, "-d", step, "-N", "localhost"]
            log = folder / "slurmd.log"
            if not running.enter_context(_served(words, configured, "slurmd-wlm started on", log)):
                assert number < 10, "Slurm's node does not start"
                continue
            cluster = Slurm(folder, configured)
            yield cluster
            with contextlib.suppress(AssertionError):  # it may have ended
                cluster.ask("scancel", "--full", "--signal=KILL", f"--user={getpass.getuser()}")
            return


def _configure(folder: Path, plugins: Path, controller: int, node: int) -> None:
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    text = CONFIGURATION.format(
        controller=controller,
        node=node,
        user=getpass.getuser(),
        plugins=plugins,
        folder=folder,
        kill_wait=KILL_WAIT,
        grace=GRACE,
    )
    (folder / "slurm.conf").write_text(text)


def _free_ports() -> Iterator[int]:
    """Yield ports on which nobody listens now; each process of tests begins with another."""
    begin = 20 * os.getpid() % len(PORTS)
    return (port for port in itertools.cycle([*PORTS[begin:], *PORTS[:begin]]) if is_free(port))


@contextlib.contextmanager
def _served(
    command: Sequence[str], environment: Mapping[str, str], says: str, log: Path
) -> Iterator[bool]:
    """Run a daemon, and return whether it says that it serves, or ends before."""
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        serves = queue.Queue[bool]()
        lines = process.stderr

        def read() -> None:
            with log.open("w") as kept:
                for line in lines:
                    kept.write(line)
                    kept.flush()
                    if says in line:
                        serves.put(True)
            serves.put(False)

        reader = threading.Thread(target=read)
        reader.start()
        try:
            yield serves.get(timeout=WITHIN)
        finally:
            process.terminate()
            process.wait(WITHIN)
            reader.join(WITHIN)
