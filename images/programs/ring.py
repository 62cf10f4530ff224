"""Synchronous training on several workers in a custom loop, with a chosen all-reduce, resumable.

Shows MultiWorkerMirroredStrategy with CommunicationOptions: NCCL between GPUs, a ring over gRPC
between CPUs. The gradients of all variables are reduced together: TensorFlow packs them into one
tensor, so a step has one all-reduce instead of one for each variable. If a worker is lost, the
all-reduce of the others fails; when all have been started again, they resume from the checkpoint.

Look at the last line: `reductions` in the graph of a step, how many of them have the `chosen`
implementation, and the `spread`: the largest difference between the weights of two replicas.
"""

import argparse
import os
from pathlib import Path

import digits
import events
import numpy as np

events.phase("startup", "begin")  # includes the import of TensorFlow, which takes seconds
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported
import perceptron  # noqa: E402
import tensorflow as tf  # noqa: E402

SEED = int(os.environ.get("EMULATOR_SEED", "0"))
CHECKPOINTS = Path(os.environ.get("EMULATOR_SHARED", "/shared"), "ring")
LEARNING_RATE = 0.3
REPORT_EVERY = 10


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train on all workers; save checkpoints.")
    parser.add_argument("--steps", type=int, default=600, help="total number of steps (600)")
    parser.add_argument("--batch", type=int, default=64, help="examples per replica and step (64)")
    parser.add_argument("--save-every", type=int, default=100, help="steps between saves (100)")
    return parser.parse_args()


def hints(graph: tf.Graph) -> list[str]:
    """Return which implementation each all-reduce of a graph and of its functions asks for."""
    nodes = [*graph.as_graph_def().node]
    nodes += [node for one in graph.as_graph_def().library.function for node in one.node_def]
    reductions = [node for node in nodes if node.op.startswith("CollectiveReduce")]
    return [node.attr["communication_hint"].s.decode() for node in reductions]


def main() -> None:
    """Train the remaining steps together with the other workers, then report the accuracy."""
    options = arguments()
    implementation = tf.distribute.experimental.CommunicationImplementation
    chosen = implementation.NCCL if tf.config.list_physical_devices("GPU") else implementation.RING
    communication = tf.distribute.experimental.CommunicationOptions(implementation=chosen)
    # Starts this task's server, reads TF_CONFIG and waits for the other workers.
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=communication)
    events.phase("startup", "end")

    with strategy.scope():
        # The gradients are reduced below, so an update is the same in all replicas.
        model = perceptron.make(SEED, tf.VariableAggregation.ONLY_FIRST_REPLICA)
    done = tf.Variable(0)
    checkpoint = tf.train.Checkpoint(model=model, step=done)
    # All workers must save; only the files of worker 0 are kept, and all resume from them.
    mine = CHECKPOINTS if strategy.cluster_resolver.task_id == 0 else Path("copy")
    manager = tf.train.CheckpointManager(checkpoint, str(mine), max_to_keep=2)
    if saved := tf.train.latest_checkpoint(str(CHECKPOINTS)):
        events.phase("restore", "begin")
        checkpoint.restore(saved)
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

        def next_batch() -> tuple[tf.Tensor, tf.Tensor]:
            return strategy.experimental_distribute_values_from_function(share)

    def replica_step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = perceptron.mean_loss(model, x, y)
        context = tf.distribute.get_replica_context()
        gradients = tape.gradient(loss, model)
        mean = context.all_reduce(tf.distribute.ReduceOp.MEAN, gradients, options=communication)
        for variable, gradient in zip(model, mean, strict=True):
            variable.assign_sub(LEARNING_RATE * gradient)
        return loss

    @tf.function
    def train_step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        losses = strategy.run(replica_step, args=(x, y))
        return strategy.experimental_local_results(losses)[0]  # a mean would cost an all-reduce

    @tf.function
    def weights_of_all_replicas() -> tf.Tensor:
        def own() -> tf.Tensor:
            row = tf.concat([tf.reshape(variable, [1, -1]) for variable in model], axis=1)
            return tf.distribute.get_replica_context().all_gather(row, axis=0)

        return strategy.experimental_local_results(strategy.run(own))[0]

    with events.during("compile"):
        asked = hints(train_step.get_concrete_function(*next_batch()).graph)
    while int(done) < options.steps:
        loss = train_step(*next_batch())
        step = int(done.assign_add(1))
        if step % REPORT_EVERY == 0 and step < options.steps:
            events.step(step, examples=step * options.batch * replicas, loss=float(loss))
        if step % options.save_every == 0:
            with events.during("checkpoint", step=step):
                manager.save(checkpoint_number=step)

    with events.during("eval"):
        accuracy = perceptron.accuracy(model, test_x, test_y)
        weights = weights_of_all_replicas().numpy()  # a row for each replica of the job
    events.step(
        options.steps,
        examples=options.steps * options.batch * replicas,
        accuracy=accuracy,
        replicas=len(weights),
        spread=float(np.ptp(weights, axis=0).max()),
        reductions=len(asked),
        chosen=asked.count(chosen.value.lower()),
    )


if __name__ == "__main__":
    main()
