"""Warm starts in test sessions: containers wait between tests, and never after the session."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from emulator.engines.docker import DockerEngine
from tests.cli.typed import typed
from tests.pytest_plugin.conftest import Suite

pytestmark = pytest.mark.docker

SCENARIO = """
name: small
framework: none
image: {{name: {image}, preload: [decimal]}}
program: {{command: [python3, -c, 'print(1)']}}
cluster: {{worker: 2}}
"""
COLD = SCENARIO.replace("[python3, -c, 'print(1)']", "[sh, -c, 'echo 1']").replace("small", "shell")


def clusters(folder: Path) -> list[str]:
    """Return the clusters that the runs in a folder have used, in the order of the runs."""
    plans = sorted(folder.glob("*/plan.json"), key=lambda path: path.stat().st_mtime)
    warm = [json.loads(path.read_text())["warm"] for path in plans]
    return ["" if one is None else one["cluster"] for one in warm]


def left(ids: list[str]) -> list[str]:
    with contextlib.closing(DockerEngine()) as engine:
        return [one.name for cluster in {*ids} - {""} for one in engine.find(cluster)]


@pytest.fixture
def session(suite: Suite, tiny_image: str, monkeypatch: pytest.MonkeyPatch) -> Suite:
    monkeypatch.setenv("XDG_CACHE_HOME", str(suite.path / "cache"))
    suite.pytester.makefile(".yaml", small=SCENARIO.format(image=tiny_image))
    suite.pytester.makefile(".yaml", shell=COLD.format(image=tiny_image))
    suite.pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("number", range(3))
        def test_it(emulator, number):
            emulator.run("small.yaml", set={"seed": number}).check()

        def test_cold(emulator):
            assert emulator.run("shell.yaml").summary["warm"] == []
        """
    )
    return suite


@pytest.mark.parametrize("how", ["option", "ini", ""])
def test_containers_that_are_asked_for_wait_for_the_next_test_and_not_after_the_session(
    session: Suite, how: str
) -> None:
    if how == "ini":
        session.pytester.makeini("[pytest]\nemulator_warm = true\n")
    options = ["--emulator-warm"] * (how == "option")
    session.run("--emulator-engine", "docker", *options, apart=True, passed=4)
    used = clusters(session.runs)
    assert (len({*used}), used.count("")) == ((2, 1) if how else (1, 4))
    assert left(used) == []
    assert not list((session.path / "cache").rglob("waiting.json"))


def test_workers_share_what_waits_and_the_session_removes_it_all(session: Suite) -> None:
    session.run("--emulator-engine", "docker", "--emulator-warm", "-n", "2", passed=4)
    assert left(clusters(session.runs)) == []


def test_what_a_killed_session_left_waits_and_is_removed_by_clean(session: Suite) -> None:
    session.pytester.makepyfile(
        """
        def test_it(emulator):
            emulator.run("small.yaml").check()
            print("it", "waits", flush=True)
            input()
        """
    )
    arguments = ["--emulator-engine", "docker", "--emulator-warm", "-s"]
    command = [sys.executable, "-m", "pytest", *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=session.path, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        printed: list[str] = []
        while not (printed and "it waits" in printed[-1]):
            assert process.poll() is None, "".join(printed)
            printed.append(process.stdout.readline())
        os.kill(process.pid, signal.SIGKILL)
    used = clusters(session.runs)
    assert left(used) != []
    clean = ("clean", "--engine", "docker", "--out", session.runs)
    done = typed(*clean).ended()
    assert f"{used[0]} waits for a warm run; `emulate clean --warm` removes it" in done.stderr
    assert left(used) != []
    typed(*clean, "--warm").ended()
    assert left(used) == []
