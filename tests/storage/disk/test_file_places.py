"""A handle's path follows renames of its parents, and ends with its name."""

from ottla.storage.disk.file_places import FilePlaces, Folder, path_of, place_of


class FakeHandle:
    """A handle that is only placed."""

    def __init__(self, places: "FilePlaces[FakeHandle]", path: str) -> None:
        self.folder: Folder | None = None
        self.name = ""
        self.last_path = ""
        places.add(path, self)


def test_a_file_is_found_after_renames_of_it_and_above_it() -> None:
    places: FilePlaces[FakeHandle] = FilePlaces()
    file = FakeHandle(places, "/data/t-0/1.log")
    deep = FakeHandle(places, "/data/t-0/a/b/f")
    other = FakeHandle(places, "/data/t-1/1.log")
    places.rename("/data/t-0", "/data/t-0.x-delete")
    assert place_of(file) == "/data/t-0.x-delete/1.log"
    assert place_of(deep) == "/data/t-0.x-delete/a/b/f"
    places.rename("/data/t-0.x-delete/1.log", "/data/t-1/2.log")
    assert place_of(file) == "/data/t-1/2.log"
    assert place_of(other) == "/data/t-1/1.log"
    assert places.at("/data/t-1/2.log") == [file]
    assert places.at("/data/t-0/1.log") == []


def test_a_directory_of_the_old_name_has_nothing_of_the_renamed_one() -> None:
    places: FilePlaces[FakeHandle] = FilePlaces()
    old = FakeHandle(places, "/data/t-0/1.log")
    places.rename("/data/t-0", "/data/t-0.x-delete")
    new = FakeHandle(places, "/data/t-0/1.log")
    assert place_of(old) == "/data/t-0.x-delete/1.log"
    assert place_of(new) == "/data/t-0/1.log"
    places.remove(old)
    assert places.at("/data/t-0.x-delete/1.log") == []
    assert place_of(old) is None
    assert path_of(old) == "/data/t-0.x-delete/1.log"


def test_two_handles_of_one_file_go_together_until_one_is_closed() -> None:
    places: FilePlaces[FakeHandle] = FilePlaces()
    one, two = FakeHandle(places, "/f"), FakeHandle(places, "/f")
    places.rename("/f", "/g")
    places.remove(one)
    assert place_of(one) is None
    assert places.at("/g") == [two]


def test_a_file_that_is_removed_or_replaced_has_no_place() -> None:
    places: FilePlaces[FakeHandle] = FilePlaces()
    removed, replaced, moved = (FakeHandle(places, f"/d/{name}") for name in "abc")
    places.unname("/d/a")
    places.rename("/d/c", "/d/b")
    assert place_of(removed) is place_of(replaced) is None
    assert place_of(moved) == "/d/b"
    places.remove(removed)
    places.rename("/none/at/all", "/d/e")


def test_the_files_of_a_directory_are_found_by_name_however_many_there_are() -> None:
    places: FilePlaces[FakeHandle] = FilePlaces()
    first = FakeHandle(places, "/d/1")
    assert places.at("/d/2") == []
    second, again = FakeHandle(places, "/d/2"), FakeHandle(places, "/d/1")
    assert places.at("/d/1") == [first, again]
    assert places.at("/d/2") == [second]
    places.remove(first)
    places.remove(second)
    assert places.at("/d/1") == [again]
    assert places.at("/d/2") == []
    places.rename("/d/1", "/e/1")
    assert places.at("/d/1") == []
    assert place_of(again) == "/e/1"
    places.rename("/e/1", "/e/2")
    assert [places.at("/e/1"), places.at("/e/2")] == [[], [again]]
