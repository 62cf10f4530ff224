"""A whole run on a machine whose GPUs stand in a file: from the driver's library to the record."""

from __future__ import annotations

import json
from pathlib import Path

from emulator.metrics.catalog import GpuShare
from emulator.record.events import fields_of
from emulator.record.reader import Record
from tests.conftest import Emulate
from tests.metrics.fake_gpus import GIB, LOST, TWO, environment

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


def test_a_run_has_its_gpus_its_tasks_shares_and_a_device_that_is_lost(
    emulate: Emulate, tmp_path: Path, library: Path
) -> None:
    state = tmp_path / "gpus.txt"
    state.write_text(TWO)
    path = tmp_path / "scenario.yaml"
    path.write_text(
        "name: gpus\nframework: none\nimage: none\n"
        f"program: {{command: [sh, -c, {json.dumps(JOB)}]}}\n"
        "cluster: {worker: 1}\nmetrics: {interval: 100ms}\ntimeout: 5m\n"
    )
    done = emulate.up(path, "--engine", "process", env=environment(library, state))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("GPU") == 0  # nothing to warn of
    record = Record(Path(emulate.out / done.json["run_id"]))
    (sampling,) = [fields_of(entry) for entry in record.history if entry.event == "sampling"]
    assert [gpu["uuid"] for gpu in sampling["gpus"]] == ["GPU-0", "GPU-1"]
    assert (sampling["driver"], sampling["why_no_gpus"], sampling["lacking"]) == (
        "580.65.06",
        "",
        {},
    )
    last = record.samples[-1]
    assert [gpu.lost for gpu in last.gpus] == [False, True]
    assert last.gpus[0].utilisation == 0.93
    assert last.gpus[0].tasks == {"worker-0": GpuShare(3 * GIB, 0.0)}
    assert done.json["gpus"]["GPU-0"]["memory_peak"] == 10 * GIB
    assert done.json["gpus"]["GPU-1"]["lost"]


def test_without_a_driver_a_run_reports_the_reason_once(
    emulate: Emulate, tmp_path: Path, library: Path
) -> None:
    state = tmp_path / "gpus.txt"
    state.write_text("fail.nvmlInit_v2 9\n")
    path = tmp_path / "scenario.yaml"
    path.write_text(
        "name: gpus\nframework: none\nimage: none\n"
        f"program: {{command: [sh, -c, {json.dumps(UNTIL_TWO_SAMPLES)}]}}\n"
        "cluster: {worker: 1}\nmetrics: {interval: 100ms}\ntimeout: 5m\n"
    )
    done = emulate.up(path, "--engine", "process", env=environment(library, state))
    assert done.returncode == 0, done.stderr
    assert "GPU" not in done.stderr
    assert "NVML" not in done.stderr
    record = Record(Path(emulate.out / done.json["run_id"]))
    (sampling,) = [fields_of(entry) for entry in record.history if entry.event == "sampling"]
    assert sampling["why_no_gpus"] == (
        "the NVIDIA driver is installed but not loaded (Driver Not Loaded)"
    )
    assert len(record.samples) > 1
    assert all(sample.gpus == () for sample in record.samples)
    assert done.json["gpus"] == {}
