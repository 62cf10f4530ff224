"""Commands with jobs of the training operator: `convert`, `plan`, `export`, `ps`."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.engines.memory import Script
from emulator.planning.plan import Plan
from tests.cli.typed import NO_DOCKER, refusal, typed
from tests.plugins.kubeflow.test_jobs_in import TFJOB, T, changed
from tests.report.runs import a_run


@pytest.fixture
def tfjob(tmp_path: Path) -> Path:
    path = tmp_path / "tfjob.yaml"
    path.write_text(TFJOB)
    return path


def test_a_manifest_is_planned_as_it_is_converted(tfjob: Path, tmp_path: Path) -> None:
    tfjob.write_text(changed(TFJOB, f"{T}.nodeName", "big"))
    converted = tmp_path / "elsewhere" / "scenario.yaml"
    converted.parent.mkdir()
    done = typed("convert", tfjob, "--image=tensorflow=cpu", "-o", converted)
    assert done.returncode == 0, done.stderr
    assert converted.read_text().startswith(
        "# Made from tfjob.yaml by emulate.\n"
        "# spec.tfReplicaSpecs.Worker.template.spec.nodeName is ignored: "
    )
    plan = ["plan", "--engine=process", "--json", "--run-id=x"]
    one, other = (
        Plan.model_validate(typed(*plan, *options).json)
        for options in ([tfjob, "--image=tensorflow=cpu"], [converted])
    )
    assert one.scenario == other.scenario
    assert any("nodeName is ignored" in warning for warning in one.warnings)


def test_convert_writes_to_stdout_and_overwrites_nothing(tfjob: Path, tmp_path: Path) -> None:
    done = typed("convert", tfjob)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("# Made from tfjob.yaml by emulate.\n")
    path = tmp_path / "s.yaml"
    path.write_text("mine")
    refused = typed("convert", tfjob, "-o", path)
    assert (refused.returncode, path.read_text()) == (2, "mine")
    assert "s.yaml is there already. --force overwrites it." in refused.stderr
    assert typed("convert", tfjob, "-o", path, "--force").returncode == 0
    assert path.read_text() == done.stdout


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("kubeflow.org/v1", "kubeflow.org/v1beta1", "tfjob.yaml:1: apiVersion: "),
        ("kind: TFJob", "kind: MXJob", "tfjob.yaml:2: kind: MXJob of kubeflow.org/v1 can't run"),
        ("replicas", "replcas", "tfjob.yaml:8: spec.tfReplicaSpecs.Worker.replcas: unknown field"),
        ("name: tensorflow", "name: main", "tfjob.yaml:12: spec.tfReplicaSpecs.Worker.template."),
        ("tf:1", "'{{ .image }}'", "tfjob.yaml:13: spec.tfReplicaSpecs.Worker.template."),
        ("replicas: 2", "replicas: two", "tfjob.yaml:8: spec.tfReplicaSpecs.Worker.replicas: "),
    ],
)
@pytest.mark.parametrize("command", [["plan"], ["up", "--engine=process"], ["convert"]])
def test_a_bad_manifest_is_a_line_and_exit_code_2(
    tfjob: Path, command: list[str], old: str, new: str, message: str
) -> None:
    tfjob.write_text(TFJOB.replace(old, new, 1))
    done = typed(*command, "tfjob.yaml", cwd=tfjob.parent)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"emulate: {message}")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--image=cpu"], "--image cpu is not NAME=VALUE. Example: --image tensorflow=cpu"),
        (["--image=a=b", "--image=a=c"], "--image a is given twice."),
        (["--image=torch=cpu"], "there is no container, role or image torch"),
        (["--configmap=data"], "--configmap data is not NAME=VALUE."),
        (["--command="], "--command is empty."),
        (["--command='a"], "--command 'a: No closing quotation."),
        (["--faults=nothing.yaml"], "Can't read nothing.yaml, the file of --faults: No such file"),
    ],
)
def test_a_bad_option_is_a_line_and_code_2(tfjob: Path, options: list[str], message: str) -> None:
    done = typed("plan", "tfjob.yaml", "--engine=process", *options, cwd=tfjob.parent)
    assert done.returncode == 2
    assert message in done.stderr


def test_ps_wide_shows_the_conditions_of_a_training_operators_job(tmp_path: Path) -> None:
    job = "operator: {kind: TFJob, job: mnist}\n"
    a_run(tmp_path, "cluster: {worker: 1}\n" + job, {"worker-0": Script()})
    for which in ("last", "--all"):
        shown = typed("ps", which, "-o", "wide", "--out", tmp_path, env=NO_DOCKER).stdout
        reasons = [word for word in shown.split() if word.startswith("TFJob")]
        assert reasons == ["TFJobCreated", "TFJobRunning", "TFJobSucceeded"]
    assert "TFJob" not in typed("ps", "last", "--out", tmp_path).stdout
    data = typed("ps", "last", "--json", "--out", tmp_path).json
    assert [one["type"] for one in data["conditions"]] == ["Created", "Running", "Succeeded"]


def test_what_comes_through_a_pipe_is_converted(tmp_path: Path) -> None:
    scenario = "name: a\nprogram: {command: [a]}\ncluster: {worker: 1}\n"
    assert typed("convert", "-", stdin=scenario).ended().stdout == scenario
    command = "--command=sh -c true"
    cluster = '{"worker": ["worker-0:2222"]}'
    text = typed("convert", "-", command, cwd=tmp_path, stdin=cluster).ended().stdout
    assert text.startswith("# Made from standard input by emulate.\n")
    assert refusal("plan", "-", command, stdin=scenario) == (
        "--command is for manifests; standard input is a scenario. "
        "Use --set 'program.command=[python, train.py]'."
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("convert job.yaml --to trainjob", "--to of `emulate convert` was removed: a scenario, or"),
        ("convert https://a.b/x.yaml", "https://a.b/x.yaml is an address; a scenario is a "),
        ("convert no-such.yaml", "Can't read no-such.yaml: No such file"),
    ],
)
def test_what_can_not_be_converted_is_one_sentence(words: str, sentence: str) -> None:
    assert refusal(*words.split()).startswith(sentence)
