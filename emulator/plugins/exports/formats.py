"""The options of `emulate export`, and the page for Prometheus; what they do is loaded then."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from emulator.errors import UsageError
from emulator.runtime.plugins import Export, Page


def _do(name: str, *arguments: Any) -> str:  # noqa: ANN401  as the function has them
    module = import_module("emulator.plugins.exports.export")
    said: str = getattr(module, name)(*arguments)
    return said


LIBRARIES = {"TensorBoard": "tensorboard", "Parquet": "pyarrow"}
"""Libraries that formats need; the extra `export` installs them."""


def _require(tool: str) -> None:
    library = LIBRARIES[tool]
    if importlib.util.find_spec(library) is None:
        raise UsageError(
            f"An export for {tool} needs {library}, which is not installed here.",
            f"`pip install {library}` installs it.",
        )


def _to_service(key: str, metavar: str, about: str) -> Export:
    def require() -> None:
        from emulator.plugins.exports.services import SERVICES

        SERVICES[key].require()

    return Export(metavar, about, partial(_do, "send", key), require)


TENSORBOARD = Export(
    "DIR",
    "Event files, as a log dir has them.",
    partial(_do, "export_event_files"),
    partial(_require, "TensorBoard"),
)
CSV = Export(
    "DIR", "Steps, samples, GPUs, events and faults.", partial(_do, "export_tables", "CSV")
)
PARQUET = Export(
    "DIR",
    "The same with types and units.",
    partial(_do, "export_tables", "Parquet"),
    partial(_require, "Parquet"),
)
TRACE = Export("FILE", "The timeline for Perfetto, as JSON.", partial(_do, "export_trace"))
WANDB = _to_service("wandb", "PROJECT", "A run of Weights & Biases.")
MLFLOW = _to_service("mlflow", "EXPERIMENT", "A run of MLflow.")
OTEL = _to_service("otel", "SERVICE", "A trace for OpenTelemetry's collector.")


def _metrics(folder: Path) -> Callable[[str], tuple[bytes, str]]:
    from emulator.plugins.exports.prometheus import Metrics
    from emulator.record.reader import Record

    return Metrics(folder, Record(folder).plan).text


PROMETHEUS = Page("/metrics", _metrics)
