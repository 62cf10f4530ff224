"""What each kind of fault is, asks of its engine and does with it."""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from emulator.errors import EngineError, NotRunning
from emulator.faults.checkpoint import in_words
from emulator.faults.kinds import FAULTS
from emulator.faults.preempt import Preempt
from emulator.faults.spec import (
    Cordoned,
    Effect,
    Entry,
    FaultContext,
    FaultSpec,
    HeldFault,
    LastingFault,
    Trigger,
)
from emulator.runtime import plugins

FLAGS = (
    *("lasting", "is_held", "ends_target", "restarts_target", "replaces_target", "blocks_job"),
    *("one_by_one", "lists_groups", "is_healed", "gives_notice", "kills"),
    "is_silent",
)
TARGETS = {
    "partition": [["a-0"], ["b-0"]],
    "checkpoint": "torn",
    "disk": "readonly",
    "visibility": "late",
}
OPTIONS: dict[str, dict[str, Any]] = {
    "throttle": {"cpus": 0.5},
    "shape": {"loss": 0.1},
    "visibility": {"seen_by": "a-0", "by": 29},
}
ENDS, RESTARTS = "ends_target", "ends_target restarts_target"
KINDS: dict[str, tuple[str, float | None, float, float]] = {
    # Flags; seconds until it is killed, until it is healed, and until it surely works again.
    "preempt": (f"{RESTARTS} replaces_target is_healed gives_notice", 30, 10, 45),
    "kill": (f"{ENDS} kills", None, 0, 5),
    "terminate": (f"{ENDS} gives_notice", None, 0, 5),
    "restart": (f"{RESTARTS} one_by_one is_healed", 30, 0, 35),
    "oom": (f"{ENDS} kills", None, 0, 5),
    "pause": ("lasting is_held blocks_job is_healed", None, 7, 12),
    "throttle": ("lasting is_held is_healed", None, 7, 12),
    "partition": ("lasting blocks_job lists_groups is_healed", None, 7, 12),
    "shape": ("lasting is_healed", None, 7, 12),
    "checkpoint": ("", None, 0, 5),
    "disk": ("lasting is_held is_healed", None, 7, 12),
    "visibility": ("lasting is_held is_healed", None, 7, 12),
    "hang": ("lasting is_held blocks_job is_healed", None, 7, 12),
}


def make(kind: str, **options: Any) -> Any:
    target = TARGETS.get(kind, "a-0")
    lasts = {"for_": 7} if issubclass(FAULTS[kind], LastingFault) else {}
    return FAULTS[kind](**{kind: target, **lasts, **OPTIONS.get(kind, {}), **options})


def test_each_kind_is_what_its_class_says() -> None:
    def of(fault: Any) -> tuple[str, float | None, float, float]:
        flags = [flag for flag in FLAGS if getattr(fault, flag, False)]
        return " ".join(flags), fault.kills_after, fault.heals_after, fault.downtime

    assert {kind: of(make(kind)) for kind in FAULTS if kind not in plugins.names("faults")} == KINDS
    silent = f"{RESTARTS} replaces_target is_healed kills is_silent"
    assert of(make("preempt", loss="silent", down=4)) == (silent, None, 4, 9)
    assert [kind for kind in FAULTS if getattr(make(kind), "same_address", False)] == []
    assert make("preempt", address="same").same_address
    assert [kind for kind in FAULTS if not make(kind).of_tasks] == ["partition", "checkpoint"]


class Engine:
    """Writes down what it is asked for; it has the methods of all capabilities but `preempt`."""

    def __init__(self, *capabilities: str, gone: bool = False) -> None:
        self.capabilities = frozenset(capabilities)
        self.calls: list[tuple[object, ...]] = []
        self.gone = gone

    def __getattr__(self, name: str) -> Any:
        if name not in WORDS:
            raise AttributeError(name)

        def call(*arguments: object) -> object:
            self.calls.append((name, *arguments))
            if self.gone:
                raise NotRunning("a-0 has ended.")
            return Cordoned("n1", ("a-0", "b-0")) if name == "cordon" else "asked"

        return call


WORDS = {
    *("signal", "terminate", "cut_power", "oom_kill", "pause", "resume", "throttle"),
    *("cordon", "uncordon", "kill_slack", "preempt"),
}


def target(engine: Engine, *active: FaultSpec, cpus: float | None = None) -> FaultContext:
    return FaultContext(engine, "a-0", cpus, lambda: engine.calls.append(("links",)), active)


ENDINGS = {(code, oom) for code in (0, 1, 137) for oom in (False, True)}
SLOW, SLOWER = make("throttle"), make("throttle", cpus=0.25)
WORN = "n1 is cordoned, where a-0, b-0 of this run ran"
EVICTED = tuple(
    Preempt.model_construct(preempt=task, grace=30.0, down=0.0, via="eviction")
    for task in ("a-0", "b-0")
)


@pytest.mark.parametrize(
    ("fault", "active", "calls", "effect", "healing"),
    [
        (make("kill"), [], ("signal", "a-0", signal.SIGKILL), None, None),
        (make("terminate"), [], ("terminate", "a-0"), None, None),
        (make("restart"), [], ("signal", "a-0", signal.SIGTERM), None, None),
        (make("preempt"), [], ("signal", "a-0", signal.SIGTERM), None, None),
        (make("preempt", loss="silent"), [], ("cut_power", "a-0"), None, None),
        (make("oom"), [], ("oom_kill", "a-0"), None, None),
        (make("partition"), [], ("links",), None, ("links",)),
        (make("pause"), [make("pause"), SLOW], ("pause", "a-0"), None, ("resume", "a-0")),
        (SLOW, [SLOW, SLOWER], ("throttle", "a-0", 0.25), None, ("throttle", "a-0", 2)),
    ],
)
def test_a_fault_asks_its_engine_for_this(
    fault: Any,
    active: Sequence[FaultSpec],
    calls: tuple[object, ...],
    effect: Effect | None,
    healing: tuple[object, ...] | None,
) -> None:
    engine = Engine()
    assert fault.apply(target(engine, *active, cpus=2)) == effect
    if healing:
        fault.heal(target(engine, cpus=2))
    assert engine.calls == [calls, *filter(None, [healing])]


@pytest.mark.parametrize(
    ("fault", "by_itself"),
    [
        (make("kill"), ENDINGS - {(0, False), (0, True)}),
        (make("terminate"), ENDINGS),
        (make("oom"), {(0, True), (1, True), (137, True)}),
        (make("preempt", loss="silent"), {(137, False)}),
        (make("preempt"), ENDINGS),
    ],
)
def test_an_end_that_is_not_the_faults_is_said(fault: Any, by_itself: set[object]) -> None:
    for code, oom in ENDINGS:
        why = "" if (code, oom) in by_itself else f"ended otherwise, with {code}"
        assert fault.other_cause(code, oom_killed=oom) == why


BROKEN = {
    "torn": "c/m is cut from 8,000 to 4,000 bytes (torch)",
    "bitflip": "bit 6 of byte 4,000 of c/m (8,000) is flipped (torch)",
    "missing": "c/m (8,000 bytes) is removed (torch)",
    "stale": "c/m (8,000 bytes) has the content of c/l (4,000) (torch)",
    "empty-newer": "c/m is newer than c, and empty (torch)",
    "zeroed": "c/m (8,000 bytes) is cut to nothing (torch)",
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_checkpoint_is_broken_by_a_program_that_has_the_files(how: str) -> None:
    done = {"checkpoint": "c", "format": "torch", "path": "c/m", "before": 8000, "after": 4000}
    done |= {"byte": 4000, "bit": 6, "version": "c/l"}
    asked: list[tuple[str, Any, str]] = []
    told: list[str | None] = []

    class Files:
        capabilities = frozenset({"files"})

        def __init__(self, *answers: object) -> None:
            self.answers = answers

        def signal(self, task: str, number: int) -> None: ...

        def run_at_files(self, *_: Any) -> None: ...  # of other faults

        def talk_at_files(
            self, where: str, program: str, request: Any, said: str
        ) -> Generator[str, str | None, None]:
            compile(program, "saved_files.py", "exec")
            asked.append((where, request, said))
            for answer in self.answers:
                told.append((yield json.dumps(answer)))

    def on(name: str, *answers: object) -> FaultContext:
        return FaultContext(Files(*answers), name, None, lambda: None, since=7.0)

    fault = make("checkpoint", checkpoint=how, of="/shared/c*/m")
    effect = Effect(BROKEN[how], changed={"how": how, **done})
    plan = {"aims": [], "done": done}
    found, change = fault.find(on("shared", {"plan": plan}, done), None)
    assert (found, told) == (plan, [])
    assert (change(), told) == (effect, ["go"])
    assert fault.find(on("shared", {"plan": plan}, done), plan)[1]() == effect
    assert fault.apply(on("shared", done)) == effect  # an engine without a way to its input
    here = make("checkpoint", checkpoint=how, of="/tmp/m", on="a-0", even_open=True)
    with pytest.raises(EngineError, match=r"^m is empty\.$"):
        here.apply(on("a-0", {"error": "m is empty"}))
    with pytest.raises(
        EngineError, match=r"^Breaking the checkpoint failed: what does it has ended"
    ):
        here.apply(on("a-0"))
    fault.apply(replace(on("shared", done), at_call=True))
    every = {"how": how, "since": 7.0, "newest": 1, "waits": True, "again": False, "held": False}
    shared, own = {"of": "/c*/m", "even_open": False}, {"of": "/tmp/m", "even_open": True}
    assert asked == [
        ("shared", {**every, **shared}, ""),
        ("shared", {**every, **shared, "again": True}, json.dumps(plan)),
        ("shared", {**every, **shared}, ""),
        *[("a-0", {**every, **own}, "")] * 2,
        ("shared", {**every, **shared, "even_open": True, "held": True}, ""),
    ]


def test_a_checkpoint_is_on_a_disk_that_there_is() -> None:
    fault = make("checkpoint")
    assert (fault.target, list(fault.named())) == ("shared", [])
    on_a_task = make("checkpoint", on="a-0", at="5s")
    assert (on_a_task.target, list(on_a_task.named())) == ("a-0", [(("on",), "a-0")])
    with pytest.raises(ValueError, match="`of` is not in /shared; on the disk of a task"):
        make("checkpoint", of="/tmp/x")


def test_several_checkpoints_are_cut_to_nothing_and_no_others() -> None:
    assert FAULTS["checkpoint"](checkpoint="zeroed", newest=2).newest == 2  # type: ignore[call-arg, attr-defined]
    for keys in ({"checkpoint": "torn", "newest": 2}, {"checkpoint": "zeroed", "newest": 0}):
        with pytest.raises(ValueError, match=r"`newest` goes with `zeroed`|greater than or equal"):
            FAULTS["checkpoint"].model_validate(keys)
    done = {"checkpoint": "m-2", "format": "torch", "path": "m-2", "before": 8, "after": 0}
    words = in_words("zeroed", {**done, "saves": ["m-2", "m-1"]})
    assert words == "m-2 and m-1 (8 bytes) are cut to nothing (torch)"


def test_a_preemption_says_what_it_needs() -> None:
    first = ("preempting a-0", "replace")
    for options, more in [
        ({"address": "new"}, ("a new address for a-0", "new-address")),
        ({"address": "same"}, ("the same address for a-0", "same-address")),
        ({"loss": "silent"}, ("a silent loss of a-0", "silent-loss")),
        ({"via": "delete"}, ("preempting a-0 by deletion", "own-grace")),
        ({"via": "eviction"}, ("preempting a-0 by eviction", "eviction")),
    ]:
        assert list(make("preempt", **options).needs()) == [first, more]
    assert list(make("kill").needs()) == []


def test_a_trigger_says_itself_and_whether_output_fires_it() -> None:
    for given, words, by_output in [
        ({"time": 90}, "time 90s", False),
        ({"step": 3, "task": "a-*"}, "step 3, task a-*", True),
        ({"log": "x"}, "log x", True),
        ({"phase": "eval"}, "phase eval", True),
        ({"after": "a", "delay": 1.5}, "after a, delay 1.5s", False),
        ({"recovery": 0}, "recovery 0", True),
    ]:
        trigger = Trigger(**given)  # type: ignore[arg-type]
        assert (trigger.in_words(), trigger.by_output) == (words, by_output)
    stored = Trigger.model_validate({"log": "("}, context={"stored": True})
    assert stored.log == "("  # the engine of patterns may have changed since


def test_a_kind_that_does_not_say_how_it_is_performed_is_a_mistake() -> None:
    none, on = FaultSpec.model_construct(), target(Engine())
    assert math.isinf(make("pause", for_=math.inf).downtime)
    for missing in (
        lambda: Entry().needs(),
        lambda: none.heals_after,
        lambda: none.announce(on),
        lambda: none.apply(on),
        lambda: none.heal(on),
        lambda: HeldFault.settle(replace(on), []),
    ):
        with pytest.raises(NotImplementedError):
            missing()
