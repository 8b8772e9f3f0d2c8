"""The rules of `deploy/prometheus/alerts.yml`, each with its meaning and the command that helps.
Pure.

A test compares this table with that file.
"""

from ottla.model.values import frozen


@frozen(kw_only=True)
class AlertRule:
    """Rule by which Prometheus raises an alert about a cluster."""

    name: str
    expression: str
    """Expression of Prometheus. The alert is raised if the expression has a result."""
    wait: str = ""
    """Time for which the expression must have a result before the alert is raised, such as 5m.
    Empty if the alert is raised at once."""
    is_urgent: bool = False
    """True if the alert wakes the operator, false if it can wait until morning."""
    meaning: str
    command: str
    """Command that fixes the cause or shows the next step. The user replaces words in capitals."""


ALERT_RULES = (
    AlertRule(
        name="OttlaNodeDown",
        expression='up{job="ottla"} == 0',
        wait="2m",
        is_urgent=True,
        meaning="a node's /metrics has not answered for 2 minutes",
        command="systemctl status 'ottla*'",
    ),
    AlertRule(
        name="OttlaNoActiveController",
        expression="(sum(kafka_controller_kafkacontroller_activecontrollercount) or vector(0)) < 1",
        wait="1m",
        is_urgent=True,
        meaning="no change of topics or leaders is possible",
        command="ottla quorum status",
    ),
    AlertRule(
        name="OttlaOfflinePartitions",
        expression="max(kafka_controller_kafkacontroller_offlinepartitionscount) > 0",
        wait="1m",
        is_urgent=True,
        meaning="partitions that can be neither written nor read",
        command="ottla explain unavailable",
    ),
    AlertRule(
        name="OttlaUnderMinIsr",
        expression="sum(kafka_server_replicamanager_underminisrpartitioncount) > 0",
        wait="1m",
        is_urgent=True,
        meaning="producers with acks=all are refused",
        command="ottla explain unavailable",
    ),
    AlertRule(
        name="OttlaUnderReplicated",
        expression="sum(kafka_server_replicamanager_underreplicatedpartitions) > 0",
        wait="15m",
        meaning="one more failure may stop partitions",
        command="ottla status --under-replicated",
    ),
    AlertRule(
        name="OttlaBrokerFenced",
        expression="max(kafka_controller_kafkacontroller_fencedbrokercount) > 0",
        wait="5m",
        meaning="a registered broker does not serve",
        command="ottla broker unregister ID",
    ),
    AlertRule(
        name="OttlaDirectoryOffline",
        expression="sum by (instance) (kafka_log_logmanager_offlinelogdirectorycount) > 0",
        is_urgent=True,
        meaning="a disk failed",
        command="ottla explain disk",
    ),
    AlertRule(
        name="OttlaDiskFull",
        expression="max by (instance, logDirectory) (ottla_log_directory_full) > 0",
        is_urgent=True,
        meaning="writes to a directory are refused",
        command="ottla explain disk",
    ),
    AlertRule(
        name="OttlaDiskFilling",
        expression="max by (instance, logDirectory) (ottla_log_directory_filling) > 0",
        wait="5m",
        meaning="a volume has little free space",
        command="ottla explain disk",
    ),
    AlertRule(
        name="OttlaDiskFullSoon",
        expression="predict_linear(ottla_log_directory_usable_bytes[6h], 24 * 3600) < 0",
        wait="1h",
        meaning="at the growth of the last six hours a volume is full within a day",
        command="ottla explain disk",
    ),
    AlertRule(
        name="OttlaDiskHangs",
        expression="max by (instance, logDirectory) (ottla_log_directory_room_age_seconds) > 60",
        is_urgent=True,
        meaning="a disk has not answered for a minute",
        command="ottla broker drain ID",
    ),
    AlertRule(
        name="OttlaUncleanElection",
        expression="increase("
        "kafka_controller_controllerstats_uncleanleaderelections_total[10m]) > 0",
        is_urgent=True,
        meaning="committed records were lost",
        command="ottla quorum log",
    ),
    AlertRule(
        name="OttlaCertificateEnds",
        expression="ottla_tls_certificate_expiry_timestamp_seconds - time() < 14 * 86400",
        wait="1h",
        meaning="a certificate expires soon; clients and brokers will then refuse this listener",
        command="ottla doctor listeners",
    ),
    AlertRule(
        name="OttlaUnexpectedErrors",
        expression="increase(ottla_unexpected_errors_total[10m]) > 0",
        meaning="a bug in Ottla",
        command="ottla bundle",
    ),
    AlertRule(
        name="OttlaLoopBusy",
        expression="rate(ottla_loop_idle_seconds_total[5m]) < 0.1",
        wait="10m",
        meaning="a broker's event loop has no capacity left",
        command="ottla cluster balance",
    ),
    AlertRule(
        name="OttlaDescriptorsLow",
        expression='process_open_fds{job="ottla"} / process_max_fds{job="ottla"} > 0.8',
        wait="5m",
        meaning="few file descriptors left",
        command="systemctl edit 'ottla*'",
    ),
    AlertRule(
        name="OttlaCompactionFailed",
        expression="sum by (instance) "
        "(kafka_log_logcleanermanager_uncleanable_partitions_count) > 0",
        wait="15m",
        meaning="compaction failed, so the log grows",
        command="ottla cleaner retry",
    ),
    AlertRule(
        name="OttlaHangingTransactions",
        expression="sum by (instance) "
        "(kafka_server_replicamanager_partitionswithlatetransactionscount) > 0",
        wait="10m",
        meaning="readers of committed records make no progress",
        command="ottla txn find-hanging",
    ),
)
"""Rules of Prometheus, in the order of `alerts.yml`."""
