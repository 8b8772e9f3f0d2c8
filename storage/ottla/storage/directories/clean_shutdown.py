"""Encoder and decoder of `.kafka_cleanshutdown`, the marker which records that every log of a
directory was flushed and closed. Pure.

In Kafka 4, the content of the marker is JSON with the broker epoch, by which the controller
recognises a clean restart (KIP-966). The broker reads and removes the marker early in its start, so
that a crash while logs are loaded counts as unclean.
"""

import json

CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
VERSION = 0
NO_BROKER_EPOCH = -1


def format_clean_shutdown(broker_epoch: int) -> bytes:
    """Return the bytes of a clean shutdown marker with a broker epoch."""
    content = {"version": VERSION, "brokerEpoch": broker_epoch}
    return json.dumps(content, separators=(",", ":")).encode()


def parse_clean_shutdown(data: bytes) -> int:
    """Return the broker epoch in a clean shutdown marker, or -1 without an epoch. A marker without
    an epoch is also valid, because its existence suffices."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return NO_BROKER_EPOCH
    epoch = content.get("brokerEpoch") if isinstance(content, dict) else None
    if type(epoch) is not int or not 0 <= epoch < 1 << 63:
        return NO_BROKER_EPOCH
    return epoch
