"""The variables of a container: `env`, `envFrom`, and what they refer to (pure)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from emulator.manifests.expansion import Text, Value, expand, length, plain
from emulator.manifests.objects import MapKind, Values, refused_key, text_of
from emulator.manifests.pod_context import Pod
from emulator.manifests.quantities import parse_quantity
from emulator.scenario.document import KeyPath

SECRETS = "its values are plain text in the scenario and in the run folder"
_SOURCES = ("configMapKeyRef", "secretKeyRef", "fieldRef", "resourceFieldRef")


def variables(pod: Pod, container: Mapping[str, Any], path: KeyPath) -> dict[str, Text]:
    """Return the variables of a container in their order; a later one replaces an earlier.

    A value may refer to variables before it: `$(NAME)`.
    """
    known = dict[str, Text]()
    for number, source in enumerate(container.get("envFrom", [])):
        known |= _all_of(pod, source, (*path, "envFrom", number))
    for number, variable in enumerate(container.get("env", [])):
        at = (*path, "env", number)
        name = variable["name"]
        if not name or "=" in name or not name.isprintable():
            hint = "letters, digits, '_', '-' and '.'"
            pod.findings.mistake((*at, "name"), f"{name!r} is not the name of a variable", hint)
            continue
        text = _value(pod, container, variable, known, at)
        if text is not None and pod.budget.claim(pod.findings, at, length(text)):
            known.pop(name, None)
            known[name] = text
    return known


def _value(
    pod: Pod,
    container: Mapping[str, Any],
    variable: Mapping[str, Any],
    known: Mapping[str, Text],
    path: KeyPath,
) -> Text | None:
    source = variable.get("valueFrom")
    if source is None:
        try:
            return expand(variable.get("value", ""), known)
        except ValueError as error:
            pod.findings.mistake((*path, "value"), str(error))
            return None
    if variable.get("value"):
        pod.findings.mistake((*path, "valueFrom"), "is given, and value too; write one of them")
        return None
    at = (*path, "valueFrom")
    given = [kind for kind in _SOURCES if kind in source]
    if len(given) != 1:
        found = " and ".join(given) or "none"
        pod.findings.mistake(at, f"has one of {', '.join(_SOURCES)}; this has {found}")
        return None
    (kind,) = given
    make = _MAKERS[kind]
    return make(pod, container, source[kind], (*at, kind))


# --- ConfigMaps and Secrets -----------------------------------------------------------------------


def find_map(pod: Pod, kind: MapKind, name: str, optional: bool, path: KeyPath) -> Values | None:
    """Return a ConfigMap or a Secret; add a mistake if it is missing and needed."""
    found = pod.objects.find(kind, name)
    if found is None and not optional:
        hint = pod.objects.hint(kind, name)
        pod.findings.mistake(path, f"there is no {kind} {name} in {pod.namespace}", hint)
    if found is not None and kind == "Secret":
        pod.findings.note(path, "approximated", SECRETS)
    return found


def _value_of_key(kind: MapKind) -> Callable[..., Text | None]:
    def make(
        pod: Pod, container: Mapping[str, Any], reference: Mapping[str, Any], path: KeyPath
    ) -> Text | None:
        name, optional = reference["name"], reference.get("optional", False)
        found = find_map(pod, kind, name, optional, (*path, "name"))
        if found is None:
            return None
        if reference["key"] not in found.values:
            if not optional:
                refused_key(pod.findings, (*path, "key"), kind, name, found)
            return None
        return _text(pod, found.values[reference["key"]], (*path, "key"))

    return make


def _all_of(pod: Pod, source: Mapping[str, Any], path: KeyPath) -> dict[str, Text]:
    """Return the variables of an entry of `envFrom`."""
    prefix, made = source.get("prefix", ""), dict[str, Text]()
    kinds: tuple[tuple[str, MapKind], ...] = (
        ("configMapRef", "ConfigMap"),
        ("secretRef", "Secret"),
    )
    if not any(key in source for key, _ in kinds):
        pod.findings.mistake(path, "has neither configMapRef nor secretRef")
    for key, kind in kinds:
        if key not in source:
            continue
        reference, at = source[key], (*path, key, "name")
        found = find_map(pod, kind, reference["name"], reference.get("optional", False), at)
        for name, content in (found.values if found else {}).items():
            if found and name in found.binary:
                continue  # the kubelet makes variables of `data` alone
            text = _text(pod, content, at)
            if text is not None and pod.budget.claim(pod.findings, at, length(text)):
                made[f"{prefix}{name}"] = text
    return made


def _text(pod: Pod, content: bytes, path: KeyPath) -> Text | None:
    text = text_of(content)
    if text is None:
        pod.findings.mistake(path, "has bytes that are not the text of a variable")
        return None
    return plain(text)


# --- Fields of the pod ----------------------------------------------------------------------------


def _value_of_field(
    pod: Pod, container: Mapping[str, Any], reference: Mapping[str, Any], path: KeyPath
) -> Text | None:
    field, at = reference["fieldPath"], (*path, "fieldPath")
    if field in _HOSTS:
        pod.findings.note(at, "approximated", "the host name instead of an address of IP")
        return (Value("host"),)
    if field in ("spec.nodeName", "metadata.uid"):
        pod.findings.note(at, "approximated", "the name of the pod")
        return (Value("pod"),)
    section, _, key = field.partition("['")
    if section in ("metadata.labels", "metadata.annotations") and key.endswith("']"):
        return _value_of_metadata(pod, section, key[:-2])
    known: dict[str, Text] = {
        "metadata.name": (Value("pod"),),
        "metadata.namespace": plain(pod.namespace),
        "spec.serviceAccountName": plain(pod.spec.get("serviceAccountName", "default")),
    }
    if field not in known:
        hint = f"known: {', '.join((*known, *_HOSTS[:2]))}, metadata.labels['NAME']"
        pod.findings.mistake(at, f"there is no field {field!r} for a variable", hint)
        return None
    return known[field]


_HOSTS = ("status.podIP", "status.hostIP", "status.podIPs", "status.hostIPs")


def _value_of_metadata(pod: Pod, section: str, name: str) -> Text:
    """Return a label or an annotation of the pod; of one that is missing, nothing."""
    if section == "metadata.annotations":
        return plain(pod.annotations.get(name, ""))
    return pod.labels_of_operator.get(name) or plain(pod.labels.get(name, ""))


# --- Limits and requests --------------------------------------------------------------------------


def _value_of_resource(
    pod: Pod, container: Mapping[str, Any], reference: Mapping[str, Any], path: KeyPath
) -> Text | None:
    name, at = reference["resource"], (*path, "resource")
    section, _, resource = name.partition(".")
    if section not in ("limits", "requests") or resource not in ("cpu", "memory"):
        hint = "limits.cpu, limits.memory, requests.cpu or requests.memory"
        pod.findings.mistake(at, f"there is no {name!r} for a variable", hint)
        return None
    other = reference.get("containerName")
    if other:
        containers = pod.spec.get("containers", []) + pod.spec.get("initContainers", [])
        container = next((one for one in containers if one["name"] == other), {})
    resources = container.get("resources", {})
    limit = resources.get("limits", {}).get(resource)
    given = limit if section == "limits" else resources.get("requests", {}).get(resource, limit)
    if given is None:
        hint = f"set resources.{section}.{resource}"
        pod.findings.mistake(at, f"the container has no {name}, and a machine's is not known", hint)
        return None
    number = parse_quantity(given)
    if "divisor" in reference:
        number /= parse_quantity(reference["divisor"]) or 1
    return plain(str(math.ceil(number)))


_MAKERS: Mapping[str, Callable[..., Text | None]] = {
    "configMapKeyRef": _value_of_key("ConfigMap"),
    "secretKeyRef": _value_of_key("Secret"),
    "fieldRef": _value_of_field,
    "resourceFieldRef": _value_of_resource,
}
