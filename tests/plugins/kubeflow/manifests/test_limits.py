"""Documents of a manifest, and each limit from both sides: how much, how large and which names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.errors import ScenarioError, UsageError, shown
from emulator.plugins.kubeflow.manifests.common import Images, Options, as_name, stem_of
from emulator.plugins.kubeflow.manifests.expansion import Text, expand, plain, written
from emulator.plugins.kubeflow.manifests.objects import is_key, read_objects
from emulator.scenario.assembly import FORMATS, format_of, relocated
from emulator.scenario.given import Additions, read_scenario
from emulator.scenario.manifests import dotted, read_documents
from emulator.scenario.values import read
from emulator.validation.limits import DOCUMENTS, MANIFEST_BYTES, SCENARIO_BYTES, TASKS
from tests.plugins.kubeflow.manifests.test_convert import SCENARIO


def test_names_of_files_scenarios_and_tasks() -> None:
    keys = ("a", "A-_.9", ".a", "a" * 253, "a" * 254, ".", "..", "..a", "a b", "a/b", "")
    assert [is_key(key) for key in keys] == [True] * 4 + [False] * 7
    names = {
        "9 Lives!": "lives",
        "a" * 39 + "-b": "a" * 39,
        "a" * 41: "a" * 40,
        "1": "",
        "A_b": "a-b",
    }
    assert {name: as_name(name) for name in names} == names
    assert as_name(5) == ""
    assert [stem_of(file) for file in ("/x/a.values.yaml", "b", ".c")] == ["a", "b", ""]


def problems(path: Path) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        read_objects([], "default", Options(configmaps={"m": path}))
    return [str(problem).replace(str(path), "PATH") for problem in caught.value.problems]


def test_folders_as_maps_have_limits(tmp_path: Path) -> None:
    for number in range(200):
        (tmp_path / f"{number}").touch()
    (tmp_path / "link").symlink_to("/etc/passwd")
    objects, found = read_objects([], "default", Options(configmaps={"m": tmp_path}))
    assert found == []
    values = objects.find("Secret", "m")
    assert values is not None
    assert len(values.values) == 200
    assert objects.used == {"m"}
    (tmp_path / "200").touch()
    assert problems(tmp_path) == ["--configmap m=PATH: has 201 files; 200 are the most"]
    large = tmp_path / "large"
    large.mkdir()
    (large / "a").write_bytes(b"x" * (MANIFEST_BYTES - 1))
    (large / "b").write_bytes(b"x")
    objects, _ = read_objects([], "default", Options(configmaps={"m": large}))
    assert [*objects.given["m"].values] == ["a", "b"]
    (large / "b").write_bytes(b"xx")
    assert problems(large) == ["--configmap m=PATH: has more than 2 MiB"]
    (large / "a").write_bytes(b"x" * (MANIFEST_BYTES + 1))
    assert problems(large) == ["--configmap m=PATH: a: it has 2 MiB; 2 MiB is the most"]
    (large / "a b").touch()
    assert problems(large / "a b") == [
        "--configmap m=PATH: a b can't be a key: letters, digits, '-', '_' and '.' only"
    ]
    assert problems(large / "no") == ["--configmap m=PATH: no: No such file or directory"]


def test_a_scenario_has_a_size_and_a_file_that_is_there(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    with pytest.raises(UsageError, match=r"Can't read .*s\.yaml"):
        read_scenario(path)
    path.write_text(SCENARIO.ljust(SCENARIO_BYTES, "#"))
    assert len(read_scenario(path).text) == SCENARIO_BYTES
    path.write_text(SCENARIO.ljust(SCENARIO_BYTES - 1, "#") + "é")
    with pytest.raises(UsageError, match="1 MiB is the most"):
        read_scenario(path)


def test_documents_and_tasks_have_limits(tmp_path: Path) -> None:
    assert len(read_documents("---\na: 1\n" * DOCUMENTS, "m")) == DOCUMENTS
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"worker": ["w:1"] * TASKS}))
    given = read_scenario(path, Additions({"worker": "cpu"}, command=("a",)))
    assert given.parse().cluster["worker"].replicas == TASKS
    with pytest.raises(ScenarioError, match="no container, role or image work "):
        read_scenario(path, Additions({"work": "cpu"}, command=("a",)))
    template = "{{ " + "x" * 80 + " }}"
    with pytest.raises(ScenarioError) as caught:
        read_documents(f"a: '{template}'", "m")
    assert f"m:1: a: {shown(template, 60)} is a template" in str(caught.value)
    assert shown(template, 60) != shown(template, 61)


NEITHER = "m:1: neither a scenario nor a manifest (known: a scenario, {formats})"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("tfCluster: {}\n", "Helm values"),
        ("ps: 1\n", "Helm values"),
        ("worker: {}\n", "Helm values"),
        ("workers: 2\n---\na: 1\n", "Helm values"),
        ("worker: [a]\n", "cluster JSON"),
        ("chief: []\nx: 1\n", "cluster JSON"),
        ("master: []\n", "cluster JSON"),
        ("cluster: {}\n", "cluster JSON"),
        ("cluster: {}\ntask: {}\nenvironment: a\nrpc_layer: b\n", "cluster JSON"),
        ("cluster: {}\nother: {}\n", NEITHER),
        ("worker: [a]\n---\nworker: [a]\n", NEITHER),
        ("worker: x\n", NEITHER),
        ("apiVersion: v1\nps: 1\n", NEITHER),
        ("kind: Shard\nps: 1\n", "m:1: kind: Shard can't run here (known: {formats})"),
        ("apiVersion: v1\nkind: Node\n", "m:2: kind: Node of v1 can't run here (known: {formats})"),
        (f"kind: {'x' * 120}\n", f"m:1: kind: {'x' * 50}…{'x' * 50} can't run here (known: "
         "{formats})"),
    ],
)  # fmt: skip
def test_the_format_of_a_file(text: str, name: str) -> None:
    try:
        found = format_of(read_documents(text, "m"), "m").name
    except ScenarioError as error:
        found = str(error)
    assert found == name.format(formats=", ".join(one.name for one in FORMATS))
    assert [one.name for one in FORMATS[-2:]] == ["Helm values", "cluster JSON"]


@pytest.mark.parametrize(
    ("kind", "version", "instead"),
    [
        ("Job", "batch/v1", "restart: {policy: on-failure, scope: job}"),
        (
            "TrainJob",
            "trainer.kubeflow.org/v1alpha1",
            "`cluster: {worker: 2}`, `framework: pytorch`",
        ),
        ("MPIJob", "kubeflow.org/v2beta1", "framework: mpi"),
        ("RayCluster", "ray.io/v1", "framework: ray"),
        ("Pod", "v1", "framework: none"),
        ("Shard", "v1", ""),
    ],
)
def test_a_kind_that_can_not_run_says_what_to_write_instead(
    kind: str, version: str, instead: str
) -> None:
    text = f"apiVersion: {version}\nkind: {kind}\n"
    with pytest.raises(ScenarioError) as refused:
        format_of(read_documents(text, "m"), "m")
    assert ("write a scenario" in str(refused.value)) == bool(instead)
    assert instead in str(refused.value)


def test_an_image_is_given_by_role_then_by_itself_then_by_container() -> None:
    images = Images({"role": "1", "image:1": "2", "container": "3", "imag:1": "4", "zzz": "5"})
    assert images.instead("image:1", "container", "role") == "1"
    assert images.instead("image:1", "container") == "2"
    assert images.instead("other", "container") == "3"
    assert images.instead("other", "another") == "other"
    assert images.instead("", "", "") == ""
    known = "role, image:1, container, other, another"
    for number in range(3, 7):
        images.instead(f"{number}", "container")
    known += ", 3, 4, 5"
    assert [str(one) for one in images.problems()] == [
        "--image imag:1=4: there is no container, role or image imag:1 (did you mean 'image:1'?)",
        f"--image zzz=5: there is no container, role or image zzz (known: {known})",
    ]


MOVED: dict[str, Any] = {
    "parametrize": {"program.source": ["a.py", "/b.py"], "seed": [1], "cluster.ps.source": ["c"]},
    "reference": {"image.dockerfile": "./D", "program.command": ["d"]},
    "cluster": {
        "worker": {
            "init": [
                {"name": "i", "image": {"dockerfile": "E"}, "mounts": {"/a": "f"}},
                {"name": "s", "source": "g", "command": ["h"]},
            ],
        }
    },
    "helpers": {"h": {"image": {"context": "k"}}},
    "program": {"source": ""},
}


def test_paths_of_variants_and_of_containers_beside_are_moved() -> None:
    worker = {
        "init": [
            {"name": "i", "image": {"dockerfile": "../x/E"}, "mounts": {"/a": "../x/f"}},
            {"name": "s", "source": "../x/g", "command": ["h"]},
        ],
    }
    assert relocated(MOVED, Path("/r/x"), Path("/r/y/../x")) == MOVED
    assert relocated(MOVED, Path("/r/x"), Path("/r/y")) == {
        "parametrize": {
            "program.source": ["../x/a.py", "/b.py"],
            "seed": [1],
            "cluster.ps.source": ["../x/c"],
        },
        "reference": {"image.dockerfile": "../x/D", "program.command": ["d"]},
        "cluster": {"worker": worker},
        "helpers": {"h": {"image": {"context": "../x/k"}}},
        "program": {"source": ""},
    }


KNOWN: dict[str, Text] = {"VAR_A": ("A",), "VAR_B": ("B",), "VAR_REF": ("$(VAR_A)",), "EMPTY": ()}


@pytest.mark.parametrize(
    ("text", "result"),
    [
        # The cases of Kubernetes' own test of `Expand` (facts: input and result).
        ("$(VAR_A)", "A"),
        ("___$(VAR_B)___", "___B___"),
        ("$(VAR_A)-$(VAR_B)", "A-B"),
        ("$(VAR_REF)", "$(VAR_A)"),
        ("$(VAR_DNE)", "$(VAR_DNE)"),
        ("$(VAR_A", "$(VAR_A"),
        ("$$(VAR_A)", "$(VAR_A)"),
        ("$$$(VAR_A)", "$A"),
        ("$$$$(VAR_A)", "$$(VAR_A)"),
        ("$VAR_A", "$VAR_A"),
        ("\\$(VAR_A)", "\\A"),
        ("$(foo$$var)", "$(foo$$var)"),
        ("$()", "$()"),
        ("f000-$(VAR_A)$", "f000-A$"),
        ("$?+$$", "$?+$"),
        ("a$(EMPTY)b", "ab"),
        ("$(VAR_A))", "A)"),
        ("echo $(date) $HOME ${HOME}", "echo $(date) $HOME ${HOME}"),
    ],
)
def test_variables_are_replaced_as_kubernetes_does(text: str, result: str) -> None:
    assert expand(text, KNOWN) == plain(result)


@given(st.text(alphabet="${}a(:-", max_size=12))
def test_text_of_a_manifest_stays_as_it_is(text: str) -> None:
    template = read(written(plain(text)))
    assert template.expand({}) == text
    assert not template.malformed


# --- Files of several documents -------------------------------------------------------------------


def refusal(text: str) -> list[str]:
    with pytest.raises(ScenarioError) as error:
        read_documents(text, "m.yaml")
    return [str(problem) for problem in error.value.problems]


def test_paths_are_in_the_notation_of_kubernetes() -> None:
    assert dotted(("spec", "containers", 0, "name")) == "spec.containers[0].name"
    assert dotted(("metadata", "annotations", "a.b/c")) == "metadata.annotations[a.b/c]"


def test_json_may_be_indented_by_tabs_and_have_trailing_commas() -> None:
    (one,) = read_documents('\t{\n\t"a":\t["x\\ty", "{",],\n\t"b": {"c": 1,},\n}\n', "c.json")
    assert one.data == {"a": ["x\ty", "{"], "b": {"c": 1}}
    assert one.place(("b", "c")) == "c.json:3"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a:\n  name: '{{ .Release.Name }}-x'\n", "m.yaml:2: a.name: {{ .Release.Name }} is"),
        ("a:\n  - n: {{ .Values.n }}\n", "m.yaml:2: {{ .Values.n }} is"),
        ("a: {{ .x }}: b\n", "m.yaml:1: {{ .x }} is"),
        ("a: 1\n{{- if .Values.ps }}\nb: 2\n{{- end }}\n", "m.yaml:2: {{- if .Values.ps }} is"),
        ("a: 'x {{workflow.name}}'\n", "m.yaml:1: a: {{workflow.name}} is"),
        ("a: |\n  x\n  {{- range $x }}\n", "m.yaml:1: a: {{- range $x }} is"),
    ],
)
def test_templates_are_refused(text: str, place: str) -> None:
    (problem,) = refusal(text)
    assert problem.startswith(f"{place} a template, which the emulator does not render")


def test_braces_of_a_program_are_no_template() -> None:
    text = 'args:\n- |\n  import x\n  print(f"{{{x}}}", "{{name}}")\n'
    (one,) = read_documents(text, "m.yaml")
    assert "{{name}}" in one.get("args", 0)
    text = "kind: ConfigMap\ndata:\n  a.tpl: '{{ .Values.x }}'\n"
    (one,) = read_documents(text, "m.yaml")
    assert one.get("data", "a.tpl") == "{{ .Values.x }}"


BOMB = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 7)
)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1\n---\nb: [\n", "m.yaml:4: not valid YAML: "),
        ("a: 1\na: 2\n", "m.yaml:2: a: is given twice; only the last one would count"),
        ("metadata:\n  labels:\n    1: x\n", "m.yaml:3: metadata.labels.1: the key 1 is not text"),
        ("a: !!binary aGk=\n", "m.yaml:1: not valid YAML: the tag '!!binary' is not allowed"),
        ("a: 1\n---\n" * (DOCUMENTS + 1), f"m.yaml:201: has more than {DOCUMENTS} documents"),
        (BOMB, "m.yaml:1: not valid YAML: it has more than 5,000 keys and values, with aliases"),
        ("a: " + "x" * 3 * 2**20, "m.yaml: not valid YAML: it has more than 2 MiB"),
    ],
    ids=lambda text: text[:40],
)
def test_what_is_no_manifest_has_its_line(text: str, problem: str) -> None:
    assert refusal(text)[0].startswith(problem)
