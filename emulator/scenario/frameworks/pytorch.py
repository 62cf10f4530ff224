"""PyTorch: torch.distributed's `env://` variables and torchrun's PET_* (pure).

The variables are those of Kubeflow's PyTorchJob. torchrun takes the default of each of its options
from `PET_<option>`; what a command line says comes first.
Source: torch/distributed/run.py, torch/distributed/argparse_util.py (PyTorch 2.13).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from emulator.scenario.addresses import naming
from emulator.scenario.frameworks.spec import WORKER, Framework, Job, Member, Roles
from emulator.validation.fields import Model, Text

if TYPE_CHECKING:
    from emulator.scenario.schema import Scenario
    from emulator.scenario.sections import AnyElastic

MASTER = "master"
ROLES = Roles(names=(MASTER, WORKER), leaders=(MASTER,))
MODULES = ("torch.distributed.run", "torch.distributed.launch")
"""What `python -m` runs as torchrun does."""
C10D: Literal["c10d"] = "c10d"
STORE_TIMEOUT = 60
"""Seconds for which an agent waits for what another should have stored (DistStoreError)."""
UNSHARED = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
"""With `1`, the agents agree anew on the address of rank 0 whenever a task has joined or left.

Without it, since PyTorch 2.4, an agent that remains keeps the address and does not store it again,
so one that joins waits for it until it fails, and the others with it (seen with PyTorch 2.13).
Source: torch/distributed/elastic/rendezvous/dynamic_rendezvous.py, next_rendezvous().
"""

ConfName = Annotated[str, Field(pattern=r"^[a-z_]{1,100}$")]
ConfValue = Annotated[Text, Field(pattern=r"^[^,=\s]{1,200}$")]


class Elastic(Model):
    """An elastic job of torchrun, as with elasticPolicy of Kubeflow's PyTorchJob."""

    min: int | None = Field(strict=True, default=None, ge=1, examples=[1])
    """The least number of tasks with which it trains; default: all."""
    max: int | None = Field(strict=True, default=None, ge=1, examples=[4])
    """The most number of tasks with which it trains; default: all."""
    max_restarts: int | None = Field(strict=True, default=None, ge=0, examples=[3])
    """How often torchrun restarts its processes after a failure; its default is 0."""
    backend: Literal["c10d"] = C10D
    """The rendezvous of torchrun; there is no other."""
    conf: dict[ConfName, ConfValue] = Field({}, examples=[{"last_call_timeout": 5}])
    """Options of the rendezvous, such as `last_call_timeout`: torchrun's --rdzv-conf."""

    @property
    def rdzv_host(self) -> str | None:
        """Where the agents meet: nowhere else than at the first task."""
        return None

    @model_validator(mode="after")
    def _in_order(self) -> Elastic:
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min is {self.min}, but max is {self.max}")
        return self


@dataclass(frozen=True)
class Torchrun:
    """A command line of torchrun, as far as the rendezvous depends on it."""

    standalone: bool
    """Each task trains alone."""
    backend: str
    """As given by `--rdzv-backend`; empty: not given."""
    endpoint: str = ""
    """As given by `--rdzv-endpoint`, `host:port`; empty: not given."""


def torchrun(command: Sequence[str]) -> Torchrun | None:
    """Return what a command says to torchrun; None: it does not run torchrun.

    A word may be a script of a shell: `sh -c "torchrun ..."`.
    """
    words = " ".join(command).split()
    starts = [n for n, word in enumerate(words) if word.endswith("torchrun") or word in MODULES]
    if not starts:
        return None
    words = words[starts[0] + 1 :]
    options = [word.replace("_", "-") for word in words]
    # The value is the rest of the word, or the next one.
    given = [part for word in words for part in word.split("=", 1)]
    named = [part.replace("_", "-") for part in given]

    def value(option: str) -> str:
        at = named.index(option) + 1 if option in named else len(given)
        return given[at] if at < len(given) else ""

    return Torchrun("--standalone" in options, value("--rdzv-backend"), value("--rdzv-endpoint"))


def _environment(member: Member, members: Sequence[Member], job: Job) -> Mapping[str, str]:
    """Return the variables of a fixed number of tasks, or those of an elastic job."""
    everybody = ROLES.ranked(members)
    elastic = job.scenario.elastic
    if elastic is None:
        fixed = {
            **_env(member, everybody),
            **_static(member, everybody),
            "PET_NNODES": str(len(everybody)),
        }
        return _by_c10d(fixed, member, everybody, job) if _asks_for_c10d(job) else fixed
    least, most = elastic.min or len(everybody), elastic.max or len(everybody)
    variables = {
        # Without a master, a PyTorchJob has no fixed ranks.
        **(_env(member, everybody) if everybody[0].role == MASTER else {}),
        "PET_NPROC_PER_NODE": "1",
        "PET_NNODES": f"{least}:{most}",
        "PET_RDZV_BACKEND": elastic.backend,
        **_c10d(member, everybody, job, elastic.conf),
    }
    if elastic.max_restarts is not None:
        variables["PET_MAX_RESTARTS"] = str(elastic.max_restarts)
    return variables


def _env(member: Member, everybody: Sequence[Member]) -> dict[str, str]:
    """Return the variables that torch.distributed reads itself."""
    return {
        "MASTER_ADDR": everybody[0].host,
        "MASTER_PORT": str(everybody[0].port),
        "WORLD_SIZE": str(len(everybody)),
        "RANK": str(everybody.index(member)),
    }


def _static(member: Member, everybody: Sequence[Member]) -> dict[str, str]:
    """Return torchrun's variables for fixed ranks, and those that Lightning reads.

    Source: lightning/fabric/plugins/environments/lightning.py, node_rank().
    """
    rank = str(everybody.index(member))
    return {
        "PET_MASTER_ADDR": everybody[0].host,
        "PET_MASTER_PORT": str(everybody[0].port),
        "PET_NODE_RANK": rank,
        "PET_NPROC_PER_NODE": "1",
        "NODE_RANK": rank,
        "GROUP_RANK": rank,
    }


def _c10d(
    member: Member, everybody: Sequence[Member], job: Job, conf: Mapping[str, str]
) -> dict[str, str]:
    """Return where the agents meet: at worker 0, which holds the store, as in a PyTorchJob.

    Without an endpoint, each agent holds a store of its own on localhost and waits there alone.
    An agent sees by its host name whether it holds the store. Where all have one address, as with
    processes, the first to start would hold it, so it is said.
    """
    host = next((other for other in everybody if other.role == WORKER), everybody[0])
    local, said = shared_address(member, everybody, host)
    variables = {"PET_RDZV_ENDPOINT": host.address, "PET_RDZV_ID": job.run_id, **local}
    if options := in_conf({**said, **conf}):
        variables["PET_RDZV_CONF"] = options
    return variables


def shared_address(
    member: Member, members: Sequence[Member], host: Member | None
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return what an agent must be told where several tasks have one address.

    Those are variables, and options of the rendezvous, whose store `host` holds.
    """
    if len({other.host for other in members}) == len(members):
        return {}, {}
    return {"PET_LOCAL_ADDR": member.host}, {"is_host": str(int(member == host))}


def in_conf(options: Mapping[str, str]) -> str:
    """Return options of the rendezvous as torchrun reads them."""
    return ",".join(f"{key}={value}" for key, value in options.items())


def _by_c10d(
    fixed: Mapping[str, str], member: Member, everybody: Sequence[Member], job: Job
) -> dict[str, str]:
    """Return the variables for a command that asks for c10d by itself, with all tasks.

    torchrun warns of a node rank, which c10d gives out itself.
    """
    unused = {"PET_NODE_RANK", "NODE_RANK", "GROUP_RANK"}
    kept = {name: value for name, value in fixed.items() if name not in unused}
    return {**kept, **_c10d(member, everybody, job, {})}


def _asks_for_c10d(job: Job) -> bool:
    found = torchrun(job.command)
    if found is None or found.standalone:
        return False
    return (found.backend or job.env.get("PET_RDZV_BACKEND")) == C10D


# --- Warnings -------------------------------------------------------------------------------------


def _warnings(scenario: Scenario) -> Iterator[str]:
    jobs = [Job(scenario, role, run_id="") for role in scenario.in_training.values()]
    found = [launch for job in jobs if (launch := torchrun(job.command))]
    count = sum(spec.replicas for spec in scenario.in_training.values())
    rules = scenario.rules
    elastic = scenario.elastic or (rules.elastic if rules else None)
    if elastic:
        yield from _elastic_arguments(scenario, elastic, jobs)
        if not found and all(_is_python(job.command) for job in jobs):
            yield "elastic: no command runs torchrun, which reads its variables"
    yield from _unanswered(scenario, jobs, elastic)
    if count > 1 and any(launch.standalone for launch in found):
        yield f"torchrun --standalone: each task waits alone for the {count} of PET_NNODES"
    fixed = any(launch.backend != C10D and not launch.standalone for launch in found)
    loses = bool(scenario.faults) or scenario.policy_of(WORKER) != "never"
    if count > 1 and fixed and loses and not elastic:
        key = f"{rules.key}.elastic" if rules else "elastic"
        yield (
            "torchrun without `elastic`: once a task is lost, the others end too, within "
            f"{STORE_TIMEOUT} s; `{key}: {{min: 1, max: {count}, max_restarts: 3}}` survives it, "
            "with `restart: on-failure`"
        )


def _unanswered(
    scenario: Scenario, jobs: Sequence[Job], elastic: AnyElastic | None
) -> Iterator[str]:
    """Yield a warning for each endpoint of a rendezvous at which nothing of the job answers."""
    names, roles = naming(scenario), scenario.cluster.items()
    tasks = [(role, index) for role, spec in roles for index in range(spec.replicas)]
    known = {f"{role}-{index}" for role, index in tasks} | scenario.helpers.keys()
    if names:
        known |= {names.place(role, index).pod for role, index in tasks}
    given = [elastic.rdzv_host] if elastic and elastic.rdzv_host else []
    for job in jobs:
        launch = torchrun(job.command)
        if launch is not None and not launch.standalone:
            given.append(launch.endpoint or job.env.get("PET_RDZV_ENDPOINT", ""))
    for host in dict.fromkeys(_own_host(one) for one in given):
        if host and host not in known:
            yield (
                f"no task and no helper is called {host}, where torchrun's rendezvous is: leave "
                "endpoint and backend out, and worker 0 holds it (c10d); or add a helper, "
                f"`helpers: {{{host}: {{image: .., command: [..]}}}}`"
            )


def _own_host(endpoint: str) -> str:
    """Return the name of an endpoint if it is one of the cluster's own; else nothing."""
    host = endpoint.partition(":")[0]
    name, _, domain = host.partition(".")
    outside = bool(domain) and "svc" not in domain.split(".")
    is_name = re.fullmatch(r"[A-Za-z][A-Za-z0-9-]*", name) is not None  # no address, no value
    return name if is_name and not outside and name != "localhost" else ""


def _elastic_arguments(
    scenario: Scenario, elastic: AnyElastic, jobs: Sequence[Job]
) -> Iterator[str]:
    if not elastic.max_restarts:
        yield (
            "elastic without max_restarts: torchrun ends with its processes when another task is "
            "lost; `max_restarts: 3` lets it start them again"
        )
    if any(job.env.get(UNSHARED) != "1" for job in jobs):
        yield (
            f"elastic: a task that comes back is not told where rank 0 is, and all end after "
            f"{STORE_TIMEOUT} s (PyTorch 2.4 to 2.13); `env: {{{UNSHARED}: 1}}` lets it join"
        )
    if scenario.policy_of(WORKER) == "never":
        yield "elastic with restart.policy never: the job fails with the first task that fails"
    elif scenario.restart.scope == "job":
        yield "elastic with restart.scope job: the remaining tasks are stopped instead of used"


def _is_python(command: Sequence[str]) -> bool:
    return bool(command) and command[0].rpartition("/")[2].startswith("python")


PYTORCH = Framework(
    "pytorch",
    _environment,
    roles=ROLES,
    image="pytorch",
    overridable=frozenset(
        {
            "PET_NPROC_PER_NODE",
            "PET_RDZV_ENDPOINT",
            "PET_RDZV_ID",
            "PET_RDZV_CONF",
            "PET_LOCAL_ADDR",
        }
    ),
    preload=("torch",),
    warnings=_warnings,
)
