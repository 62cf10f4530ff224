"""Save and resume with TensorFlow and Keras 3, in the formats that their users have.

`manager` is tf.train.CheckpointManager. `backup` is the callback BackupAndRestore, which saves each
epoch, and resumes by itself. `weights` is ModelCheckpoint of weights alone, with the epoch in the
name, of which the last one is loaded.
"""

import os
import re
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import events
import formats
import keras
import numpy as np
import tensorflow as tf
from formats import SAVES


class Manager:
    """tf.train.CheckpointManager, as in the guide."""

    def __init__(self) -> None:
        """Begin with step 0."""
        self.state = formats.arrays_of(0)
        self.variables = {name: tf.Variable(array) for name, array in self.state.items()}
        self.step = tf.Variable(0, dtype=tf.int64)
        saved = tf.train.Checkpoint(step=self.step, **self.variables)
        self.manager = tf.train.CheckpointManager(saved, str(SAVES), max_to_keep=3)
        self.saved = saved

    def restore(self) -> int | None:
        """Load the latest, if there is one."""
        self.saved.restore(self.manager.latest_checkpoint)
        if not self.manager.latest_checkpoint:
            return None
        self.state = {name: variable.numpy() for name, variable in self.variables.items()}
        return int(self.step)

    def save(self, step: int) -> None:
        """Save under the step's number."""
        self.step.assign(step)
        for name, variable in self.variables.items():
            variable.assign(self.state[name])
        self.manager.save(checkpoint_number=step)


class State(keras.layers.Layer):
    """The state as weights of a layer."""

    def build(self, _: object) -> None:
        """Make the weights."""
        for name, array in formats.arrays_of(0).items():
            self.add_weight(shape=array.shape, initializer="zeros", name=name)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Return zeros that depend on the weights."""
        return inputs * 0.0 * keras.ops.sum(self.weights[-1])


class Before(keras.callbacks.Callback):
    """Makes the steps; listed before the callback that saves."""

    def __init__(self, options: object, *, first: int = 0) -> None:
        """Remember where training begins."""
        super().__init__()
        self.steps, self.every, self.step = formats.Steps(options), options.save_every, first

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        """Give the weights the values of the step."""
        del batch, logs
        self.step += 1
        layer = self.model.layers[-1]
        state = dict(zip(formats.arrays_of(0), layer.get_weights(), strict=True))
        if self.step % self.every == 0:
            state = formats.learned(state, self.step)
            layer.set_weights([*state.values()])
        self.steps.made(self.step, formats.loss(state))

    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        """Report the begin of a save."""
        del epoch, logs
        told = {"step": self.step, "digest": formats.digest(self.model.layers[-1].get_weights())}
        events.phase("checkpoint", "begin", **told)


class After(keras.callbacks.Callback):
    """Reports what the callback before it has done."""

    def __init__(self, before: Before) -> None:
        """Remember what counts the steps."""
        super().__init__()
        self.before = before

    def on_train_begin(self, logs: object = None) -> None:
        """Report what BackupAndRestore has loaded: it sets the epoch to begin with."""
        del logs
        if epoch := getattr(self.model, "_initial_epoch", None):
            self.before.step = epoch * self.before.every
            formats.restored(self.before.step, self.model.layers[-1].get_weights())

    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        """Report the end of a save."""
        del epoch, logs
        told = {"digest": formats.digest(self.model.layers[-1].get_weights())}
        events.phase("checkpoint", "end", step=self.before.step, **told)


def fit() -> None:
    """Train with Model.fit; an epoch is as many steps as there are between two saves."""
    options = formats.arguments(FORMATS, __doc__ or "")
    SAVES.mkdir(parents=True, exist_ok=True)
    model = keras.Sequential([keras.Input((1,)), State()])
    model.compile("sgd", "mse", run_eagerly=True)
    first = 0
    events.phase("restore", "begin")
    if options.format == "weights":
        saver = keras.callbacks.ModelCheckpoint(
            str(SAVES / "{epoch:04d}.weights.h5"), save_weights_only=True
        )
        if newest := max(SAVES.glob("*.weights.h5"), default=None):
            model.load_weights(newest)
            first = int(re.match(r"\d+", newest.name)[0])
            formats.restored(first * options.save_every, model.layers[-1].get_weights())
    else:
        saver = keras.callbacks.BackupAndRestore(str(SAVES))
    before = Before(options, first=first * options.save_every)
    callbacks = [before, saver, After(before)]
    x = np.zeros((options.save_every, 1), np.float32)
    model.fit(
        x,
        x,
        batch_size=1,
        epochs=options.steps // options.save_every,
        initial_epoch=first,
        shuffle=False,
        verbose=0,
        callbacks=callbacks,
    )


FORMATS = {"manager": Manager, "backup": fit, "weights": fit}

if __name__ == "__main__":
    if "manager" in sys.argv:
        formats.train(FORMATS, __doc__ or "")
    else:
        fit()
