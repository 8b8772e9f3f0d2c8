"""The log of Spark's file sink, in the form that Spark's readers accept."""

import pytest

from ottla.model.errors import CorruptDataError
from ottla.pipeline.archive.sink_log import SinkLogEntry, log_file, parse, read_order, text_of

LINE = (
    '{"path":"file:///a%20lake/topic=t/part-0.parquet","size":81203,"isDir":false,'
    '"modificationTime":1795282507761,"blockReplication":1,"blockSize":33554432,"action":"add"}'
)


def order(*names: str) -> list[str]:
    return [file.name for file in read_order(names)]


def test_readers_take_the_last_compact_file_and_the_batches_after_it() -> None:
    assert order() == []
    assert order("0", "1", "2") == ["0", "1", "2"]
    assert order(*map(str, range(9)), "9.compact", "10", "11") == ["9.compact", "10", "11"]
    assert order("9.compact", "19.compact") == ["19.compact"]


def test_a_batch_that_is_there_in_both_forms_counts_once() -> None:
    assert order("8", "9", "9.compact") == ["9.compact"]


def test_a_batch_that_is_missing_is_corrupt_data() -> None:
    with pytest.raises(CorruptDataError, match="batch 10 is missing"):
        order("9.compact", "11")


def test_other_names_are_no_part_of_the_log() -> None:
    for name in (".9.crc", ".9.compact.0f.tmp", "nine", "9.compact.crc", "", "-1", "٣"):
        assert log_file(name) is None


def test_what_spark_wrote_is_read_and_written_back_as_it_was() -> None:
    text = f"v1\n{LINE}\n{LINE.replace('part-0', 'part-1')}"
    entries = parse("0", text)
    assert [entry.path for entry in entries] == [
        "/a lake/topic=t/part-0.parquet",
        "/a lake/topic=t/part-1.parquet",
    ]
    assert [entry.byte_count for entry in entries] == [81_203, 81_203]
    assert text_of(entries, modified_ms=5) == text


def test_a_new_entry_is_written_as_spark_would() -> None:
    entry = SinkLogEntry("/a lake/topic=t/part-0.parquet", 81_203)
    assert text_of([entry], modified_ms=1795282507761) == f"v1\n{LINE}"


def test_a_batch_without_files_names_nothing() -> None:
    assert parse("0", "v1") == []
    assert text_of([], modified_ms=0) == "v1"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "begins with ''"),
        ("v2\n{}", "begins with 'v2'"),
        ("v1\n{", "JSONDecodeError"),
        ("v1\n[]", "TypeError"),
        ("v1\n{}", "KeyError"),
        (f"v1\n{LINE.replace('add', 'delete')}", "the action 'delete'"),
        (f"v1\n{LINE.replace('file:///', 's3a://b/')}", "not on this machine"),
    ],
)
def test_what_is_no_log_is_corrupt_data(text: str, why: str) -> None:
    with pytest.raises(CorruptDataError, match=why):
        parse("7", text)
