from tempfile import TemporaryDirectory

import trio
from hypothesis import given
from hypothesis import strategies as st

from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.segments.indexes import NEAR_ENTRY_COUNT, OffsetIndex

BASE_OFFSET = 1000
GAPS = st.lists(st.integers(1, 5), min_size=1, max_size=5 * NEAR_ENTRY_COUNT)


@given(gaps=GAPS, asked=st.lists(st.integers(0, 400), max_size=30), kept=st.integers(0, 400))
def test_every_look_up_finds_the_last_entry_at_or_before_wherever_the_one_before_it_was(
    gaps: list[int], asked: list[int], kept: int
) -> None:
    trio.run(_look_up_in_turn, gaps, asked, kept)


async def _look_up_in_turn(gaps: list[int], asked: list[int], kept: int) -> None:
    with TemporaryDirectory() as directory:
        async with RealDisk([directory]) as disk:
            index = OffsetIndex(disk, directory, BASE_OFFSET, 1 << 20)
            index.begin(capacity_bytes=1 << 12)
            entries = [(BASE_OFFSET, 0)]
            offset = BASE_OFFSET
            for position, gap in enumerate(gaps, start=1):
                offset += gap
                index.append(offset, position)
                entries.append((offset, position))
            for relative in asked:
                assert index.lookup(BASE_OFFSET + relative) == _expected(entries, relative)
            index.truncate_to(BASE_OFFSET + kept)
            entries = entries[:1] + [e for e in entries[1:] if e[0] < BASE_OFFSET + kept]
            for relative in asked:
                assert index.lookup(BASE_OFFSET + relative) == _expected(entries, relative)
            index.close()


def _expected(entries: list[tuple[int, int]], relative: int) -> tuple[int, int]:
    return [entry for entry in entries if entry[0] <= BASE_OFFSET + relative][-1]
