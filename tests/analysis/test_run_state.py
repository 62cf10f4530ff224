"""The current state of a run, event by event; numbers were worked out by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from emulator.analysis.run_state import Estimate, RunState
from emulator.faults.held import Pause
from emulator.faults.schedule import expand_targets, to_json
from emulator.faults.spec import Trigger
from emulator.metrics.catalog import GpuUsage, Rates, Usage
from emulator.metrics.samples import Sample
from emulator.planning.plan import Plan
from emulator.planning.planner import make_plan
from emulator.record.events import Entry, StepSource, entry_of, fields_of
from emulator.scenario.loader import load
from tests.histories import (
    BEGAN,
    SITE,
    Told,
    a_plan,
    began_again,
    ended,
    fault,
    happened,
    history,
    job,
    phase,
    restart,
    step,
    written,
)

ROOT = Path(__file__).parents[2]
RECORDED = Path(__file__).parent / "recordings" / "mwms-preemption.jsonl"
TARGET = "expect: {final_step: 100}\n"
PREEMPT = "faults: [{preempt: worker-1, at: {step: 10}}]\n"

UP = [happened(0, "run"), *began_again(1, "worker-0", "worker-1"), happened(2, "all-running")]


def steps(begin: int, end: int, first: int, *, each: int = 1) -> list[Told]:
    """One event a second of both workers."""
    each_second = enumerate(range(begin, end + 1))
    return [step(t, f"worker-{w}", first + n * each) for n, t in each_second for w in (0, 1)]


TRAINED = [*UP, *steps(3, 13, 0, each=5)]


def live(entries: Sequence[Told], extra: str = "", cluster: str = "{worker: 2}") -> RunState:
    run = RunState(a_plan(cluster, extra))
    for entry in history(entries):
        run.entry(entry)
    return run


def states(run: RunState) -> list[str]:
    return [task.state for task in run.tasks.values()]


# --- States -------------------------------------------------------------------------------------


def test_before_anything_happened_nothing_is_known() -> None:
    run = live([], TARGET)
    assert (states(run), run.state) == (["pending", "pending"], "starting")
    assert (run.t, run.began, run.step, run.steps_per_second) == (0.0, None, None, None)
    assert run.eta().why_not == "no step yet"
    assert [(task.exit_code, task.step) for task in run.tasks.values()] == [(None, None)] * 2


def test_tasks_start_run_and_end() -> None:
    run = live([happened(0, "run"), happened(1, "start", "worker-0")])
    assert states(run) == ["starting", "pending"]
    run = live(UP)
    assert (states(run), run.state) == (["running", "running"], "running")
    assert run.began == pytest.approx(BEGAN)
    run = live([*UP, ended(5, "worker-0", 0), job(5), ended(6, "worker-1", 143, told=True)])
    assert (states(run), run.state) == (["ended", "ended"], "ending")
    assert [task.exit_code for task in run.tasks.values()] == [0, 143]
    assert (run.outcome, run.reason) == ("succeeded", "worker-0 finished")


def test_a_restart_of_one_task_counts_for_it_alone() -> None:
    entries = [*UP, ended(5, "worker-1", 1, oom=True), restart(5, "worker-1")]
    run = live(entries)
    assert states(run) == ["running", "backoff"]
    assert [task.restarts for task in run.tasks.values()] == [0, 1]
    assert [task.oom_kills for task in run.tasks.values()] == [0, 1]
    run = live([*entries, *began_again(6, "worker-1")])
    assert states(run) == ["running", "running"]
    assert [task.starts for task in run.tasks.values()] == [1, 2]


def test_what_was_down_when_the_job_ended_stays_away() -> None:
    down = ended(5, "worker-1", 137, fault="0")
    run = live([*UP, fault(4, "worker-1", "triggered"), down], PREEMPT)
    assert states(run) == ["running", "down"]
    assert [f.id for f in run.impairments("worker-1")] == ["0"]
    assert run.impairments("worker-0") == []
    run = live([*UP, down, job(6, "failed", "too late")], PREEMPT)
    assert states(run) == ["running", "ended"]
    assert run.outcome == "failed"


# --- Faults -------------------------------------------------------------------------------------


def test_a_manual_fault_is_added_by_its_event() -> None:
    pause = Pause.model_validate({"pause": "worker-0", "for": "forever"})
    trigger = Trigger.model_construct(time=0.0)
    (planned,) = expand_targets("manual-1", pause, ["worker-0", "worker-1"], trigger)
    about = {"id": "manual-1", "kind": "pause"}
    entries = [fault(5, "worker-0", "planned", plan=to_json(planned), **about)]
    entries += [fault(5, "worker-0", stage, **about) for stage in ("triggered", "applied")]
    (found,) = live([*UP, *entries]).impairments("worker-0")
    assert (found.id, found.kind, found.planned.target) == ("manual-1", "pause", "worker-0")


# --- Steps and the estimate ---------------------------------------------------------------------


def test_steps_of_tasks_and_of_the_job() -> None:
    run = live([*TRAINED, step(13.5, "worker-0", 55)])
    assert (run.step, run.tasks["worker-1"].step) == (55, 50)
    assert run.tasks["worker-1"].steps_per_second == pytest.approx(5.0)
    assert run.steps_per_second == pytest.approx(55 / 10.5, rel=0.1)
    assert [task.steps for task in run.tasks.values()] == [55, 50]
    assert run.examples_per_second is None
    assert run.tasks["worker-0"].examples == 0
    assert run.timeline.tasks["worker-0"].steps == []  # which would grow with the run
    others = [step(13.8, "other-0", 500), step(13.9, "worker-1", 55)]  # not of the plan; not new
    more = live([*TRAINED, step(13.5, "worker-0", 55), *others])
    assert (more.step, more.front.at, more.steps_per_second) == (55, 13.5, run.steps_per_second)
    run = live(TRAINED, "metrics: {examples_per_step: 64}\n")
    assert run.examples_per_second == pytest.approx(320.0)
    assert run.tasks["worker-0"].examples == 50 * 64


def test_steps_that_were_those_of_something_else_are_forgotten() -> None:
    source = StepSource(task="worker-0", source="a bar", counts=True, retracts=True, t=4.0)
    run = RunState(a_plan("{worker: 2}"))
    told = [source, step(3, "worker-0", 590, rate=7), step(3.5, "worker-0", 600), source]
    for entry in written([*told, step(5, "worker-0", 1, loss=0.5)]):  # as they are reported
        run.entry(entry)
    assert (run.step, run.tasks["worker-0"].step, run.tasks["worker-0"].steps) == (1, 1, 0)
    assert [*run.values] == ["loss"]


def test_examples_that_a_task_reports_are_used() -> None:
    entries = [step(3 + n, "worker-0", n, examples=100 * n) for n in range(5)]
    again = [ended(8, "worker-0", 1), restart(8, "worker-0"), *began_again(9, "worker-0")]
    more = [step(11, "worker-0", 2, examples=200), step(12, "worker-0", 3, examples=300)]
    run = live([*UP, *entries, *again, *more], "metrics: {examples_per_step: 7}\n")
    assert run.tasks["worker-0"].examples == 500  # what was done again counts again
    assert run.tasks["worker-0"].steps == 5
    # Fewer than before are none, and those before the first report and its start are unknown.
    entries = [step(3, "worker-0", 9), step(4, "worker-0", 10, examples=50)]
    entries += [step(5, "worker-0", 11, examples=20), step(3, "worker-1", 9, examples=80)]
    entries += [ended(6, "worker-0", 1), restart(6, "worker-0"), *began_again(7, "worker-0")]
    run = live([*UP, *entries, step(9, "worker-0", 15, examples=90)])
    assert [task.examples for task in run.tasks.values()] == [50, 0]
    assert [task.steps for task in run.tasks.values()] == [2, 0]


def test_the_values_of_a_name_are_those_of_one_task_while_that_runs() -> None:
    entries = [step(3, "worker-0", 1, loss=0.5, examples=9, note="good")]
    entries += [step(4, "worker-1", 2, loss=7, rate=3), step(5, "worker-0", 3, loss=0.25)]
    run = live([*UP, *entries])
    values = {name: (one.task, one.step, one.points) for name, one in run.values.items()}
    assert values == {"loss": ("worker-0", 3, [0.5, 0.25]), "rate": ("worker-1", 2, [3])}
    again = [ended(6, "worker-0", 1), step(7, "worker-1", 4, loss=6), step(8, "worker-1", 5)]
    loss = live([*UP, *entries, *again]).values["loss"]
    assert (loss.task, loss.step, loss.value) == ("worker-1", 4, 6)
    many = step(3, "worker-0", 1, **{f"v{n}": n for n in range(21)})
    run = live([*UP, many, step(4, "worker-0", 2, v19=7, v20=8)])
    assert ([*run.values], run.values["v19"].value) == ([f"v{n}" for n in range(20)], 7)


@pytest.mark.parametrize(
    ("count", "kept"), [(47, range(47)), (48, range(0, 48, 2)), (100, range(0, 100, 4))]
)
def test_of_many_values_every_so_many_are_kept(count: int, kept: Sequence[int]) -> None:
    run = live([*UP, *(step(3 + n, "worker-0", n, loss=n) for n in range(count))])
    assert run.values["loss"].points == [*kept]


def test_the_estimate_is_what_is_left_at_the_rate_without_disturbances() -> None:
    run = live(TRAINED, TARGET)
    assert run.eta().seconds == pytest.approx((100 - 50) / 5)
    run.tick(13.8)
    assert run.eta().seconds == pytest.approx((100 - 50) / 5 - 0.8)
    assert (run.eta().target, run.eta().why_not) == (100, "")
    run = live([*TRAINED, step(14, "worker-0", 99)], TARGET)
    run.tick(16)
    assert run.eta().seconds == 0  # it should be there


def test_there_is_no_estimate_without_a_final_step_or_so_early() -> None:
    assert live(TRAINED).eta() == Estimate(None, None, "no final step is expected")
    assert live([*UP, *steps(3, 5, 0)], TARGET).eta().why_not == "too early to say"
    assert live([*UP, *steps(3, 6, 0)], TARGET).eta().seconds is not None


def test_a_hanging_job_has_no_estimate() -> None:
    run = live(TRAINED, TARGET)
    run.tick(30)
    assert run.eta().why_not == "no step for 17s"
    assert run.steps_per_second == 0.0
    run.tick(29)  # time does not go back
    assert run.t == 30
    run = live([*TRAINED, *phase(29, 29.5, "worker-0", "eval"), step(30, "worker-1", 50)])
    assert run.steps_per_second == 0.0


def test_while_no_task_trains_the_rate_is_zero_and_then_that_of_the_new_steps() -> None:
    ends = [ended(14, "worker-0", 1), restart(14, "worker-0", "job"), ended(14, "worker-1", 1)]
    assert live([*TRAINED, *ends]).steps_per_second == 0.0
    again = [*TRAINED, *ends, *began_again(15, "worker-0", "worker-1")]
    assert live(again).steps_per_second is None
    again += [step(18, "worker-0", 55), step(19, "worker-0", 60)]
    assert live(again).steps_per_second == 5.0


def test_when_the_final_step_is_reached_nothing_is_left() -> None:
    assert live([*UP, *steps(3, 13, 90)], TARGET).eta() == Estimate(100, 0.0)
    run = live([*UP, *steps(3, 13, 0), job(20, "failed")], TARGET)
    assert run.eta().why_not == "failed"
    assert run.steps_per_second is None


def test_after_the_final_step_it_waits_for_the_tasks_that_still_run() -> None:
    training = [*UP, *steps(3, 12, 10, each=10)]
    assert live(training[:-2], TARGET).finishing == []
    assert live(training, TARGET).finishing == ["worker-0", "worker-1"]
    assert live([*training, ended(13, "worker-1", 0)], TARGET).finishing == ["worker-0"]
    assert live(training).finishing == []
    # Nobody waits for parameter servers.
    up = [happened(0, "run"), *began_again(1, "chief-0", "ps-0"), happened(2, "all-running")]
    run = live([*up, step(3, "chief-0", 100)], TARGET, "{chief: 1, ps: 1}")
    assert run.finishing == ["chief-0"]


# --- Usage, GPUs, lines -------------------------------------------------------------------------


def sampled(t: float, cpu: float, gpus: Sequence[GpuUsage] = ()) -> Sample:
    usage = Usage(cpu=cpu, memory=512, cpus=2.0, memory_limit=1024, received=10)
    return Sample(t, BEGAN + t, {"worker-0": usage}, gpus)


def test_rates_are_between_the_last_two_samples() -> None:
    run = live(UP)
    run.sample(sampled(3, 1.0))
    first = Rates(memory=512, memory_share=0.5)
    assert run.tasks["worker-0"].rates == first
    run.sample(sampled(5, 3.0))
    assert run.tasks["worker-0"].rates == replace(first, cpu=1.0, cpu_share=0.5, received=0)
    assert (run.tasks["worker-1"].rates, run.tasks["worker-1"].usage) == (None, None)
    assert run.t == 5
    run.entry(ended(6, "worker-0", 1))  # what has ended uses nothing
    assert [(task.usage, task.rates) for task in run.tasks.values()] == [(None, None)] * 2
    run.sample(sampled(7, 4.0))  # the engine may still tell of it
    assert run.tasks["worker-0"].usage is None


# --- A recording --------------------------------------------------------------------------------


def recorded() -> list[Entry]:
    """The history of a real run: two workers, TensorFlow in Docker, one preempted at step 300."""
    return [entry_of(json.loads(line)) for line in RECORDED.read_text().splitlines()]


def recorded_plan() -> Plan:
    """Its plan; the scenario has fewer steps now."""
    path = ROOT / "scenarios" / "faults" / "mwms-preemption.yaml"
    return make_plan(load(path, ["expect.final_step=2000"]), "recorded", SITE)


def test_the_estimates_in_a_recorded_run_were_right() -> None:
    """From the moment when it had recovered, each was within a second of the truth, or 15 %."""
    plan = recorded_plan()
    run, entries = RunState(plan), recorded()
    reached = next(e.t for e in entries if e.event == "step" and fields_of(e)["step"] == 2000)
    reported: dict[str, int] = {}
    for entry in entries:
        run.entry(entry)
        estimate = run.eta()
        reported[estimate.why_not] = reported.get(estimate.why_not, 0) + 1
        if estimate.seconds is not None and entry.t > 27:
            left = max(0.0, reached - entry.t)
            assert estimate.seconds == pytest.approx(left, rel=0.15, abs=1.0), entry
        if 7.97 < entry.t < 27:
            assert estimate.why_not == "recovering", entry
    assert reported.keys() == {"", "no step yet", "too early to say", "recovering"}


# --- Which steps are the job's --------------------------------------------------------------------


def test_the_job_is_as_far_as_those_who_train() -> None:
    beside = "{worker: 1, evaluator: 1}"
    entries = [*began_again(0, "worker-0", "evaluator-0"), step(2, "evaluator-0", 100)]
    run = live(entries, TARGET, beside)
    assert (run.step, run.eta().seconds) == (100, 0)  # nobody else has told of any yet
    entries += [step(3, "worker-0", 1), step(4, "evaluator-0", 100), step(5, "worker-0", 2)]
    run = live(entries, TARGET, beside)
    assert (run.step, run.finishing, run.eta().why_not) == (2, [], "too early to say")
    assert run.tasks["evaluator-0"].step == 100
    run = live([*entries, ended(6, "worker-0", 1), step(7, "evaluator-0", 101)], TARGET, beside)
    assert run.recovering
