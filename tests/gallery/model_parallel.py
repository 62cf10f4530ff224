"""What runs of scenarios/model-parallel show beyond `expect:`; tests/stricter.py lists it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from emulator.record.events import Phase, Step
from emulator.record.reader import Record
from emulator.results import Result

SAME = 0.01
"""How far a loss may be from that of one task: sums of float32 in another order differ."""

LOSSES_OF_A_PIPELINE = {1: 2.3041, 4: 2.1291, 8: 1.4744, 12: 0.7487}
"""By step, of pipeline.py with one stage: `emulate up pipeline-gpipe --set cluster.worker=1`."""

LOSSES_OF_DTENSOR = {50: 0.5091, 100: 0.2142, 150: 0.1650, 200: 0.1405}
"""By step, of dtensor.py in one task: `emulate up dtensor --set cluster.worker=1 --set
program.env.MODEL=1`."""


def losses(run: Result) -> dict[int, float]:
    """Return the last reported loss of each step."""
    steps = [entry for entry in Record(run.folder).history if isinstance(entry, Step)]
    return {step.step: step.values["loss"] for step in steps if "loss" in step.values}


def value(run: Result, name: str) -> float:
    """Return what the tasks reported last under a name; all that did reported the same."""
    (found,) = {*run.summary["values"][name].values()}
    return float(found)


def trained_as_one_task_does(run: Result, expected: Mapping[int, float]) -> None:
    found = losses(run)
    assert {step: found[step] for step in expected} == pytest.approx(dict(expected), abs=SAME)


def a_pipeline_trains_the_same_model_whatever_its_schedule(run: Result) -> None:
    trained_as_one_task_does(run, LOSSES_OF_A_PIPELINE)
    stages = len(run.summary["tasks"])
    batch = {2: 64 + 256 + 256, 4: 64 + 256}[stages]  # KiB: 256 examples of so many float32
    gpipe = run.summary["scenario"] == "pipeline-gpipe"
    for count in (4, 8, 16):
        share = 1 if gpipe else stages / count
        assert value(run, f"kept_kib_{count}") == pytest.approx(batch * share)


def dtensor_trains_the_same_model_whatever_is_split(run: Result) -> None:
    trained_as_one_task_does(run, LOSSES_OF_DTENSOR)
    split = "MODEL=1" not in run.summary["variant"]
    assert value(run, "weights_share") == pytest.approx(0.5 if split else 1, abs=0.01)


def weights_stay_where_they_are_if_gradients_are_computed_there(run: Result) -> None:
    if run.summary["engine"] != "docker":
        return  # processes share the counters of the machine
    assert run.final_step
    received = run.summary["usage"]["chief-0"]["received"] / run.final_step  # bytes of a step
    weights = 4 * (2 * 256 * 256 + 256 * 10)  # bytes; those of the first layer are not asked for
    if "BACKWARD=chief" in run.summary["variant"]:
        assert received > weights
    else:
        assert received < weights / 10


def only_the_chief_starts_again(run: Result) -> None:
    assert {name: task["restarts"] for name, task in run.summary["tasks"].items()} == {
        "chief-0": 1,
        "worker-0": 0,
        "worker-1": 0,  # the new one is no restart by the policy
    }


def all_parts_are_restored_from_one_save(run: Result) -> None:
    restored = [
        (entry.task, entry.step)
        for entry in Record(run.folder).history
        if isinstance(entry, Phase) and (entry.phase, entry.state) == ("restore", "end")
    ]
    assert sorted(task for task, _ in restored if task) == ["worker-0", "worker-1"]
    assert len({step for _, step in restored}) == 1


STRICTER: Mapping[str, Callable[[Result], None]] = {
    "pipeline-gpipe": a_pipeline_trains_the_same_model_whatever_its_schedule,
    "pipeline-1f1b": a_pipeline_trains_the_same_model_whatever_its_schedule,
    "pipeline-preemption": all_parts_are_restored_from_one_save,
    "tensor-parallel-preemption": all_parts_are_restored_from_one_save,
    "dtensor": dtensor_trains_the_same_model_whatever_is_split,
    "layer-placement": weights_stay_where_they_are_if_gradients_are_computed_there,
    "layer-placement-preemption": only_the_chief_starts_again,
}
"""By the name of the scenario."""
