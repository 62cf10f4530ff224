"""Print what runs cost, with the interruptions that they had: own, on-demand and spot machines.

    python scenarios/costs/costs.py PRICES.yaml RUN_FOLDER...

docs/gallery/costs.md has the rules, prices/examples.yaml the forms of a price.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import yaml

RATE, SHARE = {"/h": 1.0, "/d": 1 / 24}, {"": 1.0, "%": 0.01}
LIFETIME = {"h": 1.0, "d": 24.0, "y": 24.0 * 365}
Event = Mapping[str, Any]  # a line of history.jsonl, with `t` in seconds since the run began
Span = tuple[float, float]


class Price(NamedTuple):
    """What an hour of a task's machine costs."""

    kind: str  # spot, on demand, own
    hour: float
    saved: float | None = None  # by a spot machine, compared with on demand


class Costs(NamedTuple):
    """What a run cost, in the currency of the prices. Times are seconds."""

    prices: Mapping[str, Price]  # by task
    paid: Mapping[str, float]  # how long the machine of each task was paid for
    final_step: int | None = None
    preemptions: int = 0
    lost: float = 0.0  # what the preemptions cost, in money
    seconds: float = 0.0  # how much longer the job took because of them
    currency: str = ""

    def of(self, task: str) -> float:
        """Return what the machine of a task cost."""
        return self.prices[task].hour * self.paid[task] / 3600

    @property
    def total(self) -> float:
        """What all machines cost."""
        return sum(map(self.of, self.paid))

    @property
    def per_thousand_steps(self) -> float | None:
        """None if no task reported a step."""
        return self.total / self.final_step * 1000 if self.final_step else None

    @property
    def break_even(self) -> float | None:
        """Seconds between preemptions at which spot machines cost as much as on demand, or None."""
        saved = [price.saved for price in self.prices.values() if price.saved is not None]
        if not self.preemptions or not saved:
            return None
        work = self.lost / sum(saved) * 3600 if sum(saved) > 0 else math.inf
        return (work + self.seconds) / self.preemptions


def costs_of(run: Path, file: Mapping[str, Any]) -> Costs:
    """Return what the run in a folder cost. Raises ValueError for a price that is missing."""
    plan, summary = (json.loads((run / f"{n}.json").read_bytes()) for n in ("plan", "summary"))
    roles = {task["name"]: task["role"] for task in plan["tasks"]}
    prices = {task: price_of(file, summary["scenario"], role) for task, role in roles.items()}
    events = happened(run / "history.jsonl")
    machines = {task: _paid([e for e in events if e.get("task") == task]) for task in roles}
    taken = [t for _, ends in machines.values() for t in ends]
    beside = {one["name"] for one in plan["tasks"] if one["before"] or one["role"] == "evaluator"}
    over = [(b, e) for b, e in _failures(events, beside) if any(b <= t <= e for t in taken)]

    def paid(task: str, begin: float, until: float) -> float:
        return sum(max(0.0, min(until, e) - max(begin, b)) for b, e in machines[task][0])

    whole = {task: paid(task, 0.0, events[-1]["t"]) for task in roles}
    lost = sum(prices[task].hour * paid(task, *span) / 3600 for span in over for task in roles)
    seconds, currency = sum(e - b for b, e in over), file.get("currency", "")
    return Costs(prices, whole, summary["steps"]["final"], len(taken), lost, seconds, currency)


def price_of(file: Mapping[str, Any], scenario: str, role: str) -> Price:
    """Return the price of a role's machines. Raises ValueError."""
    roles = next((roles for name, roles in file.items() if fnmatchcase(scenario, name)), None)
    match roles.get(role) if isinstance(roles, dict) else None:
        case None:  # the sum would silently lack it
            raise ValueError(f"there is no price for {role} of {scenario}; `0/h` costs nothing")
        case {"purchase": price, "lifetime": lifetime, **more} if more.keys() <= {"used"}:
            hours = _number(lifetime, LIFETIME) * _number(more.get("used", 1), SHARE)
            return Price("own", float(price) / hours)
        case {"spot": spot, **more} if more.keys() <= {"on_demand"}:
            saved = _number(more["on_demand"], RATE) - _number(spot, RATE) if more else None
            return Price("spot", _number(spot, RATE), saved)
        case rate:
            return Price("on demand", _number(rate, RATE))


def _number(given: object, units: Mapping[str, float]) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(\D*)", str(given))
    if found is None or found[2] not in units:
        raise ValueError(f"{given!r} is no price, time or share, such as 0.40/h, 4y, 60%")
    return float(found[1]) * units[found[2]]


def happened(path: Path) -> list[Event]:
    """Return the events of a history until the outcome, in the order in which they happened.

    What a task did happened at the engine's stamp; emulator/record/history.py has the whole rule.
    """
    began, since, found = math.nan, dict[str, float](), list[Event]()
    for line in path.read_text("utf-8").split("\n")[:-1]:
        event = json.loads(line)
        name, task, t = event["event"], event.get("task", ""), event["t"]
        if name == "run" or (name == "start" and abs(event["wall"] - t - began) > 0.5):
            began = event["wall"] - t  # again if a clock was set
        if name in ("start", "running"):
            since[task] = t
        elif name == "fault" and event["stage"] == "triggered":
            since[event["id"]] = t
        elif name in ("step", "exit"):
            floor = max(since.get(task, 0.0), since.get(event.get("fault", ""), 0.0))
            t = max(floor, min(round(event["wall"] - began, 6), t))
        found.append(event | {"t": t})
    found.sort(key=lambda event: event["t"])
    over = next((n for n, event in enumerate(found) if event["event"] == "job"), len(found))
    return found[: over + 1]


def _paid(events: Sequence[Event]) -> tuple[list[Span], list[float]]:
    """Return when the machine of a task is paid for, and when it was taken away."""
    preempts = {e["id"] for e in events if e["event"] == "fault" and e["kind"] == "preempt"}
    spans, taken, since, until = list[Span](), list[float](), None, math.inf
    for event in events:
        match event["event"]:
            case "start" | "running" | "restart":  # until which it waits
                since, until = event["t"] if since is None else since, math.inf
            case "exit" if event.get("fault") in preempts and since is not None:
                spans, taken = [*spans, (since, event["t"])], [*taken, event["t"]]
                since = None
            case "exit":
                until = event["t"]
    return spans if since is None else [*spans, (since, until)], taken


def _failures(events: Sequence[Event], beside: set[str]) -> list[Span]:
    """Return each time from the step that a failure cut off until the job was further than ever."""
    spans, failed, since, furthest = list[Span](), None, 0.0, -1
    for event in events:
        t, is_of_job = event["t"], event.get("task") not in beside
        match event["event"]:
            case "fault" if event["stage"] == "triggered" and furthest < 0:
                since = t  # before the first step there is none to cut off
            case "exit" if is_of_job and failed is None:
                if event["exit_code"] or event["told_to_stop"] or "fault" in event:
                    failed = since if furthest >= 0 or "fault" in event else t
            case "step" if is_of_job and event["step"] > furthest:
                spans += [] if failed is None else [(failed, t)]
                since, furthest, failed = t, event["step"], None
    return spans if failed is None or furthest < 0 else [*spans, (failed, events[-1]["t"])]


def money(amount: float, currency: str = "") -> str:
    """Return an amount with two decimals, or three digits if it is small."""
    digits = 2 if abs(amount) >= 1 or not amount else 2 - math.floor(math.log10(abs(amount)))
    return f"{amount:.{digits}f} {currency}".rstrip()


def table(run: Costs) -> Iterator[str]:
    """Yield as lines what each machine of a run cost, and what the run cost."""
    form = "{:<20}{:<10}{:>10}{:>12}{:>12}".format
    yield form("machine of", "paid", "an hour", "seconds", "cost")
    for task, (kind, hour, _) in run.prices.items():
        yield form(task, kind, money(hour), f"{run.paid[task]:.2f}", money(run.of(task)))
    steps = run.per_thousand_steps
    each = "" if steps is None else f", {money(steps, run.currency)} a thousand steps"
    yield f"cost {money(run.total, run.currency)}{each}"
    if run.preemptions:
        yield f"of it for preemptions ({run.preemptions}): {money(run.lost, run.currency)}"
    if (even := run.break_even) is not None:
        yield f"break-even of spot machines: a preemption every {even:.1f} s"


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    try:
        prices = dict(yaml.safe_load(Path(sys.argv[1]).read_text("utf-8")))
        for run in map(Path, sys.argv[2:]):
            print(run, *table(costs_of(run, prices)), "", sep="\n")
    except (OSError, TypeError, ValueError, yaml.YAMLError) as error:
        sys.exit(str(error))
