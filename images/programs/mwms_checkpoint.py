"""Synchronous training in a custom loop that saves every so many steps, or never.

Shows tf.train.CheckpointManager under MultiWorkerMirroredStrategy. If a worker is lost, the others
fail, and after a restart of the job all resume from the last checkpoint: the steps since then are
done again. With `--save-every 0` nothing is saved, and all steps are. SIGTERM ends no task: this
strategy treats it as a preemption notice, and the task continues training until SIGKILL.
"""

import argparse
import os
import time
from pathlib import Path

import digits
import events

events.phase("startup", "begin")  # includes the import of TensorFlow, which takes seconds
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported
import perceptron  # noqa: E402
import tensorflow as tf  # noqa: E402

SEED = int(os.environ.get("EMULATOR_SEED", "0"))
CHECKPOINTS = Path(os.environ.get("EMULATOR_SHARED", "/shared"), "mwms_checkpoint")
LEARNING_RATE = 0.3
REPORT_EVERY = 10


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train on all workers; save periodically.")
    parser.add_argument("--steps", type=int, default=300, help="total number of steps (300)")
    parser.add_argument("--save-every", type=int, default=50, help="steps between saves; 0: never")
    parser.add_argument("--batch", type=int, default=64, help="examples per worker and step (64)")
    parser.add_argument(
        "--step-cost", type=float, default=0, help="additional seconds of each step (0)"
    )
    return parser.parse_args()


def main() -> None:
    """Restore, train the remaining steps with the other workers, then report the accuracy."""
    options = arguments()
    # Starts this task's server, reads TF_CONFIG and waits for the other workers.
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    worker = strategy.cluster_resolver.task_id
    events.phase("startup", "end")

    with strategy.scope():
        # MEAN: each update is the mean of the updates of all replicas.
        model = perceptron.make(SEED, tf.VariableAggregation.MEAN)
    done = tf.Variable(0, dtype=tf.int64)
    # All workers save, which reads the variables of all; only what worker 0 writes is kept.
    manager = tf.train.CheckpointManager(
        tf.train.Checkpoint(model=model, step=done),
        str(Path("copy") if worker else CHECKPOINTS),
        max_to_keep=2,
    )
    if last := tf.train.latest_checkpoint(str(CHECKPOINTS)):
        events.phase("restore", "begin")
        manager.checkpoint.restore(last)
        events.phase("restore", "end", step=int(done))

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

    while int(done) < options.steps:
        time.sleep(options.step_cost)
        loss = train_step(*strategy.experimental_distribute_values_from_function(share))
        step = int(done.assign_add(1))
        if step % REPORT_EVERY == 0 and step < options.steps:
            events.step(step, examples=step * options.batch * replicas, loss=float(loss))
        if options.save_every and step % options.save_every == 0:
            with events.during("checkpoint", step=step):
                manager.save(checkpoint_number=step)

    with events.during("eval"):
        accuracy = perceptron.accuracy(model, test_x, test_y)
    examples = int(done) * options.batch * replicas
    events.step(int(done), examples=examples, accuracy=accuracy)


if __name__ == "__main__":
    main()
