"""`auto.offset.reset`: strategies, and durations as Java parses them."""

import pytest

from ottla.model.errors import ConfigError
from ottla.model.settings.client import ConsumerConfig
from ottla.model.settings.offset_reset import OffsetReset, parse_offset_reset


@pytest.mark.parametrize(
    ("duration", "duration_ms"),
    [
        ("PT1H", 3_600_000),
        ("pt1h", 3_600_000),
        ("P2DT3H4M5.5S", 183_845_500),
        ("PT0S", 0),
        ("PT0.0019S", 1),
        ("PT1,5S", 1_500),
        ("PT1H-10M", 3_000_000),
        ("+P1D", 86_400_000),
        ("-PT-1S", 1_000),
        ("PT2S", 2_000),
    ],
)
def test_a_duration_is_read_as_java_reads_it(duration: str, duration_ms: int) -> None:
    found = parse_offset_reset(f"by_duration:{duration}")
    assert found == OffsetReset("by_duration", duration_ms)


@pytest.mark.parametrize(
    "text",
    [
        "by_duration",
        "by_duration:",
        "by_duration:P",
        "by_duration:PT",
        "by_duration:P1DT",
        "by_duration:-PT1S",
        "by_duration:PT-1S",
        "by_duration:P1Y",
        "by_duration:P1W",
        "by_duration:1h",
        "by_duration:PT1H ",
        "by_duration:PT99999999999999999999S",
        "by_duration:PT\u0661S",
        "newest",
        "earliest:PT1H",
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        ConsumerConfig(auto_offset_reset=text)


@pytest.mark.parametrize("text", ["earliest", "latest", "none", "by_duration:PT1H30M"])
def test_a_consumer_keeps_the_text_of_its_strategy(text: str) -> None:
    assert ConsumerConfig(auto_offset_reset=text).auto_offset_reset == text
