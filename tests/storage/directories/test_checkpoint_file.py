"""Kafka's checkpoint format, byte for byte."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import CorruptDataError
from ottla.model.ids import Offset, TopicPartition
from ottla.storage.directories.checkpoint_file import format_checkpoint, parse_checkpoint

PARTITIONS = st.builds(
    TopicPartition,
    st.text(alphabet="abcXYZ019._-", min_size=1, max_size=20),
    st.integers(0, (1 << 31) - 1),
)
OFFSETS = st.integers(0, (1 << 63) - 1).map(Offset)


def test_the_text_is_kafkas() -> None:
    offsets = {TopicPartition("b", 0): Offset(3), TopicPartition("a", 10): Offset(0)}
    assert format_checkpoint(offsets) == b"0\n2\na 10 0\nb 0 3\n"
    assert format_checkpoint({}) == b"0\n0\n"


@given(st.dictionaries(PARTITIONS, OFFSETS))
def test_what_is_written_is_read(offsets: dict[TopicPartition, Offset]) -> None:
    assert parse_checkpoint(format_checkpoint(offsets)) == offsets


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"0\n",
        b"1\n0\n",
        b"0\n2\na 0 1\n",
        b"0\n1\na 0 1\nb 0 1\n",
        b"0\n1\na 0\n",
        b"0\n1\na 0 -1\n",
        b"0\n1\na x 1\n",
        b"0\n2\na 0 1\na 0 2\n",
        b"0\n1\na 0 99999999999999999999999\n",
        b"\0\0\0\0",
        b"\xff",
    ],
)
def test_a_file_that_lies_is_corrupt(wrong: bytes) -> None:
    with pytest.raises(CorruptDataError):
        parse_checkpoint(wrong)


@given(st.binary(max_size=60))
def test_random_bytes_give_only_our_error(data: bytes) -> None:
    try:
        offsets = parse_checkpoint(data)
    except CorruptDataError:
        return
    assert parse_checkpoint(format_checkpoint(offsets)) == offsets
