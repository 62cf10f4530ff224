"""Runs in Weights & Biases, MLflow and OpenTelemetry, written by their real clients."""

from __future__ import annotations

import json
import re
import struct
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from mlflow.tracking import MlflowClient
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from wandb.proto import wandb_internal_pb2

from emulator.analysis.analyse import analyse
from emulator.engines.memory import Script
from emulator.plugins.exports.services import SERVICES, Exported, flat
from emulator.plugins.exports.to_otel import spans_of
from emulator.record.reader import Record
from tests.cli.typed import refusal, typed
from tests.conftest import Emulate
from tests.report.runs import loss_line, ran

TEXT = """\
name: test
framework: none
program: {command: [a]}
cluster: {worker: 2}
faults: [{kill: worker-1, at: {step: 5}}]
restart: {policy: on-failure, backoff: 1s}
expect: {final_step: 10}
"""


@pytest.fixture
def record(tmp_path: Path) -> Record:
    saving = '{"emulate": "phase", "phase": "checkpoint", "state": "%s"}'
    lines = [(float(n), loss_line(n)) for n in range(1, 11)]
    lines += [(3.2, saving % "begin"), (3.7, saving % "end")]
    scripts = {"*": Script(lines=sorted(lines), exits_at=11)}
    return Record(ran(tmp_path / "recorded", TEXT, scripts, run_id="r").folder)


@pytest.fixture
def run(record: Record) -> Exported:
    return Exported(record, analyse(record.timeline))


def test_what_every_service_gets(run: Exported) -> None:
    assert run.about["emulator.run_id"] == "r"
    assert (run.about["emulator.outcome"], run.about["emulator.verdict"]) == ("succeeded", "ok")
    assert run.figures["final_step"] == 10
    assert {*run.moments} == {"job", "worker-0", "worker-1"}
    assert dict(flat(run.config))["cluster.worker.replicas"] == 2


@pytest.mark.parametrize("name", SERVICES)
def test_a_client_that_is_missing_is_said_before_anything_is_written(
    record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda library: None)
    line = refusal("export", record.path, "--csv", tmp_path / "csv", f"--{name}", "x")
    assert re.search(f"not installed here.*extra `{name}`", line)
    assert not (tmp_path / "csv").exists()


def test_mlflow_has_parameters_metrics_and_files(
    record: Record, emulate: Emulate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # the others need SQL, or a server
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "store").as_uri())
    done = emulate("export", record.path, "--mlflow", "mine").ended()
    assert done.stderr.endswith("in the experiment mine\n")
    again = typed("export", record.path, "--mlflow", "mine").ended().stderr
    assert again.endswith("replacing an earlier export\n")
    client = MlflowClient()
    experiment = client.get_experiment_by_name("mine")
    assert experiment is not None
    (made,) = client.search_runs([experiment.experiment_id])
    assert (made.info.run_name, made.info.status) == ("r", "FINISHED")
    assert made.data.params["cluster.worker.replicas"] == "2"
    assert made.data.metrics["final_step"] == 10
    losses = client.get_metric_history(made.info.run_id, "worker-0/training/loss")
    assert [(one.step, one.value) for one in losses][:2] == [(1, 1.0), (2, 0.5)]
    files = {one.path for one in client.list_artifacts(made.info.run_id)}
    assert files == {"scenario.yaml", "summary.json", "report.html"}


def wandb_records(path: Path) -> Iterator[Any]:
    """Yield what the client has written: LevelDB's log format, after a header of seven bytes."""
    data, at, block, parts = path.read_bytes(), 7, 32768, b""
    while at + 7 <= len(data):
        if block - at % block < 7:
            at += block - at % block  # the rest of a block is empty
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            record = wandb_internal_pb2.Record()  # type: ignore[attr-defined]
            record.ParseFromString(parts)
            yield record
            parts = b""


def test_weights_and_biases_has_configuration_curves_and_summary(
    record: Record, emulate: Emulate, tmp_path: Path
) -> None:
    folders = ("DIR", "CACHE_DIR", "CONFIG_DIR", "DATA_DIR", "ARTIFACT_DIR")
    environment = {f"WANDB_{name}": str(tmp_path / "wandb-home") for name in folders}
    environment["WANDB_MODE"] = "offline"
    done = emulate("export", record.path, "--wandb", "mine", env=environment, cwd=tmp_path).ended()
    assert "wandb sync" in done.stderr
    assert "Traceback" not in done.stderr
    (path,) = tmp_path.rglob("*.wandb")
    records = list(wandb_records(path))
    (begun,) = (one.run for one in records if one.HasField("run"))
    assert (begun.project, begun.display_name) == ("mine", "r")
    config = {one.key: json.loads(one.value_json) for one in begun.config.update}
    assert config["cluster"] == {"worker": {"replicas": 2}}
    assert config["emulator.verdict"] == "ok"
    rows = [
        {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in row.item}
        for row in (one.history for one in records if one.HasField("history"))
    ]
    loss = "worker-0/training/loss"
    losses = [(row["step"], row[loss]) for row in rows if loss in row]
    assert losses[:2] == [(1, 1.0), (2, 0.5)]
    seconds = [row["seconds"] for row in rows if "seconds" in row]
    assert seconds == sorted(seconds)
    assert any(key.startswith("faults") for row in rows for key in row)
    updates = [item for one in records if one.HasField("summary") for item in one.summary.update]
    assert {item.key: json.loads(item.value_json) for item in updates}["final_step"] == 10


# --- OpenTelemetry --------------------------------------------------------------------------------


def test_the_spans_of_a_run(run: Exported) -> None:
    spans = spans_of(run, "mine")
    whole, *others = spans
    assert (whole.name, whole.parent) == ("r", None)
    assert whole.attributes is not None
    assert whole.attributes["emulator.verdict"] == "ok"
    lives = [one for one in others if one.name == "worker-1"]
    assert [one.attributes["emulator.incarnation"] for one in lives] == [0, 1]  # type: ignore[index]
    assert not lives[0].status.is_ok
    (fault,) = (one for one in others if one.name.startswith("fault"))
    assert fault.name == "fault: kill worker-1"
    first = next(one for one in others if one.name == "checkpoint")
    assert (first.end_time or 0) - (first.start_time or 0) == pytest.approx(0.5e9)
    assert {one.context.trace_id for one in spans if one.context} == {whole.context.trace_id}
    assert len({one.context.span_id for one in spans if one.context}) == len(spans)
    assert None not in [one.parent for one in others]
    assert whole.start_time == min(one.start_time or 0 for one in spans)
    assert [one.context for one in spans_of(run, "mine")] == [one.context for one in spans]


class Collector(BaseHTTPRequestHandler):
    """Takes traces over HTTP as a collector does, or refuses them."""

    received: list[tuple[str, ExportTraceServiceRequest]]
    answer = 200

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        request = ExportTraceServiceRequest()
        request.ParseFromString(body)
        self.received.append((self.path, request))
        self.send_response(self.answer)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing."""


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Collector]]:
    kind = type("OneCollector", (Collector,), {"received": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
    yield kind
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_collector_gets_the_trace_and_one_that_refuses_is_one_sentence(
    record: Record, emulate: Emulate, collector: type[Collector]
) -> None:
    done = emulate("export", record.path, "--otel", "mine").ended()
    ((path, request),) = collector.received
    assert path == "/v1/traces"
    (of_service,) = request.resource_spans
    (name,) = of_service.resource.attributes
    assert (name.key, name.value.string_value) == ("service.name", "mine")
    spans = of_service.scope_spans[0].spans
    assert f"{len(spans)} spans" in done.stderr
    root = next(one for one in spans if not one.parent_span_id)
    assert root.name == "r"
    lives = {one.name for one in spans if one.parent_span_id == root.span_id}
    assert lives == {"worker-0", "worker-1", "fault: kill worker-1"}
    collector.answer = 400
    done = emulate("export", record.path, "--otel", "mine").ended(2)
    assert "collector did not take the run" in done.stderr
    assert "Traceback" not in done.stderr
