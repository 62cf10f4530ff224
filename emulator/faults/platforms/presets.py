"""How platforms take a machine away, as data: what `like` of a preemption stands for.

A preset has values for fields of a preemption (`emulator/faults/preempt.py`), each with its source
and the date on which it was read or seen. What a platform does not say is `ASSUMED`: a choice of
ours. Times are in seconds. `python -m scripts.reference` makes the table in docs/platforms.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

TIMES = ("notice", "grace", "kill_wait", "down", "keep_away")
"""The fields that `speed` divides."""


@dataclass(frozen=True)
class Source:
    """Where a fact is from."""

    title: str
    """A page of a vendor's documentation, or what was run here."""
    date: str
    """The day on which it was read or run."""


@dataclass(frozen=True)
class Fact:
    """One value of a preset."""

    value: float | str | bool
    source: Source


@dataclass(frozen=True)
class Preset:
    """How one platform takes a machine away."""

    title: str
    facts: Mapping[str, Fact]
    """By the field of a preemption; a field without a fact has its usual default."""
    remark: str = ""
    """What a user should know of it besides."""

    @property
    def values(self) -> Mapping[str, float | str | bool]:
        """The values of the fields."""
        return {field: fact.value for field, fact in self.facts.items()}


def _preset(
    title: str, *parts: tuple[Source, Mapping[str, float | str | bool]], remark: str = ""
) -> Preset:
    """Return a preset of values by their sources."""
    facts = {name: Fact(value, source) for source, part in parts for name, value in part.items()}
    return Preset(title, MappingProxyType(facts), remark)


# --- Sources --------------------------------------------------------------------------------------

ASSUMED = Source("not stated by the platform; a choice of the emulator", "2026-11-28")
OURS = Source("the emulator's default", "2026-11-28")
READ = "2026-11-21"
GCE_SPOT = Source("Compute Engine documentation, Spot VMs: preemption process", READ)
GCE_NOTICE = Source("Compute Engine documentation, preemptionNoticeDuration (beta)", READ)
GCE_HOST = Source("Compute Engine documentation, host maintenance events", READ)
GKE_SPOT = Source("GKE documentation, Spot VMs: graceful node shutdown", READ)
EC2_SPOT = Source("EC2 documentation, Spot Instance interruption notices", READ)
EC2_BALANCE = Source("EC2 documentation, rebalance recommendations", READ)
AZURE_EVENTS = Source("Azure documentation, Scheduled Events for Linux VMs", READ)
PODS = Source("Kubernetes documentation, termination of Pods", READ)
SLURM_MAN = Source("slurm.conf(5) and sbatch(1) of Slurm 22.05.8", READ)
SLURM_RUN = Source("seen on a Slurm 22.05.8 controller and node", READ)
RAY_DRAIN = Source("Ray's source, `ray drain-node`", READ)
SAGEMAKER = Source("SageMaker API reference, StoppingCondition", "2026-11-28")
POWER = Source("measured with containers: faults, Power loss", READ)

# --- The presets ----------------------------------------------------------------------------------

_GONE = {"loss": "silent", "disk": "fresh"}
"""A machine that is no longer there answers nothing; its replacement has a new disk."""
_BACK = {"down": 60.0}

PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        "plain": _preset(
            "What a preemption is without `like`",
            (OURS, {"grace": 30.0, "down": 10.0}),
            remark="Who gets the signal the scenario says: `signals`, `main` by default.",
        ),
        "gce-spot": _preset(
            "Compute Engine, Spot VM",
            (GCE_SPOT, {"metadata": "gce", "action": "preempt", "notice": 0.0, "grace": 30.0}),
            (GCE_SPOT, {"signal": "SIGTERM", "signals": "all"}),
            (ASSUMED, {**_GONE, **_BACK}),
            remark="`preempted` becomes TRUE with the signal.",
        ),
        "gce-spot-120": _preset(
            "Compute Engine, Spot VM with advance notice",
            (GCE_NOTICE, {"metadata": "gce", "action": "preempt", "notice": 120.0}),
            (GCE_SPOT, {"signal": "SIGTERM", "signals": "all", "grace": 30.0}),
            (ASSUMED, {**_GONE, **_BACK}),
        ),
        "gce-maintenance": _preset(
            "Compute Engine, host maintenance that ends the VM",
            (GCE_HOST, {"metadata": "gce", "action": "maintenance", "notice": 60.0}),
            (ASSUMED, {"signal": "SIGTERM", "signals": "all", "grace": 30.0}),
            (ASSUMED, {"loss": "closed", "disk": "kept", "address": "same", **_BACK}),
            remark="A machine with GPUs is told an hour ahead: `notice: 1h`.",
        ),
        "gke": _preset(
            "GKE, node of Spot VMs",
            (GKE_SPOT, {"notice": 0.0, "grace": 15.0}),
            (PODS, {"signal": "SIGTERM", "signals": "main", "loss": "closed", "disk": "fresh"}),
            (ASSUMED, _BACK),
            remark="30 s, of which Pods of users have 15.",
        ),
        "ec2-spot": _preset(
            "EC2, Spot Instance that is terminated",
            (EC2_SPOT, {"metadata": "ec2", "action": "terminate", "notice": 120.0}),
            (ASSUMED, {"signal": "none", "signals": "all", **_GONE, **_BACK}),
            remark="The notice is all that is promised; no signal is.",
        ),
        "ec2-rebalance": _preset(
            "EC2, Spot Instance with a rebalance recommendation",
            (EC2_BALANCE, {"metadata": "ec2", "action": "rebalance"}),
            (ASSUMED, {"notice": 300.0, "signal": "none", "signals": "all", **_GONE, **_BACK}),
            remark="It comes earlier than a notice of interruption, and names no time; here the "
            "machine goes 5 min after it.",
        ),
        "azure-spot": _preset(
            "Azure, Spot VM",
            (AZURE_EVENTS, {"metadata": "azure", "action": "preempt", "notice": 30.0}),
            (ASSUMED, {"signal": "none", "signals": "all", **_GONE, **_BACK}),
            remark="30 s are the least notice; no signal is promised.",
        ),
        "kubernetes": _preset(
            "Kubernetes, a Pod that is deleted, evicted or preempted",
            (PODS, {"notice": 0.0, "signal": "SIGTERM", "signals": "main", "grace": 30.0}),
            (PODS, {"loss": "closed", "disk": "fresh"}),
            (ASSUMED, {"down": 10.0}),
        ),
        "slurm-preempt": _preset(
            "Slurm, preempted by a job of a higher partition and requeued",
            (SLURM_MAN, {"signal": "SIGTERM", "signals": "all", "wakes": True}),
            (SLURM_MAN, {"notice": 0.0, "kill_wait": 30.0}),
            (ASSUMED, {"grace": 30.0, "loss": "closed", "disk": "fresh", "down": 10.0}),
            (SLURM_RUN, {"keep_away": 121.0}),
            remark="`grace` is the partition's GraceTime, and has no usual value; `kill_wait` is "
            "KillWait. The controller "
            "may take longer (14.4 s were seen for 6 s).",
        ),
        "slurm-timelimit": _preset(
            "Slurm, at the job's time limit",
            (SLURM_MAN, {"signal": "SIGTERM", "signals": "all", "notice": 0.0, "grace": 30.0}),
            (SLURM_RUN, {"wakes": True}),
            (ASSUMED, {"loss": "closed", "disk": "fresh", "down": 10.0}),
            (SLURM_RUN, {"keep_away": 121.0}),
            remark="`grace` is KillWait. Slurm brings such a job back only if somebody requeues "
            "it. For `--signal=USR1@60`: `signal: SIGUSR1` and `grace: 60s`.",
        ),
        "ray-drain": _preset(
            "Ray, a node that is drained with a deadline",
            (RAY_DRAIN, {"metadata": "none", "signal": "none", "signals": "all"}),
            (ASSUMED, {"notice": 120.0, "loss": "closed", "disk": "fresh", "down": 60.0}),
            remark="It has the times alone: Ray is told by `ray drain-node`, which is yours to "
            "call; no task is told by the emulator.",
        ),
        "sagemaker-spot": _preset(
            "SageMaker, managed Spot training",
            (SAGEMAKER, {"notice": 0.0, "signal": "SIGTERM", "grace": 120.0}),
            (ASSUMED, {"signals": "main", "loss": "closed", "disk": "fresh", "down": 60.0}),
            remark="The 120 s are those of a job that is stopped; none are promised for an "
            "interruption.",
        ),
        "power-loss": _preset(
            "A machine that loses power",
            (POWER, {"notice": 0.0, "signal": "none", "signals": "all", **_GONE}),
            (ASSUMED, _BACK),
        ),
    }
)
"""Every preset, by the name that `like` has."""
