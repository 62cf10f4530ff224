"""Baselines: stored and read by several, and a verdict of them from the run folder alone."""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from emulator.analysis.expectations import Verdict
from emulator.engines.memory import Script
from emulator.errors import ScenarioError, UsageError
from emulator.metrics.gpu import Gpu, GpuInventory
from emulator.planning.baseline import (
    Baseline,
    BaselineFile,
    ThroughputReference,
    baseline_key,
    conditions,
    machine,
    machine_of,
    measured,
    reference_beside,
)
from emulator.planning.requested import RequestedScenario
from emulator.record.reader import Record
from emulator.results import Result, judge
from emulator.scenario.given import Given
from emulator.scenario.loader import parse
from tests.report.runs import ran, step_line

STORED = Baseline(steps_per_second=66.3, engine="docker", machine="8 x A", measured="2026-11-20")


# --- The file -----------------------------------------------------------------------------------


def test_what_is_put_is_got_and_the_file_is_for_people(tmp_path: Path) -> None:
    baselines = BaselineFile(tmp_path / "baselines.json")
    assert baselines.get("a docker") is None
    baselines.put("b docker", STORED)
    baselines.put("a docker", STORED.model_copy(update={"of_reference": 0.5}))
    baselines.put("b docker", STORED)
    assert baselines.get("a docker") == STORED.model_copy(update={"of_reference": 0.5})
    assert baselines.get("b docker") == STORED
    assert baselines.get("c docker") is None
    assert (tmp_path / "baselines.json").read_text().splitlines()[:4] == [
        "{",
        '  "a docker": {',
        '    "steps_per_second": 66.3,',
        '    "of_reference": 0.5,',
    ]
    # No lock and no half of a file is left beside it.
    assert os.listdir(tmp_path) == ["baselines.json"]


def test_a_file_that_is_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "baselines.json").symlink_to(tmp_path / "there" / "b.json")
    BaselineFile(tmp_path / "baselines.json").put("a docker", STORED)
    assert (tmp_path / "baselines.json").is_symlink()
    assert BaselineFile(tmp_path / "there" / "b.json").get("a docker") == STORED


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "Invalid JSON"),
        (b"{", "Invalid JSON"),
        (b"[]", "Input should be"),
        (b'{"a docker": 5}', "a docker: Input should be"),
        (b'{"a docker": {"steps_per_second": 0}}', "a docker: steps_per_second: Input should be"),
        (b'{"a docker": {"steps_per_second": 1}}', "a docker: engine: Field required"),
    ],
)
def test_a_file_without_baselines_is_refused_and_not_changed(
    tmp_path: Path, content: bytes, why: str
) -> None:
    path = tmp_path / "baselines.json"
    path.write_bytes(content)
    for put in (False, True):
        with pytest.raises(UsageError) as refused:
            BaselineFile(path).put("x", STORED) if put else BaselineFile(path).get("x")
        assert refused.value.message.startswith(f"{path} is not a file of baselines: {why}")
        assert "\n" not in str(refused.value)
    assert path.read_bytes() == content


def test_a_place_that_can_not_be_written_or_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"Can't write the baselines to .*: No such file"):
        BaselineFile(tmp_path / "nowhere" / "baselines.json").put("a docker", STORED)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    for name, why in {".": "a folder", "bytes": "not text", "pipe": "a named pipe"}.items():
        with pytest.raises(UsageError, match=rf"Can't read the baselines in .*: it is {why}"):
            BaselineFile(tmp_path / name).get("a docker")


RATES = st.floats(1e-9, 1e9)
BASELINES = st.builds(
    Baseline, steps_per_second=RATES, of_reference=st.none() | RATES, machine=st.text(max_size=20)
)


@given(st.dictionaries(st.text(max_size=20), BASELINES, max_size=5))
def test_whatever_is_put_is_got(
    tmp_path_factory: pytest.TempPathFactory, target: dict[str, Baseline]
) -> None:
    baselines = BaselineFile(tmp_path_factory.mktemp("b") / "baselines.json")
    for key, stored in target.items():
        baselines.put(key, stored)
    assert {key: baselines.get(key) for key in target} == target


PUTS = """
import sys
from pathlib import Path
from emulator.planning.baseline import Baseline, BaselineFile
baselines = BaselineFile(Path(sys.argv[1]))
stored = Baseline(steps_per_second=1, engine="e", machine="m" * 10_000, measured="d")
print("ready", flush=True)
sys.stdin.readline()
for number in range(int(sys.argv[3])):
    baselines.put(f"{sys.argv[2]}-{number}", stored)
    print(number, flush=True)
"""


Puts = Callable[[str, int], "subprocess.Popen[str]"]


@pytest.fixture
def puts(tmp_path: Path) -> Iterator[Puts]:
    """Start a process that stores so many under a name, once it is told to."""
    processes: list[subprocess.Popen[str]] = []

    def start(name: str, count: int) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", PUTS, str(tmp_path / "baselines.json"), name, str(count)]
        processes.append(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def go(process: subprocess.Popen[str]) -> Iterator[str]:
    """Tell a process to begin; return what it says from then on."""
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == "ready\n"
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout


def test_several_processes_put_and_none_loses_what_another_has_put(
    tmp_path: Path, puts: Puts
) -> None:
    processes = [puts(name, 10) for name in "abc"]
    for process in processes:
        go(process)
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert len(json.loads((tmp_path / "baselines.json").read_text())) == 30


def test_a_killed_process_leaves_a_whole_file_and_no_lock(tmp_path: Path, puts: Puts) -> None:
    path = tmp_path / "baselines.json"
    process = puts("a", 100_000)
    for number in go(process):
        # Whoever reads meanwhile sees a whole file with all that was put before.
        assert BaselineFile(path).get(f"a-{number.strip()}") is not None
        if number == "20\n":
            break
    process.send_signal(signal.SIGKILL)
    process.wait()
    BaselineFile(path).put("after docker", STORED)
    assert len(json.loads(path.read_text())) >= 22


# --- What is stored -----------------------------------------------------------------------------


def test_a_key_is_of_the_file_the_variant_and_the_engine() -> None:
    assert baseline_key(Path("a/ps-loss.yaml"), "", "docker") == "ps-loss docker"
    assert baseline_key(Path("ps-loss.yml"), "seed=1 a=b", "docker") == "ps-loss[seed=1 a=b] docker"


def test_a_run_that_starts_warm_has_a_baseline_of_its_own() -> None:
    assert [conditions("docker", warm=warm) for warm in (False, True)] == ["docker", "docker warm"]


def test_a_baseline_is_stored_as_it_is_written_even_if_nothing_was_locked_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks = tmp_path / "new" / "locks"
    monkeypatch.setattr("emulator.planning.baseline.cache_dir", lambda name: locks)
    for _ in range(2):
        BaselineFile(tmp_path / "baselines.json").put("größe docker", STORED)
    assert "größe" in (tmp_path / "baselines.json").read_text(encoding="utf-8")
    assert len(os.listdir(locks)) <= 1


def test_a_machine_is_its_cores_and_its_cpu() -> None:
    cores, cross, cpu = machine().partition(" x ")
    assert (int(cores), cross) == (os.cpu_count(), " x ")
    assert cpu.strip() == cpu != ""
    assert not cpu.isdigit()
    about = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    model = re.search(r"(?m)^model name\s*:(.*)", about)
    assert cpu == (" ".join(model[1].split()) if model else platform.processor() or cpu)
    assert machine() == machine_of(parse(TEXT))


def test_of_a_scenario_with_gpus_a_machine_is_its_gpus_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ("NVIDIA H200", "NVIDIA A100", "NVIDIA H200", "")
    actual = GpuInventory(tuple(Gpu(n, f"GPU-{n}", name, 1 << 30) for n, name in enumerate(names)))
    monkeypatch.setattr("emulator.metrics.gpu.devices", lambda: actual)
    with_gpus = parse(TEXT.replace("worker: 1", "worker: {gpus: 1}"))
    assert machine_of(with_gpus) == (f"{machine()}, 1 x GPU, 1 x NVIDIA A100, 2 x NVIDIA H200")


def test_what_was_measured_has_few_digits_its_machine_and_its_day() -> None:
    comparison = ThroughputReference(machine="8 x A", reference=3.0)
    found = measured(66.3123456789, comparison, "docker", on=date(2026, 11, 20))
    rates = {"steps_per_second": 66.3123, "of_reference": 22.1041}
    assert found == STORED.model_copy(update=rates)
    alone = measured(1e-7, ThroughputReference(machine="8 x A"), "docker")
    assert alone.of_reference is None
    assert alone.steps_per_second == 1e-7
    assert date.fromisoformat(alone.measured)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("inf"), float("nan")])
def test_what_is_no_rate_is_not_stored(rate: float) -> None:
    with pytest.raises(ValidationError):
        measured(rate, ThroughputReference(machine="8 x A"), "docker")
    with pytest.raises(ValidationError):
        Baseline.model_validate({**STORED.model_dump(), "of_reference": rate})


# --- The verdict of a run -----------------------------------------------------------------------

TEXT = "name: b\nframework: none\nprogram: {command: [a]}\ncluster: {worker: 1}\n"
BASELINE = "expect:\n  throughput: {at_least: 0.9, of: baseline}\n"


def run(tmp_path: Path, reference: ThroughputReference | None) -> Result:
    """Run a job of 10 steps a second on a manual clock."""
    script = Script([(n / 10, step_line(n)) for n in range(1, 51)], exits_at=6)
    return ran(tmp_path / "runs", TEXT + BASELINE, {"*": script}, reference=reference)


def stored_at(rate: float, *, storing: bool = False) -> ThroughputReference:
    stored = Baseline(steps_per_second=rate, engine="memory", machine="m", measured="2026-11-20")
    return ThroughputReference(baseline=stored, machine="m", storing=storing)


@pytest.mark.parametrize(
    ("reference", "status", "exit_code"),
    [
        (stored_at(11.0), "ok", 0),
        (stored_at(12.0), "failed", 1),
        (stored_at(12.0, storing=True), "ok", 0),
        (None, "unknown", 3),
    ],
)
def test_a_run_is_judged_again_from_its_folder_alone(
    tmp_path: Path, reference: ThroughputReference | None, status: str, exit_code: int
) -> None:
    result = run(tmp_path, reference)
    (verdict,) = (v for v in result.verdicts if v.expectation == "throughput.at_least")
    assert (verdict.status, verdict.expected) == (status, "at least 0.9 of the baseline")
    assert result.exit_code == exit_code
    record = Record(result.folder)
    assert record.plan.reference == reference
    assert judge(record)[1] == result.verdicts
    written = json.loads((result.folder / "verdicts.json").read_text())
    assert [Verdict(**one) for one in written] == result.verdicts


def test_a_plan_of_before_there_were_baselines_is_read(tmp_path: Path) -> None:
    result = run(tmp_path, stored_at(11.0))
    path = result.folder / "plan.json"
    plan = json.loads(path.read_text())
    del plan["reference"]
    for key in ("reserve", "parametrize", "reference", "marks"):
        del plan["scenario"][key]
    plan["scenario"]["expect"]["throughput"] = {"min": 5.0}
    path.write_text(json.dumps(plan))
    _, verdicts, _ = judge(Record(result.folder))
    reported = {v.expectation: v.status for v in verdicts}
    assert reported == {"outcome": "ok", "throughput.min": "ok"}


# --- Beside a scenario --------------------------------------------------------------------------


def test_a_yardstick_is_what_is_stored_beside_the_scenario(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    scenario = parse(TEXT + BASELINE)
    BaselineFile.beside(path).put(baseline_key(path, "seed=1", "docker"), STORED)
    assert (tmp_path / "baselines.json").is_file()
    actual = reference_beside(path, scenario, "docker", "seed=1")
    assert actual == ThroughputReference(baseline=STORED, machine=machine())
    for engine, variant in [("process", "seed=1"), ("docker", ""), ("docker", "seed=2")]:
        actual = reference_beside(path, scenario, engine, variant)
        assert actual == ThroughputReference(baseline=None, machine=machine())


REFERENCE = "expect: {throughput: {at_least: 0.9, of: reference}}\nreference: {seed: 1}"


@pytest.mark.parametrize("extra", ["", "expect: {throughput: {min: 5}}", REFERENCE])
def test_no_file_is_looked_at_where_no_baseline_is_expected(tmp_path: Path, extra: str) -> None:
    (tmp_path / "baselines.json").write_text("no baselines")
    assert reference_beside(tmp_path / "s.yaml", parse(TEXT + extra), "docker") is None


def test_an_override_that_is_wrong_is_named_by_where_it_was_given() -> None:
    text = Given(Path("s.yaml"), TEXT)
    for options, called in (
        ({"image": ("image={}",)}, "--emulator-image"),
        ({"sets": ("seed=x",)}, "--emulator-set seed=x"),
        ({"chosen": ("seed=x",)}, "--set seed=x"),
        ({"chosen": ("seed=x",), "by_call": True}, 'set["seed"]'),
    ):
        with pytest.raises(ScenarioError, match=f"^{re.escape(called)}: "):
            _ = RequestedScenario(text, None, **options).scenario
    assert RequestedScenario(text, None).command("docker") == ""
