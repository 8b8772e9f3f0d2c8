"""Which errors of a disk are failures of the directory."""

import errno
import os

import pytest

from ottla.storage.disk.disk_errors import DiskError, is_disk_failure, is_disk_full, meaning_of


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_no_failed_disk(number: int) -> None:
    error = OSError(number, os.strerror(number))
    assert meaning_of(error) is DiskError.FULL
    assert is_disk_full(error)
    assert not is_disk_failure(error)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_process_without_descriptors_or_memory_has_no_failed_disk(number: int) -> None:
    error = OSError(number, os.strerror(number))
    assert meaning_of(error) is DiskError.RESOURCES
    assert not is_disk_full(error)
    assert not is_disk_failure(error)


@pytest.mark.parametrize(
    "number", [errno.EIO, errno.EROFS, errno.ENODEV, errno.EACCES, errno.ENOENT, errno.ESTALE]
)
def test_every_other_error_is_a_failure_of_its_directory(number: int) -> None:
    error = OSError(number, os.strerror(number))
    assert is_disk_failure(error)
    assert not is_disk_full(error)


def test_a_file_that_was_closed_meanwhile_has_no_failed_disk() -> None:
    assert meaning_of(OSError(errno.EBADF, "the file is closed")) is DiskError.CLOSED


def test_an_error_without_a_number_is_a_failure() -> None:
    assert is_disk_failure(OSError("the file is full"))
