"""Keys, certificates and tokens, made with the machine's openssl."""

from __future__ import annotations

import base64
import json
import subprocess
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scripts.kubernetes.layout import API_PORT, API_SERVICE_IP, ISSUER, NODE, Layout

DAYS = "365"
SERVER_NAMES = (
    "IP:127.0.0.1",
    f"IP:{API_SERVICE_IP}",
    "DNS:localhost",
    "DNS:kubernetes",
    "DNS:kubernetes.default",
    "DNS:kubernetes.default.svc",
    "DNS:kubernetes.default.svc.cluster.local",
)
USERS = {
    "admin": "/O=system:masters/CN=admin",
    # Not as itself alone: each controller would need a service account of its own then.
    "controllers": "/O=system:masters/CN=system:kube-controller-manager",
    "scheduler": "/CN=system:kube-scheduler",
    "kubelet": f"/O=system:nodes/CN=system:node:{NODE}",
    "node-services": "/O=system:masters/CN=system:node-services",
}
"""The cluster's users, by the names that the API server knows them by."""


def make_all(layout: Layout) -> None:
    """Make what the cluster needs where it is missing: keys stay the same over a restart."""
    layout.pki.mkdir(parents=True, exist_ok=True, mode=0o700)
    if (layout.pki / "complete").exists():
        return
    pki = layout.pki
    _key(pki / "ca.key")
    _openssl("req", "-x509", "-new", "-key", pki / "ca.key", "-subj", "/CN=emulator-test-ca",
             "-days", DAYS, "-out", pki / "ca.crt")  # fmt: skip
    _key(pki / "service-accounts.key")
    _openssl("rsa", "-in", pki / "service-accounts.key", "-pubout",
             "-out", pki / "service-accounts.pub")  # fmt: skip
    names = ",".join(SERVER_NAMES)
    sign(pki, "api-server", "/CN=kube-apiserver", f"subjectAltName={names}", usage="serverAuth")
    for name, subject in USERS.items():
        sign(pki, name, subject)
        write_secret(
            layout.kubeconfig(name), json.dumps(certificate_config(layout, name), indent=1)
        )
    (pki / "complete").touch()


def sign(pki: Path, name: str, subject: str, *more: str, usage: str = "clientAuth") -> None:
    """Make `<name>.key` and a certificate of the cluster's authority for it."""
    key, request, extensions = (pki / f"{name}.{end}" for end in ("key", "csr", "ext"))
    _key(key)
    _openssl("req", "-new", "-key", key, "-subj", subject, "-out", request)
    extensions.write_text("\n".join([f"extendedKeyUsage={usage}", *more]))
    _openssl("x509", "-req", "-in", request, "-CA", pki / "ca.crt", "-CAkey", pki / "ca.key",
             "-CAcreateserial", "-days", DAYS, "-extfile", extensions,
             "-out", pki / f"{name}.crt")  # fmt: skip
    request.unlink()
    extensions.unlink()


def certificate_config(layout: Layout, name: str) -> dict[str, Any]:
    """Return the kubeconfig of a user with a certificate."""
    return _config(
        layout,
        {
            "client-certificate-data": _encoded(layout.pki / f"{name}.crt"),
            "client-key-data": _encoded(layout.pki / f"{name}.key"),
        },
    )


def token_config(layout: Layout, token: str, namespace: str) -> dict[str, Any]:
    """Return the kubeconfig of a service account."""
    return _config(layout, {"token": token}, namespace)


def token(layout: Layout, namespace: str, account: str, uid: str, seconds: float) -> str:
    """Return a token of a service account that expires in `seconds`, or has if they are negative.

    The API server gives tokens of ten minutes or more: it can't be asked for one that expires
    within a test, so that this signs one with the API server's own key.
    """
    now = int(time.time())
    claims = {
        "iss": ISSUER,
        "aud": [ISSUER],
        "sub": f"system:serviceaccount:{namespace}:{account}",
        "iat": min(now, int(now + seconds) - 1),
        "nbf": min(now, int(now + seconds) - 1),
        "exp": int(now + seconds),
        "jti": str(uuid.uuid4()),
        "kubernetes.io": {
            "namespace": namespace,
            "serviceaccount": {"name": account, "uid": uid},
        },
    }
    signed = f"{_part({'alg': 'RS256', 'typ': 'JWT'})}.{_part(claims)}"
    signature = subprocess.run(
        ["openssl", "dgst", "-sha256", "-sign", str(layout.pki / "service-accounts.key")],
        input=signed.encode(),
        capture_output=True,
        check=True,
    ).stdout
    return f"{signed}.{_base64url(signature)}"


def write_secret(path: Path, text: str) -> None:
    """Write a file that only its owner may read."""
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_text(text)


def _config(layout: Layout, user: dict[str, str], namespace: str = "default") -> dict[str, Any]:
    name = "emulator-test"
    server = {
        "server": f"https://127.0.0.1:{API_PORT}",
        "certificate-authority-data": _encoded(layout.pki / "ca.crt"),
    }
    context = {"cluster": name, "user": name, "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "contexts": [{"name": name, "context": context}],
        "clusters": [{"name": name, "cluster": server}],
        "users": [{"name": name, "user": user}],
    }


def _key(path: Path) -> None:
    _openssl("genrsa", "-out", path, "2048")
    path.chmod(0o600)


def _openssl(*arguments: str | Path) -> None:
    command: Sequence[str] = ["openssl", *map(str, arguments)]
    subprocess.run(command, check=True, capture_output=True)


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def _part(value: dict[str, Any]) -> str:
    return _base64url(json.dumps(value, separators=(",", ":")).encode())


def _base64url(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()
