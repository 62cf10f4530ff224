"""contrib/grafana: Prometheus and Grafana for a run, as far as they can be tried without images."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.conftest import Emulate
from tests.contrib.test_contrib import ROOT, bash, read
from tests.session.conftest import shell

GRAFANA = ROOT / "contrib" / "grafana"


def test_compose_accepts_the_file() -> None:
    program = shutil.which("docker-compose")
    if program is None:
        pytest.skip("docker-compose is not installed here")
    command = [program, "-f", str(GRAFANA / "compose.yaml"), "config"]
    bare = {key: value for key, value in os.environ.items() if key != "EMULATOR_API_TOKEN"}
    subprocess.run(command, env=bare, capture_output=True, check=True)  # as `down` needs it
    chosen = {**bare, "EMULATOR_API_TOKEN": "t", "GRAFANA_PORT": "3333"}
    done = subprocess.run(command, env=chosen, capture_output=True, text=True, check=True)
    services = yaml.safe_load(done.stdout)["services"]
    assert services["prometheus"]["environment"]["EMULATOR_API_PORT"] == "9464"
    assert services["grafana"]["environment"]["GF_SERVER_HTTP_PORT"] == "3333"


def test_prometheus_needs_the_token_of_the_run() -> None:
    (script,) = read(GRAFANA / "compose.yaml")["services"]["prometheus"]["command"]
    check = script.splitlines()[0].replace("$$", "$")
    for token, code in (("", 1), ("t", 0)):
        env = {**os.environ, "EMULATOR_API_TOKEN": token}
        done = subprocess.run(
            ["sh", "-c", check], env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == code
        assert ("use contrib/grafana/watch" in done.stderr) == bool(code)


def test_what_the_containers_mount_is_there_and_fits_together() -> None:
    services = read(GRAFANA / "compose.yaml")["services"]
    mounted = {}
    for service in services.values():
        for volume in service["volumes"]:
            source, target, _ = volume.split(":")
            assert (GRAFANA / source).exists(), source
            mounted[target] = GRAFANA / source
    (job,) = read(GRAFANA / "prometheus.yml")["scrape_configs"]
    (script,) = services["prometheus"]["command"]
    assert f"> {job['authorization']['credentials_file']}\n" in script
    (found,) = job["file_sd_configs"]
    assert f"> {found['files'][0]}\n" in script
    assert "/etc/prometheus/prometheus.yml" in mounted
    (provider,) = read(GRAFANA / "provisioning" / "dashboards" / "emulator.yaml")["providers"]
    dashboards = [p for p in mounted if p.startswith(provider["options"]["path"] + "/")]
    (dashboard,) = (json.loads(mounted[path].read_text()) for path in dashboards)
    assert dashboard["uid"] == "emulator-run"  # `watch` prints its address
    assert "/d/emulator-run" in (GRAFANA / "watch").read_text()


RECORDS = '#!/bin/sh\necho "$@" >> "$CALLS"\nprintf %s "$EMULATOR_API_TOKEN" > "$CALLS.token"\n'


def test_one_command_starts_both_and_runs_the_scenario(emulate: Emulate, tmp_path: Path) -> None:
    """There is no Docker in it: no image can be pulled where tests run."""
    (tmp_path / "bin").mkdir()
    docker = tmp_path / "bin" / "docker"
    docker.write_text(RECORDS)
    docker.chmod(0o755)
    home = Path(emulate.command[-1]).parent
    environment = {
        "PATH": f"{docker.parent}:{home}:{os.environ['PATH']}",
        "CALLS": str(tmp_path / "calls"),
        "EMULATOR_API_PORT": "0",  # any that is free
    }
    (tmp_path / "s.yaml").write_text(json.dumps(shell()))
    options = f"--engine process --out {emulate.out}"
    done = bash(f"{shlex.quote(str(GRAFANA))}/watch s.yaml {options}", tmp_path, **environment)
    assert done.returncode == 0, done.stderr
    assert "http://127.0.0.1:3000/d/emulator-run" in done.stderr
    *_, started = (tmp_path / "calls").read_text().splitlines()
    assert started == f"compose -f {GRAFANA}/compose.yaml up -d"
    assert re.fullmatch("[0-9a-f]{64}", (tmp_path / "calls.token").read_text())
    assert len(list(emulate.out.glob("shell-*/report.html"))) == 1
