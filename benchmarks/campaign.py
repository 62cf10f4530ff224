"""Kill the emulator at random moments, many times, and look at what is left.

    pytest benchmarks/campaign.py -m campaign -s

Each test is one kind of attack on one engine, repeated ROUNDS times: a signal at a random moment
from the start of the command to its end, then `clean`, `attach` or both at the same time. After
each, nothing of the run may be left on the machine, what there is of a record is readable and holds
what it says of itself, and the exit code is one that docs/results.md documents.
EMULATOR_CAMPAIGN_ROUNDS and EMULATOR_CAMPAIGN_SEED repeat it with other moments. Each test prints a
row of the table in docs/reliability.md.

The moments are random on purpose, so that these tests are no part of `make test`.
"""

from __future__ import annotations

import contextlib
import os
import pty
import random
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from emulator.engines.docker import DockerEngine
from emulator.engines.docker.container_request import SCENARIO
from emulator.record.reader import Record
from emulator.record.task_log import end_of
from emulator.results import judge
from tests.clusters import ForTest, kubeconfig_or_why, kubernetes_cluster
from tests.conftest import docker_or_why, left, own, tiny_image

FIXTURES = (docker_or_why, kubeconfig_or_why, kubernetes_cluster, tiny_image)
"""Those of the tests."""

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(7200)]

ROUNDS = int(os.environ.get("EMULATOR_CAMPAIGN_ROUNDS", "50"))
ROUNDS_OF_PODS = int(os.environ.get("EMULATOR_CAMPAIGN_ROUNDS", "10"))
"""On a cluster, where each takes some ten times as long."""
SEED = os.environ.get("EMULATOR_CAMPAIGN_SEED", "1")
AT_ONCE = 2
"""Rounds that are under way at the same time; more would only make the machine slow."""
DOCUMENTED = {0, 1, 2, 3, 4, 130}
LAST = 64 * 1024
"""Bytes at the end of what a command says that are looked at."""
PATIENCE = 120.0
"""Seconds after which a command that was signalled, or that cleans up, counts as hung."""
LEAVES = "env -i setsid sleep {number} & sleep {number} &\n"
"""A child, and one in a session of its own that has no environment; both are recognised by the
number of seconds that they sleep."""
STEPS = (
    LEAVES
    + """n=0
while [ $n -lt 12 ]; do
    n=$((n + 1)); echo "{{\\"emulate\\": \\"step\\", \\"step\\": $n}}"; sleep {pace}
done
"""
)
"""Ends after about a second."""
ENDLESS = LEAVES + "exec yes {number}\n"

PACE = {"kubernetes": 0.5}
"""Seconds of a step: a Pod is told to end, and ended, some seconds after its fourth."""


@dataclass(frozen=True)
class Job:
    """What the tasks do, and what is done to them."""

    shell: str
    rest: str
    """Of the scenario."""
    on_docker: str = ""
    """What only Docker can do, of the scenario as well."""
    patience: float = PATIENCE
    pace: float = 0.05
    """Seconds of a step."""
    codes: frozenset[int] = frozenset({0})
    """With which a run of it may end that nobody disturbs."""
    command: tuple[str, ...] = ("up",)
    """Of `emulate`."""


PREEMPTED = Job(
    STEPS,
    "cluster: {worker: 2}\nfaults:\n- {preempt: worker-1, at: {step: 4}, grace: 0s, down: 100ms}\n",
)
REPLACED_UNDER_FAULTS = Job(
    STEPS,
    "cluster: {worker: 3}\n"
    "faults:\n"
    "- {preempt: worker-1, at: {step: 4}, grace: 0s, down: 100ms}\n"
    "- {kill: worker-2, at: {step: 6}}\n"
    "- {pause: worker-1, at: {step: 2}, for: 3s}\n"
    "- {pause: worker-1, at: {step: 3}, for: 1s}\n",
    "- {throttle: worker-2, at: {step: 2}, for: 3s, cpus: 0.5}\n"
    "- {throttle: worker-2, at: {step: 3}, for: 1s, cpus: 0.3}\n"
    "- {shape: worker-2, at: {step: 3}, for: 3s, bandwidth: 1mbit}\n",
    pace=0.1,
    codes=frozenset({0, 3}),
)
"""One task is replaced while it is paused, another is restarted while it is throttled and shaped;
and the end of a shorter fault must not end the longer one. On a busy machine a fault may find that
its target has just ended, which can't be judged."""
PRINTING = Job(ENDLESS, "cluster: {worker: 1}\n", patience=45.0)
SHAPED = Job(
    STEPS,
    "cluster: {worker: 2}\n"
    "faults:\n- {shape: worker-1, at: {step: 4}, for: 200ms, bandwidth: 1mbit}\n",
)
"""The engine's kernel is probed before the run begins."""

TRACED = Job(
    STEPS.replace('echo "{{', 'echo $n > "$EMULATOR_SHARED/save"; echo "{{'),
    "cluster: {worker: 2}\nfaults:\n- {kill: worker-1, at: {write: 4, of: save}}\n",
)
"""All tasks begin held, until a tracer is attached to each; one is then held before a write."""

SWEPT = Job(
    LEAVES
    + """cd "$EMULATOR_SHARED"; n=$(cat save 2>&1) || n=0
while [ $n -lt 12 ]; do
    n=$((n + 1)); echo "{{\\"emulate\\": \\"step\\", \\"step\\": $n}}"; sleep {pace}
    [ $((n % 4)) -gt 0 ] || {{ echo $n > save.tmp; mv save.tmp save; }}
done
""",
    "cluster: {worker: 2}\n",
    codes=frozenset({0, 1, 3}),
    command=("sweep", "--max-moments=4", "--fault={kill: worker-0}"),
)
"""Two runs without a fault, then one for each call of a save; tasks have the kernel's filter."""

MID_FAULT = Job(
    STEPS.replace('echo "{{', 'echo $n > "$EMULATOR_SHARED/save" || true; echo "{{'),
    "cluster: {worker: 2}\n"
    "faults:\n"
    "- {hang: worker-1, at: {step: 3}, for: 500ms}\n"
    "- {disk: slow, by: 50ms, at: {step: 3}, for: 1s}\n"
    "- {disk: readonly, at: {step: 6}, for: 500ms}\n"
    "- {disk: error, errno: EIO, of: save, at: {step: 9}, for: 500ms}\n",
    "- {disk: full, at: {step: 5}, for: 500ms}\n"
    "- {visibility: late, by: 500ms, seen_by: worker-1, at: {step: 4}, for: 1s}\n",
    pace=0.1,
    codes=frozenset({0, 1, 3}),
)
"""Faults of the disk, and a hang: most of them are in what the tracer does."""


@dataclass
class Seen:
    """What one round showed."""

    run_id: str
    moment: float
    """Seconds from the start of the command until the first signal."""
    before_our_code: bool = False
    """The signal was sent while Python itself was starting: nothing of ours could catch it."""
    codes: list[int] = field(default_factory=list)
    took: float = 0.0
    """Seconds from the signal, or the run's time limit, until the command had ended."""
    outcome: str = "no record"
    wrong: list[str] = field(default_factory=list)


class Round:
    """One run of the command, and what is done to it."""

    def __init__(
        self, engine: str, image: str, out: Path, name: str, number: int, more: str = ""
    ) -> None:
        self.engine, self.out, self.job = engine, out, ATTACKS[name].job
        self.run_id = own(f"c-{engine[0]}-{name}-{number}")
        self.sleep = f"{100_000 + number}.{os.getpid()}{list(ATTACKS).index(name):02}"
        self.folder = out / self.run_id
        self.random = random.Random(f"{SEED} {engine} {name} {number}")
        self.seen = Seen(self.run_id, 0.0)
        self.said = ""
        self._stderr: dict[int, Path] = {}
        self.scenario = out / f"{self.run_id}.yaml"
        shell = self.job.shell.format(number=self.sleep, pace=PACE.get(engine, self.job.pace))
        shell = shell.replace("\n", "\n    ")
        self.scenario.write_text(
            f"name: {self.run_id}\nframework: none\nimage: {image}\n"
            f"program:\n  command:\n  - sh\n  - -c\n  - |\n    {shell}\n"
            f"success: all-workers\nrestart: on-failure\n{self.job.rest}"
            f"{self.job.on_docker if engine == 'docker' else ''}{more}"
        )

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a command of ours; what it says goes to a file, which takes whatever comes."""
        with tempfile.NamedTemporaryFile(dir=self.out, delete=False) as said:
            process = subprocess.Popen(
                [sys.executable, "-m", "emulator", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                start_new_session=True,
            )
        self._stderr[process.pid] = Path(said.name)
        return process

    @property
    def arguments(self) -> list[str]:
        """Those of `emulate` to start the run."""
        place = [f"--out={self.out}", f"--run-id={self.run_id}"]
        command, *more = self.job.command
        return [command, str(self.scenario), f"--engine={self.engine}", *place, *more]

    def up(self, *more: str) -> subprocess.Popen[bytes]:
        """Start the run."""
        return self.start(*self.arguments, *more)

    def end_of(self, process: subprocess.Popen[bytes]) -> int:
        """Wait for a command's end; note how it ended, and what it should not have said."""
        hung = False
        try:
            process.wait(self.job.patience)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            hung = True
        path = self._stderr.pop(process.pid)
        self.said = said = "\n".join(end_of(path, LAST))
        path.unlink()
        if hung:
            self.seen.wrong.append(f"hung: {said[-1000:]}")
        self.seen.codes.append(process.returncode)
        if "Traceback" in said and not self.seen.before_our_code:
            self.seen.wrong.append(f"a traceback: {said[-3000:]}")
        return process.returncode

    def finish(self, *arguments: str) -> None:
        """Run a command of ours to its end; its exit code has to be a documented one."""
        code = self.end_of(self.start(*arguments, f"--out={self.out}"))
        if code not in DOCUMENTED - {4}:  # nothing is wrong with the engine
            self.seen.wrong.append(f"{arguments[0]} ended with {code}: {self.said[-1000:]}")

    def look(self) -> Seen:
        """Note what is left, and whether the record can be read."""
        seen = self.seen
        folders = [self.folder, *(path.parent for path in self.folder.glob("*/plan.json"))]
        for folder in folders:  # those of a sweep have its run folders in them
            self._look_at(folder)
        if lost := [p.pid for p in psutil.process_iter() if self._is_ours(p)]:
            seen.wrong.append(f"left: processes {lost}")
        if self.engine == "docker" and (probes := probes_of(self.run_id)):
            seen.wrong.append(f"left: containers that probe the kernel {probes}")
        if not seen.wrong:
            shutil.rmtree(self.folder, ignore_errors=True)  # some have a gigabyte
        return seen

    def _look_at(self, folder: Path) -> None:
        seen = self.seen
        if things := left(self.engine, folder.name):
            seen.wrong.append(f"left: {things}")
        for name in ("work", "shared", "api.sock"):
            if os.path.lexists(folder / name):
                seen.wrong.append(f"left: {folder.name}/{name}")
        if (folder / "plan.json").exists():
            try:
                analysis, verdicts, _ = judge(Record.open(folder))
                seen.outcome = analysis.outcome
                failed = [one for one in verdicts if one.status == "failed"]
                seen.wrong += [str(one) for one in failed if one.expectation != "outcome"]
            except Exception as error:  # whatever it is, it is what this looks for
                seen.wrong.append(f"the record can't be read: {error!r}")

    def _is_ours(self, process: psutil.Process) -> bool:
        with contextlib.suppress(psutil.Error):
            return self.sleep in process.cmdline()
        return False


def probes_of(scenario: str) -> list[str]:
    """Return the containers that were made to try the kernel for a scenario."""
    with contextlib.closing(DockerEngine()) as engine:
        found = engine.api.containers(all=True, filters={"label": f"{SCENARIO}={scenario}"})
        return [str(one["Names"]) for one in found]


def catches(pid: int) -> bool:
    """Say whether a process handles SIGHUP: only our own code installs a handler for it."""
    with contextlib.suppress(OSError):
        status = Path(f"/proc/{pid}/status").read_text()
        mask = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt"))
        return bool(int(mask, 16) >> (signal.SIGHUP - 1) & 1)
    return True


# --- The attacks ----------------------------------------------------------------------------------


def strike(round_: Round, process: subprocess.Popen[bytes], whole: float, number: int) -> None:
    """Signal the command at a random moment of its life, if it has not ended before.

    Where tasks print without end, it is a moment after they have begun to.
    """
    if round_.job is PRINTING:
        wait_until_running(round_, process)
    round_.seen.moment = round_.random.uniform(0.0, whole)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(round_.seen.moment)
    round_.seen.before_our_code = not catches(process.pid)
    process.send_signal(number)


def interrupted(number: int) -> Callable[[Round, float], None]:
    """Return an attack: the signal, in every second round followed by another."""

    def attack(round_: Round, whole: float) -> None:
        process = round_.up()
        strike(round_, process, whole, number)
        began = time.monotonic()
        if round_.random.random() < 0.5:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(round_.random.uniform(0.0, 0.5))
            process.send_signal(round_.random.choice([signal.SIGINT, signal.SIGTERM]))
        code = round_.end_of(process)
        round_.seen.took = time.monotonic() - began
        if code not in round_.job.codes | {130} and not round_.seen.before_our_code:
            round_.seen.wrong.append(f"up ended with {code}")

    return attack


def killed(*after: str) -> Callable[[Round, float], None]:
    """Return an attack: SIGKILL, and then these commands, all at the same time."""

    def attack(round_: Round, whole: float) -> None:
        process = round_.up()
        strike(round_, process, whole, signal.SIGKILL)
        round_.end_of(process)
        then(round_, *after)

    return attack


def then(round_: Round, *after: str) -> None:
    """Have these commands remove or continue what was killed, all at the same time."""
    round_.seen.codes.clear()
    commands = {
        "clean": ["clean", f"--engine={round_.engine}"],
        "attach": ["attach", round_.run_id],
    }
    began = time.monotonic()
    with ThreadPoolExecutor(len(after)) as pool:
        list(pool.map(lambda name: round_.finish(*commands[name]), after))
    round_.seen.took = time.monotonic() - began


def killed_while_probing(round_: Round, whole: float) -> None:
    """SIGKILL while the engine's kernel is probed, and then `clean`."""
    process = round_.up()
    deadline = time.monotonic() + PATIENCE
    while not probes_of(round_.run_id):
        if process.poll() is not None or time.monotonic() > deadline:
            round_.seen.wrong.append("there was no probe")
            break
    round_.seen.moment = round_.random.uniform(0.0, 0.3)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(round_.seen.moment)
    process.kill()
    round_.end_of(process)
    then(round_, "clean")


def killed_while_attaching(*after: str) -> Callable[[Round, float], None]:
    """Return an attack: SIGKILL while tracers are attached, and then these commands.

    That is between the start of the first task and half a second after that of the job: the tasks
    are behind their gates, or held, or one is before its write.
    """

    def attack(round_: Round, whole: float) -> None:
        process = round_.up()
        history = round_.folder / "history.jsonl"
        while process.poll() is None:
            with contextlib.suppress(OSError):
                if '"start"' in history.read_text():
                    break
            time.sleep(0.001)
        round_.seen.moment = round_.random.uniform(0.0, whole)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(round_.seen.moment)
        process.kill()
        round_.end_of(process)
        then(round_, *after)

    return attack


def out_of_time(round_: Round, whole: float) -> None:
    """No signal: the scenario has a time limit, a random one."""
    limit = round_.seen.moment = round_.random.uniform(0.5, 2.5)
    process = round_.up(f"--set=timeout={limit * 1000:.0f}ms")
    wait_until_running(round_, process)
    began = time.monotonic()
    if (code := round_.end_of(process)) != 1:
        round_.seen.wrong.append(f"up ended with {code}")
    round_.seen.took = max(0.0, time.monotonic() - began - limit)


def wait_until_running(round_: Round, process: subprocess.Popen[bytes]) -> None:
    """Return once the tasks of a round run, or the command has ended."""
    while process.poll() is None:
        with contextlib.suppress(OSError):
            if "all-running" in (round_.folder / "history.jsonl").read_text():
                return
        time.sleep(0.01)


def hung_up(round_: Round, whole: float) -> None:
    """Close the terminal; in every second round the command is that of a shell in it."""
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "emulator", *round_.arguments]
    shell = round_.random.random() < 0.5
    if shell:
        command = ["sh", "-c", f"{shlex.join(command)}; exit $?"]
    in_terminal = ["setsid", "--ctty", *command]
    process = subprocess.Popen(in_terminal, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    round_.seen.moment = round_.random.uniform(0.0, whole)
    until, said = time.monotonic() + round_.seen.moment, b""
    while (left := until - time.monotonic()) > 0 and process.poll() is None:
        if select.select([master], [], [], min(left, 0.1))[0]:
            with contextlib.suppress(OSError):  # it has ended
                said += os.read(master, 65536)
    inner = emulate_in(process.pid) if shell else None
    ours = process.pid if inner is None else inner.pid
    round_.seen.before_our_code = process.poll() is None and not catches(ours)
    began = time.monotonic()
    os.close(master)
    try:
        code = process.wait(round_.job.patience)
        if inner is not None:
            inner.wait(round_.job.patience)
    except (subprocess.TimeoutExpired, psutil.TimeoutExpired):
        os.kill(ours, signal.SIGKILL)
        code = process.wait()
        round_.seen.wrong.append("hung")
    round_.seen.took = time.monotonic() - began
    if not shell:  # which is killed itself
        round_.seen.codes.append(code)
        if code not in round_.job.codes | {130} and not round_.seen.before_our_code:
            round_.seen.wrong.append(f"up ended with {code}")
    if b"Traceback" in said:
        round_.seen.wrong.append(f"a traceback: {said[-3000:].decode(errors='replace')}")


def emulate_in(shell: int) -> psutil.Process | None:
    """Return the command that a shell runs; None before there is one, and after its end."""
    with contextlib.suppress(psutil.Error, IndexError):
        return psutil.Process(shell).children()[0]
    return None


@dataclass(frozen=True)
class Attack:
    """What is done in each round of a test."""

    words: str
    """As the table calls it."""
    play: Callable[[Round, float], None]
    job: Job = PREEMPTED
    lasts: float | None = None
    """Seconds in which a signal comes; None: as long as an undisturbed run takes."""
    only: str = ""
    """The one engine that can do this."""


ATTACKS: dict[str, Attack] = {
    "sigint": Attack("SIGINT", interrupted(signal.SIGINT)),
    "sigterm": Attack("SIGTERM", interrupted(signal.SIGTERM)),
    "hangup": Attack("a closed terminal", hung_up),
    "kill-clean": Attack("SIGKILL, then `clean`", killed("clean")),
    "kill-attach": Attack("SIGKILL, then `attach`", killed("attach")),
    "kill-both": Attack("SIGKILL, then `attach` and `clean` at once", killed("attach", "clean")),
    "lasting-sigint": Attack(
        "SIGINT under lasting faults", interrupted(signal.SIGINT), REPLACED_UNDER_FAULTS
    ),
    "lasting-sigterm": Attack(
        "SIGTERM under lasting faults", interrupted(signal.SIGTERM), REPLACED_UNDER_FAULTS
    ),
    "lasting-kill-clean": Attack(
        "SIGKILL under lasting faults, then `clean`", killed("clean"), REPLACED_UNDER_FAULTS
    ),
    "lasting-kill-attach": Attack(
        "SIGKILL under lasting faults, then `attach`", killed("attach"), REPLACED_UNDER_FAULTS
    ),
    "endless-sigint": Attack(
        "SIGINT, a task prints without end", interrupted(signal.SIGINT), PRINTING, lasts=2.0
    ),
    "endless-sigterm": Attack(
        "SIGTERM, a task prints without end", interrupted(signal.SIGTERM), PRINTING, lasts=2.0
    ),
    "endless-timeout": Attack(
        "a time limit, a task prints without end", out_of_time, PRINTING, lasts=2.0
    ),
    "probe-kill-clean": Attack(
        "SIGKILL while the kernel is probed, then `clean`",
        killed_while_probing,
        SHAPED,
        lasts=0.3,
        only="docker",
    ),
    "traced-kill-clean": Attack(
        "SIGKILL while tracers attach, then `clean`",
        killed_while_attaching("clean"),
        TRACED,
        lasts=1.0,
    ),
    "traced-kill-attach": Attack(
        "SIGKILL while tracers attach, then `attach`",
        killed_while_attaching("attach"),
        TRACED,
        lasts=1.0,
    ),
    "sweep-kill-clean": Attack("SIGKILL of a sweep, then `clean`", killed("clean"), SWEPT),
    "fault-kill-clean": Attack(
        "SIGKILL under faults of the disk and a hang, then `clean`", killed("clean"), MID_FAULT
    ),
    "fault-kill-attach": Attack(
        "SIGKILL under faults of the disk and a hang, then `attach`", killed("attach"), MID_FAULT
    ),
}


@pytest.mark.kubernetes
@pytest.mark.parametrize("name", ["sigterm", "kill-clean", "kill-attach", "kill-both"])
def test_nothing_is_left_on_a_cluster(
    name: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Attack runs on Kubernetes."""
    cluster: ForTest = request.getfixturevalue("kubernetes_cluster")
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    more = f"kubernetes: {{namespace: {cluster.namespace}}}\n"
    image = str(request.getfixturevalue("tiny_image"))
    attacked("kubernetes", image, tmp_path, name, ROUNDS_OF_PODS, more)
    with cluster.core() as core:  # in any namespace, as the administrator sees it
        for kind in ("pod", "service", "config_map", "persistent_volume_claim"):
            listed = getattr(core, f"list_{kind}_for_all_namespaces")(label_selector="emulator.run")
            names = [one.metadata.name for one in listed.items]
            assert [one for one in names if f"-{os.getpid()}-" in f"{one}-"] == []


@pytest.mark.parametrize("engine", ["process", pytest.param("docker", marks=pytest.mark.docker)])
@pytest.mark.parametrize("name", ATTACKS)
def test_nothing_is_left_and_every_record_is_readable(
    name: str, engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Attack runs of processes, and of containers."""
    if name.endswith("kill-attach") and engine == "process":
        pytest.skip("the process engine can't take a run over; kill-both has its refusal")
    if ATTACKS[name].only not in ("", engine):
        pytest.skip(f"only the {ATTACKS[name].only} engine does this")
    image = str(request.getfixturevalue("tiny_image")) if engine == "docker" else "none"
    attacked(engine, image, tmp_path, name, ROUNDS)


def attacked(engine: str, image: str, out: Path, name: str, rounds: int, more: str = "") -> None:
    """Make an attack again and again; nothing may be left, and every record is readable."""
    attack = ATTACKS[name]
    whole = undisturbed(Round(engine, image, out, name, 0, more), attack.lasts)

    def play(number: int) -> Seen:
        round_ = Round(engine, image, out, name, number, more)
        attack.play(round_, whole)
        if name.endswith("kill-attach") and not (round_.folder / "plan.json").exists():
            round_.finish("clean", f"--engine={engine}")  # there is no run yet to be taken over
        return round_.look()

    # A `clean` of another round would remove what is about to be taken over.
    with ThreadPoolExecutor(1 if name.endswith("kill-attach") else AT_ONCE) as pool:
        played = list(pool.map(play, range(1, rounds + 1)))
    sys.stdout.write(told(engine, attack.words, played, whole))
    assert [f"{s.run_id} at {s.moment:.3f} s: {w}" for s in played for w in s.wrong] == []


def undisturbed(round_: Round, lasts: float | None) -> float:
    """Return in how many seconds a signal may come: a tenth more than the run takes."""
    if lasts is not None:
        return lasts
    began = time.monotonic()
    assert round_.end_of(round_.up()) in round_.job.codes, round_.said
    whole = 1.1 * (time.monotonic() - began)
    assert round_.look().wrong == []
    return whole


HEAD = (
    "| engine | attack | rounds | wrong | while Python started | ended within "
    "| exit codes of `up`, or of the commands after it |\n|---|---|---|---|---|---|---|\n"
)


def told(engine: str, attack: str, rounds: list[Seen], whole: float) -> str:
    """Return the figures of an attack: a row of the table, and more of them."""
    codes = Counter(" and ".join(map(str, seen.codes)) or "not seen" for seen in rounds)
    outcomes = Counter(seen.outcome for seen in rounds)
    early = sum(seen.before_our_code for seen in rounds)
    wrong = sum(bool(seen.wrong) for seen in rounds)
    counted = ", ".join(f"{code}: {count}" for code, count in codes.most_common())
    longest = max(seen.took for seen in rounds)
    return (
        f"\n{HEAD}| {engine} | {attack} | {len(rounds)} | {wrong} | {early} | {longest:.1f} s "
        f"| {counted} |\n\nmoments within {whole:.1f} s; outcomes: {dict(outcomes)}\n"
    )
