"""A training loop with Accelerate, as one would write it for any cluster: nothing here is of ours.

`accelerate launch` and torchrun give each process its variables, and Accelerator() reads them. It
gives each process its share of the batches, averages the gradients and saves the whole state. Each
start resumes from the last save. What it prints for each epoch is read as steps.
"""

import argparse
import os
from pathlib import Path

import digits
import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration, set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("EMULATOR_SEED", "0"))
FOLDER = Path(os.environ.get("EMULATOR_SHARED", "."), "accelerate")
LEARNING_RATE = 0.3
HIDDEN = 64


def main() -> None:
    """Train on all processes; save after each epoch, and resume."""
    parser = argparse.ArgumentParser(description="Train with Accelerate.")
    parser.add_argument("--epochs", type=int, default=30, help="epochs to train (30)")
    parser.add_argument("--batch", type=int, default=64, help="examples per process and step (64)")
    options = parser.parse_args()

    set_seed(SEED)
    torch.set_num_threads(1)  # the tasks share the machine's cores
    accelerator = Accelerator(
        project_config=ProjectConfiguration(
            project_dir=str(FOLDER), automatic_checkpoint_naming=True, total_limit=3
        )
    )
    accelerator.print(f"processes: {accelerator.num_processes}")

    train_x, train_y, test_x, test_y = map(torch.from_numpy, digits.load(SEED))
    model = nn.Sequential(
        nn.Linear(digits.PIXELS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, digits.CLASSES)
    )
    model, optimizer, training, held_out = accelerator.prepare(
        model,
        torch.optim.SGD(model.parameters(), LEARNING_RATE),
        DataLoader(TensorDataset(train_x, train_y), batch_size=options.batch, shuffle=True),
        DataLoader(TensorDataset(test_x, test_y), batch_size=options.batch),
    )

    saves = sorted(FOLDER.glob("checkpoints/*"), key=lambda save: int(save.name.split("_")[1]))
    done = 0
    if saves:
        accelerator.load_state(str(saves[-1]))
        done = int(saves[-1].name.split("_")[1]) + 1  # the first save is checkpoint_0
        accelerator.project_configuration.iteration = done
        accelerator.print(f"resumed after epoch {done}")

    for epoch in range(done + 1, options.epochs + 1):
        for x, y in training:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)  # includes the all-reduce
            optimizer.step()

        right = total = 0
        with torch.no_grad():
            for x, y in held_out:
                guesses, truth = accelerator.gather_for_metrics((model(x).argmax(dim=1), y))
                right += int((guesses == truth).sum())
                total += len(truth)
        accelerator.print(f"epoch {epoch}: {{'accuracy': {right / total:.4f}}}", flush=True)
        accelerator.save_state()
    accelerator.wait_for_everyone()  # one that ends first breaks the connections of others
    accelerator.end_training()


if __name__ == "__main__":
    main()
