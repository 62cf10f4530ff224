"""Files of several documents: lines, paths, templates, and what is too much."""

from __future__ import annotations

import pytest

from emulator.errors import ScenarioError
from emulator.manifests.documents import dotted, read_documents
from emulator.manifests.input_formats import format_of
from emulator.validation.limits import DOCUMENTS


def refused(text: str) -> list[str]:
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
    (problem,) = refused(text)
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
    assert refused(text)[0].startswith(problem)


def test_what_has_no_format_is_refused_in_a_line() -> None:
    documents = read_documents("apiVersion: v1\nkind: Pod\n", "m.yaml")
    with pytest.raises(ScenarioError, match=r"m.yaml:2: kind: Pod of v1 can't run here \(known: "):
        format_of(documents, "m.yaml")
