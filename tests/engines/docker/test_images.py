"""Images: tags, build contexts, options, references, concurrent builds."""

from __future__ import annotations

import contextlib
import io
import os
import socket
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from docker.errors import APIError, ImageNotFound

from emulator.engines.docker import DockerEngine, building, images
from emulator.engines.docker.building import custom_context, packed
from emulator.engines.docker.images import BuildOptions, builder_lines, recipe_context
from emulator.engines.kit import recipes as names
from emulator.engines.kit.recipes import KINDS, context_files, dockerfile_of, recipe_tag
from emulator.errors import ImageError, UsageError
from emulator.runtime.bundled import ROOT
from emulator.scenario.schema import Dockerfile
from emulator.validation import limits
from tests.conftest import own
from tests.engines.docker.contexts import a_dockerfile, unpacked


@pytest.fixture
def recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the recipes that a test may change."""
    root = tmp_path / "root"
    for kind in KINDS:
        for name, path in context_files(kind).items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(path.read_bytes())
    monkeypatch.setattr(names, "ROOT", root)
    return root


# --- Tags ---------------------------------------------------------------------------------------


def test_each_kind_has_a_tag_of_its_own() -> None:
    assert len({recipe_tag(kind) for kind in KINDS}) == len(KINDS)
    assert recipe_tag("cpu").startswith("emulator-cpu:")


def test_tag_and_context_stay_the_same_in_another_folder_and_at_another_time(
    recipes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tag, context = recipe_tag("cpu"), recipe_context("cpu", BuildOptions())
    os.utime(recipes / "Dockerfile.cpu", (1, 1))
    assert recipe_context("cpu", BuildOptions()) == context
    (recipes / "Dockerfile.cpu").chmod(0o600)
    assert recipe_tag("cpu") == tag
    monkeypatch.setattr(names, "ROOT", ROOT)
    assert recipe_tag("cpu") == tag


@pytest.mark.parametrize("name", ["Dockerfile.cpu", "images/requirements/cpu.txt"])
def test_a_tag_changes_with_what_goes_into_the_image(recipes: Path, name: str) -> None:
    before = {kind: recipe_tag(kind) for kind in KINDS}
    with (recipes / name).open("a") as recipe:
        recipe.write("# more\n")
    assert [kind for kind in KINDS if recipe_tag(kind) != before[kind]] == ["cpu"]


@pytest.fixture
def custom(tmp_path: Path) -> Dockerfile:
    context = tmp_path / "context"
    image = a_dockerfile(context, "FROM scratch\nCOPY . /\n", A="1", B="2")
    (context / "main.py").write_text("pass\n")
    (context / "secret.key").write_text("hush\n")
    (context / ".dockerignore").write_text("# not for others\n*.key\n")
    return image


def test_the_tag_of_a_users_image_follows_its_content(custom: Dockerfile) -> None:
    folder = custom.dockerfile.parent
    tag = images.custom_tag(custom)
    assert tag.startswith("emulator-custom:")
    os.utime(folder / "main.py", (1, 1))
    (folder / "secret.key").write_text("other\n")
    assert images.custom_tag(custom) == tag
    assert images.custom_tag(custom.model_copy(update={"args": {"B": "2", "A": "1"}})) == tag
    assert images.custom_tag(custom.model_copy(update={"args": {"A": "1"}})) != tag
    (folder / "main.py").write_text("print()\n")
    assert images.custom_tag(custom) != tag


def test_a_dockerfile_that_copies_nothing_needs_no_context(custom: Dockerfile) -> None:
    """An edit of the program beside it builds nothing."""
    folder = custom.dockerfile.parent
    (folder / "Dockerfile").write_text("FROM scratch\nRUN x\n")
    tag = images.custom_tag(custom)
    (folder / "main.py").write_text("print()\n")
    assert images.custom_tag(custom) == tag
    assert unpacked(custom_context(custom)).keys() == {"Dockerfile.emulator"}
    # A context that is named may be for what an image below copies (ONBUILD).
    asked = custom.model_copy(update={"context": folder})
    assert "main.py" in unpacked(custom_context(asked))


def test_what_the_builder_sends_in_pieces_and_colours_is_read_by_lines() -> None:
    messages: list[dict[str, Any]] = [
        {"stream": "Step 1/2 : FROM x\n"},
        {"aux": {"ID": "sha256:0"}},
        {"stream": "almost there\n"},
        {"stream": "\x1b[91mcat: \x1b[0m"},
        {"stream": "\x1b[91m/no/such/file: No"},
        {"stream": " such file\n\x1b[0m"},
        {"stream": "no newline"},
        {"error": "returned a non-zero code: 1"},
    ]
    assert list(builder_lines(messages)) == [
        ("Step 1/2 : FROM x", False),
        ("almost there", False),
        ("cat: /no/such/file: No such file", False),
        ("no newline", False),
        ("returned a non-zero code: 1", True),
    ]
    assert list(builder_lines([{"stream": "a\n\nb"}])) == [("a", False), ("", False), ("b", False)]


def test_a_users_context_has_its_files_readable_by_all_but_those_that_dockerignore_names(
    custom: Dockerfile,
) -> None:
    folder = custom.dockerfile.parent
    (folder / "main.py").chmod(0o600)  # whatever the umask
    (folder / "Dockerfile").chmod(0o775)
    with tarfile.open(fileobj=io.BytesIO(custom_context(custom))) as tar:
        modes = {entry.name: oct(entry.mode) for entry in tar}
    assert modes.keys() == {".dockerignore", "Dockerfile", "Dockerfile.emulator", "main.py"}
    assert (modes["main.py"], modes["Dockerfile"]) == (oct(0o644), oct(0o755))


def test_a_dockerfile_may_lie_outside_its_context(custom: Dockerfile, tmp_path: Path) -> None:
    (tmp_path / "Elsewhere").write_text("FROM other\n")
    elsewhere = {"dockerfile": tmp_path / "Elsewhere", "context": custom.dockerfile.parent}
    apart = custom.model_copy(update=elsewhere)
    assert unpacked(custom_context(apart))["Dockerfile.emulator"] == b"FROM other\n"
    assert images.custom_tag(apart) != images.custom_tag(custom)


def test_a_context_of_too_many_files_is_refused(
    custom: Dockerfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "CONTEXT_FILES", 100)
    folder = custom.dockerfile.parent
    for number in range(100):
        (folder / f"f{number}").touch()
    with pytest.raises(UsageError, match="holds more than 100 files and folders") as refused:
        images.custom_tag(custom)
    assert ".dockerignore" in refused.value.hint
    (folder / ".dockerignore").write_text("f*\n")
    assert images.custom_tag(custom)


def test_a_context_that_is_too_large_or_the_root_of_the_disk_is_refused_before_it_is_read(
    custom: Dockerfile,
) -> None:
    with (custom.dockerfile.parent / "data").open("wb") as file:
        file.truncate(limits.CONTEXT_BYTES + 1)
    with pytest.raises(UsageError, match="holds more than 256 MiB"):
        images.custom_tag(custom)
    everything = custom.model_copy(update={"context": Path("/")})
    with pytest.raises(UsageError, match="build context"):
        images.custom_tag(everything)


def test_a_pipe_in_a_context_is_no_file_of_it(custom: Dockerfile) -> None:
    folder = custom.dockerfile.parent
    os.mkfifo(folder / "pipe")
    (folder / "zero").symlink_to("/dev/zero")
    assert not unpacked(custom_context(custom)).keys() & {"pipe", "zero"}
    (folder / ".dockerignore").unlink()
    os.mkfifo(folder / ".dockerignore")
    with pytest.raises(UsageError, match=r"Can't read .*dockerignore: it is a named pipe"):
        images.custom_tag(custom)


# --- Build contexts -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_context_holds_its_recipe_and_no_more(kind: str) -> None:
    own = [dockerfile_of(kind), "images/build/README.md"]
    own += [f"images/requirements/{kind}.txt"] if kind != "python" else []  # which has it alone
    own += ["constraints.txt"] if kind not in ("network", "python") else []
    files = unpacked(recipe_context(kind, BuildOptions()))
    assert files == {name: (ROOT / name).read_bytes() for name in own}


def test_a_context_holds_the_ca_bundle_under_a_name_of_ours(tmp_path: Path) -> None:
    (tmp_path / "corporate.crt").write_text("certificate")
    options = BuildOptions(ca_bundle=tmp_path / "corporate.crt")
    files = unpacked(recipe_context("cpu", options))
    assert files["images/build/ca-bundle.pem"] == b"certificate"


@pytest.mark.parametrize(
    ("kind", "wheels", "taken"),
    [
        ("pytorch", ["torch-2.13.0-cp311-none-any.whl", "sympy-1.0-py3-none-any.whl"], 2),
        ("pytorch", ["sympy-1.0-py3-none-any.whl"], 0),
        ("cpu", ["torch-2.13.0-cp311-none-any.whl"], 0),
        ("cpu", ["TF_Keras-2.21.0-py3-none-any.whl"], 1),
        ("gpu", ["tensorflow-2.21.0-cp311-none-any.whl"], 1),
        ("cpu", ["notes.txt"], 0),
        ("cpu", [], 0),
    ],
)
def test_wheels_are_sent_where_the_image_requires_one_of_them(
    tmp_path: Path, kind: str, wheels: list[str], taken: int
) -> None:
    for name in wheels:
        (tmp_path / name).write_text(name)
    files = unpacked(recipe_context(kind, BuildOptions(wheels=tmp_path)))
    sent = [name for name in files if name.startswith("images/build/wheels/")]
    assert len(sent) == taken
    assert {name.rpartition("/")[2] for name in sent} <= set(wheels)


# --- Options ------------------------------------------------------------------------------------


@pytest.fixture
def places(tmp_path: Path) -> Path:
    (tmp_path / "a.pem").touch()
    (tmp_path / "b.pem").touch()
    (tmp_path / "wheels").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({}, (None, None, None)),
        ({"EMULATOR_BASE": "debian:12"}, ("debian:12", None, None)),
        ({"EMULATOR_BASE": ""}, (None, None, None)),
        ({"SSL_CERT_FILE": "{}/a.pem", "PIP_CERT": "{}/b.pem"}, (None, "a.pem", None)),
        ({"SSL_CERT_FILE": "{}/gone.pem", "PIP_CERT": "{}/b.pem"}, (None, "b.pem", None)),
        ({"REQUESTS_CA_BUNDLE": "{}/wheels"}, (None, None, None)),
        ({"CURL_CA_BUNDLE": "{}/b.pem"}, (None, "b.pem", None)),
        ({"PIP_FIND_LINKS": "https://w.example {}/wheels"}, (None, None, "wheels")),
        ({"PIP_FIND_LINKS": "{}/a.pem {}/gone"}, (None, None, None)),
    ],
)
def test_options_come_from_the_environment(
    places: Path, environ: dict[str, str], found: tuple[str | None, str | None, str | None]
) -> None:
    given = {name: value.replace("{}", str(places)) for name, value in environ.items()}
    base, ca_bundle, wheels = found
    assert BuildOptions.from_environment(environ=given) == BuildOptions(
        base=base,
        ca_bundle=places / ca_bundle if ca_bundle else None,
        wheels=places / wheels if wheels else None,
    )


def test_what_is_given_goes_before_the_environment(places: Path) -> None:
    environ = {"EMULATOR_BASE": "other", "PIP_CERT": str(places / "b.pem")}
    found = BuildOptions.from_environment("mine", places / "a.pem", places / "wheels", environ)
    assert found == BuildOptions("mine", places / "a.pem", places / "wheels")


@pytest.mark.parametrize(
    ("ca_bundle", "wheels", "why"),
    [
        ("gone.pem", None, r"--ca-bundle .*/gone\.pem: there is no such file\."),
        ("wheels", None, "--ca-bundle .*/wheels: there is no such file"),
        (None, "gone", r"--wheels .*/gone: there is no such folder\."),
        (None, "a.pem", r"--wheels .*/a\.pem: there is no such folder"),
    ],
)
def test_a_path_that_is_given_must_be_there(
    places: Path, ca_bundle: str | None, wheels: str | None, why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        BuildOptions.from_environment(
            ca_bundle=places / ca_bundle if ca_bundle else None,
            wheels=places / wheels if wheels else None,
            environ={},
        )


@pytest.mark.parametrize(
    ("reference", "name", "tag"),
    [
        ("python", "python", "latest"),
        ("python:3.11-slim", "python", "3.11-slim"),
        ("host:5000/python", "host:5000/python", "latest"),
        ("host:5000/a/python:3", "host:5000/a/python", "3"),
        ("python@sha256:abc", "python@sha256:abc", ""),
        ("host:5000/python:3@sha256:abc", "host:5000/python:3@sha256:abc", ""),
    ],
)
def test_a_reference_is_split_as_docker_reads_it(reference: str, name: str, tag: str) -> None:
    assert images._split_reference(reference) == (name, tag)


# --- Builds side by side ------------------------------------------------------------------------

STAGES = {"dangling": True, "label": "emulator.stage=builder"}


class Connection(socket.socket):
    """What a build waits for: its only step was reported, or its client has left."""

    def __init__(self) -> None:
        super().__init__()
        self.close()  # nothing goes over it
        self.signals = SimpleQueue[str]()

    def shutdown(self, how: int) -> None:
        assert how == socket.SHUT_WR  # the rest of the engine's answer is read
        self.signals.put("left")


class Engine:
    """Builds every image, and records what it did."""

    def __init__(self, refuses: int | None = None) -> None:
        self.did: list[str] = []
        self.connections: dict[str, Connection] = {}
        self._refuses = refuses

    def inspect_image(self, tag: str) -> None:
        raise ImageNotFound(tag)

    def build(self, tag: str, **request: Any) -> Iterator[dict[str, str]]:
        connection = self.connections[tag] = Connection()
        inside = SimpleNamespace(fp=SimpleNamespace(raw=SimpleNamespace(_sock=connection)))
        return self._build(tag, SimpleNamespace(raw=SimpleNamespace(_fp=inside)))

    def _build(self, tag: str, response: Any) -> Iterator[dict[str, str]]:
        yield {"stream": "Step 1/1 : FROM scratch\n"}
        if self.connections[tag].signals.get() == "left":
            self.did.append(f"stopped {tag}")
            yield {"error": "cancelled"}
        else:
            self.did.append(f"built {tag}")

    def prune_images(self, filters: Mapping[str, Any]) -> None:
        assert filters == STAGES
        self.did.append("pruned")
        if self._refuses is not None:
            response = requests.Response()
            response.status_code = self._refuses
            raise APIError("", response, "a prune operation is already running")


@pytest.fixture
def own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests share no locks with other builds."""
    monkeypatch.setattr(building, "cache_dir", lambda name: tmp_path / name)


def numbered(folder: Path, name: str, text: str = "FROM scratch\n") -> Dockerfile:
    return a_dockerfile(folder / name, f"{text}# {name}\n")


def build(engine: Engine, image: Dockerfile, say: images.Say = lambda line: None) -> str:
    def report(line: str) -> None:
        say(line)
        if "Step 1/1" in line:
            engine.connections[images.custom_tag(image)].signals.put("reported")

    return ensure(engine, image, report)


def ensure(api: Any, image: Dockerfile, say: images.Say = lambda line: None) -> str:
    return images.Images(api, BuildOptions()).ensure(image, say)


@pytest.mark.usefixtures("own_locks")
def test_of_builds_side_by_side_the_last_one_removes_the_stages_of_all(tmp_path: Path) -> None:
    engine = Engine()
    outer, inner = (numbered(tmp_path, name) for name in ("outer", "inner"))

    def meanwhile(line: str) -> None:
        if "Step 1/1" in line:
            build(engine, inner)

    build(engine, outer, meanwhile)
    tags = [images.custom_tag(image) for image in (inner, outer)]
    assert engine.did == [f"built {tags[0]}", f"built {tags[1]}", "pruned"]


@pytest.mark.parametrize("refuses", [None, 500])
@pytest.mark.usefixtures("own_locks")
def test_a_build_that_fails_removes_stages_too_and_keeps_its_error(
    tmp_path: Path, refuses: int | None
) -> None:
    engine = Engine(refuses)
    one = numbered(tmp_path, "one")

    def fail(line: str) -> None:
        if "Step 1/1" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(engine, one, fail)
    assert engine.did == [f"stopped {images.custom_tag(one)}", "pruned"]
    engine = Engine()
    assert build(engine, one) == images.custom_tag(one)
    assert engine.did[-1] == "pruned"


@pytest.mark.usefixtures("own_locks")
def test_an_image_is_built_while_another_prune_runs_and_other_errors_of_pruning_are_errors(
    tmp_path: Path,
) -> None:
    engine, image = Engine(refuses=409), numbered(tmp_path, "one")
    assert build(engine, image) == images.custom_tag(image)
    assert engine.did[-1] == "pruned"
    with pytest.raises(ImageError, match="a prune operation"):
        build(Engine(refuses=500), image)


@pytest.mark.docker
def test_a_stage_that_a_build_is_about_to_copy_from_survives_the_end_of_another(
    docker_engine: DockerEngine, tmp_path: Path, tiny_image: str
) -> None:
    builder = (
        f"FROM {tiny_image} AS builder\nLABEL emulator.stage=builder\nRUN echo {own('x')} > /made\n"
        f"FROM {tiny_image}\n"
    )
    waits = "RUN until [ -e /go ]; do sleep 0.05; done\n"
    copies = "COPY --from=builder /made /made\n"
    outer = numbered(tmp_path, "outer", builder + waits + copies)
    inner = numbered(tmp_path, "inner", builder.replace("/made", "/other"))
    api, go = docker_engine.api, packed({"go": outer.dockerfile})
    steps: list[str] = []

    def meanwhile(line: str) -> None:
        """Build the other image from beginning to end while this one stands at a step."""
        steps.append(line)
        if "---> Running in " in line and waits.strip() in steps[-2]:
            ensure(api, inner)
            api.put_archive(line.split()[-1], "/", go)

    try:
        ensure(api, outer, meanwhile)
    finally:
        for image in (outer, inner):
            with contextlib.suppress(ImageNotFound):
                api.remove_image(images.custom_tag(image))


def test_an_image_says_what_it_is_and_what_it_was_built_on() -> None:
    config = {
        "Env": ["PATH=/bin", "PYTHON_VERSION=3.11.9", "ODD"],
        "Labels": {images.LABEL_BASE: "python:3.11-slim"},
    }
    nothing = {"Env": None, "Labels": None}
    own = {"id": "sha256:1"}
    known = {**own, "base": "python:3.11-slim", "python": "3.11.9"}
    assert images.identity_of({"Id": "sha256:1", "Config": config}) == known
    assert images.identity_of({"Id": "sha256:1", "Config": nothing}) == own
    assert images.identity_of({}) == {}
