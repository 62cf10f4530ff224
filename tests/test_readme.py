"""README.md, as a newcomer follows it: its blocks run as they stand, in order, in one shell."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from emulator.cli import setup
from emulator.engines.docker import DockerEngine
from tests.shown import missing

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BLOCK = re.compile(
    r"(?:^`(?P<file>[^`\n]+)`:\n\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S
)


@dataclass(frozen=True)
class Block:
    """A listing: commands (`sh`), the output of those before it (`text`), a file, or a drawing."""

    language: str
    text: str
    file: str | None


BLOCKS = [
    Block(found["language"], found["text"], found["file"]) for found in BLOCK.finditer(README)
]


def test_every_block_is_run_compared_or_a_drawing() -> None:
    """A block of another kind would be one that nobody checks."""
    assert {(b.language, b.file is not None) for b in BLOCKS} <= {
        ("sh", False), ("text", False), ("yaml", True), ("python", False), ("", False),
    }  # fmt: skip
    assert all("emulate" not in b.text for b in BLOCKS if b.language == "")


def test_the_first_commands_are_those_of_the_main_job_and_of_the_tests() -> None:
    first = next(b for b in BLOCKS if b.language == "sh")
    made = re.findall(r"(?m)^make \w+", first.text)
    assert made == ["make demo", "make test"]


def test_it_is_short_and_its_picture_and_first_commands_come_first() -> None:
    assert len(README.split()) <= 1000
    first_screen = README.splitlines()[:25]
    assert [line for line in first_screen if line.startswith("!")]
    assert [line for line in first_screen if line.startswith("make demo")]


def test_its_picture_is_1280_wide() -> None:
    (name,) = re.findall(r"!\[[^\]]+\]\((docs/\w+\.png)\)", README)
    header = (ROOT / name).read_bytes()[:24]
    assert header[:4] == b"\x89PNG"
    assert int.from_bytes(header[16:20], "big") == 1280


def test_the_program_and_the_test_that_are_shown_are_those_of_init_and_of_the_suite(
    tmp_path: Path,
) -> None:
    setup.init(tmp_path / "mine")
    for block in (b for b in BLOCKS if b.language == "yaml"):
        command = yaml.safe_load(block.text)["program"]["command"]
        assert (tmp_path / "mine" / command[1]).is_file()
    (shown,) = (b.text for b in BLOCKS if b.language == "python")
    assert shown in (ROOT / "images" / "suite" / "tests" / "test_training.py").read_text()


# --- In a shell -----------------------------------------------------------------------------------


def clone(folder: Path) -> None:
    """Make what a clone is after `make` has installed everything: this checkout and its packages.

    Its .venv is one of its own, so that nothing that runs there can change the one of the tests.
    """
    for path in ROOT.iterdir():
        if not path.name.startswith(".") and path.name not in ("runs", "mine", "suite"):
            (folder / path.name).symlink_to(path)
    own = folder / ".venv"
    venv.EnvBuilder(with_pip=False, symlinks=True).create(own)
    (site,) = own.glob("lib/python*/site-packages")
    paths = dict.fromkeys([str(ROOT), *map(sysconfig.get_path, ("purelib", "platlib"))])
    (site / "checkout.pth").write_text("\n".join(paths))
    for name, module in {"emulate": "emulator.__main__", "pytest": "pytest"}.items():
        _command(own, name, f"from {module} import main; sys.exit(main())")
    _command(own, "pip", "sys.exit('everything is installed')")
    for made in (".installed", ".tensorflow"):
        (own / made).touch()


def _command(environment: Path, name: str, code: str) -> None:
    path = environment / "bin" / name
    path.write_text(f"#!{environment}/bin/python\nimport sys\n{code}\n")
    path.chmod(0o755)


def environment() -> dict[str, str]:
    """Return that of a new shell: of this one, without the tests and their Python."""
    private = ("PYTEST", "EMULATOR", "MAKE", "MFLAGS", "PYTHON", "VIRTUAL_ENV")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(private)}
    own = str(Path(sys.prefix, "bin"))
    kept["PATH"] = ":".join(p for p in kept["PATH"].split(":") if p.rstrip("/") != own)
    return kept


def script(folder: Path) -> Iterator[str]:
    """Yield the commands of all blocks, for one shell, each after a line with its number."""
    for number, block in enumerate(BLOCKS):
        if block.language == "sh":
            # The suite would run itself.
            text = re.sub(r"(?m)^make test\b", "make --dry-run test >suite.txt", block.text)
            yield f"echo '== block {number}'\n{text}"
        elif block.file:
            yield f"cat > {block.file} <<'END'\n{block.text}END\n"


@pytest.mark.docker  # without a core of its own: its pytest asks for what it takes
@pytest.mark.timeout(1800)
def test_a_newcomer_meets_no_error(docker_engine: DockerEngine, tmp_path: Path) -> None:
    clone(tmp_path)
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-e", "-c", "".join(script(tmp_path))],
        cwd=tmp_path,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    printed = {
        int(part.partition("\n")[0]): part.splitlines()[1:]
        for part in done.stdout.split("== block ")[1:]
    }
    last = -1
    for number, block in enumerate(BLOCKS):
        last = number if block.language == "sh" else last
        if block.language == "text":
            assert missing(block.text.splitlines(), printed[last]) == []
    assert "5 passed" in done.stdout  # of the suite
    assert "tests.gate" in (tmp_path / "suite.txt").read_text()
    runs = [folder.name for folder in (tmp_path / "runs").iterdir()]
    assert len(runs) >= 4
    assert [run for run in runs if docker_engine.find(run)] == []
