"""Init steps, files and scratch volumes, in real containers."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator

import pytest

from emulator.engines.docker import DockerEngine
from emulator.record.events import Step, StopSignal, TaskExit
from emulator.record.reader import Record
from emulator.supervisor.cleanup import stop_or_remove
from tests.conftest import Emulate, left
from tests.engines.docker.site import Site
from tests.engines.pods import POD, STEP, check, history

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("docker_engine")]


def test_a_pod_has_its_steps_and_its_files(site: Site) -> None:
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
      cat /d/log;
      [ -e /shared/again ] || { touch /shared/again; sleep 60; }
cluster:
  worker:
    mounts: &same {/d: {scratch: d}}
    init: [{name: step, mounts: *same, command: [sh, -c, "echo here >> /d/log"]}]
faults: [{preempt: worker-0, at: {log: here}, loss: silent, down: 100ms}]
"""


def test_a_replacement_has_an_empty_scratch_and_begins_with_its_steps(site: Site) -> None:
    result = site.run(extra=PREEMPTED)
    assert (result.outcome, result.exit_code) == ("succeeded", 0)
    assert site.of("worker-0") == ["here", "here"]
    assert left("docker", result.folder.name) == []


def test_a_job_that_is_over_does_not_wait_for_a_step(site: Site) -> None:
    init = "[{name: wait, command: [sleep, '60']}]"
    result = site.run("true", f"timeout: 2s\ncluster: {{worker: {{init: {init}}}}}\n")
    assert result.outcome == "timeout"
    assert [stop.signal for stop in history(result, StopSignal)] == ["SIGTERM"]
    (end,) = history(result, TaskExit)
    assert (end.exit_code, end.told_to_stop) == (128 + signal.SIGTERM, True)


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
    """Killed at an init step, it begins again with the first; else its program goes on."""
    go = site.folder / "go"
    go.mkdir()
    wait = "until [ -e /go/now ]; do sleep 0.05; done"
    path = site.path(
        extra=f"""\
program: {{command: [sh, -c, "echo at the program; {wait}"]}}
cluster:
  worker:
    mounts: &same {{/go: {{path: {go}, writable: true}}}}
    init:
      - name: step
        mounts: *same
        command: [sh, -c, 'echo "$0"; {wait if when == "step" else ""}', '{STEP}']
"""
    )
    first = emulate.start("up", path, "--out", emulate.out)
    seen = "at the program" if when == "program" else r"\[step\] "
    assert first.stderr is not None
    assert any(re.search(seen, line) for line in first.stderr)
    first.kill()
    first.wait()
    (folder,) = emulate.out.iterdir()
    own = "worker-0" if when == "program" else "worker-0.step"
    assert any(own in name for name in left("docker", folder.name))
    (go / "now").touch()
    attached = emulate("attach", "last", "--out", emulate.out)
    assert attached.returncode == 0, attached.stderr
    expected = [f"[step] {STEP}"] * (2 if when == "step" else 1) + ["at the program"]
    assert (folder / "logs" / "worker-0.log").read_text().splitlines() == expected
    # Which were not taken for steps of the training when the log was read again.
    assert not any(isinstance(entry, Step) for entry in Record(folder).history)
    assert left("docker", folder.name) == []
