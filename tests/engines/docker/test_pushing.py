"""Images that go to a registry, and come from one."""

from __future__ import annotations

import base64
import contextlib
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emulator.engines.docker import DockerEngine
from emulator.engines.docker.building import PushError, push, refusal, steps
from emulator.engines.docker.images import custom_tag
from emulator.engines.kit.recipes import pinned, recipe_tag, reference
from emulator.errors import ImageError
from tests.conftest import Emulate, own
from tests.engines.docker.contexts import a_dockerfile
from tests.registries import PASSWORD, USER

CLOSED_PORT = "127.0.0.1:9"
MB = 10**6


def sent(layer: str, current: int, total: int) -> dict[str, Any]:
    detail = {"current": current, "total": total}
    return {"status": "Pushing", "id": layer, "progressDetail": detail}


# --- What the engine says of a push --------------------------------------------------------------


def test_progress_is_told_at_every_tenth() -> None:
    messages: list[dict[str, Any]] = [
        {"status": "The push refers to repository [localhost:5000/a]"},
        {"status": "Preparing", "progressDetail": {}, "id": "a"},
        {"status": "Layer already exists", "progressDetail": {}, "id": "c"},
        sent("a", 1 * MB, 60 * MB),
        sent("b", 1 * MB, 40 * MB),
        sent("a", 20 * MB, 60 * MB),
        sent("a", 21 * MB, 60 * MB),
        sent("b", 39 * MB, 40 * MB),
        sent("b", 45 * MB, 40 * MB),  # packed, it is a little larger
        {"status": "Pushed", "progressDetail": {}, "id": "b"},
        {"status": "Pushed", "progressDetail": {}, "id": "a"},
        {"progressDetail": {}, "aux": {"Tag": "1", "Digest": "sha256:00", "Size": 9}},
    ]
    lines = list(steps(messages))
    assert [line.split()[0] for line, _ in lines[:-1]] == ["20", "60", "100"]
    assert lines[-1] == ("", "sha256:00")


def test_an_error_ends_a_push() -> None:
    with pytest.raises(PushError, match="no space left"):
        list(steps([sent("a", 1, 2), {"error": "no space left", "errorDetail": {}}]))


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("unauthorized: access to the requested resource", "docker login localhost:5000"),
        ("denied: requested access to the resource is denied", "docker login localhost:5000"),
        ("no basic auth credentials", "docker login localhost:5000"),
        ("http: server gave HTTP response to HTTPS client", "insecure-registries"),
        ("x509: certificate signed by unknown authority", "insecure-registries"),
        ("dial tcp 127.0.0.1:5000: connect: connection refused", "Does localhost:5000 answer"),
        ("dial tcp: lookup nowhere: no such host", "Does localhost:5000 answer"),
        ("manifest invalid", "name of the registry"),
    ],
)
def test_a_refused_push_has_a_sentence(text: str, hint: str) -> None:
    error = refusal("localhost:5000/team/a:1", "localhost:5000/team", text)
    assert error.message == f"localhost:5000/team/a:1 can't be pushed: {text}."
    assert hint in error.hint


# --- A real engine and a real registry -----------------------------------------------------------


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of each test's own: what it pushes is pinned in no other."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def image(docker_engine: DockerEngine, tiny_image: str) -> Iterator[str]:
    """A small image with a tag of this test's own."""
    tag = f"{own('emulator-pushed')}:1"
    docker_engine.api.tag(tiny_image, tag)
    yield tag
    docker_engine.api.remove_image(tag)


def nothing(line: str) -> None:
    """Say nothing."""


def names(engine: DockerEngine, part: str) -> list[str]:
    """Return the tags and digests of the engine with this in their names."""
    found = [one[key] or () for one in engine.api.images() for key in ("RepoTags", "RepoDigests")]
    return [name for some in found for name in some if part in name]


@pytest.mark.docker
def test_an_image_is_pushed_and_pulled(
    docker_engine: DockerEngine, image: str, registry: str
) -> None:
    said: list[str] = []
    name, digest = push(docker_engine.api, image, f"{registry}/team", said.append)
    assert name == f"{registry}/team/{image}"
    assert said[0] == f"pushing {name}"
    with urllib.request.urlopen(f"http://{registry}/v2/team/{image.split(':')[0]}/tags/list") as it:
        assert json.load(it)["tags"] == ["1"]
    assert names(docker_engine, registry) == []  # the engine is as it was
    try:
        for one in (name, pinned(name)):
            assert docker_engine.images.ensure(one, nothing) == one
            assert docker_engine.images.has(one)
        assert pinned(name) == f"{name}@{digest}"
    finally:
        for one in names(docker_engine, registry):
            with contextlib.suppress(Exception):  # the last name takes the digest with it
                docker_engine.api.remove_image(one)
    assert names(docker_engine, registry) == []


@pytest.mark.docker
def test_a_registry_that_wants_a_login_or_is_not_there_is_named(
    docker_engine: DockerEngine, image: str, closed_registry: str
) -> None:
    hints = {
        closed_registry: f"docker login {closed_registry}",
        CLOSED_PORT: f"Does {CLOSED_PORT} answer",
    }
    for registry, hint in hints.items():
        with pytest.raises(ImageError) as caught:
            push(docker_engine.api, image, registry, nothing)
        assert hint in caught.value.hint
        assert names(docker_engine, registry) == []


@pytest.mark.docker
def test_the_stored_login_is_used_and_never_told(
    emulate: Emulate, docker_engine: DockerEngine, closed_registry: str, tmp_path: Path
) -> None:
    """It is that of the docker command."""
    if not docker_engine.images.has(recipe_tag("network")):
        docker_engine.images.build("network", nothing)
    login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    (tmp_path / "docker").mkdir()
    stored = tmp_path / "docker" / "config.json"
    stored.write_text(json.dumps({"auths": {closed_registry: {"auth": login}}}))
    environment = {"DOCKER_CONFIG": str(stored.parent)}
    done = emulate("build", "network", "--push", f"{closed_registry}/team", env=environment)
    assert done.returncode == 0, done.stderr
    name = f"{closed_registry}/team/{recipe_tag('network')}"
    assert f"{name} is pushed, with the digest sha256:" in done.stderr
    assert reference("network", list, f"{closed_registry}/team").startswith(f"{name}@sha256:")
    assert not [one for one in (PASSWORD, login) if one in done.stderr + done.stdout]
    assert names(docker_engine, closed_registry) == []


@pytest.mark.docker
def test_the_images_of_a_scenario_are_pushed(
    emulate: Emulate, docker_engine: DockerEngine, tiny_image: str, registry: str, tmp_path: Path
) -> None:
    """Those that are built here; each once. A cluster's nodes find them by the same names."""
    own_files = tmp_path / "own"
    image = a_dockerfile(own_files, f"FROM {tiny_image}\nENV OF={own('scenario')}\n")
    (own_files / "scenario.yaml").write_text(
        "name: pushed\nframework: none\nimage: {dockerfile: Dockerfile}\n"
        "program: {command: [sh, -c, 'true']}\ncluster:\n  worker: {replicas: 2}\n"
        f"  evaluator: {{image: '{tiny_image}'}}\n"
    )
    done = emulate("build", own_files / "scenario.yaml", "--push", f"{registry}/team")
    assert done.returncode == 0, done.stderr
    try:
        name = f"{registry}/team/{custom_tag(image)}"
        assert done.stderr.count("is pushed, with the digest") == 1
        assert reference(image, list, f"{registry}/team").startswith(f"{name}@sha256:")
        assert names(docker_engine, registry) == []
    finally:
        docker_engine.api.remove_image(custom_tag(image))


NO_IMAGE = "There is no image tpu. Did you mean 'gpu'? Images: cpu, gpu,"
NO_REGISTRY = "is not a registry, such as localhost:5000/team"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["tpu"], NO_IMAGE),
        (["cpu", "--push", ""], NO_REGISTRY),
        (["cpu", "--push", "https://registry.invalid"], NO_REGISTRY),
        (["cpu", "--push", "Team"], NO_REGISTRY),
        (["cpu", "--push", "a/b:1"], NO_REGISTRY),
        (["cpu", "--push", "a b"], NO_REGISTRY),
    ],
)
def test_what_is_no_image_or_no_registry_is_refused_before_anything_is_built(
    emulate: Emulate, arguments: list[str], said: str
) -> None:
    done = emulate("build", *arguments)
    assert done.returncode == 2
    assert said in done.stderr
