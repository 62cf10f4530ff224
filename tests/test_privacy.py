"""Other users of the machine: they neither read what a run has, nor hold its lock."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emulator.record.lock import LOCK
from tests.cli.test_interrupts import scenario
from tests.conftest import Emulate, own
from tests.session.conftest import FOREVER


def open_to_others(folder: Path) -> list[str]:
    """Return what any other user can use in a folder, and the folder itself."""
    found = [folder, *folder.rglob("*")]
    return [str(path) for path in found if stat.S_IMODE(path.lstat().st_mode) & 0o077]


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that all users can enter, unlike those of pytest."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_a_run_is_for_its_user_alone(emulate: Emulate, tmp_path: Path, public: Path) -> None:
    """Whatever the umask; and what is around it keeps the mode that it has."""
    emulate.out, emulate.prefix = public, ["sh", "-c", 'umask 022; exec "$@"', "sh"]
    run_id, path = own("private"), scenario(tmp_path, "echo up; " + FOREVER)
    run = [run_id, "--out", str(public)]
    begun = emulate("up", path, "-d", "--engine=process", "--api-port=0", "--run-id", *run)
    assert begun.returncode == 0, begun.stderr
    try:
        assert {"work", "shared"} <= set(os.listdir(public / run_id))
        assert open_to_others(public / run_id / "work") == [
            str(public / run_id / "work" / name) for name in ("worker-0", "worker-1")
        ]
    finally:
        assert emulate("down", *run).returncode == 0
    assert open_to_others(public / run_id) == []
    assert stat.S_IMODE(public.stat().st_mode) == 0o755
    page = tmp_path / "page.html"
    assert emulate("report", *run, "--html", page).returncode == 0
    assert stat.S_IMODE(page.stat().st_mode) == 0o644


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_another_user_can_not_make_a_run_look_live(
    emulate: Emulate, tmp_path: Path, public: Path
) -> None:
    """Also in a folder that its user has made, and let all others enter."""
    run_id = own("held")
    (public / run_id).mkdir()
    run = [run_id, "--out", str(public)]
    emulate("up", scenario(tmp_path), "-q", "--engine=process", "--run-id", *run)
    assert stat.S_IMODE((public / run_id).stat().st_mode) == 0o755
    take = ["flock", "--exclusive", "--nonblock", str(public / run_id / LOCK), "true"]
    nobody: dict[str, Any] = {"user": "nobody", "group": "nogroup", "extra_groups": []}
    done = subprocess.run(take, **nobody, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "Permission denied" in done.stderr
