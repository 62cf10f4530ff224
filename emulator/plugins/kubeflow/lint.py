"""Traps of Kubeflow's training operator: what it accepts, and what rarely does what is meant.

`emulate plan` warns of them (pure). docs/kubeflow-traps.md lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

from emulator.faults.spec import FaultSpec, matches
from emulator.plugins.kubeflow.section import LEADERS, Operator, operator_of
from emulator.scenario.frameworks.pytorch import torchrun
from emulator.scenario.frameworks.spec import WORKER, Job

if TYPE_CHECKING:
    from emulator.scenario.restart import RestartPolicy
    from emulator.scenario.schema import Scenario


class Facts:
    """What the conditions of the traps are about."""

    def __init__(self, scenario: Scenario, operator: Operator) -> None:
        self.scenario, self.operator = scenario, operator
        self.specs = scenario.in_training
        self.roles = self.specs.keys()
        self.is_tfjob = operator.kind == "TFJob"
        self.replicas = sum(spec.replicas for spec in self.specs.values())
        commands = [Job(scenario, spec, run_id="").command for spec in self.specs.values()]
        self.by_torchrun = [" ".join(words) for words in commands if torchrun(words) is not None]
        """The commands that run torchrun."""

    def having(self, *policies: RestartPolicy) -> Set[str]:
        """Return the roles that have one of these restart policies."""
        return {role for role in self.roles if self.operator.policy_of(role) in policies}

    @property
    def deciding(self) -> Set[str]:
        """The roles of which the job waits for the success."""
        return self.roles & {*LEADERS} or self.roles & {WORKER}

    @property
    def lasting(self) -> Set[str]:
        """The roles of which no task may leave."""
        return self.roles - ({WORKER} if self.operator.dynamic_worker else set())

    def faults_on(self, roles: Set[str]) -> Iterator[FaultSpec]:
        """Yield the faults that strike a task of these roles."""
        tasks = [f"{role}-{n}" for role in roles for n in range(self.specs[role].replicas)]
        for fault in self.scenario.faults:
            if isinstance(fault, FaultSpec) and matches(fault.target, tasks):
                yield fault


@dataclass(frozen=True)
class Trap:
    """One trap."""

    name: str
    applies: Callable[[Facts], object]
    reason: str
    """What happens on a cluster, and why."""
    instead: str
    """What to write instead."""
    here: str = ""
    """What the emulator does instead."""

    @property
    def warning(self) -> str:
        """The warning."""
        return f"{self.reason}; {self.instead}" + (f" ({self.here})" if self.here else "")


def lint(scenario: Scenario) -> Iterator[str]:
    """Yield a warning for each trap that a scenario is in; none without `operator`."""
    if (operator := operator_of(scenario)) is not None:
        facts = Facts(scenario, operator)
        yield from (trap.warning for trap in TRAPS if trap.applies(facts))


def _never_restarted(job: Facts) -> bool:
    is_meant = job.scenario.expect.outcome == "failed"
    faults = job.faults_on(job.lasting & job.having("never"))
    return not is_meant and any(fault.ends_target for fault in faults)


def _files_are_kept(job: Facts) -> bool:
    roles = {role for role, spec in job.specs.items() if not (spec.mounts or job.scenario.mounts)}
    faults = job.faults_on(roles & job.having("on-failure", "always"))
    return any(fault.ends_target and not fault.replaces_target for fault in faults)


def _one_process_a_core(job: Facts) -> bool:
    elastic = job.operator.elastic
    if job.is_tfjob or (elastic is not None and elastic.nproc_per_node):
        return False
    has_gpu = any(spec.gpus.count for spec in job.specs.values())
    automatic = ("cpu",) if has_gpu else ("cpu", "auto")
    says = ["nproc-per-node" in words.replace("_", "-") for words in job.by_torchrun]
    return job.operator.nproc_per_node in automatic and not all(says)


TRAPS: tuple[Trap, ...] = (
    Trap(
        "evaluator in TF_CONFIG",
        lambda job: {"evaluator", "ps"} <= job.roles and not job.operator.dynamic_worker,
        "TF_CONFIG lists the evaluator, and ParameterServerStrategy waits for ever for its server, "
        "which an evaluator does not start",
        "evaluate in a job of its own, or let the program take `evaluator` out of the cluster "
        "before it makes the strategy",
    ),
    Trap(
        "master in TF_CONFIG",
        lambda job: job.is_tfjob and "master" in job.roles,
        "the strategies of TensorFlow 2 refuse a TF_CONFIG with the type master",
        "write Chief instead of Master",
    ),
    Trap(
        "ExitCode and exit code 42",
        lambda job: job.is_tfjob and job.having("exit-code"),
        "ExitCode takes exit codes below 128 for permanent, and PreemptionCheckpointHandler ends "
        "with 42 when it has saved: a job that saved well fails",
        "write OnFailure, or give its TerminationConfig an exit_fn that ends with 143",
    ),
    Trap(
        "ExitCode and backoffLimit",
        # A limit of 0 does not count restarts.
        lambda job: job.operator.backoff_limit and job.having("exit-code"),
        "backoffLimit is never reached with ExitCode: each restart is a new pod, which begins to "
        "count at 0 (kubeflow/trainer#2045)",
        "write OnFailure, or limit the time by activeDeadlineSeconds",
        here="here it is counted over all pods",
    ),
    Trap(
        "cleanPodPolicy at a limit",
        lambda job: (
            {job.operator.backoff_limit, job.operator.active_deadline} != {None}
            and job.operator.clean_pods != "all"
        ),
        "at backoffLimit or activeDeadlineSeconds all pods are deleted with their logs, whatever "
        "cleanPodPolicy says (kubeflow/trainer#3419)",
        "collect logs outside of the pods, or write `cleanPodPolicy: All`, which says the same",
        here="here cleanPodPolicy applies",
    ),
    Trap(
        "activeDeadlineSeconds without an event",
        lambda job: job.operator.active_deadline is not None,
        "the operator looks at activeDeadlineSeconds only when something happens to the job or a "
        "pod, so a job that hangs runs on",
        "end the program itself after its time, such as with `timeout 3600 python train.py`",
        here="here the job fails at once",
    ),
    Trap(
        "restartPolicy Always",
        lambda job: job.deciding & job.having("always"),
        "Always starts a container again also when it ended with 0, so its pod never succeeds, "
        "and neither does the job that waits for it",
        "write OnFailure",
    ),
    Trap(
        "restartPolicy Never",
        _never_restarted,
        "with restartPolicy Never, the default of a TFJob, the first pod that fails or is "
        "preempted fails the job",
        "write OnFailure, or expect `outcome: failed`",
    ),
    Trap(
        "files outside of volumes",
        _files_are_kept,
        "OnFailure and Always start a new container in the pod, without what the one before has "
        "written outside of its volumes",
        "save checkpoints to a volume",
        here="here a restart in place keeps its files",
    ),
    Trap(
        "one replica",
        lambda job: job.is_tfjob and job.replicas == 1,
        "a job of one replica gets no TF_CONFIG, so a program that reads it fails",
        'read it with `os.environ.get("TF_CONFIG")`, or add a replica',
    ),
    Trap(
        "containers beside tensorflow",
        lambda job: (
            job.is_tfjob
            and job.replicas > 1
            and any(spec.init or spec.sidecars for spec in job.specs.values())
        ),
        "the operator gives TF_CONFIG to the container named tensorflow alone: init containers and "
        "side-cars have none",
        "give them what they need as variables of their own",
    ),
    Trap(
        "sparse TF_CONFIG of parameter servers",
        lambda job: (
            job.operator.dynamic_worker and "ps" in job.roles and job.specs["ps"].replicas > 1
        ),
        "with enableDynamicWorker a parameter server gets a list of one address, its own, but "
        "keeps its index: the server of ps-1 finds no such task",
        "use one parameter server, or let the program take index 0 where it is `ps`",
    ),
    Trap(
        "parameter servers that are left",
        lambda job: "ps" in job.roles and job.operator.clean_pods == "none",
        "parameter servers never end by themselves, and cleanPodPolicy None, the default, leaves "
        "them running when the job has ended",
        "write `cleanPodPolicy: Running`",
        here="here they are stopped once nothing else runs",
    ),
    Trap(
        "a preempted pod of a TFJob",
        lambda job: (
            job.is_tfjob and any(fault.replaces_target for fault in job.faults_on(job.lasting))
        ),
        "a pod that is deleted while it runs, as when its node is preempted, counts as failed "
        "until it is gone, and that can fail the TFJob whatever its restartPolicy "
        "(kubeflow/trainer#2124)",
        "save checkpoints outside of the pods, and submit the job again when it has failed",
        here="here the pod is made again by its restartPolicy",
    ),
    Trap(
        "the end of TFJob",
        lambda job: job.is_tfjob,
        "Trainer v2, which follows the training operator, has no TFJob and makes no TF_CONFIG",
        "a TrainJob has to set it itself",
    ),
    Trap(
        "RANK of pods",
        lambda job: (
            job.operator.nproc_per_node not in ("auto", "cpu", "gpu", 1)
            and "master" in job.roles
            and len(job.by_torchrun) < len(job.roles)
        ),
        "RANK is the number of the pod, while WORLD_SIZE counts nprocPerNode processes in each: "
        "init_process_group() waits for ranks that nobody has",
        "start the program by torchrun, or leave nprocPerNode out",
    ),
    Trap(
        "a process for each core",
        _one_process_a_core,
        "without nprocPerNode, torchrun starts a process for each core of the machine, not of the "
        "pod, where there is no GPU",
        'write `nprocPerNode: "1"`',
    ),
)
"""Each is from the source of kubeflow/training-operator v1.9.0, or from the issue that it names."""
