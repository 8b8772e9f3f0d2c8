"""Registers the APIs that are answered from metadata, or forwarded to the controller.

Pure. The listener opens before the logs are recovered, so the APIs are registered in two steps. The
first step registers the APIs that a broker answers at any time. The second step registers all
others when the broker is running.
"""

from collections.abc import Callable

from ottla.broker.cluster.auto_create import AutoCreate
from ottla.broker.cluster.describe_client_quotas import DescribeClientQuotasApi
from ottla.broker.cluster.describe_cluster import DescribeClusterApi
from ottla.broker.cluster.describe_node import DescribeNodeApi
from ottla.broker.cluster.describe_scram_credentials import DescribeScramCredentialsApi
from ottla.broker.cluster.describe_topic_partitions import DescribeTopicPartitionsApi
from ottla.broker.cluster.metadata_api import MetadataApi
from ottla.broker.cluster.settings.config_resources import ListConfigResourcesApi
from ottla.broker.cluster.settings.configs_api import ResourceSettings
from ottla.broker.cluster.settings.own_obstacles import BrokerObstacles
from ottla.broker.cluster.token_apis import DelegationTokenApis
from ottla.model.settings.broker import BrokerConfig
from ottla.node.admin.admin_api import AdminApi
from ottla.node.admin.alter_configs import AlterLoggersApi
from ottla.node.admin.api_versions import ApiVersionsApi
from ottla.node.admin.describe_acls import DescribeAclsApi
from ottla.node.admin.describe_configs import DescribeConfigsApi
from ottla.node.admin.forwarding import ForwardingPort
from ottla.node.admin.log_levels import LogLevels
from ottla.node.admin.metadata_cache import MetadataCache
from ottla.node.network.dispatch import Dispatcher
from ottla.node.network.purgatory import Purgatory
from ottla.wire.apis import (
    ALTER_CONFIGS,
    API_VERSIONS,
    BROKER_KEYS,
    CREATE_DELEGATION_TOKEN,
    DESCRIBE_ACLS,
    DESCRIBE_CLIENT_QUOTAS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    DESCRIBE_DELEGATION_TOKEN,
    DESCRIBE_NODE,
    DESCRIBE_TOPIC_PARTITIONS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    EXPIRE_DELEGATION_TOKEN,
    FORWARDED_KEYS,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_CONFIG_RESOURCES,
    METADATA,
    RENEW_DELEGATION_TOKEN,
)

TOKEN_CHANGES = (CREATE_DELEGATION_TOKEN, RENEW_DELEGATION_TOKEN, EXPIRE_DELEGATION_TOKEN)


def register_early_apis(
    dispatcher: Dispatcher,
    *,
    config: BrokerConfig,
    cluster_id: str,
    metadata: MetadataCache,
    describe_node: DescribeNodeApi,
    coming: frozenset[int] = BROKER_KEYS,
    offers_telemetry: Callable[[], bool],
) -> None:
    """Register ApiVersions and DescribeNode, which a broker answers even while it starts.

    `coming` contains the keys of APIs that will be registered later. ApiVersions lists them from
    the start, because a client keeps the first response for the whole connection. ApiVersions also
    lists the APIs of client telemetry while `offers_telemetry` returns True.
    """
    dispatcher.coming = coming
    versions = ApiVersionsApi(
        metadata=metadata,
        served=lambda: dispatcher.api_keys | dispatcher.coming,
        cluster_id=cluster_id,
        node_id=config.node_id,
        offers_telemetry=offers_telemetry,
        reads_trace_contexts=config.traces_requests,
    )
    dispatcher.register(API_VERSIONS, versions.handle)
    dispatcher.on_unsupported_api_versions = versions.handle_unsupported
    dispatcher.register(DESCRIBE_NODE, describe_node.handle)


def register_cluster_apis(
    dispatcher: Dispatcher,
    *,
    config: BrokerConfig,
    cluster_id: str,
    metadata: MetadataCache,
    purgatory: Purgatory,
    controller: ForwardingPort,
    auto_create: AutoCreate,
    now_ms: Callable[[], int],
) -> None:
    """Register all APIs that are answered from the metadata image or by the controller."""
    dispatcher.state_of_answers = metadata.current_image
    admin = AdminApi(
        timeout_ms=config.request_timeout_ms,
        controller=controller,
        metadata=metadata,
        purgatory=purgatory,
        now_ms=now_ms,
    )
    for api_key in FORWARDED_KEYS:
        dispatcher.register(api_key, admin.handle, large_handler=admin.handle_large)
    loggers = LogLevels()
    alter = AlterLoggersApi(
        config.node_id,
        loggers,
        admin.handle,
        admin.handle_large,
        obstacle_of=BrokerObstacles(config, lambda: metadata.image).obstacle_of,
        on_levels=dispatcher.decide_again,
    )
    dispatcher.register(INCREMENTAL_ALTER_CONFIGS, alter.handle)
    dispatcher.register(ALTER_CONFIGS, alter.handle)
    topics = MetadataApi(
        config=config,
        cluster_id=cluster_id,
        metadata=metadata,
        purgatory=purgatory,
        auto_create=auto_create,
    )
    dispatcher.register(METADATA, topics.handle)
    settings = ResourceSettings(config=config, metadata=metadata, loggers=loggers)
    dispatcher.register(DESCRIBE_CONFIGS, DescribeConfigsApi(settings.configs_of).handle)
    resources = ListConfigResourcesApi(config=config, metadata=metadata)
    dispatcher.register(LIST_CONFIG_RESOURCES, resources.handle)
    cluster = DescribeClusterApi(config=config, cluster_id=cluster_id, metadata=metadata)
    dispatcher.register(DESCRIBE_CLUSTER, cluster.handle)
    pages = DescribeTopicPartitionsApi(config=config, metadata=metadata)
    dispatcher.register(DESCRIBE_TOPIC_PARTITIONS, pages.handle)
    quotas = DescribeClientQuotasApi(metadata)
    dispatcher.register(DESCRIBE_CLIENT_QUOTAS, quotas.handle)
    acls = DescribeAclsApi(metadata, is_on=config.authorizer.is_on)
    dispatcher.register(DESCRIBE_ACLS, acls.handle)
    tokens = DelegationTokenApis(metadata, config.tokens.secret, admin.handle)
    for api_key in TOKEN_CHANGES:
        dispatcher.register(api_key, tokens.handle_change)
    dispatcher.register(DESCRIBE_DELEGATION_TOKEN, tokens.handle_describe)
    users = DescribeScramCredentialsApi(metadata)
    dispatcher.register(DESCRIBE_USER_SCRAM_CREDENTIALS, users.handle)
