"""`emulate export` as users meet it, with runs of the process engine. Tasks are shell scripts."""

from __future__ import annotations

import csv
import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from emulator.record.reader import Record
from tests.cli.typed import refusal, typed, write
from tests.conftest import Emulate, end, own, python, wait_for_line
from tests.plugins.exports.trace_format import problems, read

RUN = own("export")
SCRIPT = """\
i=0; while [ $i -lt 12 ]; do i=$((i+1)); sleep 0.1
echo '{"emulate": "step", "step": '$i', "examples": '$((i*32))', "loss": 1.'$i'}'; done
"""
KEYS = {"cluster": {"worker": 2}, "metrics": {"interval": "250ms"}, "success": "all-workers"}
TABLES = {"steps", "samples", "gpus", "gpu_tasks", "events", "faults"}


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Record]:
    """A finished run, which tests only read."""
    folder = tmp_path_factory.mktemp("exports")
    emulate = Emulate(folder / "runs")
    done = emulate.up(write(folder, SCRIPT, **KEYS), "--engine", "process").ended()
    yield Record(emulate.out / done.json["run_id"])
    emulate.reap()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_every_format_at_once(emulate: Emulate, record: Record, tmp_path: Path) -> None:
    done = emulate(
        *("export", "last", "--out", record.path.parent),
        *("--csv", tmp_path / "csv", "--parquet", tmp_path / "parquet"),
        *("--tensorboard", tmp_path / "tb", "--trace", tmp_path / "trace.json"),
    ).ended()
    assert done.stdout == ""
    assert [line.split(": ")[0] for line in done.stderr.splitlines()] == ["emulate"] * 4

    history, samples = lines(record.path / "history.jsonl"), lines(record.path / "samples.jsonl")
    steps = [entry for entry in history if entry["event"] == "step"]
    assert len(steps) == 24
    names = ("task", "wall", "step", "loss")
    exported = [[row[name] for name in names] for row in rows(tmp_path / "csv" / "steps.csv")]
    assert exported == [[str(entry[name]) for name in names] for entry in steps]
    used = [(task, str(one["cpu"])) for line in samples for task, one in line["tasks"].items()]
    assert used
    assert [(row["task"], row["cpu"]) for row in rows(tmp_path / "csv" / "samples.csv")] == used
    for name in TABLES:
        stored = pq.read_metadata(tmp_path / "parquet" / f"{name}.parquet")
        assert stored.num_rows == len(rows(tmp_path / "csv" / f"{name}.csv"))
        assert stored.metadata[b"run_id"] == record.run_id.encode()
    noted = json.loads((tmp_path / "csv" / "emulate-csv.json").read_text())
    (cores,) = (one for one in noted["columns"]["samples"] if one["name"] == "cpu_cores")
    assert (cores["type"], cores["unit"]) == ("float", "cores")

    runs = {path.parent.name for path in (tmp_path / "tb").glob("*/*tfevents*")}
    assert runs == {"job", "worker-0", "worker-1"}
    trace = read((tmp_path / "trace.json").read_text())
    assert problems(trace["traceEvents"]) == []
    assert trace["otherData"]["run_id"] == record.run_id
    assert sum(event.get("cat") == "step" for event in trace["traceEvents"]) == 22


def exported(record: Record, folder: Path) -> str:
    """Export into every format; return the messages."""
    options = ("--tensorboard", folder / "tb", "--trace", folder / "trace.json")
    return (
        typed("export", record.path, "--csv", folder, "--parquet", folder, *options).ended().stderr
    )


def test_again_into_the_same_place(record: Record, tmp_path: Path) -> None:
    exported(record, tmp_path)
    before = {path.name for path in tmp_path.rglob("*") if "tfevents" not in path.name}
    old = set(tmp_path.rglob("*tfevents*"))
    messages = exported(record, tmp_path)
    assert messages.count("replacing an earlier export") == 4
    now = set(tmp_path.rglob("*tfevents*"))
    assert len(now) == len(old) == 3
    # An open TensorBoard continues from a file to the next one by name.
    assert min(path.name for path in now) > max(path.name for path in old)
    assert {path.name for path in tmp_path.rglob("*") if "tfevents" not in path.name} == before


@pytest.mark.parametrize(
    ("option", "name"),
    [("--csv", "steps.csv"), ("--parquet", "events.parquet"), ("--trace", "trace.json")],
)
def test_a_file_that_is_no_export_is_left_alone(
    record: Record, tmp_path: Path, option: str, name: str
) -> None:
    mine = tmp_path / name
    mine.write_text("mine")
    target = mine if option == "--trace" else tmp_path
    assert str(mine) in refusal("export", record.path, option, target)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


def test_a_format_must_be_asked_for(record: Record) -> None:
    line = refusal("export", record.path)
    assert "Give one or several of: --csv DIR, --mlflow EXPERIMENT, --otel SERVICE" in line
    typed("export", "no-such-run", "--csv", "x").ended(2)


@pytest.mark.parametrize(
    ("option", "library"), [("--parquet", "pyarrow"), ("--tensorboard", "tensorboard")]
)
def test_a_missing_library_is_one_sentence_and_nothing_is_written(
    record: Record, tmp_path: Path, option: str, library: str
) -> None:
    # What Python's own machinery takes for "not installed".
    code = (
        f"import sys; sys.modules['{library}'] = None; from emulator.__main__ import main; main()"
    )
    done = python(code, "export", record.path, "--csv", "a", option, "b", cwd=tmp_path).ended(2)
    assert f"needs {library}, which is not installed here." in done.stderr
    assert f"`pip install {library}` installs it." in done.stderr
    assert list(tmp_path.iterdir()) == []
    others = ("--csv", "a", "--trace", "t.json")
    python(code, "export", record.path, *others, cwd=tmp_path).ended()


def test_a_run_without_steps_and_samples(emulate: Emulate, tmp_path: Path) -> None:
    emulate.up(write(tmp_path, "true"), "--engine", "process", "--run-id", RUN)
    messages = exported(Record(emulate.out / RUN), tmp_path / "out")
    nothing = "has no steps and no samples: their exports are empty"
    assert messages.startswith(f"emulate: {RUN} {nothing}\n")
    assert rows(tmp_path / "out" / "steps.csv") == []
    assert "emulate: nothing for `tensorboard" in messages
    assert rows(tmp_path / "out" / "events.csv")


def test_a_run_that_crashed(record: Record, tmp_path: Path) -> None:
    """Its history ends in the middle of a line, and it has no summary."""
    crashed = Record(tmp_path / "crashed")
    shutil.copytree(record.path, crashed.path)
    (crashed.path / "summary.json").unlink()
    history = crashed.path / "history.jsonl"
    whole = history.read_bytes().splitlines(keepends=True)
    step = next(n for n, line in enumerate(whole) if b'"step": 7' in line)
    history.write_bytes(b"".join(whole[:step]) + whole[step][:20])
    exported(crashed, tmp_path / "out")
    steps = rows(tmp_path / "out" / "steps.csv")
    assert max(int(row["step"]) for row in steps) == 6
    trace = read((tmp_path / "out" / "trace.json").read_text())
    assert problems(trace["traceEvents"]) == []
    assert trace["otherData"]["outcome"] == "running"


def test_a_run_in_progress(emulate: Emulate, tmp_path: Path) -> None:
    path = write(tmp_path, f"{SCRIPT}echo stepped; exec sleep 1000", **KEYS)
    options = ("--engine", "process", "--out", emulate.out, "--run-id", RUN)
    process = emulate.start("up", path, *options)
    wait_for_line(process, "worker-0 | stepped", "worker-1 | stepped")
    messages = exported(Record(emulate.out / RUN), tmp_path / "out")
    assert f"emulate: {RUN} is still running: the export has what was recorded so far\n" in messages
    assert max(int(row["step"]) for row in rows(tmp_path / "out" / "steps.csv")) == 12
    end(process, signal.SIGTERM).ended(130)
