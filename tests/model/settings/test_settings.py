"""Settings parsed from text: the same error for an invalid value from every source."""

import pytest

from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.ids import NodeId
from ottla.model.settings.broker import BrokerConfig, load_broker_config
from ottla.model.settings.controller import load_controller_config
from ottla.model.settings.declare import definitions, load, settings_without_effect
from ottla.model.settings.dynamic import broker_definitions, check_texts
from ottla.model.settings.endpoints import (
    ConfiguredVoter,
    ListenAddress,
    parse_address,
    parse_listeners,
)
from ottla.model.settings.group_overrides import GroupSettings, group_settings_of
from ottla.model.settings.groups import GroupConfig
from ottla.model.settings.resources import ConfigKind
from ottla.model.settings.storage.topic import TOPIC_DEFINITIONS, TopicConfig, topic_defaults_of
from ottla.model.settings.telemetry.client_metrics import SubscriptionConfig
from ottla.model.settings.telemetry.client_telemetry import TelemetryConfig
from ottla.model.settings.telemetry.exporters import (
    ExporterConfig,
    OtlpEndpoint,
    parse_headers,
    parse_otlp_endpoints,
)

THROTTLED = "leader.replication.throttled.replicas"
SESSION = "consumer.session.timeout.ms"
HEARTBEAT = "consumer.heartbeat.interval.ms"

MINIMAL = {"node.id": "1", "controller.quorum.voters": "101@localhost:9093"}


def test_every_default_text_reads_back_as_its_default_value() -> None:
    for config in (
        TopicConfig,
        BrokerConfig,
        GroupConfig,
        GroupSettings,
        SubscriptionConfig,
        ExporterConfig,
        TelemetryConfig,
    ):
        for definition in definitions(config).values():
            if definition.default:
                value = definition.value_of(definition.default)
                field = next(
                    f
                    for f in config.__dataclass_fields__.values()
                    if f.name == definition.field_name
                )
                assert value == field.default, definition.key


def test_a_broker_file_sets_what_it_names_and_reports_unknown_keys() -> None:
    config, unknown = load_broker_config(
        {
            **MINIMAL,
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.retention.hours": "2",
            "controller.quorum.fetch.timeout.ms": "300",
            "num.io.threads": "8",
        }
    )
    assert config.node_id == 1
    assert config.controller_quorum_voters == (ConfiguredVoter(NodeId(101), "localhost", 9093),)
    assert config.listeners == (ListenAddress("PLAINTEXT", "127.0.0.1", 0),)
    assert config.topic_defaults == {"retention.ms": "7200000"}
    assert config.quorum.fetch_timeout_ms == 300
    assert unknown == {"num.io.threads"}


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("num.partitions", "0", "num.partitions: is '0'; it must be an integer of at least 1"),
        ("num.partitions", "many", "is 'many'; it must be an integer of at least 1"),
        ("auto.create.topics.enable", "yes", "it must be true or false"),
        ("listeners", "PLAINTEXT:/x", "a list of NAME://host:port"),
        ("controller.quorum.voters", "101:localhost", "a list of id@host:port"),
        ("log.cleanup.policy", "shred", "a list of any of delete, compact"),
        ("log.segment.bytes", "99999999999", "at least 1048576"),
        ("broker.session.timeout.ms", "100", "must be above broker.heartbeat.interval.ms"),
    ],
)
def test_a_bad_value_is_named_with_its_key_and_what_is_allowed(
    key: str, value: str, sentence: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_broker_config({**MINIMAL, key: value})
    assert caught.value.setting == key
    assert sentence in str(caught.value)


def test_bootstrap_servers_are_controllers_of_unknown_ids() -> None:
    servers = {"controller.quorum.bootstrap.servers": "one:9093,two:9094"}
    unnamed = (ConfiguredVoter(NodeId(-2), "one", 9093), ConfiguredVoter(NodeId(-3), "two", 9094))
    broker, _unknown = load_broker_config({"node.id": "1", **servers})
    assert broker.controllers == unnamed
    controller, _unknown = load_controller_config({"node.id": "101", **servers})
    assert controller.controllers == unnamed
    assert not controller.advertised_addresses


@pytest.mark.parametrize(
    ("more", "address"),
    [
        ({"listeners": "CONTROLLER://three:9095"}, ("three", 9095)),
        (
            {
                "listeners": "CONTROLLER://:9095",
                "advertised.listeners": "CONTROLLER://outside:9096",
            },
            ("outside", 9096),
        ),
        ({"listeners": "OLD://:9095,NEW://three:9096"}, ("three", 9096)),
        (
            {
                "listeners": "OLD://three:9095,NEW://three:9096",
                "controller.listener.names": "NEW,OLD",
            },
            ("three", 9096),
        ),
    ],
)
def test_a_controller_knows_its_own_address(more: dict[str, str], address: tuple[str, int]) -> None:
    texts = {"node.id": "101", "controller.quorum.bootstrap.servers": "one:9093", **more}
    controller, _unknown = load_controller_config(texts)
    assert controller.advertised_addresses[0][1:3] == address


def test_the_voters_of_a_file_name_the_listener_that_controllers_connect_to() -> None:
    """While a quorum changes to another listener, both have an address (docs/security.md)."""
    texts = {
        "node.id": "101",
        "controller.quorum.voters": "101@outside:9999",
        "listeners": "OLD://inside:9095,NEW://inside:9096",
        "controller.listener.names": "NEW,OLD",
    }
    controller, _unknown = load_controller_config(texts)
    found = [str(one) for one in controller.advertised_addresses]
    assert found == ["NEW://outside:9999", "OLD://inside:9095"]


def test_a_broker_without_id_or_controllers_names_the_missing_keys() -> None:
    with pytest.raises(ConfigError, match=r"node\.id: is not set"):
        load_broker_config({"controller.quorum.voters": "101@localhost:9093"})
    with pytest.raises(ConfigError, match=r"controller\.quorum\.voters: is not set"):
        load_broker_config({"node.id": "1"})


def test_a_broker_may_not_have_a_controllers_id() -> None:
    with pytest.raises(ConfigError, match=r"node\.id.*is a controller's"):
        load_broker_config({**MINIMAL, "node.id": "101"})


def test_brokers_reach_each_other_by_the_listener_that_is_named_or_the_first() -> None:
    listeners = {"listeners": "OUTSIDE://:9092,INSIDE://:9094"}
    first, _ = load_broker_config({**MINIMAL, **listeners})
    named, _ = load_broker_config({**MINIMAL, **listeners, "inter.broker.listener.name": "INSIDE"})
    assert (first.inter_broker_listener, named.inter_broker_listener) == ("OUTSIDE", "INSIDE")
    with pytest.raises(ConfigError, match="must be one of listeners: OUTSIDE, INSIDE"):
        load_broker_config({**MINIMAL, **listeners, "inter.broker.listener.name": "ELSEWHERE"})


def test_a_controller_must_stand_among_its_voters() -> None:
    with pytest.raises(ConfigError, match=r"add 102@host:port"):
        load_controller_config({**MINIMAL, "node.id": "102"})
    config, unknown = load_controller_config({**MINIMAL, "node.id": "101"})
    assert config.node_id == 101
    assert unknown == set()


def test_a_topic_takes_its_override_then_the_brokers_default_then_kafkas() -> None:
    defaults = topic_defaults_of({"log.retention.ms": "5", "log.segment.bytes": "2097152"})
    topic = TopicConfig.from_texts({"retention.ms": "7"}, defaults)
    assert topic.retention_ms == 7
    assert topic.segment_bytes == 2_097_152
    assert topic.max_message_bytes == 1_048_588


def test_the_finer_unit_wins_where_a_file_sets_both() -> None:
    found = topic_defaults_of({"log.retention.ms": "-1", "log.retention.hours": "1"})
    assert found == {"retention.ms": "-1"}


def refusal_of(
    kind: ConfigKind, texts: dict[str, str], groups: GroupConfig | None = None
) -> tuple[ErrorCode, str] | None:
    """Return how a change is refused, None where it is not."""
    try:
        check_texts(kind, texts, texts, groups=groups or GroupConfig())
    except RefusedError as refusal:
        return refusal.code, refusal.message
    return None


@pytest.mark.parametrize(
    ("kind", "key", "text", "code", "sentence"),
    [
        (ConfigKind.TOPIC, "segment.bytes", "5", "INVALID_CONFIG", "at least 1048576"),
        (ConfigKind.TOPIC, "nonsense", "5", "INVALID_CONFIG", "Unknown topic config"),
        (ConfigKind.TOPIC, THROTTLED, "0", "INVALID_CONFIG", "PARTITION:BROKER"),
        (ConfigKind.TOPIC, THROTTLED, "*", None, ""),
        (ConfigKind.TOPIC, THROTTLED, "0:1,12:3", None, ""),
        (ConfigKind.BROKER, "node.id", "5", "INVALID_REQUEST", "dynamically: node.id"),
        (ConfigKind.BROKER, "group.max.size", "5", "INVALID_REQUEST", "dynamically: group.max"),
        (ConfigKind.BROKER, "log.retention.ms", "soon", "INVALID_REQUEST", "an integer"),
        (ConfigKind.BROKER, "log.retention.ms", "60000", None, ""),
        (ConfigKind.GROUP, SESSION, "44999", "INVALID_CONFIG", "consumer.min"),
        (ConfigKind.GROUP, SESSION, "60001", "INVALID_CONFIG", "consumer.max"),
        (ConfigKind.GROUP, SESSION, "0", "INVALID_CONFIG", "at least 1"),
        (ConfigKind.GROUP, SESSION, "60000", None, ""),
        (ConfigKind.GROUP, HEARTBEAT, "4999", "INVALID_CONFIG", "consumer.min"),
        (ConfigKind.GROUP, HEARTBEAT, "15001", "INVALID_CONFIG", "consumer.max"),
        (ConfigKind.GROUP, "nonsense", "1", "INVALID_CONFIG", "Unknown group config"),
        (ConfigKind.CLIENT_METRICS, "interval.ms", "99", "INVALID_REQUEST", "between 100 and"),
        (ConfigKind.CLIENT_METRICS, "interval.ms", "soon", "INVALID_CONFIG", "an integer"),
        (ConfigKind.CLIENT_METRICS, "interval.ms", "3600000", None, ""),
        (ConfigKind.CLIENT_METRICS, "nonsense", "1", "INVALID_REQUEST", "Unknown client metrics"),
        (ConfigKind.CLIENT_METRICS, "match", "client_id=a.*,client_software_name=b", None, ""),
        (ConfigKind.CLIENT_METRICS, "match", "", None, ""),
        (ConfigKind.CLIENT_METRICS, "match", "colour=red", "INVALID_CONFIG", "colour=red"),
        (ConfigKind.CLIENT_METRICS, "match", "client_id", "INVALID_CONFIG", "client_id"),
        (ConfigKind.CLIENT_METRICS, "match", "client_id=", "INVALID_CONFIG", "client_id="),
        (ConfigKind.CLIENT_METRICS, "match", "client_id=a=b", "INVALID_CONFIG", "client_id=a=b"),
        (ConfigKind.CLIENT_METRICS, "match", "client_id=[", "INVALID_CONFIG", "client_id=["),
        (ConfigKind.CLIENT_METRICS, "metrics", "*", None, ""),
    ],
)  # fmt: skip
def test_a_change_that_is_not_allowed_is_refused_with_kafkas_code_and_why(
    kind: ConfigKind, key: str, text: str, code: str | None, sentence: str
) -> None:
    refusal = refusal_of(kind, {key: text})
    if code is None:
        assert refusal is None
        return
    assert refusal is not None
    assert refusal[0] is ErrorCode[code]
    assert sentence in refusal[1]


def test_a_groups_session_outlasts_its_heartbeats() -> None:
    wide = GroupConfig(consumer_heartbeat_interval_ms_max=60_000)
    settings = {"consumer.heartbeat.interval.ms": "45000"}
    refusal = refusal_of(ConfigKind.GROUP, settings, wide)
    assert refusal is not None
    assert "must be greater than consumer.heartbeat.interval.ms" in refusal[1]
    longer = {**settings, "consumer.session.timeout.ms": "45001"}
    assert refusal_of(ConfigKind.GROUP, longer, wide) is None


def test_a_group_goes_by_what_is_set_on_it_and_else_by_the_brokers_file() -> None:
    config = GroupConfig(consumer_session_timeout_ms=50_000)
    texts = {"consumer.heartbeat.interval.ms": "7000", "share.session.timeout.ms": "1"}
    assert group_settings_of(texts, config) == GroupSettings(
        session_timeout_ms=50_000, heartbeat_interval_ms=7_000
    )


@pytest.mark.parametrize(
    ("texts", "key"),
    [
        ({"group.min.session.timeout.ms": "9", "group.max.session.timeout.ms": "8"}, "group.max"),
        ({"group.consumer.session.timeout.ms": "44000"}, "group.consumer.session.timeout.ms"),
        ({"group.consumer.session.timeout.ms": "61000"}, "group.consumer.max.session.timeout.ms"),
        ({"group.consumer.heartbeat.interval.ms": "1"}, "group.consumer.heartbeat.interval.ms"),
        (
            {"group.consumer.assignment.interval.ms": "15001"},
            "group.consumer.max.assignment.interval.ms",
        ),
        ({"group.coordinator.rebalance.protocols": "consumer"}, "classic must be among them"),
        ({"group.consumer.assignors": ""}, "group.consumer.assignors"),
    ],
)
def test_group_settings_that_contradict_each_other_stop_the_start(
    texts: dict[str, str], key: str
) -> None:
    with pytest.raises(ConfigError, match=key):
        load(GroupConfig, texts)


def test_addresses_are_read_with_ipv6_and_refused_when_halved() -> None:
    assert parse_address("[::1]:9092") == ("::1", 9092)
    assert parse_address(":9092") == ("", 9092)
    for bad in ("host", "host:", "::1:9092", "host:70000", "host:-1", "a..b:1", "\udc80:1"):
        with pytest.raises(ValueError, match=r".*"):
            parse_address(bad)
    with pytest.raises(ValueError, match=r".*"):
        parse_listeners("A://h:1,A://h:2")


def test_collectors_are_named_by_how_they_are_spoken_to() -> None:
    found = parse_otlp_endpoints("grpc://h, https://[::1]:8/base/,http://H:1")
    assert found == (
        OtlpEndpoint("grpc", "h", 4317),
        OtlpEndpoint("https", "::1", 8, "/base"),
        OtlpEndpoint("http", "h", 1),
    )
    assert [str(endpoint) for endpoint in found] == [
        "grpc://h:4317",
        "https://[::1]:8/base",
        "http://h:1",
    ]
    for bad in (
        "h:4317",
        "tcp://h",
        "grpc://h/path",
        "http://",
        "http://h:x",
        "http://u@h",
        "http://a..b",
    ):
        with pytest.raises(ValueError, match=r".*"):
            parse_otlp_endpoints(bad)
    with pytest.raises(ConfigError, match="grpc://host:4317"):
        load(ExporterConfig, {"telemetry.otlp.endpoint": "h:1"})


def test_headers_are_pairs_that_http_can_carry() -> None:
    assert parse_headers("Api-Key=a=b, x=") == (("api-key", "a=b"), ("x", ""))
    for bad in ("key", "=x", "a b=c", "a=\x01", "a=é"):
        with pytest.raises(ValueError, match=r".*"):
            parse_headers(bad)


def test_nodes_know_where_metrics_go_and_leave_plug_ins_their_own_settings() -> None:
    texts = {
        **MINIMAL,
        "telemetry.otlp.endpoint": "grpc://h:1",
        "telemetry.exporters": "mine",
        "telemetry.exporter.mine.path": "/tmp",
        "telemetry.unheard.of": "1",
    }
    broker, unknown_to_broker = load_broker_config(texts)
    controller, unknown_to_controller = load_controller_config({**texts, "node.id": "101"})
    assert broker.exporters == controller.exporters
    assert broker.exporters.otlp_endpoints == (OtlpEndpoint("grpc", "h", 1),)
    assert broker.exporters.plugins == ("mine",)
    assert unknown_to_broker == unknown_to_controller == {"telemetry.unheard.of"}


def test_every_setting_says_what_it_is_for() -> None:
    for definition in [*TOPIC_DEFINITIONS.values(), *broker_definitions().values()]:
        assert definition.doc.endswith("."), definition.key


def test_settings_without_effect_are_these_and_say_so() -> None:
    marked = {
        key: (definition.has_no_effect_yet, definition.no_effect_values)
        for key, definition in [*TOPIC_DEFINITIONS.items(), *broker_definitions().items()]
        if definition.has_no_effect_yet
    }
    assert marked == {
        "log.cleaner.enable": ("compacted topics are always compacted", ("false",)),
        "transaction.two.phase.commit.enable": (
            "transactions that another resource manager ends are refused",
            ("true",),
        ),
        "transaction.state.log.load.buffer.size": (
            "the state is read in parts of 64 KiB, between which other requests are served",
            (),
        ),
    }
    known = broker_definitions()
    assert known["transaction.state.log.load.buffer.size"].documentation.endswith(
        " It has no effect yet: the state is read in parts of 64 KiB, between which other requests"
        " are served."
    )
    assert broker_definitions()["log.cleaner.enable"].documentation.endswith(
        " The value false has no effect yet: compacted topics are always compacted."
    )


def test_only_what_is_set_in_vain_is_named_as_such() -> None:
    known = broker_definitions()
    assert settings_without_effect(known, {"log.cleaner.enable": "true"}) == {}
    assert settings_without_effect(
        known,
        {
            "log.cleaner.enable": "false",
            "log.roll.ms": "1",
            "transaction.state.log.load.buffer.size": "9",
        },
    ) == {
        "log.cleaner.enable": "compacted topics are always compacted",
        "transaction.state.log.load.buffer.size": "the state is read in parts of 64 KiB, between "
        "which other requests are served",
    }


@pytest.mark.parametrize(
    "key", ["offsets.topic.segment.bytes", "transaction.state.log.segment.bytes"]
)
def test_a_state_topic_is_given_no_segments_that_a_topic_may_not_have(key: str) -> None:
    smallest = TOPIC_DEFINITIONS["segment.bytes"].at_least
    assert smallest is not None

    load_broker_config({**MINIMAL, key: str(int(smallest))})
    with pytest.raises(ConfigError, match=key):
        load_broker_config({**MINIMAL, key: str(int(smallest) - 1)})


@pytest.mark.parametrize("second", ["/d1", "/d1/", "/d2/../d1", "/d1/./"])
def test_a_log_directory_that_is_named_twice_is_refused(second: str) -> None:
    with pytest.raises(ConfigError, match=r"log\.dirs: names .*; name each directory once"):
        BrokerConfig(node_id=NodeId(1), log_dirs=("/d1", second))
