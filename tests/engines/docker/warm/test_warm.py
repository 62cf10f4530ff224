"""Warm starts on a real engine: a program can't tell, a run leaves nothing to the next."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import docker
import pytest

from emulator.engines import WARM_SESSION
from emulator.engines.docker import DockerEngine
from emulator.engines.docker.warm import pool
from emulator.errors import EmulatorError, UsageError
from emulator.record.events import TaskRunning
from emulator.record.reader import Record
from emulator.results import Result
from emulator.session.run import attach
from tests.conftest import Emulate
from tests.engines.docker.site import Site

pytestmark = pytest.mark.docker


@dataclass
class Warm(Site):
    """Runs Python programs cold and warm, with warm clusters of their own."""

    clusters: Path = Path()

    def go(
        self,
        source: str,
        extra: str = "",
        *,
        command: Sequence[str] = ("python3", "a.py"),
        warm: bool = True,
        workers: int = 1,
        others: str = "",
    ) -> Result:
        """Run a command in each worker, beside a program a.py."""
        (self.folder / "program").mkdir(exist_ok=True)
        (self.folder / "program" / "a.py").write_text(source)
        self.printed.clear()
        return self.run(
            extra=f"image: {{name: {self.image}, preload: [decimal]}}\n"
            f"program: {{source: program, command: {json.dumps(command)}, env: {{OWN: 'a b'}}}}\n"
            f"cluster: {{{others}worker: {workers}}}\nsuccess: all-workers\n{extra}",
            warm=warm,
        )

    @property
    def lines(self) -> list[str]:
        """What worker 0 has printed in the last run."""
        return self.of("worker-0")

    def containers(self) -> dict[str, str]:
        """Return the containers that wait, by task."""
        found = {}
        for state in self.clusters.glob("*/waiting.json"):
            waiting = json.loads(state.read_text())["waiting"]
            found.update({task: one["container"] for task, one in waiting.items()})
        return found


@pytest.fixture
def site(tmp_path: Path, tiny_image: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Warm]:
    folder = tmp_path / "warm"
    monkeypatch.setattr(pool, "default_folder", lambda: folder)
    monkeypatch.setenv(WARM_SESSION, "test")
    try:
        yield Warm(tmp_path, tiny_image, clusters=folder)
    finally:
        DockerEngine.remove_waiting("test")
        assert not list(folder.glob("*"))


# --- What a program can observe -------------------------------------------------------------------

OBSERVE = """
import json, os, resource, signal, socket, sys, threading
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status"))
def read(path):
    return open(path).read()
print(json.dumps({
    "argv": sys.argv, "orig_argv": sys.orig_argv, "file": globals().get("__file__"),
    "name": __name__, "main": sys.modules["__main__"].__dict__ is globals(),
    "names": sorted(globals()), "package": __package__, "spec": str(__spec__).partition("0x")[0],
    "loader": getattr(__loader__, "__name__", type(__loader__).__name__),
    "path": sys.path, "flags": str(sys.flags), "executable": sys.executable,
    "xoptions": sys._xoptions, "warnoptions": sys.warnoptions, "prefix": sys.prefix,
    "command": [one for one in read("/proc/self/cmdline").split("\\0") if one],
    "comm": read("/proc/self/comm"), "env": dict(os.environ), "cwd": os.getcwd(),
    "files": {fd: os.readlink(f"/proc/self/fd/{fd}").partition(":")[0] for fd in "012"},
    "open": len(os.listdir("/proc/self/fd")), "input": sys.stdin.read(),
    "terminal": [os.isatty(fd) for fd in (0, 1, 2)],
    "buffering": [sys.stdout.line_buffering, sys.stdout.encoding, sys.stderr.errors],
    "parent": os.getppid(), "leads": os.getpgid(0) == os.getpid(), "session": os.getsid(0),
    "user": [os.getuid(), os.getgid(), os.getgroups(), os.umask(0o22)],
    "rights": [status[key] for key in ("CapEff", "CapBnd", "NoNewPrivs", "Seccomp")],
    "mask": [status[key] for key in ("SigBlk", "SigIgn", "SigCgt")],
    "handlers": {s.name: str(signal.getsignal(s)) for s in signal.Signals if s < 32},
    "limits": [resource.getrlimit(n) for n in range(16)],
    "nice": [os.nice(0), os.sched_getscheduler(0), sorted(os.sched_getaffinity(0))],
    "threads": [threading.active_count(), threading.current_thread().name,
                threading.current_thread() is threading.main_thread(), status["Threads"]],
    "host": socket.gethostname(), "shm": os.listdir("/dev/shm"), "job": sorted(os.listdir("/job")),
    "shared": os.listdir("/shared"), "modes": [os.stat(f).st_mode for f in ("/job", "/shared")],
    "wakeup": signal.set_wakeup_fd(-1),
    "hooks": [sys.excepthook is sys.__excepthook__, sys.gettrace(), sys.getrecursionlimit()],
    "switch": sys.getswitchinterval(),
    "processes": sum(name.isdigit() for name in os.listdir("/proc")),
}))
"""
PER_RUN = ("EMULATOR_RUN",)


@pytest.mark.parametrize(
    "command",
    [
        ["python3", "a.py", "--steps", "3"],
        ["python3", "-X", "dev", "-W", "ignore", "a.py"],
        ["python3", "-I", "/job/a.py"],
        ["python3", "-m", "a", "x"],
        ["python3", "-c", OBSERVE, "x"],
    ],
    ids=["script", "options", "isolated", "module", "code"],
)
def test_a_program_sees_the_same_whether_it_starts_cold_or_warm(
    site: Warm, command: list[str]
) -> None:
    seen = []
    for warm in (False, True, True):
        result = site.go(OBSERVE, command=command, warm=warm)
        started = result.summary["warm"]
        assert (result.outcome, started) == ("succeeded", ["worker-0"] if warm else [])
        (line,) = [line for line in site.lines if line.startswith("{")]
        seen.append(json.loads(line))
        assert all(seen[-1]["env"].pop(name) for name in PER_RUN)
    cold, first, second = seen
    for one in seen:
        one["env"].pop("LC_CTYPE", None)  # Python sets it where there is no locale
    assert first == cold
    assert second == cold


ENDS = {
    "a status": "import sys; sys.exit(3)",
    "a text": "import sys; sys.exit('no good')",
    "an error": "def f():\n    1 / 0\nf()",
    "a syntax error": "x = = 1",
    "the kernel's way": "import os; os._exit(5)",
    "its own SIGTERM": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "its own SIGKILL": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "an interrupt": "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(9)",
    "an exit handler": "import atexit; atexit.register(print, 'last')",
    "a thread": "import threading, time\n"
    "threading.Thread(target=lambda: (time.sleep(0.2), print('late'))).start()\nprint('main')",
    "a child that stays": "import os, time\nif os.fork() == 0: time.sleep(99)\nprint('parent')",
    "an orphan": "import os, time\n"
    "if os.fork() == 0:\n    if os.fork() == 0:\n        time.sleep(0.1)\n    os._exit(0)\n"
    "os.wait(); time.sleep(0.3); print(open('/proc/self/stat').read().split()[3])",
    "no newline": "import sys; sys.stdout.write('half')",
    "a long last line": "import sys; sys.stdout.write('x' * 100_000)",
    "a last line that is too long": "import sys; sys.stdout.write('x' * 3_000_000); sys.exit(3)",
    "another program": "import os; os.execvp('sh', ['sh', '-c', 'echo replaced; exit 4'])",
    "a warning": "import warnings; warnings.warn('old')",
    "a pickle": "import pickle\nclass A: pass\n"
    "print(type(pickle.loads(pickle.dumps(A()))).__module__)",
    "spawned": "import multiprocessing as m\ndef f(q): q.put(__name__)\n"
    "if __name__ == '__main__':\n    c = m.get_context('spawn'); q = c.Queue()\n"
    "    p = c.Process(target=f, args=(q,)); p.start(); print(q.get()); p.join()",
}


def test_a_program_ends_the_same_whether_it_started_cold_or_warm(site: Warm) -> None:
    for name, source in ENDS.items():
        ends = []
        for warm in (False, True):
            result = site.go(source, warm=warm)
            lines = sorted((len(line), line[:500]) for line in site.lines)
            ends.append((result.summary["tasks"]["worker-0"]["exit_code"], lines))
        assert ends[0] == ends[1], name
    assert len(site.containers()) == 1  # it served them all


def test_a_program_that_is_missing_is_reported_by_python_itself(site: Warm) -> None:
    result = site.go("", command=["python3", "b.py"])
    assert "can't open file '/job/b.py'" in site.lines[0]
    assert result.summary["tasks"]["worker-0"]["exit_code"] == 2


def test_a_signal_reaches_the_task_and_not_its_parent(site: Warm) -> None:
    source = (
        "import os, signal, sys, time\n"
        "if os.path.exists('/shared/second'): sys.exit(0)\n"
        "open('/shared/second', 'w').close()\n"
        "signal.signal(signal.SIGTERM, lambda *a: sys.exit(7))\n"
        "while True: print('ready', flush=True); time.sleep(0.1)"
    )
    stop = "faults: [{preempt: worker-0, at: {log: ready}, grace: 5s, down: 0s}]\ntimeout: 5m\n"
    result = site.go(source, stop)
    assert result.summary["faults"][0]["exit_code"] == 7
    assert result.outcome == "succeeded"


# --- What a run leaves ----------------------------------------------------------------------------

LITTERS = """
import os, time
for name in ("/shared/" + os.environ["EMULATOR_TASK"], "/tmp/b", "/job/c", "/dev/shm/d", "/root/e"):
    print(name, os.path.exists(name))
    open(name, "w").close()
os.makedirs("/tmp/deep/er", 0o700)
open("/tmp/deep/er/file", "w").close()
os.chmod("/tmp/deep", 0o500)
os.symlink("/etc/passwd", "/tmp/link")
if os.fork() == 0:
    os.setsid(); time.sleep(99)
print("processes", sum(name.isdigit() for name in os.listdir("/proc")))
"""


def test_a_run_finds_nothing_of_the_one_before_in_the_same_containers(site: Warm) -> None:
    site.go(LITTERS, workers=2)
    before, first = site.containers(), site.lines
    assert len(before) == 2
    site.go(LITTERS, workers=2)
    assert site.containers() == before
    assert site.lines == first
    assert [line for line in first if line.endswith("False")] == first[:5]


def test_a_restart_in_a_run_finds_the_disk_that_its_first_life_has_left(site: Warm) -> None:
    source = (
        "import os, sys\nprint(os.path.exists('/tmp/b'), os.path.exists('/dev/shm/d'))\n"
        "sys.exit(1 if not os.path.exists('/tmp/b') and not open('/tmp/b', 'w').close()\n"
        "         and not open('/dev/shm/d', 'w').close() else 0)"
    )
    again = "restart: {policy: on-failure, backoff: 0}\n"
    for warm in (False, True):
        site.go(source, again, warm=warm)
        assert site.lines == ["False False", "True False"]


@pytest.mark.parametrize(
    "source",
    [
        "open('/etc/hostname.mine', 'w'); open('/etc/passwd', 'a').write('#')",
        "import os; os.remove('/etc/motd')",
    ],
    ids=["changed", "deleted"],
)
def test_a_container_whose_image_was_changed_is_replaced(site: Warm, source: str) -> None:
    site.go(source, workers=2)
    before = site.containers()
    site.go("print(open('/etc/passwd').read().count('#'))", workers=2)
    assert site.lines == ["0"]
    assert {*before} == {*site.containers()}


KILLED = "import time\nprint('up', flush=True)\nwhile True: time.sleep(0.1)"


@pytest.mark.parametrize("fault", ["kill: worker-0", "preempt: worker-0, grace: 0s, down: 0s"])
def test_a_task_that_was_struck_has_a_warm_container_again_in_the_next_run(
    site: Warm, fault: str
) -> None:
    source = (
        "import os, time\nname = '/shared/' + os.environ['EMULATOR_TASK']\n"
        "first = not os.path.exists(name)\nopen(name, 'w').close()\nprint('life', flush=True)\n"
        "while first and os.environ['EMULATOR_TASK'] == 'worker-0':\n"
        "    print('up worker-0', flush=True); time.sleep(0.1)"
    )
    faults = (
        f"faults: [{{{fault}, at: {{log: up worker-0}}}}]\n"
        "restart: {policy: on-failure, backoff: 0}\n"
    )
    result = site.go(source, faults, workers=2)
    assert (result.outcome, result.summary["faults"][0]["status"]) == ("succeeded", "applied")
    assert site.lines.count("life") == 2
    waiting = site.containers()
    with contextlib.closing(docker.from_env()) as client:
        found = [client.containers.get(one) for one in waiting.values()]
    assert [(one.status, one.attrs["Path"]) for one in found] == [("running", "python3")] * 2
    assert site.go(source, faults, workers=2).outcome == "succeeded"


SPARE = """
import os, socket, time
task = os.environ["EMULATOR_TASK"]
first = not os.path.exists("/shared/" + task)
open("/shared/" + task, "w").close()
print("address", socket.gethostbyname(task), os.listdir("/tmp"), flush=True)
if task == "worker-0":
    open("/tmp/mine", "w").close()
    while first:
        print("up worker-0", flush=True); time.sleep(0.1)
    socket.create_server(("", 4000)).accept()
else:
    while True:
        try:
            named = {one[4][0] for one in socket.getaddrinfo("worker-0", 4000)}
            print("named", len(named), flush=True)
            socket.create_connection(("worker-0", 4000), 1); break
        except OSError:
            time.sleep(0.05)
"""


@pytest.mark.parametrize(
    ("address", "domain"), [("new", ""), ("same", ""), ("new", ".release.svc")]
)
def test_a_replacement_starts_warm_where_its_preemption_says_so(
    site: Warm, address: str, domain: str
) -> None:
    source = SPARE.replace('"worker-0", 4000', f'"worker-0{domain}", 4000')
    fault = (
        f"addresses: {{host: '{{task}}{domain}'}}\n"
        f"faults: [{{preempt: worker-0, grace: 0s, down: 0s, warm: true, address: {address},\n"
        "           at: {log: up worker-0}}]\n"
    )
    result = site.go(source, fault, workers=2)
    assert result.outcome == "succeeded"
    addresses = [line.partition(" [")[0] for line in site.lines if line.startswith("address")]
    assert all(line.endswith("[]") for line in site.lines if line.startswith("address"))
    assert (len(addresses), len({*addresses})) == (2, 2 if address == "new" else 1)
    # The spare one has no name before it replaces the other.
    assert {line for line in site.of("worker-1") if "named" in line} == {"named 1"}
    waiting = site.containers()
    assert {*waiting} == {"worker-0", "worker-1", "worker-0.spare-0"}
    again = site.go(source, fault, workers=2)
    assert again.outcome == "succeeded"
    ran = [e.id for e in Record(again.folder).history if isinstance(e, TaskRunning)]
    assert {waiting[name][:12] for name in waiting} == {*ran}


def test_after_a_fault_that_changes_a_limit_the_cluster_is_not_used_again(site: Warm) -> None:
    source = "import time\nfor _ in range(20): print('up', flush=True); time.sleep(0.1)"
    slow = "faults: [{throttle: worker-0, at: {log: up}, cpus: 0.5, for: 0.1s}]\n"
    assert site.go(source, slow).outcome == "succeeded"
    assert site.containers() == {}
    assert list(site.clusters.iterdir()) == []


def test_a_waiting_container_ends_by_itself(site: Warm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emulator.engines.docker.warm.cluster.IDLE", 3.0)
    site.go("print('done')")
    (container,) = site.containers().values()
    with contextlib.closing(docker.from_env()) as client:
        assert client.containers.get(container).wait()["StatusCode"] == 0
    site.go("print('done')")  # which makes another
    assert site.lines == ["done"]
    assert site.containers() != {"worker-0": container}


def test_counters_begin_at_the_start_of_the_task(site: Warm) -> None:
    burn = "import time\nend = time.process_time() + 1.5\nwhile time.process_time() < end: pass"
    idle = "import time\ntime.sleep(1.5)"
    site.go(burn, "metrics: {interval: 0.2s}\n")
    burnt = site.go(idle, "metrics: {interval: 0.2s}\n")
    assert burnt.summary["usage"]["worker-0"]["cpu"] < 1


# --- What is said, and refused --------------------------------------------------------------------


def test_a_job_without_a_python_program_is_refused(site: Warm) -> None:
    with pytest.raises(
        EmulatorError, match=r"No task can start warm\. worker-0 starts cold: its c"
    ):
        site.go("", command=["sh", "-c", "true"])
    assert not site.clusters.exists()


def test_a_run_that_comes_to_nothing_leaves_what_waits_to_the_next_and_none_is_taken_over(
    site: Warm,
) -> None:
    folder = site.go("").folder
    plan, waiting = Record(folder).plan, site.containers()
    with contextlib.closing(DockerEngine()) as engine:
        leased = engine.lease_warm(plan.model_copy(update={"warm": None}))
        assert leased.resources == plan.resources
        assert site.containers() == {}
    assert site.containers() == waiting  # interrupted, or refused, before it was used
    site.go("")
    assert site.containers() == waiting
    (folder / "summary.json").unlink()
    with contextlib.closing(DockerEngine()) as engine, pytest.raises(UsageError, match="start"):
        attach(Record(folder), engine)


def test_what_a_killed_emulator_leaves_is_found_and_removed(
    emulate: Emulate, tmp_path: Path, tiny_image: str
) -> None:
    (tmp_path / "a.py").write_text(KILLED)
    extra = f"image: {{name: {tiny_image}, preload: [decimal]}}\n"
    program = "program: {source: a.py, command: [python3, a.py]}\n"
    path = Site(tmp_path, tiny_image).path(extra=extra + program)
    env = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    options = ("--engine", "docker", "--out", emulate.out, "--warm", "--run-id", "warm-killed")
    process = emulate.start("up", path, *options, env=env)
    assert process.stderr is not None
    next(line for line in process.stderr if "| up" in line)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    cluster = Record(emulate.out / "warm-killed").plan.resources
    done = emulate("down", "warm-killed", "--out", emulate.out, env=env)
    assert done.returncode == 0, done.stderr
    with contextlib.closing(DockerEngine()) as engine:
        assert engine.find(cluster) == []


def test_helpers_are_made_anew_next_to_warm_tasks(site: Warm) -> None:
    helper = "helpers: {board: {command: [sh, -c, 'echo up; sleep 1000'], ports: [80]}}\n"
    limits = "shm_size: 96m\nulimits: {nofile: 2048}\n"
    look = "import os, resource as r; s = os.statvfs('/dev/shm')\n"
    look += "print(s.f_blocks * s.f_frsize, r.getrlimit(r.RLIMIT_NOFILE))\n"
    kept = []
    for _ in range(2):
        result = site.go(look, helper + limits)
        assert result.exit_code == 0
        assert result.summary["warm"] == ["worker-0"]
        assert result.summary["helpers"]["board"]["state"] == "stopped"
        assert site.lines == [f"{96 * 2**20} (2048, 2048)"]
        assert Record(result.folder).log("board") == ["up"]
        kept.append(site.containers())
    assert kept[0] == kept[1]
    assert kept[0].keys() == {"worker-0"}


def test_a_task_before_training_starts_warm_as_well(site: Warm) -> None:
    """Its container waits beside those of the others, and serves the next run too."""
    python = ["python3", "-c", "import os; print(open('/shared/made').read())"]
    ingest = (
        "python3, -c, \"import os; open('/shared/made', 'w').write(os.environ['EMULATOR_RUN'])\""
    )
    others = f"ingest: {{before: training, command: [{ingest}]}}, "
    for _ in range(2):
        result = site.go("", "expect: {steps: none}\n", command=python, others=others)
        result.check()
        assert result.summary["warm"] == ["ingest-0", "worker-0"]
        assert site.lines == [result.run_id]
        assert site.containers().keys() == {"ingest-0", "worker-0"}
    history = Record(result.folder).history
    order = [e.task for e in history if e.event in ("exit", "start")]
    assert order == ["ingest-0", "ingest-0", "worker-0", "worker-0"]
