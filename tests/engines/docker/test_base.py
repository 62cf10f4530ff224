"""The base image: found, pulled, or made by scripts/ensure-base where no registry answers."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import pytest
from docker.errors import APIError, ImageNotFound

from emulator.engines.docker import images
from emulator.engines.docker.images import DEFAULT_BASE, BuildOptions, Images
from emulator.errors import ImageError
from emulator.runtime.bundled import ROOT

SCRIPT = ROOT / "scripts" / "ensure-base"
MADE = "emulator-base:bookworm"
NO_REGISTRY = "Get https://registry: dial tcp: no such host"


class Api:
    """An engine that reaches no registry; the file `made` beside it says that it has a base."""

    def __init__(self, folder: Path, *has: str) -> None:
        self._made, self._has = folder / "made", has

    def inspect_image(self, reference: str) -> dict[str, str]:
        if reference not in self._has:
            raise ImageNotFound("no such image")
        return {}

    def images(self, name: str) -> list[dict[str, list[str]]]:
        return [{"RepoTags": [MADE]}] if name == "emulator-base" and self._made.exists() else []

    def pull(self, name: str, **_: Any) -> None:
        raise APIError("no", explanation=NO_REGISTRY)


def base(api: Any, **options: str) -> tuple[str, list[str]]:
    said: list[str] = []
    return Images(api, BuildOptions(**options)).base(said.append), said  # type: ignore[arg-type]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What stands for scripts/ensure-base, as root; it is still to be written."""
    monkeypatch.setattr(images, "ENSURE_BASE", tmp_path / "ensure-base")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return tmp_path / "ensure-base"


def write(program: Path, *lines: str) -> None:
    program.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    program.chmod(0o755)


def test_the_base_is_what_the_engine_has(tmp_path: Path) -> None:
    (tmp_path / "made").touch()
    assert base(Api(tmp_path, DEFAULT_BASE)) == (DEFAULT_BASE, [])
    assert base(Api(tmp_path)) == (MADE, [])
    with pytest.raises(ImageError, match="no image other:1 and can't pull it"):
        base(Api(tmp_path), base="other:1")


def test_where_it_can_not_be_pulled_the_script_of_a_checkout_makes_one(
    tmp_path: Path, script: Path
) -> None:
    write(script, "echo making it", f"touch {tmp_path}/made")
    name, said = base(Api(tmp_path))
    assert name == MADE
    assert said[0] == f"pulling {DEFAULT_BASE}"
    assert said[1].endswith("and can't pull it (no such host). Running scripts/ensure-base.")
    assert said[2:] == ["making it"]


@pytest.mark.parametrize("lines", [None, ["echo no root", "exit 1"]])
def test_else_one_sentence_names_it_and_what_to_do(
    tmp_path: Path, script: Path, lines: list[str] | None
) -> None:
    if lines is not None:
        write(script, *lines)
    with pytest.raises(ImageError, match=f"no image {DEFAULT_BASE} and can't pull it") as refused:
        base(Api(tmp_path))
    assert refused.value.hint.startswith("`scripts/ensure-base` in a clone makes another one")


# --- The script, with programs that only say what they were asked ---------------------------------


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """An engine that has nothing and reaches no registry, and a mirror."""
    folder = tmp_path / "bin"
    folder.mkdir()
    log = f'echo "$(basename "$0") $*" >> {tmp_path}/log'
    imported = f"cat > {tmp_path}/imported; touch {tmp_path}/made"
    write(
        folder / "docker",
        f'case "$1" in images) [ "$3" != emulator-base ] || cat {tmp_path}/made 2>/dev/null;;',
        f"pull) exit 1;; import) {log}; {imported};; esac; exit 0",
    )
    write(folder / "sudo", 'exec "$@"')
    # The folder of the system is the fifth of its words.
    write(folder / "debootstrap", log, 'mkdir -p "$5/proc/1" "$5/usr"; touch "$5/usr/python3"')
    return folder


def ensured(programs: Path) -> subprocess.CompletedProcess[str]:
    path = f"{programs}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "XDG_CACHE_HOME": str(programs.parent), "EMULATOR_BASE": ""}
    return subprocess.run([SCRIPT], env=env, capture_output=True, text=True, check=False)


@pytest.fixture
def suite() -> str:
    try:
        return platform.freedesktop_os_release()["VERSION_CODENAME"]
    except (OSError, KeyError):
        pytest.skip("this is no Debian or Ubuntu")


def mirrors(programs: Path, *indexes: str) -> None:
    """Have apt print what it would download."""
    lines = [f"'{index}/binary-amd64/Packages.xz' a_file 0" for index in indexes]
    write(programs / "apt-get", "cat <<END", *lines, "END", "exit 100")


def test_a_base_is_made_of_the_first_source_of_this_release(programs: Path, suite: str) -> None:
    mirrors(  # apt prints the first one last
        programs,
        f"http://second/debian/dists/{suite}/main",
        f"http://first/debian/dists/{suite}/main",
        f"http://extra/debian/dists/{suite}/contrib",
        f"http://security/debian/dists/{suite}-security/main",
    )
    done = ensured(programs)
    assert done.returncode == 0, done.stderr
    asked, imported = (programs.parent / "log").read_text().splitlines()
    assert asked.startswith("debootstrap --variant=minbase --components=main")
    assert "--include=python3,python3-venv,ca-certificates" in asked
    assert asked.endswith("/root http://first/debian")
    assert imported.endswith(f"- emulator-base:{suite}")
    packed = subprocess.run(
        ["tar", "-t"], input=(programs.parent / "imported").read_bytes(), capture_output=True
    ).stdout.decode()
    assert {"./usr/python3", "./proc/"} <= set(packed.split())
    assert "./proc/1/" not in packed
    (programs.parent / "made").write_text("id")
    again = ensured(programs)
    assert again.stdout == "ensure-base: the engine has emulator-base\n"


def test_without_a_source_it_says_what_to_do(programs: Path, suite: str) -> None:
    mirrors(programs, "http://mirror/debian/dists/old/main")
    done = ensured(programs)
    assert done.returncode == 1
    assert done.stderr.endswith(f"no source of {suite} to make one of: `docker load` it\n")
