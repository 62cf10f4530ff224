"""Where the scenario of a trial is written."""

from __future__ import annotations

from pathlib import Path

from emulator.trial.perform import write
from emulator.trial.question import NAME


def test_it_is_never_written_over_another_one(tmp_path: Path) -> None:
    assert write(tmp_path, "a: 1\n") == (tmp_path / NAME, "")
    assert write(tmp_path, "a: 1\n") == (tmp_path / NAME, "")
    assert write(tmp_path, "a: 2\n") == (None, f"there is another {NAME} here")
    assert (tmp_path / NAME).read_text() == "a: 1\n"


def test_where_it_can_t_be_written_the_answer_is_not_lost(tmp_path: Path) -> None:
    assert write(tmp_path / "gone", "a: 1\n") == (None, "No such file or directory")
