"""A client's own metrics, and the protocol by which brokers collect them (KIP-714).

measures.py          counters and durations that clients keep: one addition for a batch or a request
metric_points.py     named values; which of them a subscription wants; deltas of sums
client_metrics.py    what every kind of client reports: connections, latencies by broker
producer_metrics.py  what a producer reports besides
consumer_metrics.py  what a consumer reports besides
push_session.py      start here: when to ask for a subscription and when to push (pure)
otlp_payload.py      points as OTLP, within the size that the broker accepts

`instrumentation/metrics_push.py` sends and receives for them.
"""
