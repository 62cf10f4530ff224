"""What the fixture `emulator` is: it runs scenarios for one test, and leaves nothing of them."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import pytest

from emulator.broker import Broker, Capacity, Claim, Lease, Need, need_of
from emulator.engines import AUTO, choose, engine_class, names
from emulator.engines.requirements import machine_needs, needs
from emulator.errors import EmulatorError, EngineLost, EngineMissing, InUse, Unsupported
from emulator.planning.baseline import ThroughputReference
from emulator.planning.plan import new_run_id
from emulator.pytest_plugin.regression import reference_rate, reference_variant, store
from emulator.pytest_plugin.run_thread import Running, RunningCluster
from emulator.pytest_plugin.scenario_source import Given, Sets, Wanted, assigned, read
from emulator.pytest_plugin.settings import Settings
from emulator.record.events import Entry
from emulator.record.reader import Record
from emulator.report.event_text import describe
from emulator.results import Result, RunCallbacks, load_result
from emulator.run import make_ready, up
from emulator.scenario.matrix import to_overrides
from emulator.scenario.schema import Scenario
from emulator.supervisor.cleanup import remove

__all__ = ["Emulator", "Ran", "recover", "skipping", "sweep"]

log = logging.getLogger("emulator")


@dataclass
class _Told:
    """A run of this test."""

    wanted: Wanted
    folder: Path
    engine: str
    running: Running
    lease: Lease
    reference: bool
    removed: bool = False

    @property
    def wrong(self) -> bool:
        """Something else than its job failed; nobody knows what is left of it."""
        return self.running.error is not None


@dataclass(frozen=True)
class Ran:
    """A run of a test, for who tells of it."""

    result: Result
    command: str
    """What runs it again without pytest."""
    kept: bool
    """Its cluster is left for a look, if its test fails."""


@dataclass(repr=False)  # pytest shows it above each test that fails
class Emulator:
    """Runs scenarios for one test.

        with emulator.up("mwms.yaml", set={"cluster.worker": 3}) as cluster:
            cluster.wait_for(step=100)
            cluster.preempt("worker-1", grace=5)
            result = cluster.wait()
        assert result.goodput > 0.5

    `untimed` suspends the test's timeout while it waits for its turn, or for an image; `say` shows
    progress that takes long.
    """

    item: pytest.Item
    settings: Settings
    engine: str
    image: str | Mapping[str, Any] | None
    out: Path
    untimed: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
    say: Callable[[str], None] = log.info
    broker: Broker = field(default_factory=Broker)
    _told: list[_Told] = field(init=False, default_factory=list)
    _leases: list[Lease] = field(init=False, default_factory=list)
    _clusters: list[RunningCluster] = field(init=False, default_factory=list)

    def up(
        self,
        scenario: Given,
        *,
        set: Sets = (),
        seed: int | None = None,
        engine: str | None = None,
    ) -> RunningCluster:
        """Start a cluster and return once all its tasks run; its `with` block ends it.

        `set` overrides values as `--set` does. Skips the test where the machine lacks what the
        scenario takes, unless --emulator-require names it. Raises EmulatorError.
        """
        __tracebackhide__ = True
        try:
            told = self._planned(scenario, [*assigned(set), *_seeded(seed)], engine)
            with self._skipping(told.wanted):
                told.running.begin()
        except EmulatorError as error:
            raise error.with_traceback(None) from None  # a sentence says more than our own lines
        self._clusters.append(RunningCluster(told.folder, told.running))
        return self._clusters[-1]

    def run(
        self,
        scenario: Given,
        *,
        set: Sets = (),
        seed: int | None = None,
        engine: str | None = None,
    ) -> Result:
        """Run a scenario to its end and return what came of it; otherwise as `up`."""
        __tracebackhide__ = True
        try:
            told = self._planned(scenario, [*assigned(set), *_seeded(seed)], engine)
            with self._skipping(told.wanted):
                return told.running.result()
        except EmulatorError as error:
            raise error.with_traceback(None) from None

    def results(self) -> list[Ran]:
        """Return this test's runs as their folders have them by now."""
        return [
            Ran(
                told.running.finished or load_result(Record(told.folder)),
                told.wanted.command(told.engine),
                kept=self.settings.keep and not told.removed,
            )
            for told in self._there()
        ]

    def close(self, *, failed: bool) -> None:
        """End what still runs; keep what a failed test ran where that was asked for.

        Whatever goes wrong with one, or interrupts this, all others are ended as well. Raises what
        went wrong in a run that nobody has waited for.
        """
        with contextlib.ExitStack() as ending:  # the last that is added comes first
            for lease in self._leases:
                ending.callback(self._give_back, lease, keep=self.settings.keep and failed)
            for told in self._told:
                ending.callback(told.running.settle)
                if self.settings.keep and not failed:
                    ending.callback(self._remove, told)
            for cluster in self._clusters:
                ending.callback(cluster.close)
            for told in self._told:
                ending.callback(told.running.stop)
            for told in self._told:
                if not told.running.over:
                    told.running.ask_to_stop()

    def _remove(self, told: _Told) -> None:
        if (told.folder / "plan.json").is_file():
            remove(told.folder.name, told.engine, told.folder)
        told.removed = True

    def _give_back(self, lease: Lease, *, keep: bool) -> None:
        """Give a share back; what went wrong may have left something, which goes first.

        Unless it is to be kept, for somebody to look at and remove.
        """
        wrong = [told.folder.name for told in self._told if told.lease is lease and told.wrong]
        if wrong and not keep:
            lease.abandon(wrong)
        else:
            lease.release()

    def _there(self) -> Iterator[_Told]:
        """Yield the runs that came to a record, references after what was asked for."""
        told = [told for told in self._told if (told.folder / "plan.json").is_file()]
        yield from sorted(told, key=lambda told: told.reference)

    def _planned(self, given: Given, chosen: Sequence[str], engine_name: str | None) -> _Told:
        """Read it, have its images, wait for its turn, run its reference; it does not run yet."""
        __tracebackhide__ = True
        wanted = self._read(given, chosen)
        reference = reference_variant(wanted)
        variants = [wanted] if reference is None else [wanted, reference]
        with self.untimed(), self._skipping(*variants):
            lease, engine = self._lease(variants, engine_name or self.engine)
        self._leases.append(lease)
        came = None
        if reference is not None:
            told = self._prepared(reference, lease, engine, None, reference=True)
            with self._skipping(reference):
                came = told.running.result()
        held = reference_rate(wanted, came, engine, storing=self.settings.update_baseline)
        return self._prepared(wanted, lease, engine, held)

    def _skipping(self, *variants: Wanted) -> AbstractContextManager[None]:
        return skipping([one.scenario for one in variants], self.settings.require)

    def _read(self, given: Given, chosen: Sequence[str]) -> Wanted:
        image = () if self.image is None else to_overrides({"image": self.image})
        folders = [self.item.path.parent, self.settings.root, *self.settings.folders]
        return read(given, folders, chosen, self.settings.sets, image=tuple(image))

    def _lease(self, variants: Sequence[Wanted], name: str) -> tuple[Lease, str]:
        """Return a share of the machine that is enough for each, and the engine.

        Their images are built before.
        """
        if name == AUTO:  # one that is required must answer
            name = next((one for one in names() if one in self.settings.require), AUTO)
        scenarios = [variant.scenario for variant in variants]
        with contextlib.closing(choose(name, self.say)) as engine:
            for scenario in scenarios:  # what can't run is told before anything is built for it
                make_ready(scenario, engine, out=self.out)
            for scenario in scenarios:
                engine.ensure_images(scenario, self.say)
            capacity = self._capacity(engine.capacity())
        each = [need_of(scenario) for scenario in scenarios]
        need = Need(*(max(getattr(one, what.name) for one in each) for what in fields(Need)))
        lease = self.broker.acquire(
            self.item.nodeid, need, capacity, recover=recover, waiting=self._waits
        )
        return lease, engine.name

    def _capacity(self, found: Capacity) -> Capacity:
        cpus, memory = self.settings.cpus, self.settings.memory
        found = found if cpus is None else replace(found, cpus=cpus)
        return found if memory is None else replace(found, memory=memory)

    def _waits(self, others: Sequence[Claim]) -> None:
        names = ", ".join(f"{claim.name} (process {claim.pid})" for claim in others)
        self.say(f"{self.item.nodeid} waits for its share of the machine, after {names}")

    def _prepared(
        self,
        wanted: Wanted,
        lease: Lease,
        engine_name: str,
        held_against: ThroughputReference | None,
        *,
        reference: bool = False,
    ) -> _Told:
        """Make ready what runs it; after a reference its lease is needed for the run itself."""
        run_id = new_run_id(wanted.scenario.name)

        def perform(callbacks: RunCallbacks) -> Result:
            try:
                engine = choose(engine_name)
            except EngineMissing as error:  # it was there just before: no reason to skip anything
                raise EngineLost(error.message, error.hint) from None
            with contextlib.closing(engine):
                lease.began_run(run_id, engine.name, self.out / run_id)
                result = up(
                    wanted.scenario,
                    engine,
                    text=wanted.text,
                    out=self.out,
                    run_id=run_id,
                    variant=wanted.variant,
                    keep=self.settings.keep,
                    gpus=lease.gpus if need_of(wanted.scenario).gpus else None,
                    reference=held_against,
                    callbacks=callbacks,
                )
            if held_against is not None:
                store(result, wanted, held_against)
            if not (reference or self.settings.keep):
                lease.release()
            return result

        running = Running(perform, self._listener())
        told = _Told(wanted, self.out / run_id, engine_name, running, lease, reference)
        self._told.append(told)
        return told

    def _listener(self) -> RunCallbacks:
        def entry(happened: Entry) -> None:
            if words := describe(happened):
                log.info("%.2fs: %s", happened.t, words)

        def lines(lines: Sequence[tuple[str, str]]) -> None:
            for task, text in lines:
                log.debug("%s | %s", task, text)

        return RunCallbacks(say=log.info, entry=entry, lines=lines)


def _seeded(seed: int | None) -> list[str]:
    return [] if seed is None else [f"seed={seed}"]


@contextlib.contextmanager
def skipping(scenarios: Iterable[Scenario], required: frozenset[str]) -> Iterator[None]:
    """Skip the test where the engine, or something else that its scenarios take, is not there.

    It fails where any of that is `required`.
    """
    __tracebackhide__ = True
    try:
        yield
    except EngineMissing as error:
        asked = {capability for scenario in scenarios for _, capability in needs(scenario)}
        lacks = machine_needs(engine_class(error.engine), asked)
        raise _lacking(str(error), lacks & required) from None
    except Unsupported as error:
        raise _lacking(str(error), error.lacks & required) from None


def _lacking(said: str, required: frozenset[str]) -> BaseException:
    if required:
        what = ",".join(sorted(required))
        return pytest.fail.Exception(f"--emulator-require {what}, but: {said}", pytrace=False)
    return pytest.skip.Exception(said)


# --- What killed tests have left ----------------------------------------------------------------


def sweep() -> None:
    """Remove what every test has left whose process was killed."""
    try:
        Broker().recover_dead(recover)
    except EmulatorError as error:
        log.warning("what killed tests have left is not removed: %s", error)


def recover(claim: Claim) -> None:
    """Remove what is left of the runs of a claim, unless somebody took them over."""
    for run in claim.runs:
        try:
            remove(run.run_id, run.engine, run.folder)
        except InUse:
            log.info("%s is left alone: an emulator is at work on it", run.run_id)
        except EmulatorError as error:  # to be found by `emulate clean`, once its engine is well
            log.warning("what %s has left is not removed: %s", run.run_id, error)
