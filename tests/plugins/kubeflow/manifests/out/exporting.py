"""Exports scenarios, and what Kubernetes makes of a container in them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from emulator.errors import UsageError
from emulator.plugins.kubeflow.manifests.out.export import Written, export, target
from emulator.scenario.given import Given, read_scenario
from emulator.scenario.schema import Scenario

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def exported(
    given: Given, to: str, folder: Path, images: Mapping[str, str] | None = None
) -> Written:
    """Export a scenario; paths in it are relative to `folder` then."""
    scenario = given.parse()
    return export(scenario, target(to, scenario), destination=folder, images=images)


def given(data: Mapping[str, Any], folder: Path) -> Given:
    """Return a scenario from its data."""
    path = folder / "scenario.yaml"
    return Given(path, yaml.safe_dump(dict(data), sort_keys=False, allow_unicode=True))


def said_of(data: Mapping[str, Any], to: str, folder: Path) -> list[str] | str:
    """Return the notes of an export, or why there is none."""
    try:
        return [*exported(given(data, folder), to, folder).notes]
    except UsageError as error:
        return str(error)


def as_manifest(written: Written, folder: Path) -> Scenario:
    """Return what an exported job of the operator is converted to, as any other."""
    path = folder / "export.yaml"
    path.write_text(written.text, encoding="utf-8")
    return read_scenario(path).parse()


def documents(written: Written) -> list[dict[str, Any]]:
    """Return the documents of an export."""
    return list(yaml.load_all(written.text, LOADER))


# --- What Kubernetes does -------------------------------------------------------------------------

_REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")


def in_pod(container: Mapping[str, Any], index: int) -> tuple[list[str], dict[str, str]]:
    """Return the command and the variables of a container in the pod of an index.

    As the kubelet makes them: a variable may refer to those before it, a command to all. A command
    that a shell computes is what the shell runs.
    Source: k8s.io/kubernetes/third_party/forked/golang/expansion, `Expand`.
    """
    env: dict[str, str] = {}
    for variable in container.get("env", []):
        is_index = "valueFrom" in variable
        env[variable["name"]] = str(index) if is_index else _expanded(variable["value"], env)
    words = [*container.get("command", []), *container.get("args", [])]
    command = [_expanded(word, env) for word in words]
    if command[:2] == ["sh", "-c"] and "exec " in command[2]:
        shown = command[2].replace("exec ", "exec python3 -c " + _SHOW + " ", 1)
        done = subprocess.run(
            ["sh", "-c", shown],
            env={"PATH": "/usr/bin:/bin", **env},
            capture_output=True,
            check=True,
        )
        *words, last = done.stdout.decode().split("\0")
        assert last == "."
        command = [word for word in words if not word.startswith("=")]
        env |= dict(word[1:].split("=", 1) for word in words if word.startswith("="))
        for name in ("PATH", "PWD", "LC_CTYPE", "SHLVL", "_", "OLDPWD"):
            env.pop(name, None)
    return command, env


_SHOW = (
    "'import os, sys; sys.stdout.write(chr(0).join("
    '[*sys.argv[1:], *(f"={k}={v}" for k, v in os.environ.items()), "."]))\''
)


def _expanded(text: str, env: Mapping[str, str]) -> str:
    def value(found: re.Match[str]) -> str:
        return "$" if found[1] is None else env.get(found[1], found[0])

    return _REFERENCE.sub(value, text)
