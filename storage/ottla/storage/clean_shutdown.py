"""`.kafka_cleanshutdown`: says that every log of a directory was flushed and closed.

Kafka 4's content is JSON with the broker's epoch, by which the controller recognises a clean
restart (KIP-966).  It is read and removed at once at the start, so that a crash while loading
counts as unclean.
"""

import json

CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
VERSION = 0
NO_BROKER_EPOCH = -1


def format_clean_shutdown(broker_epoch: int) -> bytes:
    """Return the file's bytes."""
    content = {"version": VERSION, "brokerEpoch": broker_epoch}
    return json.dumps(content, separators=(",", ":")).encode()


def parse_clean_shutdown(data: bytes) -> int:
    """Return the broker epoch, -1 when the content tells none: the file's being there counts."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return NO_BROKER_EPOCH
    epoch = content.get("brokerEpoch") if isinstance(content, dict) else None
    if type(epoch) is not int or not 0 <= epoch < 1 << 63:
        return NO_BROKER_EPOCH
    return epoch
