"""Transformers' Trainer with `enable_jit_checkpoint`: it saves when it gets SIGTERM, and ends.

It waits three seconds after the signal before it saves, so grace periods are scaled by less here
than in other scenarios. It marks a save that is not complete by a file in it, and does not look for
that file when it resumes: `newest` does. The Trainer returns as if it were done, so the program
ends with another exit code where steps are left; with 0, a cluster would take the job for done.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

SAVES = Path(os.environ.get("EMULATOR_SHARED", "."), "saves")
INCOMPLETE = "checkpoint-is-incomplete.txt"
PREEMPTED = 143  # the exit code of what SIGTERM has ended


def say(**event: object) -> None:
    """Print what the emulator reads: a line of JSON."""
    print(json.dumps(event), flush=True)


class Line(nn.Module):
    """A line that is fitted to y = 3 x + 2."""

    def __init__(self) -> None:
        """Make the one layer."""
        super().__init__()
        self.layer = nn.Linear(1, 1)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the loss of a batch, as Trainer wants it."""
        return {"loss": nn.functional.mse_loss(self.layer(x), y)}


class Report(TrainerCallback):
    """Report steps, and from which one training goes on."""

    def __init__(self, step_cost: float) -> None:
        """Every step takes at least so many seconds, as that of a larger model would."""
        self.step_cost = step_cost

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        """Report what was restored."""
        if state.global_step:
            say(emulate="phase", phase="restore", state="end", step=state.global_step)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        """Report a step."""
        time.sleep(self.step_cost)
        say(emulate="step", step=state.global_step)


class Saying(Trainer):
    """The Trainer, which says when it saves."""

    def _save_checkpoint(self, model: nn.Module, trial: object) -> None:
        say(emulate="phase", phase="checkpoint", state="begin", step=self.state.global_step)
        super()._save_checkpoint(model, trial)
        say(emulate="phase", phase="checkpoint", state="end", step=self.state.global_step)


def newest() -> str | None:
    """Return the newest complete save."""
    whole = [one for one in SAVES.glob("checkpoint-*") if not (one / INCOMPLETE).exists()]
    last = max(whole, key=lambda path: int(path.name.rpartition("-")[2]), default=None)
    return None if last is None else str(last)


def main() -> None:
    """Train from the newest save on."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300, help="steps to train (300)")
    parser.add_argument("--save-every", type=int, default=50, help="steps between saves (50)")
    parser.add_argument("--step-cost", type=float, default=0.1, help="more seconds of a step (0.1)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    x = torch.rand(4096, 1, generator=torch.Generator().manual_seed(0)) * 2 - 1
    arguments = TrainingArguments(
        output_dir=str(SAVES),
        max_steps=options.steps,
        per_device_train_batch_size=32,
        learning_rate=0.1,
        optim="sgd",
        lr_scheduler_type="constant",
        save_strategy="steps",
        save_steps=options.save_every,
        save_total_limit=3,
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        remove_unused_columns=False,
        enable_jit_checkpoint=os.environ.get("JIT", "1") == "1",
    )
    rows = [{"x": one, "y": 3 * one + 2} for one in x]
    trainer = Saying(Line(), arguments, train_dataset=rows, callbacks=[Report(options.step_cost)])
    trainer.train(resume_from_checkpoint=newest())
    if trainer.state.global_step < options.steps:
        sys.exit(PREEMPTED)


if __name__ == "__main__":
    main()
