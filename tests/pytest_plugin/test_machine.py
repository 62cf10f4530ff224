"""What a machine has and lacks: shares and turns, devices, and what is required of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.pytest_plugin.conftest import Suite
from tests.pytest_plugin.test_collect import NOT_OURS
from tests.session.conftest import FOREVER, STEPS

ALONE = 'mkdir {0} || exit 9; echo \'{{"emulate": "step", "step": 1}}\'; sleep 0.2; rmdir {0}'
"""A program that fails beside another of its kind."""


@pytest.mark.parametrize(
    ("reserve", "shares"),
    [({"cpus": 2}, ["--emulator-cpus", "3"]), ({"memory": "2g"}, ["--emulator-memory", "3g"])],
)
def test_scenarios_wait_until_their_share_is_free(
    suite: Suite,
    tmp_path: Path,
    reserve: dict[str, Any],
    shares: list[str],
) -> None:
    shell = ALONE.format(tmp_path / "mine")
    for name in ("one", "two"):
        suite.scenario(name, script=shell, reserve=reserve, parametrize={"seed": [1, 2, 3]})
    suite.run("-n", "4", "scenarios", *shares, passed=6)


def test_a_run_that_goes_wrong_blocks_no_other(suite: Suite) -> None:
    """Not those on other workers, nor those that come after it on its own."""
    suite.scenario("broken", program={"command": ["no-such-program"]}, reserve={"cpus": 1})
    shell = ALONE.format(suite.path / "mine")
    suite.scenario("good", script=shell, reserve={"cpus": 1}, parametrize={"seed": [1, 2, 3, 4]})
    done = suite.run("-n", "2", "scenarios", "--emulator-cpus", "1", passed=4, errors=1)
    done.stdout.fnmatch_lines(["*worker-0 can't run 'no-such-program'*"])
    assert not any(word in done.stdout.str() for word in NOT_OURS)
    assert not list(suite.path.glob(".cache/emulator/leases/*/*.json"))


def test_waiting_for_a_turn_is_not_timed(suite: Suite) -> None:
    suite.scenario("quick")
    text = """
        import signal

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
    suite.test(text, apart=True, passed=1)


def test_each_run_has_devices_of_its_own(suite: Suite) -> None:
    """Of an engine with two, of which each would take the first."""
    suite.scenario("gpu", cluster={"worker": {"gpus": 1}}, script=FOREVER)
    suite.scenario("none", script=FOREVER)
    text = """
        import json
        from dataclasses import replace
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
    suite.test(text, passed=1)


def test_every_engine_that_is_opened_is_closed(suite: Suite) -> None:
    suite.scenario("quick")
    suite.scenario("broken", program={"command": ["no-such-program"]})
    suite.scenario("refused", cluster={"worker": {"cpus": 1}})
    text = """
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
            assert len(opened) >= 3
            assert {one.closed for one in opened} == {1}
        """
    suite.test(text, passed=1)


def test_a_cluster_without_a_block_is_asked_to_end_once(suite: Suite) -> None:
    """A second time would kill its tasks in the middle of saying good-bye."""
    bye = "trap 'sleep 0.2; touch $EMULATOR_SHARED/bye; exit 0' TERM; "
    suite.scenario("polite", script=bye + STEPS + "while :; do sleep 0.05; done")
    text = "def test_it(emulator):\n    emulator.up('polite').wait_for(step=5)\n    assert False\n"
    suite.test(text, "--emulator-keep", failed=1)
    (history,) = suite.runs.glob("*/history.jsonl")
    events = [json.loads(line) for line in history.read_text().splitlines()]
    assert [e["outcome"] for e in events if e["event"] == "job"] == ["interrupted"]
    assert not any(e["event"] == "interrupted-again" for e in events)
    assert list(suite.runs.glob("*/shared/bye"))


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
def test_what_an_engine_lacks_is_refused_before_a_build(suite: Suite, keys: dict[str, Any]) -> None:
    """Also where the scenario itself could run, and only its reference could not."""
    suite.scenario("refused", **keys)
    suite.scenario("fine")
    text = """
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
    suite.test(text, passed=2)


@pytest.mark.parametrize(
    ("keys", "words", "why"),
    [
        ({"cluster": {"worker": {"gpus": 1}}}, {"docker", "gpu"}, "can't do this: GPUs"),
        ({"network": {"delay": "1ms"}}, {"docker", "network"}, "can't do this: network delay"),
        ({"cluster": {"worker": {"cpus": 1}}}, {"docker"}, "can't do this: a CPU limit"),
        ({}, set(), "No Docker engine"),
    ],
)
@pytest.mark.parametrize("engine", ["auto", "docker"])
def test_what_the_machine_lacks_is_skipped_or_fails_where_it_is_required(
    suite: Suite,
    monkeypatch: pytest.MonkeyPatch,
    keys: dict[str, Any],
    words: set[str],
    why: str,
    engine: str,
) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    suite.scenario("quick", **keys)
    lacks = words | ({"docker"} if engine == "docker" else set())
    for word in ("docker", "gpu", "network"):
        said = "No Docker engine" if "docker" in (engine, word) else why
        options = ("--emulator-engine", engine, "--emulator-require", word, "--log-cli-level=INFO")
        done = suite.run_without_docker("scenarios", "-rs", *options)
        if word in lacks:
            done.assert_outcomes(errors=1)
            done.stdout.fnmatch_lines([f"*--emulator-require {word}, but: *{said}*"])
        elif lacks:
            done.assert_outcomes(skipped=1)
            done.stdout.fnmatch_lines([f"SKIPPED*{said}*"])
        else:
            done.assert_outcomes(**({"errors": 1} if word == "docker" else {"passed": 1}))
            said = "*no Docker engine answers; tasks run as processes*"
            done.stdout.fnmatch_lines([said] * (word != "docker"))
