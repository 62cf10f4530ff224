"""Runs as Pods of a real cluster: pods with parts, take-over, removal, and what is not ours."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import tarfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from emulator.engines.base import Exited, Inbox
from emulator.engines.docker import DockerEngine
from emulator.errors import EngineError, NameTaken
from emulator.planning.plan import Plan
from emulator.planning.planner import make_plan
from emulator.planning.requested import RunOptions
from emulator.plugins.kubernetes import names
from emulator.plugins.kubernetes.engine import KubernetesEngine
from emulator.plugins.kubernetes.exec import run
from emulator.record.events import EngineNote, Entry, StopSignal, TaskExit
from emulator.record.reader import Record
from emulator.results import Result, RunCallbacks
from emulator.scenario.loader import parse
from emulator.session.run import up
from tests.asked import asked
from tests.clusters import ForTest
from tests.conftest import Emulate, own, wait_for_line
from tests.engines.pods import POD, Noting, check, history
from tests.plugins.kubernetes.relay import opened

pytestmark = pytest.mark.kubernetes

PATIENT = ", start_timeout: 5m"


@dataclass
class Site(Noting):
    """Runs scenarios on a tiny image in the test's namespace, and notes what they print."""

    folder: Path
    image: str
    cluster: ForTest
    printed: list[str] = field(default_factory=list)

    def text(self, extra: str, timeout: str = "3m", settings: str = "") -> str:
        return (
            f"name: pods\nframework: none\nimage: {self.image}\ntimeout: {timeout}\n"
            f"kubernetes: {{namespace: {self.cluster.namespace}{settings or PATIENT}}}\n{extra}"
        )

    def run(
        self, extra: str, timeout: str = "3m", entry: Callable[[Entry], None] = lambda entry: None
    ) -> Result:
        text = self.text(extra, timeout)
        with contextlib.closing(KubernetesEngine()) as engine:
            return up(
                asked(text, self.folder),
                engine,
                RunOptions(out=self.folder / "runs", run_id=own("pods"), reports=False),
                callbacks=RunCallbacks(lines=self.note, entry=entry),
            )

    def objects(self) -> list[str]:
        """Return what is in the namespace, by the official client; Pods with their phase."""
        with self.cluster.core() as core:
            here = self.cluster.namespace
            pods = core.list_namespaced_pod(here).items
            others = [
                *core.list_namespaced_service(here).items,
                *core.list_namespaced_persistent_volume_claim(here).items,
                *core.list_namespaced_config_map(here, label_selector=names.RUN).items,
            ]
        return sorted(one.metadata.name for one in (*pods, *others))


@pytest.fixture
def site(
    tmp_path: Path, tiny_image: str, kubernetes_cluster: ForTest, monkeypatch: pytest.MonkeyPatch
) -> Site:
    monkeypatch.setenv("KUBECONFIG", str(kubernetes_cluster.kubeconfig))
    return Site(tmp_path, tiny_image, kubernetes_cluster)


# --- What a Pod has -----------------------------------------------------------------------------


def test_a_pod_has_its_steps_and_its_files(site: Site) -> None:
    """The same scenario as with Docker, which prints the same."""
    result = site.run(POD)
    check(site, result)
    assert site.objects() == []


def test_a_step_that_fails_is_the_end_of_the_task_and_a_new_pod_tries_again(site: Site) -> None:
    result = site.run(
        "restart: {policy: on-failure, backoff: 10ms}\n"
        "program: {command: [cat, /d/log]}\n"
        "cluster:\n"
        "  worker:\n"
        "    mounts: &same {/d: {scratch: d}}\n"
        "    init:\n"
        "      - {name: once, mounts: *same, command: [sh, -c, 'echo once >> /d/log']}\n"
        "      - name: twice\n"
        "        command: [sh, -c, '[ -e /shared/x ] || { touch /shared/x; exit 7; }']\n"
    )
    assert result.exit_code == 0
    assert [end.exit_code for end in history(result, TaskExit)] == [7, 0]
    assert site.of("worker-0") == ["once"]  # of its new, empty disk


def test_a_job_that_is_over_does_not_wait_for_a_step(site: Site) -> None:
    result = site.run(
        "program: {command: ['true']}\n"
        "cluster: {worker: {init: [{name: wait, command: [sleep, '1000']}]}}\n",
        timeout="8s",
    )
    assert result.outcome == "timeout"
    assert history(result, StopSignal)
    (end,) = history(result, TaskExit)
    assert end.told_to_stop
    assert site.objects() == []


@pytest.fixture
def empty_image(docker_engine: DockerEngine) -> Iterator[str]:
    """An image without a shell."""
    content, name = io.BytesIO(), f"emulator-test-empty:{os.getpid()}"
    with tarfile.open(fileobj=content, mode="w") as tar:
        entry = tarfile.TarInfo("data")
        entry.size = 10_000  # the kubelet takes an image without any content for a broken one
        tar.addfile(entry, io.BytesIO(bytes(entry.size)))
    repository, _, tag = name.partition(":")
    docker_engine.api.import_image_from_data(content.getvalue(), repository=repository, tag=tag)
    yield name
    docker_engine.api.remove_image(name, force=True)


def test_a_program_that_can_not_be_unpacked_is_one_sentence(site: Site, empty_image: str) -> None:
    (site.folder / "job.sh").write_text("true\n")
    with pytest.raises(EngineError, match=r"worker-0 can't start: its program .* unpacked") as told:
        site.run(
            "program: {source: job.sh, command: [/job]}\n"
            f"cluster: {{worker: {{image: '{empty_image}'}}}}\n"
        )
    assert '"sh": executable file not found' in told.value.message
    assert "needs a shell" in told.value.hint
    assert site.objects() == []


# --- Starts -------------------------------------------------------------------------------------


Prepared = Callable[..., tuple[KubernetesEngine, Plan, Inbox]]


@pytest.fixture
def prepared(site: Site) -> Iterator[Prepared]:
    """Return what prepares a scenario."""
    made: list[tuple[KubernetesEngine, Plan]] = []

    def prepare(text: str, run_id: str = "") -> tuple[KubernetesEngine, Plan, Inbox]:
        engine, inbox, scenario = KubernetesEngine(), Inbox(), parse(text)
        engine.configure(scenario)
        run_id = run_id or own("starts")
        folder = site.folder / f"{run_id}-{len(made)}"
        folder.mkdir()
        plan = make_plan(scenario, run_id, engine.plan_context(run_id, folder))
        made.append((engine, plan))
        try:
            engine.prepare(plan, folder, inbox)
        except NameTaken:  # what has its name is another run's
            made.pop()
            engine.close()
            raise
        return engine, plan, inbox

    yield prepare
    for engine, plan in made:
        engine.tear_down(plan.run_id)
        engine.close()


NOWHERE = ', node_selector: {"emulator-tests/no": such-node}, shared: none'
"""No node has that label."""
BRIEF = "program: {command: ['true']}\ncluster: {worker: 1}\n"


@pytest.mark.parametrize("how", ["signal", "remove", "tear down"])
def test_a_start_that_waits_for_a_node_can_be_called_off(
    site: Site, prepared: Prepared, how: str
) -> None:
    engine, plan, inbox = prepared(site.text(BRIEF, settings=NOWHERE))
    done = threading.Event()

    def start() -> None:
        engine.start(plan.task("worker-0"))
        done.set()

    threading.Thread(target=start, daemon=True).start()
    engine.pods.wait(
        lambda now: None if (pod := engine.pods.pod_of("worker-0")) and pod.seen["status"] else 60.0
    )
    match how:
        case "signal":
            engine.signal("worker-0", signal.SIGTERM)
        case "remove":
            engine.remove("worker-0")
        case _:
            engine.tear_down(plan.run_id)
    assert done.wait(60)
    ends: list[Exited] = []
    while not ends or not inbox.empty():
        event = inbox.get(timeout=300)
        if isinstance(event, Exited):
            ends.append(event)
        else:
            assert isinstance(event, EngineNote)
    assert [one.task for one in ends] == ["worker-0"]
    assert ends[0].exit_code in (137, 143)


def test_nothing_is_made_once_the_run_is_being_removed(site: Site, prepared: Prepared) -> None:
    engine, plan, _ = prepared(site.text(BRIEF))
    engine.tear_down(plan.run_id)
    with pytest.raises(EngineError, match="worker-0 can't start: its run is being removed"):
        engine.start(plan.task("worker-0"))
    assert site.objects() == []


def test_a_run_of_the_same_id_is_refused_and_left_alone(site: Site, prepared: Prepared) -> None:
    """Perhaps of another user in the same namespace, who chose the same --run-id."""
    text = site.text("program: {command: [sleep, '1000']}\ncluster: {worker: 1}\n")
    first, plan, _ = prepared(text, own("same"))
    first.start(plan.task("worker-0"))
    before = site.objects()
    with pytest.raises(NameTaken, match="already exists") as refused:
        prepared(text, own("same"))
    assert "--run-id" in refused.value.hint
    with contextlib.closing(KubernetesEngine()) as looks:
        assert {one.run_id for one in looks.find(own("same"))} == {own("same")}
    assert site.objects() == before


# --- After a kill -------------------------------------------------------------------------------

SLOW = """\
program:
  command:
    - sh
    - -c
    - >-
      n=0; while [ ! -e /shared/over ]; do n=$((n + 1)); echo line $n; sleep 0.02; done;
      echo last
cluster: {worker: 2}
success: all-workers
"""


@pytest.fixture
def killed(site: Site, emulate: Emulate) -> Path:
    """The folder of a run whose emulator was killed in the middle of its tasks' output."""
    path = site.folder / "scenario.yaml"
    path.write_text(site.text(SLOW))
    run = emulate.start("up", path, "--engine", "kubernetes", "--out", emulate.out, "--plain")
    wait_for_line(run, "worker-0 | line 40", "worker-1 | line 40")
    run.kill()
    run.wait()
    (folder,) = emulate.out.iterdir()
    return folder


def test_a_run_is_taken_over_without_losing_or_repeating_a_line(
    site: Site, emulate: Emulate, killed: Path
) -> None:
    successor = emulate.start("attach", "last", "--out", emulate.out, "--plain")
    wait_for_line(successor, "worker-0 | line 100", "worker-1 | line 100")
    with opened(site.cluster) as cluster:
        pod, touch = names.pod(killed.name, "worker-0"), ["touch", "/shared/over"]
        # The container ends at that, which may cut the connection or leave it silent.
        with contextlib.suppress(EngineError):
            run(cluster, pod, names.MAIN, touch, timeout=30)
    _, said = successor.communicate(timeout=120)
    assert successor.returncode == 0, said
    for task in ("worker-0", "worker-1"):
        lines = (killed / "logs" / f"{task}.log").read_text().splitlines()
        assert lines == [*(f"line {n}" for n in range(1, len(lines))), "last"]
    exits = [one for one in Record(killed).history if isinstance(one, TaskExit)]
    assert [one.exit_code for one in exits] == [0, 0]
    assert site.objects() == []


@pytest.mark.parametrize("command", ["down", "clean", "clean --engine kubernetes"])
def test_what_a_killed_run_has_left_is_listed_and_removed(
    site: Site, emulate: Emulate, killed: Path, command: str
) -> None:
    with site.cluster.core() as core:
        labels = {"emulator.run": "Not a run id!"[:3]}  # with our label, but no run id of ours
        foreign = {"metadata": {"name": "foreign", "labels": labels}, "data": {}}
        core.create_namespaced_config_map(site.cluster.namespace, foreign)
    listed = emulate("ps", "--json", "--out", emulate.out)
    (shown,) = json.loads(listed.stdout)
    assert (shown["run_id"], shown["left"]) == (killed.name, 4)  # two Pods, Service, claim
    arguments = ["down", killed.name] if command == "down" else command.split()
    done = emulate(*arguments, "--out", emulate.out)
    assert done.returncode == 0, done.stderr
    assert site.objects() == ["foreign"]
    assert json.loads(emulate("ps", "--json", "--out", emulate.out).stdout) == []


def test_what_another_machine_has_left_is_removed_where_the_user_says_so(
    site: Site, emulate: Emulate, killed: Path
) -> None:
    there = {"metadata": {"annotations": {names.HOST: "far-away"}}}
    with site.cluster.core() as core:
        here = site.cluster.namespace
        core.patch_namespaced_service(killed.name, here, there)
        core.patch_namespaced_persistent_volume_claim(killed.name, here, there)
        for task in ("worker-0", "worker-1"):
            core.patch_namespaced_pod(names.pod(killed.name, task), here, there)
    (killed / "plan.json").rename(killed / "plan-of-another-machine.json")  # its record is there
    before, arguments = site.objects(), ("clean", "--engine", "kubernetes", "--out", emulate.out)
    done = emulate(*arguments)
    assert "what runs of the host far-away have is left alone" in done.stderr
    assert site.objects() == before
    done = emulate(*arguments, "--host", "far-away")
    assert done.returncode == 0, done.stderr
    assert site.objects() == []
