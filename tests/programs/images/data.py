"""Write handwritten digits in the formats that example programs load their data from.

    data.py mnist FOLDER TRAIN TEST     the files of MNIST, and mnist.npz of Keras
    data.py images FOLDER TRAIN TEST    train/CLASS/NUMBER.png and val/CLASS/NUMBER.png
    data.py tfds FOLDER TRAIN TEST      `mnist` of TensorFlow Datasets

TRAIN and TEST are numbers of images. Each is one of the 1797 digits of 8 x 8 pixels in
digits.csv.gz, three times as large, at a random place of 28 x 28 pixels. Training and test images
are made of different digits.
"""

from __future__ import annotations

import gzip
import importlib
import struct
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

SOURCE = Path(__file__).with_name("digits.csv.gz")
SPLIT = 1500
"""Digits up to this one are for training."""


def digits(count: int, rows: range, seed: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return `count` images of 28 x 28 pixels with their classes."""
    with gzip.open(SOURCE, "rt") as file:
        table = np.loadtxt(file, delimiter=",")
    random = np.random.default_rng(seed)
    chosen = random.choice(rows, count)
    small = table[chosen, :64].reshape(count, 8, 8) * (255 / 16)
    images = np.zeros((count, 28, 28), np.uint8)
    for image, digit, (top, left) in zip(
        images, small, random.integers(0, 5, (count, 2)), strict=True
    ):
        image[top : top + 24, left : left + 24] = np.kron(digit, np.ones((3, 3)))
    return images, table[chosen, 64].astype(np.uint8)


def write_mnist(folder: Path, train: int, test: int) -> None:
    """Write the four files of MNIST, plain and compressed, and the archive of Keras."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {}
    for name, key, count, rows in (
        ("train", "train", train, range(SPLIT)),
        ("t10k", "test", test, range(SPLIT, 1797)),
    ):
        images, classes = digits(count, rows, seed=count)
        arrays[f"x_{key}"], arrays[f"y_{key}"] = images, classes
        for kind, header, data in (
            ("images-idx3", struct.pack(">IIII", 2051, count, 28, 28), images),
            ("labels-idx1", struct.pack(">II", 2049, count), classes),
        ):
            content = header + data.tobytes()
            (folder / f"{name}-{kind}-ubyte").write_bytes(content)
            (folder / f"{name}-{kind}-ubyte.gz").write_bytes(gzip.compress(content, 1))
    with zipfile.ZipFile(folder / "mnist.npz", "w") as archive:
        for key, array in arrays.items():
            with archive.open(f"{key}.npy", "w") as member:
                np.lib.format.write_array(member, array)


def write_images(folder: Path, train: int, test: int) -> None:
    """Write a folder of images as torchvision's ImageFolder loads it."""
    from PIL import Image

    for name, count, rows in (("train", train, range(SPLIT)), ("val", test, range(SPLIT, 1797))):
        for number, (image, kind) in enumerate(zip(*digits(count, rows, seed=count), strict=True)):
            path = folder / name / str(kind) / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).convert("RGB").save(path)


def write_tfds(folder: Path, train: int, test: int) -> None:
    """Write MNIST as `tfds.load("mnist")` finds it prepared."""
    tfds: Any = importlib.import_module("tensorflow_datasets")
    with tfds.core.registered.skip_registration():

        class Mnist(tfds.core.GeneratorBasedBuilder):  # type: ignore[misc]
            VERSION = tfds.core.Version("3.0.1")

            def _info(self) -> object:
                features = tfds.features.FeaturesDict(
                    {
                        "image": tfds.features.Image(shape=(28, 28, 1)),
                        "label": tfds.features.ClassLabel(num_classes=10),
                    }
                )
                return tfds.core.DatasetInfo(
                    builder=self, features=features, supervised_keys=("image", "label")
                )

            def _split_generators(self, dl_manager: object) -> object:
                return {
                    "train": self._generate_examples(train, range(SPLIT)),
                    "test": self._generate_examples(test, range(SPLIT, 1797)),
                }

            def _generate_examples(self, count: int, rows: range) -> object:
                images, classes = digits(count, rows, seed=count)
                for number, (image, kind) in enumerate(zip(images, classes, strict=True)):
                    yield number, {"image": image[..., None], "label": int(kind)}

        Mnist(data_dir=str(folder)).download_and_prepare()


if __name__ == "__main__":
    what, place, *counts = sys.argv[1:]
    write = {"mnist": write_mnist, "images": write_images, "tfds": write_tfds}[what]
    write(Path(place), *map(int, counts))
