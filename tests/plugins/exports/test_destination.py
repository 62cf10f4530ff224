"""An earlier export is replaced, other files never."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from emulator.errors import UsageError
from emulator.plugins.exports.destination import claim_file, claimed, writing


def exported(folder: Path, *names: str, run: str = "run-1", kind: str = "csv") -> str:
    """Write an export that has the run's id in each of its files; return whose it replaced."""
    return export(folder, dict.fromkeys(names, run), run, kind)


def export(folder: Path, files: dict[str, str], run: str = "run-1", kind: str = "csv") -> str:
    with claimed(folder, kind, list(files), {"run_id": run}) as before:
        for name, content in files.items():
            (folder / name).write_text(content)
    return before


def there(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_second_export_takes_the_place_of_the_first(tmp_path: Path) -> None:
    folder = tmp_path / "not" / "there"
    assert exported(folder, "job/a", "worker-0/a", "worker-1/a") == ""
    assert exported(folder, "job/b", "worker-0/b", run="run-2") == "run-1"
    assert there(folder) == {"emulate-csv.json", "job/b", "worker-0/b"}
    assert not (folder / "worker-1").exists()
    assert exported(folder, "job/b.parquet", kind="parquet") == ""  # formats share a folder
    assert (folder / "job" / "b").exists()
    assert json.loads((folder / "emulate-csv.json").read_text()) == {
        "run_id": "run-2",
        "files": ["job/b", "worker-0/b"],
    }


def test_files_of_others_stay_as_they_are(tmp_path: Path) -> None:
    exported(tmp_path, "steps.csv")
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "faults.csv").write_text("mine")
    with pytest.raises(UsageError, match=r"faults\.csv exists already") as caught:
        exported(tmp_path, "steps.csv", "faults.csv", run="run-2")
    assert caught.value.exit_code == 2
    assert (tmp_path / "faults.csv").read_text() == "mine"
    assert (tmp_path / "steps.csv").read_text() == "run-1"  # nothing was touched
    exported(tmp_path, "steps.csv")
    assert there(tmp_path) == {"emulate-csv.json", "steps.csv", "notes.txt", "faults.csv"}


def test_an_export_that_the_disk_cuts_short_leaves_nothing(
    tmp_path: Path, small_files: None
) -> None:
    folder = tmp_path / "new" / "export"
    too_large = {"steps.csv": "whole", "job/a.csv": "x" * 4096}
    with pytest.raises(UsageError, match=r"Can't write .*: File too large\. Make room"):
        export(folder, too_large)
    assert list(tmp_path.rglob("*")) == [tmp_path / "new"]
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="Can't write"):
        export(folder, too_large)
    assert there(folder) == {"notes.txt"}
    with pytest.raises(UsageError, match="Can't write"):  # the list of its files
        export(tmp_path / "other", {f"a-long-name-of-a-file-{n}": "" for n in range(100)})
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("listed", ["../precious", "/etc/hostname", 7, "."])
def test_a_note_that_lists_what_lies_elsewhere_removes_nothing(
    tmp_path: Path, listed: object
) -> None:
    (tmp_path / "precious").write_text("mine")
    folder = tmp_path / "export"
    folder.mkdir()
    (folder / "emulate-csv.json").write_text(json.dumps({"files": [listed]}))
    exported(folder, "a.csv")
    assert (tmp_path / "precious").read_text() == "mine"
    assert folder.is_dir()


def test_a_note_that_is_none_is_like_no_note(tmp_path: Path) -> None:
    for text in ("", "[]", "{"):
        (tmp_path / "emulate-csv.json").write_text(text)
        assert exported(tmp_path, "a.csv") == ""
        (tmp_path / "a.csv").unlink()


def test_a_single_file_is_ours_by_how_it_begins(tmp_path: Path) -> None:
    path = tmp_path / "new" / "trace.json"
    assert claim_file(path, '{"a"') is False
    path.write_text('{"a": 1}')
    assert claim_file(path, '{"a"') is True
    path.write_text('{"b": 1}')
    with pytest.raises(UsageError, match="no export has written it"):
        claim_file(path, '{"a"')
    with pytest.raises(UsageError, match="no export has written it"):
        claim_file(tmp_path, '{"a"')


def test_what_the_disk_says_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"Can't write .*file: Not a directory"):
        exported(tmp_path / "file", "a.csv")
    with pytest.raises(UsageError, match=r"Can't write .*: File name too long"):
        exported(tmp_path / ("x" * 300), "a.csv")
    with pytest.raises(UsageError, match=r"Can't write .*: Is a directory"), writing(tmp_path):
        tmp_path.open("w")
