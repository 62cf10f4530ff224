"""What `/metrics` says of a run, read by Prometheus' own parsers."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families

from emulator.analysis.run_state import RunState
from emulator.metrics.catalog import GPU, GPU_SHARE, USAGE, GpuShare, GpuUsage, Usage
from emulator.metrics.samples import Sample, to_json
from emulator.planning.planner import make_plan
from emulator.plugins.exports.prometheus import STATES, Metrics, collect
from emulator.record.events import Entry, line_of
from emulator.record.remains import PORT, TOKEN
from emulator.scenario.loader import load
from emulator.supervisor.job import State
from tests.analysis.test_run_state import PREEMPT, RECORDED, ROOT, TARGET, UP, live, steps
from tests.api.test_server import client
from tests.api.test_tcp import up
from tests.conftest import Emulate
from tests.histories import (
    BEGAN,
    SITE,
    a_plan,
    began_again,
    ended,
    fault,
    happened,
    history,
    job,
    restart,
    step,
)
from tests.report.test_live_view import end_of

DASHBOARD = ROOT / "emulator" / "plugins" / "exports" / "grafana.json"
FULL = Usage(12.5, 400, 0.5, 1, 2, 3, 4, 14, 2.0, 1024, measured=BEGAN + 13.0)
DEVICE = GpuUsage(
    0, "GPU-a", "H200", 0.93, 100, 200, 212.5, 61.0, 1410.0, 1215.0, 3, 79, False,
    {"worker-0": GpuShare(100, 0.4)},
)  # fmt: skip


class OfLive:
    def __init__(self, run: RunState) -> None:
        self._run = run

    def collect(self) -> Any:
        return collect(self._run)


def page(run: RunState) -> str:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(OfLive(run))
    return generate_latest(registry).decode()


def values(text: str) -> dict[str, dict[str, float]]:
    """Return name -> labels but the run's, as they are written -> value."""
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = {k: v for k, v in sample.labels.items() if k not in ("run", "role", "uuid")}
            key = ",".join(f"{k}={v}" for k, v in labels.items())
            found.setdefault(sample.name, {})[key] = sample.value
    return found


def with_everything() -> RunState:
    """A run of which everything is known."""
    extra = "metrics: {examples_per_step: 64}\n" + PREEMPT + TARGET
    run = live([*UP, *steps(3, 13, 0, each=5)], extra)
    run.sample(Sample(13.5, BEGAN + 13.5, {"worker-0": FULL, "worker-1": FULL}, [DEVICE]))
    for entry in history([ended(14, "worker-1", 137)]):
        run.entry(entry)
    return run


def test_the_page_has_the_current_values() -> None:
    found = values(page(with_everything()))
    assert found["emulator_job_step"] == {"": 50}
    assert found["emulator_job_final_step"] == {"": 100}
    assert found["emulator_job_steps_per_second"][""] == pytest.approx(5.0)
    assert found["emulator_job_examples_per_second"][""] == pytest.approx(320.0)
    assert found["emulator_job_recovering"] == {"": 1}
    assert "emulator_job_remaining_seconds" not in found  # unknown while it recovers
    assert found["emulator_run_start_time_seconds"] == {"": BEGAN}
    states = {k: v for k, v in found["emulator_task_state"].items() if v}
    assert states == {"state=running,task=worker-0": 1, "state=ended,task=worker-1": 1}
    assert len(found["emulator_task_state"]) == 2 * len(STATES)
    assert found["emulator_task_exit_code"] == {"task=worker-1": 137}
    assert found["emulator_task_steps_total"] == {"task=worker-0": 50, "task=worker-1": 50}
    assert found["emulator_task_examples_total"]["task=worker-0"] == 3200
    assert found["emulator_task_cpu_seconds_total"] == {"task=worker-0": 12.5}  # the other ended
    assert found["emulator_task_cpu_throttled_seconds_total"] == {"task=worker-0": 0.5}
    assert found["emulator_task_memory_limit_bytes"] == {"task=worker-0": 1024}
    assert found["emulator_gpu_utilization_ratio"] == {"gpu=0,name=H200": 0.93}
    assert found["emulator_gpu_sm_clock_hertz"] == {"gpu=0,name=H200": 1.41e9}
    assert found["emulator_gpu_lost"] == {"gpu=0,name=H200": 0}
    assert found["emulator_task_gpu_utilization_ratio"] == {"gpu=0,task=worker-0": 0.4}
    assert found["emulator_faults"]["stage=waiting"] == 1
    assert found["emulator_fault_in_force"] == {"fault=0,kind=preempt,target=worker-1": 0}
    (about,) = found["emulator_run_info"]
    assert "scenario=test" in about


def test_a_fault_in_force_and_an_outcome_are_seen() -> None:
    down = happened(9, "exit", "worker-1", exit_code=1, told_to_stop=False, oom_killed=True,
                    fault="0")  # fmt: skip
    events = [*UP, fault(8, "worker-1", "triggered"), fault(9, "worker-1", "applied"), down]
    found = values(page(live(events, PREEMPT)))
    assert found["emulator_fault_in_force"] == {"fault=0,kind=preempt,target=worker-1": 1}
    assert found["emulator_faults"]["stage=applied"] == 1
    assert found["emulator_task_state"]["state=down,task=worker-1"] == 1
    assert found["emulator_task_oom_kills_total"]["task=worker-1"] == 1
    assert set(found["emulator_run_outcome"].values()) == {0}
    found = values(page(live([*events, job(10, "failed", "too late")], PREEMPT)))
    assert found["emulator_run_outcome"]["outcome=failed"] == 1
    assert found["emulator_run_phase"]["phase=ending"] == 1


def test_what_is_not_known_is_left_out() -> None:
    text = page(live([]))
    unknown = {"emulator_job_step", "emulator_task_cpu_seconds_total", "emulator_gpu_lost"}
    assert not unknown & values(text).keys()
    assert not re.search("None|NaN", text)


def test_counters_of_usage_begin_anew_and_others_do_not() -> None:
    """`rate()` takes a counter that falls for one that was reset; steps done again count again."""
    again = [restart(15, "worker-1"), *began_again(16, "worker-1")]
    run = with_everything()
    before = values(page(run))
    for entry in history([*again, happened(18, "step", "worker-1", step=20)]):
        run.entry(entry)
    run.sample(Sample(18.5, BEGAN + 18.5, {"worker-1": Usage(0.5)}))
    after = values(page(run))
    key = "task=worker-1"
    assert after["emulator_task_cpu_seconds_total"] == {key: 0.5}
    assert after["emulator_task_restarts_total"][key] == 1
    assert after["emulator_task_starts_total"][key] == 2
    assert after["emulator_job_restarts_total"] == {"": 1}
    steps_done = "emulator_task_steps_total"
    assert after[steps_done][key] == before[steps_done][key]  # the first of a life is no step done


def test_every_state_and_all_of_a_sample_are_there() -> None:
    assert set(STATES) == set(get_args(State))
    for kind, metrics, not_measured in (
        (Usage, USAGE, set()),
        (GpuUsage, GPU, {"index", "uuid", "name", "tasks"}),
        (GpuShare, GPU_SHARE, set()),
    ):
        exported = {metric.key for metric in metrics if metric.prometheus}
        assert exported | not_measured == {field.name for field in fields(kind)}


def test_names_follow_the_rules() -> None:
    families = list(text_string_to_metric_families(page(with_everything())))
    assert len(families) > 40
    for family in families:
        assert re.fullmatch(r"emulator_(run|job|task|gpu|fault|faults)[a-z_]*", family.name)
        assert family.documentation.endswith("."), family.name
        if family.type == "counter":
            assert all(sample.name.endswith("_total") for sample in family.samples)
        else:
            assert not family.name.endswith("_total")
        for sample in family.samples:
            assert "run" in sample.labels
            assert ("task" in sample.labels) == family.name.startswith("emulator_task_")


def test_large_whole_numbers_are_the_nearest_floats() -> None:
    run = live([*UP, step(3, "worker-0", 2**63 - 1), step(4, "worker-0", 2**63)])
    used = Usage(1.0, memory=2**63 - 1, received=2**63, memory_limit=2**64)
    run.sample(Sample(5.0, BEGAN + 5, {"worker-0": used}))
    found = values(page(run))
    assert found["emulator_task_step"] == {"task=worker-0": 2.0**63}
    assert found["emulator_job_step"] == {"": 2.0**63}
    assert found["emulator_task_memory_bytes"] == {"task=worker-0": 2.0**63}
    assert found["emulator_task_network_receive_bytes_total"] == {"task=worker-0": 2.0**63}
    assert found["emulator_task_memory_limit_bytes"] == {"task=worker-0": 2.0**64}


# --- From a record --------------------------------------------------------------------------------


def written(path: Path, events: Sequence[Entry]) -> None:
    with path.open("a") as file:
        file.writelines(f"{line_of(entry)}\n" for entry in history(events))


def test_each_page_continues_where_the_last_one_ended(tmp_path: Path) -> None:
    found = Metrics(tmp_path, a_plan("{worker: 2}"))
    assert "emulator_job_step " not in found.text()[0].decode()
    written(tmp_path / "history.jsonl", [*UP, *steps(3, 13, 0, each=5)])
    assert values(found.text()[0].decode())["emulator_job_step"] == {"": 50}
    usage = Sample(13.5, BEGAN + 13.5, {"worker-0": FULL})
    (tmp_path / "samples.jsonl").write_text(json.dumps(to_json(usage)) + '\n{"t": 14')
    written(tmp_path / "history.jsonl", steps(14, 14, 60))
    text = values(found.text()[0].decode())
    assert text["emulator_job_step"] == {"": 60}
    assert text["emulator_task_steps_total"]["task=worker-0"] == 60
    assert text["emulator_task_memory_bytes"] == {"task=worker-0": 400}
    assert values(found.text()[0].decode()) == text


def test_samples_that_were_thinned_meanwhile_are_not_taken_twice(tmp_path: Path) -> None:
    found = Metrics(tmp_path, a_plan("{worker: 2}"))
    written(tmp_path / "history.jsonl", UP)
    moments = [Sample(3.0 + n, BEGAN + n, {"worker-0": Usage(float(n))}) for n in range(4)]
    lines = [json.dumps(to_json(moment)) + "\n" for moment in moments]
    (tmp_path / "samples.jsonl").write_text("".join(lines))
    found.text()
    (tmp_path / "samples.jsonl").write_text(lines[1] + lines[3])
    text = values(found.text()[0].decode())
    assert text["emulator_task_cpu_seconds_total"] == {"task=worker-0": 3.0}


def test_a_recorded_run_in_both_formats(tmp_path: Path) -> None:
    plan = make_plan(
        load(ROOT / "scenarios" / "faults" / "mwms-preemption.yaml", []), "recorded", SITE
    )
    (tmp_path / "history.jsonl").write_bytes(RECORDED.read_bytes())
    found = Metrics(tmp_path, plan)
    text, kind = found.text()
    assert kind.startswith("text/plain")
    assert values(text.decode())["emulator_job_step"] == {"": 2000}
    text, kind = found.text("application/openmetrics-text; version=1.0.0")
    assert kind.startswith("application/openmetrics-text")
    names = {family.name for family in openmetrics_families(text.decode())}  # type: ignore[no-untyped-call]
    assert "emulator_task_steps" in names  # its `_total` is the sample's


# --- The dashboard --------------------------------------------------------------------------------


def queries(node: object) -> list[str]:
    if isinstance(node, dict):
        own = [v for k, v in node.items() if k in ("expr", "query") and isinstance(v, str)]
        return own + [query for value in node.values() for query in queries(value)]
    if isinstance(node, list):
        return [query for value in node for query in queries(value)]
    return []


def test_each_metric_is_documented_and_each_documented_is_one() -> None:
    documented = set()
    for line in (ROOT / "docs" / "prometheus.md").read_text().splitlines():
        if line.startswith("| `emulator_"):
            names = re.findall(r"`([a-z_]+)`", line.split("|")[1])
            documented |= {f"emulator_gpu{n}" if n.startswith("_") else n for n in names}
    exported = set(values(page(with_everything())))
    assert documented == exported | {"emulator_job_remaining_seconds"}


def test_each_metric_of_the_dashboard_is_exported() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    asked = {name for query in queries(dashboard) for name in re.findall(r"emulator_\w+", query)}
    exported = set(values(page(with_everything()))) | {"emulator_job_remaining_seconds"}
    assert len(asked) >= 15
    assert asked <= exported
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))
    assert all(panel["targets"] for panel in dashboard["panels"] if panel["type"] != "row")


def test_a_run_that_goes_on_has_the_page_on_its_socket_and_on_a_port(
    emulate: Emulate, tmp_path: Path
) -> None:
    with up(emulate, tmp_path, "--api-port", "0") as cluster:
        token = (cluster.folder / TOKEN).read_text().strip()
        cluster.wait_for(step=3, task="worker-1")
        next(cluster.samples())
        with client(cluster.folder / "api.sock") as http:
            assert "emulator_run_info" in http.get("/metrics").text
        port = int((cluster.folder / PORT).read_text())
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=300) as http:
            assert http.get("/metrics").status_code == 401
            answer = http.get("/metrics", headers={"Authorization": f"Bearer {token}"})
            assert answer.headers["content-type"].startswith("text/plain")
            found = values(answer.text)
            assert found["emulator_job_step"][""] >= 3
            assert found["emulator_task_state"]["state=running,task=worker-1"] == 1
            assert found["emulator_task_memory_bytes"]["task=worker-0"] > 0
        end_of(emulate)
        cluster.wait()
