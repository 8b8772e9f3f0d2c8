"""Ids as strangers write them."""

import pytest

from ottla.model.ids import parse_node_id


@pytest.mark.parametrize(
    ("text", "node_id"),
    [
        ("0", 0),
        ("7", 7),
        ("2147483647", 2_147_483_647),
        ("2147483648", None),
        ("99999999999", None),
        ("9" * 5_000, None),
        ("-1", None),
        ("1.0", None),
        (" 1", None),
        ("²", None),
        ("", None),
    ],
)
def test_a_text_names_a_node_or_it_does_not(text: str, node_id: int | None) -> None:
    assert parse_node_id(text) == node_id
