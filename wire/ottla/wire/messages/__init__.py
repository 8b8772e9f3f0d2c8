"""Kafka's messages as classes, one module a message; written by `ottla.wire.generator`."""
