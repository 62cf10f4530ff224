"""A real Kubernetes for tests: control plane and one kubelet, on this machine's Docker engine.

`build` makes the binaries from Debian's source package, `python3 -m scripts.kubernetes` runs them.
Only the standard library is used: this works before the project is installed.
"""
