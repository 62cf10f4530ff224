"""An exported Compose file runs with docker-compose."""

from __future__ import annotations

import shutil
import subprocess
import uuid
from pathlib import Path

import pytest

from tests.manifests.out.exporting import exported, given
from tests.manifests.out.test_compose import SAY, SCENARIO


@pytest.mark.docker
@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="docker-compose is missing")
def test_docker_compose_runs_it(tmp_path: Path, tiny_image: str) -> None:
    (tmp_path / "say.sh").write_text(SAY)
    written = exported(given(SCENARIO, tmp_path), "compose", tmp_path, {"tiny": tiny_image})
    (tmp_path / "compose.yaml").write_text(written.text)
    project = f"emulator-test-{uuid.uuid4().hex[:8]}"
    command = ["docker-compose", "-p", project, "-f", "compose.yaml", "--no-ansi"]

    def run(*words: str) -> str:
        done = subprocess.run(
            [*command, *words], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    try:
        run("up")
        lines = {line.partition("| ")[2] for line in run("logs", "--no-color").splitlines()}
    finally:
        run("down", "--volumes", "--timeout", "1")
    all_of_them = "worker-0:2222,worker-1:2222"
    for index in range(2):
        assert (
            f"worker-{index} | worker-1:2222 | it costs 5$ $HOME | {all_of_them} | $$5 {index} | "
            f"done | found | worker-{index} | tmpfs" in lines
        )
