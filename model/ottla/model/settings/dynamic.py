"""Checks for settings that are changed while the cluster runs (IncrementalAlterConfigs).

The codes are Kafka's: what may not be set on a broker is an INVALID_REQUEST (KAFKA-13609), what may
not be set on a topic or a group is an INVALID_CONFIG.
"""

from collections.abc import Mapping
from functools import cache

from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.settings.authorizer import AuthorizerConfig
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.cleaner import CleanerConfig
from ottla.model.settings.client_metrics import (
    CLIENT_METRICS_DEFINITIONS,
    check_subscription_texts,
)
from ottla.model.settings.connections import ConnectionConfig, listener_definition
from ottla.model.settings.declare import Definition, definitions
from ottla.model.settings.delegation_tokens import DelegationTokenConfig
from ottla.model.settings.disks import DiskConfig
from ottla.model.settings.dynamic_tls import DYNAMIC_TLS_KEYS, listener_tls_definition
from ottla.model.settings.exporters import ExporterConfig
from ottla.model.settings.group_overrides import GROUP_DEFINITIONS, check_group_texts
from ottla.model.settings.groups import GroupConfig
from ottla.model.settings.logs import LogOutputConfig
from ottla.model.settings.metrics import MetricsConfig
from ottla.model.settings.oauth import OAuthSettings
from ottla.model.settings.quotas import QuotaConfig
from ottla.model.settings.resources import ConfigKind
from ottla.model.settings.sasl import SaslSettings
from ottla.model.settings.telemetry import TelemetryConfig
from ottla.model.settings.tls import TlsSettings, reason_tls_refused
from ottla.model.settings.topic import (
    DEFAULT_DEFINITIONS,
    TOPIC_DEFINITIONS,
    check_topic_as_a_whole,
    check_topic_texts,
)
from ottla.model.settings.transactions import TransactionConfig


@cache
def broker_definitions() -> Mapping[str, Definition]:
    """Return every broker setting by key: its own, those of its parts and the topic defaults."""
    own = definitions(BrokerConfig)
    return {
        **own,
        **definitions(GroupConfig),
        **definitions(TransactionConfig),
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
        **{key: one for key, one in DEFAULT_DEFINITIONS.items() if key not in own},
    }


def definitions_of(resource_type: ConfigKind) -> Mapping[str, Definition]:
    """Return every setting that a resource of this type may have, by key."""
    match resource_type:
        case ConfigKind.TOPIC:
            return TOPIC_DEFINITIONS
        case ConfigKind.BROKER:
            return broker_definitions()
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
) -> None:
    """Refuse settings that a resource does not have, and values that are not allowed.

    `given` is what is set now, `in_all` what the resource will have then.
    """
    match resource_type:
        case ConfigKind.TOPIC:
            check_topic_texts(given)
            check_topic_as_a_whole(in_all)
        case ConfigKind.BROKER:
            check_broker_texts(given)
        case ConfigKind.CLIENT_METRICS:
            check_subscription_texts(in_all)
        case ConfigKind.GROUP:
            check_group_texts(in_all, groups)


def of_one_listener(key: str) -> Definition | None:
    """Return the definition of a broker's setting for one listener, None if it is none."""
    return listener_definition(key) or listener_tls_definition(key)


def check_broker_texts(texts: Mapping[str, str]) -> None:
    """Refuse what a broker does not know, does not take while it runs, or may not be set to."""
    known = broker_definitions()
    for key, text in texts.items():
        definition = known.get(key) or of_one_listener(key)
        reason = reason_tls_refused(key, text)
        if reason is not None:
            raise RefusedError(ErrorCode.INVALID_REQUEST, f"{key} is refused: {reason}")
        if key in DYNAMIC_TLS_KEYS:
            raise RefusedError(
                ErrorCode.INVALID_REQUEST,
                "These security configs can be dynamically updated only per-listener using the "
                f"listener prefix: {key}",
            )
        if definition is None:
            raise RefusedError(ErrorCode.INVALID_CONFIG, f"Unknown broker config name: {key}")
        if not definition.is_dynamic:
            raise RefusedError(
                ErrorCode.INVALID_REQUEST,
                f"Cannot update these configs dynamically: {key}; set it in the broker's file",
            )
        try:
            definition.value_of(text)
        except ConfigError as error:
            raise RefusedError(ErrorCode.INVALID_REQUEST, str(error)) from None
