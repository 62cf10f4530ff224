"""A strike by hand that needs the helper image on a run that did not plan any: it is built then.

Each test has an image of its own, from a recipe of its own: the machine's is left alone.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from docker.errors import ImageNotFound

import emulator
from emulator.api.client import Cluster
from emulator.engines.docker import DockerEngine
from emulator.engines.docker.building import one_at_a_time
from emulator.engines.docker.images import BuildOptions, Images
from emulator.engines.kit import recipes
from emulator.engines.kit.recipes import recipe_tag
from emulator.errors import EngineError, UsageError
from emulator.record.events import fields_of
from emulator.record.reader import Record
from emulator.results import Result
from emulator.runtime import bundled
from tests.engines.docker.site import Site

pytestmark = pytest.mark.docker

JOB = r"""
n=0
while [ ! -e /shared/over ]; do
    n=$((n + 1)); echo "{\"emulate\": \"step\", \"step\": $n}"; sleep 0.1
done
"""


@pytest.fixture
def recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, docker_engine: DockerEngine, tiny_image: str
) -> Iterator[Callable[[str], str]]:
    """Write the helper's recipe: a step on top of the machine's own image; return its tag."""
    real = docker_engine.images.ensure("network", lambda line: None)
    root = tmp_path / "root"
    shutil.copytree(bundled.ROOT / "images" / "requirements", root / "images" / "requirements")
    shutil.copytree(bundled.ROOT / "images" / "build", root / "images" / "build")
    monkeypatch.setattr(recipes, "ROOT", root)
    for file in [*bundled.ROOT.glob("Dockerfile.*"), bundled.ROOT / "constraints.txt"]:
        shutil.copy(file, root)
    for file in (bundled.ROOT / "images").glob("Dockerfile.*"):
        shutil.copy(file, root / "images")
    tags = []

    def write(step: str) -> str:
        text = f"ARG BASE\nFROM {real}\n# {uuid.uuid4()}\n{step}\n"
        (root / "images" / "Dockerfile.network").write_text(text)
        tags.append(recipe_tag("network"))
        return tags[-1]

    yield write
    for thread in threading.enumerate():
        if thread.name == "aside":  # a build whose run has ended
            thread.join(120)
    for tag in tags:
        with contextlib.suppress(ImageNotFound):
            docker_engine.api.remove_image(tag)


class Run:
    """A run in this process, on a thread: with the images of this test."""

    def __init__(self, site: Site) -> None:
        engine = DockerEngine()
        engine.images = Images(engine.api, BuildOptions(base=site.image))
        up_now = threading.Event()
        self.result: Result | None = None
        folders: list[Path] = []

        def perform() -> None:
            self.result = site.run(
                JOB,
                "cluster: {worker: 2}\nsuccess: all-workers\n",
                engine=engine,
                planned=lambda plan, folder: folders.append(folder),
                reachable=up_now.set,
            )

        self._thread = threading.Thread(target=perform)
        self._thread.start()
        assert up_now.wait(120)
        self.cluster: Cluster = emulator.connect(folders[0])

    def end(self) -> None:
        """Stop it and wait until all that it made is gone."""
        if self._thread.is_alive():
            with contextlib.suppress(UsageError):
                self.cluster.stop()
            self._thread.join(120)
            assert not self._thread.is_alive()
            self.cluster.close()


@pytest.fixture
def running(site: Site) -> Iterator[Run]:
    run = Run(site)
    yield run
    run.end()


def stages(run: Run, fault: str) -> list[str]:
    return [
        str(fields_of(e)["stage"])
        for e in Record(run.cluster.folder).history
        if e.event == "fault" and fields_of(e)["id"] == fault
    ]


def step_after(run: Run, number: int) -> int:
    """Wait until a task has stepped after an event; return the number of that."""
    return next(e.n for e in run.cluster.history(number) if e.event == "step")


def test_the_image_is_built_then_and_the_strike_is_applied_when_it_is_ready(
    recipe: Callable[[str], str], running: Run
) -> None:
    cluster = running.cluster
    tag = recipe("RUN true")
    with one_at_a_time(tag):  # so that the build takes as long as this test wants
        cut, narrow = (
            *cluster.partition(["worker-0"], ["worker-1"]),
            *cluster.fault(shape="worker-0", bandwidth="10mbit", for_="forever"),
        )
        waits = cluster.wait_for(fault=cut, stage="preparing")
        assert fields_of(waits)["reason"] == f"the image {tag} is built, which takes a while"
        cluster.wait_for(fault=narrow, stage="preparing")
        step_after(running, waits.n)  # the run is not blocked,
        assert [fault["stage"] for fault in cluster.status()["faults"]] == ["preparing"] * 2
        (paused,) = cluster.fault(pause="worker-1", for_="0.1s")
        cluster.wait_for(fault=paused, stage="healed")  # nor are other strikes
        assert stages(running, cut) == ["planned", "preparing"]
    for fault in (cut, narrow):
        cluster.wait_for(fault=fault)
        assert stages(running, fault) == ["planned", "preparing", "triggered", "applied"]
    assert cluster.heal(cut) == [cut]
    cluster.wait_for(fault=cut, stage="healed")
    (again,) = cluster.partition(["worker-0"], ["worker-1"])
    cluster.wait_for(fault=again)
    assert stages(running, again) == ["planned", "triggered", "applied"]


def test_a_build_that_fails_fails_the_strike_and_nothing_else(
    recipe: Callable[[str], str], running: Run
) -> None:
    cluster = running.cluster
    tag = recipe("RUN false")
    (cut,) = cluster.partition(["worker-0"], ["worker-1"])
    with pytest.raises(EngineError, match=f"The fault {cut} failed .*: {tag} does not build"):
        cluster.wait_for(fault=cut)
    failed = cluster.wait_for(fault=cut, stage="failed")
    assert "`emulate build network` shows more" in str(fields_of(failed)["reason"])
    assert "\n" not in str(fields_of(failed)["reason"])
    step_after(running, failed.n)


def test_the_end_of_a_run_does_not_wait_for_the_build(
    recipe: Callable[[str], str], running: Run
) -> None:
    cluster = running.cluster
    tag = recipe("RUN true")
    with one_at_a_time(tag):
        (cut,) = cluster.partition(["worker-0"], ["worker-1"])
        cluster.wait_for(fault=cut, stage="preparing")
        running.end()
        assert running.result is not None
        assert running.result.end.outcome == "interrupted"
        assert stages(running, cut) == ["planned", "preparing", "skipped"]
        (fault,) = running.result.analysis.faults
        why = "the job ended before the engine was ready"
        assert (fault.status, fault.reason) == ("skipped", why)
