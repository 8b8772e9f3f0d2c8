"""What clients (KIP-714) and nodes report: counted, kept for a while, sent on.

Clients that push
subscriptions.py          what one client is asked for, of all subscriptions together
gate.py                   when it may ask and push
instances.py              who they are, and the judgement on each of their requests

What they push
client_labels.py          who pushed, and the names it is labelled with
unpack.py                 a push's payload, unpacked within a bound
otlp_bounds.py            how much a message is beyond its bytes: parts, points, names
otlp.py                   OTLP read, labelled, and taken apart into points
push_work.py              what the worker thread makes of a push
layout.py                 where the numbers lie in a push, so that the next need not be decoded
outline.py                a push as its series and their values
client_series.py          what clients pushed, as cumulative series for Prometheus
client_record.py          a push as one record of the topic `__client_metrics`
ingest_driver.py          pushes on their way in: one worker thread, then the sinks

The ways out
exporter.py               the seam that metrics leave by
export_queue.py           what waits to be sent on, and when to try again
batching_driver.py        the loop that every way out shares
otlp_exporter_driver.py   to an OTLP collector, over otlp_grpc_driver.py or otlp_http_driver.py
collector_tls_driver.py   certificates for collectors that are encrypted, with every new file
otlp_outcomes.py          what the answer of a collector means
topic_exporter_driver.py  to the topic, through a `send` that the broker hands in
plugin_driver.py          to code of the operator's own
exporters_driver.py       every way out that a node's settings name

What nodes count of themselves
instruments.py            counters, gauges, histograms; the registry that reads them
kafka_names.py            Kafka's names of metrics, as dashboards know them
prometheus_text.py        a registry as Prometheus's text
metrics_http_driver.py    GET /metrics
loop_pause_driver.py      how long the loop is held, and idle
own_otlp.py               a registry as OTLP
own_metrics_driver.py     sends that to collectors
otel_sdk_driver.py        OpenTelemetry's SDK, which sends spans to collectors
watched_exporter_driver.py  its exporters, whose outages are logged once
"""
