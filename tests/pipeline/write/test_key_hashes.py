"""All keys at once belong where each would by itself."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.produce.partitioner import partition_of
from ottla.pipeline.write.key_hashes import LONG_BYTES, key_hashes


@given(
    keys=st.lists(
        st.none() | st.binary(max_size=30) | st.binary(min_size=LONG_BYTES - 3, max_size=300)
    ),
    begin=st.integers(0, 3),
    count=st.integers(1, 200),
)
def test_every_key_has_the_partition_that_the_partitioner_gives_it(
    keys: list[bytes | None], begin: int, count: int
) -> None:
    hashes = key_hashes(pa.array(keys, type=pa.binary())[begin:])

    assert len(hashes) == len(keys[begin:])
    for key, found in zip(keys[begin:], hashes.tolist(), strict=True):
        if key is not None:
            assert found % count == partition_of(key, count)


@pytest.mark.parametrize("keys", [[], [None], [b""], [None, b"", None]])
def test_what_has_no_bytes_has_a_hash_all_the_same(keys: list[bytes | None]) -> None:
    hashes = key_hashes(pa.array(keys, type=pa.binary()))

    assert [int(found) % 7 for found in hashes] == [partition_of(b"", 7)] * len(keys)
