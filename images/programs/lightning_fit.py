"""Lightning on several nodes, as one would write it for any cluster: nothing here is of ours.

Lightning finds the other nodes by itself: in NODE_RANK, MASTER_ADDR and MASTER_PORT when it is
started with `python`, and in torchrun's variables under torchrun. The callback saves to the shared
folder, and `ckpt_path="last"` resumes from there. What its Slurm handler saves, which requeues the
job, it resumes from only without a `ckpt_path`, and then from nothing else: `newest` looks at both.
The steps are in the event files of its logger.
"""

import argparse
import os
import time
from pathlib import Path

import digits
import torch
from lightning.pytorch import LightningDataModule, LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import TensorBoardLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("EMULATOR_SEED", "0"))
SHARED = os.environ.get("EMULATOR_SHARED", ".")
LEARNING_RATE = 0.3
HIDDEN = 64

Batch = tuple[torch.Tensor, torch.Tensor]


class Digits(LightningDataModule):
    """The training and the held-out images. Lightning gives each node its share of them."""

    def __init__(self, batch: int) -> None:
        """Load the images; `batch` is the number of examples per node and step."""
        super().__init__()
        train_x, train_y, test_x, test_y = map(torch.from_numpy, digits.load(SEED))
        self.training = TensorDataset(train_x, train_y)
        self.held_out = TensorDataset(test_x, test_y)
        self.batch = batch

    def train_dataloader(self) -> DataLoader:
        """Return the training images in a new order for each epoch."""
        return DataLoader(self.training, batch_size=self.batch, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        """Return the held-out images, in one batch per node."""
        return DataLoader(self.held_out, batch_size=len(self.held_out))


class Perceptron(LightningModule):
    """A 64-64-10 perceptron."""

    def __init__(self, step_cost: float) -> None:
        """Make the layers; `step_cost` is what each step takes longer, in seconds."""
        super().__init__()
        self.step_cost = step_cost
        self.layers = nn.Sequential(
            nn.Linear(digits.PIXELS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, digits.CLASSES)
        )

    def training_step(self, batch: Batch, _: int) -> torch.Tensor:
        """Return the loss of a batch, and log it."""
        time.sleep(self.step_cost)
        x, y = batch
        loss = nn.functional.cross_entropy(self.layers(x), y)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Batch, _: int) -> None:
        """Log the accuracy, the mean over all nodes."""
        x, y = batch
        right = (self.layers(x).argmax(dim=1) == y).float().mean()
        self.log("accuracy", right, sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Use plain stochastic gradient descent."""
        return torch.optim.SGD(self.parameters(), LEARNING_RATE)


def newest() -> str | None:
    """Return what was saved last, by the callback or by the Slurm handler."""
    saved = [*Path(SHARED, "lightning").glob("*.ckpt"), *Path(SHARED).glob("hpc_ckpt_*.ckpt")]
    last = max(saved, key=lambda path: path.stat().st_mtime, default=None)
    return str(last) if last else None


def main() -> None:
    """Train on all nodes; save every few steps, and resume."""
    parser = argparse.ArgumentParser(description="Train with Lightning on several nodes.")
    parser.add_argument("--nodes", type=int, default=1, help="number of nodes (1)")
    parser.add_argument("--steps", type=int, default=300, help="steps to train (300)")
    parser.add_argument("--batch", type=int, default=64, help="examples per node and step (64)")
    parser.add_argument("--save-every", type=int, default=50, help="steps between saves (50)")
    parser.add_argument(
        "--resume",
        choices=["last", "auto", "newest"],
        default=os.environ.get("RESUME", "last"),
        help="from the last periodic save, auto: that of its Slurm handler, or the newest (last)",
    )
    parser.add_argument(
        "--step-cost", type=float, default=0, help="additional seconds of each step (0)"
    )
    options = parser.parse_args()

    seed_everything(SEED)
    torch.set_num_threads(1)  # the tasks share the machine's cores
    trainer = Trainer(
        num_nodes=options.nodes,
        devices="auto" if torch.cuda.is_available() else 1,
        max_steps=options.steps,
        max_epochs=-1,
        default_root_dir=SHARED,
        logger=TensorBoardLogger(SHARED, name="logs", flush_secs=1),
        log_every_n_steps=10,
        enable_progress_bar=False,
        callbacks=[
            ModelCheckpoint(
                f"{SHARED}/lightning", every_n_train_steps=options.save_every, save_last=True
            )
        ],
    )
    resume = {"last": "last", "auto": None, "newest": newest()}[options.resume]
    trainer.fit(Perceptron(options.step_cost), Digits(options.batch), ckpt_path=resume)


if __name__ == "__main__":
    main()
