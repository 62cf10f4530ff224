"""A program of Keras that prints nothing of its own, as people bring it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from emulator.pytest_plugin.harness import Emulator
from emulator.record.events import FaultEvent, Step
from emulator.record.reader import Record

PROGRAM = """
import os, sys, time
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
if sys.argv[1] == "2":
    import tf_keras as keras
else:
    import keras

class Slow(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.05)

keras.utils.set_random_seed(1)
x = np.random.rand(1280, 8).astype("float32")
y = (x.sum(axis=1) > 4).astype("int64")
model = keras.Sequential([keras.layers.Dense(16, activation="relu"), keras.layers.Dense(2)])
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.Adam(0.03), loss, metrics=["accuracy"])
model.fit(x, y, batch_size=32, epochs=3, validation_split=0.2, callbacks=[Slow()])
"""
STEPS = 32
"""Of an epoch."""
SCENARIO: Mapping[str, Any] = {
    "name": "keras-fit",
    "framework": "tensorflow",
    "cluster": {"worker": 1},
    "faults": [
        {"pause": "worker-0", "at": {"step": step}, "for": "0.3s"} for step in (10, STEPS + 10)
    ],
    "timeout": "5m",
    "expect": {"outcome": "succeeded", "final_step": 3 * STEPS, "accuracy": 0.8},
}


@pytest.mark.parametrize("keras", [2, 3])
def test_steps_within_an_epoch_and_the_accuracy_are_read(
    emulator: Emulator, tensorflow_on: str, tmp_path: Path, keras: int
) -> None:
    (tmp_path / "fit.py").write_text(PROGRAM)
    command = ["python", "fit.py", str(keras)]
    program = {"source": str(tmp_path / "fit.py"), "command": command}
    result = emulator.run({**SCENARIO, "program": program}, engine=tensorflow_on)
    result.check()
    history = Record(result.folder).history
    struck = [e.n for e in history if isinstance(e, FaultEvent) and e.stage == "triggered"]
    assert len(struck) == 2
    for epoch, n in enumerate(struck):
        *_, before = [e.step for e in history[:n] if isinstance(e, Step)]
        assert epoch * STEPS + 10 <= before < (epoch + 1) * STEPS
    ends = [e for e in history if isinstance(e, Step) and e.values]
    assert [e.step for e in ends] == [STEPS, 2 * STEPS, 3 * STEPS]
    for end in ends:
        assert {"loss", "accuracy", "val_loss", "val_accuracy"} <= {*end.values}
