"""Conditions under which a request needs an ACL operation, for each value of `When`. Pure."""

from collections.abc import Callable
from typing import Any

from ottla.model.settings.resources import ConfigKind
from ottla.node.network.dispatch import RequestContext
from ottla.wire.api import When
from ottla.wire.apis import ADD_PARTITIONS_OF_BROKERS_FROM

GROUP_KEY, TRANSACTION_KEY, SHARE_KEY = 0, 1, 2
"""Types of keys in a FindCoordinator request: group (0), transactional id (1), share group (2)."""


def _key_type_is(key_type: int) -> Callable[[RequestContext, Any, Any], bool]:
    return lambda context, request, element: request.key_type == key_type


def _config_kind_in(*kinds: ConfigKind) -> Callable[[RequestContext, Any, Any], bool]:
    return lambda context, request, element: element.resource_type in kinds


CONDITIONS: dict[When, Callable[[RequestContext, Any, Any], bool]] = {
    When.ALWAYS: lambda context, request, element: True,
    When.TRANSACTIONAL: lambda context, request, element: request.transactional_id is not None,
    When.NOT_TRANSACTIONAL: lambda context, request, element: request.transactional_id is None,
    When.TWO_PHASE: lambda context, request, element: request.enable2_pc,
    When.OF_CLIENTS: lambda context, request, element: (
        context.api_version < ADD_PARTITIONS_OF_BROKERS_FROM
    ),
    When.OF_BROKERS: lambda context, request, element: (
        context.api_version >= ADD_PARTITIONS_OF_BROKERS_FROM
    ),
    When.GROUP_KEYS: _key_type_is(GROUP_KEY),
    When.TRANSACTION_KEYS: _key_type_is(TRANSACTION_KEY),
    When.SHARE_KEYS: _key_type_is(SHARE_KEY),
    When.TOPIC_CONFIGS: _config_kind_in(ConfigKind.TOPIC),
    When.GROUP_CONFIGS: _config_kind_in(ConfigKind.GROUP),
    When.CLUSTER_CONFIGS: _config_kind_in(
        ConfigKind.BROKER, ConfigKind.BROKER_LOGGER, ConfigKind.CLIENT_METRICS
    ),
    When.ON_CONTROLLERS: lambda context, request, element: False,
}
"""Functions that return True if a declared ACL operation is needed, by the value of `When`. Each is
called with one element of a request, or with None if the operation is for the whole request."""
