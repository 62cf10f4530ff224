"""Tests that control a cluster themselves, for what `expect:` in a scenario can't express."""

import pytest
from emulator.engines.memory import Script


# The fixture: the test itself injects the faults.
def test_a_worker_that_is_killed_is_started_again(emulator):
    with emulator.up("preemption.yaml", set={"faults": []}) as cluster:
        cluster.wait_for(step=200)
        cluster.kill("worker-1")
        result = cluster.wait()
    result.check()
    assert result.restarts == 1


# The marker: the test gets a finished run, after its `expect:` was checked.
@pytest.mark.scenario("training.yaml", set={"cluster.worker": 1})
def test_one_worker_learns_as_well(run):
    assert "learned y = 3.00 x + 2.00" in (run.folder / "logs" / "worker-0.log").read_text()


# Scripts replace the programs, and the clock jumps: tests of policies and faults in milliseconds.
def test_the_job_is_given_up_after_three_restarts(memory_cluster):
    dies = Script(lines=[(1, '{"emulate": "step", "step": 1}')], exits_at=5, exit_code=1)
    run = memory_cluster("preemption.yaml", {"worker-*": dies})
    assert (run.outcome, run.restarts) == ("failed", 3)
