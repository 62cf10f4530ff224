"""Two presets on a real engine: what follows the grace period, and what is there afterwards."""

from __future__ import annotations

import pytest

from emulator.record.reader import Record
from tests.conftest import left
from tests.engines.docker.site import Site

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("docker_engine")]

# It takes no notice of SIGTERM. worker-1 says how often it has begun on this disk; with its third
# start all end.
PROGRAM = """
trap 'echo told' TERM
# The signal may end what counts, too.
began() { [ ! -e begun ] || ! n=$(wc -l < begun) || echo "began $((n))"; }
if [ "$EMULATOR_TASK" = worker-1 ]; then
    echo begun >> begun; echo begun >> /shared/begun
    [ "$(wc -l < /shared/begun)" -lt 3 ] || touch /shared/over
    sh -c 'trap "echo child told" TERM; while :; do sleep 0.1; done' &
fi
while [ ! -e /shared/over ]; do
    began
    sleep 0.1
done
began
"""
EVERY = "preempt: worker-1, metadata: none, grace: 1s, down: 1s"
FAULTS = f"""
cluster: {{worker: 2}}
success: all-workers
faults:
  - {{{EVERY}, like: gce-maintenance, notice: 0, at: {{log: began 1, task: worker-1}}}}
  - {{{EVERY}, like: gce-spot, at: {{log: began 2, task: worker-1}}}}
"""


def test_a_disk_is_kept_and_silence_follows_the_grace(site: Site) -> None:
    result = site.run(PROGRAM, FAULTS)
    assert result.exit_code == 0
    assert left("docker", result.run_id) == []
    record = Record(result.folder)
    printed = (record.path / "logs" / "worker-1.log").read_text().splitlines()
    began = [line for line in printed if line.startswith("began")]
    assert list(dict.fromkeys(began)) == ["began 1", "began 2"]
    assert began[-1] == "began 1"  # another machine, with another disk
    # Both tell all processes, the second before it loses its power.
    assert printed.count("child told") == 2
    closed, silent = result.summary["faults"]
    for fault in (closed, silent):
        assert (fault["status"], fault["killed"], fault["exit_code"]) == ("applied", True, 137)
        assert "SIGTERM to " in fault["effect"]
    assert (closed["silent"], silent["silent"]) == (False, True)
