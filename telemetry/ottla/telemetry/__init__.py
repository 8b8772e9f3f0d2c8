"""Metrics of clients (KIP-714) and of nodes: collection, limits and export.

Sub-packages, each of which imports only those above it:
clients/    subscriptions of clients, and the metrics that they push
exporters/  OTLP collectors, the topic `__client_metrics`, plug-ins, traces
metrics/    metrics of this node: collected, and served as Prometheus text or OTLP
"""
