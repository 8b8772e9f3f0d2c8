"""Kafka's messages in use, one module each; written by `ottla.wire.generator`."""
