"""Spans and metrics of this client, through the OpenTelemetry API.

detect.py            whether the program has set a provider
instruments.py       names and attributes of spans and metrics, by the semantic conventions

The classes that use them are `traced_producer.py` and `traced_consumer.py`, beside the plain ones.
"""
