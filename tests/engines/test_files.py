"""Programs that have the files of tasks, or those that all tasks share: the capability `files`."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from emulator.engines.base import Engine, Looking, Reading, Watched
from emulator.engines.capabilities import capable
from emulator.engines.docker import DockerEngine
from emulator.engines.process import ProcessEngine
from emulator.errors import EngineError, NotRunning
from emulator.faults import saved_files
from emulator.faults.checkpoint import FileAccess
from emulator.runtime.clock import RealClock
from emulator.supervisor.witness import watch
from tests.engines.stage import Stage, shells, staged

ENGINES: Mapping[str, Callable[[], Engine]] = {"docker": DockerEngine, "process": ProcessEngine}
SAVES = """
mkdir -p $EMULATOR_SHARED/run
mkdir -m 700 $EMULATOR_SHARED/private
printf 12345678 > $EMULATOR_SHARED/run/model-1.pt
printf abcdef > own-1.pt
exec 9>> $EMULATOR_SHARED/run/model-1.pt
trap 'exec 9>&-; echo closed' USR1
echo saved
while :; do sleep 0.05; done
"""


@pytest.fixture(params=["process", pytest.param("docker", marks=pytest.mark.docker)])
def saving(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    """Yield a stage with a task that has saved a checkpoint, and has it open still."""
    image = "none"
    if request.param == "docker":
        request.getfixturevalue("docker_engine")  # or skip
        image = "cpu"
    engine = ENGINES[request.param]()
    scenario = shells({"worker": SAVES}, image)
    if image != "none":
        engine.ensure_images(scenario, lambda line: None)
    with staged(engine, scenario, tmp_path, RealClock()) as stage:
        stage.start(until="saved")
        yield stage


def ask(stage: Stage, where: str, how: str, of: str = "latest", **more: Any) -> dict[str, Any]:
    program = Path(saved_files.__file__).read_text()
    request = {"how": how, "of": of, **more}
    done = capable(stage.engine, FileAccess).run_at_files(where, program, request)
    return dict(json.loads(done))


def test_the_shared_files_are_changed_once_no_task_has_them_open(saving: Stage) -> None:
    impatient = Path(saved_files.__file__).read_text().replace("PATIENCE = 30.0", "PATIENCE = 0.2")
    files, request = capable(saving.engine, FileAccess), {"how": "torn", "of": "latest"}
    assert (
        "was open all the time"
        in json.loads(files.run_at_files("shared", impatient, request))["error"]
    )
    saving.engine.signal("worker-0", 10)
    saving.until_line("worker-0", "closed")
    done = ask(saving, "shared", "torn")
    assert (done["path"], done["before"], done["after"]) == ("run/model-1.pt", 8, 4)
    saving.engine.remove("worker-0")
    assert ask(saving, "shared", "missing", "/run/*.pt")["before"] == 4  # no task runs


def test_the_files_of_a_task_are_changed_while_it_runs(saving: Stage) -> None:
    done = ask(saving, "worker-0", "bitflip")
    assert (done["path"], done["byte"]) == ("own-1.pt", 3)
    with pytest.raises(NotRunning):
        ask(saving, "worker-9", "torn")
    saving.engine.signal("worker-0", 9)
    saving.until_exit()
    with pytest.raises(NotRunning):
        ask(saving, "worker-0", "torn")


@pytest.mark.parametrize("where", ["shared", "worker-0"])
def test_a_program_tells_what_it_will_change_and_does_when_it_is_answered(
    saving: Stage, where: str
) -> None:
    saving.engine.signal("worker-0", 10)
    saving.until_line("worker-0", "closed")
    program, files = Path(saved_files.__file__).read_text(), capable(saving.engine, FileAccess)
    request = {"how": "torn", "of": "latest", "waits": True}
    talk = files.talk_at_files(where, program, request, "")
    plan = json.loads(next(talk))["plan"]
    talk.close()  # as with who has asked: nothing is changed
    talk = files.talk_at_files(where, program, request, "")
    assert json.loads(next(talk)) == {"plan": plan}
    done = json.loads(talk.send("go"))
    assert (done["before"], done["after"]) == (plan["done"]["before"], plan["done"]["after"])
    with pytest.raises(StopIteration):
        next(talk)
    talk = files.talk_at_files(where, program, {**request, "again": True}, json.dumps(plan))
    assert json.loads(next(talk)) == {"plan": plan}
    assert json.loads(talk.send("go"))["at"] == pytest.approx(done["at"], abs=1)
    talk.close()
    assert ask(saving, where, "torn")["before"] == done["after"]


def test_what_came_with_the_program_is_no_checkpoint(saving: Stage) -> None:
    engine = saving.engine
    own = ask(saving, "worker-0", "bitflip")  # the newest, or else the older one would be meant
    since = {"since": own["written"] + 1}
    if engine.name == "process":  # another knows when it has made the disk
        told = ask(saving, "worker-0", "torn", **since)["error"]
        assert "older than the run, and not saved by it: own-1.pt" in told


@pytest.mark.parametrize(
    "saving", [pytest.param("docker", marks=pytest.mark.docker)], indirect=True
)
def test_what_came_with_the_program_is_the_same_when_something_was_saved(saving: Stage) -> None:
    engine = saving.engine
    assert isinstance(engine, DockerEngine)
    files = capable(engine, FileAccess)
    tells = "import json, sys; print(json.loads(sys.argv[1])['since'])"
    makes = "import tempfile; tempfile.mkstemp(dir='/shared')"
    began = float(files.run_at_files("shared", tells, {}))

    def changed() -> str:
        """When anything was last made in the volume, which Docker calls `CreatedAt`."""
        return str(engine.api.inspect_volume(saving.plan.resources)["CreatedAt"])

    first = changed()
    while changed() == first:
        files.run_at_files("shared", makes, {})
    assert float(files.run_at_files("shared", tells, {})) == began


def test_what_a_task_has_saved_is_seen_when_it_has_ended(saving: Stage) -> None:
    engine = saving.engine
    assert isinstance(engine, Looking)
    saving.engine.signal("worker-0", 9)
    saving.until_exit()
    (shared,) = engine.look("shared", 0.0)["saved"]
    assert (shared["path"], shared["format"], shared["bytes"]) == ("run/model-1.pt", "torch", 8)
    (own,) = engine.look("worker-0", shared["wall"] - 60)["saved"]
    assert (Path(own["path"]).name, own["bytes"]) == ("own-1.pt", 6)
    assert abs(own["wall"] - shared["wall"]) < 60
    after = own["wall"] + 60  # what is older came with the program
    assert engine.look("worker-0", after) == {"saved": [], "others": []}
    assert engine.look("shared", after) == {"saved": [], "others": []}
    with pytest.raises(EngineError):
        engine.look("worker-9", 0.0)


def test_what_tasks_have_left_is_read_with_their_packages(saving: Stage) -> None:
    engine = saving.engine
    assert isinstance(engine, Looking)
    saving.engine.signal("worker-0", 9)
    saving.until_exit()
    (shared,) = engine.look("shared", 0.0)["saved"]
    assert isinstance(engine, Reading)
    program = (
        "import json, pathlib, sys, numpy; asked = json.loads(sys.argv[1]); "
        "print(*(one.read_text() for one in pathlib.Path(asked['folder']).rglob('*.pt')), "
        "asked['mine'])"
    )
    asked = {"mine": 7, "since": shared["wall"] - 60}
    assert engine.read_files("shared", program, asked) == "12345678 7\n"
    assert engine.read_files("worker-0", program, asked) == "abcdef 7\n"
    with pytest.raises(EngineError, match="Reading files failed: one two"):
        engine.read_files("shared", "import sys; sys.exit('one two')", asked)


def test_what_becomes_of_files_is_seen_from_outside(saving: Stage) -> None:
    engine, told = saving.engine, queue.SimpleQueue[dict[str, Any]]()
    assert isinstance(engine, Watched)
    program = Path(watch.__file__).read_text("utf-8")
    blind: list[tuple[str, str]] = []
    opened = queue.SimpleQueue[Callable[[], object]]()
    witness = threading.Thread(
        target=engine.watch_files,
        args=(program, 0.0, lambda line: told.put(json.loads(line)), opened.put),
    )
    witness.start()

    def until(saw: str, path: str = "") -> dict[str, Any]:
        while True:
            one = told.get(timeout=60)
            if one["saw"] == "blind":
                blind.append((one["path"], one["why"]))
            if (one["saw"], one.get("path", "")) == (saw, path):
                return one

    assert until("written", "run/model-1.pt")["found"]
    until("watching")
    if engine.name == "docker":  # there it is a user without rights
        assert blind == [("private", "it may not be read")]
    saving.engine.signal("worker-0", 10)  # it closes the file
    saving.until_line("worker-0", "closed")
    assert ask(saving, "shared", "torn")["path"] == "run/model-1.pt"
    assert until("written", "run/model-1.pt")["bytes"] == 4
    ask(saving, "shared", "missing", "/run/*.pt")
    until("removed", "run/model-1.pt")
    opened.get(timeout=60)()
    witness.join(timeout=60)
    assert not witness.is_alive()


def test_a_program_that_fails_says_why(saving: Stage) -> None:
    files = capable(saving.engine, FileAccess)
    program = "import sys; sys.exit('one two')"
    with pytest.raises(EngineError, match="Changing files failed: one two"):
        files.run_at_files("shared", program, {})
    for where in ("shared", "worker-0"):
        with pytest.raises(EngineError, match="Changing files failed: one two"):
            next(files.talk_at_files(where, program, {}, ""))
