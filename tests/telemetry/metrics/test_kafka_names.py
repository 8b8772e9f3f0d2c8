"""Names of metrics that dashboards ask for."""

import pytest

from ottla.telemetry.metrics.kafka_names import prometheus_name


@pytest.mark.parametrize(
    ("mbean", "name"),
    [
        # Asked for by Strimzi's dashboards and alerts, and by Confluent's.
        (
            "kafka.server:type=ReplicaManager,name=UnderReplicatedPartitions",
            "kafka_server_replicamanager_underreplicatedpartitions",
        ),
        (
            "kafka.server:type=ReplicaManager,name=UnderMinIsrPartitionCount",
            "kafka_server_replicamanager_underminisrpartitioncount",
        ),
        (
            "kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec",
            "kafka_server_brokertopicmetrics_bytesin_total",
        ),
        (
            "kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent",
            "kafka_network_socketserver_networkprocessoravgidle_percent",
        ),
        (
            "kafka.controller:type=KafkaController,name=ActiveControllerCount",
            "kafka_controller_kafkacontroller_activecontrollercount",
        ),
        (
            "kafka.controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec",
            "kafka_controller_controllerstats_uncleanleaderelections_total",
        ),
        ("kafka.log:type=Log,name=Size", "kafka_log_log_size"),
        (
            "kafka.server:type=KafkaServer,name=linux-disk-read-bytes",
            "kafka_server_kafkaserver_linux_disk_read_bytes",
        ),
        (
            "kafka.coordinator.group:type=GroupMetadataManager,name=NumGroupsStable",
            "kafka_coordinator_group_groupmetadatamanager_numgroupsstable",
        ),
        (
            "kafka.server:type=raft-metrics,attribute=current-epoch",
            "kafka_server_raft_metrics_current_epoch",
        ),
        (
            "kafka.server:type=socket-server-metrics,attribute=connection-count",
            "kafka_server_socket_server_metrics_connection_count",
        ),
    ],
)
def test_the_name_that_the_usual_rules_make_of_an_mbean(mbean: str, name: str) -> None:
    assert prometheus_name(mbean) == name


@pytest.mark.parametrize(
    "mbean", ["kafka.log:type=Log", "kafka.log:type=Log,name=Size,topic=a", "Log", ""]
)
def test_what_names_no_one_number_is_a_bug(mbean: str) -> None:
    with pytest.raises(AssertionError):
        prometheus_name(mbean)
