"""Save and resume with PyTorch, in the formats that its users have.

`torch` and `torch-rename` are torch.save: onto the file, and beside it with a rename after. `dcp`
is distributed checkpoint into one folder, as its tutorial has it, and `dcp-steps` into a folder for
each save, of which the newest that has `.metadata` is loaded. `lightning` is Lightning's
ModelCheckpoint, resumed by `ckpt_path="last"`, and `lightning-whole` the same, resumed from the
newest file that is whole (both need Lightning). `trainer` is Hugging Face's Trainer, resumed by
`resume_from_checkpoint=True`, and `trainer-complete` the same, resumed from the newest folder that
is complete (both need transformers and accelerate).
"""

import sys
import zipfile
from pathlib import Path

import events
import formats
import numpy as np
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


def fill(model: torch.nn.Module) -> None:
    """Make the state the parameters of a model."""
    for name, tensor in tensors(formats.arrays_of(0)).items():
        model.register_parameter(name, torch.nn.Parameter(tensor))


def values(model: torch.nn.Module) -> list[np.ndarray]:
    """Return the state that a model has."""
    return [*arrays(dict(model.named_parameters())).values()]


def learn(model: torch.nn.Module, step: int, steps: formats.Steps) -> None:
    """Give the parameters of a model the values of a step, and report it."""
    state = formats.learned(arrays(dict(model.named_parameters())), step)
    with torch.no_grad():
        for name, tensor in tensors(state).items():
            model.get_parameter(name).copy_(tensor)
    steps.made(step, formats.loss(state))


def trainer() -> None:
    """Train with the Trainer of Hugging Face, which saves and resumes by itself."""
    from transformers import Trainer, TrainerCallback, TrainerState, TrainingArguments
    from transformers.trainer_utils import get_last_checkpoint

    options = formats.arguments(FORMATS, __doc__ or "")
    steps = formats.Steps(options)

    class Model(torch.nn.Module):
        """Its parameters are the state."""

        def __init__(self) -> None:
            super().__init__()
            fill(self)

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": self.bias.sum() * 0 + x.sum() * 0}

    class Step(TrainerCallback):
        """Gives the parameters the values of the step; the Trainer saves after it."""

        def on_train_begin(
            self, args: object, state: TrainerState, control: object, model: Model, **_: object
        ) -> None:
            if state.global_step:
                formats.restored(state.global_step, values(model))

        def on_step_end(
            self, args: object, state: TrainerState, control: object, model: Model, **_: object
        ) -> None:
            learn(model, state.global_step, steps)

    class Reporting(Trainer):
        """Reports each save."""

        def _save_checkpoint(self, model: Model, *given: object, **named: object) -> None:
            with formats.saving(self.state.global_step, values(model)):
                super()._save_checkpoint(model, *given, **named)

    arguments = TrainingArguments(
        output_dir=str(SAVES),
        max_steps=options.steps,
        save_steps=options.save_every,
        per_device_train_batch_size=1,
        learning_rate=0.0,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        logging_steps=1000,
    )
    data = [{"x": torch.zeros(1)}] * 1000
    training = Reporting(Model(), arguments, train_dataset=data, callbacks=[Step()])
    events.phase("restore", "begin")
    SAVES.mkdir(parents=True, exist_ok=True)
    found: bool | str = get_last_checkpoint(str(SAVES)) is not None
    if options.format == "trainer-complete":
        told = SAVES.glob("checkpoint-*/trainer_state.json")  # written last; empty at first
        complete = [path.parent for path in told if path.read_text().endswith("}\n")]
        newest = max(complete, key=lambda path: int(path.name.partition("-")[2]), default=None)
        found = str(newest) if newest else False
    training.train(resume_from_checkpoint=found)


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
            fill(self)

        def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
            return self.bias.sum() * 0 + batch.sum() * 0

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.0)

        def on_train_start(self) -> None:
            if self.global_step:
                formats.restored(self.global_step, values(self))

    class Step(Callback):
        """Gives the parameters the values of the step; what saves is always called after it."""

        def on_train_batch_end(self, trainer: Trainer, model: LightningModule, *_: object) -> None:
            learn(model, trainer.global_step, steps)

    class Reporting(Trainer):
        """Reports each save."""

        def save_checkpoint(self, *given: object, **named: object) -> None:
            with formats.saving(self.global_step, values(self.lightning_module)):
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
    found: Path | str | None = "last"
    if options.format == "lightning-whole":
        # A file of torch.save is a zip file: its end, which a part of it lacks, says what is in it.
        whole = [path for path in SAVES.glob("*.ckpt") if zipfile.is_zipfile(path)]
        found = max(whole, key=lambda path: path.stat().st_mtime, default=None)
    trainer.fit(Model(), DataLoader(torch.zeros(1000, 1), batch_size=1), ckpt_path=found)


FORMATS = {
    "torch": Torch,
    "torch-rename": TorchRename,
    "dcp": Dcp,
    "dcp-steps": DcpSteps,
    "lightning": lightning,
    "lightning-whole": lightning,
    "trainer": trainer,
    "trainer-complete": trainer,
}

if __name__ == "__main__":
    torch.set_num_threads(1)  # the tasks share the machine's cores
    if "lightning" in sys.argv or "lightning-whole" in sys.argv:
        lightning()
    elif "trainer" in sys.argv or "trainer-complete" in sys.argv:
        trainer()
    else:
        formats.train(FORMATS, __doc__ or "")
