"""Running a container out of memory, so that the kernel kills it as it would on a full node.

A cgroup's limit can't go below what is used (cgroup v1), so it is set just above that, and a
process beside the task takes the rest.
"""

from __future__ import annotations

import docker
import requests

from emulator.errors import EngineError

__all__ = ["oom_kill"]

OVER_WITHIN = 30
"""Seconds that the engine has to report a container's exit; a busy one needs some."""
MARGIN = 32 * 2**20
"""Bytes above what a task uses at which its memory is limited before it is killed."""
USAGE = (
    "cat /sys/fs/cgroup/memory.current 2> /dev/null"
    " || cat /sys/fs/cgroup/memory/memory.usage_in_bytes"
)
# The kernel kills the process with the highest score: the task's is raised, and `tail` keeps one
# endless line in memory.
BALLOON = """
for file in /proc/[0-9]*/oom_score_adj; do
    process=${file#/proc/}; process=${process%%/*}
    [ $process = $$ ] || [ $process = 1 ] || echo 1000 > $file
done 2> /dev/null
tail /dev/zero
"""


def oom_kill(api: docker.APIClient, task: str, container: str, limit: int | None) -> None:
    """Lower the limit until the container is dead, then restore its limit (in bytes).

    Raises EngineError where the task survives.
    """
    said = _inside(api, container, USAGE)
    if not said.isdigit():
        why = said or "it is just ending"
        raise EngineError(f"The memory use of {task} can't be read in its container: {why}.")
    used = int(said)
    low = used + MARGIN
    life = _life(api, container)
    api.update_container(container, mem_limit=low, memswap_limit=low)
    try:
        _inside(api, container, BALLOON)
        dead = _ends(api, container, life)
    finally:
        # No limit at all can't be set again: all that there is comes to the same.
        old = limit or int(api.info()["MemTotal"])
        api.update_container(container, mem_limit=old, memswap_limit=old if limit else -1)
    if not dead:
        raise EngineError(f"The kernel did not kill {task}, but the process that took its memory.")


def _ends(api: docker.APIClient, container: str, life: str) -> bool:
    """Wait until a container whose process was killed has ended; say whether it has.

    If it was started again since, it has, and the new start must not be waited for.
    """
    if _life(api, container) != life:
        return True
    try:
        api.wait(container, timeout=OVER_WITHIN)
    except (requests.Timeout, requests.ConnectionError):
        return False
    return True


def _life(api: docker.APIClient, container: str) -> str:
    """Return when a container was started, which identifies this start."""
    return str(api.inspect_container(container)["State"]["StartedAt"])


def _inside(api: docker.APIClient, container: str, script: str) -> str:
    """Run a shell script in the task's container; return what it printed."""
    made = api.exec_create(container, ["sh", "-c", script], stderr=False)
    said: bytes = api.exec_start(made["Id"])
    return said.decode("utf-8", "replace").strip()
