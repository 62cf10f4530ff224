"""Clusters in tests: the fixtures, the marker, and what becomes of a cluster whose test ends."""

from __future__ import annotations

import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from emulator.engines.docker import DockerEngine
from tests.pytest_plugin.conftest import FOREVER, STEPS, Write, left


def test_a_cluster_is_struck_looked_at_and_judged(
    pytester: pytest.Pytester, scenario: Write
) -> None:
    scenario(
        "two",
        shell='echo \'{"emulate": "step", "step": 1}\'; until test -e $EMULATOR_SHARED/go; do '
        'sleep 0.05; done; echo \'{"emulate": "step", "step": 2}\'',
        restart={"policy": "on-failure", "backoff": "100ms"},
        expect={"final_step": 2},
    )
    tests = pytester.makepyfile(
        """
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
    )
    done = pytester.runpytest_subprocess(tests, "--emulator-out", "runs")
    done.assert_outcomes(passed=1)
    assert left(pytester.path / "runs") == 0


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ("pass", {"passed": 1}),
        ("assert cluster.run_id == 'x'", {"failed": 1}),
        ("cluster.wait_for(step=6, task='worker-9')", {"failed": 1}),
        ("raise KeyboardInterrupt", {}),
    ],
)
def test_a_cluster_ends_with_its_block(
    pytester: pytest.Pytester, scenario: Write, body: str, outcome: dict[str, int]
) -> None:
    scenario("long", shell=FOREVER, timeout="2s")
    tests = pytester.makepyfile(
        f"""
        def test_it(emulator):
            with emulator.up("long") as cluster:
                {body}
        """
    )
    done = pytester.runpytest_subprocess(tests, "--emulator-out", "runs")
    done.assert_outcomes(**outcome)
    assert left(pytester.path / "runs") == 0
    assert ("what happened:" in done.stdout.str()) is ("failed" in outcome)


def test_a_cluster_without_a_block_ends_with_its_test(
    pytester: pytest.Pytester, scenario: Write
) -> None:
    scenario("long", shell=FOREVER)
    tests = pytester.makepyfile(
        "def test_it(emulator):\n    emulator.up('long').wait_for(step=5)\n"
    )
    pytester.runpytest_subprocess(tests, "--emulator-out", "runs").assert_outcomes(passed=1)
    assert left(pytester.path / "runs") == 0


def test_a_timeout_ends_the_cluster_and_waiting_for_a_turn_does_not_count(
    pytester: pytest.Pytester, scenario: Write
) -> None:
    pytester.makeconftest("import os; open('pid', 'w').write(str(os.getpid()))")
    # The timer's own signal, once the task runs: on a busy machine, seconds may end before that.
    alarm = f"kill -ALRM $(cat '{pytester.path}/pid')\n"
    scenario("long", shell=alarm + FOREVER, marks=[{"timeout": 300}])
    done = pytester.runpytest_subprocess("scenarios", "--emulator-out", "runs")
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(["*Timeout*300.0s*"])
    assert left(pytester.path / "runs") == 0


def test_the_marker_gives_a_finished_run_whose_expectations_hold(
    pytester: pytest.Pytester, scenario: Write
) -> None:
    scenario("quick", expect={"final_step": 5})
    tests = pytester.makepyfile(
        """
        import pytest

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
    )
    done = pytester.runpytest_subprocess(tests)
    done.assert_outcomes(passed=2, failed=1, errors=1)
    done.stdout.fnmatch_lines(["*final_step failed: expected at least 6, got 5*"])
    done.stdout.fnmatch_lines(["*write @pytest.mark.scenario*"])


def test_tests_of_a_class_share_the_run_of_its_marker(
    pytester: pytest.Pytester, scenario: Write
) -> None:
    scenario("quick")
    tests = pytester.makepyfile(
        """
        import pytest

        @pytest.mark.scenario("quick.yaml")
        class TestOne:
            def test_steps(self, run):
                assert run.final_step == 5

            def test_fails(self, run):
                assert run.restarts == 1
        """
    )
    arguments = ["--emulator-out", "runs", "--junitxml", "out.xml"]
    done = pytester.runpytest_subprocess(tests, *arguments)
    done.assert_outcomes(passed=1, failed=1)
    (run,) = (plan.parent.name for plan in pytester.path.glob("runs/*/plan.json"))
    done.stdout.fnmatch_lines(["*emulator: quick-*", "what happened:"])
    for case in ET.parse(pytester.path / "out.xml").iter("testcase"):
        properties = {p.attrib["name"]: p.attrib["value"] for p in case.iter("property")}
        assert (properties["run"], properties["verdict"]) == (run, "ok")
        assert "run.2" not in properties
    done.stdout.fnmatch_lines(
        ["*emulated runs*", "ok  *::TestOne::test_steps and 1 more*", f"*runs/{run}/report.html"]
    )
    assert done.stdout.str().count("report.html") == 2  # below the failed test, and at the end


def test_reports_are_kept_in_the_project_which_git_ignores(
    pytester: pytest.Pytester, scenario: Write
) -> None:
    scenario("quick")
    for _ in range(2):
        arguments = ["--rootdir", ".", "scenarios/quick.yaml"]
        pytester.runpytest_subprocess(*arguments).assert_outcomes(passed=1)
    assert len(list(pytester.path.glob("runs/quick-*/report.html"))) == 2
    subprocess.run(["git", "init", "-q"], cwd=pytester.path, check=True)
    status = ["git", "status", "--porcelain", "--untracked-files=all"]
    done = subprocess.run(status, cwd=pytester.path, check=True, capture_output=True, text=True)
    assert "scenarios/quick.yaml" in done.stdout
    assert "runs/" not in done.stdout


def test_fixtures_are_where_a_suite_says_what_it_wants(
    pytester: pytest.Pytester, scenario: Write
) -> None:
    scenario("quick")
    pytester.makeconftest(
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
    tests = pytester.makepyfile(
        """
        import json
        import pytest

        def test_out(emulator, emulator_out):
            run = emulator.run("quick", engine="process")
            assert run.folder.parent == emulator_out
            plan = json.loads((run.folder / "plan.json").read_text())
            assert plan["scenario"]["image"] == "mine:latest"

        def test_engine(emulator):
            emulator.run("quick")
        """
    )
    done = pytester.runpytest_subprocess(tests)
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(["E *There is no engine 'no-such-engine'*"])


def test_a_scenario_may_stand_in_the_test(pytester: pytest.Pytester) -> None:
    tests = pytester.makepyfile(
        """
        def test_it(emulator):
            run = emulator.run({
                "name": "inline",
                "framework": "none",
                "program": {"command": ["sh", "-c", "exit $EMULATOR_SEED"]},
                "cluster": {"worker": 1},
                "expect": {"outcome": "failed"},
            }, seed=3)
            run.check()
            assert run.end.reason == "worker-0 failed with exit code 3"
        """
    )
    pytester.runpytest_subprocess(tests).assert_outcomes(passed=1)


def test_a_scenario_that_does_not_exist_is_reported(pytester: pytest.Pytester) -> None:
    tests = pytester.makepyfile("def test_it(emulator):\n    emulator.run('nowhere.yaml')\n")
    done = pytester.runpytest_subprocess(tests)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["E *There is no scenario nowhere.yaml in *"])
    assert "harness.py" not in done.stdout.str()
    assert "Settings(" not in done.stdout.str()


def test_the_memory_cluster_needs_no_time(pytester: pytest.Pytester, scenario: Write) -> None:
    scenario("quick", restart={"policy": "on-failure", "backoff": "1h", "limit": 2})
    tests = pytester.makepyfile(
        """
        from emulator.engines.memory import Script

        def test_it(memory_cluster):
            def worker(start):
                return Script(exits_at=3600, exit_code=0 if start == 3 else 1)
            run = memory_cluster("quick", {"worker-*": worker}, set={"cluster.worker": 2})
            assert (run.outcome, run.restarts) == ("succeeded", 4)
            assert run.analysis.duration > 3 * 3600
            assert not (run.folder / "report.html").exists()
        """
    )
    pytester.runpytest_inprocess(tests).assert_outcomes(passed=1)


# --- What a machine lacks ---------------------------------------------------------------------


@pytest.fixture
def no_docker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path / 'nobody.sock'}")


@pytest.mark.usefixtures("no_docker")
@pytest.mark.parametrize(
    ("keys", "arguments", "why"),
    [
        ({}, ["--emulator-engine", "docker"], "No Docker engine answers"),
        ({"cluster": {"worker": {"cpus": 1}}}, [], "process engine can't do this: a CPU limit"),
        ({"cluster": {"worker": {"gpus": 1}}}, [], "process engine can't do this: GPUs"),
    ],
)
def test_what_the_machine_lacks_is_skipped_or_fails_where_it_is_required(
    pytester: pytest.Pytester, scenario: Write, keys: object, arguments: list[str], why: str
) -> None:
    scenario("quick", **keys)  # type: ignore[arg-type]
    done = pytester.runpytest_subprocess("scenarios", "-rs", *arguments)
    done.assert_outcomes(skipped=1)
    done.stdout.fnmatch_lines([f"SKIPPED*{why}*"])
    done = pytester.runpytest_subprocess(
        "scenarios", *arguments, "--emulator-require", "docker,gpu"
    )
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines([f"*--emulator-require*{why}*"])
    done = pytester.runpytest_subprocess("scenarios", "--emulator-require", "dokker")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(
        [
            "*--emulator-require dokker: there is no such thing"
            "*docker, process, kubernetes, gpu, network*"
        ]
    )


# --- Keeping ----------------------------------------------------------------------------------


def test_a_failed_cluster_is_kept_where_that_is_asked_for(
    pytester: pytest.Pytester, scenario: Write
) -> None:
    shell = STEPS + "echo here > $EMULATOR_SHARED/found\n"
    scenario("fails", shell=shell, expect={"final_step": 6})
    scenario("passes", shell=shell)
    done = pytester.runpytest_subprocess("scenarios", "--emulator-keep", "--emulator-out", "runs")
    done.assert_outcomes(failed=1, passed=1)
    (kept,) = pytester.path.glob("runs/fails-*")
    look = f"look    ls {kept}/work {kept}/shared {kept}/logs"
    done.stdout.fnmatch_lines([look, f"kept    `emulate down {kept}` removes it"])
    assert {"found", "worker-0", "worker-0.log"} <= set(_output_of(*look.split()[1:]).split())
    assert (kept / "shared" / "found").read_text() == "here\n"
    assert not list(pytester.path.glob("runs/passes-*/shared"))


@pytest.mark.docker
def test_containers_that_are_kept_can_be_looked_at_with_what_is_reported(
    pytester: pytest.Pytester, scenario: Write, docker_engine: DockerEngine, tiny_image: str
) -> None:
    keys = {"image": tiny_image, "cluster": {"worker": 2}, "success": "all-workers"}
    scenario("fails", **keys, expect={"final_step": 6})
    scenario("passes", **keys)
    done = pytester.runpytest_subprocess(
        *("scenarios", "--emulator-engine", "docker", "--emulator-keep", "--emulator-out", "runs")
    )
    (kept,) = pytester.path.glob("runs/fails-*")
    (passed,) = pytester.path.glob("runs/passes-*")
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


def test_loading_the_plugin_imports_nothing_heavy(pytester: pytest.Pytester) -> None:
    heavy = "('docker', 'typer', 'pydantic', 'rich', 'yaml', 'psutil', 'httpx')"
    tests = pytester.makepyfile(
        f"""
        import sys

        def test_it(pytestconfig):
            assert pytestconfig.pluginmanager.hasplugin("emulator")
            assert [name for name in {heavy} if name in sys.modules] == []
        """
    )
    pytester.runpytest_subprocess(tests, "-p", "no:playwright").assert_outcomes(passed=1)


def test_a_session_of_xdist_without_a_claim_imports_nothing_heavy_at_its_end(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeconftest(
        """
        import sys

        def pytest_unconfigure(config):
            if not hasattr(config, "workerinput"):
                swept = "emulator.pytest_plugin.harness" in sys.modules
                print("swept" if swept else "did not sweep")
        """
    )
    tests = pytester.makepyfile("def test_it():\n    pass\n")
    done = pytester.runpytest_subprocess(tests, "-n", "1")
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(["did not sweep"])
    holds = """
        import os
        from emulator.broker import Broker, Capacity, Need

        def test_it():
            share = Need(cpus=1), Capacity(cpus=1, memory=0)
            lease = Broker().acquire("x", *share, recover=print)  # kept until its end
            os._exit(1)
        """
    done = pytester.runpytest_subprocess(
        pytester.makepyfile(test_holds=holds), "-n", "1", "--max-worker-restart=0"
    )
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["swept"])
