"""A run as a trace of OpenTelemetry: the run, its tasks and their phases, and the faults.

Ids follow from the run id, so that a collector that gets a run twice has it once.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from emulator.errors import UsageError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

    from emulator.plugins.exports.services import Exported

Attributes = dict[str, str | float | int | bool]

BATCH = 512
"""Spans of a request."""


def send(run: Exported, service: str) -> str:
    """Send a run to the collector, as a trace of a service. Raises UsageError if it takes none."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import SpanExportResult

    spans = spans_of(run, service)
    exporter = OTLPSpanExporter()
    log = logging.getLogger("opentelemetry")
    level = log.level
    log.setLevel(logging.CRITICAL + 1)  # it tells of each try; the error below is enough
    try:
        for start in range(0, len(spans), BATCH):
            if exporter.export(spans[start : start + BATCH]) is not SpanExportResult.SUCCESS:
                raise UsageError(
                    "The OpenTelemetry collector did not take the run.",
                    "OTEL_EXPORTER_OTLP_ENDPOINT says where it is; default: http://localhost:4318.",
                )
    finally:
        log.setLevel(level)
        exporter.shutdown()  # type: ignore[no-untyped-call]
    return f"{len(spans)} spans for OpenTelemetry, as the service {service}"


def spans_of(run: Exported, service: str) -> Sequence[ReadableSpan]:
    """Return the spans of a run, in the order of their begin; the first is the run itself."""
    spans = _Spans(run, service)
    analysis, timeline = run.analysis, run.record.timeline
    has_failed = analysis.outcome != "succeeded"
    reason = (analysis.reason or analysis.outcome) if has_failed else None
    whole = spans.add(run.run_id, 0.0, timeline.end, {**run.about, **run.figures}, failed=reason)
    for task in timeline.tasks.values():
        for number, (begin, end, exit_code, cause) in enumerate(_lives(run, task.name)):
            attributes: Attributes = {"emulator.task": task.name, "emulator.incarnation": number}
            attributes |= {} if exit_code is None else {"emulator.exit_code": exit_code}
            attributes |= {"emulator.fault": cause} if cause else {}
            failed = f"exit code {exit_code}" if exit_code else None
            life = spans.add(task.name, begin, end, attributes, whole, failed)
            for one in (*task.states(timeline.end), *task.phases(timeline.end)):
                if begin <= one.begin < end and one.name != "running":
                    about: Attributes = {"emulator.task": task.name}
                    spans.add(one.name, one.begin, min(one.end, end), about, life)
    for fault in analysis.faults:
        if (begin_of := fault.triggered) is not None:
            lasted = fault.restored_after or fault.applied_after or 0.0
            known: Attributes = {
                f"emulator.fault.{key}": value
                for key, value in vars(fault).items()
                if isinstance(value, str | int | float) and value != ""
            }
            name = f"fault: {fault.kind} {fault.target}"
            spans.add(name, begin_of, begin_of + lasted, known, whole)
    return spans.made


class _Spans:
    """The spans of one run, as they are made."""

    def __init__(self, run: Exported, service: str) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        self.made: list[ReadableSpan] = []
        self._run = run
        self._resource = Resource({"service.name": service})
        self._scope = InstrumentationScope("emulator")

    def add(
        self,
        name: str,
        begin: float,
        end: float,
        attributes: Attributes,
        parent: ReadableSpan | None = None,
        failed: str | None = None,
    ) -> ReadableSpan:
        """Make a span from `begin` to `end`, in seconds of the run; `failed`: why it failed."""
        from opentelemetry import trace
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace.status import Status, StatusCode

        context = trace.SpanContext(
            _number(self._run.run_id, 16),
            _number(f"{self._run.run_id}/{len(self.made)}", 8),
            is_remote=False,
            trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED),
        )
        span = ReadableSpan(
            name,
            context,
            None if parent is None else parent.get_span_context(),
            self._resource,
            attributes,
            status=Status() if failed is None else Status(StatusCode.ERROR, failed),
            start_time=round((self._run.began + begin) * 1e9),
            end_time=round((self._run.began + max(begin, end)) * 1e9),
            instrumentation_scope=self._scope,
        )
        self.made.append(span)
        return span


def _lives(run: Exported, name: str) -> Iterator[tuple[float, float, int | None, str]]:
    """Yield begin, end, exit code and fault of each incarnation of a task."""
    timeline = run.record.timeline
    for one in timeline.tasks[name].incarnations:
        if one.start is None:
            continue
        end = timeline.end if one.exit is None else one.exit.t
        code, fault = (None, "") if one.exit is None else (one.exit.exit_code, one.exit.fault or "")
        yield one.begin, end, code, fault


def _number(text: str, size: int) -> int:
    """Return an id of so many bytes, which is not 0."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:size], "big") or 1
