"""Exports to services that keep experiments and traces, through their own clients.

Where a service is, and who is asking, is what its client makes of its own environment variables:
WANDB_MODE and WANDB_API_KEY, MLFLOW_TRACKING_URI, OTEL_EXPORTER_OTLP_ENDPOINT. So there is no
option for it, and what works for the training works for the export.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

from emulator.analysis.analyse import Analysis
from emulator.analysis.figures import FIGURES
from emulator.errors import UsageError
from emulator.plugins.exports.event_files import Moment, moments
from emulator.record.reader import Record

FILES = ("scenario.yaml", "summary.json", "report.html")
"""What a service that keeps files gets, if the run has it."""
OURS = "emulator.run_id"
"""The tag or attribute by which an export is found again."""


@dataclass(frozen=True)
class Exported:
    """A run as the services get it."""

    record: Record
    analysis: Analysis

    @property
    def run_id(self) -> str:
        """The name of the run."""
        return self.record.run_id

    @cached_property
    def began(self) -> float:
        """Seconds since 1970."""
        first = next(iter(self.record.in_time_order), None)
        return 0.0 if first is None else first.wall - first.t

    @property
    def about(self) -> dict[str, str]:
        """What identifies the run."""
        plan = self.record.plan
        verdict = str((self.record.summary or {}).get("verdict", "unknown"))
        return {
            OURS: self.run_id,
            "emulator.scenario": plan.scenario.name,
            "emulator.engine": plan.engine,
            "emulator.variant": plan.variant,
            "emulator.outcome": self.analysis.outcome,
            "emulator.verdict": verdict,
        }

    @property
    def config(self) -> dict[str, Any]:
        """The scenario as plain data, without defaults; the number of replicas is always there."""
        scenario = self.record.plan.scenario
        data = scenario.model_dump(mode="json", exclude_defaults=True)
        for name, role in scenario.cluster.items():
            data["cluster"][name]["replicas"] = role.replicas
        return data

    @property
    def figures(self) -> dict[str, float]:
        """The known figures of the job; those that are infinite are left out."""
        values = {key: figure.value_in(self.analysis) for key, figure in FIGURES.items()}
        known = {key: v for key, v in values.items() if v is not None and math.isfinite(v)}
        return {key: int(v) if isinstance(v, int) else v for key, v in known.items()}

    @cached_property
    def moments(self) -> Mapping[str, list[Moment]]:
        """Scalars over time, of the job and of each task, as TensorBoard's export has them."""
        return moments(self.record.timeline, self.record.samples, self.analysis.duration)


def flat(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield the values of nested mappings by their dotted keys."""
    for key, value in data.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


@dataclass(frozen=True)
class Service:
    """A service, and how it gets a run."""

    title: str
    library: str
    """The module that its client is imported from."""
    extra: str
    """The extra of this package that installs the client."""
    module: str
    """Has `send(run, name) -> str`, which says in one line what it has written, and where."""

    def require(self) -> None:
        """Raise UsageError without the client."""
        if not _is_installed(self.library):
            package = self.library.partition(".")[0]
            raise UsageError(
                f"An export for {self.title} needs {package}, which is not installed here.",
                f"Install the emulator with its extra `{self.extra}`.",
            )

    @property
    def send(self) -> Callable[[Exported, str], str]:
        """The function that sends a run."""
        send: Callable[[Exported, str], str] = import_module(self.module).send
        return send


SERVICES = {
    "wandb": Service("Weights & Biases", "wandb", "wandb", "emulator.plugins.exports.to_wandb"),
    "mlflow": Service("MLflow", "mlflow", "mlflow", "emulator.plugins.exports.to_mlflow"),
    "otel": Service(
        "OpenTelemetry",
        "opentelemetry.exporter.otlp.proto.http",
        "otel",
        "emulator.plugins.exports.to_otel",
    ),
}
"""By the option of `emulate export`."""


def _is_installed(library: str) -> bool:
    try:
        return importlib.util.find_spec(library) is not None
    except ModuleNotFoundError:  # not even its parent
        return False
