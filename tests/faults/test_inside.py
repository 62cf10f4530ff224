"""Faults inside a task: what is asked of the programs that bring them about, and what they do."""

from __future__ import annotations

import json
import os
import re
import struct
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from emulator.engines.memory import MemoryEngine
from emulator.engines.requirements import require
from emulator.errors import EngineError, Unsupported
from emulator.faults import hang_calls, late_calls
from emulator.faults.disk import Disk
from emulator.faults.held_call import RULES, STAYS, Call
from emulator.faults.inside import tell
from emulator.faults.inside.hook import emulate_inside
from emulator.faults.inside.hooked import NanLoss, RaisedException, SlowInput
from emulator.faults.inside.traced import Hang, SwallowSigterm, Visibility
from emulator.faults.schedule import build_schedule
from emulator.faults.spec import ONCE, FaultContext, FaultSpec, Rule
from emulator.faults.tracer import program
from emulator.planning.planner import make_plan
from emulator.runtime.clock import ManualClock
from emulator.scenario.loader import parse
from tests.scenario.mistakes import only_problem

BASE = "name: t\nframework: none\nprogram: {command: [a]}\ncluster: {worker: 2}\n"
LATE = Visibility(visibility="late", to="worker-1", by=29, for_=60)


def with_fault(fault: str, env: str = "") -> str:
    return BASE.replace("[a]}", f"[a]{env}}}") + f"faults: [{{{fault}}}]\n"


# --- What users write ---------------------------------------------------------------------------


@pytest.mark.parametrize("power", ["power_loss: worker-1", "preempt: worker-1, loss: power"])
def test_a_power_loss_that_drops_what_was_written_is_refused_with_what_can_be_done(
    power: str,
) -> None:
    for fault in (f"{power}, at: 5s", f"random: {{{power}}}, every: 5s"):
        problem = only_problem(with_fault(fault))
        assert "needs a file system of its own (FUSE), which ordinary containers don't" in problem
        assert "`loss: silent` is the network's side of it, and `checkpoint: torn`" in problem


def test_late_visibility_is_of_the_task_that_sees_late() -> None:
    late = "visibility: late, by: 29s, to: 'worker-*', for: 2m"
    found = build_schedule(parse(with_fault(f"{late}, at: 5s")).faults, 0, ["worker-0", "worker-1"])
    assert [(one.id, one.target) for one in found] == [
        ("0:worker-0", "worker-0"),
        ("0:worker-1", "worker-1"),
    ]
    drawn = with_fault(f"random: {{{late}}}, every: 5s, max: 2")
    for one in build_schedule(parse(drawn).faults, 0, ["worker-0", "worker-1"]):
        assert one.spec.model_dump(include={"visibility", "to"}) == {
            "visibility": "late",
            "to": one.target,
        }
    problem = only_problem(with_fault("visibility: late, by: 29s, to: ps-0, for: 2m, at: 5s"))
    assert ".to: no task is called 'ps-0'" in problem


def test_what_needs_the_hook_is_refused_where_no_task_asks_for_it() -> None:
    for fault in ("exception: worker-1", "nan_loss: 'worker-*', for: 5s"):
        for written in (f"{fault}, at: 5s", f"random: {{{fault}}}, every: 5s"):
            problem = only_problem(with_fault(written))
            assert "needs code inside worker, which asks for none" in problem
            assert 'give its Python program the hook: `env: {EMULATE_INSIDE: "1"}`' in problem
            parse(with_fault(written, ", env: {EMULATE_INSIDE: '1'}"))


def test_an_engine_without_the_means_refuses_them_before_the_start() -> None:
    for fault, what in [
        ("hang: worker-1, for: 5s", "hanging worker-1"),
        ("abort: worker-1", "aborting worker-1"),
        ("swallow_sigterm: worker-1, for: 5s", "swallowing SIGTERM of the child processes of"),
        ("visibility: late, by: 1s, to: worker-1, for: 5s", "late visibility for worker-1"),
        ("exception: worker-1", "raising an exception in worker-1"),
    ]:
        engine = MemoryEngine(ManualClock())
        engine.capabilities = frozenset()
        scenario = parse(with_fault(f"{fault}, at: 5s", ", env: {EMULATE_INSIDE: '1'}"))
        with pytest.raises(Unsupported, match=what):
            require(scenario, engine)


def test_the_plan_says_what_is_a_stand_in_and_has_the_hook_where_it_is_asked_for(
    tmp_path: Path,
) -> None:
    text = with_fault("nan_loss: worker-1, for: 5s, at: 5s", ", env: {EMULATE_INSIDE: '1'}")
    context = MemoryEngine(ManualClock()).plan_context("r-1", tmp_path)
    with_hook = type(context)(**{**vars(context), "hook": "/hook"})
    plan = make_plan(parse(text), "r-1", with_hook)
    assert plan.tasks[0].env["PYTHONPATH"] == "/hook"
    assert [one for one in plan.warnings if "stand-in" in one] == [
        "`nan_loss` is a stand-in: its program gets NaN from emulate_inside.loss; "
        "its arithmetic is sound"
    ]
    own = text.replace("'1'}", "'1', PYTHONPATH: /own}")
    assert make_plan(parse(own), "r-1", with_hook).tasks[0].env["PYTHONPATH"] == "/hook:/own"
    without = make_plan(parse(text.replace("'1'", "'1', X: ''")), "r-1", context)
    assert "PYTHONPATH" not in without.tasks[0].env


# --- By a tracer --------------------------------------------------------------------------------


class Follows:
    """Stands in for the tracer: notes the rules, and says of each what it is told to say."""

    def __init__(self, **says: Any) -> None:
        self.says, self.asked = says, list[list[Rule]]()

    def __call__(self, rules: Sequence[Rule]) -> list[Mapping[str, Any]]:
        self.asked.append([*rules])
        return [self.says if rule["do"] == "hang" else {} for rule in rules]


def test_a_task_has_one_tracer_for_all_its_faults() -> None:
    follows = Follows(hung=2, elsewhere=1)
    hang, swallow = Hang(hang="a", for_=5), SwallowSigterm(swallow_sigterm="a", for_=5)
    slow = Disk.model_validate({"disk": "slow", "by": "200ms", "task": "a", "for": "5s"})

    def target(*active: FaultSpec) -> FaultContext:
        return FaultContext(Tells(), "a", None, lambda: None, active, follows)

    effect = hang.apply(target(slow, LATE, hang, swallow))
    assert effect is not None
    assert effect.words == (
        "2 of them, in calls in which they wait, but 1 elsewhere, because it did not come to wait"
    )
    late = {"do": "late", "seconds": 29.0, "of": r"(?:.*/)?[^/]*\Z"}
    both = [{"do": "hang"}, {"do": "swallow", "signal": 15}]
    assert follows.asked.pop() == [slow.rule, late, *both]
    again = hang.model_copy(update={"for_": 9})
    assert again.apply(target(hang, slow, again, slow)) == effect  # one hang, but twice as slow
    assert follows.asked.pop() == [{"do": "hang"}, slow.rule, slow.rule]
    swallow.heal(target(hang))
    slow.heal(target())
    assert follows.asked == [[{"do": "hang"}], []]
    assert not {*ONCE} - RULES.keys()
    compile(program(), "tracer", "exec")


def test_a_main_thread_hangs_where_it_waits_and_where_others_need_nothing_of_it() -> None:
    hang = hang_calls.Hang({"id": "0"})
    hang.only.update({7, 8})
    wakes, waits = Call("futex", [0, 129]), Call("futex", [0, 128])
    assert [hang.entered(thread, waits) for thread in (6, 7, 7)] == [None, STAYS, None]
    assert [hang.entered(8, call) for call in (wakes, Call("read", [0]))] == [None, STAYS]
    assert not hang.only


def test_what_is_held_hangs_already_and_has_the_time_to_come_to_wait_when_it_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    hang = hang_calls.Hang({"id": "0"})
    hang.only.add(-7)  # no thread
    assert hang.look(is_held=True) == pytest.approx(hang_calls.PATIENCE)
    assert json.loads(capsys.readouterr().out) == {"added": ["0"], "hung": 1, "elsewhere": 0}
    left = hang.look(is_held=False)
    assert left is not None
    assert left > 0
    assert not hang.stays(-7)
    hang.forget(-7)
    assert hang.look(is_held=False) is None
    assert not capsys.readouterr().out  # it is said once


def test_a_task_that_is_held_before_a_call_can_have_other_faults_of_its_tracer() -> None:
    held = "faults: [{kill: worker-1, at: {write: 1}}, {"
    parse(with_fault("hang: worker-1, for: 5s, at: 5s").replace("faults: [{", held))


def names(folder: Path, seconds: float = 10.0, of: str = ".*") -> late_calls.Names:
    found = late_calls.Names(seconds, re.compile(of).match, str(folder))
    found.learn("")
    return found


def test_a_new_name_is_hidden_for_so_long_and_known_ones_and_own_ones_are_not(
    tmp_path: Path,
) -> None:
    (tmp_path / "old").mkdir()
    seen = names(tmp_path)
    for name in ("old/inner", "new", "own"):
        (tmp_path / name).write_text("")
    seen.made(f"{tmp_path}/own")
    began = os.lstat(tmp_path / "new").st_ctime

    def hidden(name: str, after: float = 0.0) -> bool:
        return seen.hides(f"{tmp_path}/{name}", "", began + after)

    assert [hidden(name) for name in ("old", "own", "none", "new", "old/inner", "new/x")] == [
        *(False, False, False, True, True, True),
    ]
    assert [hidden("new", after) for after in (9.9, 10.0)] == [True, False]
    (tmp_path / "new").write_text("more")  # it stays known
    assert not hidden("new")
    assert not seen.hides("/elsewhere/new", "", began)


def test_only_names_that_match_are_hidden_and_what_is_moved_stays_known(tmp_path: Path) -> None:
    seen = names(tmp_path, of="(?:.*/)?step-[^/]*")
    for name in ("step-1", "latest"):
        (tmp_path / name).write_text("")
    began = os.lstat(tmp_path / "step-1").st_ctime
    assert seen.hides(f"{tmp_path}/step-1", "", began)
    assert not seen.hides(f"{tmp_path}/latest", "", began)
    (tmp_path / "step-2.tmp").mkdir()
    seen.made(f"{tmp_path}/step-2.tmp")
    (tmp_path / "step-2.tmp" / "step-x").write_text("")
    seen.made(f"{tmp_path}/step-2.tmp/step-x")
    (tmp_path / "step-2.tmp").rename(tmp_path / "step-2")
    seen.made(f"{tmp_path}/step-2", f"{tmp_path}/step-2.tmp")
    assert not seen.hides(f"{tmp_path}/step-2/step-x", "", began)


def entries(*given: str, plain: bool = False) -> bytes:
    found = b""
    for number, name in enumerate(given):
        text = name.encode() + b"\0"
        length = ((18 if plain else 19) + len(text) + 7) // 8 * 8
        head = struct.pack("=QqH", number + 1, number, length) + (b"" if plain else b"\x08")
        found += (head + text).ljust(length, b"\0")
    return found


@pytest.mark.parametrize("plain", [False, True])
def test_hidden_names_are_taken_out_of_a_list(plain: bool) -> None:
    given = entries(".", "..", "a", "hidden", "hidden-too", "b", plain=plain)
    found = late_calls.without(given, ["hidden", "hidden-too"], plain)
    assert [*late_calls.names_of(found, plain)] == [".", "..", "a", "b"]
    assert len(found) == len(given)
    first = late_calls.without(entries("hidden", "a", plain=plain), ["hidden"], plain)
    assert [*late_calls.names_of(first, plain)] == [".", "a"]  # which all readers skip


# --- By the hook --------------------------------------------------------------------------------


def test_the_processes_that_listen_are_found_and_those_that_work_among_them() -> None:
    wanted = [
        emulate_inside.socket_name("r-1", "worker-0", process, kind)
        for process, kind in ((7, "program"), (8, "program"), (9, "fork"))
    ]
    other = emulate_inside.socket_name("r-2", "worker-0", 5, "program")
    head = "Num RefCount Protocol Flags Type St Inode Path"
    rows = [f"ffff: 2 0 10000 1 1 77 @{name}" for name in (*wanted, other, wanted[0])]
    found = tell.listeners("\n".join([head, *rows, "ffff: 2 0 0 1 1 78"]), "r-1", "worker-0")
    assert {process: is_fork for process, (_, is_fork) in found.items()} == {
        **{7: False, 8: False, 9: True}
    }
    assert max(map(len, wanted)) <= 100
    forks = {7: False, 8: False, 9: True}
    assert tell.workers(forks, {8: 7, 9: 8, 7: 1}) == [8]  # 7 is a launcher
    assert tell.workers({7: False, 8: False}, {8: 1, 7: 1}) == [7, 8]
    assert tell.workers({9: True}, {}) == [9]
    assert len(emulate_inside.socket_name("r" * 63, "w" * 60, 2**22, "program")) < 107


class Tells:
    """Has the files of a task; answers what it is told to answer."""

    capabilities = frozenset({"files"})

    def __init__(self, *answers: Mapping[str, Any]) -> None:
        self.answers, self.asked = answers, list[Any]()

    def signal(self, task: str, number: int) -> None: ...

    def run_at_files(self, where: str, program: str, request: Mapping[str, Any]) -> str:
        compile(program, "tell.py", "exec")
        self.asked.append((where, request))
        return json.dumps({"answers": self.answers})

    def talk_at_files(self, *_: Any) -> None: ...  # of other faults


def test_orders_are_the_sum_of_the_faults_and_say_that_they_stand_in() -> None:
    slow, slower = SlowInput(slow_input="a", by=1, for_=5), SlowInput(slow_input="a", by=2, for_=5)
    engine = Tells({"pid": 7, "did": "set", "used": ["batch"]})
    effect = slow.apply(FaultContext(engine, "a", None, lambda: None, [slow, slower]))
    assert effect.words.startswith("a stand-in: its program waits in emulate_inside.batch;")
    slower.heal(FaultContext(engine, "a", None, lambda: None, [slow]))
    nan = NanLoss(nan_loss="a", for_=5)
    nan.heal(FaultContext(engine, "a", None, lambda: None, []))
    orders = [{"slow": 2.0}, {"slow": 1.0}, {"nan": False}]
    assert engine.asked == [("a", {"order": order, "once": False}) for order in orders]


def test_an_order_that_no_process_obeys_fails_the_fault() -> None:
    raised = RaisedException(exception="a")
    for answers, why in [
        ((), "a: none of its processes listens."),
        (({"pid": 7, "error": "its main thread has ended"},), "a: its main thread has ended."),
    ]:
        with pytest.raises(EngineError, match=f"^{why}"):
            raised.apply(FaultContext(Tells(*answers), "a", None, lambda: None))
    done = Tells({"pid": 7, "did": "raised"}, {"pid": 8, "error": "no"})
    effect = raised.apply(FaultContext(done, "a", None, lambda: None))
    assert effect.words == "EmulatedFault is raised in the main thread of process 7"


def test_a_program_that_asks_gets_what_it_gave_or_what_the_fault_makes_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = {"nan": False, "slow": 0.0}
    monkeypatch.setattr(emulate_inside, "_state", state)
    monkeypatch.setattr(emulate_inside, "_used", set())
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    assert (emulate_inside.loss(2.5), emulate_inside.batch("b"), slept) == (2.5, "b", [])
    assert emulate_inside.obey({"nan": True, "slow": 0.2}) == {
        "did": "set",
        "used": ["batch", "loss"],
    }
    assert str(emulate_inside.loss(2.5)) == "nan"
    assert (emulate_inside.batch("b"), slept) == ("b", [0.2])
