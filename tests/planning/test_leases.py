"""Leases among real processes: waiting, order, and recovery after kills."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from emulator.errors import RecordError, UsageError
from emulator.planning import leases
from emulator.planning.claims import Capacity, Claim, Need, Run
from emulator.planning.leases import Broker
from tests.conftest import python

pytestmark = pytest.mark.timeout(300)  # these tests detect waits without end

ALL = Capacity(cpus=4, memory=100, gpus=("a", "b"))
HERE = Path(__file__).parent


class Party:
    """A process that acquires leases on command; see `party.py`."""

    def __init__(self, script: str, *arguments: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / script), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def says(self) -> str:
        """Wait for its next line."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def tell(self, line: str) -> str:
        """Send a command, and return the answer."""
        self.let(line)
        return self.says()

    def let(self, line: str = "") -> None:
        """Send a command, or let it continue."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def reap(self) -> None:
        self.process.kill()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        self.process.wait()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "broker"


Start = Callable[..., Party]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a script of this folder: `start("party.py", ...)`."""
    started: list[Party] = []

    def one(script: str, *arguments: object) -> Party:
        started.append(Party(script, *arguments))
        return started[-1]

    yield one
    for party in started:
        party.reap()


@pytest.fixture
def party(start: Start, folder: Path) -> Start:
    """Start a process that acquires: `party("name", cpus=2, gpus=1)`; check what it `says`."""

    def one(name: str, cpus: float = 0, gpus: int = 0, *more: str, says: str = "") -> Party:
        begun = start("party.py", folder, name, cpus, gpus, *ALL.gpus, *more)
        if says:
            assert begun.says() == says
        return begun

    return one


def unexpected(claim: Claim) -> None:
    raise AssertionError(f"{claim.name} is not dead")


def claims(folder: Path) -> list[str]:
    """The files in the folder except the mutex."""
    return sorted(path.name for path in folder.iterdir() if path.name != "mutex")


def take_all(folder: Path) -> Broker:
    """Acquire everything and release it; hangs if anything is still granted."""
    broker = Broker(folder)
    with broker.acquire("all", Need(4, 100, 2), ALL, recover=unexpected) as lease:
        assert lease.gpus == ALL.gpus
    assert claims(folder) == []
    return broker


def test_they_wait_in_order_of_arrival_and_small_ones_do_not_overtake(
    party: Start, folder: Path
) -> None:
    first = party("first", 3, says="granted")
    large = party("large", 4, says="waiting first")
    small = party("small", 1, says="waiting first large")
    last = party("last", 4, says="waiting first large small")
    first.tell("release")
    assert large.says() == "granted"
    large.tell("release")
    assert small.says() == "granted"  # and not `last`, which still waits for it
    small.tell("release")
    assert last.says() == "granted"
    assert last.tell("release") == "released"
    take_all(folder)


def test_a_killed_holder_is_recovered_once_and_the_others_continue(
    party: Start, folder: Path
) -> None:
    holder = party("holder", 4, 1, says="granted a")
    assert holder.tell("run run-1 run-2") == "noted"
    waiters = [party(f"waiter-{n}", 1) for n in range(3)]
    for waiter in waiters:
        assert waiter.says().startswith("waiting holder")
    holder.kill()
    answers = [[waiter.says()] for waiter in waiters]
    for waiter, lines in zip(waiters, answers, strict=True):
        if lines[-1] != "granted":
            lines.append(waiter.says())
    recovered = [lines[0] for lines in answers if lines[0] != "granted"]
    assert recovered == [f"recovering holder {holder.process.pid} run-1 run-2"]
    assert [lines[-1] for lines in answers] == ["granted"] * 3
    for waiter in waiters:
        assert waiter.tell("release") == "released"
    take_all(folder)


def test_one_that_dies_while_it_recovers_is_found_in_turn(party: Start, folder: Path) -> None:
    holder = party("holder", 4, says="granted")
    holder.tell("run run-1")
    finder = party("finder", 4, 0, "stuck", says="waiting holder")
    holder.kill()
    assert finder.says().startswith("recovering holder")
    other = party("other", 4, says="waiting holder finder")
    finder.kill()
    assert other.says() == f"recovering holder {holder.process.pid} run-1"
    assert other.says() == "granted"
    other.tell("release")
    take_all(folder)


def test_a_holder_that_dies_while_another_is_recovered_is_found_as_well(
    party: Start, folder: Path
) -> None:
    first, second = party("first", 2), party("second", 2)
    assert [first.says(), second.says()] == ["granted", "granted"]
    recovered: list[str] = []

    def waiting(claims: object) -> None:
        first.kill()

    def recover(claim: Claim) -> None:
        recovered.append(claim.name)
        second.kill()  # it was alive when `first` was found

    with Broker(folder).acquire("me", Need(4), ALL, recover=recover, waiting=waiting):
        assert recovered == ["first", "second"]


def test_a_killed_waiter_is_forgotten(party: Start, folder: Path) -> None:
    holder = party("holder", 2, says="granted")
    large = party("large", 4, says="waiting holder")
    small = party("small", 2, says="waiting holder large")
    large.kill()
    assert small.says() == "granted"  # nothing recovered, `holder` continues
    assert holder.tell("release") == "released"
    small.tell("release")
    take_all(folder)


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGINT, "KeyboardInterrupt"), (signal.SIGALRM, "RanOut")]
)
def test_waiting_can_be_interrupted_and_leaves_nothing(
    party: Start, folder: Path, number: signal.Signals, error: str
) -> None:
    holder = party("holder", 4, says="granted")
    one = claims(folder)
    waiter = party("waiter", 2, says="waiting holder")
    behind = party("behind", 2, says="waiting holder waiter")
    waiter.process.send_signal(number)
    assert waiter.says() == f"not {error}"
    left = [name for name in claims(folder) if name not in one]
    assert {json.loads((folder / n).read_text())["name"] for n in left if "json" in n} == {"behind"}
    assert len(left) == 2
    holder.tell("release")
    assert behind.says() == "granted"
    behind.tell("release")
    take_all(folder)


def test_a_second_lease_of_a_process_is_granted_at_once(party: Start, folder: Path) -> None:
    holder = party("holder", 4, 1, says="granted a")
    waiter = party("waiter", 1, says="waiting holder")
    assert holder.tell("again 4 1") == "granted b"
    assert holder.tell("release") == "released"
    late = party("late", 1, says="waiting holder waiter")
    assert holder.tell("release") == "released"
    assert waiter.says() == "granted"
    assert late.says() == "granted"
    assert holder.tell("again 4 0") == "waiting waiter late"  # it has no lease any more


def test_what_is_abandoned_is_recovered_before_it_is_free(party: Start, folder: Path) -> None:
    holder = party("holder", 4, 2, says="granted a b")
    assert holder.tell("run run-1 run-2") == "noted"
    waiter = party("waiter", 4, 2, says="waiting holder")
    assert holder.tell("abandon run-2") == "abandoned"
    assert waiter.says() == f"recovering holder {holder.process.pid} run-2"
    assert waiter.says() == "granted a b"
    assert holder.tell("again 1 0") == "waiting waiter"  # it has no lease any more
    waiter.tell("release")
    assert holder.says() == "granted"
    # The process that abandons a run may recover it itself.
    assert holder.tell("run run-3") == "noted"
    assert holder.tell("abandon run-3") == "abandoned"
    assert holder.tell("again 4 0") == f"recovering holder {holder.process.pid} run-3"
    assert holder.says() == "granted"
    assert holder.tell("release") == "released"
    take_all(folder)


def test_a_process_with_only_a_lease_of_nothing_waits_as_others_do(party: Start) -> None:
    nothing = party("nothing", 0, says="granted")
    holder = party("holder", 4, 2, says="granted a b")
    assert nothing.tell("again 1 1") == "waiting holder"
    holder.tell("release")
    assert nothing.says() == "granted a"


def test_devices_that_a_process_can_not_wait_for_are_refused_and_those_of_a_dead_one_recovered(
    party: Start, folder: Path
) -> None:
    other, holder = party("other", 0, 1), party("holder", 1)
    assert {other.says(), holder.says()} == {"granted a", "granted"}
    answers = holder.tell("again 0 2")
    assert answers.startswith("not UsageError holder asks for 2 GPU(s), but 1 are free.")
    assert "It can't wait for those of other, because" in answers
    assert holder.tell("again 0 1") == "granted b"
    assert len(claims(folder)) == 6
    holder.tell("release")
    other.kill()
    assert holder.tell("again 0 2").startswith("recovering other")
    assert holder.says() == "granted a b"


def test_a_forked_child_keeps_nothing_alive_and_gives_nothing_back(
    party: Start, folder: Path
) -> None:
    holder = party("holder", 4, says="granted")
    child = int(holder.tell("fork").removeprefix("forked "))
    try:
        waiter = party("waiter", 1)
        assert waiter.says() == "waiting holder"
        holder.kill()
        assert waiter.says().startswith("recovering holder")
        assert waiter.says() == "granted"
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_forked_child_holds_nothing_and_waits_as_others_do(party: Start) -> None:
    holder = party("holder", 4, says="granted")
    assert holder.tell("fork and acquire") == "waiting holder"
    holder.let("release")
    assert {holder.says(), holder.says()} == {"released", "granted"}


def test_a_process_that_was_started_keeps_nothing_alive(folder: Path, party: Start) -> None:
    broker = Broker(folder)
    with broker.acquire("me", Need(4), ALL, recover=unexpected):
        child = subprocess.Popen(["sleep", "1000"], close_fds=False)
    try:
        party("other", 4, says="granted")
    finally:
        child.kill()
        child.wait()


def test_recover_dead_says_how_many_and_spares_the_living(party: Start, folder: Path) -> None:
    broker = Broker(folder)
    parties = [party(f"party-{n}", 1) for n in range(3)]
    assert [p.says() for p in parties] == ["granted"] * 3
    assert broker.recover_dead(unexpected) == 0
    for dead in parties[:2]:
        dead.tell("run of-" + str(dead.process.pid))
        dead.kill()
    found: list[Claim] = []
    assert broker.recover_dead(found.append) == 2
    runs = [
        (Run(f"of-{dead.process.pid}", "process", Path(f"runs/of-{dead.process.pid}").absolute()),)
        for dead in parties[:2]
    ]
    assert {claim.runs for claim in found} == set(runs)
    assert len(claims(folder)) == 2
    assert parties[2].tell("release") == "released"
    take_all(folder)


def test_what_waiting_or_recovering_raises_ends_it(party: Start, folder: Path) -> None:
    def fails(claims: object) -> None:
        raise UsageError("The engine does not answer.")

    broker = Broker(folder)
    holder = party("holder", 4, says="granted")
    with pytest.raises(UsageError, match="does not answer"):
        broker.acquire("me", Need(1), ALL, recover=unexpected, waiting=fails)
    assert len(claims(folder)) == 2  # that of `holder`
    holder.kill()
    with pytest.raises(UsageError, match="does not answer"):
        broker.acquire("me", Need(1), ALL, recover=fails)
    assert len(claims(folder)) == 2  # it stays for the next
    found: list[Claim] = []
    assert broker.recover_dead(found.append) == 1
    take_all(folder)


def test_half_written_claims_are_swept(folder: Path) -> None:
    folder.mkdir()
    (folder / "1.partial").write_text('{"number": 1, "na')
    (folder / "2.lock").touch()
    (folder / "3.json").write_text("")
    (folder / "4.json").write_text("[]")
    take_all(folder)


def test_claims_that_are_removed_by_hand_are_reported(folder: Path) -> None:
    lease = Broker(folder).acquire("me", Need(4), ALL, recover=unexpected)
    for name in claims(folder):
        (folder / name).unlink()
    with pytest.raises(RecordError, match=r"The claims in .* were removed"):
        lease.began_run("run", "process", folder)
    lease.release()
    take_all(folder)


def test_a_full_disk_is_one_sentence_and_a_folder_that_can_not_be_written(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(leases, "atomic_write", full)
        with pytest.raises(RecordError, match="No space left on device"):
            Broker(folder).acquire("me", Need(1), ALL, recover=unexpected)
    take_all(folder)
    (tmp_path / "file").touch()
    with pytest.raises(RecordError, match="Can't read or write the broker's leases"):
        Broker(tmp_path / "file" / "broker").acquire("me", Need(), ALL, recover=unexpected)


def test_hosts_with_a_home_in_common_do_not_take_each_other_for_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = Broker().folder
    assert Broker().folder == here
    monkeypatch.setattr(socket, "gethostname", lambda: "another")
    assert Broker().folder != here


def test_importing_it_imports_nothing_heavy() -> None:
    heavy = "('docker', 'typer', 'pydantic', 'psutil', 'yaml', 'asyncio', 'filelock')"
    code = f"import emulator.planning.claims, sys; print([n for n in {heavy} if n in sys.modules])"
    assert python(code).ended().stdout == "[]\n"


# --- Crowds -------------------------------------------------------------------------------------


def contend(members: list[Party]) -> list[int]:
    """Let many processes compete; return their exit codes."""
    for member in members:
        assert member.says() == "ready"
    for member in members:
        member.let()
    return [member.process.wait() for member in members]


def read(log: Path, *, exact: bool = True) -> tuple[Counter[str], Counter[str]]:
    """Check that grants never exceed the capacity; return counts of events and of grants."""
    granted: dict[str, dict[str, object]] = {}
    events: Counter[str] = Counter()
    turns: Counter[str] = Counter()
    for what, name, used in map(json.loads, log.read_text().splitlines()):
        events[what] += 1
        if what == "+":
            granted[name] = used
            turns[name.split("-")[0]] += 1
        elif what in "-x":
            assert not exact or name in granted  # and none twice
            granted.pop(name, None)
        assert sum(float(str(u["cpus"])) for u in granted.values()) <= 4
        assert sum(int(str(u["memory"])) for u in granted.values()) <= 1000
        gpus = [gpu for u in granted.values() for gpu in u["gpus"]]  # type: ignore[attr-defined]
        assert len(gpus) == len(set(gpus))
    return events, turns


def test_many_are_killed_and_each_is_recovered_once(
    start: Start, folder: Path, tmp_path: Path
) -> None:
    (log := tmp_path / "log").touch()
    ends = contend([start("crowd.py", folder, log, n, 10, 0.2) for n in range(8)])
    assert set(ends) <= {0, -signal.SIGKILL}
    found: list[Claim] = []
    Broker(folder).recover_dead(found.append)  # those that no other process has recovered
    events, _ = read(log)
    assert events["x"] + len(found) == events["+"] - events["-"]
    assert events["x"] > 3
    take_all(folder)


def test_many_die_at_any_point_and_the_others_get_their_turn(
    start: Start, folder: Path, tmp_path: Path
) -> None:
    (log := tmp_path / "log").touch()
    mortal = [start("crowd.py", folder, log, n, 10_000, 0, 3) for n in range(6)]
    others = [start("crowd.py", folder, log, n, 8, 0) for n in range(10, 13)]
    ends = contend(mortal + others)
    assert ends == [-signal.SIGALRM] * 6 + [0] * 3
    # A process that dies after it wrote `-` is recovered although it has released, and a claim is
    # recovered again if the process that recovered it died.
    _, turns = read(log, exact=False)
    assert [turns[str(n)] for n in range(10, 13)] == [8] * 3
    Broker(folder).recover_dead(lambda claim: None)
    take_all(folder)


def test_threads_of_a_process_wait_for_others_as_processes_do(folder: Path) -> None:
    def work() -> int:
        broker = Broker(folder)
        for _ in range(5):
            with broker.acquire("me", Need(4), ALL, recover=unexpected):
                pass
        return 5

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(lambda _: work(), range(4))) == 20
    take_all(folder)


@pytest.mark.parametrize("granted", ["3", "0"])
def test_an_interrupt_at_any_point_leaves_nothing_that_lives(
    party: Start, folder: Path, granted: str
) -> None:
    holder = party("holder", float(granted), says="granted")
    victim = party("victim", says="granted")
    victim.tell("release")
    interrupted, taken = map(int, victim.tell("interrupted 200").split())
    assert interrupted + taken == 200 or granted == "0"
    assert interrupted > 10
    assert (taken == 0) == (granted == "3")
    assert holder.tell("release") == "released"
    # Claims that it may have left have no owner, although the process lives.
    with Broker(folder).acquire("all", Need(4), Capacity(4, 0), recover=lambda claim: None):
        pass
    assert claims(folder) == []
