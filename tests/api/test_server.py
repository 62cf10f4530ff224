"""The API of a running scenario and its client, with real requests, on both engines."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import socket
import stat
import threading
from collections import Counter
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

import emulator
from emulator.api.application import LARGEST_BODY, application
from emulator.api.client import Cluster, when_up
from emulator.api.server import LINES_AT_A_TIME, ApiServer, RecordWatcher
from emulator.engines.base import Inbox
from emulator.errors import EmulatorError, EngineLost, UsageError
from emulator.planning.planner import make_plan
from emulator.record.events import fields_of
from emulator.record.reader import Record
from emulator.record.remains import SOCKET
from emulator.record.writer import RunWriter
from emulator.runtime.clock import ManualClock
from emulator.scenario.loader import parse
from emulator.supervisor.control import RunControl
from tests.cli.typed import typed, write
from tests.conftest import Emulate, Finished
from tests.histories import SITE

NOBODY: Any = None
CONTROL = RunControl(NOBODY, NOBODY, Inbox(), NOBODY, NOBODY)
"""Of a run without a supervisor."""

# Steps until a file `over` is written into the shared folder.
JOB = r"""
n=0; printf 'progress 1\rprogress 2\n'
while [ ! -e "$EMULATOR_SHARED/over" ]; do
    n=$((n + 1)); echo "{\"emulate\": \"step\", \"step\": $n}"; sleep 0.1
done
echo bye
"""


def client(socket: Path) -> httpx.Client:
    """Return a client of the API at a socket."""
    transport = httpx.HTTPTransport(uds=os.path.realpath(socket))
    return httpx.Client(transport=transport, base_url="http://run", timeout=300)


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[tuple[ApiServer, httpx.Client]]:
    """Serve the API of a run without a supervisor; yield its server and a client of it."""
    opened = threading.Event()
    with contextlib.closing(ApiServer(CONTROL, folder, opened.set)) as server:
        server.open()
        assert opened.wait(60)
        with client(folder / SOCKET) as http:
            yield server, http


class Running:
    """A run in the background, and the end of it."""

    def __init__(
        self, emulate: Emulate, engine: str = "process", image: str = "none", script: str = JOB
    ) -> None:
        workers = {"cluster": {"worker": 2}, "success": "all-workers"}
        scenario = write(emulate.out.parent, script, name="api", image=image, **workers)
        where = ("--engine", engine, "--json", "--out", emulate.out)
        up = emulate("up", "-d", scenario, *where).ended()
        self.folder = Path(up.json["folder"])
        self.run_id = str(up.json["run_id"])

    @property
    def http(self) -> httpx.Client:
        return client(self.folder / SOCKET)

    def cluster(self) -> Cluster:
        return emulator.connect(self.folder)

    def wait(self) -> Finished:
        return typed("wait", self.folder, "--json")


@pytest.fixture
def running(emulate: Emulate, either_engine: tuple[str, str]) -> Running:
    return Running(emulate, *either_engine)


@pytest.fixture
def processes(emulate: Emulate) -> Running:
    """A run on the process engine, where the engine makes no difference."""
    return Running(emulate)


class Reader(threading.Thread):
    """Reads a stream to its end."""

    def __init__(self, stream: Iterator[Any]) -> None:
        super().__init__(daemon=True)
        self._stream, self.got = stream, list[Any]()
        self.begun = threading.Event()
        self.start()

    def run(self) -> None:
        for item in self._stream:
            self.got.append(item)
            self.begun.set()

    def all(self) -> list[Any]:
        self.join(60)
        assert not self.is_alive(), "the stream never ended"
        return self.got


def test_streams_have_everything_and_end_with_the_run(running: Running) -> None:
    assert stat.S_IMODE((running.folder / SOCKET).stat().st_mode) == 0o600
    with running.cluster() as one, running.cluster() as other:
        step = one.wait_for(step=2, task="worker-1")
        history = Reader(one.history())
        later = Reader(other.history(after=step.n))
        lines, every = Reader(other.lines("worker-0")), Reader(one.lines())
        assert all(r.begun.wait(60) for r in (history, later, lines, every))
        status = other.status()
        assert status["state"] == "running"
        assert [task["state"] for task in status["tasks"]] == ["running", "running"]
        one.stop()
        entries = history.all()
        assert [entry.n for entry in entries] == list(range(len(entries)))
        assert later.all() == entries[step.n + 1 :]
        assert {task for task, _ in lines.all()} == {"worker-0"}
        assert ("worker-0", "progress 1\rprogress 2") in lines.all()
        assert [line for line in every.all() if line[0] == "worker-0"] == lines.all()
        result = one.wait()
        assert result.outcome == "interrupted"
        assert not (running.folder / SOCKET).exists()
        with pytest.raises(UsageError, match="is over"):
            one.status()
        with pytest.raises(UsageError, match="is over"):
            one.wait_for(step=10**6)
    with pytest.raises(UsageError, match="is over"):
        running.cluster()
    running.wait().ended(130)


def test_lines_are_followed_from_the_last_ones_or_since_a_time(processes: Running) -> None:
    with processes.cluster() as cluster:
        step = cluster.wait_for(step=5, task="worker-0")
        last = Reader(cluster.lines("worker-0", last=2))
        since = Reader(cluster.printed("worker-0", since=step.wall))
        usage = Reader(cluster.samples(last=1))
        assert all(reader.begun.wait(60) for reader in (last, since, usage))
        cluster.stop()
        cluster.wait()
    log = cluster.record.log("worker-0")
    lines = [text for _, text in last.all()]
    assert "progress" not in lines[0]
    assert log[len(log) - len(lines) :] == lines
    assert list(cluster.record.samples)[-len(usage.all()) :] == usage.all()
    stored = list(cluster.record.printed(["worker-0"], since=step.wall))
    assert since.all() == stored
    assert stored[0].wall is not None
    assert stored[0].wall >= round(step.wall, 3)
    assert len(stored) < len(log)


def test_a_fault_by_hand_is_recorded_and_healed(running: Running) -> None:
    with running.cluster() as cluster:
        cluster.wait_for(step=1)
        (paused,) = cluster.pause("worker-1")
        assert cluster.wait_for(fault=paused).task == "worker-1"
        assert cluster.heal(paused) == [paused]
        cluster.wait_for(fault=paused, stage="healed")
        assert cluster.heal() == []  # of all that there is, nothing
        (again,) = cluster.preempt("worker-0", grace=0, down="forever")
        assert again != paused
        cluster.wait_for(event="exit", task="worker-0")
        assert cluster.heal(again) == [again]
        back = next(e for e in cluster.history() if fields_of(e) == {"fresh": True})
        assert back.task == "worker-0"
        cluster.stop()
        result = cluster.wait()
        assert {fault["id"]: fault["status"] for fault in result.summary["faults"]} == {
            paused: "applied",
            again: "applied",
        }


def test_what_makes_no_sense_is_one_sentence_and_changes_nothing(processes: Running) -> None:
    nonsense = [
        ("GET", "/v1/nothing", None, 404, "GET /v1/nothing: Not Found."),
        ("GET", "/", None, 404, "GET /: Not Found."),
        ("POST", "/v1/run", None, 405, "POST /v1/run: Method Not Allowed."),
        ("GET", "/v1/history?after=soon", None, 422, "'soon' is no number."),
        ("GET", "/v1/lines?last=few", None, 422, "'few' is no number."),
        ("GET", "/v1/lines?since=then", None, 422, "'then' is no number."),
        ("GET", "/v1/samples?last=few", None, 422, "'few' is no number."),
        ("GET", "/v1/lines?task=nobody", None, 422, "No task is called 'nobody'. There are"),
        ("POST", "/v1/faults", b"", 422, "That is no fault: Invalid JSON"),
        ("POST", "/v1/faults", b"\xff{", 422, "That is no fault: Invalid JSON"),
        ("POST", "/v1/faults", b"[]", 422, "That is no fault: "),
        ("POST", "/v1/faults", b"{}", 422, "a fault is one of preempt, kill"),
        ("POST", "/v1/faults", b'{"kill": "x", "oom": "x"}', 422, "kill and oom in one entry"),
        ("POST", "/v1/faults", b'{"kill": "nobody"}', 422, "no task is called 'nobody'"),
        ("POST", "/v1/faults", b'{"kill": "worker-0", "at": "1s"}', 422, "at: Extra inputs"),
        ("POST", "/v1/faults", b'{"preempt": "worker-0", "grace": "1"}', 422, "grace: "),
        ("POST", "/v1/faults", b'{"pause": "worker-0"}', 422, "for: Field required"),
        ("POST", "/v1/faults", b'{"oom": "worker-0"}', 422, "process engine can't do this"),
        ("DELETE", "/v1/faults/7", None, 422, "There is nothing to heal of a fault '7'."),
        ("DELETE", "/v1/faults/a/b", None, 422, "There is nothing to heal of a fault 'a/b'."),
    ]
    with processes.http as http:
        for method, path, body, code, sentence in nonsense:
            answer = http.request(method, path, content=body)
            assert (answer.status_code, list(answer.json())) == (code, ["error"]), path
            assert sentence in answer.json()["error"], body
            assert "\n" not in answer.json()["error"]
        assert http.get("/v1/run").json()["faults"] == []
        assert http.request("DELETE", "/v1/faults/all").json() == {"healed": []}
        with processes.cluster() as cluster:
            with pytest.raises(UsageError, match="no task is called 'nobody'"):
                cluster.kill("nobody")
            with pytest.raises(UsageError, match="nothing to heal of a fault 'a/b\\?c d'"):
                cluster.heal("a/b?c d")
            with pytest.raises(UsageError, match="No task is called 'nobody'"):
                list(cluster.lines("nobody"))
            with pytest.raises(UsageError, match="can't do this: a partition"):
                cluster.partition(["worker-0"], ["worker-1"])
        assert http.post("/v1/stop").status_code == 202
    processes.wait().ended(130)


def test_a_request_at_the_end_of_the_run_gets_an_answer(running: Running) -> None:
    answers: list[object] = []

    def ask() -> None:
        with contextlib.suppress(UsageError), running.cluster() as cluster:
            while True:
                try:
                    answers.append(cluster.status()["state"])
                except EmulatorError as error:
                    answers.append(error)
                    return

    asking = [threading.Thread(target=ask, daemon=True) for _ in range(4)]
    for thread in asking:
        thread.start()
    with running.cluster() as cluster:
        cluster.stop()
        cluster.wait()
    for thread in asking:
        thread.join(60)
        assert not thread.is_alive(), "a request hangs"
    refused = [answer for answer in answers if not isinstance(answer, str)]
    assert refused
    assert all(isinstance(error, UsageError) for error in refused), refused


def test_a_request_after_the_supervisor_has_ended_is_refused_at_once(tmp_path: Path) -> None:
    with serving(tmp_path) as (server, http):
        waiting = CONTROL.ask(lambda: None)
        server.refuse()
        with pytest.raises(UsageError, match="The run is over"):
            waiting.result(0)
        answer = http.post("/v1/stop")
        assert (answer.status_code, answer.json()) == (410, {"error": "The run is over."})


def test_who_follows_a_run_that_is_being_taken_down_waits_for_its_end(tmp_path: Path) -> None:
    text = "name: test\nprogram: {command: [a]}\ncluster: {worker: 1}\n"
    run = RunWriter(tmp_path / "run-1", make_plan(parse(text), "run-1", SITE), text, ManualClock())
    said = list[str]()

    def say(line: str) -> None:
        said.append(line)
        run.close()  # the run is over

    with contextlib.closing(run), serving(run.path) as (server, _):
        server.refuse()
        assert when_up(Record(run.path), say) is None
    assert said == ["waiting for run-1: it is not up yet, or is just ending"]


def test_lines_are_hurried_while_a_client_follows(tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").write_text('{"n": 0}\n')
    with serving(tmp_path) as (server, http):
        assert http.get("/v1/nothing").status_code == 404
        assert not server.hurried  # it has been asked something, and that is all
        with http.stream("GET", "/v1/history") as answer:
            lines = answer.iter_lines()  # it ends the request when it is collected
            assert next(lines) == '{"n": 0}'
            assert server.hurried


def test_a_long_path_has_its_api_all_the_same(emulate: Emulate, tmp_path: Path) -> None:
    emulate.out = tmp_path / "/".join(["deep" * 10] * 4) / "runs"
    emulate.out.parent.mkdir(parents=True)
    run = Running(emulate)
    server = run.folder / SOCKET
    assert len(os.fsencode(server)) > 108
    real = Path(os.path.realpath(server))
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    assert stat.S_IMODE(real.parent.stat().st_mode) == 0o700
    with run.cluster() as cluster:
        cluster.wait_for(step=1)
        cluster.stop()
        cluster.wait()
    assert not server.is_symlink()
    assert not real.parent.exists()


def test_a_supervisor_with_a_thousand_open_files_has_its_api(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2000:
        pytest.skip("not so many files may be open here")
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2000), hard))
        for _ in range(1030):
            stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        _, http = stack.enter_context(serving(tmp_path))
        assert http.get("/v1/nothing").status_code == 404


def test_a_task_that_prints_without_end_does_not_drown_its_readers(emulate: Emulate) -> None:
    with Running(emulate, script="exec yes").cluster() as cluster:
        lines = cluster.lines("worker-0")
        assert {next(lines) for _ in range(10_000)} == {("worker-0", "y")}
        lines.close()  # type: ignore[attr-defined]
        assert cluster.status()["state"] == "running"
        cluster.stop()
        cluster.wait()


def test_who_reads_a_long_log_lets_others_have_their_answers(tmp_path: Path) -> None:
    """Also if it has gone: what is sent to it then never waits."""
    log = tmp_path / "worker-0.log"
    log.write_text("y\n" * 10 * LINES_AT_A_TIME)
    sent_before: list[int] = []

    async def serve() -> None:
        sent = 0

        async def answer() -> None:
            sent_before.append(sent)

        other = asyncio.create_task(answer())
        watcher = RecordWatcher()
        watcher.close()
        async for _, _, lines in watcher.lines(lambda: {"worker-0": log}):
            sent += len(lines)
        await other
        assert sent == 10 * LINES_AT_A_TIME

    asyncio.run(serve())
    assert sent_before[0] <= LINES_AT_A_TIME


def test_a_client_that_leaves_during_its_request_is_no_news(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The terminal is that of `up`."""
    with serving(tmp_path) as (_, next_one):
        with socket.socket(socket.AF_UNIX) as leaves:
            leaves.connect(str(tmp_path / SOCKET))
            leaves.sendall(b"POST /v1/faults HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
        assert next_one.get("/").status_code == 404
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("path", ["/v1/lines?task=worker-0", "/v1/history?after=1"])
def test_a_defect_is_a_sentence_for_the_client_and_for_the_terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Before an answer has begun, and in the middle of one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "history.jsonl").write_text("[]\n")
    with serving(tmp_path) as (_, http):
        if "lines" in path:
            answer = http.get(path)
            assert answer.status_code == 500
            assert answer.json()["error"].startswith("This is a defect of emulate: Attribute")
        else:
            with pytest.raises(httpx.RemoteProtocolError):
                http.get(path)
    (said,) = capfd.readouterr().err.splitlines()
    assert said.startswith("emulate: the run's API: This is a defect of emulate: ")
    assert (tmp_path / "cache" / "emulator" / "traceback.txt").exists()


def test_a_client_that_leaves_while_it_follows_is_noticed_at_once(tmp_path: Path) -> None:
    """Before it is sent five pieces more, which asyncio would complain about on stderr."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "worker-0.log").write_text("y\n" * 10 * LINES_AT_A_TIME)
    watcher, turn, sent = RecordWatcher(), 0, Counter[int]()
    watcher.close()
    app = application(CONTROL, tmp_path, watcher)
    asked = {"type": "http", "method": "GET", "path": "/v1/lines"}
    scope = {**asked, "query_string": b"", "headers": []}

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError("it has nothing more to say")

    async def send(message: MutableMapping[str, Any]) -> None:
        sent[turn] += 1

    async def serve() -> None:
        nonlocal turn
        serving = asyncio.create_task(app(scope, receive, send))
        while not serving.done():
            turn += 1
            await asyncio.sleep(0)

    asyncio.run(serve())
    assert sent.total() > 10
    assert max(sent.values()) < 5


def test_a_large_body_is_refused(tmp_path: Path) -> None:
    app = application(CONTROL, tmp_path, RecordWatcher())

    async def answer() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://run") as client:
            return await client.post("/v1/faults", content=b" " * (LARGEST_BODY + 1))

    refused = asyncio.run(answer())
    assert refused.status_code == 413
    assert refused.json() == {"error": "POST /v1/faults: A body has at most 1 MiB."}


def test_a_client_follows_to_the_socket_of_the_next_supervisor(tmp_path: Path) -> None:
    folder = tmp_path / "/".join(["deep" * 10] * 4)  # so that the socket lies elsewhere
    folder.mkdir(parents=True)
    cluster = Cluster(Record(folder), over=True)
    for _ in range(2):
        with serving(folder), pytest.raises(EngineLost):  # an answer, not that there is none
            cluster._ask("GET", "/nothing")
    cluster.close()


def test_a_killed_supervisor_is_reported_as_gone(processes: Running) -> None:
    with processes.cluster() as cluster:
        first = cluster.wait_for(event="run")
        history = cluster.history()
        next(history)
        supervisor = psutil.Process(int(fields_of(first)["pid"]))
        supervisor.kill()
        psutil.wait_procs([supervisor], timeout=300)
        with pytest.raises(UsageError, match="is gone; `emulate attach"):
            list(history)
        with pytest.raises(UsageError, match="is gone; `emulate attach"):
            cluster.status()


def test_samples_are_followed_from_the_first_to_the_last(running: Running) -> None:
    with running.http as http, http.stream("GET", "/v1/samples") as stream:
        samples = map(json.loads, stream.iter_lines())
        got = [next(samples)]
        while len(got[-1]["tasks"]) < 2:  # taken while they start
            got.append(next(samples))
        got.append(next(samples))
        first, second = got[-2:]
        assert set(first["tasks"]) == {"worker-0", "worker-1"}
        assert second["t"] > first["t"]
        assert second["tasks"]["worker-0"]["cpu"] >= first["tasks"]["worker-0"]["cpu"]
        if (running.folder / "shared").exists():
            (running.folder / "shared" / "over").touch()
        else:
            http.post("/v1/stop")
        got += samples
    times = [sample["t"] for sample in got]
    assert times == sorted(set(times))
    running.wait()
    stored = (running.folder / "samples.jsonl").read_text().splitlines()
    assert [json.loads(line)["t"] for line in stored] == times
