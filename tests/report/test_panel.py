"""The lines of the live view, for terminals of every size; a real one is in test_live_view.py."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

import pytest
from rich.cells import cell_len
from rich.text import Text

from emulator.analysis.run_state import COURSE, RunState
from emulator.metrics.catalog import GpuShare, GpuUsage, Usage
from emulator.metrics.samples import Sample
from emulator.report import panel
from emulator.report.live import as_html
from tests.histories import (
    BEGAN,
    Told,
    a_plan,
    began_again,
    ended,
    fault,
    happened,
    history,
    job,
    restart,
    step,
)

WIDTHS, HEIGHTS = (1, 10, 20, 39, 60, 79, 200), (1, 2, 3, 4, 7, 12, 60)


def of(events: Sequence[Told], workers: int = 2, extra: str = "") -> RunState:
    live = RunState(a_plan(f"{{worker: {workers}}}", extra))
    for entry in history(events):
        live.entry(entry)
    return live


def shown(live: RunState, width: int = 100, height: int = sys.maxsize, **how: bool) -> list[str]:
    return [text.plain for text in panel.lines(live, width=width, height=height, **how)]


def started(workers: int) -> list[Told]:
    names = [f"worker-{n}" for n in range(workers)]
    return [happened(0, "run"), *began_again(1, *names), happened(2, "all-running")]


def usage(live: RunState, gpus: Sequence[GpuUsage] = (), limit: float | None = 2.0) -> RunState:
    """Sample twice, a second apart: half a core and 300 MiB each."""
    for n in range(2):
        used = Usage(cpu=n / 2, memory=300 * 2**20, cpus=limit, memory_limit=600 * 2**20)
        live.sample(Sample(10.0 + n, BEGAN + n, dict.fromkeys(live.tasks, used), gpus))
    return live


def test_gpus_have_a_column_and_a_line_each() -> None:
    share = {"worker-0": GpuShare(2**30, 0.4)}
    both = {**share, "worker-1": GpuShare(2**29)}
    one = GpuUsage(0, "GPU-a", "H200", 0.93, 100 * 2**20, 200 * 2**20, 212.4, 61.0, tasks=both)
    two = GpuUsage(1, "GPU-b", "H200", lost=True, tasks=share)
    bad = GpuUsage(2, "GPU-c", "H200", ecc_errors=3, xid=79)
    lines = shown(usage(of(started(2)), [one, two, bad]))
    assert lines[1].split()[-1] == "GPU"
    assert lines[2].endswith(" 50%  2: 40% 2.0 GiB")
    assert lines[3].endswith(" 50%         512 MiB")
    assert lines[-3] == "GPU 0 H200  93% busy  100 MiB of 200 MiB  212 W  61 °C"
    assert lines[-2] == "GPU 1 H200  lost: it no longer answers"
    assert lines[-1] == "GPU 2 H200  3 ECC errors  Xid 79"


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("height", HEIGHTS)
def test_it_fits_everywhere(width: int, height: int) -> None:
    faults = "faults: [{preempt: 'worker-*', at: {step: 90}}]\nexpect: {final_step: 100}\n"
    events = [*started(5), *(step(5 + n, "worker-0", 10 * n, loss=n) for n in range(6))]
    events += [ended(12, "worker-4", 1), fault(12, "worker-1", "triggered")]
    live = usage(of(events, 5, faults), [GpuUsage(0, "GPU-a", "名前", 0.5)])
    for ascii_only in (False, True):
        lines = shown(live, width, height, ascii_only=ascii_only)
        assert 1 <= len(lines) <= height
        assert all(cell_len(line) <= width for line in lines)
    if height > 1 and width > 30:
        assert any(re.search(r"\b50\b.*\b50%", line) for line in lines)  # the progress is there


def test_progress_shows_all_that_is_known() -> None:
    target = "expect: {final_step: 100}\n"
    assert shown(of(started(2), extra=target))[-1] == "no step yet"
    events = [*started(2), *(step(5 + n, "worker-0", 10 * n) for n in range(6))]
    plain = "step 50  10.0 steps/s  80.0 examples/s  no final step is expected"
    assert shown(of(events, extra="metrics: {examples_per_step: 8}\n"))[-1] == plain
    assert re.fullmatch(r"step 50 of 100 (━+)(─+) 50%  10.0 steps/s  about 5s left",
                        shown(of(events, extra=target))[-1])  # fmt: skip
    line = shown(of(events, extra=target), ascii_only=True)[-1]
    assert re.search(r" #+-+ ", line)
    assert line.isascii()
    failed = [*events, ended(11, "worker-0", 1)]
    assert shown(of(failed, extra=target))[-1].endswith("no estimate: recovering")
    assert shown(of(failed, extra=target), 40)[-1] == "50/100  50%  recovering  0/s"
    beyond = [*events, step(11, "worker-0", 250)]
    waiting = "finishing: waiting for worker-0, worker-1 to exit (0s)  step 250 of 100"
    assert shown(of(beyond, extra=target))[-1] == waiting
    none = [*started(1), step(5, "worker-0", 0), ended(6, "worker-0", 0), job(6)]
    assert "step 0 of 0 " in shown(of(none, 1, "expect: {final_step: 0}\n"))[-1]
    over = [*beyond, ended(12, "worker-0", 0), ended(12, "worker-1", 0)]
    assert shown(of(over, extra=target))[-1].endswith(" 100%  0 steps/s")


def test_active_faults_are_first_then_past_ones_then_scheduled_ones() -> None:
    text = "faults:\n" + "".join(f"  - {{preempt: worker-1, at: {n}s}}\n" for n in range(4))
    events = [
        *started(2),
        fault(3, "worker-1", "triggered"),
        fault(5, "worker-1", "healed"),
        fault(6, "worker-1", "skipped", id="1", reason="gone"),
        fault(7, "worker-1", "applied", id="2"),
    ]
    live = of(events, extra=text)
    live.tick(9)
    active = "fault 2: preempt worker-1  applied 2s ago"
    assert shown(live)[-4:] == [
        active,
        "fault 1: preempt worker-1  skipped 3s ago: gone",
        "fault 0: preempt worker-1  healed 4s ago, after 2.00s",
        "fault 3: preempt worker-1  waits for time 3s",
    ]
    assert shown(live, height=7)[-2:] == [active, "and 3 more faults"]
    assert shown(live, 30)[-4] == "2: applied 2s ago  preempt wo…"
    assert "running (preempt)" in shown(live)[3]


# --- Loss and accuracy --------------------------------------------------------------------------


def test_reported_values_have_a_line_with_their_course() -> None:
    events = [*started(2), *(step(5 + n, "worker-0", n, lr=0.1, loss=8 - n) for n in range(8))]
    live = of([*events, step(12.5, "worker-1", 7, loss=99, accuracy=0.95333)])
    line = "loss 1 █▇▆▅▄▃▂▁  accuracy 0.953  lr 0.1 ▁▁▁▁▁▁▁▁  at step 7 of worker-0"
    assert shown(live)[-1] == line
    assert shown(live, ascii_only=True)[-1].isascii()
    assert not any("loss" in line for line in shown(live, height=5))


def test_what_is_kept_of_a_value_does_not_grow_with_the_run() -> None:
    live = of(started(2))
    for entry in history([step(5 + n, "worker-0", n, loss=n) for n in range(5000)]):
        live.entry(entry)
    points = live.values["loss"].points
    assert COURSE <= len(points) < 2 * COURSE
    assert points == sorted(points)
    assert points[-1] > 4500
    course = shown(live)[-1].split()[2]
    assert len(course) <= COURSE
    assert (course[0], course[-1]) == ("▁", "█")


def test_a_notebook_shows_the_style_of_a_text() -> None:
    html = as_html([Text("a<b", style="bold")])
    assert '<span style="font-weight: bold">a&lt;b</span>' in html


def test_the_bar_has_at_most_forty_cells_and_at_least_eight_or_none() -> None:
    live = of([*started(2), *(step(5 + n, "worker-0", 10 * n) for n in range(6))],
              extra="expect: {final_step: 100}\n")  # fmt: skip
    cells = {width: len(re.findall("[━─]", shown(live, width)[-1])) for width in range(30, 100)}
    assert set(cells.values()) == {0, *range(8, 41)}
    head, tail = "step 50 of 100 ", " 50%  10.0 steps/s  about 5s left"
    whole = len(head + tail)
    assert (cells[whole + 8], cells[whole + 7], cells[whole + 40]) == (8, 0, 40)
    assert shown(live, whole + 7)[-1] == shown(live, whole - 1)[-1] == head.rstrip() + tail
    assert shown(live, whole - 2)[-1] == "50/100  50%  about 5s left  10.0/s"


def test_what_is_short_is_in_seconds_and_no_fraction_flickers() -> None:
    live = of(started(1), 1)
    for t, text in ((59.4, "59s"), (59.5, "59.5s"), (60.6, "1m 01s")):
        live.tick(t)
        assert shown(live)[0].startswith(f"── running {text}  run-1")


def test_many_tasks_alike_share_a_line_and_others_have_their_own() -> None:
    events = [*started(14), *(step(5, f"worker-{n}", 100 + n) for n in range(14))]
    events += [ended(6, "worker-3", 1), restart(6, "worker-3")]
    lines = shown(usage(of(events, 14)))
    assert [re.split(r" {2,}", line)[:3] for line in lines[2:-1]] == [
        ["worker-0 .. worker-13 (13)", "running", "0"],
        ["worker-3", "backoff", "1"],
    ]
    assert "100..113" in lines[2]
    assert "0.50 of 2  300 MiB 50%" in lines[2]
    assert len(shown(of(started(12), 12))) == 12 + 3  # so few each have their own
