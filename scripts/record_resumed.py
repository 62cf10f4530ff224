"""Record what programs print before they are killed and after they have resumed.

Each program runs twice in one folder. In its first run it kills itself with SIGKILL after the step
`LAST`; in the second it resumes from what it has saved, and ends. It notes every step that it has
done in a file of its own: what is true does not come from what is printed.

    python -m scripts.record_resumed NAME...      (without a name: all)

The two outputs are NAME-1.txt and NAME-2.txt in tests/metrics/recorded, and the true steps are in
`truths.json` there. This needs torch, lightning, transformers, accelerate, tqdm, pytorch-ignite,
tensorflow and tf_keras.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from scripts.record_progress import FOLDER, QUIET, TORCH

TRUTHS = FOLDER / "truths.json"

_BEGIN = """
import json, os, signal, sys, time
first_run = not os.path.exists("begun")
open("begun", "w").close()
def done(step, last={last}):
    "Note that a step was done; the first run ends after the step `last`."
    with open(f"steps-{{os.environ.get('RANK', '0')}}", "a") as file:
        file.write(f"{{step}}\\n")
    if first_run and step >= last:
        sys.stdout.flush()
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
def save(step):
    with open("saved.new", "w") as file:
        file.write(str(step))
    os.replace("saved.new", "saved")
def restored():
    return int(open("saved").read()) if os.path.exists("saved") else 0
"""
_LOOP = """
for step in range(restored() + 1, 61):
    time.sleep(0.02)
    {prints}
    if step % 20 == 0:
        save(step)
    done(step)
"""
_EPOCHS = """
for epoch in range(restored() // 20, 3):
    for batch in {batches}:
        time.sleep(0.02)
        step = epoch * 20 + batch + 1
        {prints}
        done(step)
    {summary}
    save(epoch * 20 + 20)
"""


def _lines(prints: str, *, before: str = "") -> str:
    return _BEGIN.format(last=47) + before + _LOOP.format(prints=prints)


def _epochs(prints: str, *, batches: str = "range(20)", summary: str = "pass") -> str:
    texts = {"prints": prints, "batches": batches, "summary": summary}
    return _BEGIN.format(last=47) + "from tqdm import tqdm\n" + _EPOCHS.format(**texts)


_LIGHTNING = (
    _BEGIN.format(last=47)
    + TORCH
    + """
import lightning as L
from lightning.pytorch.callbacks import ModelCheckpoint, TQDMProgressBar
class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter([(x[n], y[n]) for n in range(640)])
class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = model
    def training_step(self, batch, _):
        time.sleep(0.02)
        loss = nn.functional.cross_entropy(self.model(batch[0]), batch[1])
        self.log("train_loss", loss, prog_bar=True)
        return loss
    def on_train_batch_end(self, *_):
        done(self.trainer.global_step)
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 0.01)
{data}
trainer = L.Trainer({limit}, accelerator="cpu", logger=False, enable_model_summary=False,
    callbacks=[TQDMProgressBar(refresh_rate=1), ModelCheckpoint("kept", save_last=True,
               every_n_train_steps=10)])
trainer.fit(Model(), torch.utils.data.DataLoader(data, batch_size=32),
            ckpt_path="kept/last.ckpt" if os.path.exists("kept/last.ckpt") else None)
"""
)
_HUGGING_FACE = (
    _BEGIN.format(last=47)
    + TORCH
    + """
import transformers
from transformers import Trainer, TrainerCallback, TrainingArguments
transformers.logging.set_verbosity_info()
class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = model
    def forward(self, features, labels):
        time.sleep(0.02)
        logits = self.model(features)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}
class Note(TrainerCallback):
    def on_step_end(self, arguments, state, control, **_):
        done(state.global_step)
data = [{"features": a, "labels": b} for a, b in zip(x, y)]
arguments = TrainingArguments(
    output_dir="kept", per_device_train_batch_size=32, num_train_epochs=3, logging_steps=10,
    save_steps=10, report_to=[], use_cpu=True, log_level="info")
Trainer(Classifier(), arguments, train_dataset=data, callbacks=[Note()]).train(
    resume_from_checkpoint=not first_run)
"""
)
_KERAS = (
    _BEGIN.format(last=47)
    + """
import numpy as np
{imports}
class Note(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.02)
        done(self.epoch * 20 + batch + 1)
keras.utils.set_random_seed(1)
x = np.random.rand(640, 8).astype("float32")
y = (x.sum(axis=1) > 4).astype("int64")
model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(2)])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
def examples():
    for n in range(20):
        yield x[n * 32:n * 32 + 32], y[n * 32:n * 32 + 32]
shapes = (tf.TensorSpec((None, 8)), tf.TensorSpec((None,), tf.int64))
stream = tf.data.Dataset.from_generator(examples, output_signature=shapes)
backup = keras.callbacks.BackupAndRestore("kept")
model.fit({data}, epochs=3, verbose=1, callbacks=[backup, Note()])
"""
)
_KERAS_2 = "import tf_keras as keras; import tensorflow as tf"
_KERAS_3 = "import keras; import tensorflow as tf"
_IGNITE = (
    _BEGIN.format(last=47)
    + TORCH
    + """
from ignite.engine import Engine, Events
from ignite.contrib.handlers import ProgressBar
def train(engine, batch):
    time.sleep(0.02)
    return 1 / engine.state.iteration
trainer = Engine(train)
ProgressBar(persist=True).attach(trainer, output_transform=lambda loss: {"loss": loss})
@trainer.on(Events.ITERATION_COMPLETED)
def note(engine):
    done(engine.state.iteration)
@trainer.on(Events.EPOCH_COMPLETED)
def keep(engine):
    save(engine.state.iteration)
if not first_run:
    trainer.load_state_dict({"iteration": restored(), "epoch_length": 20, "max_epochs": 3})
trainer.run(range(20), max_epochs=3, epoch_length=20)
"""
)
_RANKS = (
    _BEGIN.format(last=47)
    + """
import torch.distributed as dist, torch
from tqdm import tqdm
dist.init_process_group("gloo")
rank = dist.get_rank()
for epoch in range(restored() // 20, 3):
    for batch in tqdm(range(20){title}):
        time.sleep(0.03 + 0.02 * rank)
        if batch % 4 == 3:
            dist.all_reduce(torch.ones(1))
        done(epoch * 20 + batch + 1)
    dist.barrier()
    if rank == 0:
        save(epoch * 20 + 20)
"""
)
_SENTENCES = """
if not first_run:
    print(f"[INFO] Resuming training from checkpoint at global step {restored()}", flush=True)
    print(f"Loading weights from out/global_step{restored()}/mp_rank_00.pt", flush=True)
print("Config: total step = 60, save every step = 20", flush=True)
"""

PROGRAMS = {
    "resumed-hugging-face": _HUGGING_FACE,
    "resumed-lightning": _LIGHTNING.replace(
        "{data}", "data = torch.utils.data.TensorDataset(x, y)"
    ).replace("{limit}", "max_epochs=3"),
    "resumed-lightning-stream": _LIGHTNING.replace("{data}", "data = Stream()").replace(
        "{limit}", "max_steps=60"
    ),
    "resumed-keras-2": _KERAS.replace("{imports}", _KERAS_2).replace("{data}", "x, y"),
    "resumed-keras-3": _KERAS.replace("{imports}", _KERAS_3).replace("{data}", "x, y"),
    "resumed-keras-2-unknown-size": _KERAS.replace("{imports}", _KERAS_2).replace(
        "{data}", "stream"
    ),
    "resumed-keras-3-unknown-size": _KERAS.replace("{imports}", _KERAS_3).replace(
        "{data}", "stream"
    ),
    "resumed-ignite": _IGNITE,
    "resumed-tqdm-epochs": _epochs("pass", batches='tqdm(range(20), desc=f"Epoch {epoch}")'),
    "resumed-tqdm-initial": _BEGIN.format(last=47)
    + "from tqdm import tqdm\nbar = tqdm(total=60, initial=restored())\n"
    + _LOOP.format(prints="bar.update(1)"),
    "resumed-tqdm-left": _BEGIN.format(last=47)
    + "from tqdm import tqdm\n"
    + _LOOP.replace("range(restored() + 1, 61)", "tqdm(range(restored() + 1, 61))").format(
        prints="pass"
    ),
    "resumed-bar-and-lines": _epochs(
        "if step % 5 == 0: tqdm.write(f'step {step}: loss {1 / step:.4f}')",
        batches='tqdm(range(20), desc=f"Epoch {epoch + 1}")',
        summary='print(f"Epoch {epoch + 1}, Loss: {1 / step:.4f}", flush=True)',
    ),
    "ranks": _RANKS.replace("step, last=47", "step, last=999").replace("{title}", ""),
    "resumed-ranks": _RANKS.replace("{title}", ', desc=f"Epoch {epoch}"'),
    "resumed-step-loss": _lines(
        "print(f'step {step}: loss {1 / step:.4f}', flush=True)", before=_SENTENCES
    ),
    "resumed-logger": _lines(
        "logging.info('global_step=%d, loss=%.4f, lr=1e-4', step, 1 / step)",
        before="import logging\n"
        "logging.basicConfig(format='%(asctime)s - %(name)s - %(levelname)s - %(message)s',"
        " level=logging.INFO)\n" + _SENTENCES,
    ),
    "resumed-epoch-step": _epochs(
        "print(f'Epoch [{epoch + 1}/3], Step [{batch + 1}/20], Loss: {1 / step:.4f}', flush=True)"
    ),
    "resumed-cifar": _epochs("print(f'[{epoch + 1}, {batch + 1:5d}] loss: {1 / step:.3f}')")
    .replace("import json, os", "import functools, json, os")
    .replace("def save(", "print = functools.partial(print, flush=True)\ndef save("),
    "resumed-nanogpt": _lines(
        "print(f'iter {step}: loss {1 / step:.4f}, time 20.00ms, mfu 1.00%', flush=True)\n"
        "    if step % 20 == 0:\n"
        "        print(f'step {step}: train loss 0.5, val loss 0.6', flush=True)\n"
        "        print('saving checkpoint to out', flush=True)"
    ),
    "resumed-megatron": _lines(
        "print(f' [2026-11-29 05:00:00.000] iteration {step:8d}/      60 | consumed samples:'"
        " f' {step * 16:12d} | elapsed time per iteration (ms): 20.1 | learning rate: 1.0E-04 |'"
        " f' global batch size:    16 | lm loss: {1 / step:.6E} | loss scale: 1.0 |'"
        " ' grad norm: 1.1 | number of skipped iterations:   0 |', flush=True)",
        before="print(' > loading checkpoint from out at iteration', restored(), flush=True)\n",
    ),
    "resumed-deepspeed": _lines(
        "print(f'[2026-11-29 05:00:00,000] [INFO] [logging.py:96:log_dist] [Rank 0] step={step},'"
        " ' skipped=0, lr=[0.0001], mom=[(0.9, 0.999)]', flush=True)",
        before="if not first_run:\n"
        "    print(f'[Rank 0] Loading checkpoint: out/global_step{restored()}/mp_rank_00.pt')\n",
    ),
    "resumed-torchrun-tee": _lines(
        "for r in (0, 1): print(f'[default{r}]:step: {step} loss: {1 / step:.4f}', flush=True)"
    ),
}
WITH_RANKS = {"ranks", "resumed-ranks"}
"""Two ranks of torchrun, which draw on one output."""
ONCE = {"ranks"}
"""Programs that are not killed."""


def _command(name: str, program: Path) -> list[str]:
    if name in WITH_RANKS:
        return [sys.executable, "-m", "torch.distributed.run", "--standalone",
                "--nproc_per_node=2", str(program)]  # fmt: skip
    return [sys.executable, str(program)]


def record(name: str) -> dict[str, object]:
    """Run a program twice and write what it printed; return its true steps."""
    with tempfile.TemporaryDirectory() as kept:
        folder = Path(kept)
        program = folder / "train.py"
        program.write_text(PROGRAMS[name])
        lives = []
        for run in (2,) if name in ONCE else (1, 2):
            ran = subprocess.run(
                _command(name, program),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=False,
                cwd=folder,
                env={**os.environ, **QUIET},
            )
            if (ran.returncode != 0) is (run == 2):
                sys.stderr.buffer.write(ran.stdout)
                raise SystemExit(f"{name}: run {run} ended with {ran.returncode}")
            steps = [*map(int, (folder / "steps-0").read_text().split())]
            (folder / "steps-0").unlink()
            lives.append({"first": steps[0], "last": steps[-1]})
            part = "" if name in ONCE else f"-{run}"
            printed = re.sub(rb"\(https?://[^)]*\)", b"", ran.stdout)
            (FOLDER / f"{name}{part}.txt").write_bytes(printed)
    return {"lives": lives}


def main() -> None:
    """Record the programs that are named, or all."""
    truths = json.loads(TRUTHS.read_text()) if TRUTHS.exists() else {}
    for name in sys.argv[1:] or PROGRAMS:
        truths[name] = record(name)
        print(name, truths[name], flush=True)
        TRUTHS.write_text(json.dumps(truths, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
