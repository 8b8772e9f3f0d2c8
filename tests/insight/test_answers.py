"""The table of answers, which every interface shows."""

import pytest

from ottla.insight.answers import ANSWERS, VALUE_CHARS_MAX, answer_of, checked
from ottla.model.errors import ConfigError


def test_each_answer_has_a_name_a_command_and_a_tool_of_its_own() -> None:
    for names in (
        [one.name for one in ANSWERS],
        [one.command for one in ANSWERS],
        [one.tool for one in ANSWERS],
    ):
        assert len(set(names)) == len(ANSWERS)
    assert all(answer_of(one.name) is one for one in ANSWERS)


def test_required_parameters_precede_optional_ones() -> None:
    for answer in ANSWERS:
        required = [one.is_required for one in answer.parameters]
        assert required == sorted(required, reverse=True), answer.name


def test_empty_values_count_as_not_given() -> None:
    values = {"user": "", "client_id": None, "ip": "::1"}
    assert checked(answer_of("throttle"), values) == {"ip": "::1"}


@pytest.mark.parametrize(
    ("name", "values", "reason"),
    [
        ("lag", {}, "group: is missing"),
        ("lag", {"group": "g", "topic": "t"}, "topic: is no parameter of lag"),
        ("lag", {"group": "g" * (VALUE_CHARS_MAX + 1)}, "group: is longer than"),
    ],
)
def test_wrong_values_are_refused(name: str, values: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        checked(answer_of(name), values)
