"""Fixtures of tests that push and pull: a registry of their own; `make registry` brings it."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from platformdirs import user_cache_path

REQUIRE = "EMULATOR_REQUIRE_REGISTRY"
NO_REGISTRY = "no docker-registry is here; `make registry` brings it"
PROGRAM = user_cache_path("emulator") / "registry" / "docker-registry"
"""Where `make registry` puts it, now: tests that run a pytest of their own have another home."""
ANSWERS_WITHIN = 120.0
"""Seconds."""
LISTENS = re.compile(r"listening on (127\.0\.0\.1:\d+)")
USER, PASSWORD = "somebody", "secret"
LOGIN = f"{USER}:$2b$05$Ae1LLU3yQMPMI.cjoNZ19ukmVlDWlc3kUAQLkYduiYLjBw29Rpr7e\n"
"""As htpasswd writes it."""


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    """An empty registry on the loopback, where engines ask for no TLS: its address."""
    with _running(tmp_path / "registry", login=False) as address:
        yield address


@pytest.fixture
def closed_registry(tmp_path: Path) -> Iterator[str]:
    """A registry that wants the login of USER."""
    with _running(tmp_path / "closed-registry", login=True) as address:
        yield address


@contextlib.contextmanager
def _running(folder: Path, *, login: bool) -> Iterator[str]:
    program = shutil.which("docker-registry") or (str(PROGRAM) if PROGRAM.is_file() else None)
    if program is None:
        if os.environ.get(REQUIRE) == "1":
            pytest.fail(f"{REQUIRE}=1, but: {NO_REGISTRY}")
        pytest.skip(NO_REGISTRY)
    folder.mkdir()
    (folder / "users").write_text(LOGIN)
    realm = {"htpasswd": {"realm": "tests", "path": str(folder / "users")}}
    configuration = {
        "version": "0.1",
        "log": {"accesslog": {"disabled": True}, "level": "info"},
        "storage": {"filesystem": {"rootdirectory": str(folder / "data")}},
        "http": {"addr": "127.0.0.1:0"},
        **({"auth": realm} if login else {}),
    }
    # JSON is YAML, which it reads.
    (folder / "config.yml").write_text(json.dumps(configuration))
    with subprocess.Popen(
        [program, "serve", str(folder / "config.yml")], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        addresses = queue.Queue[str]()
        reader = threading.Thread(target=_read, args=(process.stderr, addresses))
        reader.start()
        try:
            address = addresses.get(timeout=ANSWERS_WITHIN)
            assert address, "the registry has ended"
            yield address
        finally:
            process.kill()
            reader.join()


def _read(lines: IO[str], addresses: queue.Queue[str]) -> None:
    for line in lines:
        if found := LISTENS.search(line):
            addresses.put(found.group(1))
    addresses.put("")
