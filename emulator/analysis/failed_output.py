"""What the output of failed tasks says (pure): the lines why a task ended, and known errors.

The last lines alone often do not say why a task ended: an exception's own line is followed by a
long message, by the table of torchrun, by stack frames of C++ or by complaints of other libraries
at exit. So the lines of the last exceptions are kept, and the rest are the last lines.
`RunFolder.tail` bounds how much of a log is read, so a run that was taken over or is judged again
has the same words.

One entry of `HINTS` is everything that there is to know about a known error: a recorded output in
tests/analysis/outputs/, named like the entry, is its test, and docs/troubleshooting.md has a
section with its name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType

from emulator.metrics.steps import json_event

MOST = 12
"""Lines that are shown of a task; marks of left out lines do not count."""
WIDTH = 500
"""Characters of a line; a longer one is cut in its middle."""
EXCEPTIONS = 3
"""The last exceptions whose lines are kept: a chain, or one of a child process and its parent's."""
BEFORE = 100
"""Lines before these exceptions that may be about them, such as warnings of C++ code."""
LEFT_OUT = "…"
"""Stands for lines that were left out."""

# What a process puts before every line, such as `[rank0]: `, is the group.
_HEADER = re.compile(r"(.*)\bTraceback \(most recent call last\):\s*")
# Python prints these for errors that end nothing, such as those in destructors at exit.
_IGNORED = re.compile(r"Exception ignored (?:in|while|on)\b")
# Of processes that print at once, the lines of a traceback may be mixed with those of another.
_NAMED = re.compile(r"(?:\S+ )?(?:\w+\.)*[A-Z]\w*(?:Error|Exception): \S.*")
_REDRAWN = re.compile(r"[\r\b]+")
# Blank lines, and the marks that Python prints below a line of source.
_EMPTY = re.compile(r"(?:\[\w+\]:)?[\s^~]*")


@dataclass(frozen=True)
class Raised:
    """One traceback, by numbers of lines."""

    header: int
    line: int
    """The exception's own line, with its type and message."""


def exceptions(lines: Sequence[str]) -> list[Raised]:
    """Return the exceptions that were printed, in order; none that Python has ignored."""
    found: list[Raised] = []
    header: int | None = None
    prefix, ignored = "", False
    for number, (before, line) in enumerate(pairwise(["", *lines])):
        if match := _HEADER.fullmatch(line):
            header, prefix = number, match[1]
            ignored = _IGNORED.search(before) is not None
        elif header is not None:
            text = line.removeprefix(prefix)
            if text.strip() and not text[0].isspace():  # neither a frame nor its source
                if not ignored:
                    found.append(Raised(header, number))
                header = None
    return found


def about_the_end(lines: Sequence[str]) -> Sequence[str]:
    """Return the lines in which the reason of a failure is looked for."""
    last = exceptions(lines)[-EXCEPTIONS:]
    begin = last[0].header - BEFORE if last else len(lines) - BEFORE
    return lines[max(0, begin) :]


def last_words(
    lines: Sequence[str], most: int = MOST, *, tells: Callable[[str], bool] = lambda line: False
) -> tuple[str, ...]:
    """Return the lines that say why a task ended: those of its last exceptions, and the last ones.

    `tells` says whether a line is worth keeping for other reasons. Blank lines are left out, and so
    are the marks below a line of source, what libraries print at every start, and lines of JSON
    that report a step: the record has them.
    """
    lines = [shown for line in lines if not _EMPTY.fullmatch(shown := _shown(line))]
    lines = [line for line in lines if not is_boilerplate(line)] or lines
    lines = [line for line in lines if not _is_step(line)] or lines
    lines = _each_traceback_once(lines)
    begin = len(lines) - len(about_the_end(lines))
    telling = [number for number in range(begin, len(lines)) if tells(lines[number])]
    # A task that was restarted has often raised the same one each time: the last one is enough.
    latest = {lines[one.line]: one for one in exceptions(lines)[-EXCEPTIONS:]}
    raised = sorted(latest.values(), key=lambda one: one.line)
    wanted = [one.line for one in reversed(raised)]
    if raised:
        # A message may have more lines, of which the first ones say most.
        message = range(raised[-1].line, min(raised[-1].line + 3, len(lines)))
        wanted = [*wanted[:1], *telling[:1], *message, *wanted[1:]]
    wanted += telling[:2]
    wanted += [n for n in reversed(range(begin, len(lines))) if _NAMED.fullmatch(lines[n])][:1]
    important = set(list(dict.fromkeys(wanted))[: most // 2])
    kept = set(important)
    for number in reversed(range(len(lines))):
        if len(kept) >= most:
            break
        kept.add(number)
    return tuple(_marked(lines, sorted(kept)))


def _each_traceback_once(lines: Sequence[str]) -> list[str]:
    """Return the lines with the last of equal tracebacks alone, and how often it was there."""
    raised = exceptions(lines)
    texts = [tuple(lines[one.header : one.line + 1]) for one in raised]
    counts = Counter(texts)
    shown = {one.line: counts[text] for text, one in dict(zip(texts, raised, strict=True)).items()}
    repeated = {
        number
        for one in raised
        if one.line not in shown
        for number in range(one.header, one.line + 1)
    }
    return [
        f"{line} ({shown[number]} times)" if shown.get(number, 1) > 1 else line
        for number, line in enumerate(lines)
        if number not in repeated
    ]


def _is_step(line: str) -> bool:
    """Return whether a line is JSON that reports a step."""
    return (
        line.startswith("{") and (found := json_event(line)) is not None and found.event == "step"
    )


def _marked(lines: Sequence[str], kept: Sequence[int]) -> list[str]:
    """Return the kept lines, with a mark where lines between them were left out."""
    words: list[str] = []
    for before, number in zip([None, *kept], kept, strict=False):
        if before is not None and number != before + 1:
            words.append(LEFT_OUT)
        words.append(lines[number])
    return words


def _shown(line: str) -> str:
    """Return a line in its last state, if it was redrawn, and cut if it is long."""
    parts = [part for part in _REDRAWN.split(line) if part.strip()]
    text = parts[-1] if parts else ""
    if len(text) <= WIDTH:
        return text
    end = WIDTH // 3
    return f"{text[: WIDTH - end]} {LEFT_OUT} {text[-end:]}"


_ABSL = r"[IWE]\d{4} \d\d:\d\d:[\d.]+ +\d+ "
_TSL = r"\d{4}-\d\d-\d\d \d\d:\d\d:[\d.]+: [IWE] "
_STARTS = "|".join(
    (
        "oneDNN custom operations are on",
        "Could not find cuda drivers on your machine",
        "This TensorFlow binary is optimized to use available CPU instructions",
        "failed call to cuInit",
        "Unable to register cu[A-Za-z]+ factory",
        "computation placer already registered",
        "TF-TRT Warning: Could not find TensorRT",
        "retrieving CUDA diagnostic information",
        "Cannot dlopen some GPU libraries",
    )
)
_LINE = re.compile(
    rf"(?:{_ABSL}|{_TSL})[\w./+-]+:\d+\] (?:{_STARTS})"
    r"|WARNING: All log messages before absl::InitializeLog\(\) is called"
    r"|To enable the following instructions: .* rebuild TensorFlow with"
)


def is_boilerplate(line: str) -> bool:
    """Return whether a line is what TensorFlow prints when it is imported or looks for GPUs.

    Such lines say nothing about a run: they are left out on a terminal and among the last words of
    a task, and remain in its log.
    """
    return _LINE.match(line) is not None


# --- Known errors ---------------------------------------------------------------------------------

DOCS = "docs/troubleshooting.md"


@dataclass(frozen=True)
class Place:
    """What a task ran in."""

    image: str = ""
    """The reference of its image; empty: it ran on this machine."""
    python: str = ""
    """The Python of this machine that it ran in."""


NOWHERE = Place()
NO_PLACES: Mapping[str, Place] = MappingProxyType({})


@dataclass(frozen=True)
class Hint:
    """One known error."""

    name: str
    """Also the anchor of its section in the documentation."""
    pattern: re.Pattern[str] = field(repr=False)
    """Found in a line of the output."""
    advice: str
    """One sentence: what to do."""
    advise: Callable[[str, Place], str] = lambda line, place: ""
    """The same for a line of a task that runs in a place; empty: there is nothing to add."""

    @property
    def docs(self) -> str:
        """Where it is explained."""
        return f"{DOCS}#{self.name}"


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns))


TLS = Hint(
    "tls",
    _any(
        # Python's ssl, so that of urllib, requests, pip and Keras' downloads.
        r"\[SSL: CERTIFICATE_VERIFY_FAILED\]",
        r"There was a problem confirming the ssl certificate",
        # curl, apt and git; wget.
        r"SSL certificate problem:|server certificate verification failed",
        r"Certificate verification failed: The certificate is NOT trusted",
        r"ERROR: cannot verify .*'s certificate",
    ),
    "The image does not trust the server's certificate, as in a network that intercepts TLS: add "
    "the CA bundle of this network to the image, and name it in SSL_CERT_FILE and "
    "REQUESTS_CA_BUNDLE.",
)

_NO_MODULE = re.compile(r"No module named '?([A-Za-z_]\w*)'?(?:$|[\s;])")
_IN_IMAGES = {"torch": "pytorch", "jax": "jax", "orbax": "jax", "tensorflow": "cpu", "keras": "cpu"}
"""The images that have a module which others lack."""
_PACKAGES = {
    "cv2": "opencv-python-headless",
    "PIL": "pillow",
    "sklearn": "scikit-learn",
    "skimage": "scikit-image",
    "yaml": "PyYAML",
    "dotenv": "python-dotenv",
}
"""What pip calls a module, if not by its name."""
_BUILT = re.compile(r"(?:.*/)?(emulator-(\w+)):[^/]*")


def _without_module(line: str, place: Place) -> str:
    """Return what to do about a module that a task does not have."""
    found = _NO_MODULE.search(line)
    if found is None or not (place.image or place.python):
        return ""
    module = found[1]
    if not place.image:
        return (
            f"{place.python} has no {module}: activate the environment that has it before `emulate "
            "up`, or name its Python with `--python PATH`."
        )
    package, built = _PACKAGES.get(module, module), _BUILT.fullmatch(place.image)
    if built is None:
        name = place.image.partition("@")[0]
        lines = f"`FROM {name}` and `RUN pip install {package}`"
        return f"{name} has no {module}: {_IN_DOCKERFILE.format(lines)}"
    if built[2] == "custom":
        return (
            f"The image of your Dockerfile has no {module}: add `RUN pip install {package}`, or if "
            "it is a file of yours, let `source:` have it."
        )
    if (image := _IN_IMAGES.get(module, built[2])) != built[2]:
        return f"{built[1]} has no {module}: `image: {image}`."
    lines = f"`FROM {built[1]}` and `RUN pip install {package}`"
    return f"{built[1]} has no {module}: {_IN_DOCKERFILE.format(lines)}"


_IN_DOCKERFILE = (
    "two lines of Dockerfile, {}, and `image: {{dockerfile: Dockerfile}}`, or if it is a file of "
    "yours, let `source:` have it."
)

HINTS: Sequence[Hint] = (
    Hint(
        "missing-module",
        _any(r"\bModuleNotFoundError: No module named ", r"^\S*python[\d.]*: No module named "),
        "What the task runs in has not this module: take an image that has it, or install it there "
        "with two lines of Dockerfile; if it is a file of yours, let `source:` have it.",
        _without_module,
    ),
    Hint(
        "keras-3-multi-worker",
        _any(
            r"Attempt to convert a value \(PerReplica:",
            r"tensorflow\.python\.distribute\.values\.PerReplica'>\) to a Tensor",
        ),
        "Model.fit of Keras 3 does not support MultiWorkerMirroredStrategy: set "
        "TF_USE_LEGACY_KERAS=1 in `env:`, with which `tf.keras` is Keras 2.",
    ),
    Hint(
        "keras-3-parameter-server",
        _any(
            r"pass this dataset to ClusterCoordinator\.create_per_worker_dataset",
            r"module 'keras\.utils' has no attribute 'experimental'",  # it has DatasetCreator
        ),
        "Model.fit of Keras 3 does not support ParameterServerStrategy: set TF_USE_LEGACY_KERAS=1 "
        "in `env:`, with which `tf.keras` is Keras 2.",
    ),
    Hint(
        "keras-3-removed",
        _any(r"is not available with Keras 3\b"),
        "The program uses functions of TensorFlow 1 that Keras 3 does not have: set "
        "TF_USE_LEGACY_KERAS=1 in `env:`, with which `tf.keras` is Keras 2.",
    ),
    Hint(
        "role-without-id",
        _any(r"There is no id for task_type '\w+'", r"KeyError: 'evaluator'"),
        "Only chief and workers can use MultiWorkerMirroredStrategy: give the task's role another "
        "`command`, or leave the role out of `cluster`.",
    ),
    Hint(
        "nccl-without-gpu",
        _any(
            r"Distributed package doesn't have NCCL built in",
            # Of builds for GPUs: torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp.
            r"ProcessGroupNCCL is only supported with GPUs, no GPUs found",
        ),
        "NCCL needs GPUs, and the task has none: let the program use the backend gloo where "
        "`torch.cuda.is_available()` is false, or give the role `gpus: 1`.",
    ),
    Hint(
        "shared-memory",
        _any(
            r"killed by signal: Bus error",
            r"Unexpected bus error encountered in worker",
            r"unable to (?:allocate shared memory\(shm\)|write to file) .*No space left on device",
        ),
        "/dev/shm of the task is full: set a larger `shm_size` for its role, or use fewer workers "
        "in the DataLoader.",
    ),
    Hint(
        "disk-full",
        _any(
            r"No space left on device",
            r"\bENOSPC\b",
            r"inline_container\.cc:\d+\] \. unexpected pos \d+ vs \d+",  # of torch.save
        ),
        "The disk that the task wrote to was full: the shared volume has room for `shared_size`, "
        "or for 256 MiB where the scenario has a `disk: full`, and is else on the machine's disk.",
    ),
    Hint(
        "name-resolution",
        _any(
            r"Name or service not known",
            r"Temporary failure in name resolution",
            r"No address associated with hostname",
            r"Could not resolve host",
        ),
        "A host name is unknown in the task's network: tasks are reachable by their names, such as "
        "worker-0, and hosts outside only with `network: {internet: true}`.",
    ),
    TLS,
    Hint(
        "c10d-rendezvous",
        _any(
            r"\bRendezvousTimeoutError\b",
            r"\bRendezvousConnectionError\b",
        ),
        "torchrun did not find the other agents: its endpoint must be the address of one of the "
        "tasks, and the same for all.",
    ),
    Hint(
        "c10d-timeout",
        _any(
            r"Timed out after \d+ seconds waiting for clients",
            r"\bDistStoreError\b",
            r"DistNetworkError: The client socket has timed out",
        ),
        "A process waited in vain for the others of its group: look whether they have failed "
        "before, and whether WORLD_SIZE and the number of processes agree.",
    ),
)
"""The known errors, causes before what follows from them."""


@dataclass(frozen=True)
class Found:
    """A known error in the output of a run."""

    hint: Hint
    tasks: Sequence[str]
    """The tasks that have printed it."""
    line: str
    """The first line that has it."""
    advice: str
    """What to do, for where these tasks ran."""


def tells(line: str) -> bool:
    """Return whether a line has a known error."""
    return any(hint.pattern.search(line) for hint in HINTS)


def known_errors(
    outputs: Mapping[str, Sequence[str]], places: Mapping[str, Place] = NO_PLACES
) -> Iterator[Found]:
    """Yield the known errors in the outputs of failed tasks, each once.

    `places` are what these tasks ran in.
    """
    ends = {task: about_the_end(lines) for task, lines in outputs.items()}
    for hint in HINTS:
        lines = {
            task: line
            for task, end in ends.items()
            if (line := next((one for one in end if hint.pattern.search(one)), None)) is not None
        }
        if lines:
            task, line = next(iter(lines.items()))
            advice = hint.advise(line, places.get(task, NOWHERE)) or hint.advice
            yield Found(hint, tuple(lines), line.strip(), advice)
