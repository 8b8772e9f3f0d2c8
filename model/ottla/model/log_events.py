"""The stable names of what nodes log, and how a line gets its name and its fields.

Pure.  A name is never given to another event: alarms are set on it.
"""

import logging
from collections.abc import Mapping

EVENTS: Mapping[str, str] = {
    "node.started": "A node's process began: version, role, listeners, directories.",
    "node.stopping": "SIGTERM or SIGINT asked for a controlled shutdown.",
    "node.stopped": "The node ended, as it was asked to.",
    "node.failed": "The node ended by an error; the line has it.",
    "log.dropped": "Lines were lost, since they came faster than they could be written.",
    "log.line": "A line without a name of its own.",
    "quorum.role": "This node's role in the quorum changed: an election, a leader, an epoch.",
    "controller.active": "This controller is the active one.",
    "controller.inactive": "This controller is no longer the active one.",
    "metadata.loaded": "The node knows the cluster: brokers, topics and partitions by number.",
    "broker.registered": "A broker registered, for the first time or after a restart.",
    "broker.unregistered": "A broker was removed from the cluster.",
    "broker.fenced": "A broker may not lead or be in sync until it is heard again.",
    "broker.unfenced": "A broker serves.",
    "broker.stopping": "A broker asked for a controlled shutdown.",
    "partition.leaders": "Leaders of partitions changed; one line for each applied image.",
    "partition.isr": "In-sync replicas changed; one line for each applied image.",
    "directory.failed": "A log directory is offline after an error of its disk.",
}
"""Every event by name, with its meaning."""

UNNAMED = "log.line"


def event(name: str, **fields: object) -> dict[str, object]:
    """Return the `extra` of a log call: the event's name, and its values for log.format=json."""
    assert name in EVENTS, name
    return {"event": name, "fields": fields}


def event_of(record: logging.LogRecord) -> str:
    """Return the name of a line's event."""
    return str(getattr(record, "event", UNNAMED))


def fields_of(record: logging.LogRecord) -> Mapping[str, object]:
    """Return the values that a line has beside its message."""
    found = getattr(record, "fields", None)
    return found if isinstance(found, dict) else {}
