"""TrainJobs, JobSets and indexed Jobs as scenarios: names, variables, patches, and mistakes.

The expected variables follow the rules of kubeflow/trainer 2.3.0, written out by hand.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from emulator.errors import ScenarioError
from emulator.planning.plan import Plan
from emulator.planning.planner import make_plan
from emulator.scenario.assembly import as_text, format_of
from emulator.scenario.loader import parse
from emulator.scenario.manifests import Conversion, Options, read_documents
from tests.scenario.plans import NAMED

STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
PATCHED: dict[str, Any] = {
    "volumes": [{"name": "d", "emptyDir": {}}],
    "containers": [{"name": "node", "volumeMounts": [{"name": "d", "mountPath": "/d"}]}],
}


def train_job(runtime: str = "torch-distributed", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "mnist"},
        "spec": {
            "runtimeRef": {"name": runtime},
            "trainer": {"image": "i", "command": ["python", "a.py"], "numNodes": 2},
            **spec,
        },
    }


def job_of(name: str = "node", step: str = "trainer", **spec: Any) -> dict[str, Any]:
    """Return a replicated job with a container of its own name."""
    pods = {"template": {"spec": {"containers": [{"name": name, "image": "i"}]}}}
    labels = {"metadata": {"labels": {STEP: step}}} if step else {}
    return {"name": name, "template": {**labels, "spec": {**pods, **spec}}}


def job_set(*jobs: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "set"},
        "spec": {"replicatedJobs": list(jobs), **spec},
    }


def runtime(*jobs: dict[str, Any], **policy: Any) -> dict[str, Any]:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "own"},
        "spec": {"mlPolicy": policy, "template": {"spec": {"replicatedJobs": list(jobs)}}},
    }


def indexed(**spec: Any) -> dict[str, Any]:
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i"}]}
    given = {"completionMode": "Indexed", "completions": 2, "parallelism": 2}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "pi"},
        "spec": {**given, "template": {"spec": {**pod, **spec.pop("pod", {})}}, **spec},
    }


def converted(*documents: dict[str, Any]) -> Conversion:
    read = read_documents(yaml.dump_all(documents, sort_keys=False), "job.yaml")
    return format_of(read, "job.yaml").convert(read, Options())


def planned(*documents: dict[str, Any]) -> Plan:
    return make_plan(parse(as_text(converted(*documents).scenario)), "x-1", NAMED)


def variables(made: Plan, task: str) -> dict[str, str]:
    """Return the variables of a task that are not the emulator's."""
    return without_ours(made.task(task).env)


def without_ours(env: Mapping[str, str]) -> dict[str, str]:
    """Return variables without those of the emulator."""
    ours = ("EMULATOR_", "PYTHONUNBUFFERED")
    return {k: v for k, v in env.items() if not k.startswith(ours)}


def refused(*documents: dict[str, Any]) -> list[str]:
    with pytest.raises(ScenarioError) as error:
        converted(*documents)
    return [str(problem) for problem in error.value.problems]


# --- Variables ------------------------------------------------------------------------------------

TORCH = {
    "PET_NNODES": "2",
    "PET_NPROC_PER_NODE": "1",
    "PET_NODE_RANK": "1",
    "PET_MASTER_ADDR": "mnist-node-0-0.mnist",
    "PET_MASTER_PORT": "29500",
    "JOB_COMPLETION_INDEX": "1",
}


@pytest.mark.parametrize(
    ("name", "trainer", "known"),
    [
        ("torch-distributed", {}, TORCH),
        ("torch-distributed", {"numProcPerNode": 4}, {**TORCH, "PET_NPROC_PER_NODE": "4"}),
        ("torch-distributed", {"numProcPerNode": "gpu"}, {**TORCH, "PET_NPROC_PER_NODE": "gpu"}),
        (
            "torch-distributed",
            {"resourcesPerNode": {"limits": {"cpu": "2500m"}}},
            {**TORCH, "PET_NPROC_PER_NODE": "3"},
        ),
        (
            "torch-distributed",
            {"resourcesPerNode": {"requests": {"cpu": 2}, "limits": {"cpu": 3}}},
            {**TORCH, "PET_NPROC_PER_NODE": "2"},
        ),
        (
            "torch-distributed",
            {"resourcesPerNode": {"limits": {"cpu": 3, "nvidia.com/gpu": 2}}},
            {**TORCH, "PET_NPROC_PER_NODE": "auto"},
        ),
        (
            "jax-distributed",
            {},
            {
                "JAX_NUM_PROCESSES": "2",
                "JAX_PROCESS_ID": "1",
                "JAX_COORDINATOR_ADDRESS": "mnist-node-0-0.mnist:29500",
                "JOB_COMPLETION_INDEX": "1",
            },
        ),
        (
            "xgboost-distributed",
            {"resourcesPerNode": {"limits": {"nvidia.com/gpu": 2}}},
            {
                "DMLC_TRACKER_URI": "mnist-node-0-0.mnist",
                "DMLC_TRACKER_PORT": "29500",
                "DMLC_TASK_ID": "1",
                "DMLC_NUM_WORKER": "4",
                "JOB_COMPLETION_INDEX": "1",
            },
        ),
        (
            "jax-distributed",
            {"env": [{"name": "JAX_NUM_PROCESSES", "value": "4"}]},
            {
                "JAX_NUM_PROCESSES": "4",
                "JAX_PROCESS_ID": "1",
                "JAX_COORDINATOR_ADDRESS": "mnist-node-0-0.mnist:29500",
                "JOB_COMPLETION_INDEX": "1",
            },
        ),
    ],
)
def test_a_runtime_sets_the_variables_of_its_policy(
    name: str, trainer: dict[str, Any], known: dict[str, str]
) -> None:
    job = train_job(name)
    job["spec"]["trainer"] |= trainer
    found = converted(job)
    text = as_text(found.scenario).replace("gpus: 2", "gpus: 0")  # the planner's site has none
    made = make_plan(parse(text), "x-1", NAMED)
    assert variables(made, "node-1") == known
    assert made.task("node-1").host == "mnist-node-0-1.mnist"
    assert made.task("node-1").aliases == ("mnist-node-0-1", "mnist-node-0-1.mnist")


def test_a_runtime_sets_no_variables_where_the_job_has_no_trainer() -> None:
    own = runtime(job_of(), torch={}, numNodes=2)
    job = train_job("own")
    del job["spec"]["trainer"]
    assert variables(planned(own, job), "node-1") == {"JOB_COMPLETION_INDEX": "1"}


def test_the_resources_of_the_job_count_and_not_those_of_its_runtime() -> None:
    one = job_of()
    (container,) = one["template"]["spec"]["template"]["spec"]["containers"]
    container["resources"] = {"limits": {"nvidia.com/gpu": 2}}
    job = train_job("own")
    text = as_text(converted(runtime(one, torch={}), job).scenario)
    assert "PET_NPROC_PER_NODE: auto" in text
    job["spec"]["trainer"]["resourcesPerNode"] = {"requests": {"cpu": 4}}
    text = as_text(converted(runtime(one, torch={}), job).scenario)
    assert "PET_NPROC_PER_NODE: '4'" in text


@pytest.mark.parametrize(("given", "pods"), [({}, 3), ({"numNodes": 2}, 2)])
def test_a_runtime_without_a_policy_has_its_own_pods_and_sets_no_variables(
    given: dict[str, int], pods: int
) -> None:
    own = runtime(job_of(parallelism=3, completions=3))
    del own["spec"]["mlPolicy"]
    env = [{"name": "LR", "value": "0.1"}]
    made = planned(own, train_job("own", trainer={"env": env, **given}))
    assert len(made.tasks) == pods
    assert variables(made, "node-1") == {"LR": "0.1", "JOB_COMPLETION_INDEX": "1"}


def test_only_a_job_with_a_trainer_needs_the_label_of_the_training() -> None:
    own = runtime(job_of(step=""))
    (problem,) = refused(own, train_job("own"))
    assert "replicatedJobs: none has the label" in problem
    job = train_job("own")
    del job["spec"]["trainer"]
    assert len(planned(own, job).tasks) == 1


def test_only_the_container_node_gets_them() -> None:
    one = job_of()
    pod = one["template"]["spec"]["template"]["spec"]
    pod["containers"].insert(0, {"name": "logs", "image": "i"})
    pod["initContainers"] = [{"name": "check", "image": "i"}]
    task = planned(runtime(one, torch={}), train_job("own")).task("node-0")
    assert "PET_NNODES" in task.env
    assert ["PET_NNODES" in step.env for step in task.init] == [False]


def test_names_of_tasks_become_values_that_other_engines_have_too() -> None:
    job = train_job()
    job["spec"]["trainer"]["args"] = ["$(PET_MASTER_ADDR):29500", "$(PET_NODE_RANK)", "$HOME"]
    program = converted(job).scenario["program"]
    assert program["command"][2:] == ["${address.node-0}", "${index}", "$HOME"]
    assert program["env"]["PET_MASTER_PORT"] == "${port.node-0}"


# --- JobSets and Jobs -----------------------------------------------------------------------------


def test_each_replica_of_a_job_set_is_a_role() -> None:
    made = planned(job_set({**job_of("a", "", parallelism=2), "replicas": 2}, job_of("b", "")))
    assert [(t.name, t.host) for t in made.tasks] == [
        ("a-0-0", "set-a-0-0.set"),
        ("a-0-1", "set-a-0-1.set"),
        ("a-1-0", "set-a-1-0.set"),
        ("a-1-1", "set-a-1-1.set"),
        ("b-0-0", "set-b-0-0.set"),
    ]


FAIL_JOB = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]}


@pytest.mark.parametrize(
    ("job", "known"),
    [
        ({}, {"restart": "on-failure", "backoff_limit": 6}),
        ({"backoffLimit": 0, "pod": {"restartPolicy": "Never"}}, {"backoff_limit": 0}),
        ({"activeDeadlineSeconds": 90}, {"active_deadline": "90s"}),
        ({"podReplacementPolicy": "Failed"}, {"pod_replacement": "failed"}),
        (
            {"pod": {"restartPolicy": "Never"}, "backoffLimitPerIndex": 1, "maxFailedIndexes": 2},
            {"restart": "never", "backoff_limit_per_index": 1, "max_failed_indexes": 2},
        ),
        (
            {"pod": {"restartPolicy": "Never"}, "podFailurePolicy": {"rules": [FAIL_JOB]}},
            {"pod_failure": [{"action": "fail-job", "on_conditions": ["DisruptionTarget"]}]},
        ),
        (
            {"successPolicy": {"rules": [{"succeededIndexes": "0,2", "succeededCount": 1}]}},
            {"success": [{"indexes": "0,2", "count": 1}]},
        ),
    ],
)
def test_the_rules_of_a_job_are_those_of_its_role(
    job: dict[str, Any], known: dict[str, Any]
) -> None:
    one = job_of("a", "", **{key: value for key, value in job.items() if key != "pod"})
    one["template"]["spec"]["template"]["spec"] |= job.get("pod", {})
    found = converted(job_set(one))
    rules = found.scenario["jobset"]["jobs"]["a"]
    assert rules.items() >= known.items()
    assert found.notes == ()
    assert parse(as_text(found.scenario)).jobset is not None


def test_the_policies_of_a_jobset_name_the_roles_of_its_jobs() -> None:
    rule = {
        "action": "RestartJobSetAndIgnoreMaxRestarts",
        "onJobFailureReasons": ["PodFailurePolicy"],
        "targetReplicatedJobs": ["a"],
    }
    jobs = ({**job_of("a", ""), "replicas": 2}, job_of("b", ""))
    failure = {"maxRestarts": 3, "restartStrategy": "BlockingRecreate", "rules": [rule]}
    success = {"operator": "Any", "targetReplicatedJobs": ["b"]}
    found = converted(job_set(*jobs, failurePolicy=failure, successPolicy=success))
    section = found.scenario["jobset"]
    assert section["failure"] == {
        "max_restarts": 3,
        "rules": [
            {
                "action": "restart-jobset-and-ignore-max-restarts",
                "reasons": ["PodFailurePolicy"],
                "jobs": ["a-0", "a-1"],
            }
        ],
    }
    assert section["success"] == {"operator": "any", "jobs": ["b-0"]}
    assert (found.notes, [*section["jobs"]]) == ((), ["a-0", "a-1", "b-0"])


def test_a_runtime_of_the_namespace_has_rules_of_exit_codes_and_its_own_index() -> None:
    codes = {"containerName": "node", "operator": "NotIn", "values": [1, 2]}
    worker = job_of(podFailurePolicy={"rules": [{"action": "FailJob", "onExitCodes": codes}]})
    pod = worker["template"]["spec"]["template"]["spec"]
    pod["restartPolicy"] = "Never"
    pod["containers"][0]["env"] = [{"name": "JOB_COMPLETION_INDEX", "value": "7"}]
    own = {**runtime(worker), "kind": "TrainingRuntime"}
    job = train_job(runtimeRef={"kind": "TrainingRuntime", "name": "own"})
    found = converted(own, job)
    assert found.scenario["jobset"]["jobs"]["node"]["pod_failure"] == [
        {"action": "fail-job", "on_exit_codes": {"operator": "not-in", "values": [1, 2]}}
    ]
    assert variables(planned(own, job), "node-1") == {"JOB_COMPLETION_INDEX": "7"}


def test_what_no_pod_has_here_is_left_out_of_the_rules_and_said() -> None:
    other = {**FAIL_JOB, "onPodConditions": [{"type": "ConfigIssue"}, FAIL_JOB_CONDITION]}
    codes = {"containerName": "sidecar", "operator": "In", "values": [42]}
    rules = [other, {"action": "Ignore", "onExitCodes": codes}]
    job = indexed(podFailurePolicy={"rules": rules}, backoffLimit=3)
    found = converted(job)
    assert found.scenario["jobset"]["jobs"]["worker"]["pod_failure"] == [
        {"action": "fail-job", "on_conditions": ["DisruptionTarget"]}
    ]
    assert [note.path for note in found.notes] == [
        "spec.podFailurePolicy.rules[0].onPodConditions[0]",
        "spec.podFailurePolicy.rules[1].onExitCodes.containerName",
    ]


FAIL_JOB_CONDITION = {"type": "DisruptionTarget", "status": "True"}


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (
            {"failurePolicy": {"rules": [{"action": "RestartJob"}]}},
            "rules[0].action: RestartJob can't be emulated",
        ),
        (
            {"successPolicy": {"targetReplicatedJobs": ["b"]}},
            "successPolicy.targetReplicatedJobs[0]: there is no replicated job b",
        ),
        ({"failurePolicy": {"rules": [{"action": "Fail"}]}}, "action: 'Fail' is not allowed"),
    ],
)
def test_a_mistake_in_a_policy_is_where_it_is_written(spec: dict[str, Any], problem: str) -> None:
    (found,) = refused(job_set(job_of("a", ""), **spec))
    assert problem in found


def test_a_job_that_others_wait_for_comes_before_training() -> None:
    data = job_of("data", "")
    train = {**job_of("train", ""), "dependsOn": [{"name": "data", "status": "Complete"}]}
    assert converted(job_set(data, train)).scenario["cluster"]["data"]["before"] == "training"
    more = {**job_of("more", ""), "dependsOn": [{"name": "train", "status": "Complete"}]}
    (problem,) = refused(job_set(data, train, more))
    assert "spec.replicatedJobs[1].dependsOn: train waits for data, and others wait" in problem
    wrong = {**train, "dependsOn": [{"name": "dat", "status": "Complete"}]}
    assert "did you mean 'data'?" in refused(job_set(data, wrong))[0]


def test_an_indexed_job_has_its_index_and_host_names() -> None:
    made = planned(indexed(pod={"subdomain": "svc"}))
    assert variables(made, "worker-1") == {"JOB_COMPLETION_INDEX": "1"}
    assert [task.host for task in made.tasks] == ["pi-0.svc", "pi-1.svc"]


@pytest.mark.parametrize(
    ("job", "problem"),
    [
        (indexed(completionMode="NonIndexed"), "spec.completionMode: NonIndexed gives its pods no"),
        (indexed(pod={"restartPolicy": "Always"}), "restartPolicy: must be Never or OnFailure"),
        (indexed(parallelism=0), "has no pods"),
        ({**indexed(), "apiVersion": "batch/v1beta1"}, "apiVersion: batch/v1beta1 is another"),
        (
            {**train_job(), "apiVersion": "trainer.kubeflow.org/v2"},
            "write trainer.kubeflow.org/v1alpha1",
        ),
        (train_job("torch"), "there is no ClusterTrainingRuntime torch"),
        (train_job("torch"), "known: torch-distributed, torch-distributed-with-cache, jax"),
        (train_job(trainer={"numProcPerNode": 0}), "numProcPerNode: 0 is no number of processes"),
        (train_job(trainer={"numNodes": "2"}), "should be a whole number"),
        (
            train_job(trainer={"env": [{"name": "PET_NNODES", "value": "1"}]}),
            "spec.trainer.env[0].name: PET_NNODES is set by the runtime",
        ),
        (
            train_job(podSpecOverrides=[{"targetJobs": [{"name": "nod"}]}]),
            "targetJobs[0].name: the runtime has no replicated job nod",
        ),
        (
            train_job(initializer={"dataset": {"storageUri": "hf://a"}}),
            "spec.initializer.dataset: the runtime has no dataset-initializer",
        ),
        (
            job_set({**job_of("a", "", parallelism=500), "replicas": 500}),
            "spec.replicatedJobs: makes 250000 tasks (500 are the most)",
        ),
        (
            train_job(trainer={"numNodes": 2_000_000_000}),
            "numNodes: 2000000000 should be from 0 to",
        ),
        (train_job(numNodes=2), "spec.numNodes: unknown field (it belongs in spec.trainer)"),
    ],
)
def test_a_mistake_is_one_line(job: dict[str, Any], problem: str) -> None:
    (found,) = refused(job)
    assert problem in found
    assert found.startswith("job.yaml:")


# --- Patches, in the spellings of all versions ----------------------------------------------------


def patch(pod: dict[str, Any], job: str = "node") -> dict[str, Any]:
    template = {"spec": {"template": {"spec": pod}}}
    spec = {"template": {"spec": {"replicatedJobs": [{"name": job, "template": template}]}}}
    return {"runtimePatches": [{"manager": "a.b/c", "trainingRuntimeSpec": spec}]}


NODE = [{"name": "node"}]


@pytest.mark.parametrize(
    "spelling",
    [
        {"podSpecOverrides": [{"targetJobs": NODE, **PATCHED}]},
        {"podTemplateOverrides": [{"targetJobs": NODE, "spec": PATCHED}]},
        patch(PATCHED),
    ],
    ids=["2.0", "2.1", "2.2"],
)
def test_a_patch_is_merged_over_the_pods(spelling: dict[str, Any]) -> None:
    found = converted(train_job(**spelling))
    assert found.scenario["mounts"] == {"/d": {"scratch": "d"}}
    assert found.scenario["image"] == "i"
    old = spelling.keys() - {"runtimePatches"}
    assert {note.path for note in found.notes} == {f"spec.{key}" for key in old}


OF_A_SIDE_CAR = {
    "action": "FailJob",
    "onExitCodes": {"containerName": "proxy", "operator": "In", "values": [1]},
}


def test_a_policy_whose_rules_say_nothing_here_replaces_pods_once_they_have_ended() -> None:
    one = job_of("a", "", podFailurePolicy={"rules": [OF_A_SIDE_CAR]})
    one["template"]["spec"]["template"]["spec"]["restartPolicy"] = "Never"
    rules = converted(job_set(one)).scenario["jobset"]["jobs"]["a"]
    assert (rules.get("pod_failure"), rules["pod_replacement"]) == (None, "failed")


@pytest.mark.parametrize("kind", [["a"], {"a": 1}, 5, None])
def test_a_document_of_an_odd_kind_beside_a_job_set(kind: Any) -> None:
    """It is no defect of ours: it is passed over, or a mistake with its line."""
    with contextlib.suppress(ScenarioError):
        converted(job_set(job_of("a", "")), {"kind": kind, "apiVersion": "v1"})


def test_a_success_of_jobs_without_pods_is_no_success_of_all() -> None:
    empty = job_of("b", "", parallelism=0, completions=0)
    policy = {"operator": "All", "targetReplicatedJobs": ["b"]}
    (problem,) = refused(job_set(job_of("a", ""), empty, successPolicy=policy))
    assert "names only jobs that have no pods" in problem


def test_two_jobs_of_one_name_are_refused() -> None:
    (problem,) = refused(job_set(job_of("a", ""), job_of("a", "")))
    assert "spec.replicatedJobs[1].name: there is another job a" in problem


def test_a_mistake_in_a_patch_is_in_the_patch() -> None:
    wrong = {"containers": [{"name": "node", "env": [{"name": "A", "value": "1"}]}]}
    (problem,) = refused(train_job(**patch(wrong)))
    at = "spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec"
    assert f"{at}.template.spec.containers[0].env: Trainer refuses variables of node" in problem
    (problem,) = refused(train_job(**patch({"containers": [{"name": "nod"}]})))
    assert "the job node has no container nod (did you mean 'node'?)" in problem
    mount = {"containers": [{"name": "node", "volumeMounts": [{"name": "x", "mountPath": "/x"}]}]}
    (problem,) = refused(train_job(**patch(mount)))
    assert f"{at}.template.spec.containers[0].volumeMounts[0].name: there is no volume" in problem


# --- Runtimes of the files, initializers ----------------------------------------------------------


def test_initializers_of_a_runtime_run_before_the_training() -> None:
    node = {**job_of(), "dependsOn": [{"name": "dataset-initializer", "status": "Complete"}]}
    data = job_of("dataset-initializer", "dataset-initializer", parallelism=1)
    env = [{"name": "A", "value": "b"}]
    source = {"storageUri": "hf://a/b", "env": env, "secretRef": {"name": "token"}}
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "token"},
        "stringData": {"HF_TOKEN": "t"},
    }
    job = train_job("own", initializer={"dataset": source})
    made = planned(runtime(data, node, torch={}, numNodes=3), secret, job)
    assert [task.before for task in made.tasks] == ["training", None, None]
    assert variables(made, "dataset-initializer-0") == {
        "HF_TOKEN": "t",
        "STORAGE_URI": "hf://a/b",
        "A": "b",
        "JOB_COMPLETION_INDEX": "0",
    }


def test_a_deadline_and_a_suspension_say_what_they_do_here() -> None:
    found = converted(train_job(suspend=True, activeDeadlineSeconds=90))
    assert found.scenario["jobset"]["active_deadline"] == "90s"
    assert [str(note).partition(":")[0] for note in found.notes] == ["spec.suspend is ignored"]


# --- MPI ------------------------------------------------------------------------------------------

KEYS = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "mnist-mpi-ssh-auth"},
    "stringData": {"ssh-privatekey": "secret\n", "ssh-publickey": "open\n"},
}


@pytest.mark.parametrize("name", ["deepspeed-distributed", "mlx-distributed"])
def test_mpi_has_a_launcher_that_is_a_node_too_and_a_list_of_hosts(name: str) -> None:
    job = train_job(name)
    job["spec"]["trainer"] |= {"numNodes": 3, "numProcPerNode": 2}
    found = converted(job, KEYS)
    made = make_plan(parse(as_text(found.scenario)), "x-1", NAMED)
    assert [task.name for task in made.tasks] == ["node-0", "node-1", "launcher-0"]
    assert variables(made, "launcher-0") == {
        "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "OMPI_MCA_orte_set_default_slots": "2",
        "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
        "JOB_COMPLETION_INDEX": "0",
    }
    assert variables(made, "node-1") == {"JOB_COMPLETION_INDEX": "1"}
    cluster = made.scenario.cluster
    files = {**made.scenario.program.files, **cluster["launcher"].files}
    assert files["/etc/mpi/hostfile"].text == (
        "mnist-node-0-0.mnist slots=2\n"
        "mnist-node-0-1.mnist slots=2\n"
        "mnist-launcher-0-0.mnist slots=2\n"
    )
    assert files["/home/mpiuser/.ssh/authorized_keys"].text == "open\n"
    assert made.task("node-0").command[0] == "/usr/sbin/sshd"
    assert made.task("launcher-0").command == ("python", "a.py")
    assert found.scenario["jobset"]["success"] == {"operator": "all", "jobs": ["launcher"]}


def test_the_nodes_of_a_launcher_have_the_variables_and_resources_of_the_training() -> None:
    job = train_job("deepspeed-distributed")
    env = [{"name": "HF_TOKEN", "value": "t"}]
    job["spec"]["trainer"] |= {"env": env, "resourcesPerNode": {"limits": {"memory": "1Gi"}}}
    scenario = parse(as_text(converted(job, KEYS).scenario))
    made = make_plan(scenario, "x-1", NAMED)
    assert [task.env["HF_TOKEN"] for task in made.tasks] == ["t", "t"]
    assert {task.memory for task in made.tasks} == {2**30}
    env[0]["name"] = "OMPI_MCA_plm_rsh_args"
    assert "env[0].name: OMPI_MCA_plm_rsh_args is set by the runtime" in refused(job, KEYS)[0]


@pytest.mark.parametrize(("trainer", "slots"), [({}, "4"), ({"numProcPerNode": 1}, "1")])
def test_a_runtime_of_one_slot_means_the_gpus_and_a_job_of_one_means_one(
    trainer: dict[str, Any], slots: str
) -> None:
    job = train_job("deepspeed-distributed")
    limits = {"limits": {"nvidia.com/gpu": 4}}
    job["spec"]["trainer"] |= {"resourcesPerNode": limits, **trainer}
    text = as_text(converted(job, KEYS).scenario)
    assert f"OMPI_MCA_orte_set_default_slots: '{slots}'" in text


def test_mpi_without_keys_says_which_secret_is_missing() -> None:
    problems = refused(train_job("mlx-distributed"))
    assert all("there is no Secret mnist-mpi-ssh-auth in default" in one for one in problems)
    assert "--configmap mnist-mpi-ssh-auth=FILE" in problems[0]
