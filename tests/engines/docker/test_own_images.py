"""Images of users' Dockerfiles, which are built as they are, and images of ours that stay clean."""

from __future__ import annotations

import contextlib
import functools
import http.server
import io
import ipaddress
import json
import re
import ssl
import subprocess
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import certifi
import pytest
from docker.errors import APIError, ImageNotFound

from emulator.engines.docker import DockerEngine, images
from emulator.engines.docker.building import custom_context
from emulator.engines.docker.dockerfiles import bases, needs_context
from emulator.engines.docker.images import BuildOptions, Images
from emulator.engines.kit.recipes import KINDS
from emulator.errors import ImageError
from tests.conftest import own
from tests.engines.certificates import certificate
from tests.engines.docker.contexts import a_dockerfile, unpacked

# --- Dockerfiles --------------------------------------------------------------------------------

TRICKY = """\
# syntax=docker/dockerfile:1
# escape=`
ARG BASE=emulator-cpu:latest
ARG OTHER="emulator-network"
FROM --platform=linux/amd64 `
  # a comment within
  ${BASE} `
  AS Tools
RUN sql "`
FROM users"
from tools
FROM $OTHER
FROM ${MISSING:-scratch}
"""

AGAIN = "building it again"
STEP_IMAGE = re.compile(r" *---> ([0-9a-f]{12})$")


def test_a_line_within_a_step_is_no_stage_and_bases_are_images_and_not_stages() -> None:
    text = "FROM a\nRUN one \\\nFROM b \\\n\n# FROM c\n  && two\nFROM d"
    assert bases(text, {}) == ["a", "d"]
    assert bases(TRICKY, {}) == ["emulator-cpu:latest", "emulator-network", "scratch"]
    assert bases(TRICKY, {"BASE": "mine", "OTHER": "scratch"}) == ["mine", "scratch", "scratch"]


@pytest.mark.parametrize(
    ("step", "needed"),
    [
        ("COPY . /app", True),
        ("  add a.tar /", True),
        ("copy \\\n  . /", True),
        ("COPY --chown=1 a b", True),
        ("RUN --mount=type=bind,target=/x make", True),
        ("COPY --from=one /x /x", False),
        ("RUN COPY", False),
        ("RUN cp a b \\\n  && ADD", False),
        ("# COPY . /", False),
        ("ONBUILD COPY . /", False),
    ],
)
def test_only_what_copies_files_of_the_context_needs_one(step: str, needed: bool) -> None:
    assert needs_context(f"FROM a AS one\n{step}\nRUN b\n") == needed


@pytest.mark.parametrize("kind", KINDS)
def test_the_tag_follows_the_recipe_of_the_image_below(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    based = a_dockerfile(tmp_path / "a", f"ARG BASE=emulator-{kind}\nFROM $BASE\n")
    other = a_dockerfile(tmp_path / "b", f"FROM emulator-{kind}:0123456789ab\n")
    assert (images.based_on(based), images.based_on(other)) == ([kind], [])
    tags = [images.custom_tag(one) for one in (based, other)]
    monkeypatch.setattr(images, "recipe_tag", lambda kind: f"emulator-{kind}:changed")
    assert images.custom_tag(based) != tags[0]
    assert images.custom_tag(other) == tags[1]


def test_a_dockerfile_is_sent_as_it_is(tmp_path: Path) -> None:
    for text in ("FROM a\nRUN pip install b", TRICKY):
        image = a_dockerfile(tmp_path / "a", text)
        assert unpacked(custom_context(image)) == {"Dockerfile.emulator": text.encode()}


# --- A real engine ------------------------------------------------------------------------------


def a_wheel(folder: Path, name: str) -> Path:
    folder.mkdir(exist_ok=True)
    wheel = folder / f"{name}-1.0-py3-none-any.whl"
    info = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": "",
    }
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr(f"{name}.py", f"NAME = {name!r}\n")
        for file_name, text in info.items():
            file.writestr(f"{name}-1.0.dist-info/{file_name}", text)
    return wheel


@contextlib.contextmanager
def serving(folder: Path, address: str, certificate: Path, key: Path) -> Iterator[int]:
    """Serve a folder over TLS to the containers of the bridge; yield the port."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            pass  # a client that does not trust it leaves

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with Server((address, 0), functools.partial(Quiet, directory=str(folder))) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def contents(engine: DockerEngine, tag: str) -> Iterator[tuple[str, bytes]]:
    """Yield every file in every layer of an image, also those that a later layer hides."""
    archive = io.BytesIO(b"".join(engine.api.get_image(tag)))
    with tarfile.open(fileobj=archive) as tar:
        (manifest,) = json.load(tar.extractfile("manifest.json"))  # type: ignore[arg-type]
        for name in manifest["Layers"]:
            with tarfile.open(fileobj=tar.extractfile(name)) as layer:
                for entry in layer:
                    if entry.isfile():
                        yield entry.name, layer.extractfile(entry).read()  # type: ignore[union-attr]


INSTALLS = """\
ARG BASE=emulator-network:latest
FROM $BASE
ARG SERVER
ARG MARK
RUN python3 -m venv /opt/tools && echo $MARK > /opt/tools/mark
"""
THERE = "RUN /opt/tools/bin/pip install $SERVER/overtls-1.0-py3-none-any.whl\n"
TRUSTS = "COPY ca-bundle.pem /etc/\nENV PIP_CERT=/etc/ca-bundle.pem\n"


@pytest.mark.docker
def test_a_build_trusts_what_its_dockerfile_brings(
    docker_engine: DockerEngine, tmp_path: Path
) -> None:
    api = docker_engine.api
    (config,) = api.inspect_network("bridge")["IPAM"]["Config"]
    # The engine names no gateway where the bridge had its address before it started.
    network = ipaddress.ip_network(config["Subnet"])
    address = str(ipaddress.ip_address(config.get("Gateway") or str(network[1])))
    bundle, key = certificate(tmp_path, address)
    a_wheel(tmp_path / "served", "overtls")
    own_images = Images(api, BuildOptions(ca_bundle=bundle))
    said: list[str] = []
    with serving(tmp_path / "served", address, bundle, key) as port:
        args = {"SERVER": f"https://{address}:{port}", "MARK": own("mark")}
        image = a_dockerfile(tmp_path / "job", INSTALLS + THERE, **args)
        with pytest.raises(ImageError, match="CERTIFICATE_VERIFY_FAILED") as caught:
            own_images.ensure(image, said.append)
        assert caught.value.hint == (
            "The build does not trust the server's certificate, as in a network that intercepts "
            "TLS: have the Dockerfile copy the CA bundle of this network, and name it in PIP_CERT "
            "or SSL_CERT_FILE."
        )
        image = a_dockerfile(tmp_path / "job", INSTALLS + TRUSTS + THERE, **args)
        (tmp_path / "job" / "ca-bundle.pem").write_bytes(bundle.read_bytes())
        tag = own_images.ensure(image, said.append)
    try:
        assert tag == images.custom_tag(image)
        assert said[-1] == f"built {tag}"
        command = ["docker", "run", "--rm", tag, "/opt/tools/bin/python", "-c", "import overtls"]
        ran = subprocess.run(command, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        assert api.inspect_image(tag)["Config"]["Labels"]["emulator.image"] == "custom"
    finally:
        api.remove_image(tag, force=True)


@pytest.mark.docker
def test_a_build_goes_on_after_somebody_has_removed_a_step_of_it(
    docker_engine: DockerEngine, tmp_path: Path
) -> None:
    """As the engine does with a step that two images have in common, when it removes one."""
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        if "Step 3/" in line and AGAIN not in "".join(said):
            step = next(found[1] for one in reversed(said) if (found := STEP_IMAGE.match(one)))
            with contextlib.suppress(APIError):  # the next step has just been made
                docker_engine.api.remove_image(step)

    for number in range(10):
        text = f"FROM scratch\nCOPY train.py /{own(str(number))}\nCOPY large /large\n"
        image = a_dockerfile(tmp_path / str(number), text)
        (tmp_path / str(number) / "train.py").touch()
        with (tmp_path / str(number) / "large").open("wb") as file:
            file.truncate(2**27)
        tag = Images(docker_engine.api, BuildOptions()).ensure(image, say)
        docker_engine.api.remove_image(tag)
        if AGAIN in "".join(said):
            break
    assert "".join(said).count(AGAIN) == 1


@pytest.mark.docker
def test_an_image_of_ours_has_a_stable_tag_and_holds_no_bundle(
    docker_engine: DockerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = own("emulator-network")
    monkeypatch.setattr(images, "recipe_tag", lambda kind: f"{name}:recipe")
    monkeypatch.setattr(images, "stable_tag", lambda kind: f"{name}:latest")
    trusted = BuildOptions.from_environment().ca_bundle or Path(certifi.where())
    bundle = tmp_path / "ca.pem"
    bundle.write_text(f"# {name}\n{trusted.read_text()}")
    own_images = Images(docker_engine.api, BuildOptions(ca_bundle=bundle))
    try:
        tag = own_images.build("network", lambda line: None)
        tags = docker_engine.api.inspect_image(f"{name}:latest")["RepoTags"]
        assert {f"{name}:latest", tag} <= set(tags)  # the same content may have other names, too
        found = dict(contents(docker_engine, tag))
        assert "opt/requirements.txt" in found
        assert not [path for path in found if path.startswith("build/")]
        assert not [path for path, content in found.items() if name.encode() in content]
        docker_engine.api.remove_image(f"{name}:latest")
        assert own_images.build("network", lambda line: None) == tag  # which is up to date
        assert own_images.has(f"{name}:latest")
    finally:
        for each in ("latest", "recipe"):
            with contextlib.suppress(ImageNotFound):
                docker_engine.api.remove_image(f"{name}:{each}")
