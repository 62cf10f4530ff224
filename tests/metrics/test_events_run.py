"""A program that prints nothing: its steps are in the event files that TensorFlow writes."""

from __future__ import annotations

from pathlib import Path

from emulator.pytest_plugin.harness import Emulator
from emulator.record.events import FaultEvent, Step
from emulator.record.reader import Record

PROGRAM = """
import os, pathlib, time
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

shared = pathlib.Path(os.environ["EMULATOR_SHARED"])
saved = shared / ("saved-" + os.environ["EMULATOR_TASK"])
begin = int(saved.read_text()) if saved.exists() else 0
writer = tf.summary.create_file_writer(str(shared / "logs"))
with writer.as_default():
    for step in range(begin + 1, 61):
        time.sleep(0.05)
        tf.summary.write("loss", tf.constant(1 / step), step=step)
        if step % 10 == 0:
            writer.flush()
            saved.write_text(str(step))
    tf.summary.write("accuracy", tf.constant(0.9), step=60)
"""
SCENARIO = {
    "name": "silent",
    "framework": "tensorflow",
    "cluster": {"worker": 2},
    "metrics": {"events": "logs"},
    "restart": "on-failure",
    "success": "all-workers",
    "faults": [{"kill": "worker-1", "at": {"step": 20, "task": "worker-1"}}],
    "timeout": "5m",
    "expect": {"final_step": 60, "accuracy": 0.9, "single_chief": True, "max_restarts": 1},
}


def test_steps_of_a_silent_program_are_read_from_its_event_files(
    emulator: Emulator, tensorflow_on: str, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    program = {"source": str(tmp_path / "train.py"), "command": ["python", "train.py"]}
    result = emulator.run({**SCENARIO, "program": program}, engine=tensorflow_on)
    result.check()
    history = Record(result.folder).history
    (struck,) = [e for e in history if isinstance(e, FaultEvent) and e.stage == "triggered"]
    of = {
        task: [e for e in history if isinstance(e, Step) and e.task == task]
        for task in ("worker-0", "worker-1")
    }
    assert list(dict.fromkeys(e.step for e in of["worker-0"])) == list(range(1, 61))
    assert of["worker-0"][-1].values["accuracy"] == 0.9
    before = [e.step for e in of["worker-1"] if e.n < struck.n]
    assert before[-1] >= 20
    after = [e.step for e in of["worker-1"] if e.n > struck.n]
    assert after[-1] == 60
    # It began with what was saved.
    assert any(e.step % 10 == 1 and e.wall > struck.wall for e in of["worker-1"])
    gaps = [b.wall - a.wall for a, b in zip(of["worker-0"], of["worker-0"][1:], strict=False)]
    assert sum(gap > 0.04 for gap in gaps) > 50  # when it was recorded, not when it was flushed
