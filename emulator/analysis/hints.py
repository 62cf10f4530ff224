"""Known error texts in the output of failed tasks, each with one line of advice (pure).

One entry of `HINTS` is everything that there is to know about one of them: a recorded output in
tests/analysis/outputs/, named like the entry, is its test, and docs/troubleshooting.md has a
section with its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from emulator.analysis.last_words import about_the_end

DOCS = "docs/troubleshooting.md"


@dataclass(frozen=True)
class Hint:
    """One known error."""

    name: str
    """Also the anchor of its section in the documentation."""
    pattern: re.Pattern[str] = field(repr=False)
    """Found in a line of the output."""
    advice: str
    """One sentence: what to do."""

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

HINTS: Sequence[Hint] = (
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


def tells(line: str) -> bool:
    """Return whether a line has a known error."""
    return any(hint.pattern.search(line) for hint in HINTS)


def find(outputs: Mapping[str, Sequence[str]]) -> Iterator[Found]:
    """Yield the known errors in the outputs of failed tasks, each once."""
    ends = {task: about_the_end(lines) for task, lines in outputs.items()}
    for hint in HINTS:
        lines = {
            task: line
            for task, end in ends.items()
            if (line := next((one for one in end if hint.pattern.search(one)), None)) is not None
        }
        if lines:
            yield Found(hint, tuple(lines), next(iter(lines.values())).strip())
