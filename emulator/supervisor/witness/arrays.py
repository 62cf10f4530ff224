"""Read the numbers of the files that a job has left: a program of its own.

It runs where the files are, with the packages of the tasks, from a copy of this file and of
`faults/saved_files.py`. Its one argument is a request, and the last line that it prints an answer:

    {"folder": "/shared", "since": 1796009000.0, "known": {}, "wanted": []}
    {"files": {"model-20.pt": {"format": "torch", "digest": "8254e1a456dd811c", "values": {
        "step": {"digest": "...", "number": 20},
        "model.weight": {"digest": "...", "shape": [8, 4], "norm": 3.2, "sketch": [...]}}}}}

What is read are the newest save of each kind, by the framework that has written it, and the other
files that were written since then. Of a file whose digest is `known` the digest is enough.

Two arrays of the same digest are equal. How far others are apart is told by their sketches: SIGNS
sums of all numbers with a random sign for each (the same ones in every run). The mean square of the
differences of these sums estimates the square of the distance of the arrays (W. Johnson and J.
Lindenstrauss, 1984; D. Achlioptas, 2003), so that no run has to keep the arrays of another.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import io
import json
import math
import os
import pickle
import sys
import zipfile
from typing import TYPE_CHECKING, Any, ClassVar

from emulator.faults import saved_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    Value = dict[str, Any]
    Leaf = tuple[str, Any]

SIGNS = 16
"""Sums of an array."""
PIECE = 2**20
"""Bytes that are read, and numbers that are summed, at once."""
OTHERS = 64
"""Files that are of no save, at most; the newest ones."""
LARGEST = 8 * 2**30
"""Bytes of a file, or of a save that is a folder, which is read at most."""
VALUES = 20_000
"""Values of a file at most."""
LONGEST = 300
"""Characters of a reason."""


def digest_of(content: bytes) -> str:
    """Return what tells a content from others."""
    return hashlib.sha256(content).hexdigest()[:16]


# --- Numbers --------------------------------------------------------------------------------------


def value_of(leaf: Any) -> Value | None:  # noqa: ANN401  whatever is in a file
    """Return what tells a value from others; None: it can't be compared."""
    if isinstance(leaf, str) and os.path.isabs(leaf):  # where the folder of a run is
        leaf = os.path.basename(leaf)
    if leaf is None or isinstance(leaf, (bool, str)):
        return {"digest": digest_of(repr(leaf).encode("utf-8", "replace"))}
    if isinstance(leaf, bytes):
        return {"digest": digest_of(leaf)}
    if isinstance(leaf, (int, float)):
        number = {"digest": digest_of(repr(leaf).encode())}
        return {**number, "number": leaf} if abs(leaf) < 2**53 else number
    if type(leaf).__module__.partition(".")[0] in ("numpy", "ml_dtypes"):
        return _of_array(leaf)
    return None


def _of_array(array: Any) -> Value | None:  # noqa: ANN401
    import numpy as np

    array = np.asarray(array)
    if array.dtype.hasobject or (array.dtype.kind in "USV" and array.dtype.isbuiltin != 2):
        return {"digest": digest_of(repr(array.tolist()).encode("utf-8", "replace"))}
    array = np.ascontiguousarray(array)
    about = f"{array.dtype} {array.shape} ".encode()
    value: Value = {"digest": digest_of(about + array.tobytes()), "shape": list(array.shape)}
    flat = array.reshape(-1)
    if flat.dtype.kind == "c":
        flat = flat.view(flat.real.dtype)
    square, sums = 0.0, np.zeros(SIGNS)
    for begin in range(0, flat.size, PIECE // 16):
        piece = flat[begin : begin + PIECE // 16].astype(np.float64)
        square += float(piece @ piece)
        sums += piece @ _signs(begin, piece.size)
    if math.isfinite(square) and np.isfinite(sums).all():
        value["norm"] = math.sqrt(square)
        value["sketch"] = [float(one) for one in sums]
    return value


def _signs(begin: int, count: int) -> Any:  # noqa: ANN401  an array of count x SIGNS
    """Return a sign for each sum of each number, by its place (splitmix64: S. Vigna, 2015)."""
    import numpy as np

    z = (np.arange(begin + 1, begin + count + 1, dtype=np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    bits = (z[:, None] >> np.arange(SIGNS, dtype=np.uint64)) & np.uint64(1)
    return bits.astype(np.float64) * 2.0 - 1.0


def leaves(tree: Any, name: str = "") -> Iterator[Leaf]:  # noqa: ANN401
    """Yield the values of nested dicts and lists, each with its name."""
    if isinstance(tree, dict):
        for key, inner in tree.items():
            yield from leaves(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(tree, (list, tuple)) and not hasattr(tree, "dtype"):
        for number, inner in enumerate(tree):
            yield from leaves(inner, f"{name}.{number}" if name else str(number))
    else:
        yield name or "value", _plain(tree)


def _plain(leaf: Any) -> Any:  # noqa: ANN401
    """Return a tensor of a framework as an array."""
    kind = type(leaf)
    if kind.__module__.partition(".")[0] == "torch" and hasattr(leaf, "detach"):
        leaf = leaf.detach().cpu()
        if getattr(leaf, "is_quantized", False):
            leaf = leaf.dequantize()
        if str(leaf.dtype) in ("torch.bfloat16", "torch.float16") or "float8" in str(leaf.dtype):
            leaf = leaf.float()
        return leaf.to_dense().numpy() if leaf.layout != _torch().strided else leaf.numpy()
    if kind.__module__.partition(".")[0] in ("jax", "jaxlib", "tensorflow"):
        import numpy as np

        return np.asarray(leaf)
    return leaf


def _torch() -> Any:  # noqa: ANN401
    return importlib.import_module("torch")


# --- Files ----------------------------------------------------------------------------------------


class _Dict(dict[str, "Any"]):
    """A dict that may have attributes, as a state of PyTorch has."""


class _Tensors(pickle.Unpickler):
    """Reads the tensors of a file of `torch.save` as arrays, without the seconds of `import torch`.

    Raises UnpicklingError for what is neither a tensor nor a container of Python.
    """

    KINDS: ClassVar[dict[str, str]] = {
        **{"DoubleStorage": "<f8", "FloatStorage": "<f4", "HalfStorage": "<f2"},
        "BFloat16Storage": "<u2",  # the upper half of a float
        **{"LongStorage": "<i8", "IntStorage": "<i4", "ShortStorage": "<i2"},
        **{"CharStorage": "|i1", "ByteStorage": "|u1", "BoolStorage": "|b1"},
    }

    def __init__(self, archive: zipfile.ZipFile, name: str) -> None:
        self._archive, self._folder = archive, name.rpartition("/")[0]
        super().__init__(io.BytesIO(archive.read(name)))

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401
        """Return what stands for a class; nothing of the file is called."""
        if (module, name) == ("collections", "OrderedDict"):
            return _Dict
        if (module, name) == ("torch", "Size"):
            return tuple
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return self._tensor
        if (module, name) == ("torch._utils", "_rebuild_parameter"):
            return lambda data, *_: data
        if module == "torch" and name in self.KINDS:
            return name
        raise pickle.UnpicklingError(f"{module}.{name}")

    def persistent_load(self, pid: Any) -> Any:  # noqa: ANN401
        """Return the numbers that a tensor is a part of."""
        import numpy as np

        _, kind, key, _, count = pid
        content = self._archive.read(f"{self._folder}/data/{key}")
        return np.frombuffer(content, self.KINDS[kind], count)

    @staticmethod
    def _tensor(numbers: Any, offset: int, size: Any, stride: Any, *_: Any) -> Any:  # noqa: ANN401
        import numpy as np

        last = sum((n - 1) * step for n, step in zip(size, stride))  # noqa: B905  Python 3.8
        if 0 in size:
            return np.empty(size, numbers.dtype)
        if min(*stride, offset, 0) < 0 or offset + last >= numbers.size:
            raise pickle.UnpicklingError("a tensor has more numbers than are there")
        steps = [one * numbers.itemsize for one in stride]
        found = np.lib.stride_tricks.as_strided(numbers[offset:], size, steps)
        if numbers.dtype == "<u2":
            return (found.astype("<u4") << np.uint32(16)).view("<f4")
        return found.astype("<f4") if numbers.dtype == "<f2" else found


def torch_file(path: str) -> Iterator[Leaf]:
    """Yield what `torch.save` has saved."""
    try:
        with zipfile.ZipFile(path) as archive:
            (name,) = [one for one in archive.namelist() if one.endswith("/data.pkl")]
            order = f"{name[: -len('data.pkl')]}byteorder"
            if order in archive.namelist() and archive.read(order) != b"little":
                raise pickle.UnpicklingError("its bytes are in another order")
            content = _Tensors(archive, name).load()
    except Exception:  # broken, or of other classes: torch says which
        torch = _torch()
        try:
            content = torch.load(path, map_location="cpu", weights_only=True)
        except Exception:  # classes of its own, which only the program's own way of loading takes
            content = torch.load(path, map_location="cpu", weights_only=False)
    yield from leaves(content)


def safetensors_file(path: str) -> Iterator[Leaf]:
    """Yield the tensors of a file of safetensors, whose header says where each is."""
    import numpy as np

    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        for name, about in header.items():
            if name == "__metadata__":
                yield name, json.dumps(about, sort_keys=True)
                continue
            begin, end = about["data_offsets"]
            file.seek(8 + size + begin)
            content = file.read(end - begin)
            if len(content) < end - begin:
                raise ValueError("it is cut off")
            kinds = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4"}
            if about["dtype"] == "BF16":
                wide = np.frombuffer(content, "<u2").astype("<u4") << np.uint32(16)
                yield name, wide.view("<f4")
            elif about["dtype"] in kinds:
                yield name, np.frombuffer(content, kinds[about["dtype"]])
            else:
                yield name, content


def numpy_file(path: str) -> Iterator[Leaf]:
    """Yield the arrays of an `.npy` or `.npz` file."""
    import numpy as np

    with open(path, "rb") as file:  # it would leave open what it can't read
        content = np.load(file, allow_pickle=False)
        if path.endswith(".npy"):
            yield "value", content
        else:
            for name in content.files:
                yield name, content[name]


def hdf5_file(path: Any) -> Iterator[Leaf]:  # noqa: ANN401  a path, or an open file
    """Yield the datasets of an HDF5 file, such as Keras' weights."""
    h5py = importlib.import_module("h5py")
    found = []

    def note(name: str, one: Any) -> None:  # noqa: ANN401
        if isinstance(one, h5py.Dataset):
            found.append((name, one[()]))

    with h5py.File(path, "r") as file:
        file.visititems(note)
    for name, value in found:
        yield name, value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def keras_file(path: str) -> Iterator[Leaf]:
    """Yield the weights of a `.keras` file, which also has when it was saved."""
    with zipfile.ZipFile(path) as archive:
        yield "config", archive.read("config.json")
        content = io.BytesIO(archive.read("model.weights.h5"))
        yield from hdf5_file(content)


def tensorflow_checkpoint(prefix: str) -> Iterator[Leaf]:
    """Yield the variables of a checkpoint of TensorFlow."""
    tensorflow = importlib.import_module("tensorflow")
    reader = tensorflow.train.load_checkpoint(prefix)
    for name in sorted(reader.get_variable_to_shape_map()):
        if name not in ("_CHECKPOINTABLE_OBJECT_GRAPH", "save_counter/.ATTRIBUTES/VARIABLE_VALUE"):
            yield name, reader.get_tensor(name)


def distributed_checkpoint(folder: str) -> Iterator[Leaf]:
    """Yield the tensors of a folder of torch's distributed checkpoints."""
    dcp = importlib.import_module("torch.distributed.checkpoint")
    planner = importlib.import_module("torch.distributed.checkpoint.default_planner")
    loader = importlib.import_module("torch.distributed.checkpoint.state_dict_loader")
    state: dict[str, Any] = {}
    load = loader._load_state_dict  # as `torch.distributed.checkpoint.format_utils` does
    whole = planner._EmptyStateDictLoadPlanner()
    load(state, dcp.FileSystemReader(folder), planner=whole, no_dist=True)
    yield from leaves(state)


def orbax_checkpoint(folder: str) -> Iterator[Leaf]:
    """Yield the arrays of a folder of Orbax, also of those that several machines have saved.

    Without `restore_type` it would put each array on the devices that it was saved from.
    """
    jax, orbax = map(importlib.import_module, ("jax", "orbax.checkpoint"))
    epath = importlib.import_module("etils.epath")
    inner = [one for one in sorted(os.listdir(folder)) if os.path.isdir(os.path.join(folder, one))]
    for one in ["", *inner]:
        if os.path.exists(os.path.join(folder, one, "_METADATA")):
            path = epath.Path(folder, one)
            about = orbax.PyTreeCheckpointHandler().metadata(path)
            kinds = jax.tree.map(_restored, getattr(about, "tree", about))
            content = orbax.PyTreeCheckpointer().restore(path, restore_args=kinds)
            yield from leaves(content, one)


def _restored(about: Any) -> Any:  # noqa: ANN401  of Orbax
    """Return how Orbax is to restore a value."""
    orbax = importlib.import_module("orbax.checkpoint")
    if type(about).__name__ != "ArrayMetadata":
        return orbax.RestoreArgs()
    import numpy as np

    return orbax.RestoreArgs(restore_type=np.ndarray)


def json_file(path: str) -> Iterator[Leaf]:
    """Yield the values of a JSON file."""
    with open(path, encoding="utf-8") as file:
        yield from leaves(json.load(file))


FILES: Mapping[str, Callable[[str], Iterator[Leaf]]] = {
    ".pt": torch_file,
    ".pth": torch_file,
    ".ckpt": torch_file,
    ".bin": torch_file,
    ".safetensors": safetensors_file,
    ".npy": numpy_file,
    ".npz": numpy_file,
    ".h5": hdf5_file,
    ".hdf5": hdf5_file,
    ".keras": keras_file,
    ".json": json_file,
}
"""By the ending of a file."""
FOLDERS: Mapping[str, Callable[[str], Iterator[Leaf]]] = {
    "DCP": distributed_checkpoint,
    "Orbax": orbax_checkpoint,
    "TensorFlow": tensorflow_checkpoint,
}
"""By the format of what is several files."""
MAGIC = {".bin": (b"PK\x03\x04", b"\x80\x02"), ".ckpt": (b"PK\x03\x04", b"\x80\x02")}
"""What such a file begins with, if it is of that format: these endings have others as well."""


def _content_digest(root: str, files: Sequence[saved_files.File]) -> str:
    """Return that of some files, by their names and their bytes."""
    whole = hashlib.sha256()
    for file in sorted(files):
        if len(files) > 1:
            whole.update(os.path.basename(file.path).encode("utf-8", "replace") + b"\0")
        with open(os.path.join(root, file.path), "rb") as opened:
            while piece := opened.read(PIECE):
                whole.update(piece)
    return whole.hexdigest()[:16]


def _read(
    root: str, path: str, files: Sequence[saved_files.File], form: str, known: Mapping[str, str]
) -> dict[str, Any]:
    """Return what there is to compare of a file, or of a save that is several files."""
    if sum(file.size for file in files) > LARGEST:
        return {"format": form, "unread": "it is too large"}
    whole = {"format": form, "digest": _content_digest(root, files)}
    if known.get(path) == whole["digest"]:
        return whole
    reader = FOLDERS.get(form) or FILES.get(os.path.splitext(path)[1])
    if reader is None or not _may_be(os.path.join(root, path)):
        return whole
    values: dict[str, Value] = {}
    try:
        for name, leaf in reader(os.path.join(root, path)):
            if (value := value_of(leaf)) is not None and len(values) < VALUES:
                values[name] = value
    except ImportError as error:
        return {**whole, "unread": f"there is no module {error.name}"}
    except Exception as error:  # it is whatever a task has left of it
        return {**whole, "broken": " ".join(str(error).split())[:LONGEST] or repr(error)}
    return {**whole, "values": values}


def _may_be(path: str) -> bool:
    """Return whether a file may be of the format of its ending."""
    begins = MAGIC.get(os.path.splitext(path)[1])
    if begins is None or os.path.isdir(path):
        return True
    with open(path, "rb") as file:
        return file.read(4).startswith(begins)


def found_in(
    files: Sequence[saved_files.File], wanted: Sequence[str] = ()
) -> Iterator[tuple[str, str, Any]]:
    """Yield what is read, with its format and its files: the newest saves, and what is no save.

    Also what is `wanted` of other saves: what is left of one may be newer than the last one.
    """
    roles, known, series = set[tuple[str, ...]](), set[str](), set[str]()
    for save in saved_files.checkpoints(files):  # the latest first
        known.update(file.path for file in save.files)
        role = tuple(sorted(part.role for part in save.parts))
        is_newest = role not in roles
        roles.add(role)
        for part in save.parts:
            if part.format in FOLDERS:
                if is_newest or part.path in wanted:
                    yield part.path, part.format, part.files
            else:
                for file in part.files:
                    if is_newest or file.path in wanted:
                        yield file.path, _format(file.path), [file]
    rest = [one for one in files if not one.is_folder and one.path not in known]
    rest.sort(key=lambda one: one.time)
    named = saved_files.names([file.path for file in rest])
    for file in rest[::-1][:OTHERS]:
        of = named[file.path].role if named[file.path].step is not None else file.path
        if of not in series or file.path in wanted:
            series.add(of)
            yield file.path, _format(file.path), [file]


def _format(path: str) -> str:
    ending = os.path.splitext(path)[1]
    return "JSON" if ending == ".json" else saved_files.FORMATS.get(ending, "file")


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return what there is to compare, by path."""
    root, known = request["folder"], request.get("known", {})
    with contextlib.closing(saved_files.Folder(root)) as folder:
        files = folder.files(request.get("since", 0.0))
    found = {}
    for path, form, members in found_in(files, request.get("wanted", ())):
        try:
            found[path] = _read(root, path, members, form, known)
        except OSError as error:
            found[path] = {"format": form, "unread": error.strerror or str(error)}
    return {"files": found}


def main(arguments: Sequence[str]) -> None:
    """Print the answer; what libraries print goes elsewhere."""
    os.environ.update(CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL="3", JAX_PLATFORMS="cpu")
    with contextlib.redirect_stdout(sys.stderr):
        found = answer(json.loads(arguments[0]))
    sys.stdout.write(f"{json.dumps(found)}\n")
    sys.stdout.flush()
