"""What a machine has and lacks: shares and turns, devices, and what is required of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.pytest_plugin.conftest import FOREVER, STEPS, Write, run_without_docker

ALONE = 'mkdir {0} || exit 9; echo \'{{"emulate": "step", "step": 1}}\'; sleep 0.2; rmdir {0}'
"""A program that fails beside another of its kind."""


@pytest.mark.parametrize(
    ("reserve", "shares"),
    [({"cpus": 2}, ["--emulator-cpus", "3"]), ({"memory": "2g"}, ["--emulator-memory", "3g"])],
)
def test_scenarios_wait_until_their_share_is_free(
    pytester: pytest.Pytester,
    scenario: Write,
    tmp_path: Path,
    reserve: dict[str, Any],
    shares: list[str],
) -> None:
    shell = ALONE.format(tmp_path / "mine")
    for name in ("one", "two"):
        scenario(name, shell=shell, reserve=reserve, parametrize={"seed": [1, 2, 3]})
    done = pytester.runpytest_subprocess("-n", "4", "scenarios", *shares)
    done.assert_outcomes(passed=6)


def test_a_run_that_goes_wrong_blocks_no_other(pytester: pytest.Pytester, scenario: Write) -> None:
    """Not those on other workers, nor those that come after it on its own."""
    scenario("broken", program={"command": ["no-such-program"]}, reserve={"cpus": 1})
    shell = ALONE.format(pytester.path / "mine")
    scenario("good", shell=shell, reserve={"cpus": 1}, parametrize={"seed": [1, 2, 3, 4]})
    done = pytester.runpytest_subprocess("-n", "2", "scenarios", "--emulator-cpus", "1")
    done.assert_outcomes(passed=4, errors=1)
    done.stdout.fnmatch_lines(["*no-such-program*"])
    assert not list(pytester.path.glob(".cache/emulator/broker/*/*.json"))


def test_waiting_for_a_turn_is_not_timed(pytester: pytest.Pytester, scenario: Write) -> None:
    scenario("quick")
    tests = pytester.makepyfile(
        """
        import signal
        import pytest

        def left():
            return signal.getitimer(signal.ITIMER_REAL)[0]

        @pytest.mark.timeout(600, method="signal")
        def test_it(emulator):
            acquire, seen = emulator.broker.acquire, []

            def watched(*arguments, **keys):
                seen.append(left())
                return acquire(*arguments, **keys)

            emulator.broker.acquire = watched
            assert left() > 0
            emulator.run("quick")
            assert seen == [0]
            assert left() > 0
        """
    )
    pytester.runpytest_subprocess(tests).assert_outcomes(passed=1)


def test_each_run_has_devices_of_its_own(pytester: pytest.Pytester, scenario: Write) -> None:
    """Of an engine with two, of which each would take the first."""
    scenario("gpu", cluster={"worker": {"gpus": 1}}, shell=FOREVER)
    scenario("none", shell=FOREVER)
    tests = pytester.makepyfile(
        """
        import json
        from dataclasses import replace
        import pytest
        from emulator.engines.process import ProcessEngine
        from emulator.errors import UsageError

        TWO = ("GPU-a", "GPU-b")

        class WithGpus(ProcessEngine):
            capabilities = ProcessEngine.capabilities | {"gpus"}

            def capacity(self):
                return replace(super().capacity(), gpus=TWO)

            def plan_context(self, run_id, folder):
                return replace(super().plan_context(run_id, folder), gpus=lambda: TWO)

        def given(cluster):
            (task,) = json.loads((cluster.folder / "plan.json").read_text())["tasks"]
            return task["gpus"]

        def test_it(emulator, monkeypatch):
            monkeypatch.setattr("emulator.session.launch.choose", lambda *name: WithGpus())
            one, none, other = map(emulator.up, ["gpu", "none", "gpu"])
            assert [given(one), given(none), given(other)] == [["GPU-a"], [], ["GPU-b"]]
            with pytest.raises(UsageError, match="asks for 1 GPU.*, but 0 are free"):
                emulator.up("gpu")
        """
    )
    pytester.runpytest_subprocess(tests).assert_outcomes(passed=1)


def test_every_engine_that_is_opened_is_closed(pytester: pytest.Pytester, scenario: Write) -> None:
    scenario("quick")
    scenario("broken", program={"command": ["no-such-program"]})
    scenario("refused", cluster={"worker": {"cpus": 1}})
    tests = pytester.makepyfile(
        """
        import pytest
        from emulator.engines.process import ProcessEngine
        from emulator.errors import EngineError

        opened = []

        class Watched(ProcessEngine):
            closed = 0

            def close(self):
                super().close()
                self.closed += 1

        def open_one(*name):
            opened.append(Watched())
            return opened[-1]

        def test_it(emulator, monkeypatch):
            monkeypatch.setattr("emulator.session.launch.choose", open_one)
            emulator.run("quick")
            with pytest.raises(EngineError, match="no-such-program"):
                emulator.run("broken")
            with pytest.raises(pytest.skip.Exception):
                emulator.run("refused")
            assert [one.closed for one in opened] == [1] * 5
        """
    )
    pytester.runpytest_subprocess(tests).assert_outcomes(passed=1)


def test_a_cluster_without_a_block_is_asked_to_end_once(
    pytester: pytest.Pytester, scenario: Write
) -> None:
    """A second time would kill its tasks in the middle of saying good-bye."""
    bye = "trap 'sleep 0.2; touch $EMULATOR_SHARED/bye; exit 0' TERM; "
    scenario("polite", shell=bye + STEPS + "while :; do sleep 0.05; done")
    tests = pytester.makepyfile(
        "def test_it(emulator):\n    emulator.up('polite').wait_for(step=5)\n    assert False\n"
    )
    arguments = ("--emulator-out", "runs", "--emulator-keep")
    pytester.runpytest_subprocess(tests, *arguments).assert_outcomes(failed=1)
    (history,) = pytester.path.glob("runs/*/history.jsonl")
    events = [json.loads(line) for line in history.read_text().splitlines()]
    assert [e["outcome"] for e in events if e["event"] == "job"] == ["interrupted"]
    assert not any(e["event"] == "interrupted-again" for e in events)
    assert list(pytester.path.glob("runs/*/shared/bye"))


# --- What a machine lacks ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "keys",
    [
        {"cluster": {"worker": {"cpus": 1}}},
        {
            "reference": {"cluster.worker": {"cpus": 1}},
            "expect": {"throughput": {"at_least": 0.5, "of": "reference"}},
        },
    ],
    ids=["scenario", "reference"],
)
def test_what_an_engine_can_not_do_is_refused_before_an_image_is_built(
    pytester: pytest.Pytester, scenario: Write, keys: dict[str, Any]
) -> None:
    """Also where the scenario itself could run, and only its reference could not."""
    scenario("refused", **keys)
    scenario("fine")
    tests = pytester.makepyfile(
        """
        import pytest
        from emulator.engines.process import ProcessEngine

        built = []

        class Building(ProcessEngine):
            def ensure_images(self, scenario, say):
                built.append(scenario.name)

        @pytest.fixture(autouse=True)
        def builds(monkeypatch):
            monkeypatch.setattr("emulator.session.launch.choose", lambda *name: Building())

        def test_refused(emulator):
            with pytest.raises(pytest.skip.Exception, match="a CPU limit for worker"):
                emulator.run("refused")
            assert built == []
            assert not list(emulator.out.glob("*/plan.json"))

        def test_fine(emulator):
            emulator.run("fine")
            assert set(built) == {"fine"}
        """
    )
    pytester.runpytest_subprocess(tests).assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"cluster": {"worker": {"gpus": 1}}}, {"docker", "gpu"}),
        ({"network": {"delay": "1ms"}}, {"docker", "network"}),
        ({"cluster": {"worker": {"cpus": 1}}}, {"docker"}),
        ({}, set()),
    ],
)
@pytest.mark.parametrize("engine", ["auto", "docker"])
def test_whatever_a_scenario_lacks_can_be_required(
    pytester: pytest.Pytester,
    scenario: Write,
    monkeypatch: pytest.MonkeyPatch,
    keys: dict[str, Any],
    words: set[str],
    engine: str,
) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    scenario("quick", **keys)
    lacks = words | ({"docker"} if engine == "docker" else set())
    for word in ("docker", "gpu", "network"):
        done = run_without_docker(
            pytester, "scenarios", "--emulator-engine", engine, "--emulator-require", word
        )
        if word in lacks:
            done.assert_outcomes(errors=1)
            done.stdout.fnmatch_lines([f"*--emulator-require {word}, but: *"])
        elif lacks:
            done.assert_outcomes(skipped=1)
        else:
            done.assert_outcomes(**({"errors": 1} if word == "docker" else {"passed": 1}))
