"""The numbers of a run against a recount from its logs; see `tests/recount.py`.

`agrees` looks at a finished run; the scenarios' tests call it for each of theirs. Here it is put to
a small run of shells with two restarts, and to the same with false numbers.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from emulator.analysis.throughput import curve
from emulator.record.reader import Record
from tests.recount import Recount, Work, fault_times, made, percentile, recount, saves_seen

if TYPE_CHECKING:  # the conftest.py at the top imports this where Playwright is missing
    from tests.conftest import Emulate

TEXT = """\
name: recounted
framework: none
image: none
program:
  command:
    - sh
    - -c
    - |
      last=$(cat saved 2>/dev/null || echo 0)
      echo '{"emulate": "phase", "phase": "restore", "state": "end", "step": '$last'}'
      for n in $(seq $((last + 1)) 60); do
        echo '{"emulate": "step", "step": '$n', "examples": '$((n * 8))'}'
        test $((n % 10)) = 0 && echo $n > saved
        test $n = $FAILS_AT && test ! -e failed && touch failed && exit 3
        sleep 0.01
      done
      echo '{"emulate": "step", "step": 60, "accuracy": 0.5}'
      echo >> $EMULATOR_SHARED/done
      until test $(wc -l < $EMULATOR_SHARED/done) = 3; do sleep 0.05; done
cluster:
  worker: {replicas: 2, env: {FAILS_AT: 25}}
  chief: {replicas: 1, env: {FAILS_AT: 47}}
restart: {policy: on-failure, backoff: 0.1s}
"""


STRUCK = """\
name: struck
framework: none
image: none
program:
  command:
    - sh
    - -c
    - |
      cd $EMULATOR_SHARED
      n=$(cat saved 2>/dev/null || echo 0)
      echo '{"emulate": "phase", "phase": "restore", "state": "end", "step": '$n'}'
      say() { echo '{"emulate": "phase", "phase": "checkpoint", "state": "'$1'", "step": '$n'}'; }
      trap 'say begin; echo $n > saved; say end; touch gone; exit 143' TERM
      while test $n -lt 150; do
        n=$((n + 1))
        echo '{"emulate": "step", "step": '$n'}'
        sleep 0.02
        test -e gone && rm gone && exit 9
      done
      exit 0
cluster: {worker: 2}
success: all-workers
restart: {policy: on-failure, backoff: 0.2s}
faults:
  - {preempt: worker-1, at: {step: 40, task: worker-1}, grace: 2s, down: 0.6s}
  - {pause: worker-0, at: {step: 100, task: worker-0}, for: 0.5s}
"""
"""Worker 1 is preempted and saves; worker 0 fails for it; later worker 0 is paused."""


TIMES = (
    *("applied_after", "detected_after", "saved_after"),
    *("restored_after", "first_step_after", "caught_up_after"),
)
"""Those of a fault."""


def near(value: float | None) -> Any:
    """Return what equals a number of a summary, which has few digits.

    Both are computed from the times in the record, so that no clock makes a difference.
    """
    return None if value is None else pytest.approx(value, abs=1e-3, rel=1e-3)


def agrees(folder: Path, summary: dict[str, Any]) -> Recount:
    """Look whether a summary, and the curve of a report, say what the logs say."""
    logs = recount(folder)
    assert summary["steps"]["final"] == max(one["step"] for one in logs.everything())
    assert summary["steps"]["lost"] == max(logs.lost(task) for task in logs.tasks)
    rates, work = summary["throughput"], made(folder)
    assert rates["steps_per_second"] == near(work[""].rate())
    metrics = json.loads((folder / "plan.json").read_text())["scenario"]["metrics"]
    each = metrics["examples_per_step"]
    if any("examples" in one for one in logs.everything()):
        assert rates["examples_per_second"] == near(made(folder, "examples")[""].rate())
    elif each and (rate := work[""].rate()) is not None:
        assert rates["examples_per_second"] == near(rate * each)
    else:
        assert rates["examples_per_second"] is None
    same_times(rates["step_time"], work[""].times)
    for task in logs.tasks:
        printed = logs.printed(task)
        last, rate = (printed[-1]["step"], work[task].rate()) if printed else (None, None)
        assert summary["tasks"][task]["last_step"] == last
        assert rates["tasks"][task]["steps_per_second"] == near(rate)
        same_times(rates["tasks"][task]["step_time"], work[task].times)
    same_curve(folder, summary, work)
    for fault in summary["faults"]:
        same_fault(folder, fault, work, summary)
    return logs


def same_fault(
    folder: Path, fault: dict[str, Any], work: dict[str, Work], summary: dict[str, Any]
) -> None:
    """Look at every number of a fault that was applied."""
    if fault["status"] != "applied":
        return
    times = fault_times(folder, fault["id"], fault["target"])
    trigger = times["triggered"]
    assert trigger is not None
    assert fault["triggered"] == near(trigger)
    for key in TIMES:
        if key == "saved_after" and fault["kind"] not in ("preempt", "terminate"):
            assert fault[key] is None  # there was no notice
            continue
        at = times[key]
        if key == "saved_after" and fault[key] is not None and (seen := saves_seen(folder)):
            # What was seen is as good as what was reported; it may be stamped after the end.
            ends = [one - trigger for one in (*seen, times["applied_after"]) if one is not None]
            ends += [] if at is None else [at - trigger]
            assert any(fault[key] == near(end) for end in ends)
            assert at is None or fault[key] <= at - trigger + 1e-3
            continue
        assert fault[key] == near(None if at is None else at - trigger), key
    gone, back, stepped = times["applied_after"], times["restored_after"], times["first_step_after"]
    assert gone is not None
    names = {"rate": "", "target_rate": fault["target"]}
    for name, of in ((name, work.get(task)) for name, task in names.items()):
        if of is None or not of.told:
            continue
        until = back
        if back is not None and back >= summary["duration"]:
            until = None  # only because the job was over
        if summary["outcome"] == "succeeded" and stepped is None:
            until = of.told[-1]
        during = None if until is None else of.rate_between(gone, until)
        if stepped is None and of.told[-1] <= gone:
            during = 0.0  # the job ended without another step
        rates = {
            "before": of.rate_between(max(of.told[0], trigger - 10), trigger),
            "during": during,
            "after": stepped and of.rate_between(stepped, min(stepped + 10, of.told[-1])),
        }
        for when, rate in rates.items():
            assert fault[f"{name}_{when}"] == near(rate), (name, when)


def same_times(told: dict[str, Any] | None, times: list[tuple[float, float]]) -> None:
    if told is None:
        assert times == []
        return
    number = sum(steps for _, steps in times)
    assert told["count"] in (round(number - 1e-6), round(number + 1e-6))
    assert told["mean"] == pytest.approx(sum(s * n for s, n in times) / number, abs=1e-5)
    for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)):
        assert told[name] == pytest.approx(percentile(times, share), abs=1e-5), name


def same_curve(folder: Path, summary: dict[str, Any], work: dict[str, Work]) -> None:
    """Look at each bin of each curve: what was done until its end, from what was done before."""
    record = Record(folder)
    found = curve(record.timeline, summary["duration"])
    for task, of in work.items():
        done = 0.0
        for number, rate in enumerate(found.tasks.get(task, found.job)):
            done += rate * found.width
            until = (number + 1) * found.width
            # Times are kept to a microsecond, in which steps that were read together may end.
            least, most = (of.done_until(until + off) for off in (-2e-6, 2e-6))
            assert least - 1e-3 <= done <= most + 1e-3, (task, number)


def finished(emulate: Emulate, tmp_path: Path, text: str) -> tuple[Path, dict[str, Any]]:
    path = tmp_path / "recounted.yaml"
    path.write_text(text)
    done = emulate.up(path, "--engine", "process")
    assert done.returncode == 0, done.stderr
    return emulate.out / done.json["run_id"], done.json


def is_noticed(folder: Path, summary: dict[str, Any], *where: Any) -> None:
    """Check that a summary does not agree if one of its numbers is a little greater."""
    *path, key = where
    place = wrong = copy.deepcopy(summary)
    for name in path:
        place = place[name]
    assert place[key] is not None, where
    place[key] = place[key] * 1.01 + 0.01
    with pytest.raises(AssertionError):
        agrees(folder, wrong)


def test_the_numbers_are_those_of_the_logs(emulate: Emulate, tmp_path: Path) -> None:
    folder, summary = finished(emulate, tmp_path, TEXT)
    logs = agrees(folder, summary)
    assert [logs.lost(task) for task in ("chief-0", "worker-0", "worker-1")] == [7, 5, 5]
    assert len(logs.printed("chief-0")) == 60 + 7
    assert summary["throughput"]["examples_per_second"] > 0
    for where in (
        ("steps", "final"),
        ("steps", "lost"),
        ("throughput", "steps_per_second"),
        ("throughput", "examples_per_second"),
        ("throughput", "step_time", "p99"),
        ("throughput", "step_time", "count"),
        ("throughput", "tasks", "worker-1", "steps_per_second"),
        ("throughput", "tasks", "chief-0", "step_time", "p50"),
        ("tasks", "worker-0", "last_step"),
    ):
        is_noticed(folder, summary, *where)


def test_the_numbers_of_faults_are_those_of_the_logs(emulate: Emulate, tmp_path: Path) -> None:
    folder, summary = finished(emulate, tmp_path, STRUCK)
    agrees(folder, summary)
    assert [fault["kind"] for fault in summary["faults"]] == ["preempt", "pause"]
    known = {"triggered", *TIMES, "rate_before", "rate_after"}
    known |= {"target_rate_before", "target_rate_after"}
    for number, keys in enumerate((known, known - {"detected_after", "saved_after"})):
        for key in keys:
            is_noticed(folder, summary, "faults", number, key)
