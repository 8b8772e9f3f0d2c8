"""The preview disk keeps the contract of Disk, changes nothing, and lists the differences."""

import os
from pathlib import Path

import pytest

from ottla.cli.logs.preview_disk import FileChange, PreviewDisk
from tests.jepsen.world.disk_conformance import CHECKS, Check

OF_DIRECTORIES = (
    "a_renamed_directory_takes_all_along",
    "directories_are_made_listed_and_removed",
    "a_directory_is_made_with_its_files",
    "a_survey_tells_what_directories_hold",
)
"""A recovery makes no directory, and does not look into one that it has set aside."""
OF_DESCRIPTORS = (
    "a_file_that_is_not_open_is_not_cached",
    "idle_files_open_again_where_they_lie",
    "idle_unflushed_files_are_flushed",
)
"""It keeps none."""
KEPT = [check for check in CHECKS if check.__name__ not in (*OF_DIRECTORIES, *OF_DESCRIPTORS)]


@pytest.mark.parametrize("check", KEPT, ids=lambda check: check.__name__)
async def test_the_preview_conforms(check: Check, tmp_path: Path) -> None:
    with PreviewDisk() as disk:
        await check(disk, str(tmp_path))
    assert list(tmp_path.iterdir()) == []


async def test_a_survey_tells_what_would_be_there(tmp_path: Path) -> None:
    for name in ("cut", "gone", "whole"):
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / "deep").mkdir()
    with PreviewDisk() as disk:
        await disk.truncate(disk.open(f"{tmp_path}/cut"), 2)
        await disk.unlink(f"{tmp_path}/gone")
        survey, missing = await disk.survey(
            [str(tmp_path), f"{tmp_path}/none"], lambda names: names
        )
    assert survey == ({"cut": 2, "whole": 5}, {"cut": b"cu", "whole": b"whole"})
    assert isinstance(missing, FileNotFoundError)


async def test_what_would_differ_is_listed_and_nothing_else(tmp_path: Path) -> None:
    names = ("cut", "gone", "moved", "rewritten", "the same", "untouched")
    for name in names:
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / "aside").mkdir()
    paths = {name: str(tmp_path / name) for name in (*names, "new", "aside", "stray")}
    with PreviewDisk() as disk:
        await disk.truncate(disk.open(paths["cut"]), 2)
        await disk.unlink(paths["gone"])
        await disk.rename(paths["moved"], paths["new"])
        await disk.write_atomically(paths["rewritten"], b"REWRITTEN")
        await disk.write_atomically(paths["the same"], b"the same")
        disk.open(paths["untouched"]).close()
        await disk.rename(paths["aside"], paths["stray"])
        names_then = ["cut", "new", "rewritten", "the same", "untouched"]
        assert await disk.listdir(str(tmp_path)) == names_then
        assert await disk.read_file(paths["new"]) == b"moved"
        assert list(disk.changes()) == [
            FileChange("rename", paths["aside"], None, None, paths["stray"]),
            FileChange("cut", paths["cut"], 3, 2),
            FileChange("remove", paths["gone"], 4, None),
            FileChange("remove", paths["moved"], 5, None),
            FileChange("make", paths["new"], None, 5),
            FileChange("write", paths["rewritten"], 9, 9),
        ]
    assert sorted(os.listdir(tmp_path)) == sorted((*names, "aside"))
    assert all((tmp_path / name).read_bytes() == name.encode() for name in names)


async def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x")
    with PreviewDisk() as disk:
        before = len(os.listdir("/proc/self/fd"))
        files = [disk.open(str(tmp_path / "f")) for _ in range(50)]
        for file in files:
            file.pwrite(1, [b"y"])
        assert len(os.listdir("/proc/self/fd")) == before
