"""The fixture `emulator`: it runs scenarios for one test, and removes what they leave."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from emulator.engines import AUTO, engine_class, names
from emulator.engines.base import Warming
from emulator.engines.requirements import machine_needs, needs
from emulator.errors import EmulatorError, EngineMissing, InUse, Unsupported
from emulator.planning.claims import Claim, Need, need_of
from emulator.planning.leases import Broker, Lease
from emulator.planning.plan import ThroughputReference
from emulator.planning.requested import RequestedScenario, RunOptions
from emulator.pytest_plugin.settings import Settings
from emulator.record.reader import Record
from emulator.report.live import LOGGING
from emulator.results import Result, RunCallbacks, load_result
from emulator.scenario.given import Additions
from emulator.scenario.matrix import to_overrides
from emulator.session import launch
from emulator.session.launch import (
    NO_IMAGES,
    ScenarioLike,
    Sets,
    additions,
    make_available,
    overrides,
    read,
)
from emulator.session.threaded import Running, RunningCluster
from emulator.supervisor.cleanup import remove

if TYPE_CHECKING:
    from emulator.search.points import SweepResult

log = logging.getLogger("emulator")

T = TypeVar("T")


@dataclass
class TestRun:
    """A run of a test."""

    requested: RequestedScenario
    folder: Path
    engine: str
    running: Running
    lease: Lease
    is_reference: bool
    kept: bool
    """Its cluster is left for inspection."""

    @property
    def has_record(self) -> bool:
        """Whether it was recorded at all."""
        return (self.folder / "plan.json").is_file()

    @property
    def result(self) -> Result:
        """Its result, from its folder if it has not finished."""
        return self.running.finished or load_result(Record(self.folder))

    @property
    def command(self) -> str:
        """The command that runs it again without pytest; empty if there is none."""
        return self.requested.command(self.engine)

    def remove(self) -> None:
        """Remove its cluster. Raises EmulatorError."""
        if self.has_record:
            remove(self.folder.name, self.engine, self.folder)
        self.kept = False


@dataclass(repr=False)  # pytest shows it above each test that fails
class Emulator:
    """Runs scenarios for one test.

        with emulator.up("mwms.yaml", set={"cluster.worker": 3}) as cluster:
            cluster.wait_for(step=100)
            cluster.preempt("worker-1", grace=5)
            result = cluster.wait()
        assert result.goodput > 0.5

    `untimed` suspends the test's timeout while it waits for its lease, or for an image; `say`
    reports progress that takes long.
    """

    item: pytest.Item
    settings: Settings
    engine: str
    image: str | Mapping[str, Any] | None
    out: Path
    untimed: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
    say: Callable[[str], None] = log.info
    broker: Broker = field(default_factory=Broker)
    _runs: list[TestRun] = field(init=False, default_factory=list)
    _leases: list[Lease] = field(init=False, default_factory=list)
    _clusters: list[RunningCluster] = field(init=False, default_factory=list)

    def up(
        self,
        scenario: ScenarioLike,
        *,
        set: Sets = (),
        seed: int | None = None,
        engine: str | None = None,
        images: Mapping[str, str] = NO_IMAGES,
        faults: str | Path | None = None,
    ) -> RunningCluster:
        """Start a cluster and return once all its tasks run; its `with` block ends it.

        `set` overrides values as `--set` does, `images` replaces those of a manifest as `--image`
        does, and `faults` is a file as for `--faults`. Skips the test if the machine lacks
        something that the scenario needs, unless --emulator-require names it. Raises
        EmulatorError.
        """
        __tracebackhide__ = True
        added = additions(images, faults)
        test_run, _ = self._start(Running.begin, scenario, set, seed, engine, added)
        self._clusters.append(RunningCluster(test_run.folder, test_run.running))
        return self._clusters[-1]

    def run(
        self,
        scenario: ScenarioLike,
        *,
        set: Sets = (),
        seed: int | None = None,
        engine: str | None = None,
        images: Mapping[str, str] = NO_IMAGES,
        faults: str | Path | None = None,
    ) -> Result:
        """Run a scenario to its end and return the result; otherwise as `up`."""
        __tracebackhide__ = True
        added = additions(images, faults)
        return self._start(Running.result, scenario, set, seed, engine, added)[1]

    def sweep(
        self,
        scenario: ScenarioLike,
        *,
        fault: Mapping[str, Any] | None = None,
        at: str | Sequence[str] = "each call of a save",
        set: Sets = (),
        seed: int | None = None,
        engine: str | None = None,
        images: Mapping[str, str] = NO_IMAGES,
        max_moments: int = 100,
        tolerance: float = 1e-6,
        result: str = "",
    ) -> SweepResult:
        """Run a scenario once for each moment of a fault, as `emulate sweep`; otherwise as `run`.

        `check()` of the result fails the test unless all moments are ok.
        """
        __tracebackhide__ = True
        from emulator.search.moments import joined
        from emulator.search.question import Question
        from emulator.search.sweep import Sweep

        try:
            chosen = overrides(set, seed)
            requested = self._read(scenario, chosen, additions(images, None))
            question = Question(requested, fault, joined(at), max_moments, tolerance, result)
            folder = self.out / RunOptions().named(requested.scenario)
            with self.untimed(), self._skipping(requested):
                return Sweep.open(
                    question, engine or self.engine, folder, warm=False, say=self.say
                ).perform()
        except EmulatorError as error:
            raise error.with_traceback(None) from None

    def runs(self) -> list[TestRun]:
        """Return this test's recorded runs, references last."""
        recorded = [run for run in self._runs if run.has_record]
        return sorted(recorded, key=lambda run: run.is_reference)

    def close(self, *, failed: bool) -> None:
        """Stop and remove everything; keep the runs of a failed test if that was asked for.

        Whatever goes wrong with one run, or interrupts this, all others are stopped as well. Raises
        the error of a run that was not raised before.
        """
        keep = self.settings.keep
        with contextlib.ExitStack() as closing:  # in reverse order
            for lease in self._leases:
                closing.callback(self._release, lease, keep=keep and failed)
            for run in self._runs:
                closing.callback(run.running.settle)
                if keep and not failed:
                    closing.callback(run.remove)
            for cluster in self._clusters:
                closing.callback(cluster.close)
            for run in self._runs:
                closing.callback(run.running.stop)
            for run in self._runs:
                if not run.running.over:
                    run.running.ask_to_stop()

    def _release(self, lease: Lease, *, keep: bool) -> None:
        """Release a lease; unless kept, another process removes what its failed runs have left."""
        failed = [
            r.folder.name for r in self._runs if r.lease is lease and r.running.error is not None
        ]
        if failed and not keep:
            lease.abandon(failed)
        else:
            lease.release()

    def _start(
        self,
        wait: Callable[[Running], T],
        given: ScenarioLike,
        sets: Sets,
        seed: int | None,
        engine: str | None,
        added: Additions,
    ) -> tuple[TestRun, T]:
        __tracebackhide__ = True
        try:
            test_run = self._planned(given, overrides(sets, seed), engine or self.engine, added)
            with self._skipping(test_run.requested):
                return test_run, wait(test_run.running)
        except EmulatorError as error:
            raise error.with_traceback(None) from None  # the sentence says more than our lines

    def _planned(
        self, given: ScenarioLike, chosen: Sequence[str], engine_name: str, added: Additions
    ) -> TestRun:
        """Parse the scenario, build its images, acquire a lease, run its reference."""
        __tracebackhide__ = True
        requested = self._read(given, chosen, added)
        reference = reference_variant(requested)
        variants = [requested] if reference is None else [requested, reference]
        with self.untimed(), self._skipping(*variants):
            lease, engine = self._lease(variants, engine_name)
        self._leases.append(lease)
        expected = None
        if reference is not None:
            test_run = self._prepared(reference, lease, engine, None, is_reference=True)
            with self._skipping(reference):
                expected = reference_rate(test_run.running.result())
        return self._prepared(requested, lease, engine, expected)

    def _read(
        self, given: ScenarioLike, chosen: Sequence[str], added: Additions
    ) -> RequestedScenario:
        """Find and parse a scenario. Raises UsageError."""
        image = () if self.image is None else to_overrides({"image": self.image})
        folders = [self.item.path.parent, self.settings.root, *self.settings.folders]
        return read(given, folders, chosen, self.settings.sets, image=image, added=added)

    def _skipping(self, *variants: RequestedScenario) -> AbstractContextManager[None]:
        return skipping(variants, self.settings.require)

    def _lease(self, variants: Sequence[RequestedScenario], name: str) -> tuple[Lease, str]:
        """Build the images; return a lease that is enough for each variant, and the engine."""
        if name == AUTO:  # one that is required must answer
            name = next((one for one in names() if one in self.settings.require), AUTO)
        name, capacity = make_available(variants, name, self.out, self.say)
        if self.settings.cpus is not None:
            capacity = replace(capacity, cpus=self.settings.cpus)
        if self.settings.memory is not None:
            capacity = replace(capacity, memory=self.settings.memory)
        needs = [need_of(one.scenario) for one in variants]
        need = Need(*(max(getattr(one, key.name) for one in needs) for key in fields(Need)))
        lease = self.broker.acquire(
            self.item.nodeid, need, capacity, recover=recover, waiting=self._waits
        )
        return lease, name

    def _starts_warm(self, engine_name: str) -> bool:
        """Whether tasks start warm: where that is asked for, and the engine can do it."""
        can = "warm" in engine_class(engine_name).capabilities
        return self.settings.warm and can and not self.settings.keep

    def _waits(self, others: Sequence[Claim]) -> None:
        names = ", ".join(f"{claim.name} (process {claim.pid})" for claim in others)
        self.say(f"{self.item.nodeid} waits for its share of the machine, after {names}")

    def _prepared(
        self,
        requested: RequestedScenario,
        lease: Lease,
        engine_name: str,
        expected: ThroughputReference | None,
        *,
        is_reference: bool = False,
    ) -> TestRun:
        """Return a run that has not started; a reference keeps the lease for the run itself."""
        run_id = RunOptions().named(requested.scenario)
        keep = self.settings.keep

        def perform(callbacks: RunCallbacks) -> Result:
            lease.began_run(run_id, engine_name, self.out / run_id)
            options = RunOptions(
                out=self.out,
                run_id=run_id,
                variant=requested.label,
                reference=expected,
                gpus=lease.gpus if need_of(requested.scenario).gpus else None,
                keep=keep,
            )
            start = partial(launch.perform, requested, engine_name, callbacks=callbacks)
            try:
                result = start(replace(options, warm=self._starts_warm(engine_name)))
            except Unsupported:  # nothing has started: none of its tasks can start warm
                result = start(options)
            if not (is_reference or keep):
                lease.release()
            return result

        folder, running = self.out / run_id, Running(perform, LOGGING)
        self._runs.append(
            TestRun(requested, folder, engine_name, running, lease, is_reference, keep)
        )
        return self._runs[-1]


@contextlib.contextmanager
def skipping(variants: Iterable[RequestedScenario], required: frozenset[str]) -> Iterator[None]:
    """Skip the test if the engine, or something else that the variants need, is missing.

    The test fails if that is `required`.
    """
    __tracebackhide__ = True
    try:
        yield
    except EngineMissing as error:
        asked = {capability for one in variants for _, capability in needs(one.scenario)}
        lacks = machine_needs(engine_class(error.engine), asked)
        raise _missing(str(error), lacks & required) from None
    except Unsupported as error:
        raise _missing(str(error), error.lacks & required) from None


def _missing(reason: str, required: frozenset[str]) -> BaseException:
    if required:
        names = ",".join(sorted(required))
        return pytest.fail.Exception(f"--emulator-require {names}, but: {reason}", pytrace=False)
    return pytest.skip.Exception(reason)


# --- What the rate of a run is compared with ------------------------------------------------------

UNGATED = ("expect.throughput=null",)
"""The reference itself is compared with nothing."""


def reference_variant(requested: RequestedScenario) -> RequestedScenario | None:
    """Return the variant that a scenario's rate is compared with, if there is one."""
    scenario = requested.scenario
    gate = scenario.expect.throughput
    if gate is None or gate.of is None:
        return None
    return requested.variant([*requested.chosen, *to_overrides(scenario.reference)], UNGATED)


def reference_rate(reference: Result) -> ThroughputReference:
    """Return the rate of a finished run of a reference, or the reason why it has none."""
    rate, reason = reference.steps_per_second, ""
    (outcome,) = (v for v in reference.verdicts if v.expectation == "outcome")
    if outcome.status != "ok":
        rate, reason = None, outcome.actual
    elif not rate:  # no rate is a share of 0
        rate, reason = None, "its output reports no step"
    return ThroughputReference(
        reference=rate, reference_run=reference.run_id, reference_failure=reason
    )


# --- Resources of killed tests -------------------------------------------------------------------


def sweep() -> None:
    """Remove what all killed tests have left."""
    try:
        Broker().recover_dead(recover)
    except EmulatorError as error:
        log.warning("the resources of killed tests are not removed: %s", error)


def remove_waiting(session: str) -> None:
    """Remove the warm clusters of a session."""
    for name in names():
        engine = engine_class(name)
        if "warm" in engine.capabilities and issubclass(engine, Warming):
            try:
                engine.remove_waiting(session)
            except EmulatorError as error:  # they end by themselves
                log.warning("the warm clusters of this session are not removed: %s", error)


def recover(claim: Claim) -> None:
    """Remove what is left of the runs of a claim, unless another emulator has taken them over."""
    for run in claim.runs:
        try:
            remove(run.run_id, run.engine, run.folder)
        except InUse:
            log.info("%s is not removed: another emulator uses it", run.run_id)
        except EmulatorError as error:  # `emulate clean` finds it once its engine answers
            log.warning("the resources of %s are not removed: %s", run.run_id, error)
