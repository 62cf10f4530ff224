"""Presets of preemptions: what they fill in, what they do and when, and what is refused."""

from __future__ import annotations

import io
import itertools
import math
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from emulator.engines.base import Engine
from emulator.engines.docker import DockerEngine
from emulator.engines.memory import MemoryEngine, Script
from emulator.engines.process import ProcessEngine
from emulator.engines.requirements import require
from emulator.errors import Unsupported
from emulator.faults.kinds import RandomFaults
from emulator.faults.platforms.notices import ACTIONS, Notice
from emulator.faults.platforms.presets import PRESETS, TIMES
from emulator.faults.preempt import Preempt
from emulator.faults.schedule import build_schedule, from_json, to_json
from emulator.faults.signals import Named
from emulator.planning.context import PlanContext
from emulator.planning.planner import make_plan
from emulator.record.reader import Record
from emulator.report.plan_tables import print_plan
from emulator.report.terminal import print_summary
from emulator.runtime.clock import ManualClock
from emulator.scenario.loader import parse
from emulator.scenario.schema import Scenario
from scripts import write_presets
from tests.scenario.mistakes import only_problem
from tests.supervisor.in_memory import (
    BASE,
    SERVES,
    Job,
    faults,
    history,
    restarts,
    run_on,
    stages,
)
from tests.supervisor.test_takeover import Killed

WORKERS = f"{BASE}cluster: {{worker: 3}}\n"
TASKS = ["worker-0", "worker-1", "worker-2"]


def scenario(*faults: str, more: str = "") -> Scenario:
    return parse(f"{WORKERS}faults: [{', '.join(f'{{{one}}}' for one in faults)}]\n{more}")


def preempted(text: str, more: str = "") -> Preempt:
    (fault,) = scenario(f"preempt: worker-1, at: 10s, {text}", more=more).faults
    assert isinstance(fault, Preempt)
    return fault


# --- The data -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_has_values_of_fields_their_sources_and_a_timeline(name: str) -> None:
    preset = PRESETS[name]
    assert preset.facts.keys() <= Preempt.model_fields.keys()
    assert all(fact.source.title and fact.source.date for fact in preset.facts.values())
    values = dict(preset.values)
    # What is written is checked as what users write.
    texts = {key: f"{value}s" if key in TIMES else value for key, value in values.items()}
    written = Preempt.model_validate({"preempt": "worker-1", **texts}, context={})
    filled = Preempt(preempt="worker-1", like=name)
    assert {key: getattr(filled, key) for key in values} == values
    assert list(filled.timeline()) == list(written.timeline()) or name == "plain"
    assert filled.model_fields_set == {"preempt", "like"}
    moments = [when for when, _ in filled.timeline()]
    assert moments == sorted(moments)
    gone = filled.notice + (filled.kills_after or 0)
    assert moments[-1] == gone + filled.heals_after
    assert filled.action is None or filled.action in ACTIONS[filled.metadata]


def test_the_page_has_the_tables_of_presets() -> None:
    page = write_presets.PAGE.read_text("utf-8")
    assert write_presets.written(page) == page
    assert all(f"| `{name}` |" in page for name in PRESETS)


def test_the_preset_plain_is_a_preemption_without_one() -> None:
    bare, plain = Preempt(preempt="a-0"), Preempt(preempt="a-0", like="plain")
    assert plain.model_copy(update={"like": None}) == bare


# --- What users write ---------------------------------------------------------------------------


def test_what_is_written_wins_and_the_rest_is_the_platforms() -> None:
    fault = preempted("like: gce-spot-120, grace: 5s, loss: closed, signals: main")
    assert (fault.notice, fault.grace, fault.down) == (120, 5, 60)
    assert (fault.loss, fault.signals, fault.signal) == ("closed", "main", "SIGTERM")
    fault = preempted("like: ec2-spot, signal: SIGTERM")
    assert (fault.kills, fault.kills_after) == (False, 30)
    assert preempted("like: gce-spot, metadata: azure").action == ACTIONS["azure"][0]
    assert preempted("like: gce-spot, metadata: none").action is None
    assert preempted("like: gce-maintenance, loss: silent").disk == "fresh"
    assert preempted("like: slurm-preempt").heals_after == 121
    assert preempted("like: slurm-preempt, keep_away: 0").heals_after == 10
    assert preempted("like: gke, down: forever").heals_after == math.inf


def test_a_scale_divides_the_times_of_presets_and_not_what_is_written() -> None:
    more = "speed: 10\n"
    fault = preempted("like: gce-spot-120, grace: 5s", more)
    assert (fault.notice, fault.grace, fault.down) == (12, 5, 6)
    assert preempted("grace: 20s", more).grace == 20
    assert preempted("like: slurm-preempt", more).heals_after == 12.1
    (random,) = scenario(
        "random: {preempt: 'worker-*', like: gce-spot}, every: 10s", more=more
    ).faults
    assert isinstance(random, RandomFaults)
    assert isinstance(random.random, Preempt)
    assert random.random.grace == 3


def test_a_scenario_is_written_as_it_was_given_and_read_the_same() -> None:
    given = scenario("preempt: worker-1, at: 10s, like: gce-spot-120", more="speed: 10\n")
    text = given.to_yaml()
    assert "notice" not in text
    assert parse(text) == given


def test_a_stored_plan_has_all_values_which_no_later_preset_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    more = scenario("preempt: worker-1, at: 10s, like: ec2-spot", more="speed: 10\n")
    (planned,) = build_schedule(more.faults, 0, TASKS)
    stored = to_json(planned)
    spec = stored["spec"]
    assert (spec["like"], spec["notice"], spec["loss"]) == ("ec2-spot", "12s", "silent")
    assert (spec["signal"], spec["metadata"], spec["action"]) == ("none", "ec2", "terminate")
    monkeypatch.setattr("emulator.faults.platform.PRESETS", {"ec2-spot": PRESETS["kubernetes"]})
    assert from_json(stored) == planned


def test_a_preemption_without_a_preset_is_stored_as_before_there_were_any() -> None:
    (planned,) = build_schedule(scenario("preempt: worker-1, at: 10s").faults, 0, TASKS)
    new = {
        "like",
        "notice",
        "metadata",
        "action",
        "signal",
        "signals",
        "wakes",
        "kill_wait",
        "disk",
    }
    new |= {"keep_away", "together"}
    assert not to_json(planned)["spec"].keys() & new
    assert "speed" not in scenario("preempt: worker-1, at: 10s").model_dump()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("like: gce-spt", ".like: there is no preset 'gce-spt'. Did you mean 'gce-spot'?"),
        ("like: ec2-spot, grace: 5s", ": without a signal there is no `grace`"),
        ("action: preempt", ": `action` is what `metadata` says"),
        ("metadata: ec2, action: maintenance", ": ec2 has no maintenance"),
        ("like: gce-spot, disk: kept", ": `loss: silent` takes the disk too"),
        ("wakes: true, signal: none", ": `wakes` needs a signal"),
        ("signal: SIGKILL", ".signal: 'SIGKILL' is not allowed"),
        ("together: 2", ".preempt: `together: 2` is more than the 1 target"),
        ("together: 0", ".together: "),
    ],
)
def test_what_does_not_go_together_is_reported(text: str, problem: str) -> None:
    document = f"{WORKERS}faults: [{{preempt: worker-1, at: 10s, {text}}}]\n"
    assert only_problem(document).startswith(f"s.yaml:6: faults.0{problem}")


def test_an_unknown_preset_is_answered_with_all_of_them() -> None:
    found = only_problem(f"{WORKERS}faults: [{{preempt: worker-1, at: 10s, like: x}}]\n")
    assert all(name in found for name in PRESETS)


def test_an_engine_without_silence_refuses_a_preset_and_another_is_named() -> None:
    given = scenario("preempt: worker-1, at: 10s, like: power-loss")
    with pytest.raises(Unsupported, match="a silent loss of worker-1") as refused:
        require(given, ProcessEngine())
    assert "docker" in str(refused.value.hint)
    require(scenario("preempt: worker-1, at: 10s, like: power-loss, loss: closed"), ProcessEngine())


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ("like: kubernetes", {"replace"}),
        ("like: slurm-preempt", {"replace", "signal-all", "signals"}),
        ("signal: SIGUSR1", {"replace", "signals"}),
        ("disk: kept", {"replace", "same-disk"}),
        ("like: power-loss", {"replace", "silent-loss"}),
        ("like: gce-spot, loss: closed", {"replace", "notices", "signal-all"}),
    ],
)
def test_a_preset_needs_what_it_uses_and_no_more(text: str, needed: set[str]) -> None:
    assert {capability for _, capability in preempted(text).needs()} == needed


def possible(engine: type[Engine]) -> set[str]:
    """Return the presets that an engine can do."""
    can = engine.capabilities | {"notices"}
    needed = {
        name: {capability for _, capability in Preempt(preempt="a-0", like=name).needs()}
        for name in PRESETS
    }
    return {name for name in PRESETS if needed[name] <= can}


def test_the_page_says_which_presets_an_engine_can_do() -> None:
    assert possible(DockerEngine) == {*PRESETS}
    silent = {name for name in PRESETS if Preempt(preempt="a-0", like=name).is_silent}
    assert possible(ProcessEngine) == {*PRESETS} - silent


# --- Several at once ----------------------------------------------------------------------------


def test_so_many_targets_are_hit_together() -> None:
    (fault,) = scenario("preempt: 'worker-*', at: 10s, together: 2").faults
    planned = build_schedule([fault], 0, TASKS)
    assert [(one.id, one.target) for one in planned] == [
        ("0:worker-0", "worker-0"),
        ("0:worker-1", "worker-1"),
    ]


def test_at_random_so_many_are_drawn_each_time_and_none_that_is_away() -> None:
    text = "random: {preempt: 'worker-*', together: 2, grace: 0s, down: 50s}, every: 10s, max: 4"
    (fault,) = scenario(text).faults
    planned = build_schedule([fault], 7, TASKS)
    assert planned == build_schedule([fault], 7, TASKS)
    assert len(planned) == 8
    at = [(one.trigger.time, one.target) for one in planned]
    assert all(at[n][0] == at[n + 1][0] and at[n][1] != at[n + 1][1] for n in range(0, 8, 2))
    assert [one.id.partition(":")[0] for one in planned[::2]] == ["0.0", "0.1", "0.2", "0.3"]
    for target in TASKS:
        mine = [when or 0.0 for when, who in at if who == target]
        assert all(later - earlier >= 55 for earlier, later in itertools.pairwise(mine))
    few = text.replace("together: 2", "together: 9")
    assert "`together: 9` is more than the 3 targets" in only_problem(
        f"{WORKERS}faults: [{{{few}}}]\n"
    )


# --- What it does -------------------------------------------------------------------------------


class Metadata(MemoryEngine):
    """Notes what its tasks are told, and in which order with their starts."""

    def __init__(self, scripts: Any) -> None:
        super().__init__(ManualClock(), scripts)
        self.told: list[tuple[str, float, object]] = []

    def _since(self) -> float:
        return self._clock.now() - ManualClock.BEGAN

    def announce(self, notice: Notice) -> None:
        self.told.append(("announce", self._since(), notice))

    def withdraw(self, task: str) -> None:
        self.told.append(("withdraw", self._since(), task))

    def start(self, task: Any, *, same_address: bool = False) -> str:
        self.told.append(("start", self._since(), task.name))
        return super().start(task, same_address=same_address)


def run(tmp_path: Path, text: str, worker: Script, more: str = "") -> tuple[Any, Metadata]:
    engine = Metadata({"worker-0": Script(exits_at=400.0), "worker-1": worker, "*": SERVES})
    fault = f"faults: [{{preempt: worker-1, at: 10s, {text}}}]\n{more}"
    return run_on(engine, tmp_path, f"cluster: {{worker: 2}}\n{fault}"), engine


def test_a_notice_comes_first_then_the_signal_then_the_end(tmp_path: Path) -> None:
    deaf = Script(exits_at=None, on_sigterm=None)
    result, engine = run(tmp_path, "like: gce-spot-120, loss: closed", deaf)
    assert stages(history(result)) == [
        ("announced", 10),
        ("triggered", 130),
        ("applied", 160),
        ("healed", 220),
    ]
    (told,) = [one for what, _, one in engine.told if what == "announce"]
    assert isinstance(told, Notice)
    assert (told.platform, told.action, told.task) == ("gce", "preempt", "worker-1")
    assert told.deadline - told.announced == 120
    after = [(what, when) for what, when, _ in engine.told if when >= 220]
    assert after == [("withdraw", 220), ("start", 220)]  # a new machine: told of nothing
    (applied,) = [one for one in faults(history(result)) if one.stage == "applied"]
    assert (applied.killed, applied.silent) == (True, None)


def test_silence_follows_the_grace_of_who_does_not_end_in_it(tmp_path: Path) -> None:
    deaf = Script(exits_at=None, on_sigterm=None)
    result, engine = run(tmp_path, "like: gce-spot", deaf)
    assert stages(history(result)) == [("triggered", 10), ("applied", 40), ("healed", 100)]
    (applied,) = [one for one in faults(history(result)) if one.stage == "applied"]
    assert (applied.killed, applied.silent) == (True, True)
    assert [what for what, *_ in engine.told].count("announce") == 1
    quick = Script(exits_at=None, on_sigterm=2.0)
    result, _ = run(tmp_path / "quick", "like: gce-spot", quick)
    (applied,) = [one for one in faults(history(result)) if one.stage == "applied"]
    assert (applied.seconds, applied.killed, applied.silent) == (2, False, None)


def test_who_leaves_after_the_notice_is_replaced_when_its_machine_is(tmp_path: Path) -> None:
    leaves = Script(exits_at=50.0, on_sigterm=None)
    result, engine = run(tmp_path, "like: ec2-spot, loss: closed", leaves)
    entries = history(result)
    assert stages(entries) == [
        ("announced", 10),
        ("triggered", 50),
        ("applied", 50),
        ("healed", 190),  # 120 s after the notice, and 60
    ]
    assert restarts(entries) == [("worker-1", 190, True)]
    assert engine.signals == []
    (applied,) = [one for one in faults(entries) if one.stage == "applied"]
    assert (applied.exit_code, applied.killed) == (0, False)
    assert "after the notice" in str(applied.effect)


def test_slurm_says_it_twice_before_it_kills(tmp_path: Path) -> None:
    deaf = Script(exits_at=None, on_sigterm=None)
    result, engine = run(tmp_path, "like: slurm-preempt", deaf)
    assert engine.signals[:5] == [("worker-1", number) for number in (18, 15, 18, 15, 9)]
    assert stages(history(result))[1:] == [("applied", 70), ("healed", 191)]


def test_slurm_leaves_what_has_not_ended_kill_wait_to_do_so(tmp_path: Path) -> None:
    slow = Script(exits_at=None, on_sigterm=35.0)
    result, engine = run(tmp_path, "like: slurm-preempt", slow)
    assert engine.signals[:4] == [("worker-1", number) for number in (18, 15, 18, 15)]
    (applied,) = [one for one in faults(history(result)) if one.stage == "applied"]
    assert stages(history(result))[1] == ("applied", 45)
    assert (applied.exit_code, applied.killed) == (143, False)


@pytest.mark.parametrize(("name", "number"), [("SIGUSR1", 10), ("SIGINT", 2)])
def test_another_signal_is_sent(tmp_path: Path, name: Named, number: int) -> None:
    deaf = Script(exits_at=None, on_sigterm=None)
    _, engine = run(tmp_path, f"signal: {name}, grace: 5s", deaf)
    assert engine.signals[:2] == [("worker-1", number), ("worker-1", 9)]


def test_a_disk_is_kept_if_it_is_asked_for(tmp_path: Path) -> None:
    result, _ = run(tmp_path, "disk: kept, grace: 1s, down: 2s", SERVES)
    assert restarts(history(result)) == [("worker-1", 12, False)]


def test_a_supervisor_that_takes_over_tells_the_same_times(tmp_path: Path) -> None:
    engine = Metadata({"worker-0": Script(exits_at=400.0), "*": SERVES})
    text = f"{BASE}cluster: {{worker: 2}}\nfaults: [{{preempt: worker-1, at: 10s, "
    job = Job(tmp_path, f"{text}like: ec2-spot, loss: closed}}]\n", engine)

    def die() -> None:
        raise Killed

    job.clock.call_at(ManualClock.BEGAN + 60, die)
    with pytest.raises(Killed):
        job.begin()
    assert job.take_over() == "succeeded"
    first, second = (one for what, _, one in engine.told if what == "announce")
    assert isinstance(first, Notice)
    assert isinstance(second, Notice)
    assert second.deadline == pytest.approx(first.deadline, abs=0.01)
    assert ("triggered", 130) in stages(job.history)


# --- What is printed ----------------------------------------------------------------------------


def test_a_plan_prints_the_timeline_once_and_says_what_is_too_long() -> None:
    given = scenario(
        "preempt: 'worker-*', at: 10s, like: gce-spot",
        "preempt: worker-1, at: 1s",
        more="timeout: 1m\nspeed: 1.25\n",
    )
    context = PlanContext("memory", lambda task: (task, 1), lambda image: "", lambda: (), "/shared")
    plan = make_plan(given, "r-1", context)
    with io.StringIO() as out:
        print_plan(plan, [], Console(file=out, width=200))
        printed = out.getvalue()
    assert printed.count("like gce-spot, its times divided by 1.25 (speed):") == 1
    assert "    24.0s  power off; its peers get no packet" in printed
    assert "fault 1: preempt worker-1 at time 1s\n" in printed
    (warning,) = plan.warnings
    assert warning.startswith("fault 0 (preempt) takes 1m 12s until its target is back")
    assert "`speed: 10`" in warning


def test_a_report_says_that_times_were_divided(tmp_path: Path) -> None:
    result, _ = run(tmp_path, "like: gke", SERVES, "speed: 10\n")
    assert result.summary["speed"] == 10
    with io.StringIO() as out:
        print_summary(result.summary, Console(file=out, width=200))
        assert "note: the times of presets are divided by 10 (speed)" in out.getvalue()
    markdown = (Record(result.folder).path / "report.md").read_text("utf-8")
    assert "the times of presets are divided by 10" in markdown.replace("\\", "")
