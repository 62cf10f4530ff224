"""Certificates of this machine's own."""

from __future__ import annotations

import subprocess
from pathlib import Path


def certificate(folder: Path, address: str) -> tuple[Path, Path]:
    """Make a certificate for an address that nobody else trusts; return it and its key."""
    certificate, key = folder / "ca.pem", folder / "key.pem"
    names = ["-subj", "/CN=emulator tests", "-addext", f"subjectAltName=IP:{address}"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names]
    subprocess.run(
        [*command, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True
    )
    return certificate, key
