"""A JobSet as a scenario: its replicated jobs are roles, and their pods are tasks (pure).

Source: kubernetes-sigs/jobset v0.12.0, pkg/controllers and pkg/util/placement; Kubernetes 1.31,
pkg/controller/job.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from emulator.errors import ScenarioError
from emulator.plugins.kubeflow import kinds
from emulator.plugins.kubeflow.manifests.common import LONGEST, Images, gathered
from emulator.plugins.kubeflow.manifests.expansion import Text, Value, plain
from emulator.plugins.kubeflow.manifests.fields import Findings, refuse
from emulator.plugins.kubeflow.manifests.objects import Pod, check_used, read_objects
from emulator.plugins.kubeflow.manifests.pods import role_of
from emulator.plugins.kubeflow.trainer.section import BACKOFF_LIMIT, DISRUPTED
from emulator.scenario.document import KeyPath
from emulator.scenario.manifests import Conversion, Document, Options, located
from emulator.validation.limits import TASKS
from emulator.validation.similar import closest

Data = dict[str, Any]
INDEX = "batch.kubernetes.io/job-completion-index"
PREFIX = "jobset.sigs.k8s.io/"
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
NODE = "node"
"""The container of the program, as the runtimes of Trainer name it."""
PORT = 29500
"""Where the tasks of Trainer's runtimes meet."""
OF_PORTS = {"PET_MASTER_PORT": "PET_MASTER_ADDR", "DMLC_TRACKER_PORT": "DMLC_TRACKER_URI"}
"""Variables with that port, each with that of the host: an engine may give tasks other ports."""
RESTART = {"OnFailure": "on-failure", "Never": "never"}
REPLACEMENT = {"TerminatingOrFailed": "terminating-or-failed", "Failed": "failed"}
OF_JOB = {
    "backoff_limit": "backoffLimit",
    "backoff_limit_per_index": "backoffLimitPerIndex",
    "max_failed_indexes": "maxFailedIndexes",
    "active_deadline": "activeDeadlineSeconds",
    "pod_replacement": "podReplacementPolicy",
    "pod_failure": "podFailurePolicy",
    "success": "successPolicy",
}
"""Keys of a Job in the section `jobset`, with the fields that they are from."""
JOBS: KeyPath = ("spec", "replicatedJobs")
_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True)
class Work:
    """What is to run: a JobSet, or what was made one."""

    document: Document
    """Its data are valid."""
    rest: Sequence[Document]
    """The other documents: ConfigMaps, Secrets and what has no meaning here."""
    findings: Sequence[Findings] = ()
    """What was found in the documents that it was made of."""
    host: str = ""
    """The name of a task on the network, if it is not that of a JobSet's pod."""
    deadline: KeyPath = ()
    """Where the time is after which all of it fails; that of a single job is its own."""
    files: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Files that the tasks of a replicated job have, by path."""
    reports: bool = False
    """Whether its tasks report to Trainer's status endpoint."""


def convert(work: Work, options: Options) -> Conversion:
    """Return the scenario. Raises ScenarioError with all mistakes."""
    return _Conversion(work, options).result()


class _Conversion:
    def __init__(self, work: Work, options: Options) -> None:
        self._work, self._options = work, options
        self._document = work.document
        self._findings = Findings(work.document)
        metadata = work.document.data.get("metadata", {})
        self._name = _job_name(self._findings, metadata)
        self._namespace = metadata.get("namespace", "default")
        self._spec: Data = work.document.data["spec"]
        self._jobs = [
            _Job(one, (*JOBS, number), not work.host and self._is_wide)
            for number, one in enumerate(self._spec["replicatedJobs"])
        ]
        self._objects, self._found = read_objects(work.rest, self._namespace, options)
        self._images = Images(options.images)
        self._origins: dict[KeyPath, KeyPath] = {}
        self._ports: dict[str, int] = {}
        """By role."""

    @property
    def _is_wide(self) -> bool:
        """Whether a replicated job has several replicas: each is a role of its own then."""
        return any(one.get("replicas", 1) > 1 for one in self._spec["replicatedJobs"])

    def result(self) -> Conversion:
        """Return the scenario. Raises ScenarioError with all mistakes."""
        names = [job.name for job in self._jobs]
        for number, name in enumerate(names):
            if name in names[:number]:
                self._findings.mistake((*JOBS, number, "name"), f"there is another job {name}")
        total = sum(job.replicas * job.pods for job in self._jobs)
        if total > TASKS:
            self._findings.mistake(JOBS, f"makes {total} tasks", f"{TASKS} are the most")
            refuse([self._findings])
        before = self._before()
        cluster = {role: entry for job in self._jobs for role, entry in self._roles(job, before)}
        if not cluster and not self._findings.mistakes:
            self._findings.mistake(JOBS, "has no pods", "write a parallelism, or numNodes")
        rules = self._rules()
        found = [*self._work.findings, self._findings, *self._found]
        refuse(found)
        unused = [*self._images.problems(), *check_used(self._objects, self._options)]
        if unused:
            raise ScenarioError(unused)
        cluster = self._by_name(cluster)
        top, program, shorter = gathered(cluster)
        scenario = {
            "name": self._name[:LONGEST].rstrip("-"),
            "framework": "none",
            "addresses": {"host": self._host, "port": self._port(cluster)},
            **top,
            "program": program,
            "cluster": shorter,
            "jobset": rules,
            **({"metrics": {"trainer_status": True}} if self._work.reports else {}),
        }
        notes = [note for one in found for note in one.all_notes()]
        origins: dict[KeyPath, KeyPath] = {
            ("name",): ("metadata", "name"),
            ("addresses",): ("metadata", "name"),
            **self._origins,
        }
        return Conversion(
            scenario, tuple(dict.fromkeys(notes)), located(self._document, origins, cluster)
        )

    # --- Names ----------------------------------------------------------------------------------

    @property
    def _host(self) -> str:
        """Return the name of a task: `<job>-<replicated job>-<replica>-<index>.<service>`."""
        if self._work.host:
            return self._work.host
        middle = "{role}" if self._is_wide else "{role}-0"
        return f"{self._name}-{middle}-{{index}}.{self._service}"

    @property
    def _service(self) -> str:
        return str(self._spec.get("network", {}).get("subdomain") or self._name)

    def _port(self, roles: Iterable[str]) -> int | dict[str, int]:
        """Return the port of all tasks, or those of each role."""
        ports = {role: self._ports[role] for role in roles}
        return ports if len({*ports.values()}) > 1 else next(iter(ports.values()))

    def _by_name(self, cluster: Mapping[str, Data]) -> dict[str, Data]:
        """Return the roles with values for the names of tasks: an engine may give them others."""
        of_all = {
            self._host.format(role=role, index=index): (role, f".{role}-{index}")
            for role, entry in cluster.items()
            for index in range(entry["replicas"])
        }
        return {role: self._replaced(entry, role, of_all) for role, entry in cluster.items()}

    def _replaced(
        self, entry: Data, role: str, of_all: Mapping[str, tuple[str, str]]
    ) -> dict[str, Any]:
        """Return a role with values for names; its own may have the index as a value in it."""
        own = self._host.format(role=role, index="${index}")
        names = {**of_all, own: (role, "")}
        some = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
        pattern = re.compile(rf"(?<![\w.${{-])({some})(?::(\d+)\b)?(?![\w-])")

        def value(found: re.Match[str]) -> str:
            other, task = names[found[1]]
            if found[2] == str(self._ports[other]):
                return f"${{address{task}}}"
            return f"${{host{task}}}" + (f":{found[2]}" if found[2] else "")

        made: dict[str, Any] = _replaced(entry, pattern, value)
        return made

    # --- Pods -----------------------------------------------------------------------------------

    def _roles(self, job: _Job, before: Mapping[str, KeyPath]) -> Iterator[tuple[str, Data]]:
        """Yield a role for each replica of a job; none if it has no pods."""
        self._check_counts(job)
        if not job.pods:
            return
        for replica in range(job.replicas):
            pod = self._pod(job, replica)
            entry = role_of(pod, self._images) if pod.spec.get("containers") else {}
            entry |= _with_files(entry, self._work.files.get(job.name, {}))
            role = f"{job.name}-{replica}" if job.is_wide else job.name
            # As in the TFJob that it was, if it was one.
            port = kinds.JOBS["TFJob"].port_of(pod.spec, pod.container)
            self._ports[role] = port or PORT
            self._origins |= {
                ("cluster", role, *inner): place for inner, place in pod.origins.items()
            }
            self._origins[("cluster", role)] = job.path
            self._origins[("cluster", role, "replicas")] = (*job.spec_path, "parallelism")
            stage = {"before": "training"} if job.name in before else {}
            yield role, {"replicas": job.pods, **stage, **entry}

    def _check_counts(self, job: _Job) -> None:
        most = job.spec.get("parallelism", 1)
        if 0 < most < job.pods:
            text = f"all {job.pods} pods run at once; in a cluster {most} do, and the others later"
            self._findings.note((*job.spec_path, "completions"), "approximated", text)

    def _pod(self, job: _Job, replica: int) -> Pod:
        template: Data = job.spec["template"]
        metadata: Data = template.get("metadata", {})
        if not template.get("spec", {}).get("containers"):
            self._findings.mistake((*job.pod_path, "spec", "containers"), "is missing")
        labels = self._labels(job, replica)
        return Pod(
            findings=self._findings,
            objects=self._objects,
            namespace=self._namespace,
            role=job.name,
            path=job.pod_path,
            spec=self._pod_spec(template.get("spec", {})),
            labels=metadata.get("labels", {}),
            annotations=metadata.get("annotations", {}),
            labels_of_operator=labels,
            container=_main(job, template.get("spec", {})),
            set_by_operator=frozenset(),
            annotations_of_operator=labels,
        )

    def _labels(self, job: _Job, replica: int) -> Mapping[str, Text]:
        """Return the labels that the controllers add to a pod; they are its annotations too."""
        own = {
            "jobset-name": self._name,
            "replicatedjob-name": job.name,
            "replicatedjob-replicas": str(job.replicas),
            "job-index": str(replica),
            "restart-attempt": "0",
        }
        of_job = {
            "batch.kubernetes.io/job-name": f"{self._name}-{job.name}-{replica}",
            **{f"{PREFIX}{key}": text for key, text in own.items()},
        }
        if self._work.host:
            of_job = {"batch.kubernetes.io/job-name": self._name}
        return {**{key: plain(text) for key, text in of_job.items()}, INDEX: (Value("index"),)}

    def _pod_spec(self, spec: Data) -> Data:
        """Return a pod's spec with the claims of the JobSet and the variable with its index."""
        volumes = [*spec.get("volumes", [])]
        mounts = [
            mount["name"]
            for container in (*spec.get("containers", []), *spec.get("initContainers", []))
            for mount in container.get("volumeMounts", [])
        ]
        for claim in self._claims():
            if claim in mounts and claim not in [one["name"] for one in volumes]:
                named = {"claimName": f"{claim}-{self._name}"}
                volumes.append({"name": claim, "persistentVolumeClaim": named})
        made = {**spec, "volumes": volumes}
        for key in ("containers", "initContainers"):
            if key in spec:
                made[key] = [_with_index(one) for one in spec[key]]
        return made

    def _claims(self) -> Iterator[str]:
        for policy in self._spec.get("volumeClaimPolicies", []):
            for template in policy.get("templates", []):
                yield template["metadata"]["name"]

    # --- What comes before what -----------------------------------------------------------------

    def _before(self) -> dict[str, KeyPath]:
        """Return the jobs that others wait for to complete, with the place that says so."""
        names = [job.name for job in self._jobs]
        before: dict[str, KeyPath] = {}
        for job in self._jobs:
            for number, one in enumerate(job.data.get("dependsOn", [])):
                at = (*job.path, "dependsOn", number)
                if one["name"] not in names:
                    hint = closest(one["name"], names) or f"known: {', '.join(names)}"
                    message = f"there is no replicated job {one['name']}"
                    self._findings.mistake((*at, "name"), message, hint)
                elif one["status"] == "Complete":
                    before.setdefault(one["name"], at)
                else:
                    text = "all tasks start together, and a program waits for the others itself"
                    self._findings.note(at, "ignored", text)
        for job in self._jobs:
            waits = [one for one in job.data.get("dependsOn", []) if one["status"] == "Complete"]
            at = (*job.path, "dependsOn")
            if job.name in before and waits:
                message = f"{job.name} waits for {waits[0]['name']}, and others wait for it"
                hint = "here one stage comes before training: make one job of the two"
                self._findings.mistake(at, message, hint)
            elif before and not waits and job.name not in before:
                text = f"{job.name} starts once {', '.join(before)} completed, as the others do"
                self._findings.note(job.path, "approximated", text)
        return before

    # --- Restarts, success, deadline: the section `jobset` ---------------------------------------

    def _rules(self) -> Data:
        """Return by which rules the Jobs are restarted, and end."""
        jobs = {}
        for job in self._jobs:
            for role in job.roles:
                jobs[role] = self._job_rules(job)
                self._origins[("jobset", "jobs", role)] = job.spec_path
                for key, name in OF_JOB.items():
                    self._origins[("jobset", "jobs", role, key)] = (*job.spec_path, name)
        section: Data = {"jobs": jobs}
        if "failurePolicy" in self._spec:
            section["failure"] = self._failure(self._spec["failurePolicy"])
        if policy := self._spec.get("successPolicy"):
            names: list[str] = policy.get("targetReplicatedJobs", [])
            roles = self._roles_of(names, ("spec", "successPolicy"))
            if names and not roles:
                message = "names only jobs that have no pods"
                place: KeyPath = ("spec", "successPolicy", "targetReplicatedJobs")
                self._findings.mistake(place, message)
            given = {"operator": policy["operator"].lower()} if "operator" in policy else {}
            section["success"] = {**given, **({"jobs": roles} if names else {})}
        if at := self._work.deadline:
            section["active_deadline"] = f"{self._document.get(*at)}s"
            self._origins[("jobset", "active_deadline")] = at
        return section

    def _job_rules(self, job: _Job) -> Data:
        policy = job.spec["template"].get("spec", {}).get("restartPolicy") or "OnFailure"
        if policy not in RESTART:
            at = (*job.pod_path, "spec", "restartPolicy")
            self._findings.mistake(at, "must be Never or OnFailure", "a Job has no other")
        made: Data = {"restart": RESTART.get(policy, policy)}
        if "backoffLimitPerIndex" not in job.spec:
            made["backoff_limit"] = BACKOFF_LIMIT
        for key, name in OF_JOB.items():
            if name in job.spec and not isinstance(job.spec[name], dict):
                made[key] = job.spec[name]
        if "active_deadline" in made:
            made["active_deadline"] = f"{made['active_deadline']}s"
        if "pod_replacement" in made:
            made["pod_replacement"] = REPLACEMENT[made["pod_replacement"]]
        rules = job.spec.get("podFailurePolicy", {}).get("rules", [])
        if found := [*self._pod_failure(job, rules)]:
            made["pod_failure"] = found
        elif "podFailurePolicy" in job.spec:  # none of its rules says anything here
            made.setdefault("pod_replacement", REPLACEMENT["Failed"])
        if rules := job.spec.get("successPolicy", {}).get("rules", []):
            names = {"indexes": "succeededIndexes", "count": "succeededCount"}
            made["success"] = [
                {key: rule[name] for key, name in names.items() if name in rule} for rule in rules
            ]
        return made

    def _pod_failure(self, job: _Job, rules: Sequence[Data]) -> Iterator[Data]:
        """Yield the rules for failed Pods, except those that are about nothing here."""
        main = _main(job, job.spec["template"].get("spec", {}))
        for number, rule in enumerate(rules):
            at: KeyPath = (*job.spec_path, "podFailurePolicy", "rules", number)
            action = {"action": _dashed(rule["action"])}
            codes: Data | None = rule.get("onExitCodes")
            if codes is not None:
                if codes.get("containerName", main) != main:
                    text = f"only the container {main} has an exit code here"
                    self._findings.note((*at, "onExitCodes", "containerName"), "ignored", text)
                    continue
                operator = {"In": "in", "NotIn": "not-in"}[codes["operator"]]
                yield {**action, "on_exit_codes": {"operator": operator, "values": codes["values"]}}
            else:
                known = []
                for index, one in enumerate(rule.get("onPodConditions", [])):
                    if (one["type"], one.get("status", "True")) == (DISRUPTED, "True"):
                        known.append(DISRUPTED)
                    else:
                        text = f"a Pod has no condition here but {DISRUPTED}"
                        self._findings.note((*at, "onPodConditions", index), "ignored", text)
                if known:
                    yield {**action, "on_conditions": known}

    def _failure(self, policy: Data) -> Data:
        """Return the failurePolicy of the JobSet."""
        made: Data = {"max_restarts": policy.get("maxRestarts", 0)}
        rules = []
        for number, rule in enumerate(policy.get("rules", [])):
            at: KeyPath = ("spec", "failurePolicy", "rules", number)
            if rule["action"].startswith("RestartJob") and "JobSet" not in rule["action"]:
                message = f"{rule['action']} can't be emulated"
                hint = "it is behind a feature gate of JobSet, which is off: write RestartJobSet"
                self._findings.mistake((*at, "action"), message, hint)
            names = {"reasons": "onJobFailureReasons", "messages": "onJobFailureMessagePatterns"}
            one = {"action": _dashed(rule["action"]).replace("job-set", "jobset")}
            one |= {key: rule[name] for key, name in names.items() if rule.get(name)}
            targets: list[str] = rule.get("targetReplicatedJobs", [])
            roles = self._roles_of(targets, at)
            if roles or not targets:
                rules.append({**one, **({"jobs": roles} if targets else {})})
        return {**made, **({"rules": rules} if rules else {})}

    def _roles_of(self, names: Sequence[str], at: KeyPath) -> list[str]:
        """Return the roles of replicated jobs that are named below a place."""
        known = {job.name: [*job.roles] for job in self._jobs}
        for number, name in enumerate(names):
            if name not in known:
                hint = closest(name, known) or f"known: {', '.join(known)}"
                message = f"there is no replicated job {name}"
                self._findings.mistake((*at, "targetReplicatedJobs", number), message, hint)
        return [role for name in names for role in known.get(name, [])]


@dataclass(frozen=True)
class _Job:
    """A replicated job."""

    data: Data
    path: KeyPath
    is_wide: bool
    """Whether each of its replicas is a role of its own."""

    @property
    def name(self) -> str:
        return str(self.data["name"])

    @property
    def spec(self) -> Data:
        """Of the Job."""
        spec: Data = self.data["template"]["spec"]
        return spec

    @property
    def spec_path(self) -> KeyPath:
        return (*self.path, "template", "spec")

    @property
    def pod_path(self) -> KeyPath:
        return (*self.spec_path, "template")

    @property
    def replicas(self) -> int:
        return int(self.data.get("replicas", 1))

    @property
    def pods(self) -> int:
        """The pods of each replica, all of which have to succeed."""
        counts = [self.spec[key] for key in ("completions", "parallelism") if key in self.spec]
        return 0 if 0 in (*counts, self.replicas) else [*counts, 1][0]

    @property
    def step(self) -> str:
        """What it is in a TrainJob; empty if nothing says so."""
        labels = self.data["template"].get("metadata", {}).get("labels", {})
        return str(labels.get(STEP, ""))

    @property
    def roles(self) -> Iterator[str]:
        """The roles that its replicas become; none if it has no pods."""
        for replica in range(self.replicas if self.pods else 0):
            yield f"{self.name}-{replica}" if self.is_wide else self.name


def _job_name(findings: Findings, metadata: Mapping[str, Any]) -> str:
    name = metadata.get("name")
    path: KeyPath = ("metadata", "name")
    if not name and (prefix := metadata.get("generateName")):
        name, path = prefix.rstrip("-"), ("metadata", "generateName")
    if name and _LABEL.fullmatch(name):
        return str(name)
    hint = "lower-case letters, digits and dashes, at most 63, with a letter first"
    message = f"{name!r} is not the name of a job" if name else "is missing"
    findings.mistake(path, message, hint if name else "")
    return "x"


def _main(job: _Job, spec: Mapping[str, Any]) -> str:
    """Return the name of the container of the program."""
    names = [container["name"] for container in spec.get("containers", [])]
    wanted = NODE if job.step in ("", "trainer") else job.step
    return wanted if wanted in names or not names else names[0]


def _with_index(container: Data) -> Data:
    """Return a container with the variable that a Job adds, unless it has one of that name."""
    env = container.get("env", [])
    if any(one["name"] == "JOB_COMPLETION_INDEX" for one in env):
        return container
    return {**container, "env": [*env, {"name": "JOB_COMPLETION_INDEX", **index_reference()}]}


def index_reference() -> Data:
    """Return a variable's value: the index of its pod."""
    return {"valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX}']"}}}


def _with_files(entry: Mapping[str, Any], files: Mapping[str, str]) -> Data:
    return {"files": {**entry.get("files", {}), **files}} if files else {}


def _replaced(entry: Any, pattern: re.Pattern[str], value: Any) -> Any:  # noqa: ANN401  JSON
    """Return a role with the names of tasks in its commands and variables replaced."""
    made = dict(entry)
    if "command" in made:
        made["command"] = [pattern.sub(value, word) for word in made["command"]]
    if "env" in made:
        made["env"] = {name: pattern.sub(value, text) for name, text in made["env"].items()}
        for name, other in OF_PORTS.items():
            host = made["env"].get(other, "")
            if made["env"].get(name) == str(PORT) and host.startswith("${host."):
                made["env"][name] = host.replace("${host.", "${port.")
    if "init" in made:
        made["init"] = [_replaced(one, pattern, value) for one in made["init"]]
    return made


def _dashed(name: str) -> str:
    """Return a name of Kubernetes as scenarios have it: `FailJob` is `fail-job`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()
