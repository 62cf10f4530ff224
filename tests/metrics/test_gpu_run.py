"""A whole run on a machine whose GPUs stand in a file: from the driver's library to the record."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emulator.metrics.catalog import GpuShare
from emulator.record.events import fields_of
from emulator.record.reader import Record
from tests.conftest import Emulate
from tests.metrics.fake_gpus import GIB, LOST, TWO, environment

Finished = tuple[Record, dict[str, Any], dict[str, Any]]
Run = Callable[[str, str], Finished]

# Says that it computes on device 0, waits until that is in the record, and then breaks device 1.
JOB = f"""
samples="$EMULATOR_FOLDER/samples.jsonl"
sed "s/^0.compute.*/0.compute $$:{3 * GIB}/" "$FAKE_NVML" > changed; mv changed "$FAKE_NVML"
until grep -q worker-0.*worker-0 "$samples" 2> /dev/null; do sleep 0.05; done
echo "1.lost {LOST}" >> "$FAKE_NVML"
until grep -q '"lost": true' "$samples"; do sleep 0.05; done
echo '{{"emulate": "step", "step": 1}}'
"""
UNTIL_TWO_SAMPLES = """
until sed -n 2p "$EMULATOR_FOLDER/samples.jsonl" 2> /dev/null | grep -q .; do sleep 0.05; done
"""


@pytest.fixture
def run(emulate: Emulate, library: Path, tmp_path: Path) -> Run:
    """Run a job of the shell with these GPUs: its record, what is sampled, and its summary."""

    def of(gpus: str, job: str) -> Finished:
        state, path = tmp_path / "gpus.txt", tmp_path / "scenario.yaml"
        state.write_text(gpus)
        path.write_text(
            "name: gpus\nframework: none\nimage: none\n"
            f"program: {{command: [sh, -c, {json.dumps(job)}]}}\n"
            "cluster: {worker: 1}\nmetrics: {interval: 100ms}\ntimeout: 5m\n"
        )
        done = emulate.up(path, "--engine", "process", env=environment(library, state))
        assert done.returncode == 0, done.stderr
        assert "GPU" not in done.stderr  # nothing to warn of
        assert "NVML" not in done.stderr
        record = Record(emulate.out / done.json["run_id"])
        (sampling,) = [fields_of(entry) for entry in record.history if entry.event == "sampling"]
        return record, sampling, done.json

    return of


def test_a_run_has_its_gpus_its_tasks_shares_and_a_device_that_is_lost(run: Run) -> None:
    record, sampling, summary = run(TWO, JOB)
    assert [gpu["uuid"] for gpu in sampling["gpus"]] == ["GPU-0", "GPU-1"]
    assert (sampling["driver"], sampling["why_no_gpus"]) == ("580.65.06", "")
    assert sampling["lacking"] == {}
    last = record.samples[-1]
    assert [gpu.lost for gpu in last.gpus] == [False, True]
    assert last.gpus[0].utilisation == 0.93
    assert last.gpus[0].tasks == {"worker-0": GpuShare(3 * GIB, 0.0)}
    assert summary["gpus"]["GPU-0"]["memory_peak"] == 10 * GIB
    assert summary["gpus"]["GPU-1"]["lost"]


def test_without_a_driver_a_run_reports_the_reason_once(run: Run) -> None:
    record, sampling, summary = run("fail.nvmlInit_v2 9\n", UNTIL_TWO_SAMPLES)
    why = "the NVIDIA driver is installed but not loaded (Driver Not Loaded)"
    assert sampling["why_no_gpus"] == why
    assert len(record.samples) > 1
    assert all(sample.gpus == () for sample in record.samples)
    assert summary["gpus"] == {}
