"""The layers of one TensorFlow model on different workers, without a distribution strategy.

The chief connects to the cluster, and then has the devices of all tasks. `tf.device` places the
weights and the computation of each layer on one worker: only activations and their gradients
travel, and the model may be larger than one worker's memory. The workers compute one after the
other, so training is no faster. The chief saves now and then, and resumes from the last save.

`tf.device` applies only to what is computed under it. A single `GradientTape` around the model
computes all gradients outside, on the chief, which then receives every weight in every step:
`--backward chief` does that. The default has a tape for each layer, under the device of the layer.
Look at `largest_share`, the share of the weights that one worker holds, and at the bytes received.
"""

import argparse
import os
import time
import traceback
from pathlib import Path

import events

events.phase("startup", "begin")  # includes the import of TensorFlow, which takes seconds
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported
os.environ.setdefault("GRPC_FAIL_FAST", "use_caller")  # a lost task is an error at once
import tensorflow as tf  # noqa: E402

SEED = int(os.environ.get("EMULATOR_SEED", "0"))
CHECKPOINTS = Path(os.environ.get("EMULATOR_SHARED", "/shared"), "layer_placement")
FINISHED = CHECKPOINTS / "finished"
LEARNING_RATE = 0.1
HIDDEN = 256
REPORT_EVERY = 10

Cluster = tf.distribute.cluster_resolver.ClusterResolver


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train one model, its layers on all workers.")
    parser.add_argument("--steps", type=int, default=300, help="steps to train (300)")
    parser.add_argument("--batch", type=int, default=64, help="examples per step (64)")
    parser.add_argument("--layers", type=int, default=4, help="layers, with the last (4)")
    parser.add_argument("--save-every", type=int, default=100, help="steps between saves (100)")
    parser.add_argument(
        "--backward", choices=["workers", "chief"], default="workers", help="where (workers)"
    )
    return parser.parse_args()


class Layer(tf.Module):
    """A dense layer whose weights and computation are on one device."""

    def __init__(self, rows: int, columns: int, *, last: bool, device: str) -> None:
        super().__init__()
        self.device, self.last = device, last
        with tf.device(device):
            start = tf.random.stateless_normal([rows, columns], seed=[SEED, rows + columns])
            self.weights = tf.Variable(start * (2 / rows) ** 0.5)
            self.biases = tf.Variable(tf.zeros(columns))

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """Return the activations, of shape [images, columns]."""
        with tf.device(self.device):
            y = tf.matmul(x, self.weights) + self.biases
            return y if self.last else tf.nn.relu(y)


def make(layers: int, workers: int) -> list[Layer]:
    """Create the layers; each worker gets neighbouring ones, so that few activations travel."""
    import digits

    sizes = [digits.PIXELS, *[HIDDEN] * (layers - 1), digits.CLASSES]
    gpus = any("/job:worker/" in device.name for device in tf.config.list_logical_devices("GPU"))
    kind = "GPU" if gpus else "CPU"
    return [
        Layer(
            sizes[index],
            sizes[index + 1],
            last=index == layers - 1,
            device=f"/job:worker/task:{index * workers // layers}/device:{kind}:0",
        )
        for index in range(layers)
    ]


def mean_loss(scores: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """Return the mean cross entropy over a batch."""
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=scores))


def step_on_workers(layers: list[Layer], x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """Train on one batch: each layer's gradients are computed where its weights are."""
    passed = []
    for layer in layers:
        with tf.GradientTape() as tape:
            tape.watch(x)
            output = layer(x)
        passed.append((layer, tape, x, output))
        x = output
    with tf.device(layers[-1].device):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = mean_loss(x, y)
        upstream = tape.gradient(loss, x)
    for layer, tape, x, output in reversed(passed):
        with tf.device(layer.device):
            upstream, *gradients = tape.gradient(output, [x, *layer.variables], upstream)
            for variable, gradient in zip(layer.variables, gradients, strict=True):
                variable.assign_sub(LEARNING_RATE * gradient)
    return loss


def step_on_chief(layers: list[Layer], x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """Train on one batch in the usual way: TensorFlow computes all gradients on the chief."""
    variables = [variable for layer in layers for variable in layer.variables]
    with tf.GradientTape() as tape:
        for layer in layers:
            x = layer(x)
        loss = mean_loss(x, y)
    for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
        variable.assign_sub(LEARNING_RATE * gradient)
    return loss


def largest_share(layers: list[Layer]) -> float:
    """Return the share of all weights that the fullest worker holds."""
    held: dict[str, int] = {}
    for variable in (variable for layer in layers for variable in layer.variables):
        held[variable.device] = held.get(variable.device, 0) + variable.shape.num_elements()
    return max(held.values()) / sum(held.values())


def train(cluster: Cluster, options: argparse.Namespace) -> None:
    """Place the layers, train, save, report the accuracy (chief)."""
    import digits

    # The job's name and the index are those of this task: without them, TensorFlow adds another
    # client to the cluster and waits for the chief, which nobody is.
    tf.config.experimental_connect_to_cluster(
        cluster, job_name=cluster.task_type, task_index=cluster.task_id, protocol="grpc"
    )
    events.phase("startup", "end")
    with events.during("data"):
        train_x, train_y, test_x, test_y = digits.load(SEED)

    layers = make(options.layers, cluster.cluster_spec().num_tasks("worker"))
    done = tf.Variable(0)
    manager = tf.train.CheckpointManager(
        tf.train.Checkpoint(layers=layers, step=done), str(CHECKPOINTS), max_to_keep=2
    )
    if manager.latest_checkpoint:
        events.phase("restore", "begin")
        manager.restore_or_initialize()
        events.phase("restore", "end", step=int(done))

    first = int(done) + 1
    batches = digits.batches(train_x, train_y, options.batch, seed=SEED, skip=int(done))
    update = step_on_workers if options.backward == "workers" else step_on_chief
    train_step = tf.function(lambda x, y: update(layers, x, y))
    for step in range(first, options.steps + 1):
        x, y = next(batches)
        loss = train_step(tf.constant(x), tf.constant(y))
        if step % REPORT_EVERY == 0 and step < options.steps:
            events.step(step, examples=step * options.batch, loss=float(loss))
        if step % options.save_every == 0:
            done.assign(step)
            with events.during("checkpoint", step=step):  # each worker writes its layers
                manager.save(checkpoint_number=step)

    with events.during("eval"):
        x = tf.constant(test_x)
        for layer in layers:
            x = layer(x)
        accuracy = float(tf.reduce_mean(tf.cast(tf.argmax(x, axis=1) == test_y, tf.float32)))
    events.step(
        options.steps,
        examples=options.steps * options.batch,
        loss=float(loss),
        accuracy=accuracy,
        largest_share=largest_share(layers),
    )


def serve(cluster: Cluster) -> None:
    """Hold and compute what the chief places here, until it has finished (worker)."""
    server = tf.distribute.Server(
        cluster.cluster_spec(), job_name="worker", task_index=cluster.task_id, protocol="grpc"
    )
    events.phase("startup", "end")
    while not FINISHED.exists():  # server.join() would wait for ever
        time.sleep(0.2)
    del server


def main() -> None:
    """Run the part of this task's role in TF_CONFIG."""
    options = arguments()
    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if cluster.task_type == "worker":
        serve(cluster)
        return
    try:
        train(cluster, options)
        FINISHED.touch()
    except tf.errors.OpError:
        traceback.print_exc()
        os._exit(1)  # a normal exit may wait forever for the lost worker


if __name__ == "__main__":
    main()
