"""The pages in a real browser: what people see, in every light, on a phone and on paper."""

from __future__ import annotations

import csv
import json
import platform
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from benchmarks.gallery.pictures import of_report
from emulator.engines.memory import Script
from emulator.record.reader import Record
from emulator.report.files import write, write_comparison
from emulator.session.variants import compare, judge_all
from tests.conftest import BROWSER_PATIENCE, Emulate
from tests.report.runs import a_run, loss_line, step_line

Open = Callable[..., Page]

PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
DARK = {"color_scheme": "dark"}
LOOKS: dict[str, dict[str, Any]] = {"light": {}, "dark": DARK, "phone": PHONE}

# Reports a step each tenth of a second and some checkpoints, and prints HTML that a page must not
# run.
PROGRAM = """\
echo '<img src=x onerror="document.title=1"><b>not bold</b>'
for i in $(seq 1 60); do
  echo '{"emulate": "step", "step": '$i', "loss": '$((60 / i))', "examples": '$((i * 64))'}'
  [ $((i % 20)) = 0 ] && echo '{"emulate": "phase", "phase": "checkpoint", "state": "begin"}'
  sleep 0.1
  [ $((i % 20)) = 0 ] && echo '{"emulate": "phase", "phase": "checkpoint", "state": "end"}'
done
exit 0
"""
SCENARIO = """\
name: seen
description: Two tasks, one of them preempted. <b>Not bold.</b>
framework: tensorflow
image: none
program: {source: train.sh, command: [sh, train.sh]}
cluster: {worker: 2}
metrics: {interval: 200ms}
faults: [{preempt: worker-1, at: {step: 20}, grace: 1s, down: 1s}]
expect: {final_step: 60, max_lost_steps: 40, min_goodput: 0.1}
"""

# The least contrast of a text with what lies behind it (WCAG 2.2, relative luminance).
CONTRASTS = """() => {
  const parse = (c) => c.match(/[\\d.]+/g).map(Number);
  const lum = ([r, g, b]) => [r, g, b]
    .map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const [r, g, b, a = 1] = parse(getComputedStyle(e).backgroundColor);
      if (a === 1) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.getClientRects().length || e.closest("script")) continue;
    const style = getComputedStyle(e);
    const color = e instanceof SVGElement ? style.fill : style.color;
    const [one, two] = [lum(parse(color)), lum(behind(e))].sort((a, b) => b - a);
    found.push([(one + 0.05) / (two + 0.05), e.textContent.trim().slice(0, 40)]);
  }
  return found;
}"""
READS = """async () => {
  const place = document.querySelector("[data-chart=timeline]");
  const get = Element.prototype.getAttribute;
  let reads = 0;
  Element.prototype.getAttribute = function (name) { reads += 1; return get.call(this, name); };
  await Plotly.redraw(place);
  Element.prototype.getAttribute = get;
  return reads;
}"""
"""How many attributes are read when the timeline is drawn again."""
OVERLAPS = """(selector) => {
  const boxes = [...document.querySelectorAll(selector)]
    .map((e) => [e.textContent.trim().slice(0, 30), e.getBoundingClientRect()])
    .filter(([, box]) => box.width && box.height);
  const found = [];
  for (const [i, [a, one]] of boxes.entries()) for (const [b, two] of boxes.slice(i + 1)) {
    const across = Math.min(one.right, two.right) - Math.max(one.left, two.left);
    const down = Math.min(one.bottom, two.bottom) - Math.max(one.top, two.top);
    if (across > 1 && down > 1) found.push([a, b, across, down]);
  }
  return found;
}"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """A real run: processes that were really preempted."""
    folder = tmp_path_factory.mktemp("seen")
    (folder / "train.sh").write_text(PROGRAM)
    (folder / "seen.yaml").write_text(SCENARIO)
    emulate = Emulate(folder / "runs")
    done = emulate.up(folder / "seen.yaml", "--engine", "process")
    assert done.returncode == 0, done.stderr
    record = Record.find("last", emulate.out)
    assert f"Report: {record.path / 'report.html'}" in done.stderr
    return record


@pytest.fixture
def open_(browser: Browser) -> Iterator[Open]:
    """Opens pages from their files; nothing may be wrong with them, nor may they load anything."""
    contexts, wrong, asked = [], [], []

    def opened(path: Path, **options: Any) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1200, "height": 900}, **options})
        contexts.append(context)
        context.set_default_timeout(BROWSER_PATIENCE)
        page = context.new_page()
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-charts=drawn]")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []


@pytest.fixture
def page(finished: Record, open_: Open) -> Page:
    return open_(finished.path / "report.html")


def fits(page: Page) -> None:
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def readable(page: Page) -> list[float]:
    """Return the contrast of every text; none is too low."""
    found = page.evaluate(CONTRASTS)
    assert [(round(ratio, 2), text) for ratio, text in found if ratio < 4.5] == []
    return [ratio for ratio, _ in found]


def test_the_verdict_is_what_one_sees_first(page: Page) -> None:
    assert page.title() == "seen: ok"
    verdict = page.locator("#verdict").bounding_box()
    assert verdict is not None
    assert page.locator("#verdict").inner_text().split() == ["✓", "ok"]
    texts = page.evaluate(
        """() => [...document.querySelectorAll("body *")]
        .filter((e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim()))
        .map((e) => e.getBoundingClientRect().top).filter((top) => top > 0)"""
    )
    assert verdict["y"] <= min(texts)
    assert verdict["y"] + verdict["height"] < 300


def test_verdicts_and_numbers_are_those_of_the_record(page: Page, finished: Record) -> None:
    rows = page.locator("#expectations tbody tr").all_inner_texts()
    verdicts = json.loads((finished.path / "verdicts.json").read_text())
    assert [re.sub(r"\s+", " ", row).strip() for row in rows] == [
        f"{v['expectation']} ✓ {v['status']} {v['expected']} {v['actual']}" for v in verdicts
    ]
    summary = finished.result("summary.json")
    assert summary is not None
    names = page.locator("#figures dt").all_inner_texts()
    found = dict(zip(names, page.locator("#figures dd:not(.note)").all_inner_texts(), strict=True))
    rate = summary["throughput"]["steps_per_second"]
    assert float(found["Steps/s"]) == pytest.approx(rate, abs=0.05)
    assert found["Final step"] == str(summary["steps"]["final"])
    assert found["Steps lost"] == str(summary["steps"]["lost"])
    assert found["Goodput"] == f"{summary['goodput']:.0%}"
    shares = page.locator("#goodput tbody tr").all_inner_texts()
    seconds_by_cause = {row.split()[0]: float(row.split()[1]) for row in shares}
    expected = {cause: seconds for cause, seconds in summary["time"].items() if seconds}
    assert seconds_by_cause == pytest.approx(expected, abs=0.005)
    (fault,) = summary["faults"]
    row = page.locator("#recoveries tbody tr").first.inner_text()
    assert f"{fault['restored_after']:.2f}s" in row
    assert f"{fault['first_step_after']:.2f}s" in row


def test_it_says_how_to_repeat_the_run_and_what_was_printed_is_not_run(
    page: Page, finished: Record
) -> None:
    scenario = finished.path.parent.parent / "seen.yaml"
    section = page.locator("#reproduce")
    assert section.locator("pre").inner_text() == f"emulate up {scenario} --engine=process"
    (versions,) = section.locator("tr", has_text="Versions").locator("td").all_inner_texts()
    assert f"python {platform.python_version()}" in versions.split(", ")
    assert page.locator(".lead").inner_text().endswith("<b>Not bold.</b>")
    assert page.locator("main img, .lead b").count() == 0
    assert "<b>not bold</b>" in finished.log("worker-0")[0]


def test_the_timeline_usage_and_loss_are_drawn_for_every_task(page: Page, finished: Record) -> None:
    chart = page.locator('[data-chart="timeline"]')
    assert chart.locator(".y2tick text").all_text_contents() == ["job", "worker-0", "worker-1"]
    assert chart.locator(".scatterlayer .trace .js-line").count() >= 1
    drawn = page.evaluate("document.querySelector('[data-chart=timeline]').data")
    bars = sum(len(trace["x"]) for trace in drawn if trace["type"] == "bar")
    assert chart.locator(".bars .point").count() == bars
    assert {t["name"] for t in drawn} >= {"running", "down", "checkpoint", "succeeded", "faults"}
    time = json.loads((finished.path / "summary.json").read_text())["time"]
    assert {t["name"] for t in drawn} >= {name for name, spent in time.items() if spent > 0.1}
    steps = page.locator('[data-chart="steps"] .scatterlayer .trace')
    assert steps.count() == 2
    titles = page.locator("#usage figcaption strong").all_inner_texts()
    assert {"CPU", "Memory"} <= set(titles)
    for name in (*(f"usage-{index}" for index in range(len(titles))), "value-0", "value-0-time"):
        chart = page.locator(f'[data-chart="{name}"]')
        assert chart.locator(".scatterlayer .trace").count() == 2
        if name.startswith("value"):  # by step and over time, with the fault
            assert chart.locator(".annotation-text").all_text_contents() == ["preempt worker-1"]
            assert chart.locator(".shapelayer path").count() >= 1


def test_pointing_at_a_fault_shows_which_it_was(page: Page) -> None:
    page.locator('[data-chart="timeline"]').scroll_into_view_if_needed()
    box = page.evaluate(
        """() => {
        const bar = document.querySelector("[data-chart=timeline] .bars .point path");
        const box = bar.getBoundingClientRect();
        return [box.left + box.width / 2, box.top + 8];
        }"""
    )
    page.mouse.move(*box)
    hover = page.locator('[data-chart="timeline"] .hoverlayer .hovertext')
    hover.first.wait_for()
    text = hover.first.text_content() or ""
    assert "0: preempt worker-1" in text
    assert "triggered at" in text


def test_a_click_on_a_task_takes_its_lines_away_and_brings_them_back(page: Page) -> None:
    traces = page.locator('[data-chart="usage-0"] .scatterlayer .trace')
    button = page.locator('#usage button[data-series="worker-0"]')
    button.click()
    assert (traces.count(), button.get_attribute("aria-pressed")) == (1, "false")
    button.click()
    assert (traces.count(), button.get_attribute("aria-pressed")) == (2, "true")


def test_every_section_is_in_the_contents_and_can_be_linked_to(page: Page) -> None:
    linked = page.locator("nav.contents a").evaluate_all("all => all.map((a) => a.hash.slice(1))")
    assert linked == page.locator("section").evaluate_all("all => all.map((s) => s.id)")
    titles = page.locator("nav.contents a").all_inner_texts()
    assert titles == page.locator("h2").all_inner_texts()
    page.locator("nav.contents a", has_text="Usage").click()
    assert page.evaluate("document.querySelector('#usage').getBoundingClientRect().top < 100")
    assert page.locator("#usage h2 a").get_attribute("href") == "#usage"


ZOOMED = "document.querySelector('[data-chart=timeline]').layout.xaxis.range[0]"


def wait_until(page: Page, condition: str) -> None:
    """Wait until a JavaScript expression is true, in the frames that the page draws.

    `Page.wait_for_function` has the page evaluate a string if it isn't true at once, which the
    report's Content Security Policy forbids.
    """
    page.evaluate(
        f"""async () => {{
        const end = performance.now() + {BROWSER_PATIENCE};
        while (!({condition})) {{
          if (performance.now() > end) throw new Error("it never came true");
          await new Promise(requestAnimationFrame);
        }}
        }}"""
    )


RANGES = """() => Object.fromEntries([...document.querySelectorAll("[data-chart]")].map(
  (e) => [e.dataset.chart, e.layout.xaxis.range.map((x) => Math.round(10 * x) / 10)]))"""


def test_a_zoom_of_one_chart_zooms_all_that_show_the_same_time(page: Page) -> None:
    before = page.evaluate(RANGES)
    chart = page.locator('[data-chart="usage-0"]')
    chart.scroll_into_view_if_needed()
    box = chart.locator(".nsewdrag").first.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] / 4, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, middle, steps=5)
    page.mouse.up()
    wait_until(page, f"{ZOOMED} > 0")
    after = page.evaluate(RANGES)
    quarter = before["timeline"][1] / 4
    assert after["timeline"] == pytest.approx([quarter, 2 * quarter], abs=0.5)
    assert {name: r for name, r in after.items() if r != after["timeline"]} == {
        "value-0": before["value-0"]  # by step
    }
    page.mouse.dblclick(box["x"] + box["width"] / 2, middle)
    wait_until(page, f"{ZOOMED} == 0")
    assert page.evaluate(RANGES) == before


# Of each chart: where its line is, as a share of its plot, and what the line says; null without.
POINTED = """() => Object.fromEntries([...document.querySelectorAll("[data-chart]")].map((e) => {
  const line = e.querySelector(".cursor");
  if (!line || !line.getClientRects().length) return [e.dataset.chart, null];
  const [at, plot] = [line, e.querySelector(".nsewdrag")].map((one) => one.getBoundingClientRect());
  return [e.dataset.chart, [(at.left - plot.left) / plot.width, line.textContent]];
}))"""


def test_pointing_at_a_chart_shows_the_same_time_in_all_others(page: Page) -> None:
    names = set(page.evaluate(RANGES))
    end = page.evaluate("document.querySelector('[data-chart=timeline]').layout.xaxis.range[1]")
    plot = page.locator('[data-chart="usage-0"] .nsewdrag').first
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 4, box["y"] + box["height"] / 2)
    pointed = page.evaluate(POINTED)
    assert {name for name, found in pointed.items() if found is None} == {"value-0"}  # by step
    for share, text in (found for found in pointed.values() if found):
        assert share == pytest.approx(0.25, abs=0.02)
        assert float(text.removesuffix(" s")) == pytest.approx(end / 4, abs=0.02 * end)
    plot = page.locator('[data-chart="value-0"] .nsewdrag').first
    plot.hover()
    found = {name: found for name, found in page.evaluate(POINTED).items() if found}
    assert list(found) == ["value-0"]
    assert found["value-0"][1].startswith("step ")
    page.locator("h1").hover()
    assert page.evaluate(POINTED) == dict.fromkeys(names)


def test_a_tap_on_a_phone_shows_the_time_until_the_next_one(finished: Record, open_: Open) -> None:
    page = open_(finished.path / "report.html", **PHONE)
    page.locator('[data-chart="usage-0"] .nsewdrag').first.tap()
    assert {name for name, found in page.evaluate(POINTED).items() if not found} == {"value-0"}
    page.locator("h1").tap()
    assert not any(page.evaluate(POINTED).values())


def test_a_chart_is_saved_as_a_picture_and_as_numbers(page: Page, tmp_path: Path) -> None:
    buttons = page.locator("#timeline figure").first.locator("[data-save]")
    with page.expect_download() as picture:
        buttons.nth(0).click()
    picture.value.save_as(tmp_path / "chart.png")
    assert picture.value.suggested_filename == "seen-timeline.png"
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG\r\n")
    with page.expect_download() as numbers:
        buttons.nth(1).click()
    numbers.value.save_as(tmp_path / "chart.csv")
    assert numbers.value.suggested_filename == "seen-timeline.csv"
    with (tmp_path / "chart.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["name"] for row in rows} >= {"job", "faults", "running", "down", "checkpoint"}
    (down,) = [row for row in rows if row["name"] == "down"]
    assert down["task"] == "worker-1"
    assert float(down["until"]) - float(down["seconds"]) > 0.9  # as the scenario says: 1 s
    assert all(float(row["value"]) >= 0 for row in rows if row["name"] == "job")


SHOWN_RANGE = "document.querySelector('[data-chart=timeline]').layout.xaxis.range"


def test_a_fault_is_zoomed_to_with_its_stages_and_all_is_shown_again(
    page: Page, finished: Record
) -> None:
    before = page.evaluate(RANGES)
    (fault,) = finished.result("summary.json")["faults"]  # type: ignore[index]
    page.locator("#recoveries [data-fault='0']").click()
    wait_until(page, f"{SHOWN_RANGE}[0] > 0")
    begin, end = page.evaluate(SHOWN_RANGE)
    assert begin < fault["triggered"] < end < before["timeline"][1]
    stages = page.locator("[data-chart=timeline] .annotation-text", has_text=" s")
    for stage in ("triggered", "applied", "restored", "first step"):
        stages.filter(has_text=stage).first.wait_for()
    assert page.evaluate(RANGES)["steps"] == page.evaluate(RANGES)["timeline"]
    page.locator("#timeline [data-whole]").first.click()
    wait_until(page, f"{SHOWN_RANGE}[0] == 0")
    assert page.evaluate(RANGES) == before
    assert stages.filter(has_text="triggered").count() == 0


def test_a_curve_can_be_smooth_and_its_axis_logarithmic(page: Page) -> None:
    loss = "document.querySelector('[data-chart=\"value-0\"]')"
    rough = page.evaluate(f"{loss}.data[0].y")
    switch = page.locator('[data-of="value-0"][data-switch="smooth"]')
    switch.click()
    wait_until(page, f"{loss}.data[0].y[1] != {rough[1]}")
    smooth = page.evaluate(f"{loss}.data[0].y")
    assert len(smooth) == len(rough)
    assert (smooth[0], smooth[1]) == (rough[0], pytest.approx(sum(rough[:3]) / 3))
    assert [y is None for y in smooth] == [y is None for y in rough]
    switch.click()
    page.locator('[data-of="value-0"][data-switch="log"]').click()
    wait_until(page, f"{loss}.layout.yaxis.type == 'log'")
    assert page.evaluate(f"{loss}.data[0].y") == rough
    assert page.locator('[data-of="value-0"][aria-pressed="true"]').count() == 1


def test_what_happened_and_what_was_printed_is_inside_and_can_be_searched(page: Page) -> None:
    outputs = page.locator("#logs details")
    titles = outputs.locator("summary").all_inner_texts()
    assert [title.partition(":")[0] for title in titles] == [
        "What happened",
        "worker-0",
        "worker-1",
    ]
    field = page.get_by_label("Search what happened")
    field.fill("NOT bold")
    page.locator("#logs [data-found]", has_text="lines have it").wait_for()
    printed = page.locator('#logs [data-lines="worker-0"]')
    assert printed.inner_text() == '<img src=x onerror="document.title=1"><b>not bold</b>'
    assert not page.locator('#logs [data-lines=""]').is_visible()  # no event has it
    field.fill("has exited")
    wait_until(page, "document.querySelector('#logs details').open")
    assert "worker-1 has exited" in page.locator('#logs [data-lines=""]').inner_text()
    field.fill("")
    wait_until(page, "!document.querySelector('#logs details[open]')")


def test_a_tasks_environment_opens_on_a_click(page: Page) -> None:
    task = page.locator("#plan .tasks details").first
    config = task.locator("dt", has_text="TF_CONFIG").locator("xpath=following-sibling::dd[1]")
    assert not config.is_visible()
    task.locator("summary").click()
    assert json.loads(config.inner_text())["task"] == {"type": "worker", "index": 0}


@pytest.mark.parametrize("look", LOOKS)
def test_nothing_is_wider_than_the_screen_nothing_overlaps_and_every_text_can_be_read(
    finished: Record, open_: Open, look: str
) -> None:
    page = open_(finished.path / "report.html", **LOOKS[look])
    fits(page)
    for selector in (
        "header > *, section",
        "#expectations td, #expectations tbody th",
        ".figures dt, .figures dd",
        "[data-chart=timeline] .y2tick text",
        "[data-chart=timeline] .xtick text",
        "[data-chart=timeline] .annotation-text, [data-chart=timeline] .ytick text",
        ".legend li",
    ):
        assert page.evaluate(OVERLAPS, selector) == []
    assert len(readable(page)) > 100


def test_a_change_of_scheme_changes_page_and_charts_at_once(page: Page) -> None:
    colours = """() => [getComputedStyle(document.body).backgroundColor,
        getComputedStyle(document.querySelector(".bars .point path")).fill,
        getComputedStyle(document.querySelector(".xtick text")).fill]"""
    light = page.evaluate(colours)
    page.emulate_media(color_scheme="dark")
    changed = f"getComputedStyle(document.querySelector('.xtick text')).fill != '{light[2]}'"
    wait_until(page, changed)
    dark = page.evaluate(colours)
    assert all(one != two for one, two in zip(light, dark, strict=True))
    assert sum(map(int, re.findall(r"\d+", dark[0]))) < 120
    assert sum(map(int, re.findall(r"\d+", light[0]))) > 600


def test_on_paper_it_is_light_and_nothing_is_cut_off(finished: Record, open_: Open) -> None:
    page = open_(finished.path / "report.html", **DARK)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    widths = page.locator(".chart .main-svg:first-child").evaluate_all(
        "all => all.map((svg) => svg.getBoundingClientRect().width)"
    )
    assert set(widths[:2]) == {690}
    assert set(widths[2:]) == {337}
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert readable(page)
    page.emulate_media(media="screen")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.querySelector('.main-svg').getBoundingClientRect().width") > 900
    pdf = page.pdf(format="A4", print_background=True)
    assert pdf.startswith(b"%PDF")
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 8


def test_twenty_five_tasks_can_be_distinguished(tmp_path: Path, open_: Open) -> None:
    """For most of a day, so that the marks on the axis have many digits."""
    steps = Script(lines=[(n * 1000, step_line(n)) for n in range(1, 60)], exits_at=60_000.0)
    faults = "".join(f"  - {{preempt: worker-{n}, at: {50 + n}m, down: 4m}}\n" for n in range(12))
    many = "cluster: {chief: 1, worker: 16, ps: 8}\nmetrics: {interval: 10m}\n"
    many += f"faults:\n{faults}"
    record = a_run(tmp_path, many, {"*": steps, "ps-*": Script(exits_at=None)})
    page = open_(record.path / "report.html", **PHONE)
    timeline = "[data-chart=timeline]"
    assert page.locator(f"{timeline} .y2tick text").count() == 26  # and the job's
    assert page.locator(f"{timeline} .xtick text").count() >= 3
    for text in (".y2tick text", ".annotation-text", ".xtick text"):
        assert page.evaluate(OVERLAPS, f"{timeline} {text}") == []
    fits(page)
    assert page.locator("#recoveries table").first.locator("tbody tr").count() == 12
    # Plotly measures a label by its attributes: it must not measure each one for each other one.
    assert page.evaluate(READS) < 5000


@pytest.mark.parametrize("look", LOOKS)
def test_a_failed_run_of_many_tasks_can_be_understood(
    tmp_path: Path, open_: Open, look: str
) -> None:
    """Why and when are on the first screen, tables and charts have a role in place of 16 tasks."""
    traceback = "Traceback (most recent call last):\n  File 'a.py'\nValueError: bad <shape>"
    lines = [(n, loss_line(n)) for n in range(1, 20)]
    breaks = Script(
        lines=[*lines, *((20.0, line) for line in traceback.splitlines())], exits_at=21, exit_code=1
    )
    scripts = {"worker-3": breaks, "*": Script(lines=lines, exits_at=60.0)}
    scenario = "cluster: {chief: 1, worker: 16, ps: 8}\n"
    scenario += "restart: {policy: on-failure, limit: 1, backoff: 1s}\n"
    record = a_run(tmp_path, scenario, scripts)
    page = open_(record.path / "report.html", **LOOKS[look])
    sections = page.locator("section").evaluate_all("all => all.map((one) => one.id)")
    assert sections[:2] == ["timeline", "failure"]
    said = page.locator(".briefly p").first.inner_text()
    assert said == "worker-3: ValueError: bad <shape> (2 times)"
    first_screen = page.viewport_size
    chart = page.locator("[data-chart=timeline]").bounding_box()
    assert first_screen is not None
    assert chart is not None
    assert chart["y"] + 150 < first_screen["height"]  # with the whole curve
    assert page.locator("#failure pre.log").inner_text() == f"{traceback} (2 times)"
    assert page.locator("#failure tbody th").inner_text() == "worker-3"
    assert page.locator("#plan > table tbody tr").count() == 3
    config = page.locator('[data-environment="worker-3"] dt', has_text="TF_CONFIG")
    assert '"index": 3' in (config.locator("xpath=following-sibling::dd[1]").text_content() or "")
    assert not page.locator("#plan .every table").is_visible()
    fits(page)
    readable(page)
    assert page.evaluate("document.documentElement.scrollHeight") < 9000
    visible = page.locator('[data-chart="usage-0"] .scatterlayer .trace')
    assert visible.count() == 5  # chief, and the mean and the range of workers and servers
    page.locator("#usage .singles summary").click()
    page.locator("#usage .singles button", has_text="worker-3").first.click()
    assert visible.count() == 6
    assert page.locator('[data-chart="value-0"] .scatterlayer .trace').count() == 6


def test_without_scripts_all_words_and_numbers_are_there(
    browser: Browser, finished: Record
) -> None:
    with browser.new_context(java_script_enabled=False) as context:
        page = context.new_page()
        page.goto((finished.path / "report.html").as_uri())
        assert page.locator("#goodput tbody tr").count() >= 3
        assert page.locator("noscript").first.is_visible()


def test_failed_and_crashed_runs_have_pages_too(tmp_path: Path, open_: Open) -> None:
    fails = Script(lines=[(1, "no <memory> left")], exits_at=3, exit_code=9)
    failed = a_run(tmp_path, "cluster: {worker: 1}", {"worker-0": fails}, "failed")
    page = open_(failed.path / "report.html")
    assert page.locator("#verdict").inner_text().split() == ["✗", "failed"]
    assert page.locator("pre.log").inner_text() == "no <memory> left"

    crashed = a_run(tmp_path, "cluster: {worker: 1}", {"worker-0": fails}, "crashed")
    whole = (crashed.path / "history.jsonl").read_bytes().splitlines(keepends=True)
    (crashed.path / "history.jsonl").write_bytes(b"".join(whole[:6]) + b'{"n": 6, "t"')
    (crashed.path / "samples.jsonl").unlink()
    page = open_(write(Record(crashed.path)))
    assert page.locator("#verdict").inner_text().split() == ["?", "unknown"]
    assert "the emulator was killed" in page.locator(".notice").first.inner_text()


@pytest.fixture
def compared(finished: Record, tmp_path: Path) -> Path:
    """A page of two runs."""
    steps = Script(lines=[(n, step_line(n)) for n in range(1, 20)], exits_at=25.0)
    other = a_run(tmp_path, "cluster: {worker: 1}", {"worker-0": steps})
    judged = judge_all([finished, other])
    return write_comparison(compare(judged), judged, tmp_path / "compared.html")


@pytest.mark.parametrize("look", LOOKS)
def test_several_runs_on_one_page(compared: Path, open_: Open, look: str) -> None:
    page = open_(compared, **LOOKS[look])
    assert page.locator("[data-chart=curves] .scatterlayer .trace").count() == 2
    assert page.locator("#runs tbody tr").count() == 2
    assert page.locator(".timebar").count() == 2
    page.locator("[data-chart=curves] .nsewdrag").first.hover()
    assert [name for name, found in page.evaluate(POINTED).items() if found] == ["made", "curves"]
    fits(page)
    readable(page)
    link = page.locator("#runs tbody a").nth(1).get_attribute("href")
    assert link == "run/report.html"


def test_screen_readers_find_names_and_roles(finished: Record, compared: Path, open_: Open) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    for path in (finished.path / "report.html", compared):
        found = axe.run(open_(path)).response["violations"]
        wrong = [(one["id"], [node["html"][:120] for node in one["nodes"]][:3]) for one in found]
        assert (path, wrong) == (path, [])


def test_a_picture_of_the_gallery_is_the_timeline_with_its_legend(
    page: Page, finished: Record, tmp_path: Path
) -> None:
    of_report(page, finished.path / "report.html", tmp_path / "seen.png")
    width, height = struct.unpack(">II", (tmp_path / "seen.png").read_bytes()[16:24])
    assert width > 700
    assert 300 < height < 700  # and not what follows
