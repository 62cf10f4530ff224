"""Lines that libraries print at every start, whatever the program does (pure).

They say nothing about a run: they are left out on a terminal and among the last words of a task,
and remain in its log.
"""

from __future__ import annotations

import re

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
    """Return whether a line is what TensorFlow prints when it is imported or looks for GPUs."""
    return _LINE.match(line) is not None
