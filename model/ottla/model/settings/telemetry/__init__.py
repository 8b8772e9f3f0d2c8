"""Settings of metrics, traces and the telemetry that clients push.

metrics.py           the endpoint /metrics and the traces of one process
metrics_access.py    credentials for the endpoint /metrics
exporters.py         exporters of metrics: OTLP collectors, a topic, plug-ins
client_telemetry.py  limits on the telemetry that a broker accepts from clients (KIP-714)
client_metrics.py    subscriptions to clients' metrics, the resource CLIENT_METRICS
"""
