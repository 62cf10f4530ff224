"""Changes to Kubernetes' source: what a container without all capabilities can't do, and manners.

usage: python3 -m scripts.kubernetes.patches SOURCE_FOLDER
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Patch:
    """One text that is replaced by another, and stands in the file exactly once."""

    path: str
    old: str
    new: str
    why: str


SHIM = "pkg/kubelet/dockershim"
CREATED = "createConfig.HostConfig.OomScoreAdj"
NO_LOWER_SCORES = "An OOM score below 0 needs CAP_SYS_RESOURCE."
PATCHES = (
    Patch(
        f"{SHIM}/docker_sandbox.go",
        "defaultSandboxOOMAdj int = -998",
        "defaultSandboxOOMAdj int = 0",
        NO_LOWER_SCORES,
    ),
    Patch(
        f"{SHIM}/helpers_linux.go",
        f"{CREATED} = int(rOpts.OomScoreAdj)\n",
        f"{CREATED} = int(rOpts.OomScoreAdj)\nif {CREATED} < 0 {{\n{CREATED} = 0\n}}\n",
        f"{NO_LOWER_SCORES} Pods whose requests are their limits ask for -997.",
    ),
    Patch(
        f"{SHIM}/cm/container_manager_linux.go",
        "dockerOOMScoreAdj = -999",
        "dockerOOMScoreAdj = 0",
        "The machine's Docker engine is not ours to change.",
    ),
    Patch(
        "pkg/kubelet/cm/container_manager_linux.go",
        "b := KernelTunableModify",
        "b := KernelTunableWarn",
        "It would write vm.overcommit_memory, kernel.panic and kernel.panic_on_oops.",
    ),
    Patch(
        "pkg/volume/hostpath/host_path.go",
        "os.MkdirAll(pv.Spec.HostPath.Path, 0750)",
        "os.MkdirAll(pv.Spec.HostPath.Path, 0777)",
        "Tasks that are not root write to their volume, as with other provisioners.",
    ),
)


def apply(source: Path) -> None:
    """Change the source. Raises ValueError where it is not what a patch was made for."""
    for patch in PATCHES:
        path = source / patch.path
        text = path.read_text()
        if text.count(patch.old) != 1:
            raise ValueError(f"{patch.path} has {patch.old!r} {text.count(patch.old)} times")
        path.write_text(text.replace(patch.old, patch.new))
        print(f"  {patch.path}: {patch.why}")


if __name__ == "__main__":
    apply(Path(sys.argv[1]))
