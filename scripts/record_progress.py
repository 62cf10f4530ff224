"""Record what the progress reports of real libraries look like, for tests/metrics/recorded.

Each program is the smallest one with which its library prints its progress. Standard output and
standard error go to one pipe, as with the process engine; every byte is kept.

    python scripts/record_progress.py NAME...      (without a name: all)

This needs the libraries: tensorflow, tf_keras, keras, torch, lightning, transformers, accelerate,
trl, datasets, pytorch-ignite, tqdm and xgboost. README.md in that folder has the versions.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "tests" / "metrics" / "recorded"
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "PYTHONWARNINGS": "ignore"}
"""Variables of a program that is recorded."""

_KERAS = """
import os, time
import numpy as np
{imports}
class Slow(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.03)
keras.utils.set_random_seed(1)
x = np.random.rand(640, 8).astype("float32")
y = (x.sum(axis=1) > 4).astype("int64")
model = keras.Sequential([keras.layers.Dense(8, activation="relu"), keras.layers.Dense(2)])
model.compile(
    "adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
"""
_KERAS_2 = _KERAS.format(imports="import tf_keras as keras; import tensorflow as tf")
_KERAS_3 = _KERAS.format(imports="import keras; import tensorflow as tf")
_FIT = "model.fit(x, y, batch_size=32, epochs=3, verbose={}, callbacks=[Slow()]{})\n"
_VALIDATED = ", validation_data=(x[:320], y[:320])"
_UNKNOWN = """
def examples():
    for n in range(20):
        yield x[n * 32:n * 32 + 32], y[n * 32:n * 32 + 32]
shapes = (tf.TensorSpec((None, 8)), tf.TensorSpec((None,), tf.int64))
data = tf.data.Dataset.from_generator(examples, output_signature=shapes)
model.fit(data, epochs=3, verbose=1, callbacks=[Slow()])
"""
_DOWNLOAD = """
big = "/tmp/recorded-download.bin"
open(big, "wb").write(b"x" * 20_000_000)
keras.utils.get_file(fname=f"download-{os.getpid()}.bin", origin="file://" + big)
"""
_ONE_EPOCH = """
model.fit(x, y, batch_size=32, verbose=1, callbacks=[Slow()])
model.evaluate(x[:320], y[:320], verbose=1)
model.predict(x[:320], verbose=1)
"""
_CHECKPOINTS = """
saved = keras.callbacks.ModelCheckpoint("/tmp/recorded.keras", verbose=1)
model.fit(x, y, batch_size=32, epochs=2, verbose=1, callbacks=[Slow(), saved])
model.evaluate(x[:320], y[:320], verbose=1)
"""
TORCH = """
import time, warnings
import torch
from torch import nn
torch.manual_seed(1)
x = torch.rand(640, 8)
y = (x.sum(1) > 4).long()
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
"""
_LIGHTNING = (
    TORCH
    + """
import lightning as L
class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = model
    def training_step(self, batch, _):
        time.sleep(0.03)
        loss = nn.functional.cross_entropy(self.model(batch[0]), batch[1])
        self.log("train_loss", loss, prog_bar=True)
        return loss
    def validation_step(self, batch, _):
        time.sleep(0.03)
        right = (self.model(batch[0]).argmax(1) == batch[1]).float().mean()
        self.log("val_acc", right, prog_bar=True)
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 0.01)
data = torch.utils.data.TensorDataset(x, y)
loader = torch.utils.data.DataLoader(data, batch_size=32)
short = torch.utils.data.DataLoader(torch.utils.data.Subset(data, range(320)), batch_size=32)
from lightning.pytorch.callbacks import TQDMProgressBar
trainer = L.Trainer(
    max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False,
    callbacks=[{callbacks}])
trainer.fit(Model(), loader, short)
"""
)
_HUGGING_FACE = (
    TORCH
    + """
from transformers import Trainer, TrainingArguments
class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = model
    def forward(self, features, labels):
        time.sleep(0.03)
        logits = self.model(features)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}
data = [{"features": a, "labels": b} for a, b in zip(x, y)]
arguments = TrainingArguments(
    output_dir="/tmp/recorded-hf", per_device_train_batch_size=32, num_train_epochs=3,
    logging_steps=10, eval_strategy="epoch", per_device_eval_batch_size=32, save_strategy="no",
    report_to=[], use_cpu=True)
def measured(predicted):
    return {"accuracy": float((predicted.predictions.argmax(1) == predicted.label_ids).mean())}
Trainer(Classifier(), arguments, train_dataset=data, eval_dataset=data[:320],
    compute_metrics=measured).train()
"""
)
_IGNITE = (
    TORCH
    + """
from ignite.engine import create_supervised_trainer
from ignite.contrib.handlers import ProgressBar
data = torch.utils.data.TensorDataset(x, y)
loader = torch.utils.data.DataLoader(data, batch_size=32)
optimizer = torch.optim.Adam(model.parameters(), 0.01)
def step(engine, batch):
    time.sleep(0.03)
    loss = nn.functional.cross_entropy(model(batch[0]), batch[1])
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    return loss.item()
from ignite.engine import Engine
trainer = Engine(step)
ProgressBar(persist={persist}).attach(trainer, output_transform=lambda loss: {{"loss": loss}})
trainer.run(loader, max_epochs=3)
"""
)

# Data preparation draws the first bars: TRL maps the data set, and transformers' examples group it.
_TRL = """
import os, time
os.environ["HF_HUB_OFFLINE"] = "1"
import itertools
import datasets.fingerprint
numbers = itertools.count()  # its own hash fails for pyarrow 26
datasets.fingerprint.Hasher.hash = classmethod(lambda cls, value: str(next(numbers)))
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer
text = [f"the number {n} is less than the number {n + 1}" for n in range(600)]
words = Tokenizer(models.WordLevel(unk_token="?"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
words.train_from_iterator(text, trainers.WordLevelTrainer(special_tokens=["?", "<end>"]))
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<end>", pad_token="<end>")
data = Dataset.from_dict({"text": text})
def grouped(examples):
    time.sleep(0.05)
    return examples
pieces = {"batched": True, "batch_size": 100}
data = data.map(grouped, **pieces, new_fingerprint="1", desc="Running tokenizer on dataset")
data = data.map(grouped, **pieces, new_fingerprint="2", desc="Grouping texts in chunks of 64")
model = GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), n_embd=16, n_layer=1, n_head=2))
settings = SFTConfig(
    output_dir="out", max_steps=60, per_device_train_batch_size=4, logging_steps=5, report_to=[],
    save_strategy="no", use_cpu=True, max_length=16{settings})
SFTTrainer(model, settings, train_dataset=data, processing_class=tokenizer).train()
"""
# As diffusers' train_unconditional.py and other examples of Accelerate draw it.
_DIFFUSERS = """
import logging, time
from tqdm.auto import tqdm
logging.basicConfig(level=logging.INFO)
first, resumed, end = {part}
step = first * 16 + resumed
for epoch in range(first, end):
    bar = tqdm(total=16)
    bar.set_description(f"Epoch {{epoch}}")
    for batch in range(16):
        if epoch == first and batch < resumed:
            bar.update(1)
            continue
        time.sleep(0.06)
        bar.update(1)
        step += 1
        if step % 10 == 0:
            logging.info(f"Saved state to checkpoint-{{step}}")
        bar.set_postfix(loss=1 / step, lr=1e-4, step=step)
        if {killed} and step == 26:
            raise SystemExit
    bar.close()
"""

PROGRAMS = {
    "trl-sft": _TRL.replace("{settings}", ""),
    "trl-sft-no-bar": _TRL.replace("{settings}", ", disable_tqdm=True"),
    "diffusers-1": _DIFFUSERS.format(part=(0, 0, 4), killed=True),
    "diffusers-2": _DIFFUSERS.format(part=(1, 4, 4), killed=False),
    "keras-2-verbose-1": _KERAS_2 + _FIT.format(1, _VALIDATED),
    "keras-2-verbose-2": _KERAS_2 + _FIT.format(2, _VALIDATED),
    "keras-2-unknown-size": _KERAS_2 + _UNKNOWN,
    "keras-2-one-epoch": _KERAS_2 + _DOWNLOAD + _ONE_EPOCH,
    "keras-2-checkpoints": _KERAS_2 + _CHECKPOINTS,
    "keras-3-verbose-1": _KERAS_3 + _FIT.format(1, _VALIDATED),
    "keras-3-verbose-2": _KERAS_3 + _FIT.format(2, _VALIDATED),
    "keras-3-unknown-size": _KERAS_3 + _UNKNOWN,
    "keras-3-one-epoch": _KERAS_3 + _DOWNLOAD + _ONE_EPOCH,
    "keras-3-checkpoints": _KERAS_3 + _CHECKPOINTS,
    "tqdm-plain": """
import time
from tqdm import tqdm
for epoch in range(3):
    for batch in tqdm(range(20)):
        time.sleep(0.03)
    print(f"epoch {epoch} is done")
""",
    "tqdm-epochs": """
import time
from tqdm import tqdm
for n in tqdm(range(30), desc="Loading data"):
    time.sleep(0.01)
for epoch in range(1, 4):
    with tqdm(range(20), desc=f"Epoch {epoch}/3", unit="batch") as bar:
        for batch in bar:
            time.sleep(0.03)
            bar.set_postfix(loss=1 / (epoch + batch), acc=0.9)
    for batch in tqdm(range(5), desc="Validation"):
        time.sleep(0.03)
""",
    "tqdm-nested": """
import time
from tqdm import tqdm, trange
for epoch in trange(3, desc="epochs"):
    for batch in tqdm(range(20), leave=False):
        time.sleep(0.03)
""",
    "lightning": _LIGHTNING.replace("{callbacks}", "TQDMProgressBar()"),
    "lightning-rich": _LIGHTNING.replace("{callbacks}", ""),
    "hugging-face": _HUGGING_FACE,
    "ignite": _IGNITE.format(persist=False),
    "ignite-persist": _IGNITE.format(persist=True),
    # As https://github.com/pytorch/examples/blob/main/mnist/main.py prints it.
    "pytorch-example": """
for epoch in range(1, 3):
    for batch in range(0, 40, 10):
        print('Train Epoch: {} [{}/{} ({:.0f}%)]\\tLoss: {:.6f}'.format(
            epoch, batch * 64, 2560, 100. * batch / 40, 1 / (epoch + batch)))
    print('\\nTest set: Average loss: {:.4f}, Accuracy: {}/{} ({:.0f}%)\\n'.format(
        0.1, 980 + epoch, 1000, (980 + epoch) / 10))
""",
    "xgboost": """
import numpy, xgboost
x = numpy.random.default_rng(1).random((200, 4))
data = xgboost.DMatrix(x, x.sum(1) > 2)
settings = {"objective": "binary:logistic", "eval_metric": ["logloss", "error"]}
xgboost.train(settings, data, 20, evals=[(data, "validation")])
""",
    # Lines of the form of those of tf_cnn_benchmarks, timm's train.py and Kubeflow's JAX
    # example, which take long or do not run here.
    "tf-benchmarks": """
print("Step\\tImg/sec\\ttotal_loss")
for step in (1, 10, 20):
    print(f"{step}\\timages/sec: {5.5:.1f} +/- {0.1:.1f} (jitter = {0.2:.1f})\\t{7 / step:.3f}")
print("-" * 64)
print("total images/sec: 5.50")
""",
    "timm": """
for epoch in range(2):
    for batch in (0, 16, 31):
        loss = 7 / (1 + epoch + batch)
        done = f"Train: {epoch} [{batch:>4d}/32 ({100 * (batch + 1) / 32:>3.0f}%)]"
        print(f"{done}  Loss: {loss:#.3g} ({loss:#.3g})  Time: 0.1s,  320.00/s  LR: 1.000e-04")
    print(f"Test: [   4/4]  Time: 0.05 (0.06)  Loss:   6.5 ( 6.6)  Acc@1:   9.3 (  9.8)")
""",
    "epochs-kubeflow-jax": """
for epoch in range(1, 6):
    print(f"Epoch {epoch}/5 - Loss: {1 / epoch:.4f}, Acc: {1 - 0.5 / epoch:.4f}")
""",
    # As TensorFlow's dist_mnist.py prints it, and Kubeflow's copy of it.
    "tf1-global-step": """
import time
for step in range(10, 31, 10):
    print("%f: Worker %d: training step %d done (global step: %d)" % (time.time(), 0, step, step))
""",
    "tf1-hooks": """
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
tf.logging.set_verbosity(tf.logging.INFO)
step = tf.train.get_or_create_global_step()
loss = 1 / tf.cast(step + 1, tf.float32)
train = tf.assign_add(step, 1)
hooks = [tf.train.LoggingTensorHook({"loss": loss, "step": step}, every_n_iter=10),
         tf.train.StopAtStepHook(last_step=30)]
with tf.train.MonitoredTrainingSession(hooks=hooks) as session:
    while not session.should_stop():
        session.run(train)
""",
}


def record(name: str) -> bytes:
    """Run a program; return all that it printed. Raises CalledProcessError if it fails."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAMS[name]],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            cwd=folder,
            env={**os.environ, **QUIET},
        )
    if done.returncode:
        sys.stderr.buffer.write(done.stdout)
        done.check_returncode()
    return done.stdout


def main() -> None:
    """Record the programs that are named, or all."""
    FOLDER.mkdir(exist_ok=True)
    for name in sys.argv[1:] or PROGRAMS:
        printed = record(name)
        (FOLDER / f"{name}.txt").write_bytes(printed)
        print(f"{name}: {len(printed)} bytes")


if __name__ == "__main__":
    main()
