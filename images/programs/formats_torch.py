"""Save and resume with PyTorch, in the formats that its users have.

`torch` and `torch-rename` are torch.save: onto the file, and beside it with a rename after. `dcp`
is distributed checkpoint into one folder, as its tutorial has it, and `dcp-steps` into a folder for
each save, of which the newest that has `.metadata` is loaded. `lightning` is Lightning's
ModelCheckpoint, resumed by `ckpt_path="last"` (needs Lightning).
"""

import sys
from pathlib import Path
from typing import Any

import events
import formats
import torch
import torch.distributed.checkpoint as dcp
from formats import SAVES, Arrays


def tensors(arrays: Arrays) -> dict[str, torch.Tensor]:
    """Return arrays as tensors."""
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def arrays(state: dict[str, torch.Tensor]) -> Arrays:
    """Return tensors as arrays."""
    return {name: tensor.detach().numpy() for name, tensor in state.items()}


class Torch:
    """torch.save onto the file."""

    def __init__(self) -> None:
        """Begin with step 0."""
        self.state = formats.arrays_of(0)
        self.file = SAVES / "model.pt"

    def restore(self) -> int | None:
        """Load the file if it is there."""
        if not self.file.exists():
            return None
        saved = torch.load(self.file)
        self.state = arrays(saved["model"])
        return int(saved["step"])

    def save(self, step: int) -> None:
        """Write over the file."""
        torch.save({"step": step, "model": tensors(self.state)}, self.file)


class TorchRename(Torch):
    """torch.save beside the file, then a rename."""

    def save(self, step: int) -> None:
        """Write another file, and give it the name when it is complete."""
        beside = self.file.with_suffix(".tmp")
        torch.save({"step": step, "model": tensors(self.state)}, beside)
        beside.replace(self.file)


class Dcp:
    """Distributed checkpoint into one folder."""

    def __init__(self) -> None:
        """Begin with step 0."""
        self.state = formats.arrays_of(0)

    def latest(self) -> Path | None:
        """Return the folder to load, if there is one."""
        folder = SAVES / "checkpoint"
        return folder if folder.exists() else None

    def restore(self) -> int | None:
        """Load into tensors of the same shape."""
        folder = self.latest()
        if folder is None:
            return None
        saved = {"step": torch.tensor(0), "model": tensors(self.state)}
        dcp.load(saved, checkpoint_id=folder)
        self.state = arrays(saved["model"])
        return int(saved["step"])

    def folder(self, step: int) -> Path:
        """Return where a step is saved."""
        del step
        return SAVES / "checkpoint"

    def save(self, step: int) -> None:
        """Save; a folder that has a save is written over."""
        saved = {"step": torch.tensor(step), "model": tensors(self.state)}
        dcp.save(saved, checkpoint_id=self.folder(step))


class DcpSteps(Dcp):
    """Distributed checkpoint into a folder for each save."""

    def latest(self) -> Path | None:
        """Return the newest that is complete, as torchtitan does."""
        complete = [path.parent for path in SAVES.glob("step-*/.metadata")]
        return max(complete, key=lambda path: int(path.name.partition("-")[2]), default=None)

    def folder(self, step: int) -> Path:
        """Return where a step is saved."""
        return SAVES / f"step-{step}"


def lightning() -> None:
    """Train with Lightning's Trainer, which saves and resumes by itself."""
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.callbacks import ModelCheckpoint
    from torch.utils.data import DataLoader

    options = formats.arguments(FORMATS, __doc__ or "")
    steps = formats.Steps(options)

    class Model(LightningModule):
        """Its parameters are the state."""

        def __init__(self) -> None:
            super().__init__()
            for name, tensor in tensors(formats.arrays_of(0)).items():
                self.register_parameter(name, torch.nn.Parameter(tensor))

        def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
            return self.bias.sum() * 0 + batch.sum() * 0

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.0)

        def values(self) -> list[Any]:
            return [*arrays(dict(self.named_parameters())).values()]

        def on_train_start(self) -> None:
            if self.global_step:
                formats.restored(self.global_step, self.values())

    class Step(Callback):
        """Gives the parameters the values of the step; what saves is always called after it."""

        def on_train_batch_end(self, trainer: Trainer, model: LightningModule, *_: object) -> None:
            with torch.no_grad():
                for name, tensor in tensors(formats.arrays_of(trainer.global_step)).items():
                    model.get_parameter(name).copy_(tensor)
            steps.made(trainer.global_step)

    class Reporting(Trainer):
        """Reports each save."""

        def save_checkpoint(self, *given: object, **named: object) -> None:
            with formats.saving(self.global_step, self.lightning_module.values()):
                super().save_checkpoint(*given, **named)

    saver = ModelCheckpoint(
        SAVES, filename="{step}", every_n_train_steps=options.save_every, save_last=True
    )
    trainer = Reporting(
        accelerator="cpu",
        max_steps=options.steps,
        max_epochs=-1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[Step(), saver],
    )
    events.phase("restore", "begin")
    trainer.fit(Model(), DataLoader(torch.zeros(1000, 1), batch_size=1), ckpt_path="last")


FORMATS = {
    "torch": Torch,
    "torch-rename": TorchRename,
    "dcp": Dcp,
    "dcp-steps": DcpSteps,
    "lightning": lightning,
}

if __name__ == "__main__":
    torch.set_num_threads(1)  # the tasks share the machine's cores
    if "lightning" in sys.argv:
        lightning()
    else:
        formats.train(FORMATS, __doc__ or "")
