"""Many tests at once on one machine: xdist workers, and what is left of one that was killed."""

from __future__ import annotations

import re
import uuid
from pathlib import Path

import pytest

from tests.conftest import Emulate
from tests.pytest_plugin.conftest import Suite
from tests.session.conftest import FOREVER

KILLED = """\
import os, signal

def test_dies(emulator):
    with emulator.up("long", set={"cluster.worker": 2}) as cluster:
        cluster.wait_for(step=5)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_worker_fails_its_test_and_leaves_nothing(suite: Suite) -> None:
    suite.scenario("long", script=FOREVER)
    suite.scenario("quick")
    both = ("-n", "2", "--max-worker-restart=1", "scenarios/quick.yaml")
    done = suite.test(KILLED, *both, passed=1, failed=1)
    done.stdout.fnmatch_lines(["*worker 'gw?' crashed while running*test_dies*"])
    assert suite.left() == 0


@pytest.mark.parametrize("by", ["the next session", "clean"])
def test_what_a_killed_session_has_left_is_removed(
    suite: Suite,
    either_engine: tuple[str, str],
    emulate: Emulate,
    monkeypatch: pytest.MonkeyPatch,
    by: str,
) -> None:
    engine, image = either_engine
    monkeypatch.setenv("EMULATOR_ENGINE", engine)
    suite.scenario("long", script=FOREVER, image=image)
    suite.scenario("quick", image=image)
    assert suite.test(KILLED, apart=True).ret == -9
    assert suite.left(engine) >= 2
    if by == "clean":
        emulate("clean", "--engine", engine, "--out", suite.runs).ended()
    else:
        suite.run("scenarios/quick.yaml", "--emulator-out", "others", apart=True, passed=1)
    assert suite.left(engine) == 0


MEETS = "touch {0}/$EMULATOR_SEED; until test $(ls {0} | wc -l) = 2; do sleep 0.05; done"


def test_scenarios_that_fit_run_at_once(suite: Suite, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    shell = MEETS.format(tmp_path / "here")
    suite.scenario("meets", script=shell, reserve={"cpus": 1.5}, parametrize={"seed": [1, 2]})
    suite.run("-n", "2", "scenarios", "--emulator-cpus", "3", passed=2)


def test_two_clusters_of_one_test_wait_for_nobody(suite: Suite) -> None:
    suite.scenario("long", script=FOREVER, reserve={"cpus": 1})
    text = """
        @pytest.mark.parametrize("number", [1, 2])
        def test_it(emulator, number):
            with emulator.up("long") as one, emulator.up("long") as other:
                assert one.wait_for(step=5).task == other.wait_for(step=5).task
        """
    suite.test(text, "-n", "2", "--emulator-cpus", "1", passed=2)


def test_a_group_stays_on_one_worker(suite: Suite) -> None:
    for name in ("one", "two"):
        suite.scenario(name, marks=[{"xdist_group": name}], parametrize={"seed": [1, 2, 3]})
    done = suite.run("-n", "2", "--dist", "loadgroup", "-v", "scenarios", passed=6)
    for name in ("one", "two"):
        workers = re.findall(rf"\[(gw\d)\].* PASSED scenarios/{name}.yaml", done.stdout.str())
        assert len(workers) == 3
        assert len(set(workers)) == 1


@pytest.mark.docker
def test_an_image_is_built_once(suite: Suite, tiny_image: str) -> None:
    recipe = suite.path / "image" / "Dockerfile"
    recipe.parent.mkdir()
    recipe.write_text(f"FROM {tiny_image}\nRUN echo {uuid.uuid4()} > /built && sleep 1\n")
    suite.scenario(
        "built",
        script='echo \'{"emulate": "step", "step": 1}\'; cat /built',
        image={"dockerfile": str(recipe)},
        parametrize={"seed": [1, 2, 3]},
    )
    options = ("-n", "3", "-rP", "-o", "log_level=INFO", "--emulator-engine", "docker")
    done = suite.run(*options, "scenarios", passed=3)
    assert len(re.findall("building emulator-custom", done.stdout.str())) == 1
    assert suite.left("docker") == 0


@pytest.mark.docker
def test_runs_do_not_collide(suite: Suite, tiny_image: str) -> None:
    """Same scenario, same names of tasks, subnets that are chosen, all at the same time."""
    suite.scenario(
        "same",
        script="cd $EMULATOR_SHARED; "
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
    suite.run("-n", "6", "scenarios", "--emulator-engine", "docker", passed=6)
    assert suite.left("docker") == 0
