"""A TrainJob and its runtime as a JobSet (pure).

Source: kubeflow/trainer v2.3.0, pkg/runtime/core and pkg/runtime/framework/plugins/jobset.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from emulator.plugins.kubeflow.manifests.fields import Findings, Reader, refuse
from emulator.plugins.kubeflow.trainer import torchtune
from emulator.plugins.kubeflow.trainer.composed import Draft, Source
from emulator.plugins.kubeflow.trainer.fields import MOVED, OBJECTS, TRAINER
from emulator.plugins.kubeflow.trainer.jobset import JOBS, NODE, STEP, Work, convert
from emulator.plugins.kubeflow.trainer.policies import (
    HOSTFILE,
    HOSTFILE_FOLDER,
    RENDEZVOUS,
    RESERVED,
    SOURCES,
    Nodes,
    mpi_processes,
    variables,
)
from emulator.scenario.document import KeyPath
from emulator.scenario.manifests import (
    Conversion,
    Document,
    Options,
    read_documents,
)
from emulator.validation.similar import closest

Data = Mapping[str, Any]
RUNTIMES = ("ClusterTrainingRuntime", "TrainingRuntime")
INITIALIZERS = {"dataset": "dataset-initializer", "model": "model-initializer"}
"""Fields of `spec.initializer`, each with the step and the container that it is about."""
LAUNCHER = "launcher"
"""The replicated job that runs mpirun."""
CLOSED = (NODE, *INITIALIZERS.values())
"""Containers of which a patch may not set `env`: the TrainJob has other fields for that."""
OLD_SPELLING = "it is read as runtimePatches, which took its place in Trainer 2.2"
POSTED = (
    "tasks have posted there, and can here; steps are read from posts, and from output without "
    "`metrics.trainer_status`"
)
OLD_WORD = "a word is of Trainer 2.0 and 2.1; later ones take a number"


@cache
def built_in() -> Mapping[str, Document]:
    """Return the runtimes that ship with Trainer, by name."""
    text = Path(__file__).with_name("runtimes.yaml").read_text(encoding="utf-8")
    documents = read_documents(text, "the built-in runtimes")
    return {str(one.get("metadata", "name")): one for one in documents}


def read(document: Document) -> tuple[dict[str, Any], Findings]:
    """Return the valid part of a document, and what is found in it."""
    findings = Findings(document)
    return Reader(OBJECTS, MOVED).read(findings, str(document.get("kind"))), findings


def converted(document: Document, documents: Sequence[Document], options: Options) -> Conversion:
    """Return the scenario of a TrainJob; `documents` are all. Raises ScenarioError."""
    job, findings = read(document)
    refuse([findings])
    rest = [one for one in documents if one is not document and one.get("kind") not in RUNTIMES]
    runtime = _runtime(document, job, findings, documents)
    if runtime is None:
        refuse([findings])
    assert runtime is not None, "else there is a mistake"
    template, found = read(runtime)
    if runtime.get("apiVersion") != TRAINER:
        message = "is another version" if runtime.get("apiVersion") else "is missing"
        found.mistake(("apiVersion",), message, f"write {TRAINER}")
    refuse([found])
    if runtime in built_in().values():
        found.notes.clear()  # nobody wrote it
    made = _TrainJob(_Given(document, job, findings), _Given(runtime, template, found))
    work = made.work(rest)
    refuse([findings, found])
    return convert(work, options)


def _runtime(
    document: Document, job: Data, findings: Findings, documents: Sequence[Document]
) -> Document | None:
    """Return the runtime of a TrainJob: of the files, or one that ships with Trainer."""
    reference: Data = job["spec"]["runtimeRef"]
    kind, name = reference.get("kind", RUNTIMES[0]), reference["name"]
    namespace = job["metadata"].get("namespace", "default")
    given = [one for one in documents if one.get("kind") == kind]
    if kind == "TrainingRuntime":
        given = [
            one for one in given if (one.get("metadata", "namespace") or "default") == namespace
        ]
    known = {str(one.get("metadata", "name")): one for one in given}
    if kind == RUNTIMES[0]:
        known = {**built_in(), **known}
    if name not in known:
        place = "" if kind == RUNTIMES[0] else f" in {namespace}"
        message = f"there is no {kind} {name}{place}"
        names = f"known: {', '.join(known)}; " if known else ""
        hint = f"{names}add the file that has it: --with FILE"
        findings.mistake(("spec", "runtimeRef", "name"), message, hint)
    return known.get(name)


@dataclass(frozen=True)
class _Given:
    """A document, what of it is valid, and what was found in it."""

    document: Document
    data: Data
    findings: Findings

    def at(self, *path: str | int) -> Source:
        """Return a place in it."""
        return self.document, path


class _TrainJob:
    """A TrainJob while it is put over its runtime."""

    def __init__(self, job: _Given, runtime: _Given) -> None:
        self._job, self._runtime = job, runtime
        self._spec: Data = job.data["spec"]
        self._trainer: Data | None = self._spec.get("trainer")
        self._name = str(job.data["metadata"].get("name") or "x")
        self._policy: Data = runtime.data["spec"].get("mlPolicy", {})
        self._draft = Draft({"metadata": job.data["metadata"]}, job.at())
        spec = runtime.data["spec"]["template"]["spec"]
        self._draft.set(("spec",), spec, runtime.at("spec", "template", "spec"))

    def work(self, rest: Sequence[Document]) -> Work:
        """Return the JobSet; what is wrong is added to the findings of the two documents."""
        policy = self._kind_of_policy()
        trainers = [path for path in self._jobs() if self._step(path) == "trainer"]
        if not trainers and self._trainer is not None:
            message = f"none has the label {STEP}: trainer"
            hint = "the job with it is the one that spec.trainer is about"
            at = ("spec", "template", "spec", "replicatedJobs")
            self._runtime.findings.mistake(at, message, hint)
        self._initialize()
        self._count(trainers)
        nodes = self._of_node(policy)
        self._train(policy, trainers, nodes)
        if policy == "mpi":
            rest = [*rest, self._launch(nodes)]
        for path in trainers if self._trainer is not None and policy != "mpi" else ():
            self._set_variables(policy, path, nodes)
        self._patch()
        self._inject(nodes)
        deadline: KeyPath = ()
        if (seconds := self._spec.get("activeDeadlineSeconds")) is not None:
            deadline = ("deadline",)
            self._draft.set(deadline, seconds, self._job.at("spec", "activeDeadlineSeconds"))
        return Work(
            self._draft.composed(self._job.document.file),
            rest,
            findings=(self._job.findings, self._runtime.findings),
            deadline=deadline,
            reports=self._reports(),
        )

    def _reports(self) -> bool:
        """Return whether tasks have reported in a cluster; only a state shows that its gate is on.

        Adds a note if they have.
        """
        at = ("status", "trainerStatus")
        if not isinstance(self._job.document.get(*at), dict):
            return False
        self._job.findings.note(at, "approximated", POSTED)
        return True

    # --- The runtime ----------------------------------------------------------------------------

    def _jobs(self) -> list[KeyPath]:
        return [(*JOBS, number) for number in range(len(self._draft.get(JOBS)))]

    def _labels(self, path: KeyPath) -> Data:
        labels: Data = self._draft.get((*path, "template", "metadata", "labels")) or {}
        return labels

    def _step(self, path: KeyPath) -> str:
        return str(self._labels(path).get(STEP, ""))

    def _job_name(self, path: KeyPath) -> str:
        return str(self._draft.get((*path, "name")))

    def _containers(self, path: KeyPath, name: str) -> Iterator[KeyPath]:
        """Yield the paths of a job's containers of a name."""
        above = (*path, "template", "spec", "template", "spec", "containers")
        for number, one in enumerate(self._draft.get(above) or []):
            if one["name"] == name:
                yield (*above, number)

    def _kind_of_policy(self) -> str:
        given = [one for one in SOURCES if one in self._policy]
        at = ("spec", "mlPolicy")
        if len(given) > 1:
            message = f"has {' and '.join(given)}; a runtime has one of them"
            self._runtime.findings.mistake(at, message)
        for one in given:
            if one in UNSUPPORTED:
                hint = "write the variables in spec.trainer.env, with a runtime without a policy"
                message = f"{one} can't be emulated"
                self._runtime.findings.mistake((*at, one), message, hint)
        return given[0] if given else ""

    # --- Initializers and nodes -----------------------------------------------------------------

    def _initialize(self) -> None:
        for key, step in INITIALIZERS.items():
            source: Data | None = self._spec.get("initializer", {}).get(key)
            paths = [path for path in self._jobs() if self._step(path) == step]
            for path in paths:
                self._set_one(path)
            containers = [one for path in paths for one in self._containers(path, step)]
            if source is None:
                continue
            at = ("spec", "initializer", key)
            if not containers:
                message = f"the runtime has no {step}"
                hint = "choose one that has, or leave it out"
                self._job.findings.mistake(at, message, hint)
            for container in containers:
                self._add_source(container, source, at)

    def _set_one(self, path: KeyPath) -> None:
        """Set the replicas of a job, which Trainer does whatever its runtime says."""
        self._draft.set((*path, "replicas"), 1, self._draft.composed("").source(path))

    def _add_source(self, container: KeyPath, source: Data, at: KeyPath) -> None:
        if "storageUri" in source:
            item = {"name": "STORAGE_URI", "value": source["storageUri"]}
            self._draft.upsert((*container, "env"), item, self._job.at(*at, "storageUri"))
        self._add_env(container, source.get("env", []), at)
        if "secretRef" in source:
            others = self._draft.get((*container, "envFrom")) or []
            added = [*others, {"secretRef": source["secretRef"]}]
            self._draft.set((*container, "envFrom"), added, self._job.at(*at, "secretRef"))

    def _add_env(self, container: KeyPath, env: Sequence[Data], at: KeyPath) -> None:
        for number, item in enumerate(env):
            self._draft.upsert((*container, "env"), item, self._job.at(*at, "env", number))

    @property
    def _nodes(self) -> int:
        given = (self._trainer or {}).get("numNodes")
        return int(self._policy.get("numNodes", 1) if given is None else given)

    def _count(self, trainers: Sequence[KeyPath]) -> None:
        """Set the pods of the training: the number of nodes.

        Where neither a policy nor the TrainJob says it, it is that of the runtime's job.
        """
        is_said = "mlPolicy" in self._runtime.data["spec"] or "numNodes" in (self._trainer or {})
        for path in trainers:
            self._set_one(path)
            if is_said:
                self._set_pods(path, self._nodes)

    def _set_pods(self, path: KeyPath, count: int) -> None:
        is_own = "numNodes" in (self._trainer or {})
        source = (
            self._job.at("spec", "trainer", "numNodes")
            if is_own
            else self._runtime.at("spec", "mlPolicy", "numNodes")
        )
        for key in ("parallelism", "completions"):
            self._draft.set((*path, "template", "spec", key), count, source)

    # --- The trainer ----------------------------------------------------------------------------

    def _train(self, policy: str, trainers: Sequence[KeyPath], nodes: Nodes) -> None:
        """Put `spec.trainer` over the containers named `node` of the training.

        The nodes of a launcher that is one too get its variables and resources.
        """
        if self._trainer is None:
            return
        containers = [one for path in trainers for one in self._containers(path, NODE)]
        if trainers and not containers:
            message = f"the runtime's job {self._job_name(trainers[0])} has no container named"
            self._job.findings.mistake(("spec", "trainer"), f"{message} {NODE}")
        given = dict(self._trainer)
        if self._tunes(policy):
            given["command"] = self._tuned(containers, nodes)
        for container in containers:
            for key in ("image", "command", "args"):
                if key in given:
                    source = self._job.at("spec", "trainer", key)
                    self._draft.set((*container, key), given[key], source)
        for number, item in enumerate(self._trainer.get("env", [])):
            if item["name"] in RESERVED.get(policy, ()):
                at = ("spec", "trainer", "env", number, "name")
                message = f"{item['name']} is set by the runtime"
                self._job.findings.mistake(at, message, "leave it out; Trainer refuses it")
        for container in dict.fromkeys((*containers, *self._nodes_of_launcher())):
            if resources := self._trainer.get("resourcesPerNode"):
                source = self._job.at("spec", "trainer", "resourcesPerNode")
                merged = {**(self._draft.get((*container, "resources")) or {})}
                self._draft.set((*container, "resources"), merged, source)
                self._draft.merge((*container, "resources"), resources, source)
            self._add_env(container, self._trainer.get("env", []), ("spec", "trainer"))

    def _nodes_of_launcher(self) -> Iterator[KeyPath]:
        """Yield the containers of the nodes beside a launcher that is a node too."""
        if (self._policy.get("mpi") or {}).get("runLauncherAsNode"):
            for path in self._jobs():
                if self._job_name(path) == NODE:
                    yield from self._containers(path, NODE)

    def _tunes(self, policy: str) -> bool:
        """Return whether Trainer makes the command, of a bare `tune run`."""
        return policy == "torch" and (self._trainer or {}).get("command") == torchtune.TUNE

    def _tuned(self, containers: Sequence[KeyPath], nodes: Nodes) -> list[str]:
        """Return the command of torchtune; add what Trainer refuses of it."""
        assert self._trainer is not None, "its command is that of a trainer"
        name, args = self._spec["runtimeRef"]["name"], self._trainer.get("args", [])
        given = replace(
            nodes,
            count=self._trainer.get("numNodes", 1),
            processes=self._trainer.get("numProcPerNode"),
        )
        for at, message, hint in torchtune.mistakes(name, given, args):
            self._job.findings.mistake(("spec", *at), message, hint)
        words = [self._draft.get((*container, "command")) or [] for container in containers]
        return torchtune.command(name, nodes, args, [word for some in words for word in some])

    def _set_variables(self, policy: str, path: KeyPath, nodes: Nodes) -> None:
        """Add the variables of the policy to the container `node`."""
        assert self._trainer is not None, "without a trainer there are none"
        own = [item["name"] for item in self._trainer.get("env", [])]
        left_out = (*own, *(RENDEZVOUS if self._tunes(policy) else ()))
        for container in self._containers(path, NODE):
            for item in variables(policy, nodes):
                if item["name"] not in left_out:
                    source = self._runtime.at("spec", "mlPolicy", policy)
                    self._draft.upsert((*container, "env"), item, source)

    def _inject(self, nodes: Nodes) -> None:
        """Add the variables of `torch` to the other containers that its policy names.

        They have those of the rendezvous also beside a `tune run`, and without a trainer.
        """
        at: KeyPath = ("spec", "mlPolicy", "torch", "envInjection", "targets")
        targets = (self._policy.get("torch") or {}).get("envInjection", {}).get("targets", [])
        for number, target in enumerate(targets):
            for index, name in enumerate(target["containerNames"]):
                place = (*at, number, "containerNames", index)
                container = self._target(target["jobName"], name, place)
                for item in variables("torch", nodes) if container else ():
                    source = self._runtime.at(*place)
                    self._draft.upsert((*container, "env"), item, source)

    def _target(self, job: str, name: str, place: KeyPath) -> KeyPath:
        """Return a container or init container of a job; empty, with a mistake, if none is it."""
        pods = [
            (*path, "template", "spec", "template", "spec")
            for path in self._jobs()
            if self._job_name(path) == job
        ]
        found = [
            (*pod, key, number)
            for pod in pods
            for key in ("containers", "initContainers")
            for number, one in enumerate(self._draft.get((*pod, key)) or [])
            if one["name"] == name
        ]
        if name == NODE:
            message = f"{NODE} has the variables anyway, and Trainer refuses it here"
            self._runtime.findings.mistake(place, message, "leave it out")
        elif not found:
            message = f"the runtime has no container {name} in a job {job}"
            self._runtime.findings.mistake(place, message)
        return found[0] if found else ()

    def _of_node(self, policy: str) -> Nodes:
        return Nodes(
            job=self._name,
            count=self._nodes,
            processes=self._processes(policy),
            resources=self._resources(),
        )

    def _resources(self) -> Data:
        """Return what a node asks for: as the TrainJob says, or else as its runtime does."""
        if (own := (self._trainer or {}).get("resourcesPerNode")) is not None:
            return dict(own)
        for path in self._jobs():
            if self._job_name(path) == NODE or self._step(path) == "trainer":
                for container in self._containers(path, NODE):
                    if found := self._draft.get((*container, "resources")):
                        return dict(found)
        return {}

    def _processes(self, policy: str) -> int | str | None:
        """Return the processes of a node as they are given; add what is wrong with them."""
        at: KeyPath = ("spec", "trainer", "numProcPerNode")
        own = (self._trainer or {}).get("numProcPerNode")
        given, findings = own, self._job.findings
        if own is None:
            given = (self._policy.get(policy) or {}).get("numProcPerNode")
            at, findings = ("spec", "mlPolicy", policy, "numProcPerNode"), self._runtime.findings
        if given in ("auto", "cpu", "gpu") and policy != "mpi":
            findings.note(at, "approximated", OLD_WORD)
        elif given is not None and (
            isinstance(given, bool) or not isinstance(given, int) or given < 1
        ):
            hint = "a number of at least 1; for torch also auto, cpu or gpu, as of Trainer 2.0"
            findings.mistake(at, f"{given!r} is no number of processes", hint)
            return None
        # Trainer takes a runtime's 1 as not said: it is the default.
        return None if policy == "mpi" and own is None and given == 1 else given

    # --- MPI ------------------------------------------------------------------------------------

    def _launch(self, nodes: Nodes) -> Document:
        """Set what mpirun needs in the jobs `launcher` and `node`; return the list of hosts.

        The launcher has the label of the training and is one pod; the nodes run an ssh server.
        """
        policy, source = self._policy["mpi"] or {}, self._runtime.at("spec", "mlPolicy", "mpi")
        is_node = policy.get("runLauncherAsNode", False)
        counts = {LAUNCHER: 1, NODE: max(self._nodes - 1, 1) if is_node else self._nodes}
        slots, lines = 1, []
        for path in self._jobs():
            name = self._job_name(path)
            if name not in counts:
                continue
            self._set_pods(path, counts[name])
            volumes = [self._keys(), self._list_of_hosts()] if name == LAUNCHER else [self._keys()]
            folders = [policy.get("sshAuthMountPath", "/root/.ssh"), HOSTFILE_FOLDER]
            pod = (*path, "template", "spec", "template", "spec")
            for volume in volumes:
                self._draft.upsert((*pod, "volumes"), volume, source)
            for container in self._containers(path, NODE):
                for volume, folder in zip(volumes, folders, strict=False):
                    mount = {"name": volume["name"], "mountPath": folder}
                    self._draft.upsert((*container, "volumeMounts"), mount, source)
                if name == LAUNCHER:
                    slots = mpi_processes(nodes)
                    for item in variables("mpi", nodes):
                        self._draft.upsert((*container, "env"), item, source)
            if name == NODE or is_node:
                host = f"{self._name}-{name}-0-{{}}.{self._name}"
                lines += [host.format(index) for index in range(counts[name])]
        text = "".join(f"{line} slots={slots}\n" for line in lines)
        metadata = {"name": f"{self._name}-mpi-hostfile", "namespace": self._namespace}
        made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        return Document(self._job.document.file, {**made, "data": {HOSTFILE: text}}, {})

    @property
    def _namespace(self) -> str:
        return str(self._job.data["metadata"].get("namespace", "default"))

    def _keys(self) -> dict[str, Any]:
        """Return the volume with the keys of ssh, which a Secret of the files has to have."""
        pairs = {
            "id_rsa": "ssh-privatekey",
            "id_rsa.pub": "ssh-publickey",
            "authorized_keys": "ssh-publickey",
        }
        items = [{"key": key, "path": path} for path, key in pairs.items()]
        secret = {"secretName": f"{self._name}-mpi-ssh-auth", "defaultMode": 0o600, "items": items}
        return {"name": "mpi-ssh-auth", "secret": secret}

    def _list_of_hosts(self) -> dict[str, Any]:
        items = [{"key": HOSTFILE, "path": HOSTFILE, "mode": 0o444}]
        of = {"name": f"{self._name}-mpi-hostfile", "items": items}
        return {"name": "mpi-hostfile", "configMap": of}

    # --- Patches --------------------------------------------------------------------------------

    def _patch(self) -> None:
        for patch in self._patches():
            paths = [path for path in self._jobs() if self._job_name(path) == patch.job]
            if not paths:
                names = [self._job_name(path) for path in self._jobs()]
                hint = closest(patch.job, names) or f"known: {', '.join(names)}"
                message = f"the runtime has no replicated job {patch.job}"
                self._job.findings.mistake(patch.named, message, hint)
            for path in paths:
                self._apply(patch, (*path, "template", "spec", "template"))

    def _apply(self, patch: _Patch, template: KeyPath) -> None:
        if patch.metadata:
            at = (*template, "metadata")
            if self._draft.get(at) is None:
                self._draft.set(at, {}, self._job.at(*patch.metadata_path))
            self._draft.merge(at, patch.metadata, self._job.at(*patch.metadata_path))
        for key in ("containers", "initContainers"):
            known = self._draft.get((*template, "spec", key)) or []
            names = [one["name"] for one in known]
            for number, one in enumerate(patch.spec.get(key, [])):
                at = (*patch.path, key, number)
                if one["name"] not in names:
                    hint = closest(one["name"], names) or f"known: {', '.join(names) or 'none'}"
                    message = f"the job {patch.job} has no container {one['name']}"
                    self._job.findings.mistake((*at, "name"), message, hint)
                    return
                if one["name"] in CLOSED and "env" in one:
                    where = "trainer" if one["name"] == NODE else "initializer"
                    hint = f"write it in spec.{where}, which has env"
                    message = f"Trainer refuses variables of {one['name']} in a patch"
                    self._job.findings.mistake((*at, "env"), message, hint)
        spec = {key: value for key, value in patch.spec.items() if key != "targetJobs"}
        self._draft.merge((*template, "spec"), spec, self._job.at(*patch.path))

    def _patches(self) -> Iterator[_Patch]:
        """Yield the patches of the job in the spellings of all versions."""
        for key in ("podSpecOverrides", "podTemplateOverrides"):
            for number, one in enumerate(self._spec.get(key, [])):
                at: KeyPath = ("spec", key, number)
                self._job.findings.note(("spec", key), "approximated", OLD_SPELLING)
                is_flat = key == "podSpecOverrides"
                for index, target in enumerate(one["targetJobs"]):
                    yield _Patch(
                        target["name"],
                        (*at, "targetJobs", index, "name"),
                        one if is_flat else one.get("spec", {}),
                        at if is_flat else (*at, "spec"),
                        one.get("metadata", {}),
                        (*at, "metadata"),
                    )
        for number, one in enumerate(self._spec.get("runtimePatches", [])):
            spec = one.get("trainingRuntimeSpec", {}).get("template", {}).get("spec", {})
            for index, job in enumerate(spec.get("replicatedJobs", [])):
                at = ("spec", "runtimePatches", number, "trainingRuntimeSpec", "template", "spec")
                at = (*at, "replicatedJobs", index)
                template = job.get("template", {}).get("spec", {}).get("template", {})
                inner = (*at, "template", "spec", "template")
                yield _Patch(
                    job["name"],
                    (*at, "name"),
                    template.get("spec", {}),
                    (*inner, "spec"),
                    template.get("metadata", {}),
                    (*inner, "metadata"),
                )


@dataclass(frozen=True)
class _Patch:
    """What a TrainJob changes in the pods of a job of its runtime."""

    job: str
    named: KeyPath
    """Where the job is named."""
    spec: Data
    path: KeyPath
    """Of the spec, in the TrainJob."""
    metadata: Data
    metadata_path: KeyPath


UNSUPPORTED = ("flux",)
"""Policies without an emulation."""
