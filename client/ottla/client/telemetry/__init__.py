"""Metrics that a client collects about itself, and the protocol by which the client reports them to
brokers (KIP-714).

push_session.py      start here: times of subscription requests and pushes (pure)
measures.py          counters and durations, updated once per batch or request (pure)
metric_points.py     named values, selection by a subscription, deltas of sums (pure)
client_metrics.py    metrics of every kind of client: connections, latencies by broker
producer_metrics.py  additional metrics of a producer
consumer_metrics.py  additional metrics of a consumer
share_metrics.py     additional metrics of a share consumer
otlp_payload.py      encoding as OTLP, within the size that the broker accepts (pure)

`instrumentation/metrics_push.py` sends the requests.
"""
