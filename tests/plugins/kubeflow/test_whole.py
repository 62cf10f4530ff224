"""The whole of conversions of jobs: see the files of the same name in manifests/."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugins.kubeflow.manifests.test_whole import check_conversion
from tests.report.test_expected import plans

HERE = Path(__file__).parent / "whole"


@pytest.mark.parametrize("path", sorted(HERE.glob("in/*.made")), ids=lambda path: str(path.stem))
def test_the_whole_of_a_conversion(path: Path) -> None:
    check_conversion(path)


PLANS = [
    """\
name: job
program: {command: [a]}
cluster: {worker: 2}
operator: {kind: TFJob, job: mnist, namespace: team-a, success: all-workers,
           backoff_limit: 3, active_deadline: 1h}
""",
    "name: job\nframework: pytorch\nprogram: {command: [a]}\ncluster: {master: 1, worker: 2}\n"
    "operator: {kind: PyTorchJob, job: mnist, namespace: team-a}\n",
]


def test_the_whole_of_what_plan_prints() -> None:
    assert plans(PLANS) == (HERE / "plans.txt").read_text()
