"""`convert`, and `up` and `plan` of a manifest, as users call them. Tasks are shell scripts."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from emulator.planning.plan import Plan
from emulator.record.reader import Record
from emulator.scenario.loader import load
from tests.cli.typed import refusal, typed
from tests.conftest import Emulate, own

CLUSTER = '{"ps": ["ps-0.demo.svc:8080",], "worker": ["worker-0.demo.svc:8080"],}\n'
SAYS = 'echo "{\\"emulate\\": \\"step\\", \\"step\\": 7}"; echo "I am $POD_NAME"'
COMMAND = shlex.join(["sh", "-c", SAYS])
FAULTS = "timeout: 1m\nexpect: {final_step: 7}\n"
TFJOB = """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: demo}
spec:
  tfReplicaSpecs:
    Worker:
      replicas: 2
      template:
        spec:
          nodeName: big
          containers:
            - {name: tensorflow, image: "team/train:1", command: [python, train.py]}
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    (tmp_path / "faults.yaml").write_text(FAULTS)
    path = tmp_path / "cluster.json"
    path.write_text(CLUSTER)
    return path


@pytest.fixture
def tfjob(tmp_path: Path) -> Path:
    path = tmp_path / "tfjob.yaml"
    path.write_text(TFJOB)
    return path


def test_up_runs_a_manifest_and_keeps_it(emulate: Emulate, cluster: Path, tmp_path: Path) -> None:
    faults = f"--faults={tmp_path}/faults.yaml"
    done = emulate.up(cluster, "--engine=process", faults, f"--command={COMMAND}").ended()
    assert "worker-0 | I am worker-0" in done.stderr
    assert done.json["verdict"] == "ok"
    (folder,) = emulate.out.glob("cluster-*")
    assert (folder / "manifest.json").read_text() == CLUSTER
    assert (folder / "faults.yaml").read_text() == FAULTS
    assert load(folder / "scenario.yaml") == Record(folder).plan.scenario
    page = (folder / "report.html").read_text()
    assert "scenario.yaml, made from manifest.json and faults.yaml" in page
    assert 'href="manifest.json"' in page
    typed("check", folder).ended()


def test_up_d_gets_the_same_options(emulate: Emulate, cluster: Path, tmp_path: Path) -> None:
    run_id = own("convert")
    options = [
        f"--faults={tmp_path}/faults.yaml",
        f"--command={shlex.join(['sh', '-c', f'{SAYS}; exec sleep 60'])}",
    ]
    emulate.up(cluster, "--engine=process", "-d", f"--run-id={run_id}", *options).ended()
    assert Record(emulate.out / run_id).plan.scenario.expect.final_step == 7
    emulate("down", run_id, f"--out={emulate.out}").ended()


def test_variants_of_a_manifest(emulate: Emulate, cluster: Path) -> None:
    options = ("--engine=process", f"--command={COMMAND}", "--vary=seed=1,2")
    done = emulate.up(cluster, *options).ended()
    assert [one["verdict"] for one in done.json] == ["ok", "ok"]
    seeds = {Record(folder).plan.scenario.seed for folder in emulate.out.glob("cluster-*")}
    assert seeds == {1, 2}


def test_a_manifest_is_planned_as_it_is_converted(tfjob: Path, tmp_path: Path) -> None:
    converted = tmp_path / "elsewhere" / "scenario.yaml"
    converted.parent.mkdir()
    typed("convert", tfjob, "--image=tensorflow=cpu", "-o", converted).ended()
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
    done = typed("convert", tfjob).ended()
    assert done.stderr == ""
    assert done.stdout.startswith("# Made from tfjob.yaml by emulate.\n")
    path = tmp_path / "s.yaml"
    path.write_text("mine")
    refused = refusal("convert", tfjob, "-o", path)
    assert "s.yaml is there already. --force overwrites it." in refused
    assert path.read_text() == "mine"
    typed("convert", tfjob, "-o", path, "--force").ended()
    assert path.read_text() == done.stdout


@pytest.mark.parametrize("command", [["plan"], ["up", "--engine=process"], ["convert"]])
def test_a_bad_manifest_is_a_line_and_exit_code_2(tfjob: Path, command: list[str]) -> None:
    tfjob.write_text(TFJOB.replace("replicas", "replcas", 1))
    line = refusal(*command, "tfjob.yaml", cwd=tfjob.parent)
    assert line.startswith("tfjob.yaml:7: spec.tfReplicaSpecs.Worker.replcas: unknown field")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--image=cpu"], "--image cpu is not NAME=VALUE. Example: --image tensorflow=cpu"),
        (["--image=a=b", "--image=a=c"], "--image a is given twice."),
        (["--configmap=data"], "--configmap data is not NAME=VALUE."),
        (["--command="], "--command is empty."),
        (["--command='a"], "--command 'a: No closing quotation."),
        (["--faults=nothing.yaml"], "Can't read nothing.yaml, the file of --faults: No such file"),
    ],
)
def test_a_bad_option_is_a_line_and_code_2(tfjob: Path, options: list[str], message: str) -> None:
    assert message in refusal("plan", "tfjob.yaml", *options, cwd=tfjob.parent)
