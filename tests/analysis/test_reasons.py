"""Why expectations were not met, in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import pytest

from emulator.analysis import expectations as checks
from emulator.analysis.analyse import analyse
from emulator.analysis.expectations import Verdict
from emulator.analysis.invariants import ALWAYS
from emulator.analysis.reasons import MEANS, REASONS, Evidence, reason_of
from emulator.scenario.schema import Expectations
from tests.histories import (
    Told,
    began_again,
    ended,
    fault,
    happened,
    in_time,
    job,
    phase,
    restart,
    restored,
    step,
    steps_of,
    timeline,
)

TWO = ("worker-0", "worker-1")


def why(
    told: Sequence[Told], expect: str, extra: str = "", cluster: str = "{worker: 2}"
) -> dict[str, str]:
    """Return the reason of each expectation that is not met, by its name."""
    replay = timeline(told, cluster, f"expect: {{{expect}}}\n{extra}")
    found = Evidence(analyse(replay), replay)
    verdicts = checks.judge(replay.plan.scenario.expect, found.analysis, replay)
    return {v.expectation: reason_of(v, found) for v in verdicts if v.status != "ok"}


KILLED = [
    happened(0, "run"),
    *began_again(0, *TWO),
    *steps_of("worker-0", {2: 1, 3: 400, 5: 990}),
    *steps_of("worker-1", {2.1: 1, 3.1: 401, 5.1: 1000}),
    fault(6, "worker-1", "triggered", "kill"),
    ended(6.1, "worker-1", 137),
    fault(6.1, "worker-1", "applied", "kill", exit_code=137),
    restart(6.2, "worker-1", "job"),
    ended(6.5, "worker-0", 143, told=True),
    *began_again(8, *TWO),
    *steps_of("worker-0", {12: 1, 13: 900, 14: 1200}),
    *steps_of("worker-1", {12.1: 1, 13.1: 900, 14.1: 1201}),
    *(ended(15, name, 0) for name in TWO),
    job(15),
]
KILL = "faults: [{kill: worker-1, at: {step: 1000}}]\nrestart: {policy: on-failure}\n"


def test_there_is_a_reason_for_each_expectation_and_for_nothing_else() -> None:
    fields = {*Expectations.model_fields} | {"faults"} | {*ALWAYS}
    assert {*REASONS} == fields
    assert {*MEANS} < fields


def test_a_verdict_that_is_ok_has_none_and_one_of_a_run_that_was_cut_off_says_so() -> None:
    replay = timeline([*KILLED[:6], job(9, "interrupted", "by SIGINT")])
    found = Evidence(analyse(replay), replay)
    assert reason_of(Verdict("outcome", "ok", "", ""), found) == ""
    said = reason_of(Verdict("final_step", "unknown", "", ""), found)
    assert said == "The job was cut off after 9.00s: by SIGINT."
    assert reason_of(Verdict("newer.key", "failed", "", ""), found).startswith("The record does")


def test_lost_steps_name_what_ended_the_task_and_why_it_went_on_where_it_did() -> None:
    (said,) = why(KILLED, "max_lost_steps: 100", KILL).values()
    assert said == (
        "worker-1 was ended by fault 0 (kill) at step 1,000; all tasks were restarted; worker-1 "
        "went on from step 0, and no checkpoint had been reported; 1,000 steps were done again."
    )
    saved = [*KILLED, *phase(3.5, 4, "worker-0", "checkpoint", step=300)]
    (said,) = why(in_time(saved), "max_lost_steps: 100", KILL).values()
    assert "went on from step 0, although a checkpoint of step 300 had been saved;" in said
    again = step(12.1, "worker-1", 1)
    resumed = [step(12.1, "worker-1", 301) if one == again else one for one in saved]
    resumed.append(restored(11, "worker-1", 300))
    (said,) = why(in_time(resumed), "max_lost_steps: 100", KILL).values()
    # worker-0 reports no restore, so it is now the one that lost most.
    assert "worker-0 went on from step 0, although" in said
    assert said.startswith("worker-1 was ended by fault 0 (kill) at step 1,000; all tasks")


def test_a_task_that_goes_back_while_it_runs_is_said_to() -> None:
    told = [happened(0, "run"), *began_again(0, "worker-0"), *steps_of("worker-0", {2: 1, 3: 50})]
    told += [restored(4, "worker-0", 20), step(5, "worker-0", 60), job(6)]
    (said,) = why(told, "max_lost_steps: 1", cluster="{worker: 1}").values()
    assert said == (
        "worker-0 went back while it ran, at step 50; worker-0 went on from step 20, which it "
        "restored; 30 steps were done again."
    )


@pytest.mark.parametrize(
    ("expect", "name", "words"),
    [
        ("max_restarts: 0", "max_restarts",
         "worker-1 was ended by fault 0 (kill) at step 1,000; all tasks were restarted (6.10s)."),
        ("recovers_within: 1s", "recovers_within",
         "worker-1 failed (exit code 137) at 6.10s: 5.90s, of which 2.90s until it ran again, and "
         "3.00s until the job's next step."),
        ("min_goodput: 0.9", "min_goodput",
         "Besides training, the time went into: recovery 6.00s (40%)"),
        ("final_step: 5000", "final_step",
         "The program ended by itself: worker-0 finished. The furthest step, 1,201, was of "
         "worker-1, 0.90s before the end."),
        ("accuracy: 0.9", "accuracy", "No task reported accuracy. They reported no value."),
        ("steps: none", "steps", "Steps were read from"),
        ("throughput: {min: 1000000}", "throughput.min",
         "Besides training, the time went into rec"),
        ("throughput: {during: {min: 0.5}}", "throughput.during.min",
         "Fault 0 (kill worker-1): "),
        ("bytes_per_step: {worker: {sent: {max: 1m}}}", "bytes_per_step.worker.sent.max",
         "The bytes of worker were not counted"),
        ("never_from_scratch: true", "never_from_scratch", "The record has no"),
        ("steps_exactly_once: true", "steps_exactly_once", "worker-"),
        ("outcome: failed", "outcome", "The job succeeded, which was not expected: worker-0 fin"),
    ],
)  # fmt: skip
def test_each_reason_names_what_the_record_shows(expect: str, name: str, words: str) -> None:
    said = why(KILLED, expect, KILL)
    assert said[name].startswith(words), said


def test_a_value_is_named_with_its_tasks_and_where_it_was_reported() -> None:
    told = [happened(0, "run"), *began_again(0, "worker-0"), step(2, "worker-0", 9, loss=0.5)]
    told += [ended(3, "worker-0", 0), job(3)]
    said = why(told, "values: {loss: {max: 0.1}, other: {min: 1}}", cluster="{worker: 1}")
    assert said["values.loss.max"].startswith(
        "The last values of loss were: worker-0 0.5 at step 9"
    )
    assert said["values.other.min"] == "No task reported other. Reported were loss."


def test_a_job_that_failed_or_ran_out_of_time_says_what_was_last() -> None:
    begun = [happened(0, "run"), *began_again(0, "worker-0"), step(2, "worker-0", 1234)]
    failed = [*begun, ended(3, "worker-0", 1, oom=True)]
    failed += [happened(3, "job", "worker-0", outcome="failed", reason="worker-0 failed")]
    said = why(failed, "final_step: 2000", cluster="{worker: 1}")
    reason = "worker-0 ran out of memory at step 1,234; it was not restarted (policy never)."
    assert said == {"outcome": reason, "final_step": reason}
    late = [*begun, job(60, "timeout", "the time limit")]
    said = why(late, "", "timeout: 60s\n", cluster="{worker: 1}")
    limit = "The job ran into its time limit of 1m 00s; the last step was 1,234, at 2.00s."
    assert said == {"outcome": limit}


def test_a_fault_that_did_not_happen_says_for_what_it_waited() -> None:
    told = [happened(0, "run"), *began_again(0, *TWO), step(2, "worker-0", 5), job(9)]
    said = why(told, "max_lost_steps: 9", KILL)
    assert said["faults"] == (
        "Fault 0 (kill worker-1), pending: its trigger (step 1000) did not come before the end, "
        "at 9.00s."
    )


def test_outcomes_are_those_of_the_schema() -> None:
    """Each outcome that can be expected has words."""
    for outcome in get_args(Expectations.model_fields["outcome"].annotation):
        told = [happened(0, "run"), *began_again(0, *TWO), job(9, outcome, "it did")]
        other = "failed" if outcome == "succeeded" else "succeeded"
        assert why(told, f"outcome: {other}")["outcome"].endswith(".")
