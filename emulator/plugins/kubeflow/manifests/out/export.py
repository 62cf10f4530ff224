"""Write a scenario as a file of another tool."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from emulator.errors import UsageError
from emulator.plugins.kubeflow.manifests.out.compose import COMPOSE
from emulator.plugins.kubeflow.manifests.out.deployment import Documents, ExportFormat, deployment
from emulator.plugins.kubeflow.manifests.out.helm_values import HELM_VALUES
from emulator.plugins.kubeflow.manifests.out.kubernetes import KUBERNETES
from emulator.plugins.kubeflow.manifests.out.trainjob import TRAINJOB
from emulator.scenario.dump import dump, remarks
from emulator.scenario.extension import added
from emulator.scenario.schema import Scenario
from emulator.validation.similar import suggestion

HEAD = "# Written by `emulate export"
"""The first characters of every file that an export writes."""
_ADDED: list[ExportFormat] = [*chain.from_iterable(added("targets"))]
TARGETS: Mapping[str, ExportFormat] = {
    one.name: one for one in (*_ADDED, TRAINJOB, COMPOSE, KUBERNETES, HELM_VALUES)
}
"""Every format by the value of `--to`."""

IN_CLUSTER = "kubernetes-job"
"""The value of `--to` for a Job that runs the emulator itself; `engines/kubernetes/job.py` writes
it."""


@dataclass(frozen=True)
class Written:
    """A scenario as a file of another tool."""

    text: str
    notes: tuple[str, ...]
    """What works differently there, or is missing, and what to do about it."""


def target(name: str, scenario: Scenario) -> ExportFormat:
    """Return the format of that name. Raises UsageError if it can't have such a scenario."""
    if name not in TARGETS:
        hint = suggestion(name, (*TARGETS, IN_CLUSTER), "Formats")
        raise UsageError(f"There is no format {name}.", hint)
    found = TARGETS[name]
    if found.frameworks and scenario.framework not in found.frameworks:
        others = [one.name for one in TARGETS.values() if scenario.framework in one.frameworks]
        others += [one.name for one in TARGETS.values() if not one.frameworks]
        raise UsageError(
            f"--to {found.name} is for framework: {found.frameworks[0]}, and the scenario has "
            f"framework: {scenario.framework}.",
            f"Formats for it: {', '.join(others)}.",
        )
    return found


def export(
    scenario: Scenario,
    to: ExportFormat,
    *,
    destination: Path,
    images: Mapping[str, str] | None = None,
    file: str = "FILE",
) -> Written:
    """Return a scenario as a file of another tool.

    Paths in it are relative to `destination`, its folder. `file` is its name, for its head.
    `images` are references to use instead of images, by role or by the image's name.

    Raises UsageError if the format can't have the scenario.
    """
    draft = to.draft(deployment(scenario, to, images=images, path=_relative_to(destination)))
    notes = (*draft.notes, *_left_out(scenario, to))
    usage = [line.replace("FILE", file) for line in draft.usage]
    has_more = bool(scenario.faults) or "expect" in scenario.model_fields_set
    left_out = ["Faults and expectations are not in it: keep the scenario."] if has_more else []
    text = head(scenario, to.name, to.about, usage, left_out, notes)
    return Written(text + text_of(draft.documents), notes)


def _left_out(scenario: Scenario, to: ExportFormat) -> Iterator[str]:
    """Yield a note of what only another system does, whose rules the job follows."""
    if scenario.operator is not None and not to.has_operator and scenario.operator.own_keys:
        left_out = ", ".join(f"operator.{key}" for key in scenario.operator.own_keys)
        yield f"left out, as only the training operator knows them: {left_out}"
    if scenario.jobset is not None:
        yield "left out: the rules of `jobset`; those of the manifest it is from say the same"


def _relative_to(folder: Path) -> Callable[[Path], str]:
    def written(path: Path) -> str:
        relative = os.path.relpath(path, folder)
        return relative if relative.startswith("..") else f"./{relative}"

    return written


# --- The text -------------------------------------------------------------------------------------


def text_of(documents: Documents) -> str:
    """Return documents as YAML."""
    return "---\n".join(dump(one) for one in documents)


def head(
    scenario: Scenario,
    to: str,
    about: str,
    usage: Sequence[str],
    left_out: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> str:
    """Return the comments at the head of a file: how it is used, and what is to be known."""
    lines = [f"{HEAD} {scenario.name} --to {to}`: {about}."]
    lines += [f"#     {line}" for line in usage]
    lines += [f"# {line}" for line in left_out]
    return "\n".join([*lines, *remarks(notes)]) + "\n"
