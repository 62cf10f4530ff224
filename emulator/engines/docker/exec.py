"""Commands in containers: `exec` of the Docker engine, by the docker command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from emulator.engines.docker.connection import translate_errors
from emulator.engines.docker.container_request import PART, RUN, TASK
from emulator.engines.kit.command_line import CommandLine, check_command, not_running

if TYPE_CHECKING:
    import docker

    from emulator.planning.plan import Plan


def command_line(
    api: docker.APIClient, plan: Plan, task: str, command: Sequence[str], *, terminal: bool
) -> CommandLine:
    """Return what runs a command in a task's container, which is found by its labels.

    The docker command looks for the engine where `connect` does, in the same variables. Raises
    UsageError if the container does not run, EngineError.
    """
    labels = [f"{RUN}={plan.resources}", f"{PART if '.' in task else TASK}={task}"]
    with translate_errors(f"look for {task}"):
        found = api.containers(filters={"label": labels, "status": "running"})
        if not found:
            raise not_running(task, plan.run_id)
        container = found[0]["Id"]
        has = api.inspect_container(container)["Config"]["Env"] or ()
    check_command("docker", "Docker (its package docker-ce-cli; docker.io of Debian and Ubuntu)")
    env = next((dict(one.env) for one in plan.everything if one.name == task), {})
    # One that was started warm has not all of the variables.
    lacks = [one for one in (f"{name}={value}" for name, value in env.items()) if one not in has]
    return CommandLine(docker_exec(container, command, lacks, terminal=terminal))


def docker_exec(
    container: str, command: Sequence[str], env: Sequence[str], *, terminal: bool
) -> list[str]:
    """Return the arguments of docker; `env` are variables as `NAME=value` (pure)."""
    variables = [word for one in env for word in ("-e", one)]
    return ["docker", "exec", "-it" if terminal else "-i", *variables, container, *command]
