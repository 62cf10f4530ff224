"""The pages of `emulate ui`, without a browser: what is listed, served, compared and refused."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from emulator.analysis import listing
from emulator.analysis.listing import Listed
from emulator.engines.memory import Script, Scripts
from emulator.record.lock import acquire, release
from emulator.ui.application import application
from emulator.ui.gate import ENTRY, HEADER, POLICY, Gate, Secrets
from emulator.ui.listing import Listing, Row
from emulator.ui.lists import spark
from emulator.ui.scenario_page import drawing, worse
from emulator.ui.site import Site
from emulator.ui.starting import Wanted, planned
from tests.report.runs import a_run, step_line

HERE = "http://127.0.0.1:1234"
EVIL = '<img src=x onerror="document.title=1">'
STEPS = [(float(t), step_line(t)) for t in range(1, 9)]
SCRIPTS: Scripts = {"worker-0": Script([(0.5, EVIL), *STEPS], exits_at=9.0)}
"""A task that prints HTML, and a step a second."""


def ask(one: Site, path: str, method: str = "GET", **more: Any) -> httpx.Response:
    """Return the answer to a request of the user's own page."""
    known = Secrets("token", "session", "emulate-ui-1234")
    headers = {"cookie": f"{known.cookie}={known.session}", **more.pop("headers", {})}
    if method != "GET":
        headers |= {"origin": HERE, HEADER: "1"}
    gate: Any = Gate(application(one), known, is_owner=lambda client, server: None)

    async def answer() -> httpx.Response:
        transport = httpx.ASGITransport(gate)
        async with httpx.AsyncClient(transport=transport, base_url=HERE) as client:
            return await client.request(method, path, headers=headers, **more)

    return asyncio.run(answer())


def run(out: Path, run_id: str, extra: str = "cluster: {worker: 1}\n") -> None:
    a_run(out, extra, SCRIPTS, run_id=run_id)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of one scenario, of which tasks print HTML."""
    folder = tmp_path_factory.mktemp("ui") / "runs"
    for number, name in enumerate(("one", "two")):
        run(folder, name)
        os.utime(folder / name / "plan.json", (number, number))
    return folder


def rows_of(html: str) -> list[str]:
    return re.findall(r'<tr data-run="([^"]*)"', html)


def test_the_list_has_every_run_the_newest_first_and_live_ones_on_top(tmp_path: Path) -> None:
    out = tmp_path / "runs"
    for number, name in enumerate(("one", "two", "three")):
        run(out, name)
        os.utime(out / name / "plan.json", (number, number))
    (out / "not-a-run").mkdir()
    one = Site(out)
    assert rows_of(ask(one, "/").text) == ["three", "two", "one"]
    lock = acquire(out / "one")
    try:
        page = ask(one, "/").text
        assert rows_of(page) == ["one", "three", "two"]
        assert page.count('data-verdict="live"') == 1
    finally:
        release(lock)
    assert rows_of(ask(one, "/rows?run=two&run=gone&run=../runs/one").text) == ["two"]


def test_every_page_has_the_policy_and_no_script_of_its_own(out: Path) -> None:
    one = Site(out)
    for path in ("/", "/runs/one/", "/compare?run=one&run=two", "/scenarios/test", "/start"):
        answer = ask(one, path)
        assert (path, answer.status_code) == (path, 200)
        assert answer.headers["content-security-policy"] == POLICY
        assert "unsafe-inline" not in POLICY.split("script-src")[1].split(";")[0]
        scripts = re.findall(r"<script([^>]*)>(.)?", answer.text)
        assert scripts
        for attributes, first in scripts:
            assert 'type="text/plain"' in attributes or (' src="/static/' in attributes)
            assert 'type="text/plain"' in attributes or first == "<"
        assert not re.search(r"<[^>]* on[a-z]+=", answer.text.replace(EVIL, ""))
        for address in re.findall(r'(?:src|href)="(/static/[^"]*)"', answer.text):
            assert ask(one, address).status_code == 200


def test_what_tasks_print_is_text_wherever_it_is_shown(out: Path) -> None:
    one = Site(out)
    log = ask(one, "/runs/one/logs/worker-0.log")
    assert (log.status_code, log.text.splitlines()[0]) == (200, EVIL)
    assert log.headers["content-type"] == "text/plain; charset=utf-8"
    assert log.headers["x-content-type-options"] == "nosniff"
    for path in ("/", "/runs/one/", "/compare?run=one&run=two"):
        assert EVIL not in ask(one, path).text


def test_only_files_that_a_run_has_written_are_served(out: Path) -> None:
    one = Site(out)
    (out / "one" / "secret").write_text("x")
    (out.parent / "outside").write_text("x")
    assert ask(one, "/runs/one/summary.json").json()["run_id"] == "one"
    for file in ("secret", "logs/secret.log", "logs/", "nothing", "..%2f..%2foutside", "logs"):
        assert (file, ask(one, f"/runs/one/{file}").status_code) == (file, 404)
    for name in ("gone", "%2e%2e", "one%2f..%2ftwo", "ONE"):
        assert (name, ask(one, f"/runs/{name}/").status_code) == (name, 404)
    assert ask(one, "/runs/one").headers["location"] == "/runs/one/"


def test_a_run_is_read_again_only_when_its_results_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, read = tmp_path / "runs", []
    for name in ("one", "two"):
        run(out, name)
    real = listing.listed

    def counted(run: Any, keys: Any) -> Listed:
        read.append(run.run_id)
        return real(run, keys)

    monkeypatch.setattr("emulator.ui.listing.listed", counted)
    found = Listing(out)
    for _ in range(3):
        assert {row.run_id for row in found.rows()} == {"one", "two"}
    assert sorted(read) == ["one", "two"]
    summary = out / "two" / "summary.json"
    changed = json.loads(summary.read_text()) | {"verdict": "failed", "reason": "changed"}
    summary.write_text(json.dumps(changed))
    verdicts = {row.run_id: row.listed.verdict for row in found.rows()}
    assert (verdicts["two"], sorted(read)) == ("failed", ["one", "two", "two"])


def test_the_curve_of_a_row_is_the_jobs_rate_and_its_faults(tmp_path: Path, out: Path) -> None:
    found = ask(Site(out), "/sparks?run=one&run=gone").json()
    assert found.keys() == {"one"}
    assert max(found["one"]["rates"]) == 1.0
    assert found["one"]["faults"] == []
    faulty = "cluster: {worker: 1}\nfaults: [{preempt: worker-0, at: 4s, grace: 0s, down: 1s}]\n"
    curve = spark(a_run(tmp_path, faulty, SCRIPTS))
    assert [0 < at < 1 for at in curve["faults"]] == [True]


def test_a_comparison_is_of_two_runs_that_are_over(out: Path, tmp_path: Path) -> None:
    one = Site(out)
    page = ask(one, "/compare?run=two&run=one").text
    assert re.findall(r'<a href="(/runs/[^"]*)">', page) == ["/runs/two/", "/runs/one/"]
    for query, words in {
        "run=one": "two runs or more",
        "run=one&run=one": "two runs or more",
        "run=one&run=gone": "gone is no run",
        "&".join(f"run=r{n}" for n in range(21)): "at most 20",
    }.items():
        answer = ask(one, f"/compare?{query}")
        assert answer.status_code == 422
        assert words in answer.text
    lock = acquire(out / "two")
    try:
        assert "still under way" in ask(one, "/compare?run=one&run=two").text
    finally:
        release(lock)


def test_a_history_marks_what_is_worse_than_the_runs_before() -> None:
    rates = [10.0, 10.0, None, 11.0, 7.0, 10.0]
    assert worse(rates, "steps_per_second") == ["", "", "", "", "-30%", ""]
    assert worse([0.0, 3.0], "lost_steps") == ["", "+3"]
    assert worse([5.0, math.inf, 5.0], "worst_recovery") == ["", "never", ""]
    assert worse([5.0, 5.9, 6.1], "worst_recovery") == ["", "", "+22%"]


def test_a_history_draws_each_run_where_its_value_is() -> None:
    rows = [
        Row(
            Listed(f"r{n}", "s", "", "process", n, "succeeded", "ok", {"lost_steps": value}),
            False,
            (),
        )
        for n, value in enumerate([0.0, None, 40.0])
    ]
    found = drawing(rows, "lost_steps", ["", "", "+40"])
    assert [(p.run, p.x, p.y, p.mark) for p in found["points"]] == [
        ("r0", 10.0, 100.0, ""),
        ("r2", 950.0, 10.0, "+40"),
    ]


def test_the_history_of_a_scenario_has_its_runs_and_their_figures(out: Path) -> None:
    one = Site(out)
    page = ask(one, "/scenarios/test").text
    assert re.findall(r'<th scope="row" class="free"><a href="/runs/([^/]*)/', page) == [
        "two",
        "one",
    ]
    assert {"Worst recovery", "Steps lost", "Steps/s"} <= set(
        re.findall(r"<h2><a[^>]*>([^<]*)", page)
    )
    assert ask(one, "/scenarios/other").status_code == 404


def form(**more: Any) -> Any:
    return {"json": {"scenario": "quickstart", "sets": [], "engine": "process", **more}}


def test_a_plan_is_that_of_the_command_line(tmp_path: Path) -> None:
    wanted = Wanted("quickstart", ["cluster.worker=3"], "process")
    text = planned(wanted, tmp_path)
    assert text.startswith("quickstart on the process engine\n")
    assert "worker-2" in text
    assert list(tmp_path.iterdir()) == []
    answer = ask(Site(tmp_path), "/plan", "POST", **form(sets=["cluster.worker=3"]))
    assert "worker-2" in answer.json()["plan"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (form(scenario=" "), "No scenario was given."),
        (form(scenario="quickstrat"), "Did you mean 'quickstart'?"),
        (form(sets=["cluster.wroker=3"]), "--set cluster.wroker"),
        (form(sets=["cluster"]), "cluster"),
        (form(sets=[3]), "lines of text"),
        (form(engine="podman"), "There is no engine 'podman'."),
        ({"content": b"[]"}, "That is no form."),
        ({"content": b"{"}, "That is no form."),
    ],
)
def test_what_can_not_run_is_refused_in_a_sentence(given: Any, words: str, tmp_path: Path) -> None:
    started: list[Sequence[str]] = []

    def launch(arguments: Sequence[str], run_id: str, say: Callable[[str], None]) -> int:
        started.append(arguments)
        return 0

    one = Site(tmp_path, launch)
    for path in ("/plan", "/start"):
        answer = ask(one, path, "POST", **given)
        assert (answer.status_code, words in answer.text) == (422, True), answer.text
    assert ask(one, "/start", "POST", content=b"x" * 2**17).status_code == 413
    assert started == []


def test_a_run_is_started_as_by_the_command_line_and_one_that_fails_says_why(
    tmp_path: Path,
) -> None:
    begun = threading.Event()
    started: list[Sequence[str]] = []

    def launch(arguments: Sequence[str], run_id: str, say: Callable[[str], None]) -> int:
        started.append(arguments)
        say(f"{EVIL} no engine\x1b[2J")
        begun.set()
        return 4

    one = Site(tmp_path / "runs", launch)
    answer = ask(one, "/start", "POST", **form(sets=["cluster.worker=3", " "]))
    assert answer.status_code == 201
    run_id = answer.json()["run"]
    assert begun.wait(60)
    (arguments,) = started
    assert arguments[:3] == ["up", "--detach", "--engine=process"]
    assert {f"--run-id={run_id}", "--set=cluster.worker=3"} <= set(arguments)
    assert arguments[-2] == "--"
    assert arguments[-1].endswith("quickstart.yaml")
    page = ask(one, "/").text
    assert (f'data-start="{run_id}"' in page, EVIL in page, "\x1b" in page) == (True, False, False)


def test_the_entry_sets_a_cookie_that_no_script_and_no_other_site_gets(out: Path) -> None:
    answer = ask(Site(out), f"{ENTRY}?token=token")
    assert answer.status_code == 200
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("emulate-ui-1234=session;")
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    assert "token" not in answer.text


def test_what_was_started_is_told_to_every_page(tmp_path: Path) -> None:
    async def first() -> list[str]:
        one = Site(tmp_path)
        one.changes.start(asyncio.get_running_loop())
        try:
            async with contextlib.aclosing(one.changes.follow()) as told:
                waiting = asyncio.ensure_future(anext(told))
                await asyncio.sleep(0)  # it follows now
                await asyncio.to_thread(run, tmp_path, "one")
                return await asyncio.wait_for(waiting, 60)
        finally:
            one.changes.stop()

    assert asyncio.run(first()) == ["one"]
