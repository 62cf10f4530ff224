"""Reads users' Dockerfiles: what they are based on, and whether they copy files (pure).

They are read only: a user's Dockerfile is built as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

_ESCAPE = re.compile(r"#\s*escape\s*=\s*(\S)\s*", re.IGNORECASE)
_DIRECTIVE = re.compile(r"#\s*\w+\s*=\s*\S+\s*")
_FROM = re.compile(r"\s*FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?\s*", re.IGNORECASE)
_COPY = re.compile(r"\s*(?:COPY|ADD)\s(?!.*--from=)|\s*RUN\s.*--mount=", re.IGNORECASE)
"""What takes files of the build context; `COPY --from=stage` does not."""
_ARG = re.compile(r"\s*ARG\s+(\w+)=(\S*)\s*", re.IGNORECASE)
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::-([^}]*))?\}|(\w+))")


def bases(dockerfile: str, args: Mapping[str, str]) -> Sequence[str]:
    """Return the images that the stages are based on, without those that are stages themselves."""
    found: list[str] = []
    stages: set[str] = set()
    values: dict[str, str] = {}
    for instruction in _instructions(dockerfile):
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
    return any(_COPY.match(instruction) for instruction in _instructions(dockerfile))


def _instructions(dockerfile: str) -> Iterator[str]:
    """Yield each instruction in one line.

    Comments and blank lines are yielded like instructions, but for those within one.
    """
    escape, directives = "\\", True
    instruction = ""
    for line in dockerfile.splitlines():
        directives = directives and bool(_DIRECTIVE.fullmatch(line))
        if directives and (match := _ESCAPE.fullmatch(line)):
            escape = match[1]
        comment = not line.strip() or line.lstrip().startswith("#")
        if instruction and comment:
            continue  # within an instruction; it goes on after that
        stripped = line.rstrip()
        if not comment and stripped.endswith(escape):
            instruction += stripped[:-1] + " "
            continue
        yield instruction + line
        instruction = ""
    yield instruction
