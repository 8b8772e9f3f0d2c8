"""Spans and metrics of clients through the OpenTelemetry API, and reports of their metrics to the
cluster.

detect.py            detection of the program's OpenTelemetry providers
instruments.py       names and attributes of spans and metrics, by the semantic conventions
observed_clients.py  metrics that are read from open clients at each export: lag, retries, buffers
produce_spans.py     spans of Produce requests
metrics_push.py      the client's reports to its cluster, without OpenTelemetry (KIP-714)
metric_sources.py    the metrics of producers and consumers that these reports contain

The client classes that use these modules are in `traced_producer.py` and `traced_consumer.py`, next
to the classes without tracing.
"""
