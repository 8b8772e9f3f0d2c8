"""Numbers in forms and paths of pages."""

import pytest

from ottla.console.form_values import form_number, number_in
from ottla.model.errors import ConfigError


@pytest.mark.parametrize(
    "text", ["", "-1", "+1", "1.5", "1_0", " 1", "٣", "²", "0x1", "9" * 10, "9" * 100_000]
)
def test_other_texts_are_no_number(text: str) -> None:
    assert number_in(text) is None


def test_numbers_of_fields_are_bounded() -> None:
    assert number_in("0" * 9) == 0
    assert form_number("total", " 12 ", least=12, digits_max=2) == 12
    for text in ("11", "123", "many"):
        with pytest.raises(ConfigError, match="whole number from 12 on"):
            form_number("total", text, least=12, digits_max=2)
