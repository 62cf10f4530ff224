"""report.html: a self-contained page about one run.

Text and numbers are plain HTML; only charts need scripts. With many tasks, tables have a row and
charts a line for each role, and those of single tasks on demand.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from emulator.analysis.expectations import Verdict
from emulator.analysis.explanation import to_blame
from emulator.analysis.failed_output import exceptions
from emulator.analysis.figures import FAULT_STAGES, fault_rates
from emulator.analysis.reasons import Evidence, reason_of, recovery_in_words
from emulator.faults.schedule import PlannedFault
from emulator.planning.plan import Task
from emulator.record.events import Restart, RunStarted, TaskExit
from emulator.report import curves, document
from emulator.report.charts import MANY, Chart, Group, groups_of
from emulator.report.data import (
    LAST_LINES,
    SHOWN_LINES,
    Facts,
    causes,
    fault_title,
    key_figures,
    notes,
    notice_table,
    save_table,
    sources_of_steps,
)
from emulator.report.event_text import event_lines
from emulator.report.tables import Column, Table, filled, name_list, range_label, table_of
from emulator.report.text import printable
from emulator.report.timeline_chart import causes_of, colour, timeline
from emulator.validation.units import format_duration, format_number, format_rate, format_size

TEMPLATE = "report.html.j2"
_RENDEZVOUS = ("TF_CONFIG", "CLUSTER_CONFIG")
"""Environment variables with JSON."""


SECTIONS = {
    "timeline": "Timeline",
    "failure": "Why it failed",
    "figures": "Key figures",
    "expectations": "Expectations",
    "values": "Loss and accuracy",
    "goodput": "Where the time went",
    "recoveries": "Faults and recoveries",
    "throughput": "Throughput",
    "usage": "Usage",
    "plan": "Plan",
    "reproduce": "How to repeat it",
    "logs": "Logs and files",
}
"""The titles of the page's sections, by their anchors."""


def load() -> None:
    """Load everything that the page of a run needs besides its data."""
    document.load(TEMPLATE)


def render(facts: Facts, *, place: Path | None = None) -> str:
    """Return the page of a run; its links are relative to the folder `place`."""
    drawn = _drawn(facts)
    charts = document.packed(drawn.charts)
    outputs = outputs_of(facts, LARGEST - AROUND - TASK * len(facts.plan.tasks) - len(charts))
    data = {"charts": charts, "outputs": outputs, **_more_data(facts)}
    context = _context(facts, drawn, place) | {"outputs": {n: len(o) for n, o in outputs.items()}}
    return document.document(TEMPLATE, drawn.charts, data=data, **context)


def _more_data(facts: Facts) -> Mapping[str, object]:
    """Return what the page has of many tasks on demand."""
    return {"environments": _environments(facts)} if len(facts.plan.tasks) > MANY else {}


def outputs_of(facts: Facts, room: int = 0) -> Mapping[str, Sequence[str]]:
    """Return the last lines of each task and helper; fewer if there is no `room` for them all."""
    outputs = {name: lines for name, lines in facts.outputs.items() if lines}
    most = SHOWN_LINES
    while most > LAST_LINES and len(document.packed(outputs)) > room:
        most //= 2
        outputs = {name: lines[-most:] for name, lines in outputs.items()}
    return outputs


LARGEST = 700_000
"""Bytes that a page should not exceed."""
AROUND, TASK = 566_000, 1500
"""About so many bytes has a page besides its charts and outputs, and more for each task."""
STORY = 200
"""Events of the page's story, at most."""


@dataclass(frozen=True)
class Drawn:
    """The charts of a run: what the page's sections say of them, and as data."""

    panels: Sequence[curves.Panel]
    gpus: Sequence[curves.Panel]
    values: Sequence[curves.ValueCharts]
    once: Sequence[curves.Once]
    charts: Mapping[str, Chart]
    """By the names that the template has for them: what page.js draws, as JSON."""


def _drawn(facts: Facts) -> Drawn:
    """Return the charts of a run."""
    panels, gpus = list(curves.task_panels(facts)), list(curves.gpu_panels(facts))
    values, once = curves.values_of(facts)
    shown = [panel for panel in panels if not panel.quiet]
    return Drawn(panels, gpus, values, once, _charts(facts, values, shown, gpus))


def _context(facts: Facts, drawn: Drawn, place: Path | None) -> dict[str, Any]:
    """Return what the template fills in."""
    failure, speeds = failure_of(facts), _speeds(facts)
    there: dict[str, object] = {"failure": failure, "throughput": speeds}
    there["recoveries"] = facts.has_failures
    return {
        **_of_charts(facts, drawn),
        **_of_faults(facts),
        **_of_plan(facts),
        "contents": [(key, title) for key, title in SECTIONS.items() if there.get(key, True)],
        "facts": facts,
        "summary": facts.summary,
        "failure": failure,
        "briefly": facts.summary["why"] if failure is None else failure.briefly,
        "figures": list(key_figures(facts)),
        "sources": sources_of_steps(facts.summary),
        "causes": causes(facts.analysis.time),
        "notes": list(notes(facts.summary)),
        "speeds": speeds,
        "used": _used(facts),
        "filled": filled,
        "story": [printable(line) for line in event_lines(facts.timeline.history, STORY)],
        "files": facts.files | {"report.md", "junit.xml"},
        "link": document.linker(facts.folder, place or facts.folder),
    }


def _of_charts(facts: Facts, drawn: Drawn) -> dict[str, Any]:
    """Return what the sections with charts say of them."""
    gpus, values = drawn.gpus, drawn.values
    panels = [panel for panel in drawn.panels if not panel.quiet]
    names = [task.name for task in facts.plan.tasks]
    groups = groups_of(names)
    devices = groups_of(list(curves.devices(facts).values()))
    reporting = [name for name in names if any(name in value.tasks for value in values)]
    used = [name for name in names if any(name in panel.lines for panel in panels)]
    return {
        "legend": list(_legend(facts)),
        "repeated": any(piece.cause == "wasted" for piece in facts.spent),
        "stepping": [
            Group(group.name, group.number)  # single ones are in the other sections
            for group in _shown(groups, [n for n in names if facts.timeline.tasks[n].steps])
        ],
        "values": values[: curves.DRAWN],
        "once": drawn.once,
        "more_values": [value.name for value in values[curves.DRAWN :]],
        "reporting": _shown(groups, reporting),
        "panels": panels,
        "quiet": [f"{one.title} ({one.note}): {one.always}" for one in drawn.panels if one.quiet],
        "gpus": gpus,
        "no_gpus": curves.no_gpus(facts),
        "series": _shown(groups, used),
        "devices": _shown(devices, [n for one in gpus for n in one.lines]),
    }


def _of_faults(facts: Facts) -> dict[str, Any]:
    """Return what the section of faults and recoveries says."""
    found, recovered = Evidence(facts.analysis, facts.timeline), facts.analysis.recovered
    return {
        "faults": facts.summary["faults"],
        "stages": FAULT_STAGES,
        "fault_rates": fault_rates,
        "fault_title": fault_title,
        "recovered": [f"{recovery_in_words(one, found)}." for one in recovered[:RECOVERIES]],
        "more_recovered": max(0, len(recovered) - RECOVERIES),
        "worth": _titled(notice_table(facts.summary)),
        "saves": _titled(save_table(facts.summary)),
    }


def _of_plan(facts: Facts) -> dict[str, Any]:
    """Return what the sections about the plan say, and how to repeat the run."""
    many = len(facts.plan.tasks) > MANY
    return {
        "plan": facts.plan,
        "scenario": facts.plan.scenario,
        "tasks": _tasks(facts),
        "many": many,
        "limits": limits,
        "range_label": range_label,
        "planned": [(fault, settings_of(fault)) for fault in facts.plan.faults],
        "again": _again(facts),
        "origin": _origin(facts),
        "commands": _commands(facts.plan.everything),
        "rendezvous": {} if many else _environments(facts),
    }


def _titled(table: Table | None) -> Table | None:
    """Return a table of the terminal with heads as the page has them."""
    return table and replace(table, heads=[head.capitalize() for head in table.heads])


def _charts(
    facts: Facts,
    values: Sequence[curves.ValueCharts],
    panels: Sequence[curves.Panel],
    gpus: Sequence[curves.Panel],
) -> dict[str, Chart]:
    """Return the charts by the names that the template has for them."""
    charts = {"timeline": timeline(facts)} if facts.has_timeline else {}
    if steps := curves.steps_over_time(facts):
        charts["steps"] = steps
    for number, value in enumerate(values[: curves.DRAWN]):
        charts |= {f"value-{number}": value.over_steps, f"value-{number}-time": value.over_time}
    charts |= {f"usage-{number}": panel.chart for number, panel in enumerate(panels)}
    charts |= {f"gpu-{number}": panel.chart for number, panel in enumerate(gpus)}
    return charts


# --- Why it failed --------------------------------------------------------------------------------

RECOVERIES = 20
"""Recoveries that are listed."""
LISTED = 5
"""Failed tasks of which the exits are listed; the others are named."""


@dataclass(frozen=True)
class Ended:
    """How a task ended, and what was done about it."""

    task: str
    how: str
    """Its exit code, and what that means."""
    when: str
    step: str
    """The last step that it reported."""
    tried: str
    """Restarts, or why there were none."""


@dataclass(frozen=True)
class Failure:
    """Why the verdict of a run is not `ok`."""

    headline: str
    ended: Sequence[Ended]
    """The task that settled the outcome, then the others that failed, the first one first."""
    others: str
    """Failed tasks that are not listed."""
    task: str
    words: Sequence[str]
    """The task whose output says most, and its last traceback or lines."""
    unmet: Sequence[Unmet]
    """What was expected and did not come true."""
    briefly: Sequence[str]
    """Why, in a few sentences, each once; what a task raised is the first."""


@dataclass(frozen=True)
class Unmet:
    """An expectation that was not met, or can't be judged."""

    text: str
    why: str
    """In a sentence or two."""


def failure_of(facts: Facts) -> Failure | None:
    """Return why a run is not ok; None for a run that is, or that is still running."""
    if facts.summary["verdict"] == "ok" or facts.state == "running":
        return None
    failed = []
    if facts.analysis.outcome != "succeeded":
        exits = {name: task.final_exit for name, task in facts.timeline.tasks.items()}
        names = to_blame(facts.timeline, facts.analysis)
        failed = [name for name in names if (end := exits.get(name)) and end.state == "failed"]
    words = facts.summary["last_words"]
    told = next((name for name in (*failed, *words) if words.get(name)), "")
    said = last_traceback(facts.logs.get(told) or words.get(told, ()))
    reasons = _reasons(facts)
    raised = [f"{told}: {said[one.line]}" for one in exceptions(said)[-1:]]
    return Failure(
        headline=_headline(facts),
        ended=[_ended(facts, name) for name in failed[:LISTED]],
        others=name_list(failed[LISTED:]),
        task=told,
        words=said,
        unmet=[
            Unmet(_unmet(verdict), why)
            for verdict, why in reasons
            if verdict.expectation != "outcome"
        ],
        briefly=_each_once(
            [*raised, *(why for _, why in reasons), *map(printable, facts.summary["why"])]
        ),
    )


def _reasons(facts: Facts) -> list[tuple[Verdict, str]]:
    """Return the verdicts that are not ok, those that failed first, with the reasons."""
    found = Evidence(facts.analysis, facts.timeline)
    wrong = [verdict for verdict in facts.verdicts if verdict.status != "ok"]
    wrong.sort(key=lambda verdict: verdict.status)
    return [(verdict, printable(reason_of(verdict, found))) for verdict in wrong]


def _each_once(texts: Sequence[str]) -> list[str]:
    """Return texts without what an earlier one has said, as lost steps explain lost time."""
    said: list[str] = []
    for text in texts:
        for earlier in said:
            text = text.replace(earlier, "").strip()
        said += [text] if text else []
    return said


def _unmet(verdict: Verdict) -> str:
    text = f"{verdict.expectation}: expected {verdict.expected}"
    known = verdict.status == "failed"
    return f"{text}, got {verdict.actual}" if known else f"{text}; not known: {verdict.actual}"


def _headline(facts: Facts) -> str:
    if facts.state == "crashed":
        return "The emulator was killed before the job ended."
    if facts.analysis.outcome == "succeeded":
        return "The job succeeded, but did not meet all expectations."
    return f"{_OUTCOMES[facts.analysis.outcome]}: {facts.analysis.reason}."


_OUTCOMES = {
    "failed": "The job failed",
    "timeout": "The job ran out of time",
    "interrupted": "The job was interrupted",
    "error": "The emulator or its engine failed",
}


def last_traceback(lines: Sequence[str]) -> Sequence[str]:
    """Return the lines from the last traceback on, with those that led to it; else all lines."""
    raised = exceptions(lines)
    if not raised:
        return lines
    begin = raised[-1].header
    for earlier in reversed(raised[:-1]):
        between = " ".join(lines[earlier.line + 1 : begin])
        if not any(phrase in between for phrase in _CHAINED):
            break
        begin = earlier.header
    return lines[begin:]


_CHAINED = (
    "During handling of the above exception, another exception occurred",
    "The above exception was the direct cause of the following exception",
)
"""What Python prints between the exceptions of a chain."""


def _ended(facts: Facts, name: str) -> Ended:
    end = facts.timeline.tasks[name].final_exit
    assert end is not None
    step = facts.analysis.tasks[name].last_step if name in facts.analysis.tasks else None
    return Ended(
        name,
        how_it_ended(end),
        format_duration(end.t),
        "none" if step is None else str(step),
        "; ".join(_tried(facts, name)),
    )


def how_it_ended(end: TaskExit) -> str:
    """Return an exit code in words: `137: killed, out of memory`."""
    why = [end.reason] if end.reason else []
    if end.oom_killed and "OOMKilled" not in why:
        why.append("out of memory")
    if end.exit_code > 128:
        with contextlib.suppress(ValueError):
            why.insert(0, f"ended by {signal.Signals(end.exit_code - 128).name}")
    if not why and end.exit_code in _CODES:
        why.append(_CODES[end.exit_code])
    return f"{end.exit_code}: {', '.join(why)}" if why else str(end.exit_code)


_CODES = {
    1: "an error of the program",
    2: "wrong usage, or a file that is not there",
    126: "the command can't be executed",
    127: "the command was not found",
}
"""What shells and Python mean by an exit code."""


def _tried(facts: Facts, name: str) -> Iterator[str]:
    """Yield what was tried to save the job: restarts of the task, or of all."""
    policy = facts.plan.scenario.restart
    restarts = [entry for entry in facts.timeline.history if isinstance(entry, Restart)]
    own = [one for one in restarts if one.scope == "job" or one.task == name]
    if own:
        of_all = sum(one.scope == "job" for one in own)
        times = "once" if len(own) == 1 else f"{len(own)} times"
        what = "with all tasks" if of_all == len(own) else "alone" if not of_all else ""
        yield f"restarted {times} {what}".rstrip()
        if len(own) >= policy.limit:
            yield f"the limit is {policy.limit}"
    else:
        yield f"not restarted (policy {policy.policy})"
    replaced = sum(one.replacement for one in facts.timeline.tasks[name].incarnations)
    if replaced:
        yield f"brought back {'once' if replaced == 1 else f'{replaced} times'} by faults"


# --- Legends --------------------------------------------------------------------------------------


def _legend(facts: Facts) -> Iterator[tuple[str, str, str]]:
    """Yield the legend of the lanes: kind of mark, text, colour; each word once."""
    lanes = {
        "lane": [*causes_of(facts), *facts.timeline.states()],
        "phase": facts.timeline.phases(),
    }
    seen = set()
    for kind, intervals in lanes.items():
        for name in dict.fromkeys(interval.name for interval in intervals):
            if name not in seen:
                yield kind, printable(name), colour(name)
            seen.add(name)
    for state in sorted({exit_.state for exit_ in facts.exits} - {"down"}):
        yield state, state, colour(state)


def _shown(groups: Sequence[Group], drawn: Sequence[str]) -> list[Group]:
    return [
        group
        for group in groups
        if any(name in drawn for _, name in group.members) or group.name in drawn
    ]


# --- Tables ---------------------------------------------------------------------------------------


def _speeds(facts: Facts) -> Table | None:
    """Return the rates of the job and of each task that reported steps; None if there are none."""
    throughput = facts.analysis.throughput
    rates = {"job": throughput.job, **throughput.tasks}
    rates = {n: rate for n, rate in rates.items() if rate.step_times or rate.steps_per_second}
    if not rates:
        return None
    times = {name: rate.step_times for name, rate in rates.items() if rate.step_times}
    return table_of(
        "Task",
        list(rates),
        [
            Column("Steps/s", {n: r.steps_per_second for n, r in rates.items()}, format_rate),
            Column("Examples/s", {n: r.examples_per_second for n, r in rates.items()}, format_rate),
            *(
                Column(head, {n: getattr(time, key) for n, time in times.items()}, _milliseconds)
                for head, key in (
                    ("Step time, mean", "mean"),
                    ("p50", "p50"),
                    ("p90", "p90"),
                    ("p99", "p99"),
                    ("Longest", "max"),
                )
            ),
        ],
    )


def _milliseconds(seconds: float) -> str:
    return f"{format_rate(1000 * seconds)}\N{NO-BREAK SPACE}ms"


def _used(facts: Facts) -> Table | None:
    """Return what each task used in total; None if nothing was sampled."""
    usage = facts.summary["usage"]
    if not usage:
        return None
    columns: list[tuple[str, str, Callable[[Any], str]]] = [
        ("CPU time", "cpu_seconds", format_duration),
        ("Cores, mean", "cpu", "{:.2f}".format),
        ("Memory, peak", "memory_peak", format_size),
        ("Throttled", "throttled", format_duration),
        ("Received", "received", format_size),
        ("Sent", "sent", format_size),
        ("Read", "read", format_size),
        ("Written", "written", format_size),
    ]
    return table_of(
        "Total",
        list(usage),
        [
            Column(head, {name: used[key] for name, used in usage.items()}, form)
            for head, key, form in columns
        ],
    )


def _tasks(facts: Facts) -> Table:
    """Return how each task and helper ended, its address and its limits."""
    tasks, results = facts.plan.tasks, facts.analysis.tasks
    columns: list[tuple[str, Mapping[str, Any], Callable[[Any], str]]] = [
        ("State", {name: one.state_in_words for name, one in results.items()}, str),
        ("Exit", {name: one.exit_code for name, one in results.items()}, format_number),
        ("Restarts", {name: one.restarts for name, one in results.items()}, format_number),
        ("Last step", {name: one.last_step for name, one in results.items()}, format_number),
        ("Address", {task.name: f"{task.host}:{task.port}" for task in tasks}, str),
        ("Limits", {task.name: limits(task) for task in tasks}, str),
    ]
    names = [task.name for task in tasks]
    return table_of("Task", names, [Column(*one, number=False) for one in columns])


def limits(task: Task) -> str:
    """Return the limits of a task in words."""
    parts = [f"{task.cpus:g} CPU"] if task.cpus is not None else []
    parts += [format_size(task.memory)] if task.memory is not None else []
    parts += [f"GPU {', '.join(task.gpus)}"] if task.gpus else []
    return ", ".join(parts) or "none"


# --- The plan -------------------------------------------------------------------------------------


_DURATIONS = ("grace", "down", "for", "notice", "keep_away")
_SHOWN_ELSEWHERE = frozenset({"kind", "name", "at"})


def settings_of(fault: PlannedFault) -> str:
    """Return the settings of a planned fault, as in its scenario: `grace 5.00s, down 10.0s`."""
    values = fault.spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    hidden = {*_SHOWN_ELSEWHERE, fault.kind}
    return ", ".join(
        f"{key} {format_duration(value)}"
        if key in _DURATIONS and isinstance(value, int | float)
        else f"{key} {value}"
        for key, value in values.items()
        if key not in hidden and isinstance(value, str | int | float) and value is not False
    )


def _commands(tasks: Sequence[Task]) -> list[tuple[str, str, list[str]]]:
    commands: dict[tuple[str, str], list[str]] = {}
    for task in tasks:
        commands.setdefault((shlex.join(task.command), task.image or ""), []).append(task.name)
    return [(*what, names) for what, names in commands.items()]


def _environments(facts: Facts) -> dict[str, dict[str, str]]:
    """Return the environment of each task; that of many is packed, as it has all their names."""
    return {task.name: _environment(task) for task in facts.plan.tasks}


def _environment(task: Task) -> dict[str, str]:
    """Return a task's environment, with indented JSON."""
    environment = dict(task.env)
    for key in environment.keys() & set(_RENDEZVOUS):
        with contextlib.suppress(ValueError):
            environment[key] = json.dumps(json.loads(environment[key]), indent=2)
    return {key: printable(value) for key, value in environment.items()}


# --- How to repeat it -----------------------------------------------------------------------------

_SAYS = {"id": "Its id", "base": "Its base"}
"""What is known of an image besides versions."""


def _again(facts: Facts) -> str:
    """Return the command that runs it again; one that finds no file by itself if none is known."""
    started = _started(facts)
    if started is not None and (given := (started.origin or {}).get("command")):
        return given
    sets = [word for one in facts.plan.variant.split() for word in ("--set", one)]
    return shlex.join(["emulate", "up", "scenario.yaml", "--engine", facts.plan.engine, *sets])


def _origin(facts: Facts) -> list[tuple[str, str]]:
    """Return names and texts of what is known."""
    started, program = _started(facts), facts.plan.scenario.program
    known = {} if started is None else started.origin or {}
    machine = " ".join(known[key] for key in ("system", "machine") if key in known)
    cores = f"{known['cores']} cores" if "cores" in known else ""
    found = [
        ("Run", facts.summary["run_id"]),
        ("Began", f"{facts.began:%Y-%m-%d %H:%M} UTC" if facts.began else ""),
        ("Emulator", "" if started is None else started.emulator_version),
        ("Engine", facts.plan.engine),
        *_software(facts, {} if started is None else started.software or {}),
        ("Scenario from", known.get("scenario", "")),
        ("Seed", str(facts.plan.scenario.seed)),
        ("Program", "" if program.source is None else str(program.source)),
        ("Its commit", known.get("commit", "")),
        ("Machine", ", ".join(filter(None, (machine, cores)))),
        ("Python of the tasks", facts.plan.python),
        ("Python of the emulator", known.get("python", "")),
    ]
    return [(name, text) for name, text in found if text]


def _software(facts: Facts, software: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield each image with what is known of it, or what this machine has without images."""
    for image in dict.fromkeys(task.image for task in facts.plan.everything):
        known = software.get(image, {})
        if image:
            yield "Image", image
        yield from ((head, known.get(key, "")) for key, head in _SAYS.items())
        versions = [f"{name} {text}" for name, text in known.items() if name not in _SAYS]
        yield "Its versions" if image else "Versions", ", ".join(versions)


def _started(facts: Facts) -> RunStarted | None:
    return next((e for e in facts.timeline.history if isinstance(e, RunStarted)), None)
