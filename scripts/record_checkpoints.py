"""Record which files real libraries save, for tests/faults/recorded/checkpoints.txt.

    python scripts/record_checkpoints.py NAME...      (without a name: all that are installed)

It prints a line for each file, the oldest first: seconds since the first, bytes, and its path,
which begins with the name of the program. This needs the libraries: tensorflow, tf_keras, keras,
torch and orbax-checkpoint. The recorded lines are of the images cpu, pytorch and jax.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

_KERAS = """
import os, time
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow as tf
import {keras} as keras
x, y = np.zeros((64, 4), "float32"), np.zeros((64, 1), "float32")
model = keras.Sequential([keras.layers.Dense(300), keras.layers.Dense(1)])
model.compile("adam", "mse")
class Stop(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if epoch == 1:
            os._exit(0)
"""
_KERAS_3, _KERAS_2 = _KERAS.format(keras="keras"), _KERAS.format(keras="tf_keras")
_MANAGER = """
model.build((None, 4))
saved = tf.train.Checkpoint(step=tf.Variable(0), kernel=model.layers[0].kernel)
"""
_TORCH = """
import os, time
import torch
import torch.distributed.checkpoint as dcp
state = {"w": torch.zeros(1000)}
"""
PROGRAMS = {
    "tf-manager": f"""{_KERAS_2}{_MANAGER}
manager = tf.train.CheckpointManager(saved, ".", max_to_keep=3)
for step in (0, 10, 20):
    manager.save(checkpoint_number=step)
    time.sleep(0.05)
""",
    "tf-prefix": f"""{_KERAS_2}{_MANAGER}
for _ in range(2):
    saved.save("ckpt")
    time.sleep(0.05)
""",
    "backup-tf_keras": f"""{_KERAS_2}
kept = keras.callbacks.BackupAndRestore(".", save_freq=1)
model.fit(x, y, epochs=3, verbose=0, callbacks=[kept, Stop()])
""",
    "backup": f"""{_KERAS_3}
model.build((None, 4))
kept = keras.callbacks.BackupAndRestore(".")
model.fit(x, y, epochs=3, verbose=0, callbacks=[kept, Stop()])
""",
    "keras": f"""{_KERAS_3}
model.build((None, 4))
for epoch in (1, 2):
    model.save(f"epoch-{{epoch:02d}}.keras")
    time.sleep(0.05)
""",
    "weights": f"""{_KERAS_3}
model.build((None, 4))
for epoch in (1, 2):
    model.save_weights(f"w{{epoch}}.weights.h5")
    time.sleep(0.05)
""",
    "saved": f"""{_KERAS_3}
model.fit(x, y, verbose=0)
model.export("1", verbose=False)
""",
    "torch": f"""{_TORCH}
for step in (100, 200):
    torch.save(state, f"model_{{step}}.pt")
    time.sleep(0.05)
""",
    "dcp": f"""{_TORCH}
for step in (10, 20):
    dcp.save(state, checkpoint_id=f"step-{{step}}")
    time.sleep(0.05)
""",
    "dcp-plain": f"""{_TORCH}
dcp.save(state, checkpoint_id="latest")
""",
    "hf": f"""{_TORCH}  # as Trainer of transformers names them
for step in (500, 1000):
    os.mkdir(f"checkpoint-{{step}}")
    for name in ("pytorch_model.bin", "optimizer.pt"):
        torch.save(state, f"checkpoint-{{step}}/{{name}}")
    open(f"checkpoint-{{step}}/trainer_state.json", "w").write("{{}}")
    time.sleep(0.05)
""",
    "orbax": """
import os, numpy, orbax.checkpoint as ocp
manager = ocp.CheckpointManager(os.getcwd())
for step in (1, 2, 3):
    manager.save(step, args=ocp.args.StandardSave({"w": numpy.zeros(1000)}))
    manager.wait_until_finished()
""",
    "orbax-plain": """
import os, numpy, orbax.checkpoint as ocp
saver = ocp.StandardCheckpointer()
saver.save(os.getcwd() + "/final", {"w": numpy.zeros(1000)})
saver.wait_until_finished()
""",
}


def main(names: list[str]) -> None:
    """Run the programs, and print what they have saved."""
    for name in names or PROGRAMS:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-c", PROGRAMS[name]]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode:
                print(f"{name}: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
                continue
            files = [path for path in Path(folder).rglob("*") if path.is_file()]
            files.sort(key=lambda path: path.stat().st_mtime_ns)
            for path in files:
                status, inside = path.stat(), os.path.relpath(path, folder)
                seconds = status.st_mtime - files[0].stat().st_mtime
                print(f"{seconds:.3f} {status.st_size} {name}/{inside}")


if __name__ == "__main__":
    main(sys.argv[1:])
