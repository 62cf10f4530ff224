"""What the rate of a run is compared with: a reference run, or a baseline stored beside a scenario.

A rate depends on the machine too. So a baseline keeps the machine it was measured on, and where the
scenario has a reference, the share of its rate, which can be compared on any other machine.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from pathlib import Path

from filelock import FileLock
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from emulator.errors import UsageError
from emulator.files import atomic_write, cache_dir, os_errors
from emulator.metrics import gpu
from emulator.scenario.schema import Scenario
from emulator.validation.files import text_of
from emulator.validation.limits import BASELINES_BYTES

__all__ = [
    "FILE",
    "Baseline",
    "BaselineFile",
    "ThroughputReference",
    "baseline_key",
    "machine",
    "machine_of",
    "measured",
    "reference_beside",
]

FILE = "baselines.json"
"""Its name, beside the scenarios that it is of."""


class Baseline(BaseModel):
    """The stored rate of a scenario, which later runs are compared with."""

    model_config = ConfigDict(frozen=True)

    steps_per_second: float = Field(gt=0, allow_inf_nan=False)
    of_reference: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Its rate as a share of that of its reference, run in the same session."""
    engine: str
    machine: str
    """Rates are compared on such a machine only; shares of a reference on any."""
    measured: str
    """The day, as 2026-11-20."""


class ThroughputReference(BaseModel):
    """What the rate of one run is compared with; in its plan, so that a verdict needs no more."""

    model_config = ConfigDict(frozen=True)

    baseline: Baseline | None = None
    reference: float | None = None
    """Steps per second of the reference variant, run in the same session."""
    reference_run: str = ""
    """Its run id."""
    reference_came: str = ""
    """Why it gave no rate."""
    machine: str
    """Where this run is."""
    storing: bool = False
    """The run's own rate becomes the baseline."""


class BaselineFile:
    """A file of baselines by their keys; it need not be there."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()  # what a link leads to is replaced, not the link

    @classmethod
    def beside(cls, scenario: Path) -> BaselineFile:
        """Return those of the scenarios in a scenario's folder."""
        return cls(scenario.resolve().parent / FILE)

    def get(self, key: str) -> Baseline | None:
        """Return what is stored under a key. Raises UsageError where the file can't be read."""
        return self._read().get(key)

    def put(self, key: str, stored: Baseline) -> None:
        """Store something under a key, in the order of keys; other processes may do so too.

        The file is written whole or not at all. Raises UsageError.
        """
        with self._alone():
            data = {**self._read(), key: stored}
            text = json.dumps(
                {name: data[name].model_dump(mode="json") for name in sorted(data)},
                indent=2,
                ensure_ascii=False,
            )
            atomic_write(self.path, text + "\n")

    def _read(self) -> Mapping[str, Baseline]:
        if not self.path.exists():
            return {}
        try:
            text = text_of(self.path, BASELINES_BYTES)
        except ValueError as error:
            raise UsageError(f"Can't read the baselines in {self.path}: {error}.") from None
        try:
            return _FILE.validate_json(text)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = "".join(f"{step}: " for step in first["loc"])
            raise UsageError(
                f"{self.path} holds no baselines: {where}{first['msg']}.",
                "Mend it, or remove it: `pytest --emulator-update-baseline` stores them anew.",
            ) from None

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other processes from writing meanwhile, without a lock beside people's files."""
        with os_errors(UsageError, f"Can't write the baselines to {self.path}"):
            folder = cache_dir("locks")
            folder.mkdir(parents=True, exist_ok=True)
            name = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:16]
            with FileLock(folder / f"baselines-{name}.lock"):
                yield


_FILE = TypeAdapter(dict[str, Baseline])


def baseline_key(path: Path, variant: str, engine: str) -> str:
    """Return under which key a run is stored: `quickstart[cluster.worker=4] docker` (pure).

    By its file, since several may have scenarios of one name.
    """
    return f"{path.stem}[{variant}] {engine}" if variant else f"{path.stem} {engine}"


def measured(
    rate: float, reference: ThroughputReference, engine: str, *, on: date | None = None
) -> Baseline:
    """Return the baseline to store of a run with this rate, in steps per second.

    `reference` has the run's machine and the rate of its reference; `on` is today by default.
    """
    return Baseline(
        steps_per_second=_digits(rate),
        of_reference=_digits(rate / reference.reference) if reference.reference else None,
        engine=engine,
        machine=reference.machine,
        measured=(on or datetime.now(UTC).date()).isoformat(),
    )


def _digits(number: float) -> float:
    """Return a number as people compare it in a diff: more digits would say nothing."""
    return float(f"{number:.6g}")


def machine(*, gpus: bool = False) -> str:
    """Return what makes rates comparable: `8 x Intel(R) Xeon(R) Platinum`; no host name does.

    With its `gpus`, `, 2 x NVIDIA H200` comes after that.
    """
    known = f"{os.cpu_count()} x {_cpu()}"
    if gpus:
        found = [device for device in gpu.devices().gpus if not device.divided]
        names = Counter(device.name or "GPU" for device in found)
        known += "".join(f", {count} x {name}" for name, count in sorted(names.items()))
    return known


def machine_of(scenario: Scenario) -> str:
    """Return what makes rates of a scenario comparable; GPUs where it asks for any."""
    return machine(gpus=any(role.gpus.count for role in scenario.cluster.values()))


def _cpu() -> str:
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as lines:
        for line in lines:
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return " ".join(value.split())
    return platform.processor() or platform.machine()  # macOS, Linux on ARM


def reference_beside(
    path: Path, scenario: Scenario, engine: str, variant: str = ""
) -> ThroughputReference | None:
    """Return the baseline that is stored beside a scenario's file, where it expects one.

    Raises UsageError where it can't be read.
    """
    throughput = scenario.expect.throughput
    if throughput is None or throughput.of != "baseline":
        return None
    stored = BaselineFile.beside(path).get(baseline_key(path, variant, engine))
    return ThroughputReference(baseline=stored, machine=machine_of(scenario))
