from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.node.network.memory.buffers import (
    GATHER_COUNT_MAX,
    HELD_BYTES_MIN,
    JOIN_BYTES_MAX,
    InputWindow,
    OutputBuffer,
)
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.disk.slice import FileSlice


def filled(*chunks: bytes) -> OutputBuffer:
    output = OutputBuffer()
    output.chunks.extend(chunks)
    output.byte_count = sum(map(len, chunks))
    return output


def cold(piece: FileSlice) -> None:
    """Read nothing: the slice is not cached."""


def test_small_chunks_are_joined_and_large_ones_are_gathered() -> None:
    assert filled(b"a", b"b", b"c").next_bytes(FileSlice.read) == [b"abc"]
    large = bytes(JOIN_BYTES_MAX)
    assert filled(b"a", large).next_bytes(FileSlice.read) == [b"a", large]


def test_a_gather_write_is_bounded() -> None:
    output = filled(*[bytes(1000)] * 200)
    assert len(output.next_bytes(FileSlice.read)) == GATHER_COUNT_MAX


@given(
    chunks=st.lists(st.binary(min_size=1, max_size=40_000), min_size=1, max_size=8),
    sizes=st.lists(st.integers(1, 50_000), min_size=1, max_size=10),
)
def test_however_little_the_socket_takes_the_same_bytes_go_out(
    chunks: list[bytes], sizes: list[int]
) -> None:
    output = filled(*chunks)
    sent = b""
    turn = 0
    while output.byte_count:
        offered = b"".join(output.next_bytes(FileSlice.read))
        taken = offered[: sizes[turn % len(sizes)]]
        sent += taken
        output.on_sent(len(taken))
        turn += 1
    assert sent == b"".join(chunks)
    assert not output.chunks


async def test_small_file_slices_are_joined_to_what_is_around_them(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(bytes(JOIN_BYTES_MAX))
    async with RealDisk([str(tmp_path)]) as disk:
        file = disk.open(str(path))
        output = OutputBuffer()
        sliced = [FileSlice(file, 0, size) for size in (2, 3, JOIN_BYTES_MAX)]
        output.chunks.extend((b"a", sliced[0], b"b", sliced[1], b"c", sliced[2]))
        output.byte_count = 8 + JOIN_BYTES_MAX
        assert output.next_bytes(FileSlice.read) == [b"a\0\0b\0\0\0c"]
        output.on_sent(3)
        assert output.next_bytes(cold) == [b"b\0\0\0c"]
        output.on_sent(5)
        assert output.next_bytes(FileSlice.read) == [bytes(JOIN_BYTES_MAX)]
        output.clear()
        sliced.clear()
        file.close()


async def test_bytes_before_a_file_slice_go_out_before_it(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"0123456789")
    async with RealDisk([str(tmp_path)]) as disk:
        file = disk.open(str(path))
        output = filled(b"head")
        output.chunks.append(FileSlice(file, 2, 5))
        output.byte_count += 5
        assert output.next_bytes(cold) == [b"head"]
        output.on_sent(4)
        assert output.next_bytes(cold) == []
        piece, sent_before = output.next_slice()
        assert (piece.position, sent_before) == (2, 0)
        output.on_sent(3)
        assert output.next_slice()[1] == 3
        output.on_sent(2)
        assert output.byte_count == 0
        del piece
        file.close()


async def test_one_response_with_a_slice_is_recognized_until_a_part_is_sent(
    tmp_path: Path,
) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"0123456789")
    async with RealDisk([str(tmp_path)]) as disk:
        file = disk.open(str(path))
        output = filled(b"head")
        output.chunks.append(FileSlice(file, 2, 5))
        assert output.framed_slice() is None
        output.chunks.append(b"end")
        output.byte_count += 8
        framed = output.framed_slice()
        assert framed is not None
        assert (framed[0], framed[1].position, framed[2]) == (b"head", 2, b"end")
        output.on_sent(1)
        assert output.framed_slice() is None
        output.clear()
        output.chunks.extend([b"head", b"bytes", b"end"])
        assert output.framed_slice() is None
        del framed
        file.close()


def test_held_bytes_survive_growth_and_give_their_buffer_up_when_empty() -> None:
    held = InputWindow()
    held.append(memoryview(b"abc"))
    view = held.view
    held.append(memoryview(bytes(HELD_BYTES_MIN)))
    assert bytes(view) == b"abc"
    held.consume(3)
    assert len(held) == HELD_BYTES_MIN
    held.consume(HELD_BYTES_MIN)
    assert held.capacity_bytes == 0


def test_the_window_grows_with_what_arrives_not_with_what_was_announced() -> None:
    held = InputWindow()
    held.append(memoryview(b"\x05\x00\x00\x00"))
    wanted = 50_000_000
    while len(held) < 20_000_000:
        held.grow(held.capacity_for(wanted))
        window = held.window(wanted)
        assert held.capacity_bytes <= max(4 * len(held), HELD_BYTES_MIN)
        held.advance(len(window))


def test_sending_more_than_was_queued_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        filled(b"abc").on_sent(4)


def test_bytes_and_slices_are_copied_into_one_room_from_where_the_first_was_sent(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_bytes(bytes(range(100)))
    file = RealDisk().open(str(tmp_path / "file"))
    whole = b"abcdef" + bytes(range(10, 30)) + b"xyz"

    def read(piece: FileSlice, sent_before: int, room: memoryview) -> int:
        room[:] = piece.file.pread(piece.position + sent_before, len(room))
        return len(room)

    for size in (1, 5, 7, 29, 100):
        output, found = OutputBuffer(), b""
        output.chunks.extend([b"abcdef", FileSlice(file, 10, 20), b"xyz"])
        output.byte_count, output.has_slices = len(whole), True
        assert output.only_bytes() is None
        while output.byte_count:
            room = memoryview(bytearray(size))
            count = output.copy_into(room, read)
            found += room[:count]
            output.on_sent(count)
        assert found == whole
    file.close()


def test_a_slice_that_is_not_there_yet_ends_the_copy(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(100))
    file = RealDisk().open(str(tmp_path / "file"))
    output = filled(b"abc")
    output.chunks.extend([FileSlice(file, 0, 20), b"xyz"])
    room = memoryview(bytearray(100))
    assert output.copy_into(room, lambda piece, sent_before, part: 0) == 3
    assert output.copy_into(room, lambda piece, sent_before, part: 7) == 10
    output.clear()
    file.close()


def test_small_responses_are_sent_as_one_chunk_until_a_part_of_them_is_sent() -> None:
    output = filled(b"ab", b"c")
    assert output.only_bytes() == b"abc"
    output.on_sent(1)
    assert output.only_bytes() is None
    assert filled(b"a", bytes(JOIN_BYTES_MAX)).only_bytes() is None


def test_one_chunk_of_bytes_needs_no_copy() -> None:
    output = filled(b"abcdef")
    assert output.only_bytes() is output.chunks[0]
    output.on_sent(2)
    assert bytes(output.only_bytes() or b"") == b"cdef"
