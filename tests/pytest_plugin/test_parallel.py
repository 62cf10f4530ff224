"""Many tests at once on one machine: xdist workers, and what is left of one that was killed."""

from __future__ import annotations

import re
import uuid
from pathlib import Path

import pytest

from emulator.engines.docker import DockerEngine
from tests.conftest import Emulate
from tests.pytest_plugin.conftest import FOREVER, STEPS, Write, left


@pytest.fixture(params=["process", pytest.param("docker", marks=pytest.mark.docker)])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both engines that users have; the image is that of their scenarios."""
    if request.param == "docker":
        request.getfixturevalue("docker_engine")
    monkeypatch.setenv("EMULATOR_ENGINE", request.param)
    return str(request.param)


@pytest.fixture
def image(engine: str, request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue("tiny_image")) if engine == "docker" else "none"


KILLED = """\
import os, signal

def test_dies(emulator):
    with emulator.up("long", set={"cluster.worker": 2}) as cluster:
        cluster.wait_for(step=5)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_worker_fails_its_test_and_leaves_nothing(
    pytester: pytest.Pytester, scenario: Write
) -> None:
    scenario("long", shell=FOREVER)
    scenario("quick")
    tests = pytester.makepyfile(KILLED)
    done = pytester.runpytest_subprocess(
        "-n", "2", "--emulator-out", "runs", "scenarios/quick.yaml", tests, "--max-worker-restart=1"
    )
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(["*worker 'gw?' crashed while running*test_dies*"])
    assert left(pytester.path / "runs") == 0


def test_what_a_killed_session_has_left_is_removed_by_the_next(
    pytester: pytest.Pytester, scenario: Write, engine: str, image: str
) -> None:
    scenario("long", shell=FOREVER, image=image)
    scenario("quick", image=image)
    tests = pytester.makepyfile(KILLED)
    done = pytester.runpytest_subprocess(tests, "--emulator-out", "runs")
    assert done.ret == -9
    assert left(pytester.path / "runs", engine) >= 2
    done = pytester.runpytest_subprocess("scenarios/quick.yaml", "--emulator-out", "others")
    done.assert_outcomes(passed=1)
    assert left(pytester.path / "runs", engine) == 0


def test_what_a_killed_session_has_left_is_removed_by_clean(
    pytester: pytest.Pytester, scenario: Write, engine: str, image: str, emulate: Emulate
) -> None:
    scenario("long", shell=FOREVER, image=image)
    tests = pytester.makepyfile(KILLED)
    done = pytester.runpytest_subprocess(tests, "--emulator-out", "runs")
    assert done.ret == -9
    runs = pytester.path / "runs"
    assert left(runs, engine) >= 2
    assert emulate("clean", "--engine", engine, "--out", runs).returncode == 0
    assert left(runs, engine) == 0


def test_a_cluster_that_was_kept_is_no_leftover(pytester: pytest.Pytester, scenario: Write) -> None:
    scenario("fails", shell=STEPS + "touch $EMULATOR_SHARED/kept", expect={"final_step": 6})
    scenario("quick")
    arguments = ["--emulator-keep", "--emulator-out", "runs"]
    pytester.runpytest_subprocess("scenarios/fails.yaml", *arguments).assert_outcomes(failed=1)
    pytester.runpytest_subprocess("scenarios/quick.yaml").assert_outcomes(passed=1)
    assert len(list(pytester.path.glob("runs/*/shared/kept"))) == 1


MEETS = "touch {0}/$EMULATOR_SEED; until test $(ls {0} | wc -l) = 2; do sleep 0.05; done"


def test_scenarios_that_fit_run_at_once(
    pytester: pytest.Pytester, scenario: Write, tmp_path: Path
) -> None:
    (tmp_path / "here").mkdir()
    shell = MEETS.format(tmp_path / "here")
    scenario("meets", shell=shell, reserve={"cpus": 1.5}, parametrize={"seed": [1, 2]})
    done = pytester.runpytest_subprocess("-n", "2", "scenarios", "--emulator-cpus", "3")
    done.assert_outcomes(passed=2)


def test_two_clusters_of_one_test_wait_for_nobody(
    pytester: pytest.Pytester, scenario: Write
) -> None:
    scenario("long", shell=FOREVER, reserve={"cpus": 1})
    tests = pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("number", [1, 2])
        def test_it(emulator, number):
            with emulator.up("long") as one, emulator.up("long") as other:
                assert one.wait_for(step=5).task == other.wait_for(step=5).task
        """
    )
    pytester.runpytest_subprocess(tests, "-n", "2", "--emulator-cpus", "1").assert_outcomes(
        passed=2
    )


def test_a_group_stays_on_one_worker(pytester: pytest.Pytester, scenario: Write) -> None:
    for name in ("one", "two"):
        scenario(name, marks=[{"xdist_group": name}], parametrize={"seed": [1, 2, 3]})
    done = pytester.runpytest_subprocess("-n", "2", "--dist", "loadgroup", "-v", "scenarios")
    done.assert_outcomes(passed=6)
    for name in ("one", "two"):
        workers = re.findall(rf"\[(gw\d)\].* PASSED scenarios/{name}.yaml", done.stdout.str())
        assert len(workers) == 3
        assert len(set(workers)) == 1


@pytest.mark.docker
def test_an_image_is_built_once_for_all_workers(
    pytester: pytest.Pytester, scenario: Write, docker_engine: DockerEngine, tiny_image: str
) -> None:
    recipe = pytester.path / "image" / "Dockerfile"
    recipe.parent.mkdir()
    recipe.write_text(f"FROM {tiny_image}\nRUN echo {uuid.uuid4()} > /built && sleep 1\n")
    scenario(
        "built",
        shell='echo \'{"emulate": "step", "step": 1}\'; cat /built',
        image={"dockerfile": str(recipe)},
        parametrize={"seed": [1, 2, 3]},
    )
    done = pytester.runpytest_subprocess(
        *("-n", "3", "-rP", "-o", "log_level=INFO", "scenarios"),
        *("--emulator-engine", "docker", "--emulator-out", "runs"),
    )
    done.assert_outcomes(passed=3)
    assert len(re.findall("building emulator-custom", done.stdout.str())) == 1
    for plan in pytester.path.glob("runs/*/plan.json"):
        assert docker_engine.find(plan.parent.name) == []


@pytest.mark.docker
def test_runs_in_docker_do_not_collide(
    pytester: pytest.Pytester, scenario: Write, docker_engine: DockerEngine, tiny_image: str
) -> None:
    """Same scenario, same names of tasks, subnets that are chosen, all at the same time."""
    scenario(
        "same",
        shell="cd $EMULATOR_SHARED; "
        "if test $EMULATOR_TASK = worker-0; then until test -e back; do sleep 0.1; done; exit; fi; "
        "if test -e gone; then getent hosts worker-0 && touch back; exit; fi; "
        "touch gone; while :; do n=$((n + 1)); "
        'echo \'{"emulate": "step", "step": \'$n\'}\'; sleep 0.1; done',
        image=tiny_image,
        cluster={"worker": 2},
        restart={"policy": "on-failure", "backoff": "100ms"},
        faults=[{"preempt": "worker-1", "at": {"step": 5}, "grace": "0s", "down": "100ms"}],
        parametrize={"seed": [1, 2, 3, 4, 5, 6]},
    )
    done = pytester.runpytest_subprocess(
        *("-n", "6", "scenarios", "--emulator-engine", "docker", "--emulator-out", "runs"),
    )
    done.assert_outcomes(passed=6)
    for plan in pytester.path.glob("runs/*/plan.json"):
        assert docker_engine.find(plan.parent.name) == []
