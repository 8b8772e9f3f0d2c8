"""Contract of every Disk, as checks that the real one and the world's both pass.

`check_disk_conforms` runs them all; a test may also take them one by one from `CHECKS`, so that a
failure names the promise that broke.  A check gets a disk and an empty directory on it.
"""

from collections.abc import Awaitable, Callable, Sequence

from ottla.storage.disk.disk_seam import Disk, DiskFile

Check = Callable[[Disk, str], Awaitable[None]]
MakeDisk = Callable[[], tuple[Disk, str]]
"""Returns a disk and the path of a fresh, empty directory on it."""

MANY_FILES = 600
"""More than any disk keeps open for no need."""

MANY_CHUNKS = 3_000
"""More chunks than one pwritev of the kernel takes (1024)."""


async def check_disk_conforms(make_disk: MakeDisk) -> None:
    """Run every check, each in a directory of its own; the AssertionError names the broken
    guarantee."""
    for check in CHECKS:
        disk, root = make_disk()
        await check(disk, root)


def _file(disk: Disk, path: str, content: bytes = b"") -> DiskFile:
    file = disk.open(path, create=True)
    file.pwrite(0, [content])
    return file


async def what_is_written_is_read(disk: Disk, root: str) -> None:
    """Chunks follow each other from the position; reading stops at the end."""
    file = _file(disk, f"{root}/f", b"0123456789")
    file.pwrite(3, [b"abc", memoryview(b"de"), bytearray(b"f")])
    assert file.pread(0, 100) == b"012abcdef9"
    assert file.pread(8, 2) == b"f9"
    assert file.pread(9, 5) == b"9"
    assert file.pread(10, 5) == b""
    assert file.size_bytes == 10
    assert await disk.read(file, 3, 3) == b"abc"
    file.close()


async def writing_beyond_the_end_leaves_zeros(disk: Disk, root: str) -> None:
    """A gap reads as zeros."""
    file = _file(disk, f"{root}/f", b"ab")
    file.pwrite(5, [b"c"])
    assert file.pread(0, 10) == b"ab\0\0\0c"
    file.close()


async def many_and_empty_chunks_are_written(disk: Disk, root: str) -> None:
    """No count of chunks is too many, and an empty one is nothing."""
    file = _file(disk, f"{root}/f")
    file.pwrite(0, [])
    file.pwrite(0, [b"", *[b"%04d" % i for i in range(MANY_CHUNKS)], b""])
    assert file.pread(0, 4 * MANY_CHUNKS + 1) == b"".join(b"%04d" % i for i in range(MANY_CHUNKS))
    file.close()


async def files_shrink_and_grow(disk: Disk, root: str) -> None:
    """Cutting loses the tail; growing adds zeros, not the old tail."""
    file = _file(disk, f"{root}/f", b"0123456789")
    file.set_size(4)
    assert file.pread(0, 10) == b"0123"
    file.set_size(6)
    assert file.pread(0, 10) == b"0123\0\0"
    file.renew_size(6)
    assert file.pread(0, 10) == b"0123\0\0"
    await disk.truncate(file, 1)
    assert file.size_bytes == 1
    file.close()


async def a_missing_file_is_missing_until_it_is_created(disk: Disk, root: str) -> None:
    """Only `create` makes a file, and it empties none that is there."""
    path = f"{root}/f"
    assert not disk.exists(path)
    assert _refuses(FileNotFoundError, lambda: disk.open(path))
    _file(disk, path, b"x").close()
    assert disk.exists(path)
    again = disk.open(path, create=True)
    assert again.pread(0, 1) == b"x"
    assert again.path == path
    again.close()
    assert _refuses(FileNotFoundError, lambda: disk.open(f"{root}/none/f", create=True))
    assert _refuses(IsADirectoryError, lambda: disk.open(root))


async def two_handles_share_one_file(disk: Disk, root: str) -> None:
    """Bytes written by one handle are read by the other."""
    first = _file(disk, f"{root}/f", b"old")
    second = disk.open(f"{root}/f")
    first.pwrite(0, [b"new"])
    assert second.pread(0, 3) == b"new"
    first.close()
    second.close()


async def fsyncs_may_follow_each_other(disk: Disk, root: str) -> None:
    """Flushing what is flushed is fine, for files and for directories."""
    file = _file(disk, f"{root}/f", b"x")
    await disk.fsync(file)
    await disk.fsync(file)
    await disk.fsync_directory(root)
    await disk.fsync_directory(root)
    file.close()


async def what_is_written_back_stays_as_it_was(disk: Disk, root: str) -> None:
    """Writing back changes nothing, also between writes, and passes over a closed file."""
    file = disk.open(f"{root}/f", create=True)
    for count in range(3):
        file.pwrite(4 * count, [b"data"])
        await disk.write_back(file)
    await disk.fsync(file)
    assert file.pread(0, 100) == b"datadatadata"
    file.close()
    await disk.write_back(file)  # it is passed over


async def a_renamed_file_keeps_its_handles(disk: Disk, root: str) -> None:
    """The name moves and replaces; handles stay with their bytes."""
    moved = _file(disk, f"{root}/a", b"moved")
    replaced = _file(disk, f"{root}/b", b"replaced")
    await disk.rename(f"{root}/a", f"{root}/b")
    assert await disk.listdir(root) == ["b"]
    assert await disk.read_file(f"{root}/b") == b"moved"
    assert replaced.pread(0, 20) == b"replaced"
    moved.pwrite(5, [b"!"])
    assert await disk.read_file(f"{root}/b") == b"moved!"
    assert moved.path == replaced.path == f"{root}/b"
    assert await _refuses_later(FileNotFoundError, disk.rename(f"{root}/none", f"{root}/c"))
    moved.close()
    replaced.close()


async def a_renamed_directory_takes_all_along(disk: Disk, root: str) -> None:
    """Files in it are found under the new name, and open handles live on."""
    await disk.makedirs(f"{root}/a/deep")
    file = _file(disk, f"{root}/a/deep/f", b"x")
    await disk.rename(f"{root}/a", f"{root}/b")
    assert not disk.exists(f"{root}/a")
    file.pwrite(1, [b"y"])
    assert await disk.read_file(f"{root}/b/deep/f") == b"xy"
    file.close()


async def an_unlinked_file_lives_until_it_is_closed(disk: Disk, root: str) -> None:
    """The name is gone at once, the bytes with the last handle."""
    file = _file(disk, f"{root}/f", b"x")
    await disk.unlink(f"{root}/f")
    assert not disk.exists(f"{root}/f")
    assert file.pread(0, 1) == b"x"
    assert await _refuses_later(FileNotFoundError, disk.unlink(f"{root}/f"))
    file.close()


async def an_empty_file_is_unlinked_at_once(disk: Disk, root: str) -> None:
    """No await, and none of that name is fine."""
    _file(disk, f"{root}/f", b"").set_size(100)
    disk.unlink_empty(f"{root}/f")
    assert not disk.exists(f"{root}/f")
    disk.unlink_empty(f"{root}/f")


async def a_pinned_file_outlives_its_close(disk: Disk, root: str) -> None:
    """A slice on its way to a socket keeps the descriptor open; closing twice is closing once."""
    file = _file(disk, f"{root}/f", b"x")
    file.pin()
    file.pin()
    assert not file.is_closed
    file.close()
    file.close()
    assert file.is_closed
    assert _refuses(OSError, lambda: file.pwrite(0, [b"y"]))
    file.unpin()
    assert file.pread(0, 1) == b"x"
    file.unpin()
    assert _refuses(OSError, lambda: file.pread(0, 1))


async def directories_are_made_listed_and_removed(disk: Disk, root: str) -> None:
    """Making one twice is fine, a list is sorted, removing takes all."""
    await disk.makedirs(f"{root}/b/c")
    await disk.makedirs(f"{root}/b/c")
    await disk.makedirs(f"{root}/a")
    _file(disk, f"{root}/b/f").close()
    assert await disk.listdir(root) == ["a", "b"]
    assert await disk.listdir(f"{root}/b") == ["c", "f"]
    assert await disk.is_directory(f"{root}/b")
    assert not await disk.is_directory(f"{root}/b/f")
    assert not await disk.is_directory(f"{root}/none")
    assert await _refuses_later(FileNotFoundError, disk.listdir(f"{root}/none"))
    assert await _refuses_later(FileExistsError, disk.makedirs(f"{root}/b/f"))
    await disk.remove_tree(f"{root}/b")
    assert await disk.listdir(root) == ["a"]
    await disk.remove_tree(f"{root}/b")


async def a_volume_tells_its_room(disk: Disk, root: str) -> None:
    """Available space is part of the total; an absent path has no volume."""
    space = await disk.space(root)
    assert 0 < space.usable_bytes <= space.total_bytes
    assert await _refuses_later(FileNotFoundError, disk.space(f"{root}/none"))


async def an_atomic_write_leaves_one_whole_file(disk: Disk, root: str) -> None:
    """It makes or replaces the file, shorter or longer, and leaves nothing beside it."""
    for data in (b"first and long", b"second", b""):
        await disk.write_atomically(f"{root}/f", data)
        assert await disk.read_file(f"{root}/f") == data
    assert await disk.listdir(root) == ["f"]
    assert await _refuses_later(FileNotFoundError, disk.read_file(f"{root}/none"))


async def what_was_read_ahead_is_cached(disk: Disk, root: str) -> None:
    """After a read ahead the loop may read without waiting."""
    file = _file(disk, f"{root}/f", bytes(1 << 16))
    await disk.fsync(file)
    await disk.read_ahead(file, 0, 1 << 16)
    assert disk.is_cached(file, 0, 1 << 16)
    assert file.read_cached(0, 1 << 16) == bytes(1 << 16)
    assert file.read_cached((1 << 16) - 4, 8) == bytes(4)
    assert file.read_cached(1 << 16, 8) == b""
    file.close()


async def idle_files_open_again_where_they_lie(disk: Disk, root: str) -> None:
    """Far more files than descriptors: each is read after renames of files and directories."""
    await disk.makedirs(f"{root}/a/deep")
    files = [_file(disk, f"{root}/a/deep/{n}", b"%d" % n) for n in range(MANY_FILES)]
    for file in files:
        await disk.fsync(file)
    await disk.rename(f"{root}/a", f"{root}/b")
    await disk.rename(f"{root}/b/deep/0", f"{root}/b/renamed")
    await disk.rename(f"{root}/b/deep/1", f"{root}/b/deep/2")
    await disk.unlink(f"{root}/b/deep/3")
    for n, file in enumerate(files):
        assert file.pread(0, 10) == b"%d" % n
        assert file.size_bytes == len(str(n))
        file.pwrite(0, [b"new"])
    assert await disk.read_file(f"{root}/b/deep/{MANY_FILES - 1}") == b"new"
    for file in files:
        file.close()


async def a_file_that_is_not_open_is_not_cached(disk: Disk, root: str) -> None:
    """Opening may wait for the disk, so that `read_ahead` does it; a pin keeps it open."""
    first, *others = [_file(disk, f"{root}/{n}", b"x") for n in range(MANY_FILES)]
    await disk.fsync(first)
    for file in others:
        await disk.fsync(file)
    assert not disk.is_cached(first, 0, 1)
    first.pin()
    await disk.read_ahead(first, 0, 1)
    for file in others:
        assert file.pread(0, 1) == b"x"
    assert disk.is_cached(first, 0, 1)
    first.unpin()
    for file in (first, *others):
        file.close()


async def a_pinned_file_is_read_after_its_removal(disk: Disk, root: str) -> None:
    """Its descriptor was given back before; who closes it opens it, while there is a name."""
    first, *others = [_file(disk, f"{root}/{n}", b"x") for n in range(MANY_FILES)]
    await disk.fsync(first)
    for file in others:
        await disk.fsync(file)
    first.pin()
    first.close()
    await disk.unlink(f"{root}/0")
    assert first.pread(0, 1) == b"x"
    first.unpin()
    for file in others:
        file.close()


async def a_survey_tells_what_directories_hold(disk: Disk, root: str) -> None:
    """Sizes of all files, bytes of requested ones, and an error for absent ones."""
    await disk.makedirs(f"{root}/a/deep")
    await disk.makedirs(f"{root}/b")
    _file(disk, f"{root}/a/small", b"small").close()
    _file(disk, f"{root}/a/large", bytes(10_000)).close()
    found = await disk.survey([f"{root}/{name}" for name in ("a", "b", "none")], _small_ones)
    one, other, missing = found
    assert one == ({"small": 5, "large": 10_000}, {"small": b"small"})
    assert other == ({}, {})
    assert isinstance(missing, FileNotFoundError)


def _small_ones(names: Sequence[str]) -> list[str]:
    assert list(names) == sorted(names)
    return [name for name in names if name == "small"]


async def a_handle_opens_its_file_at_its_first_use(disk: Disk, root: str) -> None:
    """It may be renamed before."""
    _file(disk, f"{root}/f", b"x").close()
    file = disk.at(f"{root}/f")
    assert not file.is_closed
    await disk.rename(f"{root}/f", f"{root}/g")
    assert file.pread(0, 10) == b"x"
    file.pwrite(1, [b"y"])
    assert file.size_bytes == 2
    file.close()


async def a_directory_is_made_with_its_files(disk: Disk, root: str) -> None:
    """Empty files too; an existing directory keeps its other files."""
    await disk.make_directory(f"{root}/a", {"named": b"bytes", "empty": b""})
    await disk.make_directory(f"{root}/a", {"more": b""})
    assert await disk.listdir(f"{root}/a") == ["empty", "more", "named"]
    assert await disk.read_file(f"{root}/a/named") == b"bytes"
    assert await disk.read_file(f"{root}/a/empty") == b""
    await disk.keep_directory(f"{root}/a", {"named": b"bytes"})
    assert await disk.read_file(f"{root}/a/named") == b"bytes"


async def idle_unflushed_files_are_flushed(disk: Disk, root: str) -> None:
    """Twice, for what was written since the first call is still in use; then all are as before."""
    files = [_file(disk, f"{root}/{n}", b"x") for n in range(MANY_FILES)]
    await disk.flush_idle(root)
    await disk.flush_idle(root)
    assert not disk.is_cached(files[0], 0, 1)
    for file in files:
        assert file.pread(0, 1) == b"x"
        file.close()


async def forgetting_what_is_flushed_loses_nothing(disk: Disk, root: str) -> None:
    """Flushed bytes are read from the device, and unflushed ones are still there."""
    file = _file(disk, f"{root}/f", b"flushed")
    await disk.fsync(file)
    file.pwrite(7, [b" and not"])
    await disk.forget_flushed(file)
    assert await disk.read(file, 0, 100) == b"flushed and not"
    file.close()


CHECKS: tuple[Check, ...] = (
    what_is_written_is_read,
    writing_beyond_the_end_leaves_zeros,
    many_and_empty_chunks_are_written,
    files_shrink_and_grow,
    a_missing_file_is_missing_until_it_is_created,
    two_handles_share_one_file,
    fsyncs_may_follow_each_other,
    what_is_written_back_stays_as_it_was,
    a_renamed_file_keeps_its_handles,
    a_renamed_directory_takes_all_along,
    an_unlinked_file_lives_until_it_is_closed,
    an_empty_file_is_unlinked_at_once,
    a_pinned_file_outlives_its_close,
    directories_are_made_listed_and_removed,
    a_volume_tells_its_room,
    an_atomic_write_leaves_one_whole_file,
    what_was_read_ahead_is_cached,
    idle_files_open_again_where_they_lie,
    a_file_that_is_not_open_is_not_cached,
    a_pinned_file_is_read_after_its_removal,
    idle_unflushed_files_are_flushed,
    forgetting_what_is_flushed_loses_nothing,
    a_survey_tells_what_directories_hold,
    a_handle_opens_its_file_at_its_first_use,
    a_directory_is_made_with_its_files,
)


def _refuses(error: type[OSError], call: Callable[[], object]) -> bool:
    try:
        call()
    except error:
        return True
    return False


async def _refuses_later(error: type[OSError], call: Awaitable[object]) -> bool:
    try:
        await call
    except error:
        return True
    return False
