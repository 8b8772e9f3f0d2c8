"""The admin client: topics, replicas, groups, transactions and the cluster itself.

Use it as `async with open_admin(…) as admin`.  A refused call raises RefusedError with Kafka's
error code.  Temporary failures, such as a change of the controller or a lost connection, are
retried up to the timeout of the admin client.
"""

from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING

from ottla.client.admin_parts.admin_acls import AclCalls
from ottla.client.admin_parts.admin_brokers import BrokerCalls
from ottla.client.admin_parts.admin_calls import open_calls
from ottla.client.admin_parts.admin_cleaner import CleanerCalls
from ottla.client.admin_parts.admin_cluster import ClusterCalls
from ottla.client.admin_parts.admin_quotas import QuotaCalls
from ottla.client.admin_parts.admin_replicas import ReplicaCalls
from ottla.client.admin_parts.admin_streams_groups import StreamsGroupCalls
from ottla.client.admin_parts.admin_telemetry import TelemetryCalls
from ottla.client.admin_parts.admin_tokens import TokenCalls
from ottla.client.admin_parts.admin_topics import TopicCalls
from ottla.client.admin_parts.admin_transactions import TransactionCalls
from ottla.client.admin_parts.admin_users import UserCalls
from ottla.client.network.arguments import check_all_calls
from ottla.client.network.bootstrap import config_of
from ottla.client.network.client_block import client_block
from ottla.client.network.cluster import DEFAULT_RECOVERY, recovery_of

if TYPE_CHECKING:
    from ottla.model.settings.client import AdminConfig
    from ottla.model.settings.security.client_security import ClientSecurity


class Admin(
    TopicCalls,
    TelemetryCalls,
    BrokerCalls,
    ReplicaCalls,
    CleanerCalls,
    StreamsGroupCalls,
    TransactionCalls,
    QuotaCalls,
    UserCalls,
    TokenCalls,
    AclCalls,
    ClusterCalls,
):
    """Admin client of a cluster. Created by `open_admin`."""


for _part in Admin.__bases__:
    check_all_calls(_part)


@client_block
async def open_admin(
    bootstrap: str | Iterable[str | tuple[str, int]],
    config: "AdminConfig | None" = None,
    *,
    client_id: str = "ottla",
    timeout_s: float = 30.0,
    security: "ClientSecurity | None" = None,
    enable_metrics_push: bool = False,
) -> AsyncIterator[Admin]:
    """Open and yield an admin client, which is closed at the end of the caller's `async with`
    block.

    `bootstrap` lists the addresses of one or more brokers, as `host:port,…`. The default port is
    9092. `config` is an alternative to all further arguments. Raises TypeError if the caller uses
    both. With `enable_metrics_push`, the client reports its own metrics to the cluster if the
    cluster collects them (KIP-714).
    """
    recovery = DEFAULT_RECOVERY
    if config is not None:
        # Imported here: most commands of `ottla` start without it.
        from ottla.model.settings.client import AdminConfig

        config = config_of(config, AdminConfig)
        if (client_id, timeout_s, security, enable_metrics_push) != ("ottla", 30.0, None, False):
            raise TypeError("give config, or the other arguments; both are given")
        client_id, security, recovery = config.client_id, config, recovery_of(config)
        timeout_s = config.default_api_timeout_ms / 1_000
        enable_metrics_push = config.enable_metrics_push
    async with open_calls(
        Admin,
        bootstrap,
        client_id=client_id,
        timeout_s=timeout_s,
        security=security,
        enable_metrics_push=enable_metrics_push,
        recovery=recovery,
    ) as admin:
        yield admin
