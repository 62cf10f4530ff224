"""`convert`, and `up` and `plan` of a manifest, as users call them. Tasks are shell scripts."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from emulator.record.reader import Record
from emulator.scenario.loader import load
from tests.cli.typed import typed
from tests.conftest import Emulate, own

CLUSTER = '{"ps": ["ps-0.demo.svc:8080",], "worker": ["worker-0.demo.svc:8080"],}\n'
SAYS = 'echo "{\\"emulate\\": \\"step\\", \\"step\\": 7}"; echo "I am $POD_NAME"'
COMMAND = shlex.join(["sh", "-c", SAYS])
FAULTS = "timeout: 1m\nexpect: {final_step: 7}\n"


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    (tmp_path / "faults.yaml").write_text(FAULTS)
    path = tmp_path / "cluster.json"
    path.write_text(CLUSTER)
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
