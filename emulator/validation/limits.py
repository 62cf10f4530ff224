"""Upper limits on what users provide; anything larger is refused with an error message.

Each is far above what training on one machine needs. They are of the size, the depth and the
counts of what is written: a scenario is code, so what it makes of that is its own affair.
Described for users in docs/reliability.md.
"""

from __future__ import annotations

MIB = 2**20

SCENARIO_BYTES = MIB
"""A scenario file, and the value of a `--set`."""
MANIFEST_BYTES = 2 * MIB
"""A file of manifests, such as a TFJob with its ConfigMaps; etcd takes 1.5 MiB of an object."""
DOCUMENTS = 100
"""Documents of a file of manifests."""
VALUES = 5000
"""Keys and values of a scenario, with YAML aliases expanded."""
DEPTH = 50
"""Nesting depth of lists and mappings, and parts of a `--set` key."""

TASKS = 500
"""Tasks of all roles together; each gets the addresses of all others."""
FAULTS = 100
"""Entries of `faults`."""
HELPERS = 50
"""Entries of `helpers`."""
MOUNTS = 50
"""Mounts of a task, from one section of a scenario."""
FILES = 200
"""Files that a scenario puts into a container, from one section of it."""
PARTS = 20
"""Init steps of a task."""
PORTS = 50
"""Published ports of a task."""
GLOB = 200
"""Characters of a task's name or glob."""
WORD = 100_000
"""Bytes of a command's argument or a variable; the kernel accepts 128 KiB."""

VARIANTS = 1000
"""Combinations of `parametrize`, or of `--vary`."""


TRACE_BYTES = 4 * MIB
TRACE_ROWS = 10_000

PROGRAM_BYTES = 200 * MIB
"""`program.source`, which is in memory while it is copied into containers."""
PROGRAM_FILES = 10_000
"""Files and folders in `program.source`."""

DOCKERFILE_BYTES = MIB
CONTEXT_BYTES = 256 * MIB
"""A build context without the files in `.dockerignore`; also in memory."""
CONTEXT_FILES = 10_000
