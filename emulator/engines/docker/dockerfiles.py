"""What the build of a user's Dockerfile needs besides it: what it is based on, and inputs.

Inputs are files and variables of this machine's network: a CA bundle, wheels, indexes. A build gets
them by a COPY and ARGs at the beginning of each stage, and their traces are removed from its image.

A layer that a COPY made stays in an image, whatever later steps delete. So the image is saved, its
layers of inputs are left out, and the rest is loaded as another image. The layers below these are
already in the engine. Format: https://github.com/moby/docker-image-spec, as `docker save` writes
it.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from emulator.errors import ImageError

FOLDER = "emulator-build"
"""The folder of the inputs: in the build context, and in the root of each stage."""
STAGE = "emulator.stage"
"""Label of stages, by which the engine finds those that are not needed any more."""
BUNDLE = f"/{FOLDER}/ca-bundle.pem"
BUNDLE_VARIABLES = (
    "PIP_CERT",
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "NODE_EXTRA_CA_CERTS",
)
"""Read by pip, OpenSSL (so Python), requests, curl, git and Node.js."""

_ESCAPE = re.compile(r"#\s*escape\s*=\s*(\S)\s*", re.IGNORECASE)
_DIRECTIVE = re.compile(r"#\s*\w+\s*=\s*\S+\s*")
_FROM = re.compile(r"\s*FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?\s*", re.IGNORECASE)
_COPY = re.compile(r"\s*(?:COPY|ADD)\s(?!.*--from=)|\s*RUN\s.*--mount=", re.IGNORECASE)
"""What takes files of the build context; `COPY --from=stage` does not."""
_ARG = re.compile(r"\s*ARG\s+(\w+)=(\S*)\s*", re.IGNORECASE)
_STEP = re.compile(r"Step (\d+)/(\d+) : (.*)")
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::-([^}]*))?\}|(\w+))")


@dataclass(frozen=True)
class BuildInputs:
    """Files and variables for the steps of a build, which do not remain in its image."""

    files: Mapping[str, Path | bytes] = field(default_factory=dict)
    """What is in FOLDER, by relative path."""
    variables: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self.files or self.variables)

    @property
    def instructions(self) -> Sequence[str]:
        """The lines that give them to a stage."""
        copy = [f"COPY {FOLDER}/ /{FOLDER}/"] if self.files else []
        variables = (f"ARG {name}" for name in self.variables)
        return [f"LABEL {STAGE}=builder", *copy, *variables]


NO_INPUTS = BuildInputs()


def inputs(
    dockerfile: str, bundle: Path | None, wheels: Sequence[Path], indexes: Mapping[str, str]
) -> BuildInputs:
    """Return what a build gets: the CA bundle, and for Dockerfiles that use pip what pip reads."""
    files: dict[str, Path | bytes] = {}
    variables: dict[str, str] = {}
    if bundle is not None:
        files["ca-bundle.pem"] = bundle
        files["apt.conf"] = f'Acquire::https::CaInfo "{BUNDLE}";\n'.encode()
        variables |= dict.fromkeys(BUNDLE_VARIABLES, BUNDLE)
        variables["APT_CONFIG"] = f"/{FOLDER}/apt.conf"
    if re.search(r"\bpip", dockerfile):
        variables |= indexes
        if wheels:
            files |= {f"wheels/{wheel.name}": wheel for wheel in wheels}
            variables["PIP_FIND_LINKS"] = f"/{FOLDER}/wheels"
    return BuildInputs(files, variables)


def with_instructions(dockerfile: str, instructions: Sequence[str]) -> str:
    """Return a Dockerfile with these instructions at the beginning of each stage."""
    lines: list[str] = []
    for instruction, text in _instructions(dockerfile):
        lines += text
        if _FROM.fullmatch(instruction):
            lines += instructions
    return "\n".join([*lines, ""])


class Steps:
    """The steps of a build, numbered as in the Dockerfile without our instructions."""

    def __init__(self, dockerfile: str = "", added: int = 0) -> None:
        """`added` instructions follow each FROM of the Dockerfile."""
        self._added = added
        froms = (_FROM.fullmatch(instruction) for instruction, _ in _instructions(dockerfile))
        self._of_ours = added * sum(1 for match in froms if match)
        self._number = self._skipping = 0

    def read(self, line: str) -> str | None:
        """Return a step that the builder has announced; empty: it is ours; None: it is no step."""
        match = _STEP.match(line)
        if match is None:
            return None
        if self._skipping:
            self._skipping -= 1
            return ""
        self._number += 1
        if _FROM.fullmatch(match[3]):
            self._skipping = self._added
        return f"Step {self._number}/{int(match[2]) - self._of_ours} : {match[3]}"


def bases(dockerfile: str, args: Mapping[str, str]) -> Sequence[str]:
    """Return the images that the stages are based on, without those that are stages themselves."""
    found: list[str] = []
    stages: set[str] = set()
    values: dict[str, str] = {}
    for instruction, _ in _instructions(dockerfile):
        if (match := _ARG.fullmatch(instruction)) and not found:  # only those count in a FROM
            values[match[1]] = args.get(match[1], match[2].strip("\"'"))
        elif match := _FROM.fullmatch(instruction):
            base = _VARIABLE.sub(lambda m: values.get(m[1] or m[3], m[2] or ""), match[1])
            if base.lower() not in stages:
                found.append(base)
            stages.add((match[2] or "").lower())
    return found


def needs_context(dockerfile: str) -> bool:
    """Return whether a step takes files of the build context."""
    return any(_COPY.match(instruction) for instruction, _ in _instructions(dockerfile))


def _instructions(dockerfile: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each instruction in one line, and the lines that it is written in.

    Comments and blank lines are yielded like instructions, but for those within one.
    """
    escape, directives = "\\", True
    text: list[str] = []
    instruction = ""
    for line in dockerfile.splitlines():
        directives = directives and bool(_DIRECTIVE.fullmatch(line))
        if directives and (match := _ESCAPE.fullmatch(line)):
            escape = match[1]
        text.append(line)
        comment = not line.strip() or line.lstrip().startswith("#")
        if instruction and comment:
            continue  # within an instruction; it goes on after that
        stripped = line.rstrip()
        if not comment and stripped.endswith(escape):
            instruction += stripped[:-1] + " "
            continue
        yield instruction + line, text
        instruction, text = "", []
    yield instruction, text


# --- Removing the inputs from an image ------------------------------------------------------------


_NOP = re.compile(r"/bin/sh -c #\(nop\)\s+(\w+)\s+(\S+)")


def copies(history: Sequence[Mapping[str, Any]], folder: str) -> list[int]:
    """Return the numbers of the layers that copied the inputs, from the bottom up (pure)."""
    layers = [entry for entry in history if not entry.get("empty_layer")]
    copied = re.compile(rf"/bin/sh -c #\(nop\) COPY \S+ in /{re.escape(folder)}/ *")
    return [n for n, one in enumerate(layers) if copied.fullmatch(str(one.get("created_by", "")))]


def cleaned(config: Mapping[str, Any], folder: str, variables: Mapping[str, str]) -> dict[str, Any]:
    """Return an image's configuration without inputs: layers, history, labels (pure)."""
    removed = copies(config["history"], folder)
    diff_ids = config["rootfs"]["diff_ids"]
    kept = [one for number, one in enumerate(diff_ids) if number not in removed]
    settings = dict(config["config"])
    labels = dict(settings.get("Labels") or {})
    labels.pop(STAGE, None)
    settings["Labels"] = labels
    return {
        # Of the container of the last step, with its environment.
        **{k: v for k, v in config.items() if k not in ("container", "container_config")},
        "config": settings,
        "rootfs": {**config["rootfs"], "diff_ids": kept},
        "history": _cleaned_history(config["history"], folder, variables),
    }


def _cleaned_history(
    history: Sequence[Mapping[str, Any]], folder: str, variables: Mapping[str, str]
) -> list[dict[str, Any]]:
    layer, removed = 0, copies(history, folder)
    kept: list[dict[str, Any]] = []
    for entry in history:
        if not entry.get("empty_layer"):
            layer += 1
            if layer - 1 in removed:
                continue
        said = str(entry.get("created_by", ""))
        if match := _NOP.match(said):
            name = match[2].partition("=")[0]
            if (match[1] == "ARG" and name in variables) or (match[1], name) == ("LABEL", STAGE):
                continue
        kept.append({**entry, "created_by": _without(said, variables)} if said else dict(entry))
    return kept


def _without(said: str, variables: Mapping[str, str]) -> str:
    """Return a step without our variables: `|2 A=b PIP_CERT=c /bin/sh` -> `|1 A=b /bin/sh`."""
    match = re.match(r"\|(\d+) ", said)
    if match is None:
        return said
    count, rest = int(match[1]), " " + said[match.end() :]
    for name, value in variables.items():
        if f" {name}={value} " in rest:
            count -= 1
            rest = rest.replace(f" {name}={value} ", " ", 1)
    return f"|{count}{rest}" if count > 0 else rest[1:]


def without_inputs(
    saved: IO[bytes],
    result: IO[bytes],
    tag: str,
    folder: str,
    variables: Mapping[str, str],
    *,
    complete: bool = False,
) -> None:
    """Write an archive of the image `tag` without the inputs; `saved` is one of it with them.

    The layers below the inputs are left out unless it is to be `complete`. Raises ImageError if
    another layer has the inputs too.
    """
    with tarfile.open(fileobj=saved) as source, tarfile.open(fileobj=result, mode="w") as target:
        (manifest,) = json.loads(_read(source, "manifest.json"))
        config = json.loads(_read(source, manifest["Config"]))
        removed = copies(config["history"], folder)
        clean = json.dumps(cleaned(config, folder, variables)).encode()
        name = f"{hashlib.sha256(clean).hexdigest()}.json"
        layers: list[str] = []
        for number, layer in enumerate(manifest["Layers"]):
            if number in removed:
                continue
            layers.append(layer)
            above = not removed or number > removed[0]  # without any, each layer is checked
            if above:
                _refuse_inputs(source, layer, folder, tag)
            if complete or above:
                _copy(source, target, layer)
        _add(target, name, clean)
        entry = {"Config": name, "RepoTags": [tag], "Layers": layers}
        _add(target, "manifest.json", json.dumps([entry]).encode())


def _refuse_inputs(source: tarfile.TarFile, layer: str, folder: str, tag: str) -> None:
    """Raise ImageError if a layer has files of the inputs."""
    content = source.extractfile(layer)
    assert content is not None
    with tarfile.open(fileobj=content) as files:
        if any(file.isfile() and file.name.startswith(f"{folder}/") for file in files):
            raise ImageError(
                f"{tag} would keep /{folder}, which has this machine's CA bundle and wheels.",
                f"A step of its Dockerfile copies the whole root of a stage: leave /{folder} out.",
            )


def _read(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    assert file is not None
    return file.read()


def _copy(source: tarfile.TarFile, target: tarfile.TarFile, name: str) -> None:
    """Copy a file, which may be a link to another one of the archive."""
    file = source.extractfile(name)
    assert file is not None
    entry = tarfile.TarInfo(name)
    entry.size = file.seek(0, io.SEEK_END)
    file.seek(0)
    target.addfile(entry, file)


def _add(target: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    target.addfile(entry, io.BytesIO(content))


def errors_of(messages: Iterable[bytes]) -> list[str]:
    """Return the errors in what an engine says while it loads an image."""
    return [str(one["error"]) for one in map(json.loads, messages) if "error" in one]
