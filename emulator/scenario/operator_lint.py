"""Traps of Kubeflow's training operator: what it accepts, and what rarely does what is meant.

`emulate plan` warns of them (pure). docs/kubeflow.md lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from emulator.faults.spec import FaultSpec, matches
from emulator.scenario.frameworks.pytorch import torchrun
from emulator.scenario.frameworks.spec import WORKER, Job

if TYPE_CHECKING:
    from emulator.scenario.operator import Operator
    from emulator.scenario.schema import Scenario


@dataclass(frozen=True)
class Trap:
    """One trap."""

    name: str
    applies: Callable[[Scenario, Operator], bool]
    reason: str
    """What happens on a cluster, and why."""
    instead: str
    """What to write instead."""
    here: str = ""
    """What the emulator does instead."""
    reproduced: bool = True
    """Whether it does as the operator if it is to reproduce the faults of that."""

    def warning(self, *, quirks: bool) -> str:
        """Return the warning; `quirks`: the faults of the operator are reproduced."""
        text = f"{self.reason}; {self.instead}"
        if not self.here or (quirks and self.reproduced):
            return text
        more = "; --operator-quirks does as the operator" if self.reproduced else ""
        return f"{text} ({self.here}{more})"


def lint(scenario: Scenario) -> Iterator[str]:
    """Yield a warning for each trap that a scenario is in; none without `operator`."""
    operator = scenario.operator
    if operator is not None:
        yield from (
            trap.warning(quirks=operator.quirks)
            for trap in TRAPS
            if trap.applies(scenario, operator)
        )


# --- TFJob ----------------------------------------------------------------------------------------


def _evaluator_beside_servers(scenario: Scenario, operator: Operator) -> bool:
    # The sparse TF_CONFIG lists none.
    return {"evaluator", "ps"} <= scenario.in_training.keys() and not operator.dynamic_worker


def _master_of_tensorflow(scenario: Scenario, operator: Operator) -> bool:
    return operator.kind == "TFJob" and "master" in scenario.in_training


def _by_exit_code(scenario: Scenario, operator: Operator) -> bool:
    return any(operator.policy_of(role) == "exit-code" for role in scenario.in_training)


def _exit_code_of_tensorflow(scenario: Scenario, operator: Operator) -> bool:
    return operator.kind == "TFJob" and _by_exit_code(scenario, operator)


def _leader_for_ever(scenario: Scenario, operator: Operator) -> bool:
    roles = scenario.in_training
    deciding = roles.keys() & {"chief", "master"} or roles.keys() & {WORKER}
    return any(operator.policy_of(role) == "always" for role in deciding)


def _one_replica(scenario: Scenario, operator: Operator) -> bool:
    return operator.kind == "TFJob" and _count(scenario) == 1


def _other_containers(scenario: Scenario, operator: Operator) -> bool:
    roles = scenario.in_training.values()
    several = _count(scenario) > 1
    return (
        operator.kind == "TFJob" and several and any(role.init or role.sidecars for role in roles)
    )


def _sparse_servers(scenario: Scenario, operator: Operator) -> bool:
    servers = scenario.in_training.get("ps")
    return operator.dynamic_worker and servers is not None and servers.replicas > 1


def _servers_are_left(scenario: Scenario, operator: Operator) -> bool:
    return operator.clean_pods == "none" and "ps" in scenario.in_training


def _deleted_pods(scenario: Scenario, operator: Operator) -> bool:
    lasting = [role for role in scenario.in_training if not _may_leave(role, operator)]
    return operator.kind == "TFJob" and any(
        fault.replaces_target for fault in _faults_on(scenario, lasting)
    )


def _never_restarted(scenario: Scenario, operator: Operator) -> bool:
    roles = [
        role
        for role in scenario.in_training
        if operator.policy_of(role) == "never" and not _may_leave(role, operator)
    ]
    is_meant = scenario.expect.outcome == "failed"
    return not is_meant and any(fault.ends_target for fault in _faults_on(scenario, roles))


def _files_are_kept(scenario: Scenario, operator: Operator) -> bool:
    roles = [
        name
        for name, role in scenario.in_training.items()
        if operator.policy_of(name) in ("on-failure", "always")
        and not (role.mounts or scenario.mounts)
    ]
    return any(
        fault.ends_target and not fault.replaces_target for fault in _faults_on(scenario, roles)
    )


def _faults_on(scenario: Scenario, roles: Sequence[str]) -> Iterator[FaultSpec]:
    """Yield the faults that strike a task of these roles."""
    tasks = [f"{role}-{n}" for role in roles for n in range(scenario.cluster[role].replicas)]
    for fault in scenario.faults:
        if isinstance(fault, FaultSpec) and matches(fault.target, tasks):
            yield fault


def _may_leave(role: str, operator: Operator) -> bool:
    return operator.dynamic_worker and role == WORKER


def _tfjob(scenario: Scenario, operator: Operator) -> bool:
    return operator.kind == "TFJob"


# --- PyTorchJob -----------------------------------------------------------------------------------


def _rank_of_pods(scenario: Scenario, operator: Operator) -> bool:
    several = isinstance(operator.nproc_per_node, int) and operator.nproc_per_node > 1
    return several and "master" in scenario.in_training and not all(_torchruns(scenario))


def _one_process_a_core(scenario: Scenario, operator: Operator) -> bool:
    elastic = operator.elastic
    if operator.kind != "PyTorchJob" or (elastic is not None and elastic.nproc_per_node):
        return False
    has_gpu = any(role.gpus.count for role in scenario.in_training.values())
    automatic = operator.nproc_per_node == "cpu" or (
        operator.nproc_per_node == "auto" and not has_gpu
    )
    return automatic and any(_torchruns(scenario)) and not all(_says_how_many(scenario))


def _torchruns(scenario: Scenario) -> Iterator[bool]:
    """Yield for each role whether its command runs torchrun."""
    for role in scenario.in_training.values():
        yield torchrun(Job(scenario, role, run_id="").command) is not None


def _says_how_many(scenario: Scenario) -> Iterator[bool]:
    """Yield for each role whether its command has torchrun's number of processes."""
    for role in scenario.in_training.values():
        words = " ".join(Job(scenario, role, run_id="").command).replace("_", "-")
        yield "--nproc-per-node" in words


# --- Both -----------------------------------------------------------------------------------------


def _count(scenario: Scenario) -> int:
    return sum(spec.replicas for spec in scenario.in_training.values())


def _limit_by_exit_code(scenario: Scenario, operator: Operator) -> bool:
    # A limit of 0 does not count restarts.
    return bool(operator.backoff_limit) and _by_exit_code(scenario, operator)


def _kept_pods_and_limits(scenario: Scenario, operator: Operator) -> bool:
    limited = operator.backoff_limit is not None or operator.active_deadline is not None
    return limited and operator.clean_pods != "all"


def _late_deadline(scenario: Scenario, operator: Operator) -> bool:
    return operator.active_deadline is not None


TRAPS: tuple[Trap, ...] = (
    Trap(
        "evaluator in TF_CONFIG",
        _evaluator_beside_servers,
        "TF_CONFIG lists the evaluator, and ParameterServerStrategy waits for ever for its server, "
        "which an evaluator does not start",
        "evaluate in a job of its own, or let the program take `evaluator` out of the cluster "
        "before it makes the strategy",
    ),
    Trap(
        "master in TF_CONFIG",
        _master_of_tensorflow,
        "the strategies of TensorFlow 2 refuse a TF_CONFIG with the type master",
        "write Chief instead of Master",
    ),
    Trap(
        "ExitCode and exit code 42",
        _exit_code_of_tensorflow,
        "ExitCode takes exit codes below 128 for permanent, and PreemptionCheckpointHandler ends "
        "with 42 when it has saved: a job that saved well fails",
        "write OnFailure, or give its TerminationConfig an exit_fn that ends with 143",
    ),
    Trap(
        "ExitCode and backoffLimit",
        _limit_by_exit_code,
        "backoffLimit is never reached with ExitCode: each restart is a new pod, which begins to "
        "count at 0 (kubeflow/trainer#2045)",
        "write OnFailure, or limit the time by activeDeadlineSeconds",
        here="here it is counted over all pods",
    ),
    Trap(
        "cleanPodPolicy at a limit",
        _kept_pods_and_limits,
        "at backoffLimit or activeDeadlineSeconds all pods are deleted with their logs, whatever "
        "cleanPodPolicy says (kubeflow/trainer#3419)",
        "collect logs outside of the pods, or write `cleanPodPolicy: All`, which says the same",
        here="here cleanPodPolicy applies",
    ),
    Trap(
        "activeDeadlineSeconds without an event",
        _late_deadline,
        "the operator looks at activeDeadlineSeconds only when something happens to the job or a "
        "pod, so a job that hangs runs on",
        "end the program itself after its time, such as with `timeout 3600 python train.py`",
        here="here the job fails at once",
    ),
    Trap(
        "restartPolicy Always",
        _leader_for_ever,
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
        reproduced=False,
    ),
    Trap(
        "one replica",
        _one_replica,
        "a job of one replica gets no TF_CONFIG, so a program that reads it fails",
        'read it with `os.environ.get("TF_CONFIG")`, or add a replica',
    ),
    Trap(
        "containers beside tensorflow",
        _other_containers,
        "the operator gives TF_CONFIG to the container named tensorflow alone: init containers and "
        "side-cars have none",
        "give them what they need as variables of their own",
    ),
    Trap(
        "sparse TF_CONFIG of parameter servers",
        _sparse_servers,
        "with enableDynamicWorker a parameter server gets a list of one address, its own, but "
        "keeps its index: the server of ps-1 finds no such task",
        "use one parameter server, or let the program take index 0 where it is `ps`",
    ),
    Trap(
        "parameter servers that are left",
        _servers_are_left,
        "parameter servers never end by themselves, and cleanPodPolicy None, the default, leaves "
        "them running when the job has ended",
        "write `cleanPodPolicy: Running`",
        here="here they are stopped once nothing else runs",
        reproduced=False,
    ),
    Trap(
        "a preempted pod of a TFJob",
        _deleted_pods,
        "a pod that is deleted while it runs, as when its node is preempted, counts as failed "
        "until it is gone, and that can fail the TFJob whatever its restartPolicy "
        "(kubeflow/trainer#2124)",
        "save checkpoints outside of the pods, and submit the job again when it has failed",
        here="here the pod is made again by its restartPolicy",
    ),
    Trap(
        "the end of TFJob",
        _tfjob,
        "Trainer v2, which follows the training operator, has no TFJob and makes no TF_CONFIG",
        "a TrainJob has to set it itself: `emulate export --to trainjob` writes one",
    ),
    Trap(
        "RANK of pods",
        _rank_of_pods,
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
