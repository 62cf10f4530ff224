"""What runs of certain scenarios show beyond `expect:`; the `conftest.py` at the top calls it.

In this way a scenario that takes a minute is run once, and not again for a test of its own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping

import yaml

from benchmarks.gallery.graph_faults import goes_back, paces, trains_again
from emulator.record.events import Phase, Step, TaskStart, fields_of
from emulator.record.reader import Record
from emulator.results import Result
from emulator.runtime.bundled import ROOT
from scenarios.costs.costs import Costs, costs_of
from tests.gallery import model_parallel

PRICES = ROOT / "scenarios" / "costs" / "prices" / "examples.yaml"


def told_workers_save_together_and_lose_no_step(run: Result) -> None:
    (fault,) = run.analysis.faults
    assert (fault.status, fault.exit_code, fault.killed) == ("applied", 42, False)
    assert (run.restarts, run.lost_steps) == (1, 0)
    history = Record(run.folder).history
    assert [fields_of(e)["exit_code"] for e in history if e.event == "exit"] == [42, 42, 0, 0]
    told = [
        (e.task, fields_of(e))
        for e in history
        if e.event == "phase" and fields_of(e)["state"] == "end"
    ]
    for worker in ("worker-0", "worker-1"):
        mine = [data for task, data in told if task == worker]
        first, last = (data["step"] for data in mine if data["phase"] == "checkpoint")
        restored = [data["step"] for data in mine if data["phase"] == "restore"]
        assert 60 < first < last < 200  # at the notice, and at the end of the grace period
        assert restored == [last]


def torchrun_takes_the_lost_worker_back(run: Result) -> None:
    (fault,) = run.analysis.faults
    assert fault.status == "applied"
    history = Record(run.folder).history
    restored = Counter(
        e.task for e in history if isinstance(e, Phase) and (e.phase, e.state) == ("restore", "end")
    )
    assert restored == {"worker-0": 2, "worker-1": 1}  # alone, and together at the first try
    last = {e.task: e.step for e in history if isinstance(e, Step)}
    assert last == {"worker-0": 800, "worker-1": 800}
    output = "".join(path.read_text() for path in (run.folder / "logs").glob("*.log"))
    assert "only used for static" not in output  # torchrun's warning of a fixed rank


def the_clients_session_goes_back_in_the_same_process(run: Result) -> None:
    history = Record(run.folder).in_time_order
    assert 0 < goes_back(history, "0", "chief-0") <= 120
    assert [e.task for e in history if isinstance(e, TaskStart)].count("chief-0") == 1


def a_chief_takes_back_what_the_other_did_alone(run: Result) -> None:
    history = Record(run.folder).in_time_order
    assert goes_back(history, "0", "worker-0") > 100  # more than an interval between two saves
    assert goes_back(history, "1", "worker-0") == 0
    again = trains_again(history, "1", "worker-1", "worker-0")
    before, away = paces(history, "1", again)
    assert away > 0.15 * before  # the chief continues alone


def a_chief_takes_back_what_was_not_saved(run: Result) -> None:
    history = Record(run.folder).in_time_order
    assert goes_back(history, "0", "worker-0") == 0
    assert 0 < goes_back(history, "1", "worker-0") <= 120


def workers_resume_from_the_same_step(run: Result) -> None:
    ends = [e for e in Record(run.folder).history if isinstance(e, Phase) and e.state == "end"]
    restored = {e.task: e.step for e in ends if e.phase == "restore"}
    assert restored.keys() == {"worker-0", "worker-1"}
    (step,) = set(restored.values())
    assert step in [e.step for e in ends if (e.phase, e.task) == ("checkpoint", "worker-0")]


def the_second_evaluator_begins_with_the_newest_checkpoint(run: Result) -> None:
    saved, evaluated = set(), []
    for event in Record(run.folder).history:
        if isinstance(event, Phase) and (event.phase, event.state) == ("checkpoint", "begin"):
            saved.add(event.step)
        elif isinstance(event, Step) and event.task == "evaluator-0":
            assert event.step in saved
            evaluated.append((event.step, event.values["evaluated"]))
    steps, counts = zip(*evaluated, strict=True)
    assert counts.count(1) == 2  # it counts from its start
    second = counts.index(1, 1)
    assert steps[second] - steps[second - 1] > 200  # what was saved meanwhile is skipped


def priced(run: Result) -> Costs:
    """Return what a run cost, by the examples of prices."""
    return costs_of(run.folder, yaml.safe_load(PRICES.read_text(encoding="utf-8")))


def spot_machines_are_not_paid_for_while_they_are_down(run: Result) -> None:
    found = priced(run)
    stays, lost = (found.paid[name] for name in ("worker-0", "worker-1"))
    assert stays - lost > 2  # two preemptions, each of which takes the machine for 2 s
    assert found.preemptions == 2
    # Both machines are there in most of this time; it is most of what two preemptions take.
    assert 0.5 < found.lost / (2 * 0.12 * found.seconds / 3600) < 1
    assert 0 < found.lost < found.total
    # If both were paid for all the time, the break-even would be where the lost share of the time
    # equals the discount; what is down costs nothing, so that it comes a little earlier.
    assert found.break_even is not None
    each = found.seconds / found.preemptions
    assert each < found.break_even < each / (1 - 0.12 / 0.40)


def machines_that_stay_cost_their_price_for_all_of_the_run(run: Result) -> None:
    found = priced(run)
    assert (found.preemptions, found.lost, found.break_even) == (0, 0.0, None)
    assert run.analysis.time["wasted"] == run.analysis.time["recovery"] == 0
    for paid in found.paid.values():
        # From a start until the outcome, or the task's end just before.
        assert 0.5 < paid / run.analysis.duration <= 1


def nothing_is_restored(run: Result) -> None:
    history = Record(run.folder).history
    assert not [e for e in history if isinstance(e, Phase) and e.phase in ("checkpoint", "restore")]
    assert run.lost_steps is not None
    assert run.lost_steps >= 110  # all steps, at least those before the first preemption


def the_best_interval_is_near_the_formulas(run: Result) -> None:
    from benchmarks.gallery.recovery_ladder import costs, daly, young

    measured = costs(run.summary)
    for formula in (young, daly):
        best = formula(measured.save, measured.mtbf)
        assert measured.best / 4 <= best <= 4 * measured.best
        near = measured.efficiencies[measured.nearest(best)]
        assert near > 0.6 * measured.efficiencies[measured.best]


KEEPS = {
    "preempted-plain": "REACT=notice|like=(kubernetes|gce-spot) .*REACT=signal",
    "preempted-handler": "kubernetes|slurm-preempt",
    "preempted-handler-mended": "kubernetes|slurm-preempt|gce-spot",
    "preempted-torchrun": "like=(kubernetes|slurm-preempt) .*LOADER=ignores",
    "preempted-lightning": "RESUME=(auto|newest)",
    "preempted-transformers": "kubernetes|gke|slurm-preempt",
    "preempted-orbax": "kubernetes|slurm-preempt",
}
"""Variants that save at the notice."""
BEGINS = {"preempted-handler": "gce-spot|power-loss", "preempted-lightning-unasked": "RESUME=auto"}
"""Variants that begin from scratch."""


def what_a_preemption_costs_is_what_the_gallery_says(run: Result) -> None:
    scenario, variant = run.summary["scenario"], run.summary["variant"]
    assert run.lost_steps is not None
    if scenario in KEEPS and re.search(KEEPS[scenario], variant):
        assert run.lost_steps <= 5
    if scenario in BEGINS and re.search(BEGINS[scenario], variant):
        assert run.lost_steps > 50


STRICTER: Mapping[str, Callable[[Result], None]] = {
    "spot-machines": spot_machines_are_not_paid_for_while_they_are_down,
    "on-demand-machines": machines_that_stay_cost_their_price_for_all_of_the_run,
    "own-machines": machines_that_stay_cost_their_price_for_all_of_the_run,
    "mwms-grace": told_workers_save_together_and_lose_no_step,
    "mwms-ring": workers_resume_from_the_same_step,
    "ps-evaluator": the_second_evaluator_begins_with_the_newest_checkpoint,
    "elastic-torchrun": torchrun_takes_the_lost_worker_back,
    "in-graph": the_clients_session_goes_back_in_the_same_process,
    "between-graph": a_chief_takes_back_what_the_other_did_alone,
    "between-graph-sync": a_chief_takes_back_what_was_not_saved,
    **model_parallel.STRICTER,
    **dict.fromkeys({*KEEPS, *BEGINS}, what_a_preemption_costs_is_what_the_gallery_says),
    "ladder-no-checkpoint": nothing_is_restored,
    "checkpoint-interval": the_best_interval_is_near_the_formulas,
}
"""By the name of the scenario."""
