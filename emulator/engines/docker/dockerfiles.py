"""What the build of a user's Dockerfile needs besides it: what it is based on, and inputs (pure).

Inputs are files and variables of this machine's network: a CA bundle, wheels, indexes. A build gets
them by a COPY and ARGs at the beginning of each stage. `layers.py` removes their traces from the
image.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

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
