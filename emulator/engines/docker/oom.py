"""Running a container out of memory, so that the kernel kills it as it would on a full node.

A cgroup's limit can't be set below what is used (cgroup v1), so it is set just above that, and
another process in the container takes the rest.
"""

from __future__ import annotations

import docker
import requests

from emulator.errors import EngineError

EXIT_WITHIN = 30
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
    used = _execute(api, container, USAGE)
    if not used.isdigit():
        reason = used or "it is ending"
        raise EngineError(f"The memory use of {task} can't be read in its container: {reason}.")
    low = int(used) + MARGIN
    started_at = _started_at(api, container)
    api.update_container(container, mem_limit=low, memswap_limit=low)
    try:
        _execute(api, container, BALLOON)
        ended = _wait_for_end(api, container, started_at)
    finally:
        # A limit can't be removed; the machine's whole memory has the same effect.
        old = limit or int(api.info()["MemTotal"])
        api.update_container(container, mem_limit=old, memswap_limit=old if limit else -1)
    if not ended:
        raise EngineError(f"The kernel did not kill {task}, but the process that took its memory.")


def _wait_for_end(api: docker.APIClient, container: str, started_at: str) -> bool:
    """Wait for the end of a container whose process was killed; return whether it has ended.

    If it has been started again since, it has ended, and the new start must not be waited for.
    """
    if _started_at(api, container) != started_at:
        return True
    try:
        api.wait(container, timeout=EXIT_WITHIN)
    except (requests.Timeout, requests.ConnectionError):
        return False
    return True


def _started_at(api: docker.APIClient, container: str) -> str:
    return str(api.inspect_container(container)["State"]["StartedAt"])


def _execute(api: docker.APIClient, container: str, script: str) -> str:
    """Run a shell script in the task's container; return what it printed."""
    made = api.exec_create(container, ["sh", "-c", script], stderr=False)
    output: bytes = api.exec_start(made["Id"])
    return output.decode("utf-8", "replace").strip()
