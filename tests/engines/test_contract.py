"""One suite over every engine: what `emulator/engines/base.py` promises.

What a task does is written once, as a `Deed`, and translated for each engine: a shell command for
Docker and processes, a script for the memory engine.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import shlex
import signal
import subprocess
import termios
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from emulator.analysis.invariants import LATE
from emulator.engines import engine_class, names
from emulator.engines.base import Engine, Executing, Measuring, Publishing, Witnessing
from emulator.engines.capabilities import capable
from emulator.engines.docker import DockerEngine
from emulator.engines.kit.lines import LONGEST_LINE
from emulator.engines.memory import MemoryEngine, Script
from emulator.engines.process import ProcessEngine
from emulator.errors import NotRunning, Unsupported, UsageError
from emulator.faults.held import Pausing, Throttling
from emulator.faults.preempt import PowerCutting
from emulator.faults.signals import SignallingAll
from emulator.planning.requested import RunOptions
from emulator.record.reader import Record
from emulator.record.timeline import Timeline
from emulator.runtime.clock import Clock, ManualClock, RealClock
from emulator.scenario.container import Port
from emulator.scenario.schema import Role
from emulator.session.run import up
from tests.asked import asked
from tests.engines.stage import Stage, free_port, shells, staged


@dataclass(frozen=True)
class Deed:
    """What a task does: say lines, then end, or wait for a signal."""

    says: Sequence[str] = ()
    last_words: str = ""
    """Printed without a newline."""
    draws: Sequence[str] = ()
    """Drawn on one line, one after the other; the next line finishes it."""
    exit_code: int = 0
    forever: bool = False
    ticks: bool = False
    """Prints `tick N` every few hundredths of a second, for ever."""
    once: bool = False
    """Fails where it finds that it ran on this disk before."""
    keeps: str = ""
    """A folder in which it makes a file, and fails where it finds that there."""
    starts_child: bool = False
    """Leaves a process behind that would run for long."""
    ignores_sigterm: bool = False
    """Ignores SIGTERM."""
    floods: bool = False
    """Prints without end, as fast as it can, and at SIGTERM its last words."""
    port: int | None = None
    """A port that the scenario publishes; nothing listens there."""

    def shell(self) -> str:
        steps = ["trap '' TERM"] if self.ignores_sigterm else []
        steps += ["[ ! -e ran ] || exit 1", "touch ran"] if self.once else []
        if self.keeps:
            steps += [f"[ ! -e {self.keeps}/ran ] || exit 7", f"touch {self.keeps}/ran"]
        steps += ["sleep 1000 &"] if self.starts_child else []
        steps += [f"echo {shlex.quote(line)}" for line in self.says]
        if self.ticks:
            steps.append("n=0; while :; do n=$((n + 1)); echo tick $n; sleep 0.02; done")
        if self.floods:
            end = f"kill $!; wait; echo; echo {shlex.quote(self.last_words)}; exit {self.exit_code}"
            return "\n".join([*steps, "yes 'flood flood flood' &", f"trap '{end}' TERM", "wait"])
        if self.draws:
            steps += [f"printf '\\r%s' {shlex.quote(one)}; sleep 0.3" for one in self.draws]
            steps.append("echo")
        steps.append(f"printf %s {shlex.quote(self.last_words)}")
        steps.append("while :; do sleep 1000; done" if self.forever else f"exit {self.exit_code}")
        return "\n".join(steps)

    def role(self) -> Role:
        ports = [] if self.port is None else [Port(port=self.port)]
        return Role(command=["sh", "-c", self.shell()], ports=ports)

    def script(self, start: int) -> Script:
        ticks = [(0.02 * n, f"tick {n}") for n in range(1, 1000)] if self.ticks else []
        return Script(
            lines=[
                *((0.0, line) for line in [*self.says, self.last_words] if line),
                *ticks,
                *((0.05, "\r" + "\r".join(self.draws)) for _ in self.draws[:1]),
            ],
            drawings=[(0.01 * n, f"\r{text}") for n, text in enumerate(self.draws, 1)],
            exits_at=None if self.forever or self.ticks else 0.1,
            exit_code=1 if self.once and start > 1 else self.exit_code,
            on_sigterm=None if self.ignores_sigterm else 0.01,
        )


UP = Deed(says=["up"], forever=True)
TICKING = Deed(ticks=True)
OF_CLUSTERS = [name for name in names() if name == "kubernetes"]
"""Engines of plug-ins for which there is a cluster here."""
StageMaker = Callable[..., Stage]


def lacks(s: Stage, name: str, protocol: type | None = None) -> bool:
    """Say whether the engine lacks a capability, and check that it says so itself."""
    if name in s.engine.capabilities:
        return False
    if protocol is not None:
        with pytest.raises(Unsupported, match=f"{s.engine.name} engine lacks the capability"):
            capable(s.engine, protocol)
    return True


@pytest.fixture(
    params=[
        "memory",
        "process",
        pytest.param("docker", marks=pytest.mark.docker),
        *(pytest.param(name, marks=pytest.mark.kubernetes) for name in OF_CLUSTERS),
    ]
)
def stage(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[StageMaker]:
    """Return a maker of stages: `stage(worker=Deed(...), ps=Deed(...))`."""
    live = contextlib.ExitStack()
    image, settings = "none", dict[str, Any]()
    if request.param in OF_CLUSTERS:
        cluster = request.getfixturevalue("kubernetes_cluster")  # or skip
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
        settings = {"kubernetes": {"namespace": cluster.namespace}}
    if request.param in ("docker", *OF_CLUSTERS):  # whose node is this Docker engine's
        image = request.getfixturevalue("tiny_image")  # or skip

    def make(program: Mapping[str, Any] | None = None, **deeds: Deed) -> Stage:
        clock: Clock = RealClock()
        if request.param == "memory":
            clock = ManualClock()
            scripts = {f"{role}-*": deed.script for role, deed in deeds.items()}
            engine: Engine = MemoryEngine(clock, scripts, measured=True)
        else:
            engine = engine_class(request.param)()
        cluster = {role: deed.role() for role, deed in deeds.items()}
        keys = {} if program is None else {"program": {"command": ["true"], **program}}
        scenario = shells({}, image, cluster=cluster, **keys, **settings)
        live.callback(engine.close)  # a second time does nothing
        return live.enter_context(staged(engine, scenario, tmp_path, clock))

    with live:
        yield make


def test_the_ports_of_a_task_are_known_while_it_runs(stage: StageMaker) -> None:
    number = free_port()
    s = stage(worker=Deed(says=["up"], forever=True, port=number))
    if lacks(s, "ports", Publishing):
        return
    s.start(until="up")
    ports = capable(s.engine, Publishing).published("worker-0")
    assert ports.keys() == {number}
    host, _, port = ports[number].partition(":")
    assert (host, port.isdecimal()) == ("127.0.0.1", True)
    s.engine.signal("worker-0", signal.SIGKILL)
    s.until_exit()
    assert capable(s.engine, Publishing).published("worker-0") == {}


def test_lines_are_in_order_and_before_the_exit_also_long_ones(stage: StageMaker) -> None:
    lines = [*(f"line {n}" for n in range(50)), "x" * 40_000, "next"]
    s = stage(worker=Deed(says=lines))
    s.start()
    assert s.until_exit().exit_code == 0
    assert s.lines["worker-0"] == lines


def test_each_start_has_its_own_lines_and_end_and_a_last_line_without_newline_is_never_lost(
    stage: StageMaker,
) -> None:
    s = stage(worker=Deed(says=["first"], last_words="no newline", exit_code=3))
    for number in range(1, 11):
        s.start()
        s.until_exit(number=number)
    assert s.lines["worker-0"] == ["first", "no newline"] * 10
    assert [one.exit_code for one in s.exits["worker-0"]] == [3] * 10
    assert s.drawn == []  # an unfinished line that is not drawn again is not reported


def test_what_is_drawn_on_a_line_is_reported_before_the_line_is_finished(stage: StageMaker) -> None:
    s = stage(worker=Deed(says=["Epoch 1/2"], draws=["1/3 [=>..]", "2/3 [==>.]", "3/3 [====]"]))
    if lacks(s, "drawings"):
        return
    for number in (1, 2):
        s.drawn.clear()
        s.lines.clear()
        s.start()
        s.until_exit("worker-0", number)
        assert s.lines["worker-0"] == ["Epoch 1/2", "\r1/3 [=>..]\r2/3 [==>.]\r3/3 [====]"]
        # Each is the end of what is drawn so far, and follows the line before it.
        found = [(text.rpartition("\r")[2], lines) for text, lines in s.drawn]
        assert found == [("1/3 [=>..]", 1), ("2/3 [==>.]", 1), ("3/3 [====]", 1)]


def test_a_line_without_end_is_cut_and_marked_and_the_next_is_read(tmp_path: Path) -> None:
    """60 MB were not read in 60 s once: the work must grow with the length alone."""
    script = "head -c 60000000 /dev/zero | tr '\\0' x; echo; echo next"
    with staged(ProcessEngine(), shells({"worker": script}), tmp_path) as s:
        s.start()
        s.until_exit()
    cut = f" [cut: {60_000_000 - LONGEST_LINE} bytes more]"
    assert s.lines["worker-0"] == ["x" * LONGEST_LINE + cut, "next"]


def test_an_endless_output_is_read_no_further_than_is_wanted_but_for_its_end(
    stage: StageMaker,
) -> None:
    """It was read to its end: a run with a timeout of 8 s lasted 81 s."""
    s = stage(worker=Deed(says=["first"], floods=True, last_words="last", exit_code=3))
    if s.engine.name == "memory":
        return  # its tasks print what a script has
    s.start(until="flood flood flood")
    s.inbox.rest = 0
    s.engine.signal("worker-0", signal.SIGTERM)
    end = s.until_exit()
    # Kubelets before 1.22 lose the code of a Pod that was deleted now and then, and say so. Which
    # one stands for it depends on when they looked.
    assert end.exit_code == 3 or end.reason == "ContainerStatusUnknown"
    # A process that ends at once has printed no more than the end that is read.
    assert [one.task for one in s.unread] == ["worker-0"] or s.engine.name == "process"
    assert all(one.size is None or one.size > 0 for one in s.unread)
    assert s.lines["worker-0"][0] == "first"
    if s.engine.name not in OF_CLUSTERS:  # the log of a Pod that was deleted goes with it
        assert s.lines["worker-0"][-1] == "last"
    s.inbox.rest = None
    s.start()  # the next start is read from its beginning
    s._until(lambda: s.lines["worker-0"].count("first") == 2, "its second start")


@pytest.mark.parametrize("code", [0, 1, 42])
def test_an_exit_is_reported_with_its_code_and_its_time(stage: StageMaker, code: int) -> None:
    s = stage(worker=Deed(exit_code=code))
    before = s.clock.wall()
    s.start()
    end = s.until_exit()
    assert (end.exit_code, end.oom_killed) == (code, False)
    assert before - 1 <= end.wall <= s.clock.wall() + 1


def test_a_task_that_ignores_sigterm_ends_at_sigkill(stage: StageMaker) -> None:
    s = stage(worker=Deed(says=["up"], forever=True, ignores_sigterm=True))
    s.start(until="up")
    s.engine.signal("worker-0", signal.SIGTERM)
    s.engine.signal("worker-0", signal.SIGKILL)
    end = s.until_exit()
    # See above: an old kubelet has lost the code.
    assert end.exit_code == 128 + signal.SIGKILL or end.reason == "ContainerStatusUnknown"


def test_a_signal_may_be_for_all_processes(stage: StageMaker) -> None:
    s = stage(worker=Deed(starts_child=True, says=["up"], forever=True))
    if lacks(s, "signal-all", SignallingAll):
        return
    engine = capable(s.engine, SignallingAll)
    s.start(until="up")
    reached = engine.signal_all("worker-0", [signal.SIGCONT, signal.SIGTERM])
    assert reached is None or reached >= 1
    assert s.until_exit().exit_code == 128 + signal.SIGTERM
    for name in ("worker-0", "unknown-0"):
        assert not engine.signal_all(name, [signal.SIGTERM])


def test_the_processes_of_a_task_are_known_while_it_runs(stage: StageMaker) -> None:
    s = stage(worker=Deed(starts_child=True, says=["up"], forever=True))
    if lacks(s, "processes", Witnessing):
        return
    engine = capable(s.engine, Witnessing)
    s.start(until="up")
    # Its shell, its child, and what it waits in, if it has got that far.
    main, *others = engine.processes("worker-0")
    assert (main.main, main.name) == (True, "sh")
    assert main.handled is None or signal.SIGTERM not in main.handled
    assert 1 <= len(others) <= 2
    assert not any(one.main for one in others)
    s.engine.signal("worker-0", signal.SIGKILL)
    s.until_exit()
    engine.watch_end("worker-0")
    for name in ("worker-0", "unknown-0"):
        with pytest.raises(NotRunning):
            engine.processes(name)


def test_nothing_can_be_done_to_an_ended_or_unknown_task(stage: StageMaker) -> None:
    s = stage(worker=Deed())
    s.start()
    s.until_exit()
    s.engine.signal("worker-0", signal.SIGTERM)
    s.engine.signal("unknown-0", signal.SIGTERM)
    s.engine.remove("unknown-0")
    if not lacks(s, "pause", Pausing):
        with pytest.raises(NotRunning, match="worker-0"):
            capable(s.engine, Pausing).pause("worker-0")
    if not lacks(s, "exec", Executing):
        with pytest.raises(UsageError, match=f"worker-0 of {s.plan.run_id} is not running"):
            executed(s, "true", b"")


def test_what_a_task_has_started_ends_with_it(stage: StageMaker) -> None:
    s = stage(worker=Deed(starts_child=True, says=["up"]))
    s.start()
    s.until_exit()
    deadline = s.clock.now() + 30
    while [thing for thing in s.engine.find(s.plan.run_id) if thing.state == "running"]:
        assert s.clock.now() < deadline  # it was killed, and the kernel takes a moment


def test_a_frozen_task_prints_nothing_and_takes_no_sigterm_before_it_is_resumed(
    stage: StageMaker,
) -> None:
    s = stage(worker=TICKING)
    if lacks(s, "pause", Pausing):
        return
    engine = capable(s.engine, Pausing)
    s.start(until="tick 3")
    engine.pause("worker-0")
    engine.pause("worker-0")  # as a successor does, which does not know
    s.until_quiet()  # without the freeze this would never end
    engine.resume("worker-0")
    s.until_line("worker-0", f"tick {len(s.lines['worker-0']) + 10}")
    engine.resume("worker-0")  # letting go what is not frozen does nothing
    engine.pause("worker-0")
    s.engine.signal("worker-0", signal.SIGTERM)
    s.until_quiet()  # awake it would end now
    engine.resume("worker-0")
    assert s.until_exit().exit_code == 143


def test_a_frozen_task_can_be_killed_and_removed_and_a_start_ends_a_freeze(
    stage: StageMaker,
) -> None:
    s = stage(worker=TICKING)
    if lacks(s, "pause", Pausing):
        return
    s.start(until="tick 3")
    capable(s.engine, Pausing).pause("worker-0")
    s.engine.signal("worker-0", signal.SIGKILL)
    assert s.until_exit().exit_code == 137
    s.lines.clear()
    s.start(until="tick 3")
    capable(s.engine, Pausing).pause("worker-0")
    s.engine.tear_down(s.plan.run_id)
    assert s.until_exit(number=2).exit_code == 137


def test_what_changes_a_task_finds_none_while_that_is_being_replaced(stage: StageMaker) -> None:
    s = stage(worker=UP)
    s.start(until="up")
    s.engine.remove("worker-0")
    if not lacks(s, "pause", Pausing):
        with pytest.raises(NotRunning, match="worker-0"):
            capable(s.engine, Pausing).pause("worker-0")
        capable(s.engine, Pausing).resume("worker-0")  # there is nothing to let go
    if not lacks(s, "throttle", Throttling):
        with pytest.raises(NotRunning, match="worker-0"):
            capable(s.engine, Throttling).throttle("worker-0", 0.5)
    s.until_exit()


def test_what_changes_a_task_finds_none_that_somebody_else_has_removed(stage: StageMaker) -> None:
    s = stage(worker=UP)
    if s.engine.name != "docker":
        return  # elsewhere nobody else can
    container = s.start(until="up")
    engine = capable(s.engine, Pausing)
    engine.pause("worker-0")
    assert isinstance(s.engine, DockerEngine)
    s.engine.api.remove_container(container, force=True)
    engine.resume("worker-0")
    with pytest.raises(NotRunning, match="worker-0"):
        engine.pause("worker-0")
    with pytest.raises(NotRunning, match="worker-0"):
        capable(s.engine, Throttling).throttle("worker-0", 0.5)
    s.until_exit()


TICKS = """
n=0; while :; do n=$((n + 1)); echo "{\\"emulate\\": \\"step\\", \\"step\\": $n}"; sleep 0.05; done
"""


@pytest.mark.parametrize("engine", ["process", pytest.param("docker", marks=pytest.mark.docker)])
def test_a_paused_task_stays_so_when_it_is_replaced_and_when_a_shorter_pause_ends(
    request: pytest.FixtureRequest, tmp_path: Path, engine: str
) -> None:
    image = request.getfixturevalue("tiny_image") if engine == "docker" else "none"  # or skip
    text = f"""\
name: contract
framework: none
image: {image}
program: {{command: [sh, -c, {json.dumps(TICKS)}]}}
cluster: {{worker: 2}}
expect: {{outcome: failed}}
faults:
  - {{name: long, pause: worker-1, at: 1s, for: 12s}}
  - {{pause: worker-1, at: {{after: long, delay: 0.2s}}, for: 0.2s}}
  - {{preempt: worker-1, at: {{after: long, delay: 0.6s}}, grace: 0.3s, down: 0.2s}}
  # It ends the job, when worker-1 has long gone on.
  - {{kill: worker-0, at: {{recovery: long, delay: 2s}}}}
"""
    with contextlib.closing(engine_class(engine)()) as used:
        result = up(asked(text), used, RunOptions(out=tmp_path))
    verdicts = {one.expectation: (one.status, one.actual) for one in result.verdicts}
    judged = "1 of 1 pauses in which a step would have been seen"  # the other one was short
    assert verdicts["no_step_while_paused"] == ("ok", judged)
    record = Record(result.folder)
    timeline = Timeline(record.plan, record.in_time_order)
    long, _, preempted, _ = timeline.faults.values()
    (again,) = long.reapplied
    applied, healed = long.stages["applied"], long.stages["healed"]
    assert preempted.stages["applied"].killed
    assert preempted.stages["applied"].t < again.t < healed.t
    steps = [one.t for life in timeline.tasks["worker-1"].incarnations for one in life.steps]
    assert [t for t in steps if t < applied.t]
    assert [t for t in steps if t > healed.t]
    assert not [t for t in steps if again.t + LATE < t < healed.t]


def test_a_task_loses_power_and_its_replacement_has_a_fresh_disk(stage: StageMaker) -> None:
    s = stage(worker=Deed(says=["up"], forever=True, once=True))
    if lacks(s, "silent-loss", PowerCutting):
        return
    if isinstance(s.engine, DockerEngine):
        s.engine.images.ensure("network", lambda line: None)
    s.start(until="up")
    capable(s.engine, PowerCutting).cut_power("worker-0")
    end = s.until_exit()
    assert (end.exit_code, end.oom_killed) == (128 + signal.SIGKILL, False)
    assert dict(capable(s.engine, Measuring).usage()) == {}
    capable(s.engine, PowerCutting).cut_power("unknown-0")  # which does nothing
    s.engine.remove("worker-0")
    s.lines.clear()
    s.start(until="up")
    s.engine.signal("worker-0", signal.SIGKILL)
    s.until_exit(number=2)
    capable(s.engine, PowerCutting).cut_power("worker-0")  # which has ended: nothing either


def test_a_replaced_task_has_a_fresh_disk(stage: StageMaker) -> None:
    s = stage(worker=Deed(once=True))
    s.start()
    s.until_exit()
    s.start()
    s.until_exit(number=2)
    again = 0 if lacks(s, "same-disk") else 1
    assert [exited.exit_code for exited in s.exits["worker-0"]] == [0, again]
    s.engine.remove("worker-0")
    s.start()
    assert s.until_exit(number=3).exit_code == 0


def test_a_folder_of_the_program_that_is_the_shared_volume_outlives_a_task(
    stage: StageMaker, tmp_path: Path
) -> None:
    program = tmp_path / "program"
    (program / "kept").mkdir(parents=True)
    (program / "kept" / "ran").touch()  # of another training of the user's: it is not copied
    s = stage({"source": str(program), "shared": "kept"}, worker=Deed(keeps="kept"))
    if isinstance(s.engine, MemoryEngine):
        return  # it has no disks
    s.start()
    assert s.until_exit().exit_code == 0
    s.engine.remove("worker-0")
    s.start()
    assert s.until_exit(number=2).exit_code == 7


def test_removing_a_running_task_ends_it_and_sigterm_another(stage: StageMaker) -> None:
    s = stage(worker=UP, ps=UP)
    s.start()
    s.start("ps-0", until="up")
    s.until_line("worker-0", "up")
    s.engine.remove("worker-0")
    ways = {signal.SIGKILL}
    if s.engine.name in OF_CLUSTERS:
        ways.add(signal.SIGTERM)  # where SIGKILL can't be sent in time, a deletion
    assert s.until_exit().exit_code - 128 in ways
    s.engine.signal("ps-0", signal.SIGTERM)
    assert s.until_exit("ps-0").exit_code == 128 + signal.SIGTERM


def test_what_a_run_made_is_found_by_its_id_and_removed_by_it_and_nothing_of_another_run(
    stage: StageMaker,
) -> None:
    s, other = stage(worker=UP), stage(worker=UP)
    s.start(until="up")
    other.start(until="up")
    found = s.engine.find(s.plan.run_id)
    assert found
    assert {thing.folder for thing in found} == {str(s.folder)}
    assert {thing.run_id for thing in found} == {s.plan.run_id}
    assert s.plan.run_id in {thing.run_id for thing in s.engine.find()}
    assert s.engine.tear_down(s.plan.run_id) >= 1
    assert s.engine.find(s.plan.run_id) == []
    assert s.engine.tear_down(s.plan.run_id) == 0
    s.until_exit()
    assert other.engine.find(other.plan.run_id)
    other.engine.signal("worker-0", signal.SIGTERM)
    assert other.until_exit().exit_code == 128 + signal.SIGTERM


def executed(s: Stage, command: str, given: bytes) -> tuple[int, str, str]:
    """Run a command in worker-0; return its exit code and what it printed."""
    done = subprocess.run(input=given, capture_output=True, **in_task(s, command))
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def in_task(s: Stage, command: str, *, terminal: bool = False) -> dict[str, Any]:
    """Return the arguments of subprocess.run that run a command in worker-0."""
    script = ["sh", "-c", command]
    engine = capable(s.engine, Executing)
    found = engine.command_line(s.plan, s.folder, "worker-0", script, terminal=terminal)
    return {"args": found.arguments, "env": found.environment, "cwd": found.folder}


def test_a_command_in_a_task_has_its_environment_its_exit_code_and_a_terminal(
    stage: StageMaker,
) -> None:
    s = stage(worker=UP)
    if lacks(s, "exec", Executing):
        return
    s.start(until="up")
    code, out, err = executed(s, "echo $EMULATOR_TASK; echo problem >&2; [ -t 0 ] || exit 7", b"")
    assert (code, out, err.splitlines()[0]) == (7, "worker-0\n", "problem")  # kubectl adds a line
    assert executed(s, "tr a-z A-Z", b"hello\n" * 1000) == (0, "HELLO\n" * 1000, "")
    # It gets a terminal where there is one, which stays as it was.
    ours, its = pty.openpty()
    before = termios.tcgetattr(its)
    command = "read word; [ -t 0 ] && [ -t 1 ] && echo $word is a terminal"
    os.write(ours, b"this\n")
    done = subprocess.run(stdin=its, stdout=its, stderr=its, **in_task(s, command, terminal=True))
    assert (done.returncode, termios.tcgetattr(its)) == (0, before)
    shown = b""
    while b"this is a terminal" not in shown:
        shown += os.read(ours, 1000)
    os.close(ours)
    os.close(its)


def test_usage_is_measured_while_a_task_runs(stage: StageMaker) -> None:
    s = stage(worker=UP)
    assert dict(capable(s.engine, Measuring).usage()) == {}
    s.start(until="up")
    one, two = s.measured(), s.measured()
    assert two.cpu >= one.cpu >= 0
    assert one.memory is not None
    if s.engine.name not in OF_CLUSTERS:  # a cluster does not count them
        assert (one.processes or 0) >= 1
    assert set(capable(s.engine, Measuring).pids()) <= {"worker-0"}
    s.engine.signal("worker-0", signal.SIGKILL)
    s.until_exit()
    assert dict(capable(s.engine, Measuring).usage()) == {}


def test_the_capacity_includes_the_gpus_of_the_plan(stage: StageMaker) -> None:
    s = stage(worker=Deed())
    has = s.engine.capacity()
    assert has.cpus >= 1
    assert has.memory >= 2**26  # no machine that runs this has less; a count of MB would be
    assert has.gpus == tuple(s.engine.plan_context(s.plan.run_id, s.folder).gpus())
    assert s.engine.capacity() == has  # it stays the same
