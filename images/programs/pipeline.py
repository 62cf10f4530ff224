"""Pipeline parallelism with PyTorch: each task has a stage of the model, on its GPU or its CPU.

A batch is cut into micro-batches, which go through the stages one behind the other. `--schedule
gpipe` makes all forward passes, then all backward passes; `1f1b` (PipeDream-flush) makes a backward
pass as soon as it can. Both wait at the end of a step until the pipeline is empty, so both train
exactly as without a pipeline. All stages save together, and resume from the last save of all.

Look at `bubble_8`, the share of a step of 8 micro-batches in which the stages waited for each
other: with p stages and m micro-batches it should be (p-1)/(m+p-1) (Huang et al. 2019). And at
`in_flight_8` and `kept_kib_8`: the micro-batches and activations that the first stage had to keep.

`--stage-cost` computes nothing: each stage waits for so many seconds in the forward pass of a whole
batch, and twice as long in the backward pass, as if its layers were large and had a device of their
own. Without it, stages that share the cores of one machine slow each other down, which no pipeline
with a device for each stage does. Leave it out where there is one.
"""

import argparse
import gc
import os
import time
from collections import defaultdict
from pathlib import Path
from statistics import median

import digits
import events

events.phase("startup", "begin")  # includes the import of PyTorch, which takes seconds
import torch  # noqa: E402
from pipeline_meter import Meter, MeteredStage, Wait  # noqa: E402
from torch import Tensor, distributed, nn  # noqa: E402
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe  # noqa: E402

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SEED = int(os.environ.get("EMULATOR_SEED", "0"))
CHECKPOINTS = Path(os.environ.get("EMULATOR_SHARED", "."), "pipeline")
LEARNING_RATE = 0.003
LAYERS = 4
SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train a model whose stages are on all tasks.")
    parser.add_argument("--schedule", choices=SCHEDULES, default="1f1b", help="(1f1b)")
    parser.add_argument("--micro-batches", type=int, nargs="+", default=[8], help="counts (8)")
    parser.add_argument("--steps-each", type=int, default=4, help="steps of each count (4)")
    parser.add_argument("--steps", type=int, default=100, help="steps to train (100)")
    parser.add_argument("--batch", type=int, default=256, help="examples per step (256)")
    parser.add_argument("--width", type=int, default=256, help="of the hidden layers (256)")
    parser.add_argument("--stage-cost", type=float, default=0, help="seconds, see above (0)")
    parser.add_argument("--save-every", type=int, default=50, help="steps between saves (50)")
    return parser.parse_args()


class Stage(nn.Sequential):
    """The layers of one stage; the model is the same for every number of stages."""

    def __init__(self, rank: int, ranks: int, options: argparse.Namespace) -> None:
        torch.manual_seed(SEED)
        layers = [
            nn.Sequential(nn.Linear(rows, options.width), nn.ReLU())
            for rows in (digits.PIXELS, *[options.width] * (LAYERS - 2))
        ]
        layers.append(nn.Sequential(nn.Linear(options.width, digits.CLASSES)))
        super().__init__(*layers[rank * LAYERS // ranks : (rank + 1) * LAYERS // ranks])
        self.cost = options.stage_cost / options.batch  # seconds for an example

    def forward(self, x: Tensor) -> Tensor:
        """Return the activations for the next stage, or the logits."""
        y = super().forward(x)
        return Wait.apply(y, self.cost * len(x)) if self.training and self.cost else y


def save(step: int, rank: int, module: Stage, optimizer: torch.optim.Optimizer) -> None:
    """Save all stages of one step; the save counts once all are written."""
    CHECKPOINTS.mkdir(exist_ok=True)
    with events.during("checkpoint", step=step):
        state = {"model": module.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, CHECKPOINTS / f"{step}-{rank}.pt")
        distributed.barrier()
        if rank == 0:
            unfinished = CHECKPOINTS / "last.unfinished"
            unfinished.write_text(str(step))
            unfinished.replace(CHECKPOINTS / "last")


def restore(rank: int, module: Stage, optimizer: torch.optim.Optimizer) -> int:
    """Load this rank's stage of the last save and return its step; 0: there is none."""
    if not (CHECKPOINTS / "last").exists():
        return 0
    events.phase("restore", "begin")
    step = int((CHECKPOINTS / "last").read_text())
    state = torch.load(CHECKPOINTS / f"{step}-{rank}.pt", weights_only=True, map_location=DEVICE)
    module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    events.phase("restore", "end", step=step)
    return step


def accuracy(module: Stage, x: Tensor, y: Tensor) -> float:
    """Return the share of images that the model classifies correctly, to every rank."""
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    stage = PipelineStage(module.eval(), rank, ranks, DEVICE)
    scores = ScheduleGPipe(stage, 1).eval(*([x] if rank == 0 else []))
    right = torch.zeros((), device=DEVICE)
    if scores is not None:  # this is the last stage
        right = (scores.argmax(dim=1) == y).float().mean()
    distributed.broadcast(right, ranks - 1)
    return right.item()


def claims(schedule: str, stages: int, count: int) -> tuple[float, int]:
    """Return what the papers say: the bubble, and the micro-batches that the first stage keeps."""
    bubble = (stages - 1) / (count + stages - 1)  # Huang et al. 2019
    kept = count if schedule == "gpipe" else min(count, stages)  # Narayanan et al. 2021
    return bubble, kept


def train(options: argparse.Namespace) -> None:
    """Resume, train, report and save, in step with the other stages."""
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    with events.during("data"):
        data = (torch.from_numpy(array).to(DEVICE) for array in digits.load(SEED))
        train_x, train_y, test_x, test_y = data
    module = Stage(rank, ranks, options).to(DEVICE)
    optimizer = torch.optim.Adam(module.parameters(), LEARNING_RATE)
    done = restore(rank, module, optimizer)
    distributed.barrier()  # all have read the last save before there is another
    batches = digits.batches(train_x, train_y, options.batch, seed=SEED, skip=done)
    meter, count = Meter(module), 0
    bubbles: dict[int, list[float]] = defaultdict(list)
    numbers = {"bubble_error": 0.0, "in_flight_error": 0.0}

    for step in range(done + 1, options.steps + 1):
        place = min((step - 1) // options.steps_each, len(options.micro_batches) - 1)
        connected = count == options.micro_batches[place]
        if not connected:
            count = options.micro_batches[place]
            stage = MeteredStage(module, rank, ranks, DEVICE)
            stage.meter = meter
            schedule = SCHEDULES[options.schedule](stage, count, nn.functional.cross_entropy)
        x, y = next(batches)
        losses: list[Tensor] = []
        optimizer.zero_grad()
        distributed.barrier()  # all begin a step together, and end it together
        meter.reset()
        start = time.perf_counter()
        schedule.step(*([x] if rank == 0 else []), target=y, losses=losses)
        distributed.barrier()
        seconds = time.perf_counter() - start
        optimizer.step()

        # Sums over all stages: only the last knows the loss. The first keeps most micro-batches.
        kept = [meter.most_in_flight, meter.most_bytes / 1024] if rank == 0 else [0, 0]
        total = sum(loss.item() for loss in losses)
        sums = torch.tensor([meter.busy, total, *kept], device=DEVICE)
        distributed.all_reduce(sums)
        busy, loss, in_flight, kept_kib = sums.tolist()
        seen = {"loss": loss / count, "micro_batches": count}
        if connected:  # the first step of a schedule also makes its connections
            bubbles[count].append(1 - busy / (ranks * seconds))
            seen["bubble"] = median(bubbles[count])
            theory, most = claims(options.schedule, ranks, count)
            numbers |= {f"bubble_{count}": seen["bubble"], f"theory_{count}": theory}
            numbers |= {f"in_flight_{count}": in_flight, f"kept_kib_{count}": kept_kib}
            numbers["in_flight_error"] = max(numbers["in_flight_error"], abs(in_flight - most))
            errors = [abs(numbers[f"bubble_{c}"] - numbers[f"theory_{c}"]) for c in bubbles]
            numbers["bubble_error"] = max(errors)
        if step < options.steps:
            events.step(step, examples=step * options.batch, **seen)
        if step % options.save_every == 0:
            save(step, rank, module, optimizer)

    with events.during("eval"):
        numbers["accuracy"] = accuracy(module, test_x, test_y)
    # Every stage has the numbers of all: it is enough that one reports them.
    seen |= numbers if rank == 0 else {}
    events.step(options.steps, examples=options.steps * options.batch, **seen)


def main() -> None:
    """Join the process group, train, leave the group."""
    options = arguments()
    torch.set_num_threads(1)  # the tasks share the machine's cores
    # Reads the environment, waits for all ranks.
    distributed.init_process_group("nccl" if DEVICE.type == "cuda" else "gloo")
    events.phase("startup", "end")
    train(options)
    gc.collect()  # see ddp.py
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
