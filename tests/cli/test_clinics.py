"""`emulate init --from`: each clinic is written whole, its presets plan, and the plain one runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.cli.clinics import folder_of, names
from emulator.platforms.presets import PRESETS
from emulator.pytest_plugin.harness import Emulator
from emulator.scenario.loader import load
from emulator.scenario.matrix import variants
from tests.cli.typed import refusal, typed

CLINICS = [
    "jax-orbax",
    "lightning-slurm",
    "plain",
    "tensorflow-backup",
    "tensorflow-preemption-handler",
    "torchrun",
    "transformers-jit",
]


def test_the_clinics_that_there_are() -> None:
    assert names() == CLINICS


@pytest.mark.parametrize("name", CLINICS)
def test_a_clinic_is_written_and_each_of_its_presets_is_planned(tmp_path: Path, name: str) -> None:
    mine = tmp_path / "mine"
    said = typed("init", "--from", name, mine).ended().stderr
    assert f"emulate up {mine}/scenario.yaml --vary faults.0.like=" in said
    assert f"pytest {mine}" in said
    assert (mine / "pytest.ini").is_file()
    scenario = load(mine / "scenario.yaml")
    assert scenario.name == "mine"
    grid = scenario.parametrize
    assert set(grid["faults.0.like"]) <= set(PRESETS)
    for variant in variants(parametrize=grid):
        one = load(mine / "scenario.yaml", variant.overrides)
        assert len(one.faults) == 1
    typed("plan", mine / "scenario.yaml", "--engine", "process").ended()


@pytest.mark.parametrize("name", CLINICS)
def test_the_program_of_a_clinic_runs_alone(name: str) -> None:
    """None of our variables is required."""
    text = (folder_of(name) / "train.py").read_text()
    compile(text, name, "exec")
    assert 'environ["EMULATOR' not in text
    assert 'environ.get("EMULATOR_SHARED", ".")' in text


def test_a_clinic_that_there_is_not(tmp_path: Path) -> None:
    line = refusal("init", "--from", "caffe", tmp_path / "mine")
    assert line.startswith("There is no clinic caffe. There are jax-orbax, ")
    assert not (tmp_path / "mine").exists()
    assert "Choose one" in refusal("init", "--from", "plain", "--tests", tmp_path / "mine")


def test_the_plain_clinic_saves_when_it_is_told(emulator: Emulator) -> None:
    """Steps are slow, and the grace period is long: neither has to be in time."""
    result = emulator.run(
        folder_of("plain") / "scenario.yaml",
        engine="process",
        set={
            "program.command": ["python", "train.py", "--steps", 100, "--step-cost", 0.1],
            "faults.0.at.step": 1,
            "time_scale": 1,
            "faults.0.down": "100ms",
            "expect": {"outcome": "succeeded", "max_lost_steps": 0, "saved_within_grace": True},
        },
    )
    result.check()
