"""The position in a stream's checkpoint."""

from pathlib import Path

import pytest

from ottla.model.errors import CorruptDataError
from ottla.model.ids import TopicPartition
from ottla.pipeline.archive.checkpoint import NONE, committed_position, last_batch, parse_offsets

OFFSETS = 'v1\n{"batchWatermarkMs":0}\n{"t": {"0": 5, "1": 7}, "t@KANQfRNXSZaoGjvPlvaLHA": {}}'


def batch(checkpoint: Path, number: int, text: str = OFFSETS, *, is_done: bool = True) -> None:
    for log, content in (("offsets", text), ("commits", "v1\n{}")):
        (checkpoint / log).mkdir(parents=True, exist_ok=True)
        if log == "offsets" or is_done:
            (checkpoint / log / str(number)).write_text(content)
            (checkpoint / log / f".{number}.crc").write_bytes(b"")


def test_a_query_is_at_the_end_of_the_last_batch_that_it_ended(tmp_path: Path) -> None:
    batch(tmp_path, 9)
    batch(tmp_path, 10, OFFSETS.replace("5", "50"))
    batch(tmp_path, 11, OFFSETS.replace("5", "500"), is_done=False)
    assert committed_position(tmp_path) == {TopicPartition("t", 0): 50, TopicPartition("t", 1): 7}
    assert (last_batch(tmp_path, "offsets"), last_batch(tmp_path, "commits")) == (11, 10)


def test_a_query_that_has_ended_no_batch_is_nowhere(tmp_path: Path) -> None:
    assert committed_position(tmp_path) == {}
    batch(tmp_path, 0, is_done=False)
    assert committed_position(tmp_path) == {}
    assert last_batch(tmp_path, "commits") == NONE


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "begins with ''"),
        ("v2\n{}\n{}", "begins with 'v2'"),
        ("v1\n{}", "tells of 0 sources"),
        ("v1\n{}\n{}\n{}", "tells of 2 sources"),
        ("v1\n{}\n-", "Expecting value"),
        ("v1\n{}\n17", "no offset of topics"),
        ('v1\n{}\n{"t": 17}', "t has 17"),
    ],
)
def test_what_is_no_offset_of_topics_is_refused(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_offsets(text)
    batch(tmp_path, 0, text)
    with pytest.raises(CorruptDataError, match=why):
        committed_position(tmp_path)
