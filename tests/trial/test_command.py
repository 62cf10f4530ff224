"""What a command runs, from its words and its script."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.errors import UsageError
from emulator.trial.command import look

PYTHON = ["python3", "train.py", "--epochs", "3"]


@pytest.mark.parametrize(
    ("text", "framework", "workers", "why"),
    [
        ("print(1)", "none", 1, "nothing in it"),
        ("import numpy, torch", "pytorch", 1, "nothing in it"),
        ("import torch.distributed as d\nd.init_process_group()", "pytorch", 2, "init_process"),
        (
            "from torch.nn.parallel import DistributedDataParallel as X",
            "pytorch",
            2,
            "DistributedD",
        ),
        ("import lightning as L\nL.Trainer(num_nodes=2)", "pytorch", 2, "num_nodes"),
        ("from transformers import Trainer", "pytorch", 1, "nothing in it"),
        ("import keras", "tensorflow", 1, "nothing in it"),
        (
            "import tensorflow as tf\ntf.distribute.MultiWorkerMirroredStrategy()",
            "tensorflow",
            2,
            "M",
        ),
        ("import json, os\njson.loads(os.environ['TF_CONFIG'])", "none", 2, "it reads TF_CONFIG"),
        ("import jax\njax.distributed.initialize()", "jax", 2, "it uses jax.distributed"),
        ("import jax", "jax", 1, "nothing in it"),
    ],
)
def test_a_script_says_what_it_is(
    tmp_path: Path, text: str, framework: str, workers: int, why: str
) -> None:
    (tmp_path / "train.py").write_text(text)
    found = look(PYTHON, tmp_path)
    assert (found.framework, found.workers) == (framework, workers)
    assert why in found.why
    assert found.script == Path("train.py")


def test_modules_of_the_program_count_and_others_are_not_looked_for(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import os, loop\nfrom nets import mlp\n")
    (tmp_path / "loop.py").write_text("import torch, train\ntorch.distributed.init_process_group()")
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "__init__.py").write_text("def broken(:")  # what runs says so
    found = look(PYTHON, tmp_path)
    assert (found.framework, found.imported, found.workers) == ("pytorch", "import torch", 2)


@pytest.mark.parametrize(
    ("words", "workers"),
    [
        (["torchrun", "train.py"], 2),
        (["torchrun", "--nnodes=2", "--nproc-per-node", "2", "train.py"], 2),
        (["torchrun", "--standalone", "train.py"], 1),
        (["torchrun", "--nnodes", "1", "train.py"], 1),
        (["python3", "-m", "torch.distributed.run", "--nnodes=1", "train.py"], 1),
    ],
)
def test_torchrun_is_run_as_it_is(
    tmp_path: Path, words: list[str], workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name, path: f"/bin/{name}")
    (tmp_path / "train.py").write_text("import torch")
    found = look(words, tmp_path, "")
    assert (found.command, found.framework, found.workers) == (tuple(words), "pytorch", workers)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], r"There is no command to try\. For example"),
        (["train.py"], r"train\.py is a script, not a command\. Run it with Python: "),
        (["python3", "nope.py"], r"There is no nope\.py in "),
        (["no-such-program"], r"There is no program no-such-program\."),
        (["python3", "bad.py"], r"bad\.py:1: invalid syntax"),
        (["python3", "binary.py"], r"binary\.py can't be read: "),
    ],
)
def test_what_can_t_be_tried_is_one_sentence(tmp_path: Path, words: list[str], says: str) -> None:
    (tmp_path / "bad.py").write_text("a b")
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match=says):
        look(words, tmp_path, "/usr/bin:/bin")
