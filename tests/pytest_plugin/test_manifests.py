"""Manifests in a suite: files of the named folder, and those that a test adds something to."""

from __future__ import annotations

import json

from tests.pytest_plugin.conftest import Suite
from tests.session.conftest import STEPS

COMMAND = ["sh", "-c", STEPS]
JOBS = {"settings": {"jobs": {"ps": 1, "worker": 2}}, "service": {"command": COMMAND}}
CLUSTER = '{"worker": ["worker-0.demo.svc:8080", "worker-1.demo.svc:8080",]}\n'


def test_a_manifest_in_the_folder_is_a_test(suite: Suite) -> None:
    (suite.path / "scenarios" / "demo.yaml").write_text(json.dumps({"tfCluster": JOBS}))
    suite.run("-v").stdout.fnmatch_lines(["scenarios/demo.yaml::demo PASSED*", "*1 passed*"])


def test_a_test_adds_faults_to_a_manifest(suite: Suite) -> None:
    (suite.path / "cluster.json").write_text(CLUSTER)
    faults = {"program": {"command": COMMAND}, "expect": {"final_step": 9}}
    (suite.path / "faults.yaml").write_text(json.dumps(faults))
    text = """
        def test_it(emulator):
            result = emulator.run("cluster.json", faults="faults.yaml", images={"worker": "cpu"})
            assert (result.final_step, result.verdict) == (5, "failed")
            result.check()
        """
    done = suite.test(text, failed=1)
    again = "*emulate up *cluster.json --engine=process --image=worker=cpu --faults=*faults.yaml*"
    done.stdout.fnmatch_lines([again])
