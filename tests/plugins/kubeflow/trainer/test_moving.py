"""A TFJob as a TrainJob: TF_CONFIG, restarts, ends, what is lost; and a training that runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from emulator.errors import ScenarioError
from emulator.planning.plan import Plan
from emulator.planning.planner import make_plan
from emulator.plugins.kubeflow.trainer.jobset import RESTART
from emulator.plugins.kubeflow.trainer.section import JobSet
from emulator.scenario.assembly import as_text, check_other, for_other, format_of
from emulator.scenario.loader import parse
from emulator.scenario.manifests import Conversion, Options, read_documents
from tests.cli.typed import refusal, typed
from tests.conftest import Emulate
from tests.histories import SITE
from tests.plugins.kubeflow.manifests.validation import check
from tests.scenario.plans import NAMED

POLICIES = ("Never", "OnFailure", "Always", "ExitCode")
UNLIMITED = 2**31 - 1


def replicas(count: int = 1, policy: str = "", port: int = 0, **container: Any) -> dict[str, Any]:
    main = {"name": "tensorflow", "image": "i", "command": ["train"], **container}
    if port:
        main["ports"] = [{"name": "tfjob-port", "containerPort": port}]
    given = {"restartPolicy": policy} if policy else {}
    return {"replicas": count, **given, "template": {"spec": {"containers": [main]}}}


def tf_job(run: Mapping[str, Any] = {}, /, spec: Any = None, **specs: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "mnist", "namespace": "team-a"},
        "spec": {"runPolicy": {**run}, "tfReplicaSpecs": specs, **(spec or {})},
    }


def moved(*documents: dict[str, Any]) -> tuple[list[dict[str, Any]], Sequence[str]]:
    text = yaml.dump_all(documents, sort_keys=False)
    made, notes = for_other(Path("job.yaml"), text, "trainjob", "moved.yaml")
    return list(yaml.safe_load_all(made)), notes


def converted(*documents: dict[str, Any]) -> Conversion:
    read = read_documents(yaml.dump_all(documents, sort_keys=False), "job.yaml")
    return format_of(read, "job.yaml").convert(read, Options())


def planned(*documents: dict[str, Any], site: Any = NAMED) -> Plan:
    return make_plan(parse(as_text(converted(*documents).scenario)), "x-1", site)


def rules_of(made: Sequence[dict[str, Any]]) -> JobSet:
    section = planned(*made).scenario.jobset
    assert isinstance(section, JobSet)
    return section


def jobs(made: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the Jobs of the runtime by role."""
    (runtime,) = [one for one in made if one["kind"] == "TrainingRuntime"]
    spec = runtime["spec"]["template"]["spec"]
    return {one["name"]: one["template"]["spec"] for one in spec["replicatedJobs"]}


def losses(notes: Sequence[str]) -> set[str]:
    """Return the fields that the notes are about."""
    return {note.split(": ")[1] for note in notes}


# --- TF_CONFIG ------------------------------------------------------------------------------------

JOBS: dict[str, dict[str, Any]] = {
    "chief": tf_job(Chief=replicas(), Worker=replicas(3)),
    "master": tf_job(MASTER=replicas(), Worker=replicas(1)),
    "workers": tf_job(Worker=replicas(12)),
    "servers": tf_job(PS=replicas(2, port=3333), Worker=replicas(2, port=4444), Chief=replicas()),
    "evaluator": tf_job(Chief=replicas(), Worker=replicas(2), Evaluator=replicas()),
    "sparse": tf_job(spec={"enableDynamicWorker": True}, PS=replicas(2), Worker=replicas(2)),
    "sparse, all": tf_job(
        spec={"enableDynamicWorker": True},
        **{name: replicas() for name in ("Chief", "PS", "Evaluator")},
        Worker=replicas(2, port=4444),
    ),
    "sparse, without servers": tf_job(spec={"enableDynamicWorker": True}, Worker=replicas(2)),
    "one": tf_job(Chief=replicas()),
}


def configs(plan: Plan) -> dict[str, Any]:
    """Return TF_CONFIG of each task; None of one without."""
    return {task.name: json.loads(task.env.get("TF_CONFIG", "null")) for task in plan.tasks}


def in_job_set(config: Any) -> Any:
    """Return a TF_CONFIG of the operator with the names that pods of a JobSet have."""
    text = json.dumps(config).replace(".team-a.svc:", ".mnist:")
    for role in ("chief", "master", "worker", "ps", "evaluator"):
        text = text.replace(f"mnist-{role}-", f"mnist-{role}-0-")
    return json.loads(text)


@pytest.mark.parametrize("name", JOBS)
def test_tf_config_is_that_of_the_operator_but_for_the_names_of_hosts(name: str) -> None:
    made, _ = moved(JOBS[name])
    before, after = configs(planned(JOBS[name])), configs(planned(*made))
    assert after == {task: in_job_set(config) for task, config in before.items()}
    assert (after["chief-0"] is None) if name == "one" else None not in after.values()


@pytest.mark.parametrize("name", JOBS)
def test_an_engine_without_names_has_its_own_addresses_in_tf_config(name: str) -> None:
    made, _ = moved(JOBS[name])
    assert configs(planned(*made, site=SITE)) == configs(planned(JOBS[name], site=SITE))


@pytest.mark.parametrize("name", ["servers", "sparse", "one"])
def test_a_cluster_would_take_the_objects(name: str) -> None:
    made, _ = moved(JOBS[name])
    for one in made:
        check(one)
    kinds = [one["kind"] for one in made]
    has_list = name != "one" and not name.startswith("sparse")
    assert kinds == [*(["ConfigMap"] if has_list else []), "TrainingRuntime", "TrainJob"]
    assert {one["metadata"]["namespace"] for one in made} == {"team-a"}


@pytest.mark.parametrize(
    ("name", "role", "count"),
    [("chief", "worker", 3), ("servers", "worker", 2), ("one", "chief", 1)],
)
def test_the_trainer_is_what_one_scales(name: str, role: str, count: int) -> None:
    made, _ = moved(JOBS[name])
    *_, runtime, job = made
    labelled = [
        one["name"]
        for one in runtime["spec"]["template"]["spec"]["replicatedJobs"]
        if "metadata" in one["template"]
    ]
    assert labelled == [role]
    assert job["spec"]["trainer"] == runtime["spec"]["mlPolicy"] == {"numNodes": count}


# --- Restarts and ends ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "run", "pod", "limit"),
    [
        ("", {}, "Never", 0),
        ("OnFailure", {}, "OnFailure", UNLIMITED),
        ("OnFailure", {"backoffLimit": 0}, "OnFailure", 0),
        ("Always", {"backoffLimit": 3}, "OnFailure", 3),
        ("ExitCode", {"backoffLimit": 3}, "Never", 3),
    ],
)
def test_a_restart_policy_is_that_of_a_job(
    policy: str, run: dict[str, Any], pod: str, limit: int
) -> None:
    made, _ = moved(tf_job(run, Worker=replicas(2, policy)))
    job = jobs(made)["worker"]
    assert (job["template"]["spec"]["restartPolicy"], job["backoffLimit"]) == (pod, limit)
    assert job["podReplacementPolicy"] == "Failed"
    codes = [rule["onExitCodes"] for rule in job.get("podFailurePolicy", {}).get("rules", [])]
    assert [one["values"] for one in codes] == ([[*range(1, 128)]] if policy == "ExitCode" else [])
    rules = rules_of(made).job("worker")
    assert (rules.restart, rules.limit) == (RESTART[pod], limit)
    assert [one.action for one in rules.pod_failure] == ["fail-job" for _ in codes]


def test_exit_codes_are_those_of_one_role() -> None:
    made, _ = moved(tf_job(Chief=replicas(1, "OnFailure"), Worker=replicas(1, "ExitCode")))
    section = converted(*made).scenario["jobset"]["jobs"]
    assert [role for role, job in section.items() if "pod_failure" in job] == ["worker"]


@pytest.mark.parametrize(
    ("job", "targets", "first"),
    [
        (JOBS["chief"], ["chief"], False),
        (JOBS["workers"], None, True),
        (tf_job(spec={"successPolicy": "AllWorkers"}, Worker=replicas(2)), None, False),
        (
            tf_job(spec={"successPolicy": "AllWorkers"}, Worker=replicas(2), PS=replicas()),
            *(["worker"], False),
        ),
        (tf_job(Worker=replicas(2), PS=replicas(), Evaluator=replicas()), ["worker"], True),
        (tf_job(PS=replicas(2)), None, False),
    ],
    ids=["chief", "worker 0", "all workers", "beside servers", "beside an evaluator", "servers"],
)
def test_the_same_tasks_decide_the_end(
    job: dict[str, Any], targets: list[str] | None, first: bool
) -> None:
    made, _ = moved(job)
    *_, runtime, _ = made
    policy = runtime["spec"]["template"]["spec"].get("successPolicy")
    assert policy == (targets and {"operator": "All", "targetReplicatedJobs": targets})
    rules = jobs(made).get("worker", {}).get("successPolicy")
    assert rules == ({"rules": [{"succeededIndexes": "0"}]} if first else None)
    section = rules_of(made)
    assert section.success.jobs == (targets or [])
    assert [one.indexes for one in section.job("worker").success] == (["0"] if first else [])
    assert not [note for note in converted(*made).notes if "successPolicy" in note.path]


def test_limits_of_the_whole_job_are_those_of_the_train_job() -> None:
    run = {
        **{"activeDeadlineSeconds": 60, "ttlSecondsAfterFinished": 5, "suspend": True},
        **{"managedBy": "kueue.x-k8s.io/multikueue", "schedulingPolicy": {"queue": "q"}},
    }
    given = tf_job(run, Worker=replicas(2))
    given["metadata"] |= {"labels": {"team": "a"}, "annotations": {"owner": "me"}}
    made, notes = moved(given)
    *_, runtime, job = made
    assert job["metadata"]["labels"] == {"team": "a"}
    assert job["metadata"]["annotations"] == {"owner": "me"}
    same = {"suspend": True, "activeDeadlineSeconds": 60, "managedBy": run["managedBy"]}
    assert job["spec"].items() >= same.items()
    assert runtime["spec"]["template"]["spec"]["ttlSecondsAfterFinished"] == 5
    names = ("schedulingPolicy", "activeDeadlineSeconds", "ttlSecondsAfterFinished")
    assert losses(notes) >= {f"spec.runPolicy.{name}" for name in names}


# --- Pods -----------------------------------------------------------------------------------------


def test_a_pod_stays_as_it_is_but_for_the_name_of_its_container_and_what_is_the_operators() -> None:
    index = "metadata.labels['training.kubeflow.org/replica-index']"
    given = replicas(
        args=["mnist-worker-1.team-a.svc:2222", "mnist-worker-0:80", "mnist-worker-7:80"],
        env=[
            {"name": "I", "valueFrom": {"fieldRef": {"fieldPath": index}}},
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "DIR", "value": "/logs/mnist-worker-1"},
            {"name": "TF_CONFIG", "value": "{}"},
            {
                "name": "CPU",
                "valueFrom": {
                    "resourceFieldRef": {"containerName": "tensorflow", "resource": "limits.cpu"}
                },
            },
        ],
        resources={"limits": {"cpu": 2}},
        ports=[{"name": "board", "containerPort": 6006}],
    )
    given["template"]["spec"] |= {"hostname": "h", "serviceAccountName": "s"}
    main = "kubectl.kubernetes.io/default-container"
    given["template"]["metadata"] = {"annotations": {main: "tensorflow"}}
    made, notes = moved(tf_job(Chief=given, Worker=replicas(2)))
    template = jobs(made)["chief"]["template"]
    assert template["metadata"] == {"annotations": {main: "node"}}
    assert template["spec"].keys() == {"containers", "serviceAccountName", "restartPolicy"}
    (node,) = template["spec"]["containers"]
    hosts = ["mnist-worker-0-1.mnist:2222", "mnist-worker-0-0.mnist:80", "mnist-worker-7:80"]
    assert node["args"] == hosts
    assert node["ports"] == [
        {"name": "board", "containerPort": 6006},
        {"name": "tfjob-port", "containerPort": 2222},
    ]
    names = ["I", "POD", "DIR", "CPU", "JOB_COMPLETION_INDEX", "TF_CLUSTER", "TF_CONFIG"]
    assert [one["name"] for one in node["env"]] == names
    assert {one["resourceFieldRef"]["containerName"] for one in _sources(node["env"])} == {"node"}
    container = "spec.tfReplicaSpecs.Chief.template.spec.containers[0]"
    assert losses(notes) >= {
        *(f"{container}.args[{n}]" for n in (0, 1)),
        *(f"{container}.env[1].valueFrom", f"{container}.env[2].value", f"{container}.env[3]"),
        "spec.tfReplicaSpecs.Chief.template.spec.hostname",
    }
    task = planned(*made).task("chief-0")
    assert (task.env["I"], task.env["CPU"]) == ("0", "2")


def _sources(env: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = [one.get("valueFrom", {}) for one in env]
    return [one for one in found if "resourceFieldRef" in one]


def test_a_rule_about_labels_of_the_operator_finds_the_pods_as_before() -> None:
    given = replicas(2)
    selector = {"matchLabels": {"training.kubeflow.org/replica-type": "worker"}}
    term = {"topologyKey": "zone", "labelSelector": selector}
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    given["template"]["spec"]["affinity"] = {"podAntiAffinity": rule}
    made, notes = moved(tf_job(Worker=given, Chief=replicas()))
    labels = jobs(made)["worker"]["template"]["metadata"]["labels"]
    assert labels.items() >= selector["matchLabels"].items()
    assert "metadata" not in jobs(made)["chief"]["template"]
    assert "spec.tfReplicaSpecs.Worker.template.spec" in losses(notes)


def test_a_type_without_pods_and_a_name_to_be_made_are_said() -> None:
    given = tf_job(Chief=replicas(0), Worker=replicas(2))
    given["metadata"] = {"generateName": "run-"}
    made, notes = moved(given)
    assert [*jobs(made)] == ["worker"]
    assert {one["metadata"]["name"] for one in made} == {"run", "run-cluster"}
    replaced = {"metadata.generateName", "spec.tfReplicaSpecs.Chief.replicas"}
    assert losses(notes) >= replaced


def test_other_objects_of_the_file_come_first_as_they_are() -> None:
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "s"}, "data": {}}
    made, _ = moved(tf_job(Worker=replicas(2)), settings)
    assert made[0] == settings


# --- What is said ---------------------------------------------------------------------------------


def test_each_loss_has_its_line_and_the_same_of_several_types_is_said_once(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.dump(tf_job(Chief=replicas(), Worker=replicas(2)), sort_keys=False))
    done = typed("convert", path, "--to", "trainjob", "-o", tmp_path / "moved.yaml").ended()
    lines = path.read_text().splitlines()
    never = [line for line in done.stderr.splitlines() if "restartPolicy" in line]
    assert [line.split(": ")[2] for line in never] == ["spec.tfReplicaSpecs.*.restartPolicy"]
    place = f"{path}:{lines.index('    Chief:') + 1}"
    assert never[0].startswith(f"emulate: {place}: ")
    text = (tmp_path / "moved.yaml").read_text()
    head = text.partition("apiVersion")[0]
    assert head.startswith("# Written by `emulate convert job.yaml --to trainjob`.\n")
    said = " ".join(line.lstrip("# -") for line in head.splitlines())
    assert never[0].removeprefix("emulate: ") in said
    piped = typed("convert", "-", "--to", "trainjob", stdin=path.read_text()).ended()
    assert piped.stdout.startswith("# Written by `emulate convert - --to trainjob`.\n")
    assert piped.stdout.partition("\napiVersion")[2] == text.partition("\napiVersion")[2]


@pytest.mark.parametrize(
    ("clean", "is_said"), [(None, True), ("None", True), ("Running", False), ("All", True)]
)
def test_pods_at_the_end_are_those_of_clean_pod_policy_running(
    clean: str | None, is_said: bool
) -> None:
    run = {"cleanPodPolicy": clean} if clean else {}
    _, notes = moved(tf_job(run, Chief=replicas(), Worker=replicas(2)))
    assert ("spec.runPolicy.cleanPodPolicy" in losses(notes)) == is_said


@pytest.mark.parametrize(
    ("job", "problem"),
    [
        (tf_job(Worker=replicas(name="main")), "has no container named tensorflow"),
        (tf_job(Workers=replicas()), "did you mean 'Worker'?"),
        (tf_job(Worker=replicas(), worker=replicas()), "is there twice"),
        (tf_job(Worker=replicas(0)), "has no replicas"),
        ({**tf_job(Worker=replicas(2)), "metadata": {"name": "a" * 47}}, "of 64 characters"),
        ({**tf_job(Worker=replicas(2)), "metadata": {"name": "A"}}, "is not the name of a job"),
        ({**tf_job(Worker=replicas(2)), "apiVersion": "kubeflow.org/v2"}, "is another version"),
    ],
)
def test_a_mistake_of_the_job_is_reported_with_its_line(job: dict[str, Any], problem: str) -> None:
    with pytest.raises(ScenarioError) as error:
        moved(job)
    (found,) = error.value.problems
    assert problem in str(found)
    assert str(found).startswith("job.yaml:")


def test_a_container_named_as_the_trainers_is_refused() -> None:
    given = replicas()
    given["template"]["spec"]["containers"].append({"name": "node", "image": "i"})
    with pytest.raises(ScenarioError, match="a container is named node already"):
        moved(tf_job(Worker=given))


def test_an_init_container_named_so_is_refused_too() -> None:
    given = replicas()
    given["template"]["spec"]["initContainers"] = [{"name": "node", "image": "i"}]
    with pytest.raises(ScenarioError, match="a container is named node already"):
        moved(tf_job(Worker=given))


def test_an_object_with_the_name_of_one_that_is_made_is_refused() -> None:
    metadata = {"name": "mnist-cluster", "namespace": "team-a"}
    taken = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {}}
    with pytest.raises(ScenarioError, match="is the name of an object that is made"):
        moved(tf_job(Worker=replicas(2)), taken)


def test_what_can_not_become_a_train_job_is_refused_in_a_line(tmp_path: Path) -> None:
    job, train_job = tmp_path / "job.yaml", tmp_path / "trainjob.yaml"
    scenario = tmp_path / "scenario.yaml"
    job.write_text(yaml.dump(tf_job(Worker=replicas(2))))
    train_job.write_text(yaml.dump_all(moved(tf_job(Worker=replicas(2)))[0]))
    scenario.write_text("name: a\nprogram: {command: [a]}\ncluster: {worker: 1}\n")
    asked = {
        (job, "--to", "trainjobs"): "There is no format trainjobs. Did you mean 'trainjob'? "
        "Formats: trainjob.",
        (job, "--to", "trainjob", "--image", "a=b"): "--image is for a scenario, not with --to. "
        "Leave one of them out.",
        (train_job, "--to", "trainjob"): f"{train_job} is a TrainJob. --to trainjob is for a "
        "TFJob.",
        (scenario, "--to", "trainjob"): f"{scenario} is a scenario. --to trainjob is for a TFJob. "
        f"Try: emulate export {scenario} --to trainjob",
    }
    for words, line in asked.items():
        assert refusal("convert", *words) == line
    check_other("trainjob")


# --- A training that runs -------------------------------------------------------------------------

PROGRAM = """
import json, os
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    weight = tf.Variable(0.0, aggregation=tf.VariableAggregation.MEAN)

@tf.function
def step():
    def train():
        with tf.GradientTape() as tape:
            loss = (weight - 3.0) ** 2
        weight.assign_sub(0.1 * tape.gradient(loss, weight))
    strategy.run(train)

for number in range(1, 41):
    step()
    loss = float((weight - 3.0) ** 2)
    print(json.dumps({"emulate": "step", "step": number, "loss": loss}), flush=True)
task = json.loads(os.environ["TF_CONFIG"])["task"]
print("trained by", strategy.num_replicas_in_sync, "as", task["type"], task["index"], flush=True)
"""


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param("process", marks=pytest.mark.tensorflow),
        pytest.param("docker", marks=pytest.mark.docker),
    ],
)
def test_a_moved_job_trains(
    request: pytest.FixtureRequest, emulate: Emulate, engine: str, tmp_path: Path
) -> None:
    request.getfixturevalue("host_tensorflow" if engine == "process" else "docker_engine")
    trains = replicas(1, "OnFailure", command=["python3", "-c"], args=[PROGRAM])
    job, made, part = (tmp_path / name for name in ("job.yaml", "moved.yaml", "part.yaml"))
    job.write_text(yaml.dump(tf_job(Chief=trains, Worker=trains), sort_keys=False))
    part.write_text("expect: {final_step: 40, values: {loss: {max: 0.01}}}\ntimeout: 5m\n")
    typed("convert", job, "--to", "trainjob", "-o", made).ended()
    options = ("--image", "node=cpu", "--faults", str(part))
    done = emulate.up(made, "--engine", engine, *options)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.json["verdict"] == "ok"
    assert "trained by 2 as chief 0" in done.stderr
