"""Builds and finds images.

An image's tag is a hash of its Dockerfile and the files that it copies: a second build finds the
first, and a changed recipe makes another image. The base image is pulled; where no registry
answers, scripts/ensure-base of a checkout makes one.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import docker
from docker.errors import APIError, ImageNotFound

from emulator.engines.docker.building import (
    LAST_LINES,
    custom_context,
    dockerfile_text,
    last_build_runs,
    one_at_a_time,
    packed,
    progress,
)
from emulator.engines.docker.connection import translate_errors
from emulator.engines.docker.dockerfiles import bases
from emulator.engines.kit import recipes
from emulator.engines.kit.recipes import (
    KINDS,
    context_files,
    dockerfile_of,
    recipe_files,
    recipe_tag,
    stable_tag,
    without_preload,
)
from emulator.errors import ImageError, UsageError
from emulator.runtime import signals
from emulator.runtime.bundled import ROOT
from emulator.runtime.files import FOR_OWNER, appending, cache_dir
from emulator.runtime.waiting import each

if TYPE_CHECKING:
    from emulator.scenario.schema import AnyImage, Dockerfile

DEFAULT_BASE = "python:3.11-slim"
OWN_BASE = "emulator-base"
"""Where no registry has the other, by ENSURE_BASE; its tag is the release of the distribution."""
ENSURE_BASE = ROOT / "scripts" / "ensure-base"
"""Only in a checkout."""
LABEL_KIND, LABEL_BASE = "emulator.image", "emulator.base"
CUSTOM = "custom"
"""The kind of images that are built from users' Dockerfiles."""
CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT")
_OWN_LINES = re.compile(r" *---> |Removing intermediate container ")
"""What the builder says of its own work between the steps."""
_NO_PARENT = re.compile("unknown parent image ID")
"""What it says where the image of the step before was removed, as that of a step which another
build has in common is with the image of that build."""
_STEP = re.compile(r"Step \d+/\d+ : ")
STEP_WIDTH = 100
COLOUR = re.compile(r"\x1b\[[0-9;]*m")

Say = Callable[[str], None]
"""Reports progress, a line at a time."""


class _StepRemoved(ImageError):
    """A build failed because the image of one of its steps was removed meanwhile."""


@dataclass(frozen=True)
class BuildOptions:
    """What a build needs in this network."""

    base: str | None = None
    """The image to build on; it needs Python 3.10 to 3.13 with venv. None: DEFAULT_BASE."""
    ca_bundle: Path | None = None
    """Certificates for networks that intercept TLS; used during the build, not kept."""
    wheels: Path | None = None
    """A folder of wheels that pip searches first; not kept either."""

    @classmethod
    def from_environment(
        cls,
        base: str | None = None,
        ca_bundle: Path | None = None,
        wheels: Path | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> BuildOptions:
        """Take what is not given from EMULATOR_BASE, CA_VARIABLES and PIP_FIND_LINKS."""
        environ = os.environ if environ is None else environ
        if ca_bundle is not None and not ca_bundle.is_file():
            raise UsageError(f"--ca-bundle {ca_bundle}: there is no such file.")
        if wheels is not None and not wheels.is_dir():
            raise UsageError(f"--wheels {wheels}: there is no such folder.")
        bundles = (Path(environ[name]) for name in CA_VARIABLES if environ.get(name))
        folders = (Path(place) for place in environ.get("PIP_FIND_LINKS", "").split())
        return cls(
            base=base or environ.get("EMULATOR_BASE") or None,
            ca_bundle=ca_bundle or next((path for path in bundles if path.is_file()), None),
            wheels=wheels or next((path for path in folders if path.is_dir()), None),
        )


class Images:
    """The images of one engine."""

    def __init__(
        self,
        api: docker.APIClient,
        options: BuildOptions | None = None,
        gpus: Callable[[], Sequence[str]] = lambda: (),
    ) -> None:
        self.api = api
        self._options = options or BuildOptions.from_environment()
        self._gpus = gpus

    def reference(self, image: AnyImage) -> str:
        """Return the reference of an image that a scenario names; nothing is built.

        `auto` is the GPU image only where the engine can give GPUs to tasks.
        """
        return recipes.reference(image, self._gpus)

    def ensure(self, image: AnyImage, say: Say) -> str:
        """Return the reference of an image, which is built or pulled where the engine lacks it.

        Raises ImageError.
        """
        reference = self.reference(image)
        if self.has(reference):
            return reference
        image = without_preload(image)
        if not isinstance(image, str):
            return self._build_custom(image, say)
        for kind in KINDS:
            if reference == recipe_tag(kind):
                return self.build(kind, say)
        return self._pull(reference, say)

    def has(self, reference: str) -> bool:
        """Say whether the engine has the image."""
        return self._inspect(reference) is not None

    def identity(self, reference: str) -> dict[str, str]:
        """Return an image's `id`, its `base` and its Python, as far as it has them."""
        return identity_of(self._inspect(reference) or {})

    def build(self, kind: str, say: Say) -> str:
        """Build one of KINDS where its tag is missing, or was built on another base.

        Raises ImageError with the failing step and the builder's last lines.
        """
        tag = recipe_tag(kind)
        with one_at_a_time(tag):
            image = self._inspect(tag)
            labels = (image or {}).get("Config", {}).get("Labels") or {}
            if image and self._options.base in (None, labels.get(LABEL_BASE)):
                say(f"{tag} is up to date")
                self._tag_stable(kind)
                return tag
            base = self.base(say)
            self._run_build(
                tag,
                recipe_context(kind, self._options),
                say,
                dockerfile=dockerfile_of(kind),
                buildargs={"BASE": base, **_indexes(os.environ)},
                labels={LABEL_KIND: kind, LABEL_BASE: base},
            )
            self._tag_stable(kind)
            return tag

    # --- Effects --------------------------------------------------------------------------------

    def _build_custom(self, image: Dockerfile, say: Say) -> str:
        for kind in based_on(image):
            self._provide(kind, say)
        tag = custom_tag(image)
        with one_at_a_time(tag):
            if self.has(tag):  # another process has built it meanwhile
                return tag
            return self._run_build(
                tag,
                custom_context(image),
                say,
                dockerfile="Dockerfile.emulator",
                buildargs={**_indexes(os.environ), **image.args},
                labels={LABEL_KIND: CUSTOM},
            )

    def _provide(self, kind: str, say: Say) -> None:
        """Make the stable tag of an image name that of its recipe; build it where it is missing."""
        if self.has(recipe_tag(kind)):
            self._tag_stable(kind)
        else:
            self.build(kind, say)

    def _tag_stable(self, kind: str) -> None:
        with translate_errors(f"tag {recipe_tag(kind)}", ImageError):
            name, tag = _split_reference(stable_tag(kind))
            self.api.tag(recipe_tag(kind), name, tag)

    def _run_build(
        self,
        tag: str,
        context: bytes,
        say: Say,
        **request: Any,  # noqa: ANN401
    ) -> str:
        """Send the context and report the builder's output."""
        say(f"building {tag}")
        with (
            signals.deferred(f"stopping the build of {tag}"),
            translate_errors(f"build {tag}", ImageError),
            last_build_runs(self._remove_stages),
        ):
            try:
                self._build_steps(tag, context, say, **request)
            except _StepRemoved:
                say(f"{tag}: another client removed a step of it meanwhile; building it again")
                self._build_steps(tag, context, say, **request)
        say(f"built {tag}")
        return tag

    def _build_steps(
        self,
        tag: str,
        context: bytes,
        say: Say,
        **request: Any,  # noqa: ANN401
    ) -> None:
        """Build an image. Raises ImageError with the failing step."""
        step, last = "", deque[str](maxlen=LAST_LINES)
        output = self.api.build(
            fileobj=io.BytesIO(context),
            custom_context=True,
            tag=tag,
            rm=True,
            forcerm=True,
            decode=True,
            **request,
        )
        with progress(output) as messages, closing(_BuildLog(tag)) as log:
            for line, failed in builder_lines(messages):
                log.write(line)
                if failed:
                    text = "\n".join(f"  {line}" for line in [*last, line])
                    kind = _StepRemoved if _NO_PARENT.search(line) else ImageError
                    raise kind(
                        f"{tag} does not build; it failed at {step!r}:\n{text}{log.place}",
                        self._advice([*last, line], request["labels"][LABEL_KIND]),
                    )
                if _STEP.match(line):
                    step = line
                    say(f"{tag}: {step[:STEP_WIDTH]}")
                elif line.strip():
                    if not _OWN_LINES.match(line):
                        last.append(line)
                    say(f"  {line}")

    def _advice(self, lines: Sequence[str], kind: str) -> str:
        """Return what to do about a build that failed with these lines; empty if unknown."""
        from emulator.analysis.failed_output import TLS

        if not any(TLS.pattern.search(line) for line in lines):
            return ""
        if kind == CUSTOM:
            return (
                "The build does not trust the server's certificate, as in a network that "
                "intercepts TLS: have the Dockerfile copy the CA bundle of this network, and name "
                "it in PIP_CERT or SSL_CERT_FILE."
            )
        if bundle := self._options.ca_bundle:
            return (
                f"The CA bundle {bundle} does not have the authority that signed the server's "
                "certificate: name another one in SSL_CERT_FILE."
            )
        return (
            "The build does not trust the server's certificate, as in a network that intercepts "
            "TLS: name the CA bundle of this network in SSL_CERT_FILE."
        )

    def _remove_stages(self) -> None:
        """Remove builder stages: they are as large as the images, and never used again."""
        try:
            self.api.prune_images({"dangling": True, "label": "emulator.stage=builder"})
        except APIError as error:
            # The engine allows one prune at a time; the next build prunes.
            if error.status_code != HTTPStatus.CONFLICT:
                raise

    def base(self, say: Say) -> str:
        """Return a base image that the engine has."""
        if base := self._options.base:
            return base if self.has(base) else self._pull(base, say)
        if found := self._found_base():
            return found
        try:
            return self._pull(DEFAULT_BASE, say)
        except ImageError as error:
            unpulled = error.message
        if ENSURE_BASE.is_file() and os.geteuid() == 0:
            say(f"{unpulled} Running scripts/ensure-base.")
            ensure_base(say)
        if found := self._found_base():
            return found
        raise ImageError(
            unpulled,
            "`scripts/ensure-base` in a clone makes another one on Debian and Ubuntu; else `docker "
            "pull` or `docker load` it, or name one with --base.",
        )

    def _found_base(self) -> str:
        """Return the base image that the engine has; empty: it has none."""
        if self.has(DEFAULT_BASE):
            return DEFAULT_BASE
        with translate_errors(f"look for {OWN_BASE}", ImageError):
            found = self.api.images(OWN_BASE)
        tags = (tag for image in found for tag in image["RepoTags"] or ())
        return next((tag for tag in tags if tag.startswith(f"{OWN_BASE}:")), "")

    def _pull(self, reference: str, say: Say) -> str:
        say(f"pulling {reference}")
        name, tag = _split_reference(reference)
        with translate_errors(f"pull {reference}"):
            try:
                output = self.api.pull(name, tag=tag, stream=True, decode=True)
            except APIError as error:
                reason = str(error.explanation).rpartition(": ")[2]
                raise ImageError(
                    f"The engine has no image {reference} and can't pull it ({reason}).",
                    "Check its name, or build it first.",
                ) from None
            with signals.deferred(), progress(output) as messages:
                for message in messages:
                    if "error" in message:
                        raise ImageError(f"Can't pull {reference}: {message['error']}.")
        return reference

    def _inspect(self, reference: str) -> dict[str, Any] | None:
        with translate_errors(f"look for {reference}", ImageError):
            try:
                image: dict[str, Any] = self.api.inspect_image(reference)
                return image
            except ImageNotFound:
                return None


def ensure_base(say: Say) -> None:
    """Run ENSURE_BASE, whether it succeeds or not; report what it prints."""
    with (
        signals.deferred("stopping; no base image is made"),
        subprocess.Popen(
            [ENSURE_BASE],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=0,
        ) as process,
    ):
        assert process.stdout is not None
        stop = partial(os.killpg, process.pid, signal.SIGTERM)
        with closing(each(process.stdout, cancel=stop, check=signals.check)) as lines:
            for line in lines:
                say(line.rstrip())


def identity_of(image: Mapping[str, Any]) -> dict[str, str]:
    """Return the `id`, the `base` and the Python of an image that the engine describes (pure).

    Python's official images have its version as a variable, which images built on them inherit.
    """
    config = image.get("Config") or {}
    env = dict(one.partition("=")[::2] for one in config.get("Env") or ())
    found = {
        "id": image.get("Id", ""),
        "base": (config.get("Labels") or {}).get(LABEL_BASE, ""),
        "python": env.get("PYTHON_VERSION", ""),
    }
    return {name: text for name, text in found.items() if text}


# --- Recipes (pure, but for reading files) ------------------------------------------------------


def builder_lines(messages: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, bool]]:
    """Yield the lines of the builder's output, each with whether it is the final error (pure).

    The builder sends pieces of lines as a command writes them, and colours those of stderr.
    """
    rest = ""
    for message in messages:
        *lines, rest = (rest + COLOUR.sub("", str(message.get("stream", "")))).split("\n")
        if "error" in message:
            yield from ((line, False) for line in [*lines, rest])
            yield str(message["error"]), True
            return
        yield from ((line, False) for line in lines)
    yield rest, False


def based_on(image: Dockerfile) -> list[str]:
    """Return those of KINDS on which a user's image is based, by their stable tags."""
    names = set(bases(dockerfile_text(image), image.args))
    return [kind for kind in KINDS if names & {stable_tag(kind), f"emulator-{kind}"}]


def _indexes(environ: Mapping[str, str]) -> dict[str, str]:
    """Return where pip looks for packages, as far as a build can reach it."""
    return {
        name: environ[name]
        for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL")
        # A file: index is a folder of this machine.
        if "://" in environ.get(name, "") and "file:" not in environ[name]
    }


def recipe_context(kind: str, options: BuildOptions) -> bytes:
    """Return the build context: Dockerfile, requirements, CA bundle, and wheels where they help."""
    files = context_files(kind)
    if options.ca_bundle:
        files["images/build/ca-bundle.pem"] = options.ca_bundle
    for wheel in _useful_wheels(kind, options.wheels):
        files[f"images/build/wheels/{wheel.name}"] = wheel
    return packed(files)


def _useful_wheels(kind: str, folder: Path | None) -> list[Path]:
    """Return all wheels of a folder, if one of them is required by the image."""
    if folder is None:
        return []
    required = {_canonical(name) for name in re.findall(r"(?m)^([A-Za-z0-9._-]+)", _needs(kind))}
    wheels = sorted(folder.glob("*.whl"))
    return wheels if required & {_canonical(w.name.split("-")[0]) for w in wheels} else []


def _needs(kind: str) -> str:
    """Return the requirements of an image, one a line."""
    requirements = recipe_files(kind).get(f"{kind}.txt")
    return requirements.read_text("utf-8") if requirements else ""


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def custom_tag(image: Dockerfile) -> str:
    """Return a tag made from the content of a user's build context, Dockerfile and arguments.

    An image based on one of KINDS gets another tag when that has another recipe.

    Raises UsageError where these can't be read or are too large.
    """
    digest = hashlib.sha256(custom_context(image))
    digest.update(repr(sorted(image.args.items())).encode())
    for kind in based_on(image):
        digest.update(recipe_tag(kind).encode())
    return f"emulator-custom:{digest.hexdigest()[:12]}"


def _split_reference(reference: str) -> tuple[str, str]:
    """Split `host:5000/name:tag`; a digest stays with the name, `latest` is the default tag."""
    if "@" in reference:
        return reference, ""
    name, colon, tag = reference.rpartition(":")
    return (name, tag) if colon and "/" not in tag else (reference, "latest")


class _BuildLog:
    """The file with all lines of the last build of an image; a disk that is full stops no build."""

    def __init__(self, tag: str) -> None:
        name = tag.replace("/", "_").replace(":", "-")
        self.path = cache_dir("builds") / f"{name}.log"
        self._file: IO[str] | None = None
        with suppress(OSError):
            self.path.parent.mkdir(FOR_OWNER, parents=True, exist_ok=True)
            self.path.unlink(missing_ok=True)  # that of the build before
            raw = io.BufferedWriter(appending(self.path))
            self._file = io.TextIOWrapper(raw, "utf-8", "replace", line_buffering=True)

    def write(self, line: str) -> None:
        """Add a line."""
        with suppress(OSError):
            if self._file is not None:
                self._file.write(f"{line}\n")

    def close(self) -> None:
        """Close the file."""
        with suppress(OSError):
            if self._file is not None:
                self._file.close()

    @property
    def place(self) -> str:
        """Where it is, as the end of a message."""
        return f"\nThe whole output: {self.path}" if self._file is not None else ""
