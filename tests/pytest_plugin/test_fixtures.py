"""Clusters in tests: the fixtures, the marker, and what becomes of a cluster whose test ends."""

from __future__ import annotations

import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from typing import Any

import pytest

from emulator.engines.docker import DockerEngine
from tests.pytest_plugin.conftest import Suite
from tests.session.conftest import FOREVER, STEPS


def test_a_cluster_is_struck_looked_at_and_judged(suite: Suite) -> None:
    suite.scenario(
        "two",
        script='echo \'{"emulate": "step", "step": 1}\'; until test -e $EMULATOR_SHARED/go; do '
        'sleep 0.05; done; echo \'{"emulate": "step", "step": 2}\'',
        restart={"policy": "on-failure", "backoff": "100ms"},
        expect={"final_step": 2},
    )
    text = """
        def test_it(emulator):
            with emulator.up("two.yaml", set={"cluster.worker": 2}) as cluster:
                cluster.wait_for(step=1, task="worker-1")
                assert len(cluster.status()["tasks"]) == 2
                cluster.kill("worker-1")
                cluster.wait_for(event="restart")
                (cluster.folder / "shared" / "go").touch()
                result = cluster.wait()
                assert cluster.wait_for(step=2).task  # also when it is over
            result.check()
            assert (result.outcome, result.final_step, result.restarts) == ("succeeded", 2, 1)
        """
    suite.test(text, passed=1)
    assert suite.left() == 0


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ("pass", {"passed": 1}),
        ("assert cluster.run_id == 'x'", {"failed": 1}),
        ("cluster.wait_for(step=6, task='worker-9')", {"failed": 1}),
        ("raise KeyboardInterrupt", {}),
    ],
)
def test_a_cluster_ends_with_its_block(suite: Suite, body: str, outcome: dict[str, int]) -> None:
    suite.scenario("long", script=FOREVER, timeout="2s")
    text = f"""
        def test_it(emulator):
            with emulator.up("long") as cluster:
                {body}
        """
    done = suite.test(text, apart=not outcome, **outcome)
    assert suite.left() == 0
    assert ("what happened:" in done.stdout.str()) is ("failed" in outcome)


RAISES = (
    STEPS
    + """\
echo 'Traceback (most recent call last):
  File "train.py", line 9, in step
ValueError: bad shard 3' >&2
exit 1
"""
)


def test_what_is_waited_for_in_vain_says_why_and_shows_the_test_alone(suite: Suite) -> None:
    suite.scenario("raises", script=RAISES)
    text = """
        def test_it(emulator):
            with emulator.up("raises") as cluster:
                cluster.wait_for(step=200)
        """
    shown = suite.test(text, failed=1).stdout.str()
    assert " was over before step 200: worker-0: ValueError: bad shard 3." in shown
    assert "emulator/" not in shown.partition("what happened:")[0].partition("FAILURES")[2]


def test_a_timeout_ends_the_cluster_and_waiting_for_a_turn_does_not_count(suite: Suite) -> None:
    suite.pytester.makeconftest("import os; open('pid', 'w').write(str(os.getpid()))")
    # The timer's own signal, once the task runs: on a busy machine, seconds may end before that.
    alarm = f"kill -ALRM $(cat '{suite.path}/pid')\n"
    suite.scenario("long", script=alarm + FOREVER, marks=[{"timeout": 300}])
    suite.run("scenarios", apart=True, errors=1).stdout.fnmatch_lines(["*Timeout*300.0s*"])
    assert suite.left() == 0


def test_the_marker_gives_a_finished_run_whose_expectations_hold(suite: Suite) -> None:
    suite.scenario("quick", expect={"final_step": 5})
    text = """
        @pytest.mark.scenario("quick.yaml")
        def test_ok(run):
            assert (run.verdict, run.final_step) == ("ok", 5)

        @pytest.mark.scenario("quick.yaml", set={"expect.final_step": 6})
        def test_fails(run):
            raise SystemExit("never comes to this")

        @pytest.mark.scenario("quick.yaml", set={"expect.final_step": 6}, check=False)
        def test_looks(run):
            assert run.verdict == "failed"

        def test_forgets(run):
            pass
        """
    done = suite.test(text, passed=2, failed=1, errors=1)
    done.stdout.fnmatch_lines(["*final_step failed: expected at least 6, got 5*"])
    done.stdout.fnmatch_lines(["*write @pytest.mark.scenario*"])


def test_tests_of_a_class_share_the_run_of_its_marker(suite: Suite) -> None:
    suite.scenario("quick")
    text = """
        @pytest.mark.scenario("quick.yaml")
        class TestOne:
            def test_steps(self, run):
                assert run.final_step == 5

            def test_fails(self, run):
                assert run.restarts == 1
        """
    done = suite.test(text, "--junitxml", "out.xml", passed=1, failed=1)
    (run,) = (plan.parent.name for plan in suite.runs.glob("*/plan.json"))
    done.stdout.fnmatch_lines(["*emulator: quick-*", "what happened:"])
    for case in ET.parse(suite.path / "out.xml").iter("testcase"):
        properties = {p.attrib["name"]: p.attrib["value"] for p in case.iter("property")}
        assert (properties["run"], properties["verdict"]) == (run, "ok")
        assert "run.2" not in properties
    done.stdout.fnmatch_lines(
        ["*emulated runs*", "ok  *::TestOne::test_steps and 1 more*", f"*runs/{run}/report.html"]
    )
    assert done.stdout.str().count("report.html") == 2  # below the failed test, and at the end


def test_reports_are_kept_in_the_project_which_git_ignores(suite: Suite) -> None:
    suite.scenario("quick")
    for _ in range(2):
        suite.run("--rootdir", ".", "scenarios/quick.yaml", passed=1)
    assert len(list(suite.runs.glob("quick-*/report.html"))) == 2
    subprocess.run(["git", "init", "-q"], cwd=suite.path, check=True)
    status = ["git", "status", "--porcelain", "--untracked-files=all"]
    done = subprocess.run(status, cwd=suite.path, check=True, capture_output=True, text=True)
    assert "scenarios/quick.yaml" in done.stdout
    assert "runs/" not in done.stdout


def test_fixtures_are_where_a_suite_says_what_it_wants(suite: Suite) -> None:
    suite.scenario("quick")
    suite.pytester.makeconftest(
        """
        import pytest

        @pytest.fixture(scope="session")
        def emulator_out(tmp_path_factory):
            return tmp_path_factory.mktemp("mine")

        @pytest.fixture(scope="session")
        def emulator_engine():
            return "no-such-engine"

        @pytest.fixture(scope="session")
        def emulator_image():
            return "mine:latest"
        """
    )
    text = """
        import json

        def test_out(emulator, emulator_out):
            run = emulator.run("quick", engine="process")
            assert run.folder.parent == emulator_out
            plan = json.loads((run.folder / "plan.json").read_text())
            assert plan["scenario"]["image"] == "mine:latest"

        def test_engine(emulator):
            emulator.run("quick")
        """
    done = suite.test(text, passed=1, failed=1)
    done.stdout.fnmatch_lines(["E *There is no engine 'no-such-engine'*"])


def test_the_memory_cluster_needs_no_time(suite: Suite) -> None:
    suite.scenario("quick", restart={"policy": "on-failure", "backoff": "1h", "limit": 2})
    text = """
        from emulator.engines.memory import Script

        def test_it(memory_cluster):
            def worker(start):
                return Script(exits_at=3600, exit_code=0 if start == 3 else 1)
            run = memory_cluster("quick", {"worker-*": worker}, set={"cluster.worker": 2})
            assert (run.outcome, run.restarts) == ("succeeded", 4)
            assert run.analysis.duration > 3 * 3600
            assert not (run.folder / "report.html").exists()
        """
    suite.test(text, passed=1)


# --- Keeping ----------------------------------------------------------------------------------


def test_what_went_wrong_is_kept_where_that_is_asked_for(suite: Suite) -> None:
    """Also beyond the session, and the next one."""
    script = STEPS + "echo here > $EMULATOR_SHARED/found\n"
    share: dict[str, Any] = {"reserve": {"cpus": 1}}
    suite.scenario("fails", script=script, expect={"final_step": 6}, **share)
    suite.scenario("broken", program={"command": ["no-such-program"]}, **share)
    suite.scenario("passes", script=script, **share)
    done = suite.run("scenarios", "--emulator-keep", failed=1, passed=1, errors=1)
    (kept,) = suite.runs.glob("fails-*")
    look = f"look    ls {kept}/work {kept}/shared {kept}/logs"
    done.stdout.fnmatch_lines([look, f"kept    `emulate down {kept}` removes it"])
    suite.run("scenarios/passes.yaml", passed=1)
    assert {"found", "worker-0", "worker-0.log"} <= set(_output_of(*look.split()[1:]).split())
    assert (kept / "shared" / "found").read_text() == "here\n"
    assert not list(suite.runs.glob("passes-*/shared"))
    assert list(suite.runs.glob("broken-*/work"))


@pytest.mark.docker
def test_containers_that_are_kept_can_be_looked_at_with_what_is_reported(
    suite: Suite, docker_engine: DockerEngine, tiny_image: str
) -> None:
    keys: dict[str, Any] = {"image": tiny_image, "cluster": {"worker": 2}, "success": "all-workers"}
    suite.scenario("fails", **keys, expect={"final_step": 6})
    suite.scenario("passes", **keys)
    done = suite.run(*("scenarios", "--emulator-engine", "docker", "--emulator-keep"))
    (kept,) = suite.runs.glob("fails-*")
    (passed,) = suite.runs.glob("passes-*")
    try:
        done.assert_outcomes(failed=1, passed=1)
        there = docker_engine.find(kept.name)
        containers = sorted(found.name for found in there if found.kind == "container")
        assert len(containers) == 2
        assert {found.kind for found in there} == {"container", "network", "volume"}
        assert docker_engine.find(passed.name) == []
        done.stdout.fnmatch_lines(
            [
                f"look    docker ps -a --filter label=emulator.run={kept.name}",
                *(f"        docker logs {name}" for name in containers),
                f"kept    `emulate down {kept}` removes it",
            ]
        )
        if shutil.which("docker"):  # the command is not needed for anything else
            shown = _output_of("docker", "ps", "-a", "--filter", f"label=emulator.run={kept.name}")
            assert all(name in shown for name in containers)
            assert '"step": 5' in _output_of("docker", "logs", containers[0])
    finally:
        _output_of(sys.executable, "-m", "emulator", "down", str(kept))
    assert docker_engine.find(kept.name) == []


def _output_of(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_loading_the_plugin_imports_nothing_heavy(suite: Suite) -> None:
    heavy = "('docker', 'typer', 'pydantic', 'rich', 'yaml', 'psutil', 'httpx')"
    text = f"""
        import sys

        def test_it(pytestconfig):
            assert pytestconfig.pluginmanager.hasplugin("emulator")
            assert [name for name in {heavy} if name in sys.modules] == []
        """
    suite.test(text, "-p", "no:playwright", apart=True, passed=1)


def test_a_session_of_xdist_without_a_claim_imports_nothing_heavy_at_its_end(suite: Suite) -> None:
    suite.pytester.makeconftest(
        """
        import sys

        def pytest_unconfigure(config):
            if not hasattr(config, "workerinput"):
                swept = "emulator.pytest_plugin.harness" in sys.modules
                print("swept" if swept else "did not sweep")
        """
    )
    text = "def test_it():\n    pass\n"
    suite.test(text, "-n", "1", passed=1).stdout.fnmatch_lines(["did not sweep"])
    holds = """
        import os
        from emulator.planning.claims import Capacity, Need
        from emulator.planning.leases import Broker

        def test_it():
            share = Need(cpus=1), Capacity(cpus=1, memory=0)
            lease = Broker().acquire("x", *share, recover=print)  # kept until its end
            os._exit(1)
        """
    suite.test(holds, "-n", "1", "--max-worker-restart=0", failed=1).stdout.fnmatch_lines(["swept"])
