"""How much of what users give us is taken: anything larger is refused in a sentence.

Each is far above what a training on one machine needs, and small enough that the largest scenario
is read within two seconds and 200 MB. docs/reliability.md is the users' page on them.
"""

from __future__ import annotations

__all__ = [
    "BASELINES_BYTES",
    "CONTEXT_BYTES",
    "CONTEXT_FILES",
    "DEPTH",
    "DOCKERFILE_BYTES",
    "FAULTS",
    "GIVEN_BYTES",
    "GLOB",
    "GLOBS",
    "LINKS",
    "PROGRAM_BYTES",
    "PROGRAM_FILES",
    "SCENARIO_BYTES",
    "STRIKES",
    "TASKS",
    "TRACE_BYTES",
    "TRACE_ROWS",
    "VALUES",
    "VARIANTS",
    "VARIED_VALUES",
    "WORD",
]

MIB = 2**20

SCENARIO_BYTES = 256 * 2**10
"""Of a scenario's file, and of the value of a `--set`."""
VALUES = 5000
"""Keys and values of a scenario, each alias counted as what it stands for."""
DEPTH = 50
"""Lists and mappings inside one another, and the parts of a key of `--set`."""

TASKS = 500
"""Of a cluster, all roles together: each is told the addresses of all others."""
GIVEN_BYTES = 16 * MIB
"""Of commands and variables of all tasks together, as the scenario gives them."""
FAULTS = 100
"""Entries of `faults`."""
STRIKES = 10_000
"""Of all faults together, against one task each: `random`, traces and globs make several."""
LINKS = 100_000
"""Pairs of tasks between which a network is changed, of all faults and `network` together."""
GLOB = 200
"""Characters of a task's name or glob."""
GLOBS = 1000
"""Different globs of a scenario's faults, each of which is held against every task."""
WORD = 100_000
"""Bytes of a word of a command and of a variable; the kernel takes 128 KiB."""

VARIANTS = 1000
"""Combinations of `parametrize`, or of `--vary`."""
VARIED_VALUES = 100_000
"""Keys and values of all variants of `parametrize` together: each variant is read and checked."""

BASELINES_BYTES = 16 * MIB
"""Of the baselines that are stored beside scenarios."""

TRACE_BYTES = 4 * MIB
TRACE_ROWS = 10_000

PROGRAM_BYTES = 256 * MIB
"""Of `program.source`: it is held in memory while it is copied into containers."""
PROGRAM_FILES = 10_000
"""Files and folders of it."""

DOCKERFILE_BYTES = MIB
CONTEXT_BYTES = 256 * MIB
"""Of a build context without what `.dockerignore` leaves out; it is held in memory as well."""
CONTEXT_FILES = 10_000
