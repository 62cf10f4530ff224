"""Where stdout or stderr can't be written: no traceback, and no code with another meaning."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import python

PRINTS = "import sys; print('result'); print('note', file=sys.stderr)"
REFUSES = "from emulator.errors import UsageError; raise UsageError('No.')"
BREAKS = "raise KeyError('x')"
FULL = "emulate: Can't write to stdout: No space left on device.\n"
USED_UP = "The memory of this machine, or what this process may have of it, is used up."
VANISHES = "import os; os.mkdir('a'); os.chdir('a'); os.rmdir('../a'); os.getcwd()"
THERE = "import os; os.mkdir('a'); os.rmdir('a/b')"


def command(
    tmp_path: Path, code: str, redirection: str = "", **env: str
) -> subprocess.CompletedProcess[str]:
    """Run `emulate` with this in the place of its commands, redirected by a shell."""
    text = (
        "import sys, types\n"
        f"def app():\n exec({code!r})\n"
        "sys.modules['emulator.cli'] = types.SimpleNamespace(app=app)\n"
        "from emulator.__main__ import main\n"
        "main()"
    )
    return subprocess.run(
        ["sh", "-c", f'exec "$0" -c "$1" {redirection}', sys.executable, text],
        cwd=tmp_path,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), **env},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("code", "redirection", "ends"),
    [
        (PRINTS, "", (0, "result\n", "note\n")),
        (PRINTS, ">&-", (4, "", "note\nemulate: Can't write to stdout: Bad file descriptor.\n")),
        (PRINTS, "> /dev/full", (4, "", f"note\n{FULL}")),
        (PRINTS, "2>&-", (0, "result\n", "")),
        (PRINTS, "2> /dev/full", (0, "result\n", "")),
        (PRINTS, "<&- >&- 2>&-", (4, "", "")),
        (f"{PRINTS}; sys.exit(1)", "> /dev/full", (1, "", f"note\n{FULL}")),
        (REFUSES, "", (2, "", "emulate: No.\n")),
        (REFUSES, ">&-", (2, "", "emulate: No.\n")),
        (REFUSES, "2>&-", (2, "", "")),
        (REFUSES, "2> /dev/full", (2, "", "")),
    ],
)
def test_what_can_not_be_written(
    tmp_path: Path, code: str, redirection: str, ends: tuple[int, str, str]
) -> None:
    done = command(tmp_path, code, redirection)
    assert (done.returncode, done.stdout, done.stderr) == ends


def test_no_file_gets_the_number_of_a_closed_stream(tmp_path: Path) -> None:
    code = "file = open('file', 'w'); print('result'); assert file.fileno() > 2"
    assert command(tmp_path, code, ">&-").returncode == 4
    assert (tmp_path / "file").read_text() == ""


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (BREAKS, "This is a defect of emulate: KeyError: 'x'."),
        ("raise MemoryError", USED_UP),
        (THERE, "The system has refused something: a/b: No such file or directory."),
    ],
)
def test_an_error_that_nobody_foresaw_is_a_sentence(tmp_path: Path, code: str, says: str) -> None:
    done = command(tmp_path, code)
    kept = tmp_path / "cache" / "emulator" / "traceback.txt"
    sentence = f"emulate: {says} The traceback is in {kept}; a report of the defect needs it.\n"
    assert (done.returncode, done.stdout, done.stderr) == (4, "", sentence)
    assert kept.stat().st_mode & 0o777 == 0o600
    assert kept.read_text().startswith("Traceback")
    assert [path.name for path in kept.parent.iterdir()] == [kept.name]


def test_its_traceback_can_be_shown(tmp_path: Path) -> None:
    (tmp_path / "cache").touch()
    done = command(tmp_path, BREAKS)
    assert "EMULATOR_TRACEBACK=1 shows the traceback." in done.stderr
    assert "Traceback" not in done.stderr
    assert "\nKeyError: 'x'\nemulate: " in command(tmp_path, BREAKS, EMULATOR_TRACEBACK="1").stderr


def test_a_deleted_working_directory_is_a_mistake_of_the_caller(tmp_path: Path) -> None:
    done = command(tmp_path, VANISHES)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "emulate: The working directory was deleted. `cd` to one that exists.\n"


def test_a_thread_that_fails_shows_no_traceback(tmp_path: Path) -> None:
    code = f"import threading\ndef f():\n {BREAKS}\nthreading.Thread(target=f).start()"
    done = command(tmp_path, code)
    assert done.returncode == 0
    says = r"emulate: This is a defect of emulate: KeyError: 'x'\. The traceback is in .*\n"
    assert re.fullmatch(says, done.stderr)


def test_lines_are_there_at_once_where_python_is_not_to_buffer() -> None:
    code = (
        "import sys; from emulator.runtime import streams; streams.set_up();"
        "print('out'); print('err', file=sys.stderr); sys.stdin.read()"
    )
    pipe, unbuffered = subprocess.PIPE, {**os.environ, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-c", code]
    with subprocess.Popen(
        command, env=unbuffered, stdin=pipe, stdout=pipe, stderr=pipe, text=True
    ) as started:
        assert started.stdin is not None
        assert started.stdout is not None
        assert started.stderr is not None
        # It ends when its input does: a line that was kept back would never come.
        assert (started.stdout.readline(), started.stderr.readline()) == ("out\n", "err\n")
        started.stdin.close()


def test_an_installation_without_its_packages_is_a_sentence(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['typer'] = sys.modules['platformdirs'] = None;"
        "from emulator.__main__ import main; main()"
    )
    (sentence,) = python(program, cwd=tmp_path).ended(4).stderr.splitlines()
    assert "typer" in sentence
    assert sentence.endswith("EMULATOR_TRACEBACK=1 shows the traceback.")
