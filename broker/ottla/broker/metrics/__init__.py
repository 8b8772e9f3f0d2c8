"""Metrics of the broker, and metrics that its clients push (KIP-714).

The broker
network_metrics.py         connections, and logins and TLS by listener
log_metrics.py             log directories and logs
group_metrics.py           groups by protocol and state
login_metrics.py           logins, by listener
tls_metrics.py             handshakes and certificates, by listener
partition_metrics.py       metrics of its partitions
cleaner_metrics.py         metrics of the log cleaner
share_metrics.py           metrics of share partitions led here, and of share requests
share_state_metrics.py     metrics of the share coordinator
transaction_metrics.py     metrics of the transaction coordinator
transactional_partitions.py  late transactions, and verifications by their coordinators
own_telemetry_driver.py    exports the broker's own metrics and traces
request_spans_driver.py    traces of requests as OpenTelemetry spans

Its clients
telemetry_driver.py        the parts of client telemetry, and the destinations of pushes
telemetry_apis.py          GetTelemetrySubscriptions, PushTelemetry
telemetry_admin.py         DescribeClientInstances and TailClientMetrics, APIs of Ottla's own
telemetry_tail.py          latest pushes, for an operator who watches them
telemetry_metrics.py       metrics of /metrics about telemetry
telemetry_topic_driver.py  one destination: the topic __client_metrics
"""
