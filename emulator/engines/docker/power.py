"""A task that loses power: silence on its network first, then the end of its processes.

Docker removes the endpoint of a container that has ended: its name is gone at once, and its address
answers with an error. Neither happens when a machine loses power. So the container does not end: a
helper in its namespaces drops every packet and kills every process but the first, an init, which
was stopped before so that it does not notice. The kernel still answers ARP for the address, so that
connections to it time out. The container is removed when the task is started again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

import docker
from docker.errors import APIError

from emulator.engines.docker.network import run_helper
from emulator.engines.docker.requests import LOST, helper_request

GONE_WITHIN = 30
"""Seconds for killed processes to end; one that waits for a slow disk ends late."""
SCRIPT = f"""
silence() {{ printf '*filter\\n:INPUT %s\\n:FORWARD %s\\n:OUTPUT %s\\nCOMMIT\\n' $1 $1 $1; }}
[ -z "$(ip -6 address show scope global)" ] || silence DROP | ip6tables-restore || exit 1
silence DROP | iptables-restore || exit 1
date +%s.%N
running() {{
    for file in /proc/[0-9]*/status; do
        process=${{file#/proc/}}; process=${{process%/status}}
        [ $process != 1 ] && [ $process != $$ ] || continue
        while read -r key value rest; do
            [ "$key" = State: ] || continue
            case $value in [ZX]) break;; *) return 0;; esac
        done < $file
    done 2> /dev/null
    return 1
}}
kill -KILL -1 2> /dev/null
for _ in $(seq {GONE_WITHIN * 50}); do
    running || exit 0
    sleep 0.02
done
silence ACCEPT | iptables-restore
echo 'a process does not end' >&2
exit 1
"""
"""Policies instead of rules: other network faults set the rules again. It prints when it began."""


def cut_power(
    api: docker.APIClient, image: str, container: str, labels: Mapping[str, str]
) -> float | None:
    """Silence a running container and end its processes.

    Returns when it fell silent (seconds since 1970, by the engine's clock); None: it does not run.
    Raises EngineError if a process of it does not end.
    """
    try:
        api.kill(container, signal="SIGSTOP")
    except APIError as error:
        if error.status_code in (404, 409):  # removed, or not running
            return None
        raise
    inside = f"container:{container}"
    try:
        request = helper_request(image, inside, SCRIPT, labels, processes=inside)
        silent_since = float(run_helper(api, request))
    except BaseException:
        with contextlib.suppress(APIError):
            api.kill(container, signal="SIGCONT")
        raise
    name: str = api.inspect_container(container)["Name"].lstrip("/")
    if not name.endswith(LOST):
        api.rename(container, name + LOST)  # its name is the replacement's
    return silent_since
