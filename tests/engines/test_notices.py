"""What programs make of a notice, on real engines: the best one, and three that fail."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from pathlib import Path

import pytest

from emulator.analysis.notices import NoticeResult
from emulator.engines import choose
from emulator.engines.base import Engine
from emulator.engines.docker import DockerEngine
from emulator.engines.process import ProcessEngine
from emulator.planning.requested import RunOptions
from emulator.results import Result
from emulator.session.run import up
from tests.asked import asked

PROGRAM = """\
import json, os, signal, subprocess, sys, time

how, mark = sys.argv[1], os.environ["EMULATOR_SHARED"] + "/ran"


def say(what, **fields):
    print(json.dumps({"emulate": what, **fields}), flush=True)


def save(step, whole=True):
    say("phase", phase="checkpoint", state="begin")
    while not whole:
        signal.pause()
    say("phase", phase="checkpoint", state="end", step=step)


def on_notice(*_):
    print("saving", flush=True)
    save(2, whole=how != "late")
    sys.exit(0)


if os.path.exists(mark):
    say("step", step=3)
    sys.exit(0)
open(mark, "w").close()
signal.signal(signal.SIGTERM, signal.SIG_IGN if how == "deaf" else on_notice)
does = {"best": "cat", "workers": "sleep 1000"}.get(how)
if does:
    command = ["sh", "-c", f"trap '' TERM; echo up; exec {does}"]
    worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    worker.stdout.readline()
save(1)
while True:  # triggers count once all tasks run, which the engine may say later
    say("step", step=1)
    time.sleep(0.1)
"""
SCENARIO = """\
name: notices
framework: none
image: {image}
program: {{command: {command}}}
cluster: {{worker: 1}}
signals: {signals}
faults: [{{preempt: worker-0, at: {{step: 1}}, grace: {grace}, down: 0s}}]
expect: {{saved_within_grace: true, nothing_outlives: true}}
timeout: 4m
"""


def noticed(
    engine: Engine,
    out: Path,
    command: object,
    grace: str,
    image: str = "none",
    signals: str = "main",
) -> tuple[NoticeResult, dict[str, str], Result]:
    """Run a task that is preempted once; return its notice, and the verdicts on it."""
    text = SCENARIO.format(image=image, command=json.dumps(command), grace=grace, signals=signals)
    result = up(asked(text), engine, RunOptions(out=out))
    (notice,) = result.analysis.notices
    return notice, {one.expectation: one.status for one in result.verdicts[2:]}, result


def trained(
    tmp_path: Path, how: str, grace: str = "2m"
) -> tuple[NoticeResult, dict[str, str], Result]:
    command = [sys.executable, "-c", PROGRAM, how]
    return noticed(ProcessEngine(), tmp_path, command, grace, signals="all")


UNSEEN = sys.platform != "linux"
"""Where there are no subreapers, what outlives a main process is unknown."""


def test_the_best_program_saves_ends_and_leaves_nothing(tmp_path: Path) -> None:
    notice, verdicts, result = trained(tmp_path, "best")
    assert (notice.reaction, notice.saved_by) == ("saving", "worker-0")
    assert (notice.exit_code, notice.killed, notice.at_the_kill) == (0, False, [])
    assert notice.reacted_after is not None
    assert notice.saved_after is not None
    assert notice.ended_after is not None
    assert 0 <= notice.reacted_after <= notice.saved_after <= notice.ended_after
    assert notice.left == pytest.approx(120 - notice.saved_after)
    # Its child does not end by the signal.
    assert (len(notice.reached or ()), notice.not_reached) == (2, [])
    outlives = "unknown" if UNSEEN else "ok"
    assert verdicts == {"saved_within_grace": "ok", "nothing_outlives": outlives}
    assert result.summary["notices"][0]["saved_after"] == notice.saved_after


def test_a_program_that_ignores_its_notice_is_killed_and_has_saved_nothing(tmp_path: Path) -> None:
    notice, verdicts, _ = trained(tmp_path, "deaf", "1s")
    assert (notice.reaction, notice.saved_after, notice.left) == ("", None, None)
    assert (notice.exit_code, notice.killed) == (137, True)
    assert len(notice.at_the_kill or ()) == 1
    outlives = "unknown" if UNSEEN else "ok"
    assert verdicts == {"saved_within_grace": "failed", "nothing_outlives": outlives}


def test_a_program_that_saves_too_late_is_told_for_how_long_it_had_been_saving(
    tmp_path: Path,
) -> None:
    notice, verdicts, result = trained(tmp_path, "late", "5s")
    assert (notice.saved_after, notice.killed) == (None, True)
    assert verdicts["saved_within_grace"] == "failed"
    assert "worker-0 saved no checkpoint before its end" in result.verdicts[2].actual
    if notice.saving is not None:  # it had begun by then
        assert "it had been saving for" in result.verdicts[2].actual


@pytest.mark.skipif(UNSEEN, reason="only Linux has subreapers")
def test_a_worker_that_ignores_the_notice_outlives_a_program_that_does_not(tmp_path: Path) -> None:
    notice, verdicts, result = trained(tmp_path, "workers")
    assert verdicts == {"saved_within_grace": "ok", "nothing_outlives": "failed"}
    (worker,) = notice.stragglers
    assert (worker.name, worker.how) == ("sleep", "left")
    assert f"sleep (pid {worker.pid}) of worker-0 ran on for" in result.verdicts[3].actual
    assert (notice.exit_code, notice.killed) == (0, False)
    assert notice.ended_after is not None
    assert result.exit_code == 1


SHELL = """\
[ -e /shared/ran ] && exit 0
touch /shared/ran
trap 'echo saving; echo "$SAVED"; exit 0' TERM
sleep 1000 &
while :; do echo "$STEP"; sleep 0.1; done
"""


@pytest.mark.docker
def test_in_a_container_the_signal_is_for_the_main_process_and_the_kernel_ends_the_others(
    docker_engine: DockerEngine, tiny_image: str, tmp_path: Path
) -> None:
    saved = '{"emulate": "phase", "phase": "checkpoint", "state": "end", "step": 2}'
    step = '{"emulate": "step", "step": 1}'
    command = ["env", f"SAVED={saved}", f"STEP={step}", "sh", "-c", SHELL]
    notice, verdicts, _ = noticed(docker_engine, tmp_path, command, "2m", tiny_image)
    assert (notice.reaction, notice.saved_by) == ("saving", "worker-0")
    assert notice.reached == ["sh"]
    assert "sleep" in (notice.not_reached or ())
    assert (notice.outlived, notice.at_the_kill) == (None, [])
    assert verdicts == {"saved_within_grace": "ok", "nothing_outlives": "unknown"}


ENTRY = """\
[ -e "$EMULATOR_SHARED/ran" ] && exit 0
touch "$EMULATOR_SHARED/ran"
sh -c 'trap "echo $SAVED; exit 0" TERM; while :; do echo "$STEP"; sleep 0.1; done'
echo cleaned up
"""
"""The usual entry point: set up, train, clean up."""


@pytest.mark.parametrize(
    ("signals", "said"),
    [
        ("main", "`sh` below it never got it"),
        ("all", "`sh` below it got the signal too, but no time to save"),
    ],
)
def test_a_shell_that_keeps_the_signal_for_itself_gets_one_verdict(
    either_engine: tuple[str, str], signals: str, said: str, tmp_path: Path
) -> None:
    name, image = either_engine
    step = '{"emulate": "step", "step": 1}'
    command = ["env", "SAVED=saved", f"STEP={step}", "sh", "-c", ENTRY]
    with contextlib.closing(choose(name)) as engine:
        notice, _, result = noticed(engine, tmp_path, command, "2m", image, signals)
    assert (notice.exit_code, notice.killed) == (128 + signal.SIGTERM, False)
    (warning,) = [one for one in result.summary["warnings"] if "SIGTERM" in one]
    assert warning.startswith("worker-0: SIGTERM ended `env ")
    assert said in warning
    assert "cleaned up" not in (result.folder / "logs" / "worker-0.log").read_text()
