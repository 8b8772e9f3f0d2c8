"""Checks of settings that clients change while the cluster runs (IncrementalAlterConfigs).

The error codes are Kafka's: INVALID_REQUEST for a setting that may not be changed on a broker
(KAFKA-13609), and INVALID_CONFIG for a setting that may not be changed on a topic or a group.
"""

from collections.abc import Mapping
from functools import cache

from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.settings.balance import BALANCE_PREFIX, BalanceSettings
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.connections import (
    LISTENER_PREFIX,
    MAX_CONNECTION_CREATION_RATE,
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_IP,
    ConnectionConfig,
    listener_definition,
)
from ottla.model.settings.controller import ControllerConfig
from ottla.model.settings.declare import Definition, definitions
from ottla.model.settings.group_overrides import (
    GROUP_DEFINITIONS,
    check_broker_intervals,
    check_group_texts,
)
from ottla.model.settings.groups import GroupConfig
from ottla.model.settings.kafka_keys import UNKEPT_PROMISES, idle_definitions
from ottla.model.settings.logs import LogOutputConfig
from ottla.model.settings.quorum import QuorumConfig
from ottla.model.settings.quotas import MutationQuotaConfig, QuotaConfig
from ottla.model.settings.resources import ConfigKind
from ottla.model.settings.security.authorizer import AuthorizerConfig
from ottla.model.settings.security.delegation_tokens import DelegationTokenConfig
from ottla.model.settings.security.dynamic_tls import DYNAMIC_TLS_KEYS, listener_tls_definition
from ottla.model.settings.security.oauth import OAuthSettings
from ottla.model.settings.security.sasl import SaslSettings
from ottla.model.settings.security.security_keys import (
    KERBEROS_PREFIX,
    SECURITY_KEYS,
    is_of_security_family,
    reason_refused,
)
from ottla.model.settings.security.tls import TlsSettings, reason_tls_refused
from ottla.model.settings.share_groups import ShareGroupConfig
from ottla.model.settings.share_state import ShareStateConfig
from ottla.model.settings.storage.cleaner import CleanerConfig
from ottla.model.settings.storage.cordoned import CORDONED_LOG_DIRS
from ottla.model.settings.storage.disks import DiskConfig
from ottla.model.settings.storage.tier import TierConfig
from ottla.model.settings.storage.topic import (
    DEFAULT_DEFINITIONS,
    TOPIC_DEFINITIONS,
    check_topic_as_a_whole,
    check_topic_texts,
)
from ottla.model.settings.telemetry.client_metrics import (
    CLIENT_METRICS_DEFINITIONS,
    check_subscription_texts,
)
from ottla.model.settings.telemetry.client_telemetry import TelemetryConfig
from ottla.model.settings.telemetry.exporters import ExporterConfig
from ottla.model.settings.telemetry.metrics import MetricsConfig
from ottla.model.settings.transactions import TransactionConfig


@cache
def broker_definitions() -> Mapping[str, Definition]:
    """Return the declarations of all broker settings that have an effect, by key. They include the
    default topic settings."""
    own = definitions(BrokerConfig)
    return {
        **own,
        **definitions(GroupConfig),
        **definitions(ShareGroupConfig),
        **definitions(TransactionConfig),
        **definitions(ShareStateConfig),
        **definitions(QuotaConfig),
        **definitions(ConnectionConfig),
        **definitions(SaslSettings),
        **definitions(TlsSettings),
        **definitions(AuthorizerConfig),
        **definitions(OAuthSettings),
        **definitions(DelegationTokenConfig),
        **definitions(MetricsConfig),
        **definitions(LogOutputConfig),
        **definitions(DiskConfig),
        **definitions(ExporterConfig),
        **definitions(TelemetryConfig),
        **definitions(CleanerConfig),
        **definitions(TierConfig),
        **definitions(BalanceSettings),
        **{key: one for key, one in DEFAULT_DEFINITIONS.items() if key not in own},
    }


@cache
def described_definitions() -> Mapping[str, Definition]:
    """Return the declarations of all known broker settings by key, including Kafka's settings that
    have no effect in Ottla."""
    return {**idle_definitions(), **broker_definitions()}


def definitions_of(resource_type: ConfigKind) -> Mapping[str, Definition]:
    """Return the declarations of all settings of a resource type by key."""
    match resource_type:
        case ConfigKind.TOPIC:
            return TOPIC_DEFINITIONS
        case ConfigKind.BROKER:
            return described_definitions()
        case ConfigKind.CLIENT_METRICS:
            return CLIENT_METRICS_DEFINITIONS
        case ConfigKind.GROUP:
            return GROUP_DEFINITIONS
    return {}


def check_texts(
    resource_type: ConfigKind,
    given: Mapping[str, str],
    in_all: Mapping[str, str],
    *,
    groups: GroupConfig,
    is_of_all_brokers: bool = False,
) -> None:
    """Raise RefusedError if a resource of this type has no such setting, or if a value is invalid.

    `given` contains the settings that the request sets. `in_all` contains all settings that the
    resource will have afterwards.
    """
    match resource_type:
        case ConfigKind.TOPIC:
            check_topic_texts(given)
            check_topic_as_a_whole(in_all)
        case ConfigKind.BROKER:
            check_broker_texts(given, is_of_all=is_of_all_brokers)
            check_broker_intervals(given, groups)
        case ConfigKind.CLIENT_METRICS:
            check_subscription_texts(in_all)
        case ConfigKind.GROUP:
            check_group_texts(in_all, groups)


def of_one_listener(key: str) -> Definition | None:
    """Return the declaration of a broker setting for a single listener, or None if the key is no
    such setting."""
    return listener_definition(key) or listener_tls_definition(key)


def check_broker_texts(texts: Mapping[str, str], *, is_of_all: bool = False) -> None:
    """Raise RefusedError(INVALID_REQUEST) for a setting that a running broker does not accept.

    `is_of_all` is True for the cluster-wide default of all brokers. As in Kafka, unknown keys are
    accepted. An unknown security setting is refused, because the operator would rely on an effect
    that it does not have.
    """
    for key, text in texts.items():
        reason = reason_tls_refused(key, text)
        if reason is not None:
            raise RefusedError(ErrorCode.INVALID_REQUEST, f"{key} is refused: {reason}")
        if key in DYNAMIC_TLS_KEYS:
            raise RefusedError(
                ErrorCode.INVALID_REQUEST,
                "These security configs can be dynamically updated only per-listener using the "
                f"listener prefix: {key}",
            )
        if is_of_all and key.startswith(ONE_BROKERS_KEYS):
            raise RefusedError(
                ErrorCode.INVALID_REQUEST,
                "Cannot update these configs at default cluster level, broker id must be "
                f"specified: {key}",
            )
        if not is_of_all and key.startswith(BALANCE_PREFIX):
            raise RefusedError(
                ErrorCode.INVALID_REQUEST,
                f"{key} is a setting of the whole cluster, not of one broker",
            )
        _check_broker_text(key, text)


ONE_BROKERS_KEYS = (LISTENER_PREFIX, CORDONED_LOG_DIRS, KERBEROS_PREFIX)
"""Prefixes of the keys that can be set only for a single broker, not for all brokers."""

AT_LEAST_ONE = frozenset({MAX_CONNECTIONS, MAX_CONNECTION_CREATION_RATE, MAX_CONNECTIONS_PER_IP})
"""Keys of settings that may be zero in a file, but not on a running broker. With zero, no client
could connect to change the value again."""


@cache
def _static_keys() -> frozenset[str]:
    """Return the known keys that may only be set in a file. Keys that a broker's config classes
    declare are not included."""
    parts = (ControllerConfig, MutationQuotaConfig, QuorumConfig)
    own = {key for part in parts for key in definitions(part)}
    return frozenset({*own, *SECURITY_KEYS, *UNKEPT_PROMISES, "log.dir", "process.roles"})


def _check_broker_text(key: str, text: str) -> None:
    definition = described_definitions().get(key) or of_one_listener(key)
    if definition is None or definition.is_internal:
        reason = reason_refused(key)
        if reason is not None or is_of_security_family(key):
            raise RefusedError(
                ErrorCode.INVALID_REQUEST,
                f"{key} is refused: {reason or 'it is an unknown security setting'}",
            )
    if definition is None and key not in _static_keys():
        return
    if definition is None or not definition.is_dynamic:
        raise RefusedError(
            ErrorCode.INVALID_REQUEST,
            f"Cannot update these configs dynamically: {key}; set it in the broker's file",
        )
    try:
        value = definition.value_of(text)
        if key in AT_LEAST_ONE and value < 1:
            raise ConfigError(key, f"is {text!r}; a running broker accepts at least 1")
        if isinstance(value, tuple) and len(set(value)) < len(value):
            raise ConfigError(key, f"is {text!r}; a running broker accepts each item only once")
    except ConfigError as error:
        raise RefusedError(ErrorCode.INVALID_REQUEST, str(error)) from None
