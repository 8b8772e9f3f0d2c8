"""Spans and metrics of this client, through the OpenTelemetry API.

detect.py            whether the program has set a provider
instruments.py       names and attributes of spans and metrics, by the semantic conventions
metrics_push.py      the client's reports to its cluster, without OpenTelemetry (KIP-714)
metric_sources.py    what producers and consumers report there

The classes that use them are `traced_producer.py` and `traced_consumer.py`, beside the plain ones.
"""
