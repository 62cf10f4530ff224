"""Fixtures: a Docker engine where one answers, the installed command, a folder for runs."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import psutil
import pytest
from filelock import FileLock
from hypothesis import settings
from playwright.sync_api import Browser, sync_playwright

from emulator.engines import choose
from emulator.engines.docker import DockerEngine
from emulator.errors import EngineMissing
from emulator.record.lock import LOCK
from emulator.record.reader import Record
from emulator.runtime.host import HOST
from emulator.supervisor import cleanup as leftovers
from tests.clusters import (
    NO_CLUSTER,
    fake_node,
    kubeconfig_or_why,
    kubernetes_alone,
    kubernetes_cluster,
    kubernetes_user,
)
from tests.clusters import REQUIRE as REQUIRE_KUBERNETES
from tests.registries import closed_registry, registry
from tests.slurm import slurm

# Properties are tried with the same examples each time, however long each takes: what fails here
# fails for everybody, and a busy machine fails nothing. `--hypothesis-profile search` tries others.
settings.register_profile("search", deadline=None, print_blob=True)
settings.register_profile("suite", settings.get_profile("search"), derandomize=True)
settings.register_profile("quick", settings.get_profile("suite"), max_examples=10)
settings.load_profile("suite")

CLUSTERS = (fake_node, kubeconfig_or_why, kubernetes_alone, kubernetes_cluster, kubernetes_user)
"""The fixtures of tests on Kubernetes."""

REGISTRIES = (closed_registry, registry)
"""The fixtures of tests that push and pull images."""

SCHEDULERS = (slurm,)
"""The fixtures of tests on Slurm."""

REQUIRE = "EMULATOR_REQUIRE_DOCKER"
NO_ENGINE = "no Docker engine answers; `make docker` starts one"
REQUIRE_BROWSER = "EMULATOR_REQUIRE_BROWSER"
NO_BROWSER = "no Chromium is installed; `make browser` installs one"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
"""What Debian, Ubuntu and Google call it."""
BROWSER_PATIENCE = 120_000.0
"""Milliseconds that it gets for what it does at once on an idle machine."""


@pytest.fixture(scope="session")
def docker_or_why() -> DockerEngine | str:
    try:
        engine = DockerEngine()
    except EngineMissing as error:
        return str(error)
    with FileLock(Path(tempfile.gettempdir(), f"{AT_WORK}.lock")):  # one of those that begin now
        remove_left_by_killed(engine)
    return engine


def no_docker(why: str) -> NoReturn:
    """Skip a test that needs an engine, or fail it where one is required."""
    if os.environ.get(REQUIRE) == "1":
        pytest.fail(f"{REQUIRE}=1, but: {why}")
    pytest.skip(NO_ENGINE)


@pytest.fixture
def docker_engine(docker_or_why: DockerEngine | str) -> Iterator[DockerEngine]:
    """A fresh engine object on the machine's Docker engine."""
    if isinstance(docker_or_why, str):
        no_docker(docker_or_why)
    engine = DockerEngine()
    yield engine
    engine.close()


@pytest.fixture
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a current folder of one's own, for `source: .`: tests beside it change the checkout."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def small_files() -> Iterator[None]:
    """No file may have more than 2 KiB, as on a disk that is nearly full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2048, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture(scope="session")
def tiny_image(docker_or_why: DockerEngine | str) -> str:
    """A small image with a shell: the base that our images are built on."""
    if isinstance(docker_or_why, str):
        no_docker(docker_or_why)
    return docker_or_why.images.base(lambda line: None)


@pytest.fixture(params=["process", pytest.param("docker", marks=pytest.mark.docker)])
def either_engine(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Each engine that users have, and an image of its scenarios that has a shell."""
    docker = request.param == "docker"
    return request.param, request.getfixturevalue("tiny_image") if docker else "none"


@pytest.fixture
def default_hangup() -> Iterator[None]:
    """What a test starts takes SIGHUP as usual, also where the suite itself runs under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture(scope="session")
def host_tensorflow() -> None:
    """Tasks of the process engine need TensorFlow in this environment."""
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip("TensorFlow is not installed here; `make test-rest` installs it")


# Of a module: as long as it is open, Playwright has an event loop running on this thread.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The machine's Chromium, headless: it looks at the reports as people do."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        if os.environ.get(REQUIRE_BROWSER) == "1":
            pytest.fail(f"{REQUIRE_BROWSER}=1, but: {NO_BROWSER}")
        pytest.skip(NO_BROWSER)
    with sync_playwright() as playwright:
        # Its own sandbox refuses to run as root, and the pages are our own.
        opened = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox"], timeout=BROWSER_PATIENCE
        )
        yield opened
        opened.close()


# --- Tests at work beside one another ------------------------------------------------------------


AT_WORK = f"{socket.gethostname()}-tests"
# What the tests of this process make is found under a name of its own: `emulate clean` in one of
# them leaves alone what others at work beside it have.
os.environ[HOST] = f"{AT_WORK}-{os.getpid()}"
# Processes run in the Python of these tests, whatever is active where they were started.
for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
    os.environ.pop(variable, None)


def remove_left_by_killed(engine: DockerEngine) -> None:
    """Remove what test processes of this machine have left that were killed."""
    dead = set()
    for host in {one.host for one in engine.find()}:
        name, _, pid = host.rpartition("-")
        if name == AT_WORK and pid.isdigit() and not psutil.pid_exists(int(pid)):
            dead.add(host)
    if dead:
        nowhere = Path(tempfile.gettempdir(), AT_WORK, "no-runs")
        leftovers.clean(
            nowhere, engine_name="docker", dry_run=False, say=print, warm=True, over=dead
        )


def going_on(folder: Path) -> FileLock:
    """Return the lock of a run that goes on; `emulate clean` leaves alone what belongs to it."""
    return FileLock(folder / LOCK, thread_local=False)


def own(run_id: str) -> str:
    """Return a run id that no test at work beside this one has: engines find runs by it."""
    return f"{run_id}-{os.getpid()}"


@dataclass(frozen=True)
class Finished:
    """What the command did."""

    returncode: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)

    def ended(self, code: int = 0) -> Finished:
        """Return this once its exit code is seen to be that."""
        assert self.returncode == code, self.stderr
        return self


def python(
    code: str,
    *arguments: str | Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    text: str | None = None,
) -> Finished:
    """Run a program in a process of its own, to which `text` is given; return what it did."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(
        command, cwd=cwd, env=env, input=text, capture_output=True, text=True, timeout=540
    )
    return Finished(done.returncode, done.stdout, done.stderr)


class Emulate:
    """The `emulate` command, as users call it, with its run folders in one place."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.prefix: Sequence[str] = ()
        """What the command is run by, with its arguments."""
        self._started: list[subprocess.Popen[str]] = []

    def __call__(
        self, *arguments: str | Path, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> Finished:
        """Run it to its end."""
        process = self.start(*arguments, env=env, cwd=cwd)
        stdout, stderr = process.communicate(timeout=540)
        return Finished(process.returncode, stdout, stderr)

    def start(
        self,
        *arguments: str | Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        unread: bool = False,
    ) -> subprocess.Popen[str]:
        """Run it in the background, in a process group of its own as a shell would.

        What is `unread` says nothing: it would stand still once its pipe is full.
        """
        pipe = subprocess.DEVNULL if unread else subprocess.PIPE
        process = subprocess.Popen(
            [*self.command, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            text=True,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )
        self._started.append(process)
        return process

    def reap(self) -> None:
        """End what a failed test has left running."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
            process.wait()

    @property
    def command(self) -> Sequence[str]:
        return [*self.prefix, str(Path(sys.executable).with_name("emulate"))]

    def up(
        self, scenario: str | Path, *arguments: str, env: Mapping[str, str] | None = None
    ) -> Finished:
        """`emulate up --json` with this test's folder of runs."""
        return self("up", scenario, "--json", "--out", self.out, *arguments, env=env)


@pytest.fixture
def emulate(tmp_path: Path) -> Iterator[Emulate]:
    """The command; whatever a failed test has left is removed after it."""
    command = Emulate(tmp_path / "runs")
    yield command
    command.reap()
    for plan in command.out.glob("*/plan.json"):
        # On Kubernetes all is in the test's own namespace, which goes with it.
        if json.loads(plan.read_text())["engine"] != "kubernetes":
            # Not `clean`: that would also remove what a test at work beside this one has left.
            leftovers.stop_or_remove(Record(plan.parent))


def left(engine: str, run_id: str) -> list[str]:
    """Return what a run has left, asked of the engine itself."""
    with contextlib.closing(choose(engine)) as asked:
        return sorted(f"{thing.kind} {thing.name}" for thing in asked.find(run_id))


def wait_for_line(process: subprocess.Popen[str], *texts: str) -> None:
    """Read the command's stderr until lines had all `texts`, in any order: events, not a sleep."""
    assert process.stderr is not None
    left, said = set(texts), []
    for line in process.stderr:
        said.append(line)
        left = {text for text in left if text not in line}
        if not left:
            return
    raise AssertionError(
        f"{left} never came; the command ended with {process.wait()} and said\n{''.join(said)}"
    )


def end(process: subprocess.Popen[str], number: signal.Signals) -> Finished:
    """Signal the command and return what it left to say."""
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=120)
    return Finished(process.returncode, stdout, stderr)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say loudly what was skipped for want of an engine, a cluster or a browser."""
    reports = terminalreporter.stats.get("skipped", [])
    if skipped := sum(NO_ENGINE in str(report.longrepr) for report in reports):
        terminalreporter.section("DOCKER TESTS SKIPPED", red=True, bold=True)
        terminalreporter.write_line(
            f"{skipped} tests need a Docker engine and none answers. "
            f"`make docker` starts one (Debian, Ubuntu); {REQUIRE}=1 turns this into a failure."
        )
    if skipped := sum(NO_CLUSTER in str(report.longrepr) for report in reports):
        terminalreporter.section("KUBERNETES TESTS SKIPPED", red=True, bold=True)
        terminalreporter.write_line(
            f"{skipped} tests need a Kubernetes and none answers. `make kubernetes` starts one "
            f"(Debian 12); {REQUIRE_KUBERNETES}=1 turns this into a failure."
        )
    if skipped := sum(NO_BROWSER in str(report.longrepr) for report in reports):
        terminalreporter.section("BROWSER TESTS SKIPPED", red=True, bold=True)
        terminalreporter.write_line(
            f"{skipped} tests look at reports in Chromium and there is none. `make browser` "
            f"installs it (Debian, Ubuntu); {REQUIRE_BROWSER}=1 turns this into a failure."
        )
