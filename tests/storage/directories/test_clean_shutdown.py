"""The marker of a clean stop: its being there counts, its epoch only when it is one."""

import pytest

from ottla.storage.directories.clean_shutdown import format_clean_shutdown, parse_clean_shutdown


def test_the_content_is_kafkas() -> None:
    assert format_clean_shutdown(12) == b'{"version":0,"brokerEpoch":12}'


def test_the_epoch_survives() -> None:
    assert parse_clean_shutdown(format_clean_shutdown(1 << 60)) == 1 << 60


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[" * 100_000,
        b"[]",
        b"{}",
        b'{"brokerEpoch":"1"}',
        b'{"brokerEpoch":true}',
        b"\xff",
        b"7",
    ],
)
def test_a_marker_without_an_epoch_tells_none(content: bytes) -> None:
    assert parse_clean_shutdown(content) == -1
