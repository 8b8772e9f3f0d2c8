"""Texts that no request can hold are refused at the call, by the argument's name."""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.client.network.arguments import checked
from ottla.client.produce.record_arguments import check_place
from ottla.model.ids import TopicPartition


@checked
def takes(text: str = "", texts: list[str] | None = None, other: str | int | None = None) -> None:
    """Take texts in each way that calls of the client do."""


@checked
def reads(
    place: TopicPartition | None = None, offsets: dict[TopicPartition, int] | None = None
) -> None:
    """Take values with texts in them."""


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: takes("t\udcff"), "text"),
        (lambda: takes(texts=["t", "t\ud800"]), r"texts\[1\]"),
        (lambda: takes(other="\udfff"), "other"),
        (lambda: reads(TopicPartition("t\ud800", 0)), "place"),
        (lambda: reads(offsets={TopicPartition("t\ud800", 0): 1}), "a key of offsets"),
        (lambda: check_place("t\udcff", None, None), "topic"),
    ],
)
def test_a_lone_surrogate_is_refused(call: Callable[[], Any], name: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name} is .* UTF-8 cannot encode"):
        call()


def test_any_other_text_is_taken() -> None:
    takes("\U0001f600\x00", ["é"], "x")
    reads(TopicPartition("é", 0), {TopicPartition("é", 1): 0})
