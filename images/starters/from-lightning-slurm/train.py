"""Lightning in a Slurm job, with its own handler: on SIGUSR1 it saves and requeues the job.

Lightning finds that it is in a Slurm job by the job's variables. It ignores SIGTERM there, so that
a job that is preempted by SIGTERM trains on until SIGKILL, and has what was saved before. Give the
job a signal ahead of its end: `#SBATCH --signal=SIGUSR1@60`.
"""

import argparse
import json
import os
import time
from pathlib import Path

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SHARED = Path(os.environ.get("EMULATOR_SHARED", "."))


def say(**event: object) -> None:
    """Print what the emulator reads: a line of JSON."""
    print(json.dumps(event), flush=True)


class Line(LightningModule):
    """A line that is fitted to y = 3 x + 2."""

    def __init__(self) -> None:
        """Make the one layer."""
        super().__init__()
        self.layer = nn.Linear(1, 1)

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        """Return the loss of a batch."""
        x, y = batch
        return nn.functional.mse_loss(self.layer(x), y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Use plain stochastic gradient descent."""
        return torch.optim.SGD(self.parameters(), 0.1)


class Report(Callback):
    """Report steps, and from which one training goes on."""

    def __init__(self, step_cost: float) -> None:
        """Every step takes at least so many seconds, as that of a larger model would."""
        self.step_cost = step_cost

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Report what was restored."""
        if trainer.global_step:
            say(emulate="phase", phase="restore", state="end", step=trainer.global_step)

    def on_train_batch_end(self, trainer: Trainer, *_: object) -> None:
        """Report a step."""
        time.sleep(self.step_cost)
        say(emulate="step", step=trainer.global_step)


class Saying(Trainer):
    """Lightning's trainer, which says when it saves: its callback does it, and its handler."""

    def save_checkpoint(self, filepath: str | Path, *args: object, **options: object) -> None:
        """Save."""
        say(emulate="phase", phase="checkpoint", state="begin", step=self.global_step)
        super().save_checkpoint(filepath, *args, **options)
        say(emulate="phase", phase="checkpoint", state="end", step=self.global_step)


def newest() -> Path | None:
    """Return the newest save, the callback's or the handler's; `ckpt_path="last"` skips those."""
    saves = [*SHARED.glob("saves/*.ckpt"), *SHARED.glob("hpc_ckpt_*.ckpt")]
    return max(saves, key=lambda path: path.stat().st_mtime, default=None)


def main() -> None:
    """Train from the newest save on."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300, help="steps to train (300)")
    parser.add_argument("--save-every", type=int, default=50, help="steps between saves (50)")
    parser.add_argument("--step-cost", type=float, default=0.1, help="more seconds of a step (0.1)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    x = torch.rand(4096, 1, generator=torch.Generator().manual_seed(0)) * 2 - 1
    saves = ModelCheckpoint(SHARED / "saves", every_n_train_steps=options.save_every)
    trainer = Saying(
        accelerator="cpu",
        devices=1,
        max_steps=options.steps,
        max_epochs=-1,
        default_root_dir=SHARED,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[saves, Report(options.step_cost)],
    )
    data = DataLoader(TensorDataset(x, 3 * x + 2), batch_size=32, shuffle=True)
    trainer.fit(Line(), data, ckpt_path=newest())


if __name__ == "__main__":
    main()
