"""Verdicts: every expectation ok, failed and unknown, and what they make together."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import pytest
import yaml

import emulator
from emulator.analysis import expectations as checks
from emulator.analysis.analyse import Analysis, FaultResult, Recovery, TaskResult, analyse
from emulator.analysis.expectations import Status, Verdict, judge, overall
from emulator.analysis.figures import in_summary
from emulator.analysis.notices import NoticeResult
from emulator.analysis.throughput import Rate, StepTimes, Throughput
from emulator.analysis.traffic import Traffic
from emulator.analysis.values import histories, importance
from emulator.metrics.catalog import Usage
from emulator.metrics.samples import Sample
from emulator.planning.plan import ThroughputReference
from emulator.record.timeline import Timeline
from emulator.results import summary
from emulator.scenario.schema import Expectations
from tests.histories import a_plan, began_again, ended, happened, phase, step, timeline

RAN = Analysis(
    outcome="succeeded",
    reason="worker-0 finished",
    duration=10.00004,
    tasks={"worker-0": TaskResult("succeeded", 0, first_step=1, last_step=50, lost_steps=3)},
    final_step=50,
    network=0.5,
    all_running=3.0,
    first_step=5.0,
    steps_per_second=10.0,
    examples_per_second=320.0,
    throughput=Throughput(
        Rate(10.0, 320.0, StepTimes(40, 0.1, 0.1, 0.1234567, 0.2, 0.3)), {"worker-0": Rate(9.87654)}
    ),
    accuracy=0.9,
    values={"loss": {"worker-0": 0.25}},
    bytes_per_step={"worker": Traffic(2000.4, 1000.0)},
    restarts=2,
    lost_steps=10,
    recoveries=[5.0, 7.5],
    faults=[FaultResult("0", "preempt", "worker-0", "applied", applied_after=2.0, saved_after=1.0)],
    notices=[NoticeResult("0", "preempt", "worker-0", 3.0, saved_after=1.0, outlived=[])],
    time={"productive": 4.0, "startup": 6.00004},
    goodput=0.4,
)
HISTORY = timeline(
    [
        *began_again(0, "worker-0"),
        step(2, "worker-0", 10),
        *phase(3, 4, "worker-0", "checkpoint", step=10, digest="d"),
        step(5, "worker-0", 20),
        ended(6, "worker-0", 0),
    ]
)
RESUMES = [
    *began_again(7, "worker-0", "worker-1"),
    *phase(9, 9, "worker-0", "restore", step=10, digest="d"),
    *phase(9, 9, "worker-1", "restore", step=10),
    step(10, "worker-1", 30),
    step(10, "worker-0", 30),
]
"""After HISTORY: both tasks begin again, from the same step."""
SILENT = Analysis("succeeded", "worker-0 finished", 10.0, {})


def verdicts(expect: dict[str, Any], analysis: Analysis) -> list[Verdict]:
    return judge(Expectations.model_validate(expect), analysis, timeline([]))


NOT_REPORTED = "the tasks did not report it"
NO_SHARE = "the tasks reported 1.236, which is not between 0 and 1"
NEVER_AGAIN = "no step followed the last failure"
NO_FAILURE = "there was nothing to recover from"
NEVER = replace(RAN, unrecovered=1, recovered=[Recovery("worker-0", 4.0, None)])
UNREAD = replace(NEVER, unrecovered=None, recoveries=[])
"""The run ends 6 s after the last failure."""


@pytest.mark.parametrize(
    ("name", "bound", "analysis", "status", "expected", "actual"),
    [
        ("final_step", 50, RAN, "ok", "at least 50", "50"),
        ("final_step", 51, RAN, "failed", "at least 51", "50"),
        ("final_step", 0, SILENT, "unknown", "at least 0", NOT_REPORTED),
        ("accuracy", 0.9, RAN, "ok", "at least 0.900", "0.900"),
        ("accuracy", 0.91, RAN, "failed", "at least 0.910", "0.900"),
        ("accuracy", 0.9, replace(RAN, accuracy=1.236), "unknown", "at least 0.900", NO_SHARE),
        ("accuracy", 0, SILENT, "unknown", "at least 0.000", NOT_REPORTED),
        ("throughput.min", 10, RAN, "ok", "at least 10.00 steps/s", "10.00 steps/s"),
        ("throughput.min", 10.5, RAN, "failed", "at least 10.50 steps/s", "10.00 steps/s"),
        ("throughput.min", 1, SILENT, "unknown", "at least 1.00 steps/s", NOT_REPORTED),
        ("throughput.max", 10, RAN, "ok", "at most 10.00 steps/s", "10.00 steps/s"),
        ("throughput.max", 9, RAN, "failed", "at most 9.00 steps/s", "10.00 steps/s"),
        ("throughput.max", 1, SILENT, "unknown", "at most 1.00 steps/s", NOT_REPORTED),
        ("max_restarts", 2, RAN, "ok", "at most 2", "2"),
        ("max_restarts", 1, RAN, "failed", "at most 1", "2"),
        ("max_restarts", 0, SILENT, "ok", "at most 0", "0"),
        ("max_lost_steps", 10, RAN, "ok", "at most 10", "10"),
        ("max_lost_steps", 9, RAN, "failed", "at most 9", "10"),
        ("max_lost_steps", 0, SILENT, "unknown", "at most 0", NOT_REPORTED),
        ("recovers_within", "7500ms", RAN, "ok", "at most 7.50s", "7.50s"),
        ("recovers_within", "7s", RAN, "failed", "at most 7.00s", "7.50s"),
        ("recovers_within", "1h", NEVER, "unknown", "at most 1h 00m", NEVER_AGAIN),
        ("recovers_within", "5500ms", NEVER, "failed", "at most 5.50s", NEVER_AGAIN),
        ("max_lost_steps", 10, NEVER, "unknown", "at most 10", f"10; {NEVER_AGAIN}"),
        ("max_lost_steps", 9, NEVER, "failed", "at most 9", "10"),
        ("recovers_within", "5500ms", UNREAD, "unknown", "at most 5.50s", NEVER_AGAIN),
        ("recovers_within", "1h", SILENT, "unknown", "at most 1h 00m", NO_FAILURE),
        ("min_goodput", 0.4, RAN, "ok", "at least 0.400", "0.400"),
        ("min_goodput", 0.5, RAN, "failed", "at least 0.500", "0.400"),
        ("min_goodput", 0, SILENT, "unknown", "at least 0.000", NOT_REPORTED),
    ],
)
def test_an_expectation_is_judged_by_the_numbers(
    name: str, bound: object, analysis: Analysis, status: Status, expected: str, actual: str
) -> None:
    section, _, key = name.rpartition(".")
    found = verdicts({section: {key: bound}} if section else {key: bound}, analysis)
    assert Verdict(name, status, expected, actual) in found
    others = [verdict.expectation for verdict in found if verdict.expectation != name]
    assert others == ["outcome", "faults"][: len(found) - 1]


@pytest.mark.parametrize(
    ("expected", "outcome", "status"),
    [
        ("succeeded", "succeeded", "ok"),
        ("succeeded", "failed", "failed"),
        ("succeeded", "timeout", "failed"),
        ("failed", "failed", "ok"),
        ("failed", "succeeded", "failed"),
        ("timeout", "timeout", "ok"),
        ("succeeded", "running", "unknown"),
        ("succeeded", "interrupted", "unknown"),
        ("failed", "error", "unknown"),
    ],
)
def test_the_outcome_is_always_judged(expected: str, outcome: str, status: Status) -> None:
    (verdict,) = verdicts({"outcome": expected}, replace(SILENT, outcome=outcome, reason="why"))
    assert verdict == Verdict("outcome", status, expected, f"{outcome}: why")


def test_every_expectation_that_can_be_written_is_judged() -> None:
    everything = {
        "outcome": "succeeded",
        "final_step": 1,
        "accuracy": 0.5,
        "values": {"loss": {"max": 0.5}},
        "bytes_per_step": {"worker": {"sent": {"max": "2k"}}},
        "throughput": {"min": 1, "max": 20, "at_least": 0.9, "of": "reference"},
        "max_restarts": 9,
        "max_lost_steps": 99,
        "recovers_within": "1m",
        "noticed_within": "1m",
        "min_goodput": 0.1,
        "saved_within_grace": True,
        "nothing_outlives": True,
        "monotone_checkpoints": True,
        "restores_only_complete": True,
        "never_from_scratch": True,
        "ranks_agree": True,
        "loads_what_was_saved": True,
        "single_chief": True,
        "steps_exactly_once": True,
    }
    # test_same_as_uninterrupted.py has the last one
    assert (
        everything.keys() | {"steps", "same_as_uninterrupted"} == Expectations.model_fields.keys()
    )
    comparison = ThroughputReference(reference=10.0, reference_run="r")
    resumes = timeline([*HISTORY.history, *RESUMES])
    noticed = replace(RAN, faults=[replace(RAN.faults[0], detected_after=3.0)])
    result = judge(Expectations.model_validate(everything), noticed, resumes, comparison)
    judged = {verdict.expectation.partition(".")[0] for verdict in result}
    assert judged == everything.keys() | {"faults"}
    assert len(result) == len(judged) + 2  # throughput three times
    assert overall(result) == "ok"


def test_no_step_may_be_read_where_none_is_expected() -> None:
    def read(*tasks: str) -> Verdict:
        ran = replace(RAN, tasks=dict.fromkeys(tasks, RAN.tasks["worker-0"]))
        *others, last = verdicts({"steps": "none"}, ran)
        assert [one.status for one in others] == ["ok", "ok"]
        return last

    assert read() == Verdict("steps", "ok", "none", "none")
    three = Verdict("steps", "failed", "none", "steps of a-0, a-1, a-2")
    assert read("a-0", "a-1", "a-2") == three
    assert read("a-0", "a-1", "a-2", "a-3").actual == f"{three.actual} and 1 more"


HALF = "0.500 of the reference, 10.00 of 20.00 steps/s (r)"


@pytest.mark.parametrize(
    ("reference", "outcome", "status", "actual"),
    [
        (20.0, "failed", "failed", HALF),
        # A job that was cut off might have reached more.
        (20.0, "interrupted", "unknown", f"{HALF}, when the run was cut off"),
        (11.0, "interrupted", "ok", "0.909 of the reference, 10.00 of 11.00 steps/s (r)"),
    ],
)
def test_a_share_of_another_rate_is_judged(
    reference: float, outcome: str, status: Status, actual: str
) -> None:
    expect = Expectations.model_validate({"throughput": {"at_least": 0.9, "of": "reference"}})
    comparison = ThroughputReference(reference=reference, reference_run="r")
    *_, result = judge(expect, replace(RAN, outcome=outcome), HISTORY, comparison)
    expected = "at least 0.9 of the reference"
    assert result == Verdict("throughput.at_least", status, expected, actual)


@pytest.mark.parametrize(
    ("rates", "least", "most"),
    [
        ([(10.0, 4.0)], ("failed", "0.40 of before"), ("ok", "0.40 of before")),
        ([(10, 5), (20, 15)], ("ok", "0.50 of before"), ("failed", "0.75 of before")),
        ([(10, 5), (None, 5)], *[("unknown", NOT_REPORTED)] * 2),
        ([(10, 5), (0, 5)], *[("unknown", NOT_REPORTED)] * 2),
        ([(10, 5), (10, None)], *[("unknown", NOT_REPORTED)] * 2),
        ([], *[("unknown", NOT_REPORTED)] * 2),
    ],
)
@pytest.mark.parametrize("name", ["during", "after"])
def test_the_worst_fault_is_compared_with_the_rate_before_it(
    name: str, rates: list[tuple[float, float]], least: tuple[str, str], most: tuple[str, str]
) -> None:
    fault = FaultResult("0", "pause", "worker-0", "applied")
    faults = [replace(fault, rate_before=a, rate_during=b, rate_after=b) for a, b in rates]
    expect = {"throughput": {name: {"min": 0.5, "max": 0.6}}}
    found = verdicts(expect, replace(SILENT, faults=faults))[-2:]
    assert [(one.status, one.actual) for one in found] == [least, most]
    bounds = ["at least 0.50 of before", "at most 0.60 of before"]
    assert [one.expected for one in found] == bounds
    assert [one.expectation for one in found] == [f"throughput.{name}.{k}" for k in ("min", "max")]


def goes_back(times: int) -> Timeline:
    """Return a history in which a worker goes back from step 7, so many times."""
    steps = (step(2 + n, "worker-0", 7 - n) for n in range(times + 1))
    return timeline([*began_again(0, "worker-0"), *steps])


AFTER_7 = [f"worker-0 reported step {n} after step 7" for n in (6, 5, 4)]


@pytest.mark.parametrize(
    ("events", "status", "actual"),
    [
        (HISTORY, "ok", "2 of 2 steps"),
        (timeline([]), "unknown", "the record has no steps"),
        # Of many violations three are named.
        (goes_back(2), "failed", "; ".join(AFTER_7[:2])),
        (goes_back(3), "failed", "; ".join(AFTER_7)),
        (goes_back(4), "failed", "; ".join([*AFTER_7, "and 1 more"])),
        (goes_back(9), "failed", "; ".join([*AFTER_7, "and 6 more"])),
    ],
)
def test_an_invariant_is_judged_from_the_history(
    events: Timeline, status: Status, actual: str
) -> None:
    *_, result = judge(Expectations(steps_exactly_once=True), SILENT, events)
    assert result == Verdict("steps_exactly_once", status, "each step once", actual)


def test_what_is_false_is_not_judged() -> None:
    expect = {"nothing_outlives": False, "single_chief": False, "steps_exactly_once": False}
    assert [result.expectation for result in verdicts(expect, SILENT)] == ["outcome"]


def test_a_check_that_crashes_is_unknown_and_the_others_are_judged() -> None:
    broken = replace(RAN, accuracy="high")  # type: ignore[arg-type]
    result = {v.expectation: v for v in verdicts({"accuracy": 0.5, "final_step": 5}, broken)}
    assert result["accuracy"].status == "unknown"
    assert result["accuracy"].actual.startswith("the check crashed: TypeError(")
    assert (result["outcome"].status, result["final_step"].status) == ("ok", "ok")
    nonsense: Any = [*began_again(0, "worker-0"), None]  # nothing that a record has
    *_, chief = judge(Expectations(single_chief=True), SILENT, nonsense)
    assert chief.status == "unknown"
    assert chief.actual.startswith("the check crashed: AttributeError(")


def test_a_check_that_crashes_midway_is_unknown_despite_its_first_verdict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(expect: Expectations, result: Analysis) -> Iterator[Verdict]:
        yield Verdict("mine.min", "ok", "", "")
        raise RuntimeError("at work")

    monkeypatch.setattr(checks, "_CHECKS", {"mine": broken})
    result = verdicts({}, RAN)
    crash = Verdict("mine", "unknown", "", "the check crashed: RuntimeError('at work')")
    assert result[-1] == crash
    assert overall(result) == "unknown"


SUMMARY = """
run_id: run-1
scenario: test
variant: a=1
engine: fake
warm: []
outcome: succeeded
reason: worker-0 finished
verdict: failed
verdicts:
- {expectation: outcome, status: ok, expected: succeeded, actual: "succeeded: worker-0 finished"}
- {expectation: faults, status: ok, expected: 1 applied, actual: 1 applied}
- {expectation: final_step, status: failed, expected: at least 51, actual: "50"}
why: []
warnings: []
hints: []
last_words: {}
step_sources: {used: [], seen: []}
duration: 10.0
tasks:
  worker-0: {state: succeeded, exit_code: 0, restarts: 0, oom_killed: false, last_step: 50}
helpers: {}
steps: {final: 50, lost: 10, lost_at_least: 10}
startup: {network: 0.5, all_running: 3.0, first_step: 5.0}
throughput:
  steps_per_second: 10.0
  examples_per_second: 320.0
  step_time: {count: 40, mean: 0.1, p50: 0.1, p90: 0.123457, p99: 0.2, max: 0.3}
  tasks: {worker-0: {steps_per_second: 9.8765, examples_per_second: null, step_time: null}}
usage:
  worker-0: {cpu_seconds: 2.5, cpu: null, memory_peak: 7, throttled: null,
             received: null, sent: null, read: null, written: null}
gpus: {}
values: {loss: {worker-0: 0.25}}
bytes_per_step: {worker: {sent: 2000, received: 1000}}
accuracy: 0.9
restarts: 2
recoveries: [5.0, 7.5]
unrecovered: 0
worst_recovery: 7.5
time: {productive: 4.0, startup: 6.00004}
goodput: 0.4
"""


def test_the_summary_has_the_numbers_and_is_json() -> None:
    plan = a_plan("{worker: 1}").model_copy(update={"variant": "a=1"})
    samples = [Sample(1.0, 1.0, {"worker-0": Usage(2.5, memory=7)})]
    written = summary(plan, RAN, verdicts({"final_step": 51}, RAN), samples)
    assert json.loads(json.dumps(written)) == {
        **{"format": 2, "emulator_version": emulator.__version__},
        **yaml.safe_load(SUMMARY),
        "faults": [asdict(RAN.faults[0])],
        "notices": [asdict(RAN.notices[0])],
        "saves": [],
    }


def test_the_summary_tells_of_preparation_and_conditions_where_there_were_any() -> None:
    prepared = replace(RAN, training_began=1.23456)
    created = {"type": "Created", "status": "True", "t": 0.123457}
    written = summary(a_plan("{worker: 1}"), prepared, [], conditions=[created])
    assert written["startup"]["training"] == 1.2346
    for unrecovered, worst in ((0, 7.5), (1, math.inf)):
        written["unrecovered"] = unrecovered
        figures = [in_summary(written, key) for key in ("worst_recovery", "goodput")]
        assert figures == [worst, 0.4]
    assert written["conditions"] == [created]


@pytest.mark.parametrize("status", ["skipped", "failed", "pending"])
def test_expectations_about_faults_are_unknown_unless_all_happened(status: str) -> None:
    missed = FaultResult("1", "kill", "worker-1", status, reason="it was not running")
    result = replace(RAN, faults=[*RAN.faults, missed])
    expect = {"final_step": 50, "max_lost_steps": 20, "max_restarts": 1, "recovers_within": "9s"}
    judged = {verdict.expectation: verdict for verdict in verdicts(expect, result)}
    assert {name: verdict.status for name, verdict in judged.items()} == {
        "outcome": "ok",
        "faults": "unknown",
        "final_step": "ok",  # reached whatever happened
        "max_restarts": "failed",  # two are too many in any case
        "max_lost_steps": "unknown",
        "recovers_within": "unknown",
    }
    said = f"; fault 1: kill worker-1 {status}: it was not running"
    assert judged["faults"].actual == f"1 applied{said}"
    many, *_ = verdicts({}, replace(RAN, faults=[missed] * 4))[1:]
    named = said * 3
    assert many == Verdict("faults", "unknown", "4 applied", f"0 applied{named}")
    assert judged["max_lost_steps"].actual == "10, but not all faults happened"


def test_sentences_of_an_engine_are_parts_of_one_and_have_their_fault_s_number() -> None:
    why = (
        "The eviction of run-worker-1 is forbidden now: Cannot evict pod as it would violate the "
        "pod's disruption budget (The disruption budget two needs 2 healthy pods and has 2 "
        "currently)"
    )
    missed = [FaultResult(id, "preempt", "worker-1", "failed", reason=f"{why}.") for id in "12"]
    many, *_ = verdicts({}, replace(RAN, faults=missed))[1:]
    said = [f"fault {number}: preempt worker-1 failed: {why}" for number in "12"]
    assert many.actual == "; ".join(["0 applied", *said])


@pytest.mark.parametrize(
    ("outcome", "when"),
    [
        ("running", "so far"),
        ("error", "when the run was cut off"),
        ("interrupted", "when the run was cut off"),
    ],
)
def test_what_a_run_that_was_cut_off_did_not_reach_is_unknown(outcome: str, when: str) -> None:
    expect = {"final_step": 51, "accuracy": 0.5, "max_restarts": 0}
    result = {v.expectation: v for v in verdicts(expect, replace(RAN, outcome=outcome))}
    cut_off = Verdict("final_step", "unknown", "at least 51", f"50, {when}")
    assert result["final_step"] == cut_off
    assert result["accuracy"].status == "ok"
    assert result["max_restarts"].status == "failed"  # that will not become less
    assert {v.expectation: v.status for v in verdicts(expect, RAN)}["final_step"] == "failed"


# --- Values that tasks report ---------------------------------------------------------------------

TOLD = [
    happened(0, "run"),
    step(1, "worker-0", 1, staleness=0, loss=2.5, note="warm-up"),
    step(1, "worker-1", 1, staleness=5),
    step(2, "worker-0", 2, staleness=1.5, loss=math.nan),
    step(3, "worker-1", 2, staleness=2, ready=True),
    happened(4, "job"),
]


def judged(**bounds: Any) -> dict[str, tuple[str, str, str]]:
    replayed = timeline(TOLD)
    expect = Expectations.model_validate({"values": bounds})
    return {
        verdict.expectation: (verdict.status, verdict.expected, verdict.actual)
        for verdict in judge(expect, analyse(replayed), replayed)
        if verdict.expectation.startswith("values.")
    }


@pytest.mark.parametrize(
    ("bounds", "status", "actual"),
    [
        ({"min": 1.5}, "ok", "1.5"),
        ({"min": 1.6}, "failed", "1.5"),
        ({"max": 2}, "ok", "2"),
        ({"max": 1.9}, "failed", "2"),
    ],
)
def test_the_least_and_the_greatest_are_compared(
    bounds: dict[str, float], status: str, actual: str
) -> None:
    ((side, bound),) = bounds.items()
    expected = f"at {'least' if side == 'min' else 'most'} {bound}"
    assert judged(staleness=bounds) == {f"values.staleness.{side}": (status, expected, actual)}


def test_a_value_that_is_no_number_at_the_end_or_that_nobody_reported_is_unknown() -> None:
    status, _, actual = judged(loss={"max": 3})["values.loss.max"]
    assert (status, actual) == ("unknown", "the last value of worker-0 is no number")
    assert judged(speed={"min": 1})["values.speed.min"][0] == "unknown"


@pytest.mark.parametrize("bounds", [{}, {"min": 2, "max": 1}, {"min": math.inf}, {"least": 1}])
def test_limits_that_limit_nothing_are_refused(bounds: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"values\.staleness"):
        Expectations.model_validate({"values": {"staleness": bounds}})


def test_how_many_examples_a_step_had_is_no_value_of_the_model() -> None:
    ran = timeline([*TOLD[:1], step(1, "worker-0", 1, examples=32, loss=2.5)])
    assert list(histories(ran)) == ["loss"]


def test_the_loss_is_first_then_the_accuracy() -> None:
    names = ["lr", "val_acc", "val_loss", "Accuracy", "loss"]
    assert sorted(names, key=importance) == names[::-1]
