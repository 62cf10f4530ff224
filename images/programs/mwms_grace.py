"""Synchronous training that uses its grace period: all workers save and exit, and lose no step.

Shows tf.distribute.experimental.PreemptionCheckpointHandler: the worker that gets SIGTERM agrees
with the others on a step; all of them save after it and exit with code 42, TensorFlow's default.
With a grace period they save at once, continue training, and save again and exit shortly before its
end. The job must then be restarted, and resumes from that step. Without `--save-every` nothing else
is saved, so if a worker dies without notice, all steps are lost.

On Compute Engine without GPUs the handler does nothing: it does not watch, and does not restore.
There, GCE_METADATA_IP=127.0.0.1:9 makes it believe that it is elsewhere, and it watches SIGTERM.

TensorFlow's agreement on the last save has a race: a worker whose watching thread wakes more than
a step late fails with AlreadyExistsError (exit code 1), and the steps since the first save are
lost. `--step-cost` makes steps as long as those of real models, which gives the thread enough time.
Without `--grace` there is one save and no race.
"""

import argparse
import atexit
import os
import signal
import time
from pathlib import Path

import digits
import events

events.phase("startup", "begin")  # includes the import of TensorFlow, which takes seconds
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported
import perceptron  # noqa: E402
import tensorflow as tf  # noqa: E402

SEED = int(os.environ.get("EMULATOR_SEED", "0"))
CHECKPOINTS = Path(os.environ.get("EMULATOR_SHARED", "/shared"), "mwms_grace")
LEARNING_RATE = 0.3
REPORT_EVERY = 10


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train on all workers; save at a preemption.")
    parser.add_argument("--steps", type=int, default=600, help="total number of steps (600)")
    parser.add_argument("--batch", type=int, default=64, help="examples per worker and step (64)")
    parser.add_argument(
        "--step-cost", type=float, default=0, help="additional seconds of each step (0)"
    )
    parser.add_argument(
        "--grace", type=float, default=0, help="seconds from the notice to the last save (0)"
    )
    parser.add_argument(
        "--save-every", type=int, default=0, help="steps between saves without a notice (0: none)"
    )
    return parser.parse_args()


class Checkpoints(tf.train.CheckpointManager):
    """Save and restore the job's checkpoint, and report both.

    All workers save, which TensorFlow requires for variables mirrored on all workers. Only the
    checkpoint of worker 0 is used: it is on the shared volume, the others on the workers' disks.
    """

    def __init__(self, checkpoint: tf.train.Checkpoint, worker: int) -> None:
        self.step = checkpoint.step
        super().__init__(checkpoint, str(Path("copy") if worker else CHECKPOINTS), max_to_keep=1)

    def save(self, *args: object, **options: object) -> str | None:
        """Save: the handler calls this when all workers have done the agreed step."""
        step = int(self.step)
        events.step(step)  # the last completed step: makes the number of lost steps exact
        with events.during("checkpoint", step=step):
            return super().save(*args, **options)

    def restore_or_initialize(self) -> str | None:
        """Restore: the handler calls this in its constructor."""
        path = tf.train.latest_checkpoint(str(CHECKPOINTS))
        if path is not None:
            events.phase("restore", "begin")
            self.checkpoint.restore(path)
            events.phase("restore", "end", step=int(self.step))
        return path


def main() -> None:
    """Train the remaining steps together with the other workers, then report the accuracy."""
    options = arguments()
    # Starts this task's server, reads TF_CONFIG and waits for the other workers.
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    resolver = strategy.cluster_resolver
    events.phase("startup", "end")

    with strategy.scope():
        # MEAN: each update is the mean of the updates of all replicas.
        model = perceptron.make(SEED, tf.VariableAggregation.MEAN)
    done = tf.Variable(0, dtype=tf.int64)
    checkpoint = tf.train.Checkpoint(model=model, step=done)
    saves = Checkpoints(checkpoint, resolver.task_id)
    handler = tf.distribute.experimental.PreemptionCheckpointHandler(
        resolver,
        saves,
        termination_config=tf.distribute.experimental.TerminationConfig(grace_period=options.grace),
    )

    # Python removes its signal handlers at shutdown, a second before a task with TensorFlow ends.
    # A second SIGTERM in that time, such as from a restart of the job, would turn 42 into 143.
    atexit.register(signal.signal, signal.SIGTERM, signal.SIG_IGN)

    with events.during("data"):
        train_x, train_y, test_x, test_y = digits.load(SEED)
        replicas = strategy.num_replicas_in_sync
        # One generator for every replica of the job; each task uses those of its own replicas.
        shares = [
            digits.batches(
                *(train_x, train_y, options.batch),
                seed=SEED,
                worker=one,
                workers=replicas,
                skip=int(done),
            )
            for one in range(replicas)
        ]

        def share(context: tf.distribute.experimental.ValueContext) -> tuple[tf.Tensor, tf.Tensor]:
            x, y = next(shares[context.replica_id_in_sync_group])
            return tf.constant(x), tf.constant(y)

        def next_batch() -> tuple[tf.Tensor, tf.Tensor]:
            return strategy.experimental_distribute_values_from_function(share)

    def replica_step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = perceptron.mean_loss(model, x, y)
        for variable, gradient in zip(model, tape.gradient(loss, model), strict=True):
            variable.assign_sub(LEARNING_RATE * gradient)  # includes the all-reduce
        return loss

    @tf.function
    def train_step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        losses = strategy.run(replica_step, args=(x, y))
        return strategy.experimental_local_results(losses)[0]  # a mean would cost an all-reduce

    def whole_step() -> tf.Tensor:
        time.sleep(options.step_cost)
        return train_step(*next_batch())

    while int(done) < options.steps:
        loss = handler.run(whole_step)  # first checks for a notice, and may save and exit
        step = int(done.assign_add(1))
        if step % REPORT_EVERY == 0 and step < options.steps:
            events.step(step, examples=step * options.batch * replicas, loss=float(loss))
        if options.save_every and step % options.save_every == 0:
            saves.save()

    with events.during("eval"):
        accuracy = perceptron.accuracy(model, test_x, test_y)
    step = int(done)
    events.step(step, examples=step * options.batch * replicas, accuracy=accuracy)


if __name__ == "__main__":
    main()
