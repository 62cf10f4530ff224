"""Which files are of Trainer v2, and which documents in them are what (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from emulator.errors import ScenarioError, shown
from emulator.plugins.kubeflow.manifests.fields import refuse
from emulator.plugins.kubeflow.trainer import jobset, trainjob
from emulator.plugins.kubeflow.trainer.composed import Draft
from emulator.plugins.kubeflow.trainer.fields import BATCH, JOBSET, TRAINER
from emulator.plugins.kubeflow.trainer.trainjob import read
from emulator.scenario.document import KeyPath
from emulator.scenario.manifests import Conversion, Document, Format, Options

VERSIONS = {"TrainJob": TRAINER, "JobSet": JOBSET, "Job": BATCH}
"""What runs, in the order in which it is looked for: a file with a TrainJob is one."""


def only(documents: Sequence[Document], kind: str) -> Document:
    """Return the job of a file. Raises ScenarioError if it has another, or another version."""
    found = [one for one in documents if str(one.get("kind")) in VERSIONS]
    job = next(one for one in found if one.get("kind") == kind)
    problems = []
    if (given := job.get("apiVersion")) != VERSIONS[kind]:
        message = f"{shown(str(given))} is another version" if given else "is missing"
        problems.append(job.problem(("apiVersion",), message, f"write {VERSIONS[kind]}"))
    for other in found:
        if other is not job:
            message = f"there is a second job, of kind {shown(str(other.get('kind')))}"
            problems.append(other.problem(("kind",), message, "put it into a file of its own"))
    if problems:
        raise ScenarioError(problems)
    return job


def _train_job(documents: Sequence[Document], options: Options) -> Conversion:
    return trainjob.converted(only(documents, "TrainJob"), documents, options)


def _job_set(documents: Sequence[Document], options: Options) -> Conversion:
    document = only(documents, "JobSet")
    data, findings = read(document)
    refuse([findings])
    rest = [one for one in documents if one is not document]
    draft = Draft(data, (document, ()))
    return jobset.convert(
        jobset.Work(draft.composed(document.file), rest, findings=(findings,)), options
    )


ROLE = "worker"
"""Of the pods of a bare Job."""


def _job(documents: Sequence[Document], options: Options) -> Conversion:
    document = only(documents, "Job")
    data, findings = read(document)
    spec = data.get("spec", {})
    if spec and spec.get("completionMode") != "Indexed":
        path: KeyPath = ("spec", "completionMode")
        message = f"{spec.get('completionMode', 'NonIndexed')} gives its pods no index"
        findings.mistake(path, message, "write completionMode: Indexed; only such a Job is read")
    pod = spec.get("template", {}).get("spec", {})
    if pod and pod.get("restartPolicy") not in ("Never", "OnFailure"):
        path = ("spec", "template", "spec", "restartPolicy")
        findings.mistake(path, "must be Never or OnFailure", "a Job has no other")
    refuse([findings])
    one = {"name": ROLE, "template": {"spec": spec}}
    draft = Draft({**data, "spec": {"replicatedJobs": [one]}}, (document, ()))
    draft.came((*jobset.JOBS, 0), (document, ("spec",)))
    draft.came((*jobset.JOBS, 0, "template", "spec"), (document, ("spec",)))
    name = data["metadata"].get("name") or data["metadata"].get("generateName", "x").rstrip("-")
    host = f"{name}-{{index}}" + (f".{pod['subdomain']}" if pod.get("subdomain") else "")
    rest = [other for other in documents if other is not document]
    work = jobset.Work(draft.composed(document.file), rest, findings=(findings,), host=host)
    return jobset.convert(work, options)


def _has(kind: str, group: str, documents: Sequence[Document]) -> bool:
    """Return whether one of the documents is of a kind, in whatever version of its group."""
    return any(
        one.get("kind") == kind and str(one.get("apiVersion") or group).partition("/")[0] == group
        for one in documents
    )


FORMATS = (
    Format(
        "TrainJob",
        lambda documents: _has("TrainJob", "trainer.kubeflow.org", documents),
        _train_job,
    ),
    Format("JobSet", lambda documents: _has("JobSet", "jobset.x-k8s.io", documents), _job_set),
    Format("indexed Job", lambda documents: _has("Job", "batch", documents), _job),
)
