"""Exporters of metrics and traces.

exporters_driver.py         start here: opens the exporters in a node's settings
batching_driver.py          the loop that all exporters have in common
export_queue.py             queue of pushes, and the times of retries
otlp_exporter_driver.py     exporter to OTLP collectors
otlp_grpc_driver.py         OTLP over gRPC
otlp_http_driver.py         OTLP over HTTP
otlp_outcomes.py            meaning of a collector's response
collector_tls_driver.py     TLS to collectors, reloaded when a file changes
topic_exporter_driver.py    exporter to the topic `__client_metrics`
plugin_driver.py            exporter to the operator's own code
otel_sdk_driver.py          export of spans to collectors by OpenTelemetry's SDK
watched_exporter_driver.py  wrapper of the SDK's exporters that logs each outage once
"""
