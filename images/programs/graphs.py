"""TF1-style graphs under compat.v1: in-graph and between-graph replication, in one program.

In-graph (`--replication in`): one client, the chief, has one graph with a copy of the model on each
worker. Between-graph: each worker has a graph and a session of its own, and they share nothing but
the variables on the parameter servers; with `--sync`, SyncReplicasOptimizer applies the mean of
their gradients. Look at what a preemption costs: with one client everybody waits for the lost task
and goes back to the checkpoint; between graphs only the loss of the chief does that.
"""

import argparse
import json
import os
import time
from contextlib import AbstractContextManager

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported
os.environ.setdefault("GRPC_FAIL_FAST", "use_caller")  # a lost task is an error at once
import digits
import tensorflow.compat.v1 as tf

SEED = int(os.environ.get("EMULATOR_SEED", "0"))
CHECKPOINTS = os.path.join(os.environ.get("EMULATOR_SHARED", "/shared"), "graphs")
LEARNING_RATE = 0.3
REPORT_EVERY = 10

Cluster = dict[str, list[str]]
Task = tuple[str, int]


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train a graph on workers and parameter servers.")
    parser.add_argument("--replication", choices=["in", "between"], default="between")
    parser.add_argument("--sync", action="store_true", help="a step takes all workers' gradients")
    parser.add_argument("--spare", type=int, default=0, help="gradients that --sync can lack (0)")
    parser.add_argument("--steps", type=int, default=600, help="global steps (600)")
    parser.add_argument("--batch", type=int, default=64, help="examples per worker (64)")
    parser.add_argument("--save-every", type=int, default=100, help="steps between saves (100)")
    parser.add_argument("--step-cost", type=float, default=0, help="seconds added to a step (0)")
    return parser.parse_args()


def place() -> tuple[Cluster, Task]:
    """Return the cluster, and this task's role and index, from TF_CONFIG or its older form."""
    if "TF_CONFIG" in os.environ:
        config = json.loads(os.environ["TF_CONFIG"])
        return config["cluster"], (config["task"]["type"], config["task"]["index"])
    role, _, index = os.environ["POD_NAME"].rpartition("-")
    return json.loads(os.environ["CLUSTER_CONFIG"]), (role, int(index))


def logits(x: tf.Tensor) -> tf.Tensor:
    """Return the scores of every digit. All copies of the model have the same variables."""
    with tf.variable_scope("model", reuse=tf.AUTO_REUSE):
        for name, units in (("hidden", 64), ("digits", digits.CLASSES)):
            start = tf.glorot_uniform_initializer(SEED)
            weights = tf.get_variable(f"{name}/weights", [x.shape[1], units], initializer=start)
            biases = tf.get_variable(f"{name}/biases", [units], initializer=tf.zeros_initializer())
            x = tf.matmul(x - 0.3 if name == "hidden" else tf.nn.relu(x), weights) + biases
    return x


def on(cluster: Cluster, task: Task) -> AbstractContextManager[None]:
    """Place variables on the parameter servers in turn, and everything else in one task."""
    device = "/job:{}/task:{}".format(*task)
    return tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=device))


class Report(tf.train.SessionRunHook):
    """Print the global step, and the step from which a task goes on that was restarted or reset."""

    def __init__(self, accuracy: tf.Tensor | None) -> None:
        """`accuracy` is printed at the end, if there is one."""
        self.accuracy, self.last = accuracy, 0
        self.back: dict[str, int] = {}  # by how many steps it was taken back last

    def after_create_session(self, session: tf.Session, coord: tf.train.Coordinator) -> None:
        """Look at the step after variables were restored, or found on the parameter servers."""
        self.saw(int(session.run(tf.train.get_global_step())))

    def before_run(self, context: tf.train.SessionRunContext) -> tf.train.SessionRunArgs:
        """Fetch the global step together with each step."""
        return tf.train.SessionRunArgs(tf.train.get_global_step())

    def after_run(
        self, context: tf.train.SessionRunContext, values: tf.train.SessionRunValues
    ) -> None:
        """Look at the step after each step."""
        self.saw(int(values.results))

    def end(self, session: tf.Session) -> None:
        """Test the model."""
        if self.accuracy is not None:
            step, accuracy = session.run([tf.train.get_global_step(), self.accuracy])
            accuracy = round(float(accuracy), 4)
            self.print(event="step", step=int(step), accuracy=accuracy, **self.back)

    def saw(self, step: int) -> None:
        """Report a step, unless it is too early for the next report."""
        if step < self.last:
            self.back = {"back": self.last - step}
        if step < self.last or (self.last == 0 and step > 1):
            self.print(event="phase", phase="restore", state="end", step=step)
        elif step // REPORT_EVERY > self.last // REPORT_EVERY:
            self.print(event="step", step=step, **self.back)
        self.last = step

    def print(self, *, event: str, **values: float | str) -> None:
        """Print a line that the emulator reads."""
        print(json.dumps({"emulate": event, **values}), flush=True)


def build(
    cluster: Cluster, task: Task, copies: list[Task], x: tf.Tensor, y: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the mean loss of copies of the model in these tasks, and the accuracy of one."""
    losses = []
    for copy, xs, ys in zip(
        copies, tf.split(x, len(copies)), tf.split(y, len(copies)), strict=True
    ):
        with on(cluster, copy):
            losses.append(tf.losses.sparse_softmax_cross_entropy(ys, logits(xs)))
    with on(cluster, task):
        *_, test_x, test_y = digits.load(SEED)
        right = tf.equal(tf.argmax(logits(tf.constant(test_x)), axis=1), test_y)
        return tf.add_n(losses) / len(losses), tf.reduce_mean(tf.cast(right, tf.float32))


def main() -> None:
    """Serve, or build this task's graph and train it."""
    options = arguments()
    tf.logging.set_verbosity(tf.logging.ERROR)  # no advice to move to TensorFlow 2
    tf.disable_v2_behavior()
    cluster, task = place()
    # All that train together, of which the first is the chief.
    roles = ("chief", "worker")
    everybody = [(role, n) for role in roles for n in range(len(cluster.get(role, [])))]
    chief, in_graph = task == everybody[0], options.replication == "in"
    of_server = tf.ConfigProto(inter_op_parallelism_threads=2, intra_op_parallelism_threads=1)
    of_server.gpu_options.allow_growth = True  # tasks may share a GPU
    server = tf.train.Server(cluster, *task, config=of_server)
    if task not in everybody or (in_graph and not chief):
        server.join()  # until SIGTERM

    # The copies of the model in this task's graph. A client only tells the workers what to do.
    copies = everybody[1:] if in_graph else [task]
    size = options.batch * len(copies)
    x = tf.placeholder(tf.float32, [size, digits.PIXELS])
    y = tf.placeholder(tf.int64, [size])
    loss, accuracy = build(cluster, task, copies, x, y)

    hooks = [Report(accuracy if chief else None), tf.train.StopAtStepHook(last_step=options.steps)]
    optimizer = tf.train.GradientDescentOptimizer(LEARNING_RATE)
    if options.sync:
        count = len(everybody)
        optimizer = tf.train.SyncReplicasOptimizer(optimizer, count - options.spare, count)
        hooks.append(optimizer.make_session_run_hook(chief))
    with on(cluster, task):
        step = tf.train.get_or_create_global_step()
        train = optimizer.minimize(loss, step, colocate_gradients_with_ops=True)

    config = tf.ConfigProto()
    if not in_graph:
        # Without this, a session can't be made while any task of the cluster is away.
        config.device_filters.extend(["/job:ps", f"/job:{task[0]}/task:{task[1]}"])
    while not chief and not tf.train.latest_checkpoint(CHECKPOINTS):
        # The chief saves once it has made the variables. A session that finds none sleeps for 30 s.
        time.sleep(0.2)
    session = tf.train.MonitoredTrainingSession(
        server.target,
        is_chief=chief,
        checkpoint_dir=CHECKPOINTS,
        save_checkpoint_steps=options.save_every,
        save_summaries_steps=None,
        log_step_count_steps=None,
        stop_grace_period_secs=1,  # for a thread that waits for gradients of workers that are done
        hooks=hooks,
        config=config,
    )
    train_x, train_y, *_ = digits.load(SEED)
    worker, workers = (0, 1) if in_graph else (everybody.index(task), len(everybody))
    batches = digits.batches(train_x, train_y, size, seed=SEED, worker=worker, workers=workers)
    with session:
        while not session.should_stop():
            images, labels = next(batches)
            session.run(train, {x: images, y: labels})
            time.sleep(options.step_cost)


if __name__ == "__main__":
    main()
