"""Faults that a tracer brings about: what is asked of it, and what it does."""

from __future__ import annotations

import json
import os
import re
import struct
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
from emulator.faults.schedule import build_schedule
from emulator.faults.spec import ONCE, FaultContext, FaultSpec, Rule
from emulator.faults.traced import Hang, Visibility
from emulator.faults.tracer import program
from emulator.runtime.clock import ManualClock
from emulator.scenario.loader import parse
from tests.scenario.mistakes import only_problem

BASE = "name: t\nframework: none\nprogram: {command: [a]}\ncluster: {worker: 2}\n"
LATE = Visibility(visibility="late", seen_by="worker-1", by=29, for_=60)


def with_fault(fault: str) -> str:
    return f"{BASE}faults: [{{{fault}}}]\n"


# --- What users write ---------------------------------------------------------------------------


@pytest.mark.parametrize("power", ["power_loss: worker-1", "preempt: worker-1, loss: power"])
def test_a_power_loss_that_drops_what_was_written_is_refused_with_what_can_be_done(
    power: str,
) -> None:
    for fault in (f"{power}, at: 5s", f"random: {{{power}}}, every: 5s"):
        problem = only_problem(with_fault(fault))
        assert "needs a file system of its own (FUSE), which ordinary containers don't" in problem
        assert "`loss: silent` is the network's side of it, and `checkpoint: torn`" in problem


@pytest.mark.parametrize(
    ("fault", "instead"),
    [
        ("abort: worker-1", "`abort` was removed: `kill` or `terminate` ends a task"),
        ("exception: worker-1", "`exception` was removed: `kill` ends a task, and a program"),
        ("nan_loss: worker-1, for: 5s", "`nan_loss` was removed: a program of your own can"),
        ("slow_input: worker-1, by: 1s, for: 5s", "`slow_input` was removed: `throttle` slows"),
        ("swallow_sigterm: a, for: 5s", "`swallow_sigterm` was removed: a program of your own"),
    ],
)
def test_a_kind_that_was_removed_says_what_to_do_instead(fault: str, instead: str) -> None:
    assert instead in only_problem(with_fault(f"{fault}, at: 5s"))


def test_late_visibility_is_of_the_task_that_sees_late() -> None:
    late = "visibility: late, by: 29s, seen_by: 'worker-*', for: 2m"
    found = build_schedule(parse(with_fault(f"{late}, at: 5s")).faults, 0, ["worker-0", "worker-1"])
    assert [(one.id, one.target) for one in found] == [
        ("0:worker-0", "worker-0"),
        ("0:worker-1", "worker-1"),
    ]
    drawn = with_fault(f"random: {{{late}}}, every: 5s, max: 2")
    for one in build_schedule(parse(drawn).faults, 0, ["worker-0", "worker-1"]):
        assert one.spec.model_dump(include={"visibility", "seen_by"}) == {
            "visibility": "late",
            "seen_by": one.target,
        }
    problem = only_problem(with_fault("visibility: late, by: 29s, seen_by: ps-0, for: 2m, at: 5s"))
    assert ".seen_by: no task is called 'ps-0'" in problem


def test_an_engine_without_the_means_refuses_them_before_the_start() -> None:
    for fault, what in [
        ("hang: worker-1, for: 5s", "hanging worker-1"),
        ("visibility: late, by: 1s, seen_by: worker-1, for: 5s", "late visibility for worker-1"),
    ]:
        engine = MemoryEngine(ManualClock())
        engine.capabilities = frozenset()
        scenario = parse(with_fault(f"{fault}, at: 5s"))
        with pytest.raises(Unsupported, match=what):
            require(scenario, engine)


# --- By a tracer --------------------------------------------------------------------------------


class Engine:
    """One that is asked for nothing: its tracer is told."""

    capabilities = frozenset({"calls"})

    def signal(self, task: str, number: int) -> None: ...


class Follows:
    """Stands in for the tracer: notes the rules, and says of each what it is told to say."""

    def __init__(self, **says: Any) -> None:
        self.says, self.asked = says, list[list[Rule]]()

    def __call__(self, rules: Sequence[Rule]) -> list[Mapping[str, Any]]:
        self.asked.append([*rules])
        return [self.says if rule["do"] == "hang" else {} for rule in rules]


def test_a_task_has_one_tracer_for_all_its_faults() -> None:
    follows = Follows(hung=2, elsewhere=1, go_on=3)
    hang = Hang(hang="a", for_=5)
    slow = Disk.model_validate({"disk": "slow", "by": "200ms", "task": "a", "for": "5s"})

    def target(*active: FaultSpec) -> FaultContext:
        return FaultContext(Engine(), "a", None, lambda: None, active, follows)

    effect = hang.apply(target(slow, LATE, hang))
    assert effect is not None
    assert effect.words == (
        "2 processes, whose main threads wait in calls, but 1 elsewhere, because it did not come "
        "to wait; 3 that look after them go on"
    )
    late = {"do": "late", "seconds": 29.0, "of": r"(?:.*/)?[^/]*\Z"}
    assert follows.asked.pop() == [slow.rule, late, {"do": "hang"}]
    again = hang.model_copy(update={"for_": 9})
    assert again.apply(target(hang, slow, again, slow)) == effect  # one hang, but twice as slow
    assert follows.asked.pop() == [{"do": "hang"}, slow.rule, slow.rule]
    slow.heal(target(hang))
    hang.heal(target())
    assert follows.asked == [[{"do": "hang"}], []]
    assert hang.apply(target(slow)) is None  # it was healed before, as its task had ended
    assert not {*ONCE} - RULES.keys()
    compile(program(), "tracer", "exec")


def test_a_main_thread_hangs_where_it_waits_and_where_others_need_nothing_of_it() -> None:
    hang = hang_calls.Hang({"id": "0"})
    hang.only.update({7, 8})
    wakes, waits = Call("futex", [0, 129]), Call("futex", [0, 128])
    assert [hang.entered(thread, waits) for thread in (6, 7, 7)] == [None, STAYS, None]
    assert [hang.entered(8, call) for call in (wakes, Call("read", [0]))] == [None, STAYS]
    assert not hang.only


@pytest.mark.parametrize(
    ("processes", "go_on"),
    [
        # Python alone; with workers that it forks
        ({7: (1, True, False), 8: (7, True, False), 9: (8, True, False)}, set[int]()),
        # an init, a shell and Python; and what Python runs
        ({1: (0, False, False), 7: (1, False, False), 8: (7, True, False)}, {1, 7}),
        ({7: (1, True, False), 8: (7, False, False)}, set[int]()),
        # torchrun below a shell, with two ranks and a worker that the first has forked
        (
            {
                **{5: (1, False, False), 6: (5, True, False), 7: (6, True, True)},
                **{8: (6, True, False), 9: (7, True, True)},
            },
            {5, 6},
        ),
        # everything has the first rank: an operator set it
        ({5: (1, True, True), 6: (5, True, True)}, set[int]()),
    ],
)
def test_what_only_looks_after_others_goes_on(
    processes: dict[int, tuple[int, bool, bool]], go_on: set[int]
) -> None:
    seen = {one: hang_calls.Process(*facts) for one, facts in processes.items()}
    assert hang_calls.launchers(seen) == go_on


def test_a_main_thread_that_waits_for_the_end_of_a_process_goes_on() -> None:
    hang = hang_calls.Hang({"id": "0"})
    hang.only.update({7, 8})
    looks, waits = Call("wait4", [-1, 0, 1]), Call("waitid", [0, 0, 0, 4])
    assert [hang.entered(7, call) for call in (looks, waits)] == [None, None]
    assert hang.only == {8}


def test_a_task_of_which_nothing_hangs_is_said() -> None:
    with pytest.raises(EngineError, match="None of its processes can hang: each waits for one"):
        Hang(hang="a", for_=5).done({"hung": 0, "go_on": 2})


def test_what_is_held_hangs_already_and_has_the_time_to_come_to_wait_when_it_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    hang = hang_calls.Hang({"id": "0"})
    hang.only.add(-7)  # no thread
    assert hang.look(is_held=True) == pytest.approx(hang_calls.PATIENCE)
    said = {"added": ["0"], "hung": 1, "elsewhere": 0, "go_on": 0}
    assert json.loads(capsys.readouterr().out) == said
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
