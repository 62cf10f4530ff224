"""Transformers' Trainer with `enable_jit_checkpoint`, as one would write it for any cluster.

Nothing here is of ours: steps are read from the Trainer's progress bar, and saves are seen. It
saves when it gets SIGTERM, and returns as if it were done; so the program ends with another exit
code where steps are left, else a cluster would take the job for complete. While it saves so, a file
says that the save is incomplete; the Trainer does not look for it when it resumes, `newest` does.
"""

import argparse
import os
import sys
import time
from pathlib import Path

import digits
import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments

SEED = int(os.environ.get("EMULATOR_SEED", "0"))
SAVES = Path(os.environ.get("EMULATOR_SHARED", "."), "transformers")
INCOMPLETE = "checkpoint-is-incomplete.txt"
PREEMPTED = 143  # the exit code of what SIGTERM has ended
LEARNING_RATE = 0.3
HIDDEN = 64


class Perceptron(nn.Module):
    """A 64-64-10 perceptron."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(digits.PIXELS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, digits.CLASSES)
        )

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the loss of a batch and the outputs, as Trainer wants them."""
        outputs = self.layers(x)
        return {"loss": nn.functional.cross_entropy(outputs, labels), "logits": outputs}


class Cost(TrainerCallback):
    """Each step takes as long as that of a larger model."""

    def __init__(self, seconds: float) -> None:
        """Wait for so many seconds."""
        self.seconds = seconds

    def on_step_begin(self, *given: object, **named: object) -> None:
        """Wait."""
        time.sleep(self.seconds)


def newest() -> str | None:
    """Return the newest save that is complete."""
    whole = [one for one in SAVES.glob("checkpoint-*") if not (one / INCOMPLETE).exists()]
    last = max(whole, key=lambda path: int(path.name.rpartition("-")[2]), default=None)
    return str(last) if last else None


def main() -> None:
    """Train from the newest save on."""
    parser = argparse.ArgumentParser(description="Train with Transformers; save at SIGTERM.")
    parser.add_argument("--steps", type=int, default=200, help="steps to train (200)")
    parser.add_argument("--batch", type=int, default=32, help="examples of a step (32)")
    parser.add_argument("--save-every", type=int, default=50, help="steps between saves (50)")
    parser.add_argument(
        "--step-cost", type=float, default=0, help="additional seconds of each step (0)"
    )
    options = parser.parse_args()

    torch.set_num_threads(1)  # the tasks share the machine's cores
    torch.manual_seed(SEED)
    train_x, train_y, test_x, test_y = map(torch.from_numpy, digits.load(SEED))
    arguments = TrainingArguments(
        output_dir=str(SAVES),
        max_steps=options.steps,
        per_device_train_batch_size=options.batch,
        learning_rate=LEARNING_RATE,
        optim="sgd",
        lr_scheduler_type="constant",
        save_steps=options.save_every,
        save_total_limit=3,
        logging_strategy="no",
        report_to="none",
        use_cpu=not torch.cuda.is_available(),
        seed=SEED,
        enable_jit_checkpoint=True,
    )
    rows = [{"x": x, "labels": y} for x, y in zip(train_x, train_y, strict=True)]
    trainer = Trainer(
        Perceptron(), arguments, train_dataset=rows, callbacks=[Cost(options.step_cost)]
    )
    trainer.train(resume_from_checkpoint=newest())
    if trainer.state.global_step < options.steps:
        sys.exit(PREEMPTED)
    with torch.no_grad():
        guesses = trainer.model(test_x, test_y)["logits"].argmax(dim=1)
    print(f"accuracy: {float((guesses == test_y).float().mean()):.3f}")


if __name__ == "__main__":
    main()
