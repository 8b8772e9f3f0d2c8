"""What the broker reports of itself, and what its clients report of themselves (KIP-714).

The broker
broker_metrics.py          all series of /metrics, put together: start here
login_metrics.py      logins, by listener
tls_metrics.py        handshakes and certificates, by listener
partition_metrics.py       series of its partitions
cleaner_metrics.py         series of the log cleaner
transaction_metrics.py     series of the transaction coordinator
quota_metrics.py           series of quotas
families.py                series of one number, or of a few
own_telemetry_driver.py    sends them to their destinations
request_spans_driver.py    traces of requests as OpenTelemetry spans

Its clients
telemetry_driver.py        the parts of client telemetry, and the destinations of pushes
telemetry_apis.py          GetTelemetrySubscriptions, PushTelemetry
telemetry_admin.py         DescribeClientInstances and TailClientMetrics, our own
transactional_partitions.py  late transactions, and questions to their coordinators
telemetry_tail.py          latest pushes, for an operator who watches them
telemetry_metrics.py       series of /metrics about telemetry
telemetry_topic_driver.py  one destination: the topic __client_metrics
"""
