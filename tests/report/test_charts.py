"""Charts as data."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import emulator.report
from emulator.analysis.goodput import CAUSES
from emulator.analysis.values import NAMES, Reported, histories, last_values
from emulator.metrics.catalog import GpuShare, GpuUsage, Usage
from emulator.metrics.samples import Sample
from emulator.record.timeline import all_states
from emulator.report import page
from emulator.report.charts import (
    POINTS,
    Axis,
    Mark,
    line_style,
    line_trace,
    marked,
    short,
    stretched,
    summarised,
    thinned,
)
from emulator.report.curves import gpu_panels, no_gpus, steps_over_time, task_panels, values_of
from emulator.report.data import Facts
from emulator.report.timeline_chart import colour, timeline
from tests.histories import (
    Told,
    began_again,
    ended,
    fault,
    happened,
    in_time,
    job,
    phase,
    restart,
    step,
    steps_of,
)
from tests.histories import timeline as replay
from tests.report.runs import facts_of, preempted

STYLE = Path(emulator.report.__file__).parent / "templates" / "style.css"
LIGHT, _, DARK = STYLE.read_text().partition("@media (prefers-color-scheme: dark)")


def areas_of(facts: Facts) -> Any:
    """Return the trace with the areas of faults."""
    (areas,) = [trace for trace in timeline(facts)["data"] if trace["name"] == "faults"]
    return areas


def paused(until: float, *more: Told) -> Facts:
    """Return the facts of a run in which worker-0 was paused at 5 s, and what else happened."""
    stages = [fault(5, "worker-0", stage, "pause") for stage in ("triggered", "applied")]
    events = [happened(0, "run"), *began_again(0, "worker-0"), *stages]
    events += [fault(until, "worker-0", "healed", "pause"), *more]
    return facts_of(events, extra="faults: [{pause: worker-0, at: 3s, for: 1s}]\n")


def test_a_fault_can_be_hit_if_it_has_no_duration_and_is_shaded_where_there_is_no_curve() -> None:
    facts = paused(5, step(6, "worker-0", 1), step(7, "worker-0", 2), job(1000))
    assert areas_of(facts)["width"] == [5]
    layout = timeline(paused(7, job(10)))["layout"]
    assert "yaxis" not in layout
    (area,) = [shape for shape in layout["shapes"] if shape["type"] == "rect"]
    assert (area["x0"], area["x1"]) == (5, 7)


def test_the_curve_ends_with_the_run_and_has_no_areas_without_faults() -> None:
    for end, last in ((30.25, 30.25), (30.2, 29.75)):  # the middles of bins of half a second
        told = [happened(0, "run"), *steps_of("worker-0", {29: 1, 30: 2}), job(end)]
        curve, *lanes = timeline(facts_of(told, extra=""))["data"]
        assert {one["name"] for one in lanes} <= {*CAUSES}
        assert (curve["name"], curve["x"][-1]) == ("job", last)


def test_the_jobs_lane_has_the_cause_of_each_moment_and_repeated_steps_are_grey() -> None:
    told = [happened(0, "run"), *began_again(0, "worker-0"), *steps_of("worker-0", {2: 1, 8: 60})]
    told += [ended(9, "worker-0", 1), restart(9, "worker-0"), *began_again(10, "worker-0")]
    told += [*steps_of("worker-0", {12: 1, 18: 60, 20: 80}), ended(21, "worker-0", 0), job(21)]
    facts = facts_of(told, "{worker: 1}", "restart: {policy: on-failure}\n")
    chart = timeline(facts)
    assert chart["layout"]["yaxis2"]["ticktext"] == ["job", "worker-0"]
    lane = [one for one in chart["data"] if one["type"] == "bar" and 0 in one["y"]]
    spans = sorted(
        (b, x, one["name"]) for one in lane for b, x in zip(one["base"], one["x"], strict=True)
    )
    assert sum(length for _, length, _ in spans) == pytest.approx(21)
    assert {"startup", "productive", "recovery", "wasted"} <= {name for *_, name in spans}
    rates = [(one["name"], one["x"]) for one in chart["data"] if "yaxis" not in one]
    # First what the exit cut off, after the last step, then the steps that were made again.
    assert [name for name, _ in rates] == ["job", "repeated", "job", "repeated", "job"]
    assert all(one[-1] == after[0] for (_, one), (_, after) in pairwise(rates))  # without a gap
    assert rates[3][1][0] == pytest.approx(12, abs=0.5)
    assert rates[3][1][-1] == pytest.approx(20, abs=0.5)  # when it is first further than before
    exits = [one for one in chart["data"] if one.get("mode") == "markers"]
    assert {one["name"]: one["marker"]["size"] for one in exits} == {
        "failed": [7],
        "succeeded": [9],
    }
    steps = steps_over_time(facts)
    assert steps is not None
    assert lines(steps)["worker-0"] == [
        *((2, 1), (8, 60), (10, None), (12, 1), (18, 60), (20, 80)),
    ]
    assert steps_over_time(facts_of([happened(0, "run"), job(1)], extra="")) is None


def test_a_fault_that_can_be_clicked_on_has_its_stages_in_order() -> None:
    (fault_,) = timeline(facts_of(preempted()))["faults"]
    assert fault_["title"] == "0: preempt worker-1"
    stages = [("triggered", 7), ("applied", 9), ("restored", 13), ("first step", 14)]
    assert [tuple(one) for one in fault_["stages"]] == [*stages, ("caught up", 14)]
    assert (fault_["range"][0] < 7, fault_["range"][1] > 14) == (True, True)


def test_every_colour_that_a_chart_names_is_defined_for_light_and_dark() -> None:
    kinds = {"pause": 5, "throttle": 6}
    events = [happened(0, "run"), *began_again(0, "worker-0", "worker-1")]
    for number, what in enumerate(("startup", "data", "compile", "restore", "eval")):
        events += phase(2 + number, 2.5 + number, "worker-0", what)
    for kind, when in kinds.items():
        events += [fault(when, "worker-1", stage, kind) for stage in ("triggered", "applied")]
    drawn = [timeline(facts_of(preempted())), timeline(facts_of([*events, job(30)]))]
    drawn += [panel.chart for panel in task_panels(SAMPLED)]
    # All numbers are finite: others are no JSON.
    named = set(re.findall(r'"(--[a-z0-9-]+)"', json.dumps(drawn, allow_nan=False)))
    assert len(named) > 15
    assert {name for name in named if f"{name}:" not in LIGHT} == set()
    missing = {name for name in named if f"{name}:" not in DARK.split("* {")[0]}
    assert missing - {"--font"} == set()


def lab(colour: str) -> tuple[float, float, float]:
    """Return an sRGB colour in CIELAB, for the white of D65."""
    shares = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    r, g, b = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in shares)
    xyz = (
        (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505,
        0.2126 * r + 0.7152 * g + 0.0722 * b,
        (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089,
    )
    x, y, z = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("names", [CAUSES, all_states()], ids=["causes", "states"])
def test_colours_that_stand_side_by_side_differ(scheme: str, names: Sequence[str]) -> None:
    """By 20 units of CIELAB: a difference of 2 can just be seen."""
    found = re.findall(r"(--[a-z-]+): (#[0-9a-f]{6})", LIGHT if scheme == "light" else DARK)
    colours = {name: lab(dict(found)[colour(name)]) for name in names}
    near = [
        (one, two)
        for one, two in combinations(names, 2)
        if colours[one] != colours[two] and math.dist(colours[one], colours[two]) < 20
    ]
    assert near == []
    # States that are told apart by their names share one: all by which a task is impaired.
    assert len(set(colours.values())) == len({colour(name) for name in names})


def test_what_a_program_prints_is_no_html_in_a_hover() -> None:
    events = [*preempted(), *phase(15, 16, "worker-0", "<img src=x>")]
    assert "<img" not in json.dumps(timeline(facts_of(events)))


@given(st.lists(st.one_of(st.none(), st.floats(0, 1e6)), max_size=5000))
def test_thinning_keeps_peaks_order_and_the_limit(values: list[float | None]) -> None:
    kept = thinned([(float(n), value) for n, value in enumerate(values)])
    assert len(kept) <= POINTS
    times = [t for t, _ in kept]
    assert times == sorted(times)
    known, shown = ([y for y in all_ if y is not None] for all_ in (values, dict(kept).values()))
    if known:
        assert (min(shown), max(shown)) == (min(known), max(known))
    assert (None in values) == (None in [value for _, value in kept])


def test_a_gap_in_a_long_line_stays_one() -> None:
    points = [(float(n), None if 1990 <= n < 2020 else 1.0) for n in range(5000)]
    gaps = [t for t, value in thinned(points) if value is None]
    assert gaps == [1999, 2015, 2031]  # at the ends of stretches of 16
    assert thinned(points[:POINTS]) == points[:POINTS]


def test_few_points_have_marks_and_each_of_32_lines_its_style() -> None:
    for count, marks in ((29, True), (30, False)):
        points: list[tuple[float, float | None]] = [(n, 1.0) for n in range(count)] + [(99, None)]
        trace = line_trace("a<b", points, line_style(0), "ms")
        assert ("marker" in trace, trace["mode"]) == (marks, "lines+markers" if marks else "lines")
        assert trace["hovertemplate"] == "a&lt;b: %{y:.4~g} ms at %{x:.1f} s<extra></extra>"
    styles = [tuple(line_style(number).values()) for number in range(33)]
    assert styles[:2] == [("--series-1", "solid", 2.6), ("--series-2", "dash", 1.6)]
    assert styles[8] == ("--series-1", "dash", 1.6)
    assert (styles[11], styles[32]) == (("--series-4", "solid", 2.6), styles[0])
    assert len(set(styles)) == 32


def test_numbers_of_a_chart_have_six_digits() -> None:
    numbers = (1.23456789, 1234567.8, 1234567, None)
    assert [short(one) for one in numbers] == [1.23457, 1234570, 1234567, None]


def test_a_long_line_has_the_lowest_and_the_highest_point_of_each_stretch() -> None:
    points = [(float(n), y) for n, y in enumerate((1.0, 3.0, 2.0, 5.0, None, 4.0, 6.0, 6.0))]
    kept = thinned(points, 6)  # of four points each
    assert kept == [(0, 1), (3, 5), (5, 4), (7, 6), (7, None)]
    assert thinned(points, 8) == points
    assert thinned(points, 7)[0] == (0, 1)
    assert len(thinned(points, 7)) <= 7
    on_axis = stretched(points, Axis("steps", 0.0, 8.0), 4)  # two stretches of four
    assert on_axis == [(1, 1), (3, 5), (5, 4), (7, 6)]
    later = stretched([(x + 8, y and -y) for x, y in points], Axis("steps", 8.0, 16.0), 4)
    assert later == [(9, -1), (11, -5), (13, -4), (15, -6)]
    assert stretched(points, Axis("steps", 0.0, 8.0), 8) == points
    gone = stretched([(float(n), None) for n in range(9)], Axis("steps", 4.0, 4.0), 4)
    assert [y for _, y in gone] == [None] * 4
    # In 24 stretches, 777 of 1000 is in the nineteenth.
    kept = stretched([(t, 9.0 if t == 777 else 1.0) for t in range(1000)], Axis("seconds", 0, 1000))
    assert [y for _, y in kept] == [9 if n == 37 else 1 for n in range(48)]
    assert [t for t, _ in kept] == pytest.approx([(n + 0.5) * 1000 / 48 for n in range(48)])


def test_the_mean_between_points_is_interpolated_and_lasts_a_step_beyond_the_ends() -> None:
    lines: list[list[tuple[float, float | None]]] = [[(8, 0), (12, 8)], [(9, 10), (10, 20)]]
    found = [(x, y and (y.mean, y.low, y.high)) for x, y in summarised(lines)]
    # The second line lasts from 8 to 11.
    assert found == [(8, (5, 0, 10)), (9, (6, 2, 10)), (10, (12, 4, 20)), (12, (8, 8, 8))]
    coarse = [(x, y and (y.mean, y.low, y.high)) for x, y in summarised(lines, 2)]
    assert coarse == [(9, (6, 0, 20)), (11, (13, 6, 20))]
    assert summarised([[(5.0, None)], [(6.0, None)]]) == [(5, None)]
    # There is nothing of a line beside a gap.
    lines = [[(0, 2), (1, 2), (1.5, None), (4, 2), (5, 2), (5.5, None)], [(2, 6), (6, 6)]]
    means = {x: y and y.mean for x, y in summarised(lines)}
    assert means == {0: 4, 1: 4, 1.5: 6, 2: 6, 4: 4, 5: 4, 5.5: 6, 6: 6}


def test_labels_stand_beside_their_fault_where_there_is_room() -> None:
    marks = [Mark(0.0), *(Mark(at, None, "kill", "a") for at in (59.0, 60.0, 60.5, 60.51))]
    drawn = marked(marks, 100.0)
    assert [(one["x"], one["xanchor"], one["text"]) for one in drawn["annotations"]] == [
        *((59, "left", "kill a"), (60, "right", "kill 2 tasks"), (60.51, "right", "kill a")),
    ]
    assert [one["type"] for one in drawn["shapes"]] == ["line"] * 4
    assert [one["type"] for one in marked([Mark(1, 2)], 9)["shapes"]] == ["rect", "line"]
    assert [one["type"] for one in marked([Mark(1, 2)], 9, bands=False)["shapes"]] == ["line"]


@pytest.mark.parametrize(
    ("tasks", "height", "size"),
    [(1, 84, 12), (6, 234, 12), (7, 208, 12), (14, 362, 12), (15, 309, 10)],
)
def test_lanes_are_lower_where_there_are_many(tasks: int, height: int, size: int) -> None:
    chart = timeline(facts_of([happened(0, "run"), job(1)], f"{{worker: {tasks}}}", extra=""))
    assert (chart["height"], chart["layout"]["yaxis2"]["tickfont"]["size"]) == (height, size)
    assert chart["layout"]["yaxis2"]["domain"] == [0, 1]


@pytest.mark.parametrize(
    ("faults", "named", "marks"), [(8, 8, 8), (9, 9, 9), (30, 9, 30), (31, 9, 0)]
)
def test_the_area_of_many_faults_names_some_and_has_no_lines_of_each(
    faults: int, named: int, marks: int
) -> None:
    events = [happened(0, "run"), *began_again(0, "worker-0")]
    at = [1 + n * 0.9 for n in range(faults)]
    events += [
        fault(t + late, "worker-0", stage, "pause", id=str(n))
        for n, t in enumerate(at)
        for stage, late in (("triggered", 0), ("applied", 0), ("healed", 2))
    ]
    plan = "faults:\n" + "  - {pause: worker-0, at: 1s, for: 2s}\n" * faults
    events = in_time([*events, *steps_of("worker-0", {1.5: 1, 2.5: 9}), job(41)])
    facts = facts_of(events, "{worker: 1}", plan)
    areas = areas_of(facts)
    assert (areas["x"], areas["width"]) == ([short((3 + at[-1]) / 2)], [short(at[-1] + 1)])
    lines = areas["hovertext"][0].split("<br>")
    assert lines[0] == "<b>0: pause worker-0</b> (applied) triggered at 1.00s, restored after 2.00s"
    assert len(lines) == named
    assert (lines[-1] == f"and {faults - 8} more") == (faults > 8)
    shapes = timeline(facts)["layout"]["shapes"]
    assert [one["type"] for one in shapes] == ["line"] * marks


# --- Usage --------------------------------------------------------------------------------------


def used(cpu: float, **more: Any) -> Usage:
    return Usage(cpu=cpu, memory=2**29, memory_limit=2**30, throttled=0.0, **more)


SAMPLES = [
    Sample(1, 1, {"worker-0": used(1, cpus=2.0), "worker-1": used(1)}),
    Sample(2, 2, {"worker-0": used(2, cpus=2.0), "worker-1": used(3)}),
    Sample(3, 3, {"worker-0": used(3, cpus=2.0)}),
    Sample(4, 4, {"worker-0": used(4, cpus=2.0), "worker-1": used(0.5)}),
]
SAMPLED = facts_of(preempted(), samples=SAMPLES)


def test_what_is_measured_is_drawn_as_a_share_where_there_is_a_limit() -> None:
    found = {f"{p.title}, {p.note}": p for p in task_panels(SAMPLED)}
    (share,) = found["CPU, % of the limit"].chart["data"]
    assert (share["name"], share["y"]) == ("worker-0", [None, 50, 50, 50])
    (cores,) = found["CPU, cores"].chart["data"]
    # A gap where it was not there; after its restart nothing is known before the next sample.
    assert (cores["name"], cores["y"]) == ("worker-1", [None, 2, None, None])
    assert found["Memory, % of the limit"].chart["data"][1]["y"] == [50, 50, None, 50]
    # What the engine can't measure has no chart, and what never changes is said.
    assert not [title for title in found if title.startswith(("Network", "Disk", "Processes"))]
    assert {title: panel.always for title, panel in found.items() if panel.quiet} == {
        "CPU, % of the limit": "50 %",
        "Memory, % of the limit": "50 %",
        "Held back, % of the time, for its limit": "0 %",
    }


@pytest.mark.slow
def test_many_tasks_share_the_points_of_a_chart() -> None:
    names = [f"worker-{n}" for n in range(25)]
    samples = [Sample(t, t, dict.fromkeys(names, used(float(t)))) for t in range(2000)]
    events = [happened(0, "run"), job(2000)]
    facts = facts_of(events, "{worker: 25}", extra="", samples=samples)
    for panel in task_panels(facts):
        assert sum(len(trace["x"]) for trace in panel.chart["data"]) <= 3 * POINTS
        alone = [trace for trace in panel.chart["data"] if not trace.get("visible", True)]
        lines = {(t["line"]["color"], t["line"]["dash"]) for t in alone}
        assert len(lines) == 25  # none looks like another's


def gpus_drawn(facts: Facts) -> dict[str, dict[str, Any]]:
    """Return the lines of each chart about GPUs, by title and name."""
    return {
        panel.title: {trace["name"]: trace["y"] for trace in panel.chart["data"]}
        for panel in gpu_panels(facts)
    }


def test_each_part_of_a_divided_device_has_a_line_of_its_own() -> None:
    parts = [
        GpuUsage(0, "GPU-a", power=300.0),
        GpuUsage(0, "MIG-a", memory=2**30),
        GpuUsage(0, "MIG-b", memory=2**31),
        GpuUsage(1, "GPU-b", memory=2**32, power=100.0),
    ]
    found = gpus_drawn(facts_of(preempted(), samples=[Sample(t, t, {}, parts) for t in (1, 2)]))
    assert found["GPU power"] == {"GPU 0": [300, 300], "GPU 1": [100, 100]}
    assert found["GPU memory"] == {"GPU 0.1": [1, 1], "GPU 0.2": [2, 2], "GPU 1": [4, 4]}


def test_one_line_explains_why_there_are_no_gpus() -> None:
    sampled = [happened(0, "run"), happened(0, "sampling", why_no_gpus="no NVIDIA driver"), job(1)]
    assert no_gpus(facts_of(sampled, extra="")) == "No GPU was sampled: no NVIDIA driver"
    sampled[1] = happened(0, "sampling")
    assert no_gpus(facts_of(sampled, extra="")) == "No GPU was in use."
    assert no_gpus(facts_of(preempted())) == "The record has no data about GPUs."


def test_gpus_have_charts_by_device_and_by_task() -> None:
    shares = {"worker-0": GpuShare(memory=2**30)}
    gpus = [
        GpuUsage(n, f"GPU-{n}", utilisation=share, memory=2**31, tasks=shares)
        for n, share in enumerate((0.5, None))
    ]
    facts = facts_of(preempted(), samples=[Sample(t, t, {}, gpus) for t in (1, 2)])
    found = gpus_drawn(facts)
    assert found.keys() == {"GPU utilisation", "GPU memory", "GPU memory by task"}
    (legend,) = [one.lines for one in gpu_panels(facts) if one.title == "GPU utilisation"]
    assert legend == [*found["GPU utilisation"]] == ["GPU 0"]
    assert [*found["GPU memory by task"].values()] == [[2, 2]]
    assert no_gpus(facts) == ""


# --- What tasks report with their steps -----------------------------------------------------------

PAUSE = "faults: [{pause: worker-1, at: 5s, for: 1m}, {pause: worker-0, at: 2s, for: 1s}]\n"

TRAINED = [
    happened(0, "run"),
    *began_again(1, "worker-0", "worker-1"),
    *(fault(2, "worker-0", stage, "pause", id="1") for stage in ("triggered", "applied", "healed")),
    step(3, "worker-0", 10, loss=4.0, note="warm"),
    step(3, "worker-1", 10, loss=4.2),
    step(4, "worker-0", 20, loss=3.0, accuracy=0.5),
    step(5, "worker-0", 30, loss=math.nan),
    fault(5.5, "worker-1", "triggered", "pause"),
    fault(5.6, "worker-1", "applied", "pause"),
    ended(6, "worker-0", 1),
    restart(6, "worker-0"),
    *began_again(7, "worker-0"),
    step(9, "worker-0", 20, loss=2.9, accuracy=0.52, final_accuracy=0.9),
    job(10),
]


def lines(chart: dict[str, Any]) -> dict[str, list[tuple[float, float | None]]]:
    return {t["name"]: list(zip(t["x"], t["y"], strict=True)) for t in chart["data"]}


def test_the_values_of_each_life_of_a_task_are_kept_apart() -> None:
    found = histories(replay(TRAINED, extra=PAUSE))
    assert list(found) == ["loss", "accuracy", "final_accuracy"]
    assert found["loss"]["worker-0"] == [
        [Reported(3, 10, 4.0), Reported(4, 20, 3.0), Reported(5, 30, None)],
        [Reported(9, 20, 2.9)],
    ]
    back = histories(replay([*TRAINED[:9], step(4, "worker-0", 5, loss=5.0)], extra=PAUSE))
    assert [len(life) for life in back["loss"]["worker-0"]] == [1, 1]
    many = replay([step(1, "worker-0", 1, **{f"v{n}": n for n in range(NAMES + 2)})])
    assert list(histories(many)) == list(last_values(many)) == [f"v{n}" for n in range(NAMES)]


def test_a_value_is_drawn_by_step_and_over_time_with_a_gap_where_its_task_was_away() -> None:
    (loss, accuracy), once = values_of(facts_of(TRAINED, extra=PAUSE))
    assert (loss.name, accuracy.name) == ("loss", "accuracy")
    assert lines(loss.over_steps)["worker-0"] == [
        (10, 4.0), (20, 3.0), (30, None), (30, None), (20, 2.9)]  # fmt: skip
    assert lines(loss.over_time)["worker-0"] == [
        (3, 4.0), (4, 3.0), (5, None), (7, None), (9, 2.9)]  # fmt: skip
    assert [(o.name, o.text) for o in once] == [("final_accuracy", "0.9 at step 20 by worker-0")]
    # Faults are drawn where the job was, unless it had made no step.
    over_steps, over_time = (c["layout"] for c in (loss.over_steps, loss.over_time))
    assert [(s["type"], s["x0"]) for s in over_steps["shapes"]] == [("line", 30)]
    drawn = [(s["type"], s["x0"]) for s in over_time["shapes"]]
    assert drawn == [("rect", 2), ("rect", 5.5), ("line", 2), ("line", 5.5)]
    assert [a["text"] for a in over_steps["annotations"]] == ["pause worker-1"]


def test_where_no_number_is_reported_the_page_says_how_to_report_one() -> None:
    html = page.render(facts_of([happened(0, "run"), step(3, "worker-0", 1, note="x"), job(5)]))
    assert "No task reported a loss, an accuracy or another number with its steps" in html
    assert "Reported once" not in html


def test_what_many_tasks_report_once_is_said_together_and_a_long_list_is_cut() -> None:
    names = [f"worker-{n}" for n in range(6)]
    begun = [happened(0, "run"), *began_again(0, *names)]

    def once(*values: float) -> str:
        told = zip(names, values, strict=False)
        events = [*begun, *(step(3, name, 7, accuracy=value) for name, value in told), job(9)]
        (_, (one,)) = values_of(facts_of(events, "{worker: 6}", extra=""))
        return one.text

    assert once(0.5, 0.5, 0.5) == "0.5 at step 7 by worker-0, worker-1, worker-2"
    assert once(0.5, 0.5, 0.5, 0.5) == "0.5 at step 7 by worker-0 .. worker-3 (4)"
    each = [f"0.{n} at step 7 by worker-{n - 1}" for n in range(1, 6)]
    assert once(0.1, 0.2, 0.3, 0.4) == "; ".join(each[:4])
    assert once(0.1, 0.2, 0.3, 0.4, 0.5) == "; ".join([*each[:4], "…"])
    assert once(0.5, math.nan) == "0.5 at step 7 by worker-0; no number at step 7 by worker-1"


def test_the_axis_of_steps_begins_at_nought_unless_the_first_is_far_from_it() -> None:
    for first, last, begin in ((10, 100, 0), (11, 100, 11), (0, 5, 0), (5, 5, 5)):
        told = [step(t, "worker-0", n, loss=1.0) for t, n in ((1, first), (2, last))]
        facts = facts_of([happened(0, "run"), *told, job(3)], extra="")
        ((loss,), _) = values_of(facts)
        range_ = loss.over_steps["layout"]["xaxis"]["range"]
        assert range_ == [begin, max(last, first + 1)]
