"""The schema notation is parsed as its page describes, and an invalid line is shown in the
error."""

import pytest

from ottla.wire.schema import Field, load, parse, versions_in

TEXT = """
request GreetRequest key 7 versions 1-5 flexible 3+
    struct Place
        street string
    name string16? = null
    loud bool 2+ = true
    places []Place? 2-4 ignorable
    one Place 4+ tag 0
    guests []Guest
        age int16 3+ = -1
        home uuid?4+
data Nothing versions 0
"""


@pytest.fixture
def fields() -> dict[str, Field]:
    message, _ = parse(TEXT)
    return {field.name: field for field in message.root.fields}


def test_a_head_line_names_key_versions_and_the_first_flexible_one() -> None:
    message, nothing = parse(TEXT)
    assert (message.kind, message.root.name, message.key) == ("request", "GreetRequest", 7)
    assert message.versions == range(1, 6)
    assert [message.is_flexible(version) for version in message.versions] == [0, 0, 1, 1, 1]
    assert (nothing.key, nothing.versions, nothing.flexible_from) == (-1, range(1), None)
    assert not nothing.is_flexible(0)


def test_versions_left_out_are_those_around(fields: dict[str, Field]) -> None:
    assert fields["name"].versions == range(1, 6)
    assert fields["loud"].versions == range(2, 6)
    assert fields["places"].versions == range(2, 5)
    guest = fields["guests"].struct
    assert guest is not None
    assert [field.versions for field in guest.fields] == [range(3, 6), range(1, 6)]


def test_null_is_allowed_where_a_question_mark_says(fields: dict[str, Field]) -> None:
    guest = fields["guests"].struct
    assert guest is not None
    assert fields["name"].nullable == range(1, 6)
    assert fields["places"].nullable == range(2, 5)
    assert guest.fields[1].nullable == range(4, 6)
    assert len(fields["loud"].nullable) == 0


def test_defaults_are_zero_null_or_what_is_written(fields: dict[str, Field]) -> None:
    guest = fields["guests"].struct
    assert guest is not None
    assert fields["name"].default is None
    assert fields["loud"].default is True
    assert guest.fields[0].default == -1
    assert fields["places"].default == 0


def test_one_struct_serves_several_fields(fields: dict[str, Field]) -> None:
    assert fields["places"].struct is fields["one"].struct
    assert (fields["one"].tag, fields["places"].tag) == (0, None)
    assert fields["places"].is_ignorable
    assert not fields["one"].is_ignorable


@pytest.mark.parametrize(
    "line",
    [
        "Name string",
        "name",
        "name string 6+",
        "name string tag x",
        "name string = null",
        "name string again",
        "struct Place",
        "  name string",
        "        name string",
    ],
)
def test_a_wrong_line_is_an_error(line: str) -> None:
    with pytest.raises(AssertionError):
        list(parse(f"{TEXT.rpartition('data')[0]}    {line}\n"))


def test_ranges_of_versions_stay_within_those_around() -> None:
    assert versions_in("3", range(1, 9)) == range(3, 4)
    assert versions_in("3-5", range(1, 9)) == range(3, 6)
    assert versions_in("3+", range(1, 9)) == range(3, 9)
    for wrong in ("0+", "7-9", "5-4", "+", "x"):
        with pytest.raises(AssertionError):
            versions_in(wrong, range(1, 9))


def test_a_file_is_read_once() -> None:
    assert load("produce") is load("produce")
    assert set(load("produce")) == {"ProduceRequest", "ProduceResponse"}
