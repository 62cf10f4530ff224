"""Put Plotly's JavaScript into emulator/report/plotly/, for report.html.

    .venv/bin/python scripts/vendor_plotly.py

The basic bundle has the only two kinds of traces that reports draw, scatter and bar, and is a
quarter of the whole library. Needs npm, and the package zopfli, whose archives are 4 % smaller than
those of gzip: each page has one. The archive is the same at every call.
"""

from __future__ import annotations

import json
import subprocess
import tarfile
import tempfile
from importlib import import_module
from pathlib import Path

PACKAGE, VERSION = "plotly.js-basic-dist-min", "4.1.1"
TARGET = Path(__file__).resolve().parents[1] / "emulator" / "report" / "plotly"


def main() -> None:
    """Fetch the package and write its script, gzipped, and its licence."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "pack", "--json", f"{PACKAGE}@{VERSION}"]
        done = subprocess.run(command, cwd=folder, check=True, capture_output=True)
        (package,) = json.loads(done.stdout)
        with tarfile.open(Path(folder) / package["filename"]) as archive:
            script = archive.extractfile("package/plotly-basic.min.js")
            licence = archive.extractfile("package/LICENSE")
            assert script is not None
            assert licence is not None
            TARGET.mkdir(exist_ok=True)
            source = script.read()
            packed = import_module("zopfli.gzip").compress(source)
            (TARGET / "plotly-basic.min.js.gz").write_bytes(packed)
            (TARGET / "LICENSE").write_bytes(licence.read())
    print(f"plotly.js {VERSION}: {len(source)} bytes, in {TARGET}")


if __name__ == "__main__":
    main()
