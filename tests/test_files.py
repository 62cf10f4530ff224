"""Disks that are nearly full."""

from __future__ import annotations

from pathlib import Path

from emulator.files import FOR_IMAGES, FOR_RUNS, Disk, disk, shortages

GIB = 2**30
RUNS, DOCKER = Path("/runs/r"), Path("/var/lib/docker")


def test_each_nearly_full_disk_has_a_warning() -> None:
    enough = Disk("the run folder", RUNS, FOR_RUNS), Disk("Docker", DOCKER, FOR_IMAGES, FOR_IMAGES)
    assert list(shortages(enough)) == []
    runs = Disk("the run folder", RUNS, 2 * GIB - 1, device=1)
    assert list(shortages([runs, Disk("Docker", DOCKER, 3 * GIB, FOR_IMAGES, device=2)])) == [
        "the disk of Docker (/var/lib/docker) has 3.0 GiB left; 10.0 GiB or more should be free",
        "the disk of the run folder (/runs/r) has 2.0 GiB left; 2.0 GiB or more should be free",
    ]


def test_one_disk_has_one_warning_with_the_largest_need() -> None:
    both = Disk("the run folder", RUNS, GIB, device=1), Disk("Docker", DOCKER, GIB, FOR_IMAGES, 1)
    (reported,) = shortages(both)
    assert "Docker" in reported
    unknown = Disk("the run folder", RUNS, GIB), Disk("Docker", DOCKER, GIB, FOR_IMAGES)
    assert len(list(shortages(unknown))) == 2


def test_a_folder_that_is_not_there_yet_is_on_the_disk_of_the_nearest_that_is(
    tmp_path: Path,
) -> None:
    (here,) = disk("the run folder", tmp_path)
    (later,) = disk("the run folder", tmp_path / "runs" / "one")
    assert later.device == here.device >= 0
    assert later.free > 0
