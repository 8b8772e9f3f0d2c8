"""What operators ask, from topics and replicas to groups, transactions and the cluster itself.

`async with open_admin(…) as admin`.  A call that is refused raises RefusedError with Kafka's code;
trouble that passes (a controller that changes, a connection that is lost) is sat out up to the
admin's timeout.
"""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ottla.client.admin_parts.admin_acls import AclCalls
from ottla.client.admin_parts.admin_brokers import BrokerCalls
from ottla.client.admin_parts.admin_calls import open_calls
from ottla.client.admin_parts.admin_cleaner import CleanerCalls
from ottla.client.admin_parts.admin_cluster import ClusterCalls
from ottla.client.admin_parts.admin_groups import GroupCalls
from ottla.client.admin_parts.admin_quotas import QuotaCalls
from ottla.client.admin_parts.admin_replicas import ReplicaCalls
from ottla.client.admin_parts.admin_telemetry import TelemetryCalls
from ottla.client.admin_parts.admin_tokens import TokenCalls
from ottla.client.admin_parts.admin_topics import TopicCalls
from ottla.client.admin_parts.admin_transactions import TransactionCalls
from ottla.client.admin_parts.admin_users import UserCalls
from ottla.client.network.arguments import check_all_calls

if TYPE_CHECKING:
    from ottla.model.settings.client_security import ClientSecurity


class Admin(
    TopicCalls,
    TelemetryCalls,
    BrokerCalls,
    ReplicaCalls,
    CleanerCalls,
    GroupCalls,
    TransactionCalls,
    QuotaCalls,
    UserCalls,
    TokenCalls,
    AclCalls,
    ClusterCalls,
):
    """An operator's view; made by `open_admin`."""


for _part in Admin.__bases__:
    check_all_calls(_part)


@asynccontextmanager
async def open_admin(
    bootstrap: str | Iterable[str | tuple[str, int]],
    *,
    client_id: str = "ottla",
    timeout_s: float = 30.0,
    security: "ClientSecurity | None" = None,
    enable_metrics_push: bool = False,
) -> AsyncIterator[Admin]:
    """Open an operator's view.

    `bootstrap` is `host:port,…` of any brokers (port 9092 if left out).  With `enable_metrics_push`
    its own metrics are reported to the cluster, if that asks for them (KIP-714).
    """
    async with open_calls(
        Admin,
        bootstrap,
        client_id=client_id,
        timeout_s=timeout_s,
        security=security,
        enable_metrics_push=enable_metrics_push,
    ) as admin:
        yield admin
