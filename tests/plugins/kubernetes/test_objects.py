"""The objects of a run on a real cluster: it drops none of their fields, and they do their work."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from emulator.errors import EngineError
from emulator.planning.context import PlanContext
from emulator.planning.plan import Plan
from emulator.planning.planner import make_plan
from emulator.plugins.kubernetes import names, removal
from emulator.plugins.kubernetes.archives import archives
from emulator.plugins.kubernetes.connection import ApiServer
from emulator.plugins.kubernetes.pod_objects import all_requests, unpack_script
from emulator.plugins.kubernetes.section import options_of
from emulator.plugins.kubernetes.shared import Shared, cleaner, decide
from emulator.scenario.loader import parse
from emulator.validation.run_id import is_run_id
from tests.clusters import ForTest, changes

Object = dict[str, Any]
PLURAL = {
    "Service": "services",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "ConfigMap": "configmaps",
    "Pod": "pods",
}
RUN = "objects-1"


def a_plan(text: str, folder: Path, image: str, run: str = RUN) -> Plan:
    site = PlanContext(
        "kubernetes",
        lambda name: (names.address(run, name), 2222),
        lambda _: image,
        lambda: (),
        "/shared",
    )
    return make_plan(parse(f"name: objects\n{text}", folder=folder), run, site)


def objects(plan: Plan, cluster: ApiServer, shared: Shared | None = None) -> list[Object]:
    options = options_of(plan.scenario)
    nodes = cluster.get("/api/v1/nodes")["items"]
    classes = cluster.get("/apis/storage.k8s.io/v1/storageclasses")["items"]
    common = names.common(plan, Path("/runs/x"), cluster.namespace)
    found = shared or decide(options, nodes, classes)
    return all_requests(plan, common, options, found, archives(plan))


def create(cluster: ApiServer, objects: Sequence[Object], **query: object) -> list[Object]:
    return [cluster.post(cluster.namespaced(PLURAL[one["kind"]]), one, **query) for one in objects]


def differences(asked: Any, got: Any, path: str = "") -> Iterator[str]:
    """Yield what of a request the server has dropped or changed; what it has added is its own."""
    if isinstance(asked, dict):
        for key, value in asked.items():
            if key not in got:
                yield f"{path}/{key} is gone"
            else:
                yield from differences(value, got[key], f"{path}/{key}")
    elif isinstance(asked, list):
        for number, value in enumerate(asked):
            yield from differences(value, got[number], f"{path}/{number}")
    elif asked != got:
        yield f"{path} is {got}, not {asked}"


def until_ended(kubernetes_cluster: ForTest, names_of_pods: Sequence[str]) -> dict[str, Any]:
    """Return the Pods when their programs have ended."""
    ended: dict[str, Any] = {}
    with kubernetes_cluster.core() as core:
        for change in changes(core.list_namespaced_pod, kubernetes_cluster.namespace):
            pod = change["object"]
            states = [
                one.state for one in pod.status.container_statuses or () if one.name == "main"
            ]
            if pod.status.phase in ("Succeeded", "Failed") or any(one.terminated for one in states):
                ended[pod.metadata.name] = pod
            if ended.keys() >= set(names_of_pods):
                return ended
    raise AssertionError(f"ended: {sorted(ended)}")


def output(kubernetes_cluster: ForTest, pod: str, container: str = "main") -> str:
    with kubernetes_cluster.core() as core:
        response = core.read_namespaced_pod_log(
            pod, kubernetes_cluster.namespace, container=container, _preload_content=False
        )
        text: str = response.data.decode()
        return text


EVERYTHING = """
program: {command: [sh, -c, "true"], source: .}
cluster:
  worker:
    replicas: 2
    cpus: 0.1
    memory: 64m
    shm_size: 16m
    working_dir: /opt/app
    mounts: {/cache: {scratch: cache}, /fast: {tmpfs: 8m}}
    files: {/etc/app.json: "{}"}
    init:
      - {name: fetch, command: [sh], mounts: {/to: {scratch: cache, writable: false}}}
      - {name: check, command: [sh], working_dir: /tmp}
helpers: {web: {command: [sh]}}
kubernetes:
  image_pull_policy: Never
  image_pull_secret: login
  node_selector: {pool: spot}
  tolerations: [{key: spot, value: "yes", effect: NoExecute, toleration_seconds: 5}, {}]
  run_as: 1000
"""


@pytest.mark.kubernetes
@pytest.mark.parametrize(
    "shared",
    [
        Shared("claim", "ReadWriteMany", "fast"),
        Shared("host-path", node="n1"),
        Shared("none"),
    ],
    ids=lambda shared: shared.kind,
)
def test_the_server_takes_every_field(shared: Shared, cluster: ApiServer, tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text("")
    asked = objects(a_plan(EVERYTHING, tmp_path, "img:1"), cluster, shared)
    got = create(cluster, asked, dryRun="All")
    assert [list(differences(one, other)) for one, other in zip(asked, got, strict=True)] == [
        [] for _ in asked
    ]


@pytest.mark.kubernetes
def test_the_server_takes_the_pod_that_removes_a_folder(cluster: ApiServer) -> None:
    labels = {names.RUN: RUN}
    notes = {names.HOST_PATH: "true", names.NODE: "n1", names.IMAGE: "img:1", names.SECRET: "s"}
    metadata = {"namespace": cluster.namespace, "labels": labels, "annotations": notes}
    asked = cleaner({"metadata": metadata})
    assert asked is not None
    (got,) = create(cluster, [asked], dryRun="All")
    assert list(differences(asked, got)) == []


PROGRAM = """
echo "words: $*"
echo "variable: $TEXT"
echo "place: $(hostname) $(pwd)"
echo "files: $(cat lib/a.txt) $(cat /etc/app.json) $(cat conf.txt) $(cat /cache/fetched)"
echo "size: $(wc -c < big.bin)"
[ -e sources.list ] && echo "of the image: sources.list"
touch here /cache/here "/shared/$(hostname)" && echo "may write"
until getent hosts worker-0 && getent hosts worker-1 && getent hosts "$OTHER" &&
  [ -e /shared/worker-0 ] && [ -e /shared/worker-1 ]; do sleep 0.2; done > /dev/null
echo "shared: $(echo /shared/*)"
grep -E "^(CapBnd|NoNewPrivs|Seccomp):" /proc/self/status
echo "process 1: $(cat /proc/1/comm)"
"""
SCENARIO = """
program: {{command: [sh, ./run.sh, "$(date)", "a$$b", $HOME], source: app, entrypoint: none}}
cluster:
  worker:
    replicas: 2
    working_dir: /etc/apt
    env: {{TEXT: "$(TEXT) $$ $X", OTHER: "${{host.worker-1}}"}}
    mounts: {{/cache: {{scratch: cache}}}}
    files: {{/etc/app.json: "[1]", /etc/apt/conf.txt: "2"}}
    init:
      - name: main
        command: [sh, -c, "cat /list > /to/fetched"]
        entrypoint: none
        mounts: {{/to: {{scratch: cache}}}}
        files: {{/list: listed}}
kubernetes: {{{options}}}
"""
PRINTED = """\
words: $(date) a$$b $HOME
variable: $(TEXT) $$ $X
place: {task} /etc/apt
files: 0 [1] 2 listed
size: 2000000
of the image: sources.list
may write
shared: /shared/worker-0 /shared/worker-1
CapBnd:\t0000000000000000
NoNewPrivs:\t1
Seccomp:\t2
process 1: {process}
"""


def a_program(folder: Path) -> None:
    (folder / "app" / "lib").mkdir(parents=True)
    (folder / "app" / "run.sh").write_text(PROGRAM)
    (folder / "app" / "lib" / "a.txt").write_text("0")
    (folder / "app" / "big.bin").write_bytes(os.urandom(2_000_000))  # more than one ConfigMap takes


@pytest.mark.kubernetes
@pytest.mark.parametrize(
    ("options", "process"),
    [("", "pause"), ("init: false, shared: host-path, run_as: 1000", "sh")],
    ids=["ordinary", "another user on a node's folder"],
)
def test_the_pods_do_their_work(
    options: str,
    process: str,
    kubernetes_cluster: ForTest,
    cluster: ApiServer,
    tiny_image: str,
    tmp_path: Path,
) -> None:
    a_program(tmp_path)
    # A folder of the node has the name of the run: it is not that of another test.
    run = cluster.namespace
    assert is_run_id(run)
    plan = a_plan(SCENARIO.format(options=options), tmp_path, tiny_image, run)
    made = create(cluster, objects(plan, cluster))
    pods = {task.name: names.pod(run, task.name) for task in plan.tasks}
    ended = until_ended(kubernetes_cluster, list(pods.values()))
    printed = {task: output(kubernetes_cluster, pod) for task, pod in pods.items()}
    codes = [
        one.state.terminated.exit_code
        for pod in ended.values()
        for one in pod.status.container_statuses
        if one.name == "main"
    ]
    if made[0]["metadata"]["annotations"].get(names.HOST_PATH):
        folder = Path("/var/tmp") / f"emulator-{run}"  # this machine is the node
        assert folder.exists()
        removal.tear_down(cluster, run, everywhere=False)
        assert not folder.exists()
        assert removal.find(cluster, run, everywhere=False) == []
    assert printed == {task: PRINTED.format(task=task, process=process) for task in pods}
    assert codes == [0, 0]


@pytest.mark.kubernetes
def test_a_folder_that_could_not_be_removed_stays_known(
    cluster: ApiServer, tiny_image: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(removal, "CLEAN_TIMEOUT", 2.0)
    text = "program: {command: [a]}\ncluster: {worker: 1}"
    plan = a_plan(text, tmp_path, tiny_image, cluster.namespace)
    service, *_ = objects(plan, cluster, Shared("host-path", node="no-such-node"))
    create(cluster, [service])
    for _ in range(2):  # `emulate clean` finds it again
        with pytest.raises(EngineError, match="may still be on the node no-such-node") as failed:
            removal.tear_down(cluster, cluster.namespace, everywhere=False)
        assert f"/var/tmp/emulator-{cluster.namespace} " in failed.value.message
        left = removal.find(cluster, cluster.namespace, everywhere=False)
        assert [one.kind for one in left] == ["services"]


@pytest.mark.kubernetes
def test_what_has_the_name_of_an_object_that_is_gone_is_not_removed(cluster: ApiServer) -> None:
    request = {"metadata": {"name": "one", "labels": {names.RUN: RUN}}}
    gone = removal.Found("configmaps", cluster.post(cluster.namespaced("configmaps"), request))
    assert removal.delete(cluster, gone)
    cluster.post(cluster.namespaced("configmaps"), request)
    assert not removal.delete(cluster, gone)
    assert len(removal.find(cluster, RUN, everywhere=False)) == 1


# --- The script that unpacks ----------------------------------------------------------------------


@pytest.mark.parametrize("tool", ["tar", "python3"])
def test_an_archive_is_unpacked_with_what_the_image_has(tool: str, tmp_path: Path) -> None:
    """An image without tar has Python in our field; `sh` and `cat` are those of all images."""
    source, bin_folder = tmp_path / "app", tmp_path / "bin"
    source.mkdir()
    bin_folder.mkdir()
    (source / "t.py").write_text("print(1)")
    (source / "run.sh").write_text("true")
    (source / "run.sh").chmod(0o755)
    plan = a_plan("program: {command: [a], source: app}\ncluster: {worker: 1}", tmp_path, "img:1")
    (archive,) = archives(plan)
    parts = tmp_path / "archives" / archive.name
    parts.mkdir(parents=True)
    (tmp_path / "disk").mkdir()
    for number, start in enumerate(range(0, len(archive.parts[0]), 100)):  # many small parts
        (parts / f"{number:03}").write_bytes(archive.parts[0][start : start + 100])
    tools = {"python3": sys.executable}
    for name in ("sh", "cat", "mkdir", "gzip", tool):
        (bin_folder / name).symlink_to(tools.get(name) or str(shutil.which(name)))
    script = unpack_script(plan.tasks[0], [archive.name]).replace("/.emulator", str(tmp_path))
    subprocess.run(["sh", "-c", script], check=True, env={"PATH": str(bin_folder)})
    home = tmp_path / "disk" / "home"
    assert (home / "t.py").read_text() == "print(1)"
    assert home.stat().st_mode & 0o777 == 0o777
    assert (home / "run.sh").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("found", [b"", b"no archive"])
def test_an_archive_that_is_cut_is_a_failure(found: bytes, tmp_path: Path) -> None:
    plan = a_plan("program: {command: [a]}\ncluster: {worker: 1}", tmp_path, "img:1")
    parts = tmp_path / "archives" / "program-0"
    parts.mkdir(parents=True)
    (tmp_path / "disk").mkdir()
    (parts / "000").write_bytes(found)
    script = unpack_script(plan.tasks[0], ["program-0"]).replace("/.emulator", str(tmp_path))
    done = subprocess.run(["sh", "-c", script], check=False, capture_output=True)
    assert done.returncode
