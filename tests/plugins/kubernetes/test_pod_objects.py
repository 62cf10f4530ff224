"""The exact objects that a run creates on a cluster, and their names."""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.errors import EngineError, Unsupported
from emulator.planning.context import PlanContext
from emulator.planning.plan import Plan, Task
from emulator.planning.planner import make_plan
from emulator.plugins.kubernetes import names
from emulator.plugins.kubernetes.archives import (
    MOST_BYTES,
    PART_BYTES,
    archives,
    archives_of,
    delivery,
)
from emulator.plugins.kubernetes.pod_objects import (
    all_requests,
    limits_of,
    literal,
    pod_request,
    shown,
)
from emulator.plugins.kubernetes.section import is_label_value, options_of
from emulator.plugins.kubernetes.shared import Shared
from emulator.scenario.loader import parse
from tests.cluster_objects import check

pytestmark = pytest.mark.usefixtures("in_a_folder")

SITE = PlanContext(
    "kubernetes", lambda name: (name, 2222), lambda image: "img:1", lambda: "abc", "/shared"
)
CLAIM = Shared("claim", "ReadWriteMany", None)
VERSIONS = ("v1.25.0", "v1.31.0", "v1.37.0")
"""Of the API; the real server of the other tests is an older one."""
Objects = list[dict[str, Any]]


def a_plan(extra: str = "", folder: Path = Path()) -> Plan:
    text = f"name: test\nprogram: {{command: [python, t.py], source: .}}\n{extra}"
    if "cluster:" not in extra:
        text += "\ncluster: {worker: 2}"
    return make_plan(parse(text, folder=folder), "run-1", SITE)


def requests(plan: Plan, shared: Shared = CLAIM) -> Objects:
    common = names.common(plan, Path("/runs/run-1"), "team")
    return all_requests(plan, common, options_of(plan.scenario), shared, archives(plan))


def pods(plan: Plan, shared: Shared = CLAIM) -> Objects:
    return [one for one in requests(plan, shared) if one["kind"] == "Pod"]


def a_pod(extra: str, folder: Path, shared: Shared = CLAIM) -> dict[str, Any]:
    return pods(a_plan(extra, folder), shared)[0]


def main(pod: Mapping[str, Any]) -> dict[str, Any]:
    container: dict[str, Any] = pod["spec"]["containers"][0]
    assert container["name"] == "main"
    return container


def mounts(container: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    found = container["volumeMounts"]
    return {one["mountPath"]: (one["name"], one.get("subPath", "")) for one in found}


def unpacked(objects: Objects, archive: str) -> dict[str, tuple[int, bytes]]:
    """Return the mode and content of each file, from the ConfigMaps as a node joins them."""
    data = {
        one["metadata"]["name"]: one["binaryData"]["part"]
        for one in objects
        if one["kind"] == "ConfigMap"
    }
    parts = delivery(one for one in objects if one["kind"] == "ConfigMap")[archive]
    whole = b"".join(base64.b64decode(data[name]) for name in parts)
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(whole))) as tar:
        files = ((entry, tar.extractfile(entry)) for entry in tar)
        return {entry.name: (entry.mode, file.read() if file else b"") for entry, file in files}


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "t.py").write_text("print(1)")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "a.py").write_text("a = 1")
    return tmp_path


EVERYTHING = """
cluster:
  worker:
    replicas: 2
    cpus: 0.5
    memory: 1g
    gpus: 1
    shm_size: 256m
    mounts: {/cache: {scratch: cache}, /fast: {tmpfs: 64m}}
    files: {/etc/app.json: "{}", /job/conf.json: {text: "1", mode: "0600"}}
    init:
      - name: fetch
        image: curl:1
        command: [get]
        mounts: {/to: {scratch: cache}}
        files: {/list: a}
      - name: check
        image: envoy:1
        memory: 64m
        mounts: {/from: {scratch: cache, writable: false}}
  ps: 1
helpers: {web: {command: [serve]}}
kubernetes:
  image_pull_policy: Always
  image_pull_secret: login
  node_selector: {pool: spot}
  tolerations:
    - {key: spot, value: "yes", effect: NoSchedule}
    - {key: gone, effect: NoExecute, toleration_seconds: 5}
  priority_class: low
  service_account: trainer
  run_as: 1000
"""


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("extra", "shared"),
    [("", CLAIM), (EVERYTHING, Shared("host-path", node="n1")), (EVERYTHING, Shared("none"))],
    ids=["ordinary", "everything", "alone"],
)
def test_every_object_fits_the_schemas(
    extra: str, shared: Shared, version: str, program: Path
) -> None:
    found = requests(a_plan(extra, program), shared)
    for one in found:
        check(one, version)
    named = [(one["kind"], one["metadata"]["name"]) for one in found]
    assert len(set(named)) == len(named)


def test_the_order_of_creation(program: Path) -> None:
    found = requests(a_plan("", program))
    assert [(one["kind"], one["metadata"]["name"]) for one in found] == [
        ("Service", "run-1"),
        ("PersistentVolumeClaim", "run-1"),
        ("ConfigMap", "run-1-program-0-0"),
        ("Pod", "run-1-worker-0"),
        ("Pod", "run-1-worker-1"),
    ]


def test_everything_carries_the_labels_of_the_run_and_is_the_same_each_time(program: Path) -> None:
    labels = {"emulator.run": "run-1", "emulator.scenario": "test"}
    found = requests(a_plan(EVERYTHING, program))
    assert found == requests(a_plan(EVERYTHING, program))
    for one in found:
        metadata = one["metadata"]
        assert metadata["namespace"] == "team"
        assert metadata["labels"].items() >= labels.items()
        assert metadata["annotations"]["emulator.folder"] == "/runs/run-1"
        assert metadata["annotations"]["emulator.host"]


# --- How tasks find each other --------------------------------------------------------------------


def test_every_pod_resolves_the_bare_names_of_all_others(program: Path) -> None:
    plan = a_plan("kubernetes: {cluster_domain: example.org}", program)
    service, *_ = requests(plan)
    assert service["spec"] == {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {"emulator.run": "run-1"},
    }
    for pod, task in zip(pods(plan), plan.tasks, strict=True):
        assert pod["spec"]["hostname"] == task.name
        assert pod["spec"]["subdomain"] == service["metadata"]["name"]
        assert pod["spec"]["dnsConfig"]["searches"] == ["run-1.team.svc.example.org"]
        assert pod["metadata"]["labels"].items() >= service["spec"]["selector"].items()


# --- The program ----------------------------------------------------------------------------------


def test_the_program_is_unpacked_where_it_starts(program: Path) -> None:
    plan = a_plan("", program)
    found = unpacked(requests(plan), "program-0")
    assert {name: content for name, (_, content) in found.items()} == {
        "home": b"",
        "home/lib": b"",
        "home/lib/a.py": b"a = 1",
        "home/t.py": b"print(1)",
    }
    pod = pods(plan)[0]
    assert mounts(main(pod))["/job"] == ("disk", "home")
    assert main(pod)["workingDir"] == "/job"
    (unpack,) = pod["spec"]["initContainers"]
    assert unpack["image"] == "img:1"
    places = {"/.emulator/disk": ("disk", ""), "/.emulator/archives": ("archives", "")}
    assert mounts(unpack) == places
    assert [one["name"] for one in unpack["volumeMounts"] if one.get("readOnly")] == ["archives"]
    assert "unpack /.emulator/archives/program-0" in unpack["command"][-1]


def test_a_large_program_is_cut_into_configmaps_that_fit(program: Path) -> None:
    content = os.urandom(2 * PART_BYTES)
    (program / "big.bin").write_bytes(content)
    objects = requests(a_plan("", program))
    sizes = [
        len(base64.b64decode(one["binaryData"]["part"]))
        for one in objects
        if one["kind"] == "ConfigMap"
    ]
    assert sizes[:-1] == [PART_BYTES] * 2
    assert 0 < sizes[-1] <= PART_BYTES
    assert unpacked(objects, "program-0")["home/big.bin"][1] == content
    sources = next(one for one in objects if one["kind"] == "Pod")["spec"]["volumes"]
    (projected,) = [one["projected"]["sources"] for one in sources if "projected" in one]
    paths = [one["configMap"]["items"][0]["path"] for one in projected]
    assert paths == [f"program-0/00{n}" for n in range(3)]


def test_more_than_twelve_parts_stay_in_order() -> None:
    objects = [
        {"metadata": {"name": f"p-{n}", "labels": {names.ARCHIVE: "program-0", names.PART: str(n)}}}
        for n in (10, 2, 1, 11, 0)
    ]
    other = {"metadata": {"name": "of-another", "labels": {"app": "x"}}}
    found = delivery([*objects, other, {"metadata": {"name": "bare"}}])
    assert found == {"program-0": ["p-0", "p-1", "p-2", "p-10", "p-11"]}


def test_all_archives_together_have_a_limit_that_names_what_is_too_large(program: Path) -> None:
    (program / "big.bin").write_bytes(os.urandom(MOST_BYTES + 1))
    with pytest.raises(EngineError, match=r"The program .* of 10 MiB is too large .* 10 MiB"):
        archives(a_plan("", program))
    (program / "big.bin").write_bytes(bytes(3 * MOST_BYTES))  # packed, it is small enough
    assert len(archives(a_plan("", program))[0].parts) == 1
    for folder in ("one", "two"):
        (program / folder).mkdir()
        (program / folder / "data.bin").write_bytes(os.urandom(6 * 2**20))
    both = "cluster: {worker: {source: one}, ps: {source: two}}"
    with pytest.raises(EngineError, match=r"The program .*two of 6 MiB is too large"):
        archives(a_plan(both, program))


def test_roles_share_an_archive_if_they_have_the_same_program(program: Path) -> None:
    plan = a_plan("cluster: {worker: {replicas: 2, source: lib}, ps: 1, chief: 1}", program)
    found = [archives_of(plan, task) for task in plan.tasks]
    assert found == [["program-0"]] * 2 + [["program-1"]] * 2
    assert [one.name for one in archives(plan)] == ["program-0", "program-1"]


def test_no_init_container_where_there_is_nothing_to_unpack(program: Path) -> None:
    text = "name: test\nprogram: {command: [a]}\ncluster: {worker: 1}"
    plan = make_plan(parse(text, folder=program), "run-1", SITE)
    (pod,) = pods(plan)
    assert "initContainers" not in pod["spec"]
    assert "workingDir" not in main(pod)
    assert [one["kind"] for one in requests(plan)] == ["Service", "PersistentVolumeClaim", "Pod"]
    text = text.replace("[a]", "[a], working_dir: /opt, files: {/a: b}")
    (pod,) = pods(make_plan(parse(text, folder=program), "run-1", SITE))
    # Files alone, without a program: nothing of the image is copied.
    assert "/opt" not in pod["spec"]["initContainers"][0]["command"][-1]


def test_a_working_directory_keeps_the_images_files_and_is_not_the_root(program: Path) -> None:
    pod = a_pod("cluster: {worker: {working_dir: '/opt/my app'}}", program)
    assert mounts(main(pod))["/opt/my app"] == ("disk", "home")
    script = pod["spec"]["initContainers"][0]["command"][-1]
    assert "if [ -d '/opt/my app' ]; then" in script
    with pytest.raises(Unsupported, match="worker-0 has its program in /"):
        pods(a_plan("cluster: {worker: {working_dir: /}}", program))


def test_pods_are_made_again_without_reading_the_program(program: Path) -> None:
    plan = a_plan(EVERYTHING, program)
    common = names.common(plan, Path("/runs/run-1"), "team")
    objects = requests(plan)
    (program / "t.py").unlink()
    found = delivery(one for one in objects if one["kind"] == "ConfigMap")
    again = pod_request(plan, plan.tasks[0], common, options_of(plan.scenario), CLAIM, found)
    assert again in objects


# --- Files ----------------------------------------------------------------------------------------


def test_the_files_of_a_role_are_archived_once(program: Path) -> None:
    plan = a_plan(
        "cluster: {worker: {replicas: 3, files: {/a: a}}, ps: {files: {/a: b}}}\n"
        "helpers: {ps: {command: [serve], files: {/a: c}}}",
        program,
    )
    assert [one.name for one in archives(plan)] == ["program-0", "files-0", "files-1", "files-2"]
    found = [archives_of(plan, one)[-1] for one in plan.everything]
    assert found == [*["files-0"] * 3, "files-1", "files-2"]
    assert unpacked(requests(plan), "files-2")["files/main/0"][1] == b"c"


# --- Containers -----------------------------------------------------------------------------------


def test_the_parts_of_a_pod(program: Path) -> None:
    pod = a_pod(EVERYTHING, program)
    unpack, fetch, check = pod["spec"]["initContainers"]
    assert [one["name"] for one in (unpack, fetch, check)] == ["emulator-unpack", "fetch", "check"]
    assert [one["name"] for one in pod["spec"]["containers"]] == ["main"]
    scratch = mounts(main(pod))["/cache"]
    assert mounts(fetch)["/to"] == mounts(check)["/from"] == scratch
    assert [one for one in check["volumeMounts"] if one.get("readOnly")] == [
        {"name": scratch[0], "mountPath": "/from", "readOnly": True}
    ]
    volumes = {one["name"]: one for one in pod["spec"]["volumes"]}
    assert volumes["disk"]["emptyDir"] == volumes[scratch[0]]["emptyDir"] == {}
    for path, size in (("/fast", "64Mi"), ("/dev/shm", "256Mi")):
        in_memory = volumes[mounts(main(pod))[path][0]]["emptyDir"]
        assert in_memory == {"medium": "Memory", "sizeLimit": size}


def test_limits_are_requested_too_and_a_gpu_may_be_a_slice_of_one(program: Path) -> None:
    pod = a_pod(EVERYTHING, program)
    expected = {"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": "1"}
    assert main(pod)["resources"] == {"requests": expected, "limits": expected}
    unpack, fetch, _ = pod["spec"]["initContainers"]
    # A namespace with a quota refuses a container without limits; the GPU is the program's.
    expected = {"cpu": "500m", "memory": "1Gi"}
    assert unpack["resources"] == {"requests": expected, "limits": expected}
    assert "resources" not in fetch
    pod = a_pod(
        "cluster: {worker: {gpus: 2}}\nkubernetes: {gpu_resource: nvidia.com/mig-1g.5gb}", program
    )
    assert main(pod)["resources"]["limits"] == {"nvidia.com/mig-1g.5gb": "2"}


def test_limits_are_quantities() -> None:
    cores = [limits_of(n, None)["cpu"] for n in (2.0, 0.5, 1.25, 0.0001)]
    assert cores == ["2", "500m", "1250m", "1m"]
    sizes = [limits_of(None, n)["memory"] for n in (2**30, 3 * 2**20, 2**10, 1025)]
    assert sizes == ["1Gi", "3Mi", "1Ki", "1025"]


@pytest.mark.parametrize(("entrypoint", "key"), [("image", "args"), ("none", "command")])
def test_the_entry_point_of_the_image(entrypoint: str, key: str, program: Path) -> None:
    container = main(a_pod(f"cluster: {{worker: {{entrypoint: {entrypoint}}}}}", program))
    assert container[key] == ["python", "t.py"]
    assert not {"command", "args"} - {key} & container.keys()


def expanded(text: str) -> str:
    """Expand text as Kubernetes does without variables: third_party/forked/golang/expansion."""
    result, at = "", 0
    while at < len(text):
        if text[at] != "$" or at + 1 == len(text):
            result, at = result + text[at], at + 1
        elif text[at + 1] == "$":
            result, at = result + "$", at + 2
        elif text[at + 1] == "(" and (end := text.find(")", at)) > 0:
            result, at = result + "<expanded>", end + 1
        else:
            result, at = result + text[at : at + 2], at + 2
    return result


@given(st.text(alphabet="$()aA {}", max_size=30))
def test_texts_reach_the_program_as_they_are(text: str) -> None:
    assert expanded(literal(text)) == text


def test_ordinary_texts_are_not_changed() -> None:
    for text in ("$HOME", "a$", "100%", "${X}"):
        assert literal(text) == text
    assert literal("$(date) $X") == "$$(date) $$X"


# --- Where and as whom ----------------------------------------------------------------------------


def test_the_settings_of_the_scenario_and_no_container_may_gain_anything(program: Path) -> None:
    pod = a_pod(EVERYTHING, program)
    spec = pod["spec"]
    assert spec["nodeSelector"] == {"pool": "spot"}
    assert spec["tolerations"] == [
        {"key": "spot", "operator": "Equal", "value": "yes", "effect": "NoSchedule"},
        {"key": "gone", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5},
    ]
    assert spec["priorityClassName"] == "low"
    assert spec["serviceAccountName"] == "trainer"
    assert spec["imagePullSecrets"] == [{"name": "login"}]
    assert {one["imagePullPolicy"] for one in spec["containers"]} == {"Always"}
    assert spec["securityContext"]["fsGroup"] == 1000  # its user may write to the volumes
    for one in (*spec["initContainers"], *spec["containers"]):
        assert one["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}


def test_the_ordinary_case_sets_nothing_of_them(program: Path) -> None:
    spec = a_pod("", program)["spec"]
    assert not spec.keys() & {
        "nodeSelector", "tolerations", "priorityClassName", "serviceAccountName",
        "imagePullSecrets",
    }  # fmt: skip
    assert spec["restartPolicy"] == "Never"
    assert (spec["automountServiceAccountToken"], spec["enableServiceLinks"]) == (False, False)
    assert spec["shareProcessNamespace"] is True
    assert "shareProcessNamespace" not in a_pod("kubernetes: {init: false}", program)["spec"]


def test_a_folder_of_a_node_keeps_all_pods_there(program: Path) -> None:
    shared = Shared("host-path", node="n1")
    plan = a_plan("kubernetes: {node_selector: {pool: spot}, run_as: 7}", program)
    service, *_ = requests(plan, shared)
    notes = {names.HOST_PATH: "true", names.NODE: "n1", names.IMAGE: "img:1"}
    assert service["metadata"]["annotations"].items() >= notes.items()
    assert names.SECRET not in service["metadata"]["annotations"]
    one = "kubernetes: {image_pull_secret: login}\ncluster: {worker: 1}"
    service, *_ = requests(a_plan(one, program), shared)
    assert service["metadata"]["annotations"][names.SECRET] == "login"
    pod = pods(plan, shared)[0]
    assert pod["spec"]["nodeSelector"] == {"pool": "spot", "kubernetes.io/hostname": "n1"}
    opening = pod["spec"]["initContainers"][0]
    assert opening["securityContext"]["runAsUser"] == 0
    assert mounts(opening) == {"/shared": ("shared", "")}


# --- Security -------------------------------------------------------------------------------------


def test_a_pod_fulfils_the_restricted_level_where_its_user_is_named(program: Path) -> None:
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/ (restricted)."""
    spec = a_pod("kubernetes: {run_as: 1000}", program, CLAIM)["spec"]
    whole = spec["securityContext"]
    assert (whole["runAsNonRoot"], whole["runAsUser"]) == (True, 1000)
    assert whole["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in (*spec["initContainers"], *spec["containers"]):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
    kinds = {kind for volume in spec["volumes"] for kind in set(volume) - {"name"}}
    assert kinds <= {"configMap", "emptyDir", "persistentVolumeClaim", "projected"}


# --- For people -----------------------------------------------------------------------------------


def test_archives_are_shown_by_size_and_hash(program: Path) -> None:
    (program / "big.bin").write_bytes(os.urandom(2**20))
    found = requests(a_plan("", program))
    printed = json.dumps([shown(one) for one in found])
    assert len(printed) < 20_000
    assert "<900 KiB, sha256 " in printed
    assert [shown(one) for one in found if one["kind"] == "Pod"] == pods(a_plan("", program))


# --- Names and labels: valid, and different for what is different ---------------------------------

LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
RUN_IDS = st.from_regex(LABEL, fullmatch=True)
TASKS = st.from_regex(r"[a-z]([-a-z0-9]{0,30}[a-z0-9])?-[0-9]{1,3}", fullmatch=True)
LONG = "a" * 60


def test_short_names_are_the_run_s_and_the_task_s_and_labels_find_what_is_of_a_run() -> None:
    assert names.selector() == "emulator.run"
    assert names.selector("run-1") == "emulator.run=run-1"
    assert names.pod("mwms-1122-a0", "worker-0") == "mwms-1122-a0-worker-0"
    assert names.config_map("mwms-1122-a0", "program-0", 1) == "mwms-1122-a0-program-0-1"
    assert names.address("mwms-1122-a0", "worker-0") == "worker-0.mwms-1122-a0"


@given(RUN_IDS, TASKS)
def test_names_are_labels_however_long_the_run_id_is(run: str, task: str) -> None:
    for name in (
        names.pod(run, task),
        names.service(run),
        names.claim(run),
        names.config_map(run, "files-12", 3),
    ):
        assert LABEL.fullmatch(name)
    assert names.pod(run, task).endswith(task)


def test_what_is_cut_differs_by_its_hash() -> None:
    one, other = names.pod(f"{LONG}b", "worker-0"), names.pod(f"{LONG}c", "worker-0")
    assert one != other
    assert one.startswith("aaaa")
    assert len(one) <= 63
    maps = {names.config_map(f"{LONG}b", "program-0", number) for number in (0, 1)}
    assert len(maps) == 2


@given(st.text(max_size=100), st.text(max_size=100))
def test_labels_are_valid_and_different(one: str, other: str) -> None:
    assert is_label_value(names.label(one))
    assert (names.label(one) == names.label(other)) == (one == other)


def test_full_values_are_in_annotations() -> None:
    common = names.Common("team", {names.RUN: "run-1"}, {names.FOLDER: "/runs/run-1"})
    metadata = common.metadata("run-1-x", task="x" * 70)
    assert metadata["namespace"] == "team"
    assert metadata["labels"] == {names.RUN: "run-1", names.TASK: names.label("x" * 70)}
    assert metadata["annotations"] == {names.FOLDER: "/runs/run-1", names.TASK: "x" * 70}


def a_task(name: str, init: tuple[Task, ...] = ()) -> Task:
    return Task(
        name=name, role="worker", index=0, host=name, port=1, image="img:1", command=(), env={},
        source=Path(), init=init,
    )  # fmt: skip


@pytest.mark.parametrize("taken", ["main", "emulator-unpack", "emulator-open"])
def test_a_part_that_is_called_like_a_container_of_ours_gets_a_number(taken: str) -> None:
    steps = (a_task("worker-0.prepare"), a_task(f"worker-0.{taken}"), a_task("worker-0.b"))
    task = a_task("worker-0", steps)
    found = {name: part.name for name, part in names.containers(task).items()}
    assert found == {
        "main": "worker-0",
        "prepare": "worker-0.prepare",
        f"{taken}-2": f"worker-0.{taken}",
        "b": "worker-0.b",
    }
