"""A TFJob or PyTorchJob as a scenario.

The rules are those of kubeflow/training-operator v1.9.0 (pure, but for the files of `--configmap`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from emulator.errors import Problem, ScenarioError, shown
from emulator.plugins.kubeflow.kinds import CLEAN, GROUP, JOBS, MOVED, OBJECTS, POLICIES, Job, Spec
from emulator.plugins.kubeflow.manifests.common import LONGEST, Images, Options, gathered
from emulator.plugins.kubeflow.manifests.expansion import Value, plain
from emulator.plugins.kubeflow.manifests.fields import Findings, Reader, refuse
from emulator.plugins.kubeflow.manifests.objects import Pod, check_used, read_objects
from emulator.plugins.kubeflow.manifests.pod_templates import role_of
from emulator.plugins.kubeflow.section import (
    DEFAULT_POLICIES,
    FRAMEWORK_OF,
    PREFIX,
)
from emulator.scenario.document import KeyPath
from emulator.scenario.manifests import (
    Conversion,
    Document,
    Format,
    OptionValues,
    located,
)
from emulator.validation.similar import closest

_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_PLACES: Mapping[str, KeyPath] = {
    "namespace": ("metadata", "namespace"),
    "labels": ("metadata", "labels"),
    "annotations": ("metadata", "annotations"),
    "backoff_limit": ("spec", "runPolicy", "backoffLimit"),
    "active_deadline": ("spec", "runPolicy", "activeDeadlineSeconds"),
    "clean_pods": ("spec", "runPolicy", "cleanPodPolicy"),
    "ttl_after_finished": ("spec", "runPolicy", "ttlSecondsAfterFinished"),
    "success": ("spec", "successPolicy"),
    "dynamic_worker": ("spec", "enableDynamicWorker"),
    "elastic": ("spec", "elasticPolicy"),
    "nproc_per_node": ("spec", "nprocPerNode"),
}
"""Keys of the section `operator`, and where they come from."""


def recognises(job: Job) -> Callable[[Sequence[Document]], bool]:
    """Return whether one of the documents is of a kind, in whatever version."""
    return lambda documents: any(one.get("kind") == job.kind for one in documents)


def convert(job: Job) -> Callable[[Sequence[Document], OptionValues], Conversion]:
    """Return the conversion of a kind."""
    return lambda documents, given: _Conversion(job, documents, Options.of(given)).result()


def is_job(document: Document) -> bool:
    """Return whether a document is a job of the operator, perhaps of another kind."""
    group = str(document.get("apiVersion")).partition("/")[0]
    return group == "kubeflow.org" or str(document.get("kind")) in ("TFJob", "PyTorchJob")


class _Conversion:
    """The conversion of one file."""

    def __init__(self, job: Job, documents: Sequence[Document], options: Options) -> None:
        self._job, self._options = job, options
        jobs = [document for document in documents if is_job(document)]
        self._document = next(one for one in jobs if one.get("kind") == job.kind)
        _refuse_others(self._document, jobs)
        self._findings = Findings(self._document)
        self._data = Reader(OBJECTS, MOVED).read(self._findings, job.kind)
        self._spec: Spec = self._data.get("spec", {})
        self._metadata: Spec = self._data.get("metadata", {})
        self._namespace = self._metadata.get("namespace", "default")
        others = [document for document in documents if document not in jobs]
        self._objects, self._found = read_objects(others, self._namespace, options)
        self._images = Images(options.images)
        self._origins: dict[KeyPath, KeyPath] = {}

    def result(self) -> Conversion:
        """Return the scenario. Raises ScenarioError with all mistakes."""
        name = self._name()
        roles = self._roles(name)
        operator = self._operator(name, roles)
        cluster = {role: entry for role, (entry, _) in roles.items()}
        refuse([self._findings, *self._found])
        unused = [*self._images.problems(), *check_used(self._objects, self._options)]
        if unused:
            raise ScenarioError(unused)
        top, program, shorter = gathered(cluster)
        scenario = {
            "name": name[:LONGEST].rstrip("-"),
            "framework": FRAMEWORK_OF[self._job.kind],
            "operator": operator,
            **top,
            "program": program,
            "cluster": shorter,
        }
        notes = [note for one in (self._findings, *self._found) for note in one.all_notes()]
        return Conversion(scenario, tuple(notes), located(self._document, self._origins, cluster))

    # --- Metadata -------------------------------------------------------------------------------

    def _name(self) -> str:
        name = self._metadata.get("name")
        path: KeyPath = ("metadata", "name")
        if not name and (prefix := self._metadata.get("generateName")):
            name, path = prefix.rstrip("-"), ("metadata", "generateName")
        if not name:
            if "metadata" in self._data:
                self._findings.mistake(path, "is missing")
            return "x"
        if not _LABEL.fullmatch(name):
            hint = "lower-case letters, digits and dashes, at most 63, with a letter first"
            self._findings.mistake(path, f"{shown(name)!r} is not the name of a job", hint)
            return "x"
        if not _NAMESPACE.fullmatch(self._namespace):
            message = f"{shown(self._namespace)!r} is not the name of a namespace"
            self._findings.mistake(("metadata", "namespace"), message)
        self._origins |= {("name",): path, ("operator", "job"): path}
        return str(name)

    # --- Replicas -------------------------------------------------------------------------------

    def _roles(self, name: str) -> dict[str, tuple[dict[str, Any], Spec]]:
        specs: Spec = self._spec.get(self._job.replica_specs, {})
        above: KeyPath = ("spec", self._job.replica_specs)
        if not specs and self._job.replica_specs in self._spec:
            self._findings.mistake(above, "is empty", f"one of {', '.join(self._job.types)}")
        roles: dict[str, tuple[dict[str, Any], Spec]] = {}
        variables = self._job.variables(self._spec)
        for key, spec in specs.items():
            path = (*above, key)
            if not (role := self._type(key, path)):
                continue
            if role in roles:
                self._findings.mistake(path, "is there twice, in another case")
            replicas = self._replicas(spec, role, path)
            pod = self._pod(name, role, spec, path, variables)
            entry = role_of(pod, self._images) if pod.spec.get("containers") else {}
            self._origins |= {
                ("cluster", role, *inner): place for inner, place in pod.origins.items()
            }
            self._origins |= {
                ("cluster", role): path,
                ("cluster", role, "replicas"): (*path, "replicas"),
                ("operator", "restart", role): (*path, "restartPolicy"),
            }
            if replicas:
                roles[role] = {"replicas": replicas, **entry}, spec
        if specs and not roles and not self._findings.mistakes:
            self._findings.mistake(above, "has no replicas")
        return roles

    def _type(self, key: str, path: KeyPath) -> str:
        """Return a replica type in lower case; empty if there is no such type."""
        folded = key.lower() if self._job.folds_case else key
        known = {one.lower() if self._job.folds_case else one: one for one in self._job.types}
        if folded in known:
            return key.lower()
        hint = closest(key, self._job.types) or f"known: {', '.join(self._job.types)}"
        self._findings.mistake(path, f"a {self._job.kind} has no such replica type", hint)
        return ""

    def _replicas(self, spec: Spec, role: str, path: KeyPath) -> int:
        """Return the number of tasks; 0 if the role has none."""
        replicas = spec.get("replicas", 1)
        if self._job.kind == "PyTorchJob":
            # The operator's webhook sees the job before its defaults are set.
            if role == "master" and spec.get("replicas") != 1:
                hint = "write replicas: 1; the operator refuses a Master without it"
                self._findings.mistake((*path, "replicas"), "must be 1", hint)
            elif not replicas:
                self._findings.mistake((*path, "replicas"), "must be at least 1")
        elif not replicas:
            text = "the type is left out, of which TF_CONFIG would have an empty list"
            self._findings.note((*path, "replicas"), "approximated", text)
        return int(replicas)

    def _pod(
        self, name: str, role: str, spec: Spec, path: KeyPath, variables: frozenset[str]
    ) -> Pod:
        template: Spec = spec.get("template", {})
        if not template.get("spec", {}).get("containers"):
            at = (*path, "template", "spec", "containers")
            self._findings.mistake(at, "is missing", f"one named {self._job.container}")
        metadata: Spec = template.get("metadata", {})
        return Pod(
            findings=self._findings,
            objects=self._objects,
            namespace=self._namespace,
            role=role,
            path=(*path, "template"),
            spec=template.get("spec", {}),
            labels=metadata.get("labels", {}),
            annotations=metadata.get("annotations", {}),
            labels_of_operator={
                f"{PREFIX}job-name": plain(name),
                f"{PREFIX}replica-type": plain(role),
                f"{PREFIX}replica-index": (Value("index"),),
            },
            container=self._job.container,
            set_by_operator=variables,
        )

    # --- Section operator -----------------------------------------------------------------------

    def _operator(
        self, name: str, roles: Mapping[str, tuple[dict[str, Any], Spec]]
    ) -> dict[str, Any]:
        default = DEFAULT_POLICIES[self._job.kind]
        pods = {role: spec.get("template", {}).get("spec", {}) for role, (_, spec) in roles.items()}
        ports = {role: port for role, pod in pods.items() if (port := self._job.port_of(pod))}
        restart = {
            role: POLICIES.get(spec.get("restartPolicy", ""), default)
            for role, (_, spec) in roles.items()
        }
        run: Spec = self._spec.get("runPolicy", {})
        given = {
            "kind": self._job.kind,
            "job": name,
            "namespace": self._namespace,
            "ports": ports,
            **self._job.operator(self._findings, self._spec),
            "restart": restart,
            "backoff_limit": run.get("backoffLimit"),
            "active_deadline": _seconds(run.get("activeDeadlineSeconds")),
            "clean_pods": CLEAN.get(run.get("cleanPodPolicy", "")),
            "success": {"AllWorkers": "all-workers"}.get(self._spec.get("successPolicy", "")),
            "ttl_after_finished": _seconds(run.get("ttlSecondsAfterFinished")),
            "labels": self._metadata.get("labels", {}),
            "annotations": self._metadata.get("annotations", {}),
        }
        self._origins |= {("operator", key): place for key, place in _PLACES.items()}
        self._origins[("operator",)] = ("spec",)
        empty = {key for key, value in given.items() if value is None}
        empty |= {key for key in ("ports", "labels", "annotations") if not given[key]}
        return {key: value for key, value in given.items() if key not in empty}


def _seconds(number: int | None) -> str | None:
    return None if number is None else f"{number}s"


def _refuse_others(document: Document, jobs: Sequence[Document]) -> None:
    """Raise ScenarioError if there are several jobs, or one of another version."""
    problems = list[Problem]()
    if document.get("apiVersion") != GROUP:
        given = document.get("apiVersion")
        message = f"{shown(str(given))} is another version" if given else "is missing"
        problems.append(document.problem(("apiVersion",), message, f"write {GROUP}"))
    for other in jobs:
        if other is not document:
            kind = shown(str(other.get("kind")))
            message = f"there is a second job, of kind {kind}; a file has one"
            problems.append(other.problem(("kind",), message, "put it into a file of its own"))
    if problems:
        raise ScenarioError(problems)


FORMATS = tuple(Format(job.kind, recognises(job), convert(job)) for job in JOBS.values())
