"""A pod template as a role of a scenario: containers, commands, limits, variables (pure)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from emulator.plugins.kubeflow.manifests.common import Images
from emulator.plugins.kubeflow.manifests.expansion import (
    Text,
    Value,
    expand,
    plain,
    written,
)
from emulator.plugins.kubeflow.manifests.objects import MapKind, Pod, text_of
from emulator.plugins.kubeflow.manifests.volumes import check_names, mounted
from emulator.scenario.document import KeyPath
from emulator.scenario.rendezvous import PREFIX
from emulator.validation.quantities import as_cores, as_size, parse_quantity
from emulator.validation.similar import closest

GPU = "nvidia.com/gpu"
BESIDE = "no side-car runs: a task is its own container, and the init containers before it"
_LIMITS = ("cpu", "memory")
_WHOLE_BYTES = 1
"""A limit below it was meant in another unit: `512m` of memory is half a byte."""


def role_of(pod: Pod, images: Images) -> dict[str, Any]:
    """Return a role of a scenario without its number of tasks; add to the pod's findings."""
    containers = list(_containers(pod))
    _check_names(pod, containers)
    check_names(pod)
    main = next((one for one in containers if _is_main(pod, *one)), None)
    if main is None:
        names = [container["name"] for _, container in containers]
        at = (*pod.spec_path, "containers", 0, "name") if len(names) == 1 else None
        message = f"has no container named {pod.container}"
        if at:
            message = f"{names[0]!r} should be {pod.container!r}: {_WHY}"
        pod.findings.mistake(at or (*pod.spec_path, "containers"), message, "" if at else _WHY)
        return {}
    role = _container(pod, *main, images, is_main=True)
    if gpus := _gpus(main[1]):
        role["gpus"] = gpus
    if steps := [one for one in containers if _is_step(*one)]:
        role["init"] = [_step(pod, *one, images) for one in steps]
        pod.origins |= {("init", number): path for number, (path, _) in enumerate(steps)}
    for one in containers:
        if one != main and one not in steps:
            pod.findings.ignore(one[0], BESIDE)
    return role


_WHY = "the operator gives only that one its variables"
_Container = tuple[KeyPath, Mapping[str, Any]]


def _containers(pod: Pod) -> Iterator[_Container]:
    for key in ("initContainers", "containers"):
        for number, container in enumerate(pod.spec.get(key, [])):
            yield (*pod.spec_path, key, number), container


def _is_main(pod: Pod, path: KeyPath, container: Mapping[str, Any]) -> bool:
    return path[-2] == "containers" and container["name"] == pod.container


def _is_step(path: KeyPath, container: Mapping[str, Any]) -> bool:
    """Return whether it runs before the task; an init container may also be a side-car."""
    return path[-2] == "initContainers" and container.get("restartPolicy") != "Always"


def _check_names(pod: Pod, containers: list[_Container]) -> None:
    names = set()
    for path, container in containers:
        if container["name"] in names:
            message = f"there are two containers named {container['name']}"
            pod.findings.mistake((*path, "name"), message)
        names.add(container["name"])
        policy = container.get("restartPolicy")
        if policy is not None and (path[-2] == "containers" or policy != "Always"):
            hint = "the replica has the restart policy of its containers"
            message = "can only be Always, and only of an init container"
            pod.findings.mistake((*path, "restartPolicy"), message, hint)


# --- Containers -----------------------------------------------------------------------------------


def _step(pod: Pod, path: KeyPath, container: Mapping[str, Any], images: Images) -> dict[str, Any]:
    """Return an init step."""
    entry = _container(pod, path, container, images, is_main=False)
    if _gpus(container):
        text = f"the GPUs are those of {pod.container}"
        pod.findings.note((*path, "resources", "limits", GPU), "ignored", text)
    return {"name": container["name"], **entry}


def _container(
    pod: Pod, path: KeyPath, container: Mapping[str, Any], images: Images, *, is_main: bool
) -> dict[str, Any]:
    """Return what a container of a scenario has, of a task or of an init step."""
    entry: dict[str, Any] = {}
    image = container.get("image")
    if not image:
        pod.findings.mistake((*path, "image"), "is missing")
    else:
        entry["image"] = images.instead(image, container["name"], pod.role if is_main else "")
    entry |= _limits(pod, path, container)
    known = _variables(pod, container, path)
    given = pod.set_by_operator if is_main else frozenset()
    for name in given & known.keys():
        pod.findings.note((*path, "env"), "ignored", f"{name} is replaced: the operator sets it")
        del known[name]
    set_later = {name: (Value(f"env.{name}"),) for name in sorted(given)}
    entry |= _command(pod, path, container, known | set_later)
    if container.get("workingDir"):
        entry["working_dir"] = container["workingDir"]
    if ours := [name for name in known if name.startswith(PREFIX)]:
        # Exports of earlier versions wrote them for a cluster, where nobody else sets them.
        text = f"the emulator itself sets {', '.join(ours)}"
        pod.findings.note((*path, "env"), "ignored", text)
        known = {name: text for name, text in known.items() if name not in ours}
    if known:
        entry["env"] = {name: _written(pod, text, (*path, "env")) for name, text in known.items()}
    found = mounted(pod, container, path)
    if found.shm_size:
        entry["shm_size"] = found.shm_size
    entry |= {"mounts": found.mounts} if found.mounts else {}
    entry |= {"files": found.files} if found.files else {}
    if is_main:
        pod.origins |= {**_places(path, container), **found.origins}
    return entry


def _places(path: KeyPath, container: Mapping[str, Any]) -> dict[KeyPath, KeyPath]:
    """Return the paths in a role that come from one field each."""
    command = "command" if container.get("command") else "args"
    names = [variable["name"] for variable in container.get("env", [])]
    return {
        (): path,
        ("image",): (*path, "image"),
        ("command",): (*path, command),
        ("working_dir",): (*path, "workingDir"),
        ("cpus",): (*path, "resources", "limits", "cpu"),
        ("memory",): (*path, "resources", "limits", "memory"),
        ("gpus",): (*path, "resources", "limits", GPU),
        ("env",): (*path, "env"),
        **{("env", name): (*path, "env", number) for number, name in enumerate(names)},
    }


def _command(
    pod: Pod, path: KeyPath, container: Mapping[str, Any], known: Mapping[str, Text]
) -> dict[str, Any]:
    """Return the command, and whether it replaces the image's own entry point."""
    words = []
    for key in ("command", "args"):
        for number, word in enumerate(container.get(key, [])):
            words.append(_written(pod, expand(word, known), (*path, key, number)))
    return {"command": words, **({"entrypoint": "none"} if container.get("command") else {})}


def _written(pod: Pod, text: Text, path: KeyPath) -> str:
    try:
        return written(text)
    except ValueError as error:
        pod.findings.mistake(path, str(error))
        return ""


# --- Limits ---------------------------------------------------------------------------------------


def _section_of(container: Mapping[str, Any], section: str) -> Mapping[str, Any]:
    resources: Mapping[str, Mapping[str, Any]] = container.get("resources", {})
    return resources.get(section, {})


def _limits(pod: Pod, path: KeyPath, container: Mapping[str, Any]) -> dict[str, Any]:
    """Return the limits of cores and memory; add what is wrong with resources."""
    limits, requests = _section_of(container, "limits"), _section_of(container, "requests")
    for section, values in (("limits", limits), ("requests", requests)):
        for name in values:
            _check_resource(pod, name, values[name], (*path, "resources", section, name))
    for name, request in requests.items():
        at = (*path, "resources", "requests", name)
        if name in limits and parse_quantity(request) > parse_quantity(limits[name]):
            pod.findings.mistake(at, f"{request} is more than the limit, {limits[name]}")
        elif name == GPU and request != limits.get(name):
            pod.findings.mistake(at, "differs from the limit", "GPUs have the same for both")
        elif name in _LIMITS and name not in limits:
            text = "nothing is reserved, and the task is not limited; set resources.limits"
            pod.findings.note(at, "approximated", text)
    made: dict[str, Any] = {}
    if cores := parse_quantity(limits.get("cpu", 0)):
        made["cpus"] = as_cores(cores)
    if memory := parse_quantity(limits.get("memory", 0)):
        made["memory"] = as_size(memory)
    return made


def _check_resource(pod: Pod, name: str, value: object, path: KeyPath) -> None:
    number = parse_quantity(value)
    if name == "memory" and 0 < number < _WHOLE_BYTES:
        hint = f"write {str(value).rstrip('m')}Mi; m is a thousandth"
        pod.findings.mistake(path, f"{value} is less than a byte", hint)
    elif name == GPU and number.denominator != 1:
        pod.findings.mistake(path, f"{value} is not a whole number of GPUs")
    elif name == "ephemeral-storage" or name.startswith("hugepages-"):
        pod.findings.note(path, "ignored", "the engine does not limit it")
    elif "/" in name and name != GPU:
        pod.findings.note(path, "ignored", f"devices are those of {GPU}")
    elif name not in (*_LIMITS, GPU):
        hint = closest(name, (*_LIMITS, GPU)) or f"known: cpu, memory, {GPU}"
        pod.findings.mistake(path, "there is no such resource", hint)


def _gpus(container: Mapping[str, Any]) -> int:
    return math.ceil(parse_quantity(_section_of(container, "limits").get(GPU, 0)))


# --- Variables: `env`, `envFrom`, and what they refer to ------------------------------------------

_SOURCES = ("configMapKeyRef", "secretKeyRef", "fieldRef", "resourceFieldRef")


def _variables(pod: Pod, container: Mapping[str, Any], path: KeyPath) -> dict[str, Text]:
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
        if text is not None:
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
        return expand(variable.get("value", ""), known)
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
    reference, at = source[kind], (*at, kind)
    if kind == "fieldRef":
        return _value_of_field(pod, reference, at)
    if kind == "resourceFieldRef":
        return _value_of_resource(pod, container, reference, at)
    return _value_of_key(pod, "Secret" if kind == "secretKeyRef" else "ConfigMap", reference, at)


# --- ConfigMaps and Secrets -----------------------------------------------------------------------


def _value_of_key(
    pod: Pod, kind: MapKind, reference: Mapping[str, Any], path: KeyPath
) -> Text | None:
    name, optional = reference["name"], reference.get("optional", False)
    found = pod.find_map(kind, name, optional, (*path, "name"))
    if found is None:
        return None
    if reference["key"] not in found.values:
        if not optional:
            pod.refuse_key((*path, "key"), kind, name, found)
        return None
    return _text(pod, found.values[reference["key"]], (*path, "key"))


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
        found = pod.find_map(kind, reference["name"], reference.get("optional", False), at)
        for name, content in (found.values if found else {}).items():
            if found and name in found.binary:
                continue  # the kubelet makes variables of `data` alone
            text = _text(pod, content, at)
            if text is not None:
                made[f"{prefix}{name}"] = text
    return made


def _text(pod: Pod, content: bytes, path: KeyPath) -> Text | None:
    text = text_of(content)
    if text is None:
        pod.findings.mistake(path, "has bytes that are not the text of a variable")
        return None
    return plain(text)


# --- Fields of the pod ----------------------------------------------------------------------------


def _value_of_field(pod: Pod, reference: Mapping[str, Any], path: KeyPath) -> Text | None:
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
        return pod.annotations_of_operator.get(name) or plain(pod.annotations.get(name, ""))
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
