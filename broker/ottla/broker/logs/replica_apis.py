"""Registers the APIs by which an operator looks at this broker's replicas.  Pure."""

from ottla.broker.logs.alter_replica_log_dirs import AlterReplicaLogDirsApi
from ottla.broker.logs.describe_log_dirs import D, DescribedLogs, DescribeLogDirsApi
from ottla.broker.logs.describe_producers import DescribeProducersApi
from ottla.broker.network.dispatch import Dispatcher
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.wire.apis import ALTER_REPLICA_LOG_DIRS, DESCRIBE_LOG_DIRS, DESCRIBE_PRODUCERS

REPLICA_API_KEYS = frozenset((ALTER_REPLICA_LOG_DIRS, DESCRIBE_LOG_DIRS, DESCRIBE_PRODUCERS))
"""What `register_replica_apis` serves."""


def register_replica_apis(
    dispatcher: Dispatcher, *, table: PartitionTable, logs: DescribedLogs[D]
) -> None:
    """Serve what tells of replicas and their directories."""
    dispatcher.register(
        ALTER_REPLICA_LOG_DIRS, AlterReplicaLogDirsApi(table=table, logs=logs).handle
    )
    dispatcher.register(DESCRIBE_LOG_DIRS, DescribeLogDirsApi(table=table, logs=logs).handle)
    dispatcher.register(DESCRIBE_PRODUCERS, DescribeProducersApi(table=table).handle)
