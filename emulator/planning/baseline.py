"""What the rate of a run is compared with: a reference run, or a stored baseline.

Rates are comparable on the same machine only. So a baseline has the machine it was measured on, and
if the scenario has a reference, its rate as a share of that, which is comparable on any machine.
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

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from emulator.errors import UsageError
from emulator.metrics import gpu
from emulator.runtime.files import FOR_OWNER, atomic_write, cache_dir, os_errors
from emulator.scenario.schema import Scenario
from emulator.validation.files import text_of
from emulator.validation.limits import BASELINES_BYTES

FILE = "baselines.json"
"""Its name, in the folder of the scenarios."""


class Baseline(BaseModel):
    """The stored rate of a scenario."""

    model_config = ConfigDict(frozen=True)

    steps_per_second: float = Field(gt=0, allow_inf_nan=False)
    of_reference: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """The rate as a share of that of the reference, which ran in the same session."""
    engine: str
    """The engine, and whether tasks started warm, see `conditions`."""
    machine: str
    """Where it was measured, see `machine`."""
    measured: str
    """The day, such as 2026-11-20."""


class ThroughputReference(BaseModel):
    """What the rate of one run is compared with; part of its plan."""

    model_config = ConfigDict(frozen=True)

    baseline: Baseline | None = None
    reference: float | None = None
    """Steps per second of the reference variant, run in the same session."""
    reference_run: str = ""
    """Its run id."""
    reference_failure: str = ""
    """Why it has no rate."""
    machine: str
    """The machine of this run."""
    storing: bool = False
    """The run's own rate is stored as the baseline."""


class BaselineFile:
    """A file of baselines by key; it may not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()  # a link stays, its target is replaced

    @classmethod
    def beside(cls, scenario: Path) -> BaselineFile:
        """Return the baselines of the scenarios in a scenario's folder."""
        return cls(scenario.resolve().parent / FILE)

    def get(self, key: str) -> Baseline | None:
        """Return the baseline of a key. Raises UsageError if the file can't be read."""
        return self._read().get(key)

    def put(self, key: str, stored: Baseline) -> None:
        """Store a baseline, atomically; safe with other processes. Raises UsageError."""
        with self._locked():
            baselines = sorted({**self._read(), key: stored}.items())
            data = {name: baseline.model_dump(mode="json") for name, baseline in baselines}
            atomic_write(self.path, json.dumps(data, indent=2, ensure_ascii=False) + "\n")

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
            first = error.errors()[0]
            where = "".join(f"{step}: " for step in first["loc"])
            raise UsageError(
                f"{self.path} is not a file of baselines: {where}{first['msg']}.",
                "Correct it, or remove it: `pytest --emulator-update-baseline` stores them anew.",
            ) from None

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Exclude other processes, with a lock file in the cache rather than beside the file."""
        from filelock import FileLock  # few runs store one

        with os_errors(UsageError, f"Can't write the baselines to {self.path}"):
            folder = cache_dir("locks")
            folder.mkdir(FOR_OWNER, parents=True, exist_ok=True)
            name = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:16]
            with FileLock(folder / f"baselines-{name}.lock"):
                yield


_FILE = TypeAdapter(dict[str, Baseline], config=ConfigDict(defer_build=True))


def conditions(engine: str, *, warm: bool) -> str:
    """Return under what a rate was measured: `docker`, `docker warm`; never compared (pure)."""
    return f"{engine} warm" if warm else engine


def baseline_key(path: Path, variant: str, engine: str) -> str:
    """Return the key of a run, such as `quickstart[cluster.worker=4] docker` (pure).

    `engine` is from `conditions`.
    """
    return f"{path.stem}[{variant}] {engine}" if variant else f"{path.stem} {engine}"


def measured(
    rate: float, reference: ThroughputReference, engine: str, *, on: date | None = None
) -> Baseline:
    """Return the baseline for a run's rate in steps per second, measured `on` a day (today)."""
    return Baseline(
        steps_per_second=_digits(rate),
        of_reference=_digits(rate / reference.reference) if reference.reference else None,
        engine=engine,
        machine=reference.machine,
        measured=(on or datetime.now(UTC).date()).isoformat(),
    )


def _digits(number: float) -> float:
    """Return a number with six digits, which is readable in a diff."""
    return float(f"{number:.6g}")


def machine(*, gpus: bool = False) -> str:
    """Return the hardware, such as `8 x Intel(R) Xeon(R) Platinum, 2 x NVIDIA H200`."""
    hardware = f"{os.cpu_count()} x {_cpu()}"
    if gpus:
        devices = [device for device in gpu.devices().gpus if not device.divided]
        names = Counter(device.name or "GPU" for device in devices)
        hardware += "".join(f", {count} x {name}" for name, count in sorted(names.items()))
    return hardware


def machine_of(scenario: Scenario) -> str:
    """Return the hardware that a scenario uses: with the GPUs if it asks for any."""
    return machine(gpus=any(role.gpus.count for role in scenario.cluster.values()))


def _cpu() -> str:
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as lines:
        for line in lines:
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return " ".join(value.split())
    return platform.processor() or platform.machine()  # macOS, Linux on ARM


def reference_beside(
    path: Path, scenario: Scenario, engine: str, variant: str = "", *, warm: bool = False
) -> ThroughputReference | None:
    """Return the stored baseline of a scenario that expects one. Raises UsageError."""
    throughput = scenario.expect.throughput
    if throughput is None or throughput.of != "baseline":
        return None
    baseline = BaselineFile.beside(path).get(
        baseline_key(path, variant, conditions(engine, warm=warm))
    )
    return ThroughputReference(baseline=baseline, machine=machine_of(scenario))
