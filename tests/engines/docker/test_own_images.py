"""Images of users: what their builds get from this machine, and that nothing of it remains."""

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
from typing import Any

import certifi
import pytest
from docker.errors import APIError, ImageNotFound

from emulator.engines.docker import DockerEngine, dockerfiles, images
from emulator.engines.docker.building import custom_context, packed
from emulator.engines.docker.dockerfiles import (
    BUNDLE,
    BUNDLE_VARIABLES,
    FOLDER,
    BuildInputs,
    Steps,
    bases,
    inputs,
    needs_context,
    with_instructions,
)
from emulator.engines.docker.images import BuildOptions, Images
from emulator.engines.recipes import KINDS
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


def test_steps_have_the_numbers_of_the_users_file() -> None:
    dockerfile = "FROM a AS one\nRUN x\nFROM b\nCOPY --from=one /x /x\n"
    built = ["FROM a AS one", "LABEL s", "ARG P", "RUN x", "FROM b", "LABEL s", "ARG P", "COPY x"]
    steps = Steps(dockerfile, added=2)
    read = [steps.read(f"Step {n}/8 : {text}") for n, text in enumerate(built, 1)]
    assert [step for step in read if step] == [
        "Step 1/4 : FROM a AS one",
        "Step 2/4 : RUN x",
        "Step 3/4 : FROM b",
        "Step 4/4 : COPY x",
    ]
    assert Steps().read("Step 2/3 : RUN x") == "Step 1/3 : RUN x"
    assert Steps().read(" ---> 1234") is None


def test_each_stage_gets_the_instructions_at_its_beginning() -> None:
    lines = with_instructions(TRICKY, ["X"]).splitlines()
    assert [lines[n - 1] for n, line in enumerate(lines) if line == "X"] == [
        "  AS Tools",
        "from tools",
        "FROM $OTHER",
        "FROM ${MISSING:-scratch}",
    ]
    assert [line for line in lines if line != "X"] == TRICKY.splitlines()


def test_a_line_within_a_step_is_no_stage_and_bases_are_images_and_not_stages() -> None:
    text = "FROM a\nRUN one \\\nFROM b \\\n\n# FROM c\n  && two\nFROM d"
    assert with_instructions(text, ["X"]) == text.replace("a\n", "a\nX\n") + "\nX\n"
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


def test_a_build_gets_what_it_can_use(tmp_path: Path) -> None:
    bundle, wheel = tmp_path / "ca.pem", tmp_path / "a-1-py3-none-any.whl"
    index = {"PIP_INDEX_URL": "https://index.invalid/simple"}
    assert not inputs("RUN pip install x", None, [], {})
    assert not inputs("RUN make", None, [wheel], index)
    given = inputs("RUN pip install x", bundle, [wheel], index)
    assert given.files.keys() == {"ca-bundle.pem", "apt.conf", f"wheels/{wheel.name}"}
    assert given.variables["PIP_FIND_LINKS"] == f"/{FOLDER}/wheels"
    assert {given.variables[name] for name in BUNDLE_VARIABLES} == {BUNDLE}
    assert index.items() <= given.variables.items()
    assert "PIP_FIND_LINKS" not in inputs("RUN make", bundle, [wheel], index).variables


def test_without_inputs_a_dockerfile_is_sent_as_it_is(tmp_path: Path) -> None:
    image = a_dockerfile(tmp_path / "a", "FROM a\nRUN b")
    assert unpacked(custom_context(image)) == {"Dockerfile.emulator": b"FROM a\nRUN b"}
    stage, copy = "FROM a\nLABEL emulator.stage=builder\n", f"COPY {FOLDER}/ /{FOLDER}/\n"
    for files, lines in (({}, ""), ({"x": b"1"}, copy)):
        assert unpacked(custom_context(image, BuildInputs(files, {"A": "2"}))) == {
            "Dockerfile.emulator": f"{stage}{lines}ARG A\nRUN b\n".encode(),
            **{f"{FOLDER}/{name}": data for name, data in files.items()},
        }


# --- Layers -------------------------------------------------------------------------------------


def step(said: str, *, empty: bool = False) -> dict[str, Any]:
    return {"created_by": said, **({"empty_layer": True} if empty else {})}


def test_a_configuration_loses_the_layer_and_every_trace_of_the_variables() -> None:
    nop = "/bin/sh -c #(nop) "
    config = {
        "container": "abc",
        "container_config": {"Env": ["PIP_CERT=/x"]},
        "config": {"Labels": {"emulator.stage": "builder", "mine": "1"}, "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": ["base", "inputs", "first", "second"]},
        "history": [
            {"comment": "Imported from -"},
            step(f"{nop}LABEL emulator.stage=builder", empty=True),
            step(f"{nop}COPY dir:12ab in /{FOLDER}/ "),
            step(f"{nop}ARG PIP_CERT", empty=True),
            step("|1 PIP_CERT=/x /bin/sh -c pip install a"),
            step(f"{nop}ARG MINE=1", empty=True),
            step("|2 MINE=1 PIP_CERT=/x /bin/sh -c pip install b"),
        ],
    }
    assert dockerfiles.copies(config["history"], FOLDER) == [1]  # type: ignore[arg-type]
    assert dockerfiles.cleaned(config, FOLDER, {"PIP_CERT": "/x"}) == {
        "config": {"Labels": {"mine": "1"}, "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": ["base", "first", "second"]},
        "history": [
            {"comment": "Imported from -"},
            step("/bin/sh -c pip install a"),
            step(f"{nop}ARG MINE=1", empty=True),
            step("|1 MINE=1 /bin/sh -c pip install b"),
        ],
    }


def saved(top: bytes) -> io.BytesIO:
    """Return an image as the engine saves it: a base, the inputs, and a layer on top."""
    config = {
        "config": {"Labels": None},
        "rootfs": {"diff_ids": ["a", "b", "c"]},
        "history": [
            step("base"),
            step(f"/bin/sh -c #(nop) COPY dir:1 in /{FOLDER}/ "),
            step("|1 A=1 /bin/sh -c top"),
        ],
    }
    manifest = [{"Config": "config", "Layers": ["base", "inputs", "top"], "RepoTags": ["x:1"]}]
    base, middle = packed({"etc": b"1"}), packed({f"{FOLDER}/ca-bundle.pem": b"secret"})
    files = {"manifest.json": json.dumps(manifest).encode(), "config": json.dumps(config).encode()}
    return io.BytesIO(packed({**files, "base": base, "inputs": middle, "top": top}))


@pytest.mark.parametrize(("complete", "expected"), [(False, {"top"}), (True, {"base", "top"})])
def test_an_archive_has_the_layers_above_or_all_of_them(
    *, complete: bool, expected: set[str]
) -> None:
    result = io.BytesIO()
    top = packed({"made": b"1"})
    dockerfiles.without_inputs(saved(top), result, "job:1", FOLDER, {"A": "1"}, complete=complete)
    files = unpacked(result.getvalue())
    (manifest,) = json.loads(files["manifest.json"])
    assert (manifest["Layers"], manifest["RepoTags"]) == (["base", "top"], ["job:1"])
    assert files.keys() == expected | {"manifest.json", manifest["Config"]}
    assert files["top"] == top
    assert json.loads(files[manifest["Config"]])["rootfs"]["diff_ids"] == ["a", "c"]
    assert b"secret" not in result.getvalue()


def test_an_image_that_would_keep_inputs_is_refused() -> None:
    """In another layer, or in one that the history does not show."""
    copied = saved(packed({f"{FOLDER}/ca-bundle.pem": b"secret"}))
    hidden = saved(packed({"made": b"1"})).getvalue().replace(b"#(nop) COPY", b"other words")
    for image in (copied, io.BytesIO(hidden)):
        with pytest.raises(ImageError, match=f"job:1 would keep /{FOLDER}") as caught:
            dockerfiles.without_inputs(image, io.BytesIO(), "job:1", FOLDER, {})
        assert caught.value.hint


def test_an_engine_says_why_it_loads_nothing() -> None:
    answers = [b'{"stream": "x"}', b'{"error": "bad", "errorDetail": {}}']
    assert dockerfiles.errors_of(answers) == ["bad"]


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


def is_left(engine: DockerEngine, tag: str) -> bool:
    """Return whether the image is there that a build has before its inputs are removed."""
    return engine.images.has(tag.replace(":", "-unfinished:"))


DOCKERFILE = """\
ARG BASE=emulator-network:latest
FROM $BASE AS tools
ARG SERVER
ARG MARK
RUN python3 -m venv /opt/tools && /opt/tools/bin/pip install $SERVER/overtls-1.0-py3-none-any.whl \
    && echo $MARK > /opt/tools/mark
FROM $BASE
COPY --from=tools /opt/tools /opt/tools
ENV MINE=1
RUN /opt/tools/bin/pip install --no-index fromwheels
CMD ["/opt/tools/bin/python", "-c", "import overtls, fromwheels; print(overtls, fromwheels)"]
"""


@pytest.mark.docker
def test_a_build_gets_bundle_and_wheels_and_its_image_has_neither(
    docker_engine: DockerEngine, tmp_path: Path
) -> None:
    api = docker_engine.api
    (config,) = api.inspect_network("bridge")["IPAM"]["Config"]
    # The engine names no gateway where the bridge had its address before it started.
    network = ipaddress.ip_network(config["Subnet"])
    address = str(ipaddress.ip_address(config.get("Gateway") or str(network[1])))
    bundle, key = certificate(tmp_path, address)
    a_wheel(tmp_path / "served", "overtls")
    wheel = a_wheel(tmp_path / "wheels", "fromwheels")
    said: list[str] = []
    with serving(tmp_path / "served", address, bundle, key) as port:
        image = a_dockerfile(
            tmp_path / "job", DOCKERFILE, SERVER=f"https://{address}:{port}", MARK=own("mark")
        )
        with pytest.raises(ImageError, match="CERTIFICATE_VERIFY_FAILED") as caught:
            Images(api, BuildOptions(wheels=wheel.parent)).ensure(image, said.append)
        assert caught.value.hint == (
            "The build does not trust the server's certificate, as in a network that intercepts "
            "TLS: name the CA bundle of this network in SSL_CERT_FILE."
        )
        options = BuildOptions(ca_bundle=bundle, wheels=wheel.parent)
        tag = Images(api, options).ensure(image, said.append)
    try:
        assert tag == images.custom_tag(image)
        assert any(line == f"built {tag}" for line in said)
        ran = subprocess.run(["docker", "run", "--rm", tag], capture_output=True, text=True)
        assert "fromwheels.py" in ran.stdout, ran.stderr
        found = dict(contents(docker_engine, tag))
        assert not [name for name in found if name.startswith(FOLDER)]
        assert not [name for name, content in found.items() if bundle.read_bytes() in content]
        assert not [name for name in found if name.endswith(wheel.name)]
        said_by_steps = "\n".join(str(one["CreatedBy"]) for one in api.history(tag))
        assert FOLDER not in said_by_steps
        assert "PIP_CERT" not in said_by_steps
        assert "pip install --no-index fromwheels" in said_by_steps
        settings = api.inspect_image(tag)["Config"]
        assert settings["Labels"]["emulator.image"] == "custom"
        assert "emulator.stage" not in settings["Labels"]
        assert "MINE=1" in settings["Env"]
        assert not [one for one in settings["Env"] if "CERT" in one or FOLDER in one]
        assert not is_left(docker_engine, tag)
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
def test_an_image_of_a_users_own_that_keeps_the_bundle_is_refused(
    docker_engine: DockerEngine, tmp_path: Path, tiny_image: str
) -> None:
    (tmp_path / "ca.pem").write_text("certificates")
    text = (
        f"FROM {tiny_image} AS all\nRUN echo {own('a')} > /a\nFROM scratch\nCOPY --from=all / /\n"
    )
    image = a_dockerfile(tmp_path / "job", text)
    options = BuildOptions(ca_bundle=tmp_path / "ca.pem")
    own_images = Images(docker_engine.api, options)
    with pytest.raises(ImageError, match=f"would keep /{FOLDER}"):
        own_images.ensure(image, lambda line: None)
    assert not is_left(docker_engine, own_images.reference(image))


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
        assert tags == [f"{name}:latest", tag]
        assert not is_left(docker_engine, tag)
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
