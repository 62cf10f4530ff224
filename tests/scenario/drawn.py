"""Scenarios with much of what one can have, as hypothesis draws them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

TEXT = st.text(
    st.sampled_from("ab 01$({})'\"\\:#-é{}%\n\t") | st.characters(categories=["L", "P"]),
    max_size=12,
).filter(lambda text: "${" not in text and "\0" not in text)
REFERENCES = ["--rank=${index}", "${addresses.worker}", "${task}"]
WORDS = TEXT | st.sampled_from([*REFERENCES, "$${HOME}", "$(TF_CONFIG)", "$$", "{{ x }}"])
NAMES = st.sampled_from(["A", "B_1", "PATH2", "LOG"])
ENV = st.dictionaries(NAMES, WORDS | st.integers(0, 9) | st.floats(0, 1), max_size=3)
CACHE = {"volume": "cache"}
MOUNT = st.sampled_from([CACHE, {**CACHE, "writable": False}, {"tmpfs": "64m"}, {"scratch": "s"}])
STEP = st.fixed_dictionaries(
    {"name": st.sampled_from(["fetch", "proxy"])},
    optional={
        "image": st.just("busybox:1"),
        "command": st.lists(TEXT.filter(bool), min_size=1, max_size=2),
        "env": ENV,
        "mounts": st.just({"/s": {"scratch": "s"}}),
    },
)
COMMAND = st.lists(WORDS.filter(bool) | st.integers(0, 99), min_size=1, max_size=3)
CONTAINER: dict[str, Any] = {
    "env": ENV,
    "entrypoint": st.sampled_from(["image", "none"]),
    "working_dir": st.just("/work"),
    "files": st.dictionaries(st.sampled_from(["/etc/a.cfg", "/srv/b"]), TEXT, max_size=2),
}
IMAGES = ["cpu", "busybox", "registry:5000/a/b:1", "a/b@sha256:" + "0" * 64]
ROLE = st.integers(1, 12) | st.fixed_dictionaries(
    {"replicas": st.integers(1, 3)},
    optional={
        **CONTAINER,
        "command": COMMAND,
        "cpus": st.sampled_from([1, 0.5, 2.5]),
        "memory": st.sampled_from(["512m", "1g", 700000000]),
        "gpus": st.integers(0, 2),
        "image": st.sampled_from(IMAGES),
        "mounts": st.dictionaries(st.sampled_from(["/data", "/x/y"]), MOUNT, max_size=2),
        "shm_size": st.just("256m"),
        "processes": st.just(64),
        "ports": st.just([6006]),
        "init": st.lists(STEP, max_size=1),
        "sidecars": st.lists(STEP, max_size=1),
    },
)
RESTART = st.sampled_from(["never", "on-failure", {"policy": "always", "limit": 2, "scope": "job"}])
COMMON: dict[str, Any] = {
    "description": TEXT,
    "image": st.sampled_from(["auto", "cpu", "python:3.12-slim"]),
    "timeout": st.sampled_from(["5m", "1h"]),
    "seed": st.integers(0, 9),
    "log_limit": st.just("5m"),
    "mounts": st.just({"/all": {"volume": "all-data"}}),
    "ulimits": st.just({"nofile": 1024}),
    "faults": st.just([{"preempt": "worker-0", "at": "5s", "grace": "1s", "down": "1s"}]),
    "expect": st.just({"max_restarts": 1}),
    "metrics": st.just({"steps": "auto"}),
    "parametrize": st.just({"seed": [1, 2]}),
    "restart": RESTART,
}


@st.composite
def scenarios(draw: st.DrawFn, framework: str) -> dict[str, Any]:
    """Return the data of a scenario."""
    leader = "chief" if framework == "tensorflow" else "master"
    others = {"ps": ROLE} if framework == "tensorflow" else {}
    cluster = draw(st.fixed_dictionaries({"worker": ROLE}, optional=others))
    if draw(st.booleans()):
        cluster = {leader: 1, **cluster}
    program = {"command": draw(COMMAND), **draw(st.fixed_dictionaries({}, optional=CONTAINER))}
    return {
        "name": "train",
        "framework": framework,
        **draw(st.fixed_dictionaries({}, optional=COMMON)),
        "program": program,
        "cluster": cluster,
    }
