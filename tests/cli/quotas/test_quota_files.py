"""Quotas as files: a written file is read back, and applying it twice changes nothing."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.quotas.quota import parse_limit
from ottla.cli.quotas.quota_files import changes_to, exported, imported, owner_of
from ottla.client.admin_parts.admin_quotas import QuotaChange
from ottla.model.errors import ConfigError

ANNA = owner_of([("user", "anna")])
ANY_CLIENT = owner_of([("user", "anna"), ("client-id", None)])
Names = st.one_of(st.none(), st.sampled_from(["anna", "bert"]))
Owners = st.one_of(
    st.builds(lambda name: owner_of([("user", name)]), Names),
    st.builds(lambda user, client: owner_of([("user", user), ("client-id", client)]), Names, Names),
)
AllLimits = st.dictionaries(
    Owners, st.dictionaries(st.sampled_from(["a", "b"]), st.integers(1, 3).map(float), min_size=1)
)


@given(limits=AllLimits)
def test_what_is_exported_is_read_again(limits: Any) -> None:
    assert imported(exported(limits)) == limits


@given(wanted=AllLimits, present=AllLimits, prunes=st.booleans())
def test_applied_changes_leave_nothing_to_change(wanted: Any, present: Any, prunes: bool) -> None:
    after = {owner: dict(limits) for owner, limits in present.items()}
    for change in changes_to(wanted, present, prunes=prunes):
        limits = after.setdefault(change.owner, {})
        for key, limit in change.limits.items():
            if limit is None:
                del limits[key]
            else:
                limits[key] = limit
        if not limits:
            del after[change.owner]

    assert changes_to(wanted, after, prunes=prunes) == []
    if prunes:
        assert after == wanted


def test_only_what_differs_is_changed() -> None:
    wanted = {ANNA: {"a": 1.0, "b": 2.0}}
    present = {ANNA: {"a": 1.0, "c": 3.0}, ANY_CLIENT: {"a": 9.0}}

    assert changes_to(wanted, present, prunes=False) == [QuotaChange(ANNA, {"b": 2.0})]
    assert changes_to(wanted, present, prunes=True) == [
        QuotaChange(ANNA, {"b": 2.0, "c": None}),
        QuotaChange(ANY_CLIENT, {"a": None}),
    ]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({}, "must hold a list"),
        ([3], "entry 1 must be an object"),
        ([{"limits": {}}], "entry 1 names no user"),
        ([{"user": "a", "limits": {}, "colour": 1}], "entry 1 has 'colour'"),
        ([{"user": 7, "limits": {}}], "entry 1 has a name that is no text"),
        ([{"user": "a", "limits": {"a": "x"}}], "entry 1 must have limits"),
        ([{"user": "a", "limits": {"a": True}}], "entry 1 must have limits"),
        ([{"user": "a"}], "entry 1 must have limits"),
        ([{"user": "a", "limits": {}}] * 2, "entry 2 has an owner that came before"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused_with_its_place(content: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        imported(content)


@pytest.mark.parametrize(
    ("text", "limit"),
    [("12.5", 12.5), ("5M", 5e6), ("5Mi", 5 << 20), ("1g", 1e9), ("2k", 2_000), ("1ki", 1_024)],
)
def test_limits_have_units(text: str, limit: float) -> None:
    assert parse_limit("producer_byte_rate", text) == limit


@pytest.mark.parametrize("text", ["", "five", "5T", "5MM", "M"])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="give a number"):
        parse_limit("producer_byte_rate", text)


def test_a_limit_that_was_left_out_is_named_as_such() -> None:
    with pytest.raises(ConfigError, match="producer_byte_rate: has no limit; give a number"):
        parse_limit("producer_byte_rate", "")
