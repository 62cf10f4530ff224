"""What is read of the files that a job has left."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emulator.analysis.uninterrupted import TOLERANCE, Figures, differences
from emulator.runtime.programs import PACKAGE
from emulator.supervisor.witness.arrays import SIGNS, answer, leaves, main, value_of
from tests.conftest import Emulate


def read(folder: Path, **more: Any) -> dict[str, Any]:
    files: dict[str, Any] = answer({"folder": str(folder), **more})["files"]
    return files


def as_safetensors(**tensors: tuple[str, bytes]) -> bytes:
    """Return a file of safetensors, as its documentation has the format."""
    header, data = {}, b""
    for name, (kind, content) in tensors.items():
        about = {"dtype": kind, "shape": [1], "data_offsets": [len(data), len(data) + len(content)]}
        header[name], data = about, data + content
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def test_each_format_that_needs_no_framework(tmp_path: Path) -> None:
    np.savez(tmp_path / "model.npz", w=np.arange(4.0), step=np.int64(7))
    np.save(tmp_path / "x.npy", np.ones(2))
    (tmp_path / "state.json").write_text('{"step": 7, "loss": [0.5, null], "name": "a"}')
    half = np.float32(1.5).tobytes()[2:]
    (tmp_path / "model.safetensors").write_bytes(
        as_safetensors(a=("F32", np.float32(3).tobytes()), b=("BF16", half), c=("U8", b"\x01"))
    )
    (tmp_path / "notes.txt").write_text("x")
    found = read(tmp_path)
    assert {path: file["format"] for path, file in found.items()} == {
        "model.npz": "NumPy",
        "x.npy": "file",
        "state.json": "JSON",
        "model.safetensors": "safetensors",
        "notes.txt": "text",
    }
    assert found["model.npz"]["values"]["w"]["norm"] == pytest.approx(14**0.5)
    assert [*found["x.npy"]["values"]] == ["value"]
    state = found["state.json"]["values"]
    assert {name: value.get("number") for name, value in state.items()} == {
        **{"step": 7, "loss.0": 0.5, "loss.1": None, "name": None}
    }
    tensors = found["model.safetensors"]["values"]
    assert [tensors[name]["norm"] for name in ("a", "b")] == [3.0, 1.5]
    assert "values" not in found["notes.txt"]


def test_a_file_that_is_cut_off_is_broken_and_one_without_its_package_is_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(tmp_path / "model.npz", w=np.arange(400.0))
    whole = (tmp_path / "model.npz").read_bytes()
    (tmp_path / "model.npz").write_bytes(whole[:900])
    (tmp_path / "weights.json").write_text("[1, 2")
    (tmp_path / "model.pt").write_bytes(b"PK\x03\x04")
    monkeypatch.setitem(sys.modules, "torch", None)
    found = read(tmp_path)
    assert "zip" in found["model.npz"]["broken"]
    assert "Expecting" in found["weights.json"]["broken"]
    assert found["model.pt"]["unread"] == "there is no module torch"


def test_of_several_saves_the_newest_is_read_and_of_a_known_file_only_the_digest(
    tmp_path: Path,
) -> None:
    for step in (10, 20):
        np.savez(tmp_path / f"model-{step}.npz", w=np.arange(4.0))
        os.utime(tmp_path / f"model-{step}.npz", (1_796_000_000 + step,) * 2)
    found = read(tmp_path)
    assert [*found] == ["model-20.npz"]
    known = {"model-20.npz": found["model-20.npz"]["digest"]}
    again = read(tmp_path, known=known)
    assert again == {"model-20.npz": {"format": "NumPy", "digest": known["model-20.npz"]}}
    assert read(tmp_path, since=1_796_000_100.0) == {}
    assert [*read(tmp_path, wanted=["model-10.npz"])] == ["model-20.npz", "model-10.npz"]


def test_of_a_series_of_files_that_are_no_saves_by_their_format_the_newest_is_read(
    tmp_path: Path,
) -> None:
    for number, name in enumerate(("state-10.json", "state-20.json", "log.json")):
        (tmp_path / name).write_text("1")
        os.utime(tmp_path / name, (1_796_000_000 + number,) * 2)
    assert [*read(tmp_path)] == ["log.json", "state-20.json"]


def test_no_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "secret.json").write_text("1")
    (tmp_path / "in" / "model.json").symlink_to(tmp_path / "secret.json")
    assert read(tmp_path / "in") == {}


@pytest.mark.parametrize("share", [1e-9, 1e-7, 1e-5, 1e-2])
def test_sketches_tell_how_far_arrays_are_apart(share: float) -> None:
    random = np.random.default_rng(0)
    one = random.normal(size=5000)
    apart = random.normal(size=5000)
    other = one + share * apart * np.linalg.norm(one) / np.linalg.norm(apart)
    files = [
        {"/shared/a.npz": {"digest": str(array.sum()), "values": {"w": value_of(array)}}}
        for array in (one, other)
    ]
    found = differences(Figures(files=files[0]), Figures(files=files[1]), TOLERANCE)
    assert bool(found.differs) == (share > TOLERANCE)
    for tolerance, differs in ((share / 3, True), (share * 3, False)):
        found = differences(Figures(files=files[0]), Figures(files=files[1]), tolerance)
        assert bool(found.differs) == differs


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        (np.ones(2, np.float32), np.ones(2, np.float32), True),
        (np.ones(2, np.float32), np.ones(2, np.float64), False),
        (np.zeros((2, 3)), np.zeros((3, 2)), False),
        (np.array([np.nan]), np.array([np.nan]), True),
        (np.array(["a"]), np.array(["a"]), True),
        (1j * np.ones(3), 1j * np.ones(3), True),
        (1, 1, True),
        (True, 1, False),
        ("a", b"a", False),
        ("/runs/a/best.ckpt", "/runs/b/best.ckpt", True),
        ("/runs/a/step-10.ckpt", "/runs/a/step-20.ckpt", False),
    ],
)
def test_values_have_a_digest(one: Any, other: Any, *, alike: bool) -> None:
    mine, theirs = value_of(one), value_of(other)
    assert mine is not None
    assert theirs is not None
    assert (mine["digest"] == theirs["digest"]) == alike
    assert len(mine.get("sketch", [0] * SIGNS)) == SIGNS


def test_what_is_no_value_is_left_out() -> None:
    assert value_of(object()) is None
    assert dict(leaves({"a": [1, {"b": 2}], 3: ()})) == {"a.0": 1, "a.1.b": 2}


def test_the_answer_is_the_last_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.json").write_text("1")
    main([json.dumps({"folder": str(tmp_path)})])
    out = capfd.readouterr().out
    assert json.loads(out.splitlines()[-1])["files"]["a.json"]["values"]["value"]["number"] == 1


COMPARES = """
import pickle, sys, zipfile
import torch
from emulator.supervisor.witness import arrays

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
optimizer = torch.optim.AdamW(model.parameters())
model(torch.randn(4, 3)).sum().backward()
optimizer.step()
whole = torch.arange(24.0).reshape(2, 3, 4)
kinds = {
    "states": {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 7},
    "parameter": torch.nn.Parameter(torch.ones(2)),
    "views": [whole[0, 1:], whole.transpose(0, 2), whole.t() if whole.dim() < 3 else whole[..., 0]],
    "shared": {"a": whole, "b": whole[1]},
    "types": [torch.ones(2, dtype=getattr(torch, one)) for one in (
        "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")],
    "sizes": [torch.tensor(3.5), torch.empty(0, 2), whole.shape],
    "plain": {"epoch": 3, "name": "a", "history": [0.5, None], "rng": torch.get_rng_state()},
    "complex": torch.ones(2, dtype=torch.complex64),
    "sparse": torch.eye(3).to_sparse(),
    "model": model,
}
read_by_torch = []
for name, content in kinds.items():
    torch.save(content, "file.pt")
    try:
        loaded = torch.load("file.pt", weights_only=True)
    except pickle.UnpicklingError:
        loaded = torch.load("file.pt", weights_only=False)
    own = {key: arrays.value_of(one) for key, one in arrays.leaves(loaded)}
    found = {key: arrays.value_of(one) for key, one in arrays.torch_file("file.pt")}
    assert found == own, (name, found, own)
    with zipfile.ZipFile("file.pt") as archive:
        try:
            (inner,) = [one for one in archive.namelist() if one.endswith("/data.pkl")]
            arrays._Tensors(archive, inner).load()
        except pickle.UnpicklingError:
            read_by_torch.append(name)
print("by torch:", *read_by_torch)
"""


@pytest.mark.docker
def test_a_file_of_torch_is_read_as_torch_reads_it(
    docker_engine: object, emulate: Emulate, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    for name in ("faults/saved_files", "supervisor/witness/arrays"):
        copied = source / "emulator" / f"{name}.py"
        copied.parent.mkdir(parents=True, exist_ok=True)
        copied.write_text((PACKAGE / f"{name}.py").read_text())
    (source / "compare.py").write_text(COMPARES)
    (tmp_path / "s.yaml").write_text(
        "name: compared\nframework: none\nimage: pytorch\ncluster: {worker: 1}\n"
        "program: {source: source, command: [python, compare.py]}\nexpect: {steps: none}\n"
    )
    done = emulate("up", tmp_path / "s.yaml", "--engine=docker", f"--out={emulate.out}").ended(0)
    assert "by torch: complex sparse model" in done.stdout + done.stderr
