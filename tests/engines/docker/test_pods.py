"""Init steps, side-cars, files and scratch volumes, in real containers."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator

import pytest

from emulator.engines.docker import DockerEngine
from emulator.record.events import Entry, Sidecar, Step, StopSignal, TaskExit
from emulator.record.reader import Record
from emulator.report.event_text import describe
from emulator.supervisor.cleanup import stop_or_remove
from tests.conftest import Emulate, left
from tests.engines.docker.site import Site
from tests.engines.pods import POD, STEP, check, history

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("docker_engine")]


def test_a_pod_has_its_steps_its_files_and_its_side_cars(site: Site) -> None:
    result = site.run(extra=POD)
    check(site, result)
    assert left("docker", result.folder.name) == []


TWICE = """\
restart: {policy: on-failure, backoff: 10ms}
program: {command: [cat, /d/log]}
cluster:
  worker:
    mounts: &same {/d: {scratch: d}}
    init:
      - {name: once, mounts: *same, command: [sh, -c, "echo once >> /d/log"]}
      - name: twice
        mounts: *same
        command: [sh, -c, "echo twice >> /d/log; [ -e /d/x ] || { touch /d/x; exit 7; }"]
"""


def test_a_step_that_fails_is_the_end_of_the_task_and_is_tried_again(site: Site) -> None:
    result = site.run(extra=TWICE)
    assert result.exit_code == 0
    # The step before it is not repeated, and the scratch volume is the same.
    assert site.of("worker-0") == ["once", "twice", "twice"]
    assert [end.exit_code for end in history(result, TaskExit)] == [7, 0]


PREEMPTED = """\
program:
  command:
    - sh
    - -c
    - >-
      until [ -e /d/side ]; do sleep 0.05; done; cat /d/log;
      [ -e /shared/again ] || { touch /shared/again; sleep 60; }
cluster:
  worker:
    mounts: &same {/d: {scratch: d}}
    init: [{name: step, mounts: *same, command: [sh, -c, "echo here >> /d/log"]}]
    sidecars:
      - {name: side, mounts: *same, command: [sh, -c, "echo begins; touch /d/side; exec sleep 60"]}
faults: [{preempt: worker-0, at: {log: here}, loss: silent, down: 100ms}]
"""


def test_a_replacement_has_an_empty_scratch_and_begins_with_its_steps(site: Site) -> None:
    result = site.run(extra=PREEMPTED)
    assert (result.outcome, result.exit_code) == ("succeeded", 0)
    assert site.of("worker-0") == ["here", "here"]
    assert site.of("worker-0.side") == ["begins", "begins"]
    assert history(result, Sidecar) == []
    assert left("docker", result.folder.name) == []


def test_a_job_that_is_over_does_not_wait_for_a_step(site: Site) -> None:
    init = "[{name: wait, command: [sleep, '60']}]"
    result = site.run("true", f"timeout: 2s\ncluster: {{worker: {{init: {init}}}}}\n")
    assert result.outcome == "timeout"
    assert [stop.signal for stop in history(result, StopSignal)] == ["SIGTERM"]
    (end,) = history(result, TaskExit)
    assert (end.exit_code, end.told_to_stop) == (128 + signal.SIGTERM, True)


FAILING = """\
program: {command: [sh, -c, "until [ -e /go/now ]; do sleep 0.05; done"]}
cluster:
  worker:
    mounts: {/go: GO}
    sidecars:
      - {name: ends, command: [sh, -c, exit 3]}
      - {name: lacks, command: [/no/such/program], entrypoint: none}
      - {name: starts-not, command: ["true"], working_dir: /etc/passwd}
"""


def test_a_side_car_that_fails_does_not_end_its_task(site: Site) -> None:
    (site.folder / "go").mkdir()
    ends = dict[str, Sidecar]()

    def note(entry: Entry) -> None:
        if isinstance(entry, Sidecar):
            ends[entry.name] = entry
            if len(ends) == 3:
                (site.folder / "go" / "now").touch()

    result = site.run(extra=FAILING.replace("GO", str(site.folder / "go")), entry=note)
    assert result.exit_code == 0
    assert (ends["ends"].exit_code, ends["lacks"].exit_code) == (3, 127)
    assert ends["starts-not"].exit_code is None
    assert "not a directory" in ends["starts-not"].reason
    assert describe(ends["ends"]) == "side-car ends of worker-0 ended by itself with exit code 3"
    assert "can't be started, which does not end the task: " in describe(ends["starts-not"])


def test_what_a_killed_run_has_left_of_a_pod_is_removed(emulate: Emulate, site: Site) -> None:
    """Killed at its second step, with a scratch volume and a file in it."""
    run = emulate.start("up", site.path(extra=LEAVING), "--out", emulate.out)
    assert run.stderr is not None
    assert any("[second] here" in line for line in run.stderr)
    run.kill()
    run.wait()
    (folder,) = emulate.out.iterdir()
    kinds = [one.partition(" ")[0] for one in left("docker", folder.name)]
    assert kinds == ["container", "network", "volume", "volume"]
    stop_or_remove(Record(folder))
    assert left("docker", folder.name) == []


LEAVING = """\
program: {command: ["true"]}
cluster:
  worker:
    files: {/d/file: content}
    mounts: &same {/d: {scratch: d}}
    init:
      - {name: first, mounts: *same, command: [touch, /d/x]}
      - {name: second, mounts: *same, command: [sh, -c, "echo here; exec sleep 60"]}
"""


@pytest.fixture
def talking_image(docker_engine: DockerEngine, tiny_image: str) -> Iterator[str]:
    """An image with an entry point and a command of its own."""
    api, repository, tag = docker_engine.api, "emulator-test-entry", str(os.getpid())
    container = api.create_container(tiny_image, ["true"])["Id"]
    changes = ['ENTRYPOINT ["echo", "entry"]', 'CMD ["own"]', "WORKDIR /opt"]
    api.commit(container, repository, tag, changes=changes)
    api.remove_container(container)
    yield f"{repository}:{tag}"
    api.remove_image(f"{repository}:{tag}")


def test_the_image_decides_what_the_scenario_leaves_to_it(site: Site, talking_image: str) -> None:
    site.run(
        extra=f"program: {{command: []}}\nsuccess: auto\ncluster:\n"
        f"  own: {{image: '{talking_image}'}}\n"
        f"  given: {{image: '{talking_image}', command: [given]}}\n"
        f"  bare: {{image: '{talking_image}', command: [sh, -c, pwd], entrypoint: none}}\n"
    )
    assert sorted(site.printed) == ["bare-0: /opt", "given-0: entry given", "own-0: entry own"]


@pytest.mark.parametrize("when", ["step", "program"])
def test_a_pod_is_taken_over(emulate: Emulate, site: Site, when: str) -> None:
    """Killed at an init step, it begins again with the first; else its side-car goes on."""
    go = site.folder / "go"
    go.mkdir()
    wait = "until [ -e /go/now ]; do sleep 0.05; done"
    path = site.path(
        extra=f"""\
program: {{command: [sh, -c, "echo at the program; until [ -e /go/on ]; do sleep 0.05; done"]}}
cluster:
  worker:
    mounts: &same {{/go: {{path: {go}, writable: true}}}}
    init:
      - name: step
        mounts: *same
        command: [sh, -c, 'echo "$0"; {wait if when == "step" else ""}', '{STEP}']
    sidecars:
      - name: side
        mounts: *same
        command: [sh, -c, "echo begins; {wait}; echo goes on; touch /go/on; exec sleep 60"]
"""
    )
    first = emulate.start("up", path, "--out", emulate.out)
    seen = r"worker-0\.side \| begins" if when == "program" else r"\[step\] "
    assert first.stderr is not None
    assert any(re.search(seen, line) for line in first.stderr)
    first.kill()
    first.wait()
    (folder,) = emulate.out.iterdir()
    assert any("worker-0.s" in name for name in left("docker", folder.name))
    (go / "now").touch()
    attached = emulate("attach", "last", "--out", emulate.out)
    assert attached.returncode == 0, attached.stderr
    logs = folder / "logs"
    assert (logs / "worker-0.side.log").read_text() == "begins\ngoes on\n"
    expected = [f"[step] {STEP}"] * (2 if when == "step" else 1) + ["at the program"]
    assert (logs / "worker-0.log").read_text().splitlines() == expected
    # Which were not taken for steps of the training when the log was read again.
    assert not any(isinstance(entry, Step) for entry in Record(folder).history)
    assert left("docker", folder.name) == []
