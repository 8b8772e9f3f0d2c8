"""Registers the APIs through which operators examine and move this broker's replicas and log
directories. Pure."""

from ottla.broker.logs.alter_replica_log_dirs import AlterReplicaLogDirsApi
from ottla.broker.logs.describe_log_dirs import D, DescribedLogs, DescribeLogDirsApi
from ottla.broker.logs.describe_producers import DescribeProducersApi
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.node.network.dispatch import Dispatcher
from ottla.wire.apis import ALTER_REPLICA_LOG_DIRS, DESCRIBE_LOG_DIRS, DESCRIBE_PRODUCERS


def register_replica_apis(
    dispatcher: Dispatcher, *, table: PartitionTable, logs: DescribedLogs[D]
) -> None:
    """Register the handlers of AlterReplicaLogDirs, DescribeLogDirs and DescribeProducers."""
    dispatcher.register(
        ALTER_REPLICA_LOG_DIRS, AlterReplicaLogDirsApi(table=table, logs=logs).handle
    )
    dispatcher.register(DESCRIBE_LOG_DIRS, DescribeLogDirsApi(table=table, logs=logs).handle)
    dispatcher.register(DESCRIBE_PRODUCERS, DescribeProducersApi(table=table).handle)
