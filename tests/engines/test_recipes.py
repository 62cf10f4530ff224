"""What images are called, known without an engine and without a registry."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from emulator.engines.kit.recipes import (
    in_registry,
    pinned,
    recipe_tag,
    reference,
    remember,
    required_versions,
)
from emulator.runtime.bundled import ROOT
from emulator.scenario.image import Dockerfile, NamedImage

DIGEST = f"sha256:{'0f' * 32}"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize(
    ("image", "gpus", "kind"),
    [
        ("cpu", [], "cpu"),
        (NamedImage(name="cpu"), [], "cpu"),
        ("auto", ["a GPU"], "gpu"),
        ("auto", [], "cpu"),
    ],
)
def test_an_image_of_ours_is_named_by_its_recipe(
    image: str | NamedImage, gpus: list[str], kind: str
) -> None:
    assert reference(image, lambda: gpus) == recipe_tag(kind)


@pytest.mark.parametrize("registry", ["localhost:5000/team", "localhost:5000/team/"])
def test_images_that_are_built_here_are_in_the_registry(registry: str, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    own = Dockerfile(dockerfile=tmp_path / "Dockerfile")
    assert reference("cpu", list, registry) == f"localhost:5000/team/{recipe_tag('cpu')}"
    assert reference(own, list, registry).startswith("localhost:5000/team/emulator-custom:")


@pytest.mark.parametrize("name", ["python:3.11-slim", "registry.invalid/x/y@sha256:00"])
def test_references_of_users_are_left_as_they_are(name: str) -> None:
    assert reference(name, list, "localhost:5000/team") == name


def test_what_was_pushed_from_here_is_pinned() -> None:
    """By its digest: what the tag names later is another matter."""
    name = reference("cpu", list, "localhost:5000/team")
    remember(name, DIGEST)
    assert reference("cpu", list, "localhost:5000/team") == f"{name}@{DIGEST}"
    assert reference("cpu", list, "localhost:5000/others").endswith(recipe_tag("cpu"))
    assert reference("cpu", list) == recipe_tag("cpu")


@pytest.mark.parametrize("record", ["", "[]", "{}", '{"reference": "b:1", "digest": "sha256:0"}'])
def test_a_record_that_is_broken_pins_nothing(record: str, cache: Path) -> None:
    remember("a:1", DIGEST)
    (path,) = cache.rglob("*.json")
    path.write_text(record)
    assert pinned("a:1") == "a:1"


def test_names_are_known_without_the_docker_sdk() -> None:
    code = (
        "import sys; from emulator.engines.kit.recipes import reference\n"
        "reference('auto', lambda: (), 'localhost:5000'); print('docker' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("kind", "package"),
    [("cpu", "tensorflow-cpu"), ("gpu", "tensorflow"), ("pytorch", "torch"), ("jax", "jax")],
)
def test_the_name_of_an_image_of_ours_tells_the_versions_in_it(kind: str, package: str) -> None:
    tag = recipe_tag(kind)
    found = required_versions(tag)
    required = (ROOT / "images" / "requirements" / f"{kind}.txt").read_text()
    assert re.search(rf"(?m)^{package}(\[and-cuda\])?=={re.escape(found[package])}$", required)
    assert "numpy" not in found  # of any version
    assert required_versions(f"{in_registry(tag, 'localhost:5000/team')}@{DIGEST}") == found


def test_of_other_images_no_versions_are_known() -> None:
    names = ("emulator-cpu:latest", "emulator-cpu:0123456789ab", "python:3.11-slim", "")
    assert [required_versions(name) for name in names] == [{}] * 4
    assert required_versions(recipe_tag("network")) == {}  # Debian packages
