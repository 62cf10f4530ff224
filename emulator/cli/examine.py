"""What this machine has for the emulator, and what to do about what it lacks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import get_args

from emulator.engines import AUTO, BUILT_IN, engine_class, engine_classes
from emulator.engines.base import Explaining, Finding, Granting
from emulator.errors import UsageError
from emulator.metrics.catalog import GpuUsage, in_words
from emulator.metrics.gpu import Gpu
from emulator.metrics.gpu.sampler import GpuSampler
from emulator.runtime import plugins
from emulator.scenario.schema import Scenario
from emulator.validation.units import format_size


def examine_engine(name: str, scenario: Scenario | None) -> list[Finding]:
    """Look at one engine, for a scenario if there is one; that it can't run tasks is fatal.

    Raises UsageError, EngineMissing.
    """
    found = engine_class(name)
    if not issubclass(found, Explaining):
        raise UsageError(f"The engine {name} has no checks.", "Leave out --engine.")
    findings = list(found.examine(scenario))
    first = findings[0]
    return [first if first.status == "ok" else replace(first, status="fatal"), *findings[1:]]


def rights_of(name: str, scenario: Scenario | None) -> str:
    """Return the rights that an engine's login needs. Raises UsageError, EngineMissing."""
    found = engine_class(name)
    if not issubclass(found, Granting):
        raise UsageError(f"The engine {name} needs no rights of its own.", "Leave out --role.")
    return found.rights(scenario)


def examine_for(scenario: Scenario) -> list[Finding]:
    """Look at the engine that `up` takes by itself, for a scenario."""
    found = engine_class("docker")
    assert issubclass(found, Explaining)
    docker = next(iter(found.examine()))
    name = "process" if docker.status == "missing" else "docker"
    return [auto(docker), *examine_engine(name, scenario)]


def examine() -> list[Finding]:
    """Look at this machine's engines and GPUs; a part that can't be looked at is a finding itself.

    An engine of a plug-in may not be of this machine: who wants it examined names it.
    """
    here = [one for one in engine_classes() if one.name in BUILT_IN]
    engines = {one.name: list(one.examine()) for one in here if issubclass(one, Explaining)}
    findings = [finding for found in engines.values() for finding in found]
    return [auto(engines["docker"][0]), *findings, *_gpus(), *_plugins()]


def _plugins() -> Iterator[Finding]:
    """Yield what of plug-ins can't be loaded; engines are findings of their own."""
    for group in get_args(plugins.Group):
        for name, error in plugins.broken(group).items():
            yield Finding(f"plug-in {name}", "warning", error.message, error.hint)


def auto(docker: Finding) -> Finding:
    """Say which engine `up` takes by itself, as `engines.choose` does it (pure)."""
    what = f"--engine {AUTO}"
    if docker.status == "ok":
        return Finding(what, "ok", "docker")
    if docker.status == "missing":
        return Finding(what, "ok", "process: no Docker engine is configured")
    advice = "Start it, or choose `--engine process`: tasks are then processes on this machine."
    return Finding(what, "fatal", "docker, which is configured and does not answer", advice)


def _gpus() -> Iterator[Finding]:
    """Each device with a sample of it, as a run would take them."""
    with GpuSampler() as sampler:
        used, found, lacking = sampler.sample({}), sampler.found, sampler.unavailable
    if not found.gpus:
        yield Finding(
            "GPU", "optional", found.why_none, "Not needed: `image: auto` takes the CPU image."
        )
        return
    for gpu, usage in zip(found.gpus, used, strict=True):
        yield _gpu(gpu, usage, found.driver)
    advice = "`nvidia-smi` and `dmesg | grep -i xid` say more; a reboot often brings it back."
    for index, why in found.silent.items():
        yield Finding(f"GPU {index}", "warning", f"the driver can't open it ({why})", advice)
    if lacking:
        never = "; ".join(f"{column}, {why}" for column, why in lacking.items())
        advice = "These columns stay empty in what a run measures."
        yield Finding("GPU columns", "warning", f"never reported: {never}", advice)


def _gpu(gpu: Gpu, usage: GpuUsage, driver: str) -> Finding:
    what = f"GPU {gpu.index}" + (f": {gpu.uuid}" if gpu.parent else "")
    if usage.lost:
        advice = "`dmesg | grep -i xid` says why; a reboot often brings it back."
        lost = f"{gpu.name or 'the device'} is lost: it no longer answers the driver"
        return Finding(what, "warning", lost, advice)
    size = format_size(gpu.memory) if gpu.memory else "shares the machine's memory"
    state = ", ".join(["in MIG mode"] * gpu.divided + in_words(usage))
    return Finding(what, "ok", f"{gpu.name}, {size}, driver {driver}" + (state and f"; {state}"))
