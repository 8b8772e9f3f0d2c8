"""Descriptors of idle files are given back, and none that is needed."""

from ottla.storage.disk.descriptor_cache import CLEAN, NEW_DIRT, DescriptorCache


class FakeFile:
    """A file that records its calls."""

    def __init__(self, cache: "DescriptorCache[FakeFile]", name: str) -> None:
        self.name = name
        self.dirt = CLEAN
        self.was_used = False
        self.is_set_apart = False
        self.is_pinned = False
        self.is_open = True
        cache.add(self)

    @property
    def is_kept(self) -> bool:
        return self.is_pinned or self.dirt != CLEAN

    def give_back(self) -> None:
        assert self.is_open
        self.is_open = False


def opened(cache: DescriptorCache[FakeFile], count: int) -> list[FakeFile]:
    return [FakeFile(cache, str(number)) for number in range(count)]


def names_of_open(files: list[FakeFile]) -> str:
    return "".join(file.name for file in files if file.is_open)


def test_no_more_than_the_bound_are_open() -> None:
    cache: DescriptorCache[FakeFile] = DescriptorCache(3)
    files = opened(cache, 9)
    assert len(cache) == 3
    assert names_of_open(files) == "678"


def test_who_was_used_since_the_last_look_stays() -> None:
    cache: DescriptorCache[FakeFile] = DescriptorCache(3)
    files = opened(cache, 4)  # all were looked at
    assert names_of_open(files) == "123"
    files[1].was_used = True
    FakeFile(cache, "x")
    assert names_of_open(files) == "13"


def test_pinned_and_unflushed_files_stay_however_many_they_are() -> None:
    cache: DescriptorCache[FakeFile] = DescriptorCache(2)
    files = opened(cache, 1)
    files[0].is_pinned = True
    for number in range(1, 5):
        file = FakeFile(cache, str(number))
        file.dirt = NEW_DIRT
        files.append(file)
    more = opened(cache, 4)
    assert names_of_open(files) == "01234"
    assert len([file for file in more if file.is_open]) == 2
    files[0].is_pinned = False
    cache.settle(files[0])
    cache.shrink(0)
    assert names_of_open(files) == "1234"


def test_a_file_that_is_written_all_the_time_is_never_stale() -> None:
    cache: DescriptorCache[FakeFile] = DescriptorCache(1)
    files = opened(cache, 1)
    for number in range(1, 4):
        files[-1].dirt = NEW_DIRT
        files.append(FakeFile(cache, str(number)))
    files[3].dirt = NEW_DIRT
    opened(cache, 2)
    assert cache.stale(lambda file: True) == []
    files[1].dirt = NEW_DIRT
    found = cache.stale(lambda file: file is not files[2])
    assert found == [files[0], files[3]]


def test_only_descriptors_beyond_the_bound_are_flushed() -> None:
    cache: DescriptorCache[FakeFile] = DescriptorCache(3)
    for file in opened(cache, 3):
        file.dirt = NEW_DIRT
    opened(cache, 4)
    assert len(cache) == 6
    cache.stale(lambda file: True)
    assert len(cache.stale(lambda file: True)) == 3
    cache.shrink(0)
    assert len(cache) == 3
    cache.stale(lambda file: True)
    assert cache.stale(lambda file: True) == []


def test_a_file_that_was_flushed_is_given_back_if_too_many_are_open() -> None:
    cache: DescriptorCache[FakeFile] = DescriptorCache(2)
    files = opened(cache, 2)
    for file in files:
        file.dirt = NEW_DIRT
    files += opened(cache, 2)
    assert len(cache) == 4
    for file in files[:3]:
        file.dirt = CLEAN
        cache.settle(file)
        cache.release(file)
    assert len(cache) == 2
    files[3].is_pinned = True
    FakeFile(cache, "x")
    cache.release(files[3])
    assert files[3].is_open


def test_when_all_are_wanted_descriptors_are_freed() -> None:
    cache: DescriptorCache[FakeFile] = DescriptorCache(8)
    files = opened(cache, 8)
    files[7].dirt = NEW_DIRT
    assert cache.free(4)
    assert names_of_open(files) == "34567"
    while cache.free(5):
        pass
    assert names_of_open(files) == "7"
    cache.remove(files[7])
    assert len(cache) == 0


def test_unflushed_files_are_found_below_the_bound_once_a_file_could_not_be_opened() -> None:
    cache: DescriptorCache[FakeFile] = DescriptorCache(9)
    files = opened(cache, 3)
    for file in files:
        file.dirt = NEW_DIRT
    while cache.free(3):
        pass
    assert cache.stale(lambda file: True) == []  # they were written just now
    assert cache.stale(lambda file: True) == []  # and none is one too many
    cache.is_short = True
    assert cache.stale(lambda file: True) == files
    assert cache.stale(lambda file: True) == []
