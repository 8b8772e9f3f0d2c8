"""Metrics and interval requested of one client by all matching subscriptions together."""

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import REFUSAL_CHARS_MAX, ErrorCode, RefusedError
from ottla.model.ids import uuid_text
from ottla.model.settings.telemetry.client_metrics import match_patterns
from ottla.telemetry.clients.instances import ClientInstances
from ottla.telemetry.clients.subscriptions import (
    ClientMetricsSubscription,
    ClientTraits,
    Effective,
    least_prefixes,
    read_subscription,
    resolve,
    subscription_id_of,
)

CLIENT = UUID("6e3c1e2a-9a1f-4c55-8f20-0b7a1c9d3e44")
TRAITS = ClientTraits(CLIENT, "shop-7", "apache-kafka-java", "4.1.0", "10.0.0.7", 40_001)


def asked(*texts: dict[str, str], traits: ClientTraits = TRAITS) -> Effective:
    """Resolve subscriptions given by their settings."""
    return resolve([read_subscription(str(at), one) for at, one in enumerate(texts)], traits)


def test_a_client_that_nothing_matches_is_asked_for_nothing_and_comes_back_in_five_minutes() -> (
    None
):
    found = asked({"metrics": "*", "interval.ms": "1000", "match": "client_id=other"})
    assert (found.metrics, found.interval_ms) == ((), 300_000)


def test_the_metrics_of_all_that_match_are_united_at_the_shortest_interval() -> None:
    found = asked(
        {"metrics": "org.b.,org.a.", "interval.ms": "7000"},
        {"metrics": "org.c.", "interval.ms": "5000"},
        {"metrics": "org.d.", "interval.ms": "100", "match": "client_id=other"},
    )
    assert (found.metrics, found.interval_ms) == (("org.a.", "org.b.", "org.c."), 5_000)


def test_one_star_is_everything() -> None:
    assert asked({"metrics": "org.a."}, {"metrics": "org.b.,*"}).metrics == ("*",)


def test_a_subscription_without_metrics_still_says_how_often() -> None:
    found = asked({"interval.ms": "1000"}, {"metrics": "org.a.", "interval.ms": "2000"})
    assert (found.metrics, found.interval_ms) == (("org.a.",), 1_000)


def test_a_prefix_of_another_takes_it_in() -> None:
    assert asked({"metrics": "org.a.b,org.a.,org.a.c"}, {"metrics": "org.ab"}).metrics == (
        "org.a.",
        "org.ab",
    )


@pytest.mark.parametrize(
    ("name", "version", "interval_ms"),
    [
        ("apache-kafka-java", "4.1.0", 3_600_000),
        ("kgo", "v1.20.0", 3_600_000),
        ("librdkafka", "2.16.0", 1_500_000),
        ("confluent-kafka-python", "2.16.1-rdkafka-2.16.0", 1_500_000),
        ("confluent-kafka-dotnet", "2.6.0", 1_500_000),
        ("mine", "1.0-librdkafka-2.8.0", 1_500_000),
    ],
)
def test_the_shortest_interval_applies_up_to_an_hour_if_the_client_can_keep_it(
    name: str, version: str, interval_ms: int
) -> None:
    client = replace(TRAITS, software_name=name, software_version=version)
    for texts in ({"metrics": "*", "interval.ms": "3600000"}, {"interval.ms": "3600000"}):
        assert asked(texts, traits=client).interval_ms == interval_ms
    assert resolve([], client, unsubscribed_interval_ms=3_600_000).interval_ms == interval_ms


@pytest.mark.parametrize(
    ("match", "is_meant"),
    [
        ("", True),
        ("client_id=shop-7", True),
        ("client_id=shop-.*", True),
        ("client_id=shop", False),  # the whole name, not a part of it
        ("client_id=shop-7,client_software_name=apache-kafka-java", True),
        ("client_id=shop-7,client_software_name=kgo", False),
        ("client_software_version=4\\.1\\..*", True),
        ("client_source_address=10\\.0\\.0\\..*", True),
        ("client_source_port=4000[12]", True),
        (f"client_instance_id={uuid_text(CLIENT)}", True),
        (f"client_instance_id={CLIENT}", False),
        ("client_id=(?i)SHOP-7", True),
    ],
)
def test_a_client_is_meant_when_every_pattern_matches_the_whole_of_its_trait(
    match: str, is_meant: bool
) -> None:
    assert bool(asked({"metrics": "*", "match": match}).metrics) is is_meant


def test_a_client_without_a_name_is_matched_by_no_name() -> None:
    nameless = ClientTraits(CLIENT, None, "librdkafka", "2.16.1", "10.0.0.7", 40_001)
    assert asked({"metrics": "*", "match": "client_id=.*"}, traits=nameless).metrics == ()
    assert asked({"metrics": "*"}, traits=nameless).metrics == ("*",)


def test_no_name_that_a_client_gives_itself_makes_a_pattern_take_long() -> None:
    hostile = ClientTraits(CLIENT, "a" * 2_000, "librdkafka", "2.16.1", "10.0.0.7", 40_001)
    # Python's own engine would need 2 ** 2000 steps, and hang.
    assert asked({"metrics": "*", "match": "client_id=(a+)+b"}, traits=hostile).metrics == ()


@pytest.mark.parametrize(
    "pattern",
    [
        "(?=(a+)+b)a*",
        "(?!test).*",
        r"(a)\1",
        "a{99999999999999999999}",
        "a{2;99999}".replace(";", ","),
        "(" * 2_000,
        "a" * 1_025,
        "((a{100}){100}){100}",
        "\ud800",
    ],
)
def test_a_pattern_that_re2_cannot_read_is_an_invalid_config(pattern: str) -> None:
    """Look-around and back references need an engine that a pattern can make hang."""
    with pytest.raises(RefusedError) as caught:
        match_patterns([f"client_id={pattern}"])
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert len(caught.value.message) <= REFUSAL_CHARS_MAX


def test_a_stored_pattern_that_is_not_allowed_hurts_its_own_subscription_alone() -> None:
    instances = ClientInstances(fresh_id=lambda: CLIENT, payload_bytes_max=1_000)
    stored = {"bad": {"match": "client_id=(?=(a+)+b)a*"}, "good": {"metrics": "*"}}
    assert instances.on_subscriptions(stored) == ["bad"]


def test_settings_that_are_not_allowed_are_refused() -> None:
    for texts in ({"interval.ms": "99"}, {"match": "client_age=3"}, {"metric": "*"}):
        with pytest.raises(RefusedError):
            read_subscription("bad", texts)


def crc32c_of(data: bytes) -> int:
    """Compute CRC32C bit by bit, as its definition has it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_the_id_is_the_one_that_kafka_gives_where_order_plays_no_part() -> None:
    # Uuid.hashCode folds the four words of an id by XOR.
    words = [CLIENT.int >> shift & 0xFFFFFFFF for shift in (0, 32, 64, 96)]
    unsigned = crc32c_of(b"[*]1000") ^ words[0] ^ words[1] ^ words[2] ^ words[3]
    signed = unsigned - (1 << 32) if unsigned >> 31 else unsigned
    assert subscription_id_of(("*",), 1_000, CLIENT) == signed


PREFIXES = st.lists(st.sampled_from(["*", "org.", "org.a.", "org.a.b", "org.b.", "z"]), max_size=4)
SUBSCRIPTIONS = st.lists(
    st.builds(
        ClientMetricsSubscription,
        name=st.just("any"),
        metrics=PREFIXES.map(tuple),
        interval_ms=st.sampled_from([100, 1_000, 300_000, 3_600_000]),
    ),
    max_size=4,
)


@given(SUBSCRIPTIONS, SUBSCRIPTIONS)
def test_ids_are_equal_exactly_when_subscriptions_are(
    one: list[ClientMetricsSubscription], other: list[ClientMetricsSubscription]
) -> None:
    found, others = resolve(one, TRAITS), resolve(other, TRAITS)
    is_same = (found.metrics, found.interval_ms) == (others.metrics, others.interval_ms)
    assert (found.subscription_id == others.subscription_id) is is_same
    assert -(1 << 31) <= found.subscription_id < 1 << 31


@given(SUBSCRIPTIONS)
def test_the_order_of_subscriptions_and_of_their_metrics_changes_nothing(
    subscriptions: list[ClientMetricsSubscription],
) -> None:
    mixed = [
        ClientMetricsSubscription(one.name, one.metrics[::-1], one.interval_ms)
        for one in reversed(subscriptions)
    ]
    assert resolve(mixed, TRAITS) == resolve(subscriptions, TRAITS)


NAMES = st.lists(st.text("ab.", max_size=4), max_size=6)


@given(NAMES, st.text("ab.", max_size=5))
def test_the_fewest_prefixes_choose_what_all_of_them_chose(
    prefixes: list[str], metric: str
) -> None:
    least = least_prefixes(prefixes)
    assert any(map(metric.startswith, least)) is any(map(metric.startswith, prefixes))
    assert not any(a != b and a.startswith(b) for a in least for b in least)
    assert list(least) == sorted(set(least))
