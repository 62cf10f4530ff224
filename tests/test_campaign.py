"""Kill the emulator at random moments, many times, and look at what is left.

    pytest tests/test_campaign.py -m campaign -s

Each test is one kind of attack on one engine, repeated ROUNDS times: a signal at a random moment
from the start of the command to its end, then `clean`, `attach` or both at the same time. After
each, nothing of the run may be left on the machine, what there is of a record is readable, and
the exit code is one that docs/results.md documents. EMULATOR_CAMPAIGN_ROUNDS and
EMULATOR_CAMPAIGN_SEED repeat it with other moments; docs/reliability.md has the figures.

The moments are random on purpose, so that these tests are no part of `make test`.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from emulator.record.reader import Record
from emulator.results import judge
from tests.clusters import ForTest
from tests.conftest import left, own

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(7200)]

ROUNDS = int(os.environ.get("EMULATOR_CAMPAIGN_ROUNDS", "100"))
ROUNDS_OF_PODS = int(os.environ.get("EMULATOR_CAMPAIGN_ROUNDS", "10"))
"""On a cluster, where each takes some ten times as long."""
SEED = os.environ.get("EMULATOR_CAMPAIGN_SEED", "1")
AT_ONCE = 2
"""Rounds that are under way at the same time; more would only make the machine slow."""
DOCUMENTED = {0, 1, 2, 3, 4, 130}
PATIENCE = 120.0
"""Seconds after which a command that was killed, or that cleans up, counts as hung."""
JOB = """
env -i setsid sleep {number} & sleep {number} &
n=0
while [ $n -lt 12 ]; do
    n=$((n + 1)); echo "{{\\"emulate\\": \\"step\\", \\"step\\": $n}}"; sleep {pace}
done
"""
"""Ends after about a second. It leaves a child behind, and one in a session of its own that has
no environment; both are recognised by the number of seconds that they sleep."""

PACE = {"kubernetes": 0.5}
"""Seconds of a step: a Pod is told to end, and ended, some seconds after its fourth."""


@dataclass
class Seen:
    """What one round showed."""

    run_id: str
    moment: float
    """Seconds from the start of the command until the first signal."""
    before_our_code: bool = False
    """The signal was sent while Python itself was starting: nothing of ours could catch it."""
    codes: list[int] = field(default_factory=list)
    recorded: bool = False
    outcome: str = "no record"
    wrong: list[str] = field(default_factory=list)


class Round:
    """One run of the command, and what is done to it."""

    def __init__(
        self, engine: str, image: str, out: Path, name: str, number: int, more: str = ""
    ) -> None:
        self.engine, self.out = engine, out
        self.run_id = own(f"c-{engine[0]}-{name}-{number}")
        self.sleep = f"{100_000 + number}.{os.getpid()}{list(ATTACKS).index(name):02}"
        self.folder = out / self.run_id
        self.random = random.Random(f"{SEED} {engine} {name} {number}")
        self.seen = Seen(self.run_id, 0.0)
        self.said = ""
        self.scenario = out / f"{self.run_id}.yaml"
        job = JOB.format(number=self.sleep, pace=PACE.get(engine, 0.05)).replace("\n", "\n    ")
        self.scenario.write_text(
            f"name: campaign\nframework: none\nimage: {image}\n"
            f"program:\n  command:\n  - sh\n  - -c\n  - |\n    {job}\n"
            "cluster: {worker: 2}\nsuccess: all-workers\nrestart: on-failure\n"
            "faults:\n- {preempt: worker-1, at: {step: 4}, grace: 0s, down: 100ms}\n"
            f"{more}"
        )

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command of ours."""
        return subprocess.Popen(
            [sys.executable, "-m", "emulator", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def up(self) -> subprocess.Popen[str]:
        """Start the run."""
        return self.start(
            *("up", str(self.scenario), f"--engine={self.engine}"),
            *(f"--out={self.out}", f"--run-id={self.run_id}"),
        )

    def end_of(self, process: subprocess.Popen[str]) -> int:
        """Wait for a command's end; note how it ended, and what it should not have said."""
        try:
            _, said = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            _, said = process.communicate()
            self.seen.wrong.append(f"hung: {said[-1000:]}")
        self.seen.codes.append(process.returncode)
        self.said = said
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
        if things := left(self.engine, self.run_id):
            seen.wrong.append(f"left: {things}")
        if lost := [p.pid for p in psutil.process_iter() if self._is_ours(p)]:
            seen.wrong.append(f"left: processes {lost}")
        for name in ("work", "shared", "api.sock"):
            if os.path.lexists(self.folder / name):
                seen.wrong.append(f"left: {name}")
        if (self.folder / "plan.json").exists():
            seen.recorded = True
            try:
                seen.outcome = judge(Record.open(self.folder))[0].outcome
            except Exception as error:  # whatever it is, it is what this looks for
                seen.wrong.append(f"the record can't be read: {error!r}")
        return seen

    def _is_ours(self, process: psutil.Process) -> bool:
        with contextlib.suppress(psutil.Error):
            return self.sleep in process.cmdline()
        return False


def catches(process: subprocess.Popen[str]) -> bool:
    """Say whether a process handles SIGTERM: only our own code installs a handler for it."""
    with contextlib.suppress(OSError):
        status = Path(f"/proc/{process.pid}/status").read_text()
        mask = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt"))
        return bool(int(mask, 16) >> (signal.SIGTERM - 1) & 1)
    return True


# --- The attacks ----------------------------------------------------------------------------------


def strike(round_: Round, process: subprocess.Popen[str], whole: float, number: int) -> None:
    """Signal the command at a random moment of its life, if it has not ended before."""
    round_.seen.moment = round_.random.uniform(0.0, whole)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(round_.seen.moment)
    round_.seen.before_our_code = not catches(process)
    process.send_signal(number)


def interrupted(number: int) -> Callable[[Round, float], None]:
    """Return an attack: the signal, in every second round followed by another."""

    def attack(round_: Round, whole: float) -> None:
        process = round_.up()
        strike(round_, process, whole, number)
        if round_.random.random() < 0.5:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(round_.random.uniform(0.0, 0.5))
            process.send_signal(round_.random.choice([signal.SIGINT, signal.SIGTERM]))
        code = round_.end_of(process)
        if code not in DOCUMENTED - {1, 2, 3, 4} and not round_.seen.before_our_code:
            round_.seen.wrong.append(f"up ended with {code}")

    return attack


def killed(*after: str) -> Callable[[Round, float], None]:
    """Return an attack: SIGKILL, and then these commands, all at the same time."""

    def attack(round_: Round, whole: float) -> None:
        process = round_.up()
        strike(round_, process, whole, signal.SIGKILL)
        round_.end_of(process)
        commands = {
            "clean": ["clean", f"--engine={round_.engine}"],
            "attach": ["attach", round_.run_id],
        }
        with ThreadPoolExecutor(len(after)) as pool:
            list(pool.map(lambda name: round_.finish(*commands[name]), after))

    return attack


ATTACKS: dict[str, Callable[[Round, float], None]] = {
    "sigint": interrupted(signal.SIGINT),
    "sigterm": interrupted(signal.SIGTERM),
    "kill-clean": killed("clean"),
    "kill-attach": killed("attach"),
    "kill-both": killed("attach", "clean"),
}


@pytest.fixture(params=["process", pytest.param("docker", marks=pytest.mark.docker)])
def engine(request: pytest.FixtureRequest) -> str:
    if request.param == "docker":
        request.getfixturevalue("docker_engine")
    return str(request.param)


@pytest.fixture
def image(engine: str, request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue("tiny_image")) if engine == "docker" else "none"


@pytest.mark.kubernetes
@pytest.mark.usefixtures("cleans_up")
@pytest.mark.parametrize("name", ["sigterm", "kill-clean", "kill-attach", "kill-both"])
def test_nothing_is_left_on_a_cluster(
    name: str,
    kubernetes_cluster: ForTest,
    tiny_image: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubernetes_cluster.kubeconfig))
    more = f"kubernetes: {{namespace: {kubernetes_cluster.namespace}}}\n"
    attacked("kubernetes", tiny_image, tmp_path, name, ROUNDS_OF_PODS, more)
    with kubernetes_cluster.core() as core:  # in any namespace, as the administrator sees it
        for kind in ("pod", "service", "config_map", "persistent_volume_claim"):
            listed = getattr(core, f"list_{kind}_for_all_namespaces")(label_selector="emulator.run")
            names = [one.metadata.name for one in listed.items]
            assert [one for one in names if f"-{os.getpid()}-" in f"{one}-"] == []


@pytest.mark.usefixtures("cleans_up")
@pytest.mark.parametrize("name", ATTACKS)
def test_nothing_is_left_and_every_record_is_readable(
    name: str, engine: str, image: str, tmp_path: Path
) -> None:
    if name == "kill-attach" and engine == "process":
        pytest.skip("the process engine can't take a run over; kill-both has its refusal")
    attacked(engine, image, tmp_path, name, ROUNDS)


def attacked(engine: str, image: str, out: Path, name: str, rounds: int, more: str = "") -> None:
    """Make an attack again and again; nothing may be left, and every record is readable."""
    began = time.monotonic()
    undisturbed = Round(engine, image, out, name, 0, more)
    assert undisturbed.end_of(undisturbed.up()) == 0
    assert undisturbed.look().wrong == []
    whole = 1.1 * (time.monotonic() - began)

    def play(number: int) -> Seen:
        round_ = Round(engine, image, out, name, number, more)
        ATTACKS[name](round_, whole)
        if name == "kill-attach" and not (round_.folder / "plan.json").exists():
            round_.finish("clean", f"--engine={engine}")  # there is no run yet to be taken over
        return round_.look()

    with ThreadPoolExecutor(AT_ONCE) as pool:
        played = list(pool.map(play, range(1, rounds + 1)))
    sys.stdout.write(told(engine, name, played, whole))
    assert [f"{s.run_id} at {s.moment:.3f} s: {w}" for s in played for w in s.wrong] == []


def told(engine: str, name: str, rounds: list[Seen], whole: float) -> str:
    """Return the figures of an attack as lines of text."""
    codes = Counter(" ".join(map(str, seen.codes)) for seen in rounds)
    outcomes = Counter(seen.outcome for seen in rounds)
    early = sum(seen.before_our_code for seen in rounds)
    wrong = sum(bool(seen.wrong) for seen in rounds)
    return (
        f"\n{engine} {name}: {len(rounds)} rounds over {whole:.1f} s, {wrong} wrong, "
        f"{early} before our code ran\n  exit codes: {dict(codes)}\n  outcomes: {dict(outcomes)}\n"
    )
