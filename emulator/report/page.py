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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emulator.analysis.explanation import to_blame
from emulator.analysis.failed_output import exceptions
from emulator.analysis.figures import FAULT_STAGES, fault_rates
from emulator.planning.plan import Task
from emulator.record.events import Restart, RunStarted, TaskExit
from emulator.report import curves, document
from emulator.report.charts import MANY, Chart, Group, groups_of
from emulator.report.data import Facts, causes, key_figures, machines, notes, sources_of_steps
from emulator.report.tables import Column, Table, name_list, range_label, table_of
from emulator.report.text import printable
from emulator.report.timeline_chart import colour, timeline
from emulator.validation.units import format_duration, format_number, format_rate, format_size

TEMPLATE = "report.html.j2"
_RENDEZVOUS = ("TF_CONFIG", "CLUSTER_CONFIG")
"""Environment variables with JSON."""


SECTIONS = {
    "failure": "Why it failed",
    "expectations": "Expectations",
    "figures": "Key figures",
    "timeline": "Timeline",
    "values": "Loss and accuracy",
    "goodput": "Where the time went",
    "costs": "What it cost",
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
    all_panels, gpus = list(curves.task_panels(facts)), list(curves.gpu_panels(facts))
    panels = [panel for panel in all_panels if not panel.quiet]
    values, once = curves.values_of(facts)
    charts = _charts(facts, values, panels, gpus)
    names = [task.name for task in facts.plan.tasks]
    reporting = [name for name in names if any(name in value.tasks for value in values)]
    used = [name for name in names if any(name in panel.lines for panel in panels)]
    failure, speeds, paid = failure_of(facts), _speeds(facts), machines(facts.analysis.costs)
    there: dict[str, object] = {"failure": failure, "costs": paid, "throughput": speeds}
    there["recoveries"] = facts.has_failures
    return document.document(
        TEMPLATE,
        charts,
        contents=[(key, title) for key, title in SECTIONS.items() if there.get(key, True)],
        facts=facts,
        summary=facts.summary,
        plan=facts.plan,
        scenario=facts.plan.scenario,
        failure=failure,
        figures=list(key_figures(facts)),
        sources=sources_of_steps(facts.summary),
        causes=causes(facts.analysis.time, facts.analysis.costs),
        costs=facts.analysis.costs,
        paid=paid,
        notes=list(notes(facts.summary)),
        legend=list(_legend(facts)),
        values=values[: curves.DRAWN],
        once=once,
        more_values=[value.name for value in values[curves.DRAWN :]],
        reporting=_shown(groups_of(names), reporting),
        faults=facts.summary["faults"],
        stages=FAULT_STAGES,
        fault_rates=fault_rates,
        speeds=speeds,
        panels=panels,
        quiet=[f"{panel.title} ({panel.note})" for panel in all_panels if panel.quiet],
        used=_used(facts),
        gpus=gpus,
        no_gpus=curves.no_gpus(facts),
        series=_shown(groups_of(names), used),
        devices=_shown(
            groups_of(list(curves.devices(facts).values())), [n for one in gpus for n in one.lines]
        ),
        tasks=_tasks(facts),
        many=len(names) > MANY,
        limits=limits,
        range_label=range_label,
        again=_again(facts),
        origin=_origin(facts),
        commands=_commands(facts.plan.everything),
        rendezvous={
            task.name: _environment(task, None if len(names) > MANY else 2)
            for task in facts.plan.tasks
        },
        files=facts.files | {"report.md", "junit.xml"},
        link=document.linker(facts.folder, place or facts.folder),
    )


def _charts(
    facts: Facts,
    values: Sequence[curves.ValueCharts],
    panels: Sequence[curves.Panel],
    gpus: Sequence[curves.Panel],
) -> dict[str, Chart]:
    """Return the charts by the names that the template has for them."""
    charts = {"timeline": timeline(facts)} if facts.has_timeline else {}
    for number, value in enumerate(values[: curves.DRAWN]):
        charts |= {f"value-{number}": value.over_steps, f"value-{number}-time": value.over_time}
    charts |= {f"usage-{number}": panel.chart for number, panel in enumerate(panels)}
    charts |= {f"gpu-{number}": panel.chart for number, panel in enumerate(gpus)}
    return charts


# --- Why it failed --------------------------------------------------------------------------------

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
    unmet: Sequence[str]
    """What was expected and did not come true."""


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
    return Failure(
        headline=_headline(facts),
        ended=[_ended(facts, name) for name in failed[:LISTED]],
        others=name_list(failed[LISTED:]),
        task=told,
        words=last_traceback(facts.logs.get(told) or words.get(told, ())),
        unmet=[
            f"{v.expectation}: expected {v.expected}"
            + (f", got {v.actual}" if v.status == "failed" else f"; not known: {v.actual}")
            for v in facts.verdicts
            if v.status != "ok" and v.expectation != "outcome"
        ],
    )


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
    """Yield the legend of the lanes: kind of mark, text, colour."""
    lanes = {"lane": facts.timeline.states(), "phase": facts.timeline.phases()}
    for kind, intervals in lanes.items():
        for name in dict.fromkeys(interval.name for interval in intervals):
            yield kind, printable(name), colour(name)
    for state in sorted({exit_.state for exit_ in facts.exits}):
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


def _commands(tasks: Sequence[Task]) -> list[tuple[str, str, list[str]]]:
    commands: dict[tuple[str, str], list[str]] = {}
    for task in tasks:
        commands.setdefault((shlex.join(task.command), task.image or ""), []).append(task.name)
    return [(*what, names) for what, names in commands.items()]


def _environment(task: Task, indent: int | None) -> dict[str, str]:
    """Return a task's environment, with JSON indented as given."""
    environment = dict(task.env)
    for key in environment.keys() & set(_RENDEZVOUS):
        with contextlib.suppress(ValueError):
            environment[key] = json.dumps(json.loads(environment[key]), indent=indent)
    return {key: printable(value) for key, value in environment.items()}


# --- How to repeat it -----------------------------------------------------------------------------

_SAYS = {"id": "Its id", "base": "Its base"}
"""What is known of an image besides versions."""


def _again(facts: Facts) -> str:
    """Return the command that runs it again; of older records one that finds no file by itself."""
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
        ("Emulator", "" if started is None else started.emulator_version),
        ("Engine", facts.plan.engine),
        *_software(facts, {} if started is None else started.software or {}),
        ("Seed", str(facts.plan.scenario.seed)),
        ("Program", "" if program.source is None else str(program.source)),
        ("Its commit", known.get("commit", "")),
        ("Machine", ", ".join(filter(None, (machine, cores)))),
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
