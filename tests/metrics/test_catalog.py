"""The catalogue of metrics: what an entry refers to is there, and names are unique."""

from __future__ import annotations

from collections import Counter

import pytest

from emulator.metrics.catalog import (
    CHARTS,
    GPU,
    GPU_SHARE,
    RATES,
    USAGE,
    Metric,
)

LIMITS = {"cpus", "memory_limit"}
KEYS = {metric.key for metric in USAGE}


def test_each_rate_is_made_of_something_that_is_measured() -> None:
    assert {metric.of for metric in RATES} | LIMITS | {"measured"} == KEYS
    assert {metric.limit for metric in RATES} - {""} == LIMITS


def test_each_chart_shows_rates_and_asks_for_limits() -> None:
    assert {key for chart in CHARTS for key in chart.of} == {metric.key for metric in RATES}
    assert {chart.limit for chart in CHARTS} | {chart.unlimited for chart in CHARTS} == {
        *LIMITS,
        "",
    }


@pytest.mark.parametrize("metrics", [USAGE, RATES, GPU, GPU_SHARE])
@pytest.mark.parametrize("name", ["prometheus", "tensorboard", "column"])
def test_no_two_metrics_have_one_name(metrics: tuple[Metric, ...], name: str) -> None:
    names = Counter(getattr(metric, name) for metric in metrics)
    assert [name for name, count in names.items() if name and count > 1] == []


def test_types_are_those_of_the_fields() -> None:
    types = {metric.key: metric.type for metric in (*USAGE, *GPU)}
    assert (types["cpu"], types["received"]) == ("float", "int")
    assert (types["uuid"], types["lost"], types["xid"]) == ("text", "bool", "int")
