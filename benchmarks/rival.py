"""`emulate sweep` beside ckpt-chaos: the same scripts of PyTorch, on the same machine, in one run.

Each script has 50 steps of 0.1 s and saves every ten. ckpt-chaos, which is installed from the
package index, is told which file is the result; `emulate sweep` is told nothing. What both are
judged by is the word for each moment that both have tried: of the second save, just before a file
is opened or renamed, and in the middle of its content.

    python benchmarks/rival.py --python PYTHON_WITH_TORCH --at-once 4
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

SCRIPT = """
import json, os, sys, time
import torch

how, out = sys.argv[1:]
os.makedirs(out, exist_ok=True)
path, told = f"{out}/last.pt", f"{out}/step.json"
torch.manual_seed(0)
model = torch.nn.Sequential(*(torch.nn.Linear(32, 32) for _ in range(5)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
begin = 0
try:
    saved = torch.load(path)
    begin = json.load(open(told))["step"] if how == "two-files" else saved["step"]
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
except FileNotFoundError:
    pass
except Exception:
    if how != "two-files":  # that one starts again, as many scripts do
        raise
for step in range(begin + 1, 51):
    x = torch.randn(16, 32, generator=torch.Generator().manual_seed(step))
    loss = ((model(x) - x.flip(1)) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(0.1)
    print(f"step {step} loss {loss.item():.6f}", flush=True)
    if step % 10 == 0:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        new = f"{path}.tmp" if how == "renamed" else path
        torch.save(state, new)
        if how == "renamed":
            os.replace(new, path)
        if how == "two-files":
            with open(told, "w") as file:
                json.dump({"step": step}, file)
torch.save(model.state_dict(), f"{out}/final.pt")
"""
SCRIPTS = {
    "renamed": "torch.save, then a rename",
    "in-place": "torch.save over the last file",
    "two-files": "weights and step in two files",
}
SECOND = re.compile(r"#\d+ (?:torch\.save|open|os\.rename):(\S+) \[(\w+)\]")
"""The name of a moment of ckpt-chaos."""


@dataclass(frozen=True)
class Found:
    """What a tool says of a script."""

    seconds: float
    words: Counter[str]
    moments: dict[str, str]
    """The words of the moments of the second save that both tools have."""


def timed(command: list[str], folder: Path) -> float:
    """Return how long a command takes."""
    began = time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{command[0]}: {done.stdout}{done.stderr}")
    return time.perf_counter() - began


def theirs(tool: Path, python: str, how: str, at_once: int, folder: Path) -> Found:
    """Return what ckpt-chaos says."""
    report = folder / "theirs.xml"
    command = [str(tool), "run", f"--work={folder / 'theirs'}", "--result-file={out}/final.pt"]
    command += [f"--jobs={at_once}", f"--junit={report}", "--", python, "train.py", how, "{out}"]
    seconds = timed(command, folder)
    words, moments, seen = Counter[str](), dict[str, str](), Counter[str]()
    for case in ET.parse(report).getroot().iter("testcase"):
        name = case.get("name", "")
        if name.startswith("no crash"):
            continue
        failure = case.find("failure")
        word = "PASS" if failure is None else failure.get("message", "").partition(":")[0]
        words[word] += 1
        if match := SECOND.fullmatch(name):
            which = f"{match[1]} {match[2]}" + (" rename" if "rename" in name else "")
            seen[which] += 1
            if seen[which] == 2:
                moments[which] = word
    return Found(seconds, words, moments)


def ours(python: str, how: str, at_once: int, folder: Path) -> Found:
    """Return what `emulate sweep` says."""
    command = [sys.executable, "-m", "emulator", "sweep", "--engine=process", f"--python={python}"]
    command += [f"--at-once={at_once}", f"--out={folder / 'ours'}", "--run-id=sweep", "--json"]
    began = time.perf_counter()
    done = subprocess.run(
        [*command, "--", "python", "train.py", how, "{out}"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1, 3):
        raise SystemExit(f"{how}: {done.stderr}")
    seconds = time.perf_counter() - began
    points = json.loads(done.stdout)["points"]
    moments, writes = dict[str, str](), dict[str, list[str]]()
    for point in points:
        call, path = re.match(r"(\w+) \d+ of (\S+)", point["moment"]).groups()  # type: ignore[union-attr]
        name = Path(path).name
        if call == "write":
            writes.setdefault(name, []).append(point["outcome"])
        if call in ("truncate", "rename"):
            moments[f"{name} before" + (" rename" if call == "rename" else "")] = point["outcome"]
    for name, outcomes in writes.items():
        moments[f"{name} torn"] = outcomes[len(outcomes) // 2]
    return Found(seconds, Counter(point["outcome"] for point in points), moments)


def shown(found: Found) -> str:
    """Return a line of what a tool has said."""
    count = found.words.total()
    words = ", ".join(f"{word} {n}" for word, n in found.words.most_common())
    return f"{count} moments in {found.seconds:.0f} s ({found.seconds / count:.1f} s each): {words}"


def main() -> None:
    """Run both on each script, and print what they say."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", required=True, help="a Python that has PyTorch")
    parser.add_argument("--at-once", type=int, default=4)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        pip = [str(folder / "venv" / "bin" / "pip"), "install", "--quiet", "ckpt-chaos"]
        subprocess.run(pip, check=True, capture_output=True)
        tool = folder / "venv" / "bin" / "ckpt-chaos"
        for how, title in SCRIPTS.items():
            own = folder / how
            own.mkdir()
            (own / "train.py").write_text(SCRIPT)
            rival = theirs(tool, asked.python, how, asked.at_once, own)
            found = ours(asked.python, how, asked.at_once, own)
            print(f"{title}\n  ckpt-chaos: {shown(rival)}\n  emulate:    {shown(found)}")
            print(f"  a moment: {found_ratio(found, rival):.2f} of its time")
            for which in found.moments.keys() & rival.moments.keys():
                print(f"  {which}: {rival.moments[which]} / {found.moments[which]}")


def found_ratio(found: Found, rival: Found) -> float:
    """Return the seconds of a moment, as a share of the other's."""
    each = [one.seconds / one.words.total() for one in (found, rival)]
    return each[0] / each[1]


if __name__ == "__main__":
    main()
