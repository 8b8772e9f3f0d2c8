"""Every broker, ottla's or Kafka's, maps a group to the same partition."""

import pytest

from ottla.broker.coordinators.placement import java_hash, partition_of


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99_162_322),
        ("The quick brown fox jumps over the lazy dog", -609_428_141),
        ("polygenelubricants", -(1 << 31)),
        ("\N{GRINNING FACE}", 0xD83D * 31 + 0xDE00),
    ],
)
def test_a_text_hashes_as_in_java(text: str, code: int) -> None:
    assert java_hash(text) == code


def test_a_negative_hash_is_taken_without_its_sign_and_the_lowest_is_0() -> None:
    assert partition_of("The quick brown fox jumps over the lazy dog", 50) == 609_428_141 % 50
    assert partition_of("polygenelubricants", 50) == 0
    assert partition_of("hello", 50) == 22
