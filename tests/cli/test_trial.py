"""`emulate try`: programs of users, with processes; each is preempted for real."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from emulator.faults.preempt import Preempt
from emulator.scenario.loader import load
from emulator.validation.limits import MIB
from tests.conftest import Emulate

TRAIN = """\
import json, os, sys, time
path = sys.argv[1]
os.makedirs(os.path.dirname(path), exist_ok=True)
begin = 0
if os.path.exists(path) and "careless" not in sys.argv:
    with open(path) as file:
        begin = json.load(file)["step"]
for step in range(begin + 1, 61):
    time.sleep(0.05)
    print(f"step {step} loss {1 / step:.3f}", flush=True)
    if step % 10 == 0:
        with open(path + ".tmp", "w") as file:
            json.dump({"step": step}, file)
        os.rename(path + ".tmp", path)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "ckpt").mkdir()
    (tmp_path / "ckpt" / "last.pt").write_text('{"step": 59}')  # of another training of the user's
    (tmp_path / ".gitignore").write_text("# what is made\n/ckpt/\n\nruns\n")
    return tmp_path


def test_a_save_on_its_own_disk_is_lost_and_on_shared_storage_is_not(
    emulate: Emulate, folder: Path
) -> None:
    done = emulate("try", "--", "python", "train.py", "ckpt/last.pt", cwd=folder)
    assert done.returncode == 1, done.stderr
    lost, cost, advice, report, scenario = done.stdout.splitlines()
    assert lost.startswith("Not survived: worker-0 was preempted at step 1")
    assert "it began again, and lost 1" in lost
    assert cost.startswith("It cost 1")
    assert advice.startswith("ckpt/last.pt lay on the disk of the node that was taken away. `--sh")
    assert report.startswith("Report:   file:///")
    assert "emulate up emulate-try.yaml" in scenario
    assert "nothing in it trains with several tasks" in done.stderr
    written = load(folder / "emulate-try.yaml")
    assert written.program.exclude == ["/ckpt/", "runs"]
    mended = emulate("try", "--shared=ckpt", "--", "python", "train.py", "ckpt/last.pt", cwd=folder)
    assert mended.returncode == 0, mended.stderr
    survived, cost, *_, scenario = mended.stdout.splitlines()
    assert survived.startswith("Survived: worker-0 was preempted at step 1")
    assert cost.startswith("It cost ")
    assert scenario == "Scenario: not written: there is another emulate-try.yaml here"
    assert (folder / "ckpt" / "last.pt").read_text() == '{"step": 59}'
    assert load(folder / "emulate-try.yaml") == written


def test_a_program_that_saves_elsewhere_proves_nothing(emulate: Emulate, folder: Path) -> None:
    elsewhere = folder / "elsewhere" / "last.pt"
    done = emulate("try", "--", "python", "train.py", elsewhere, cwd=folder)
    assert done.returncode == 3, done.stderr
    assert done.stdout.startswith("It can't be said whether it survived: worker-0 was ")
    assert "outside its folder (" in done.stdout
    assert "`--shared FOLDER`" in done.stdout


def test_each_of_several_workers_is_preempted(emulate: Emulate, folder: Path) -> None:
    done = emulate(
        *("try", "--workers=2", "--", "python", "train.py", "ckpt/last.pt", "careless"), cwd=folder
    )
    assert done.returncode == 1, done.stderr
    first, second, worst, *_ = done.stdout.splitlines()
    assert first.startswith("worker-1 was preempted at step 1")
    assert second.startswith("worker-0 was preempted at step 1")
    assert worst.startswith("Not survived: worker-")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("print('hi')", "too soon to be preempted"),
        ("input('name? ')", "It asks for input, and a task has no terminal"),
        ("open('data.csv')", "It runs on a copy of its folder, without what .gitignore names."),
        ("raise ValueError('no')", "ValueError: no"),
    ],
)
def test_a_program_that_is_broken_by_itself_is_not_blamed_on_a_fault(
    emulate: Emulate, tmp_path: Path, text: str, says: str
) -> None:
    (tmp_path / "train.py").write_text(text)
    done = emulate("try", "--", "python", "train.py", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert says in done.stdout
    assert not (tmp_path / "emulate-try.yaml").exists()
    assert next(path.name for path in (tmp_path / "runs").iterdir()).endswith("-plain")


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("did {n} of all", 1, "Steps were read from lines such as 'did 49 of all'. If these are"),
        ("on and on", 3, "No step was read of what it prints. Say how it prints one: '--steps="),
    ],
)
def test_steps_are_read_from_what_looks_like_them(
    emulate: Emulate, tmp_path: Path, line: str, code: int, says: str
) -> None:
    text = (
        f"import time\nfor n in range(60):\n    print(f'{line}', flush=True)\n    time.sleep(0.1)\n"
    )
    (tmp_path / "train.py").write_text(text)
    done = emulate("try", "--", "python", "train.py", cwd=tmp_path)
    assert done.returncode == code, done.stderr
    said = re.sub(r"did \d+ of", "did 49 of", " ".join(done.stdout.split()))
    assert says in said
    scenario = yaml.safe_load((tmp_path / "emulate-try.yaml").read_text())
    assert ("metrics" in scenario) is (code == 1)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "There is no command to try."),
        (("--", "python", "nope.py"), "There is no nope.py in "),
        (("--timeout=soon", "--", "python", "train.py"), "--timeout: "),
        (("--fault={kill: worker-0}", "--", "python", "train.py"), "is no fault with its moment."),
        (("--fault={kill: w, at: 1s}", "--", "python", "train.py"), "no task is called 'w'"),
        (("--shared=../x", "--", "python", "train.py"), "is not the name of a folder"),
        (("--source=nope", "--", "python", "train.py"), "nope can't be read: No such file"),
        (("--", "python", "train.py", "big"), "contains more than 200 MiB"),
    ],
)
def test_bad_usage_is_one_sentence_and_leaves_nothing(
    emulate: Emulate, tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    (tmp_path / "train.py").write_text("print('step 1 loss 2')")
    if "big" in arguments:
        with (tmp_path / "data.bin").open("wb") as file:
            file.truncate(300 * MIB)
    done = emulate("try", *arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stdout
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "emulate-try.yaml").exists()


def test_a_platform_takes_the_machine_away_and_what_can_t_be_is_said_first(
    emulate: Emulate, folder: Path
) -> None:
    command = ("--shared=ckpt", "--", "python", "train.py", "ckpt/last.pt")
    done = emulate("try", "--like=ec2-spot", *command, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "like ec2-spot: its times are divided by " in done.stderr
    assert "connections are closed: only Docker" in done.stderr
    (fault,) = load(folder / "emulate-try.yaml").faults
    assert isinstance(fault, Preempt)
    assert (fault.like, fault.loss) == ("ec2-spot", "closed")
    for given, said in (("azure-spot", "Azure's scheduled events"), ("ec2spot", "Did you mean ")):
        done = emulate("try", f"--like={given}", *command, cwd=folder)
        assert (done.returncode, done.stdout) == (2, "")
        assert said in done.stderr
        assert "without a fault" not in done.stderr
