"""Stable names of the events that nodes log, and the fields of their log lines.

Pure. A name is never reused for another event, because alarms depend on it.
"""

import logging
from collections.abc import Mapping

EVENTS: Mapping[str, str] = {
    "node.started": "A node's process began: version, role, listeners, directories.",
    "node.stopping": "SIGTERM or SIGINT asked for a controlled shutdown.",
    "node.stopped": "The node ended, as it was asked to.",
    "node.failed": "The node ended by an error; the line has it.",
    "log.dropped": "Lines were lost: they came too fast, or could not be written.",
    "log.line": "A line without a name of its own.",
    "quorum.role": "This node's role in the quorum changed: an election, a leader, an epoch.",
    "quorum.gone": "The leading controller's process is gone: its address refuses.",
    "controller.active": "This controller is the active one.",
    "controller.inactive": "This controller is no longer the active one.",
    "metadata.loaded": "The node knows the cluster: brokers, topics and partitions by number.",
    "broker.registered": "A broker registered, for the first time or after a restart.",
    "broker.unregistered": "A broker was removed from the cluster.",
    "broker.fenced": "A broker may not lead or be in sync until it is heard again.",
    "broker.gone": "A broker's process is gone: its address refuses; its session ends early.",
    "broker.unfenced": "A broker serves.",
    "host.unclear": "The machine of a broker has no id, or one that other machines have, too.",
    "broker.stopping": "A broker asked for a controlled shutdown.",
    "partition.leaders": "Leaders of partitions changed; one line for each applied image.",
    "partition.isr": "In-sync replicas changed; one line for each applied image.",
    "replica.truncated": "A follower cut its log to its leader's; ERROR if records were committed.",
    "directory.failed": "A log directory is offline after an error of its disk.",
    "throttle.changed": "A limit of replication of a broker was set, changed or removed.",
    "client.throttled": "A client exceeds a quota; at most one line a minute, client and quota.",
    "authorizer.decision": "A client was refused something by ACLs; with DEBUG, or allowed it.",
    "disk.filling": "The volume of a log directory or of the metadata log has little room left.",
    "disk.full": "It has none: writes are refused until there is room.",
    "disk.relieved": "Local copies of segments in the object store were deleted for free space.",
    "disk.room": "A volume that was full or filling has room again.",
    "disk.hangs": "The disk of a directory has not answered for half a minute.",
    "disk.answers": "A disk that hung answers again.",
    "disk.slow": "A flush took longer than a second; at most one line a minute and directory.",
    "error.unexpected": "An error that was not foreseen ended a connection, a request or a task.",
    "session.ended": "Heartbeats of brokers stayed away; the active controller fences them.",
    "controller.stall": "The controller's process was stopped; sessions are extended by that time.",
    "quorum.damaged": "A controller lost metadata or a vote: it does not vote before it caught up.",
    "quorum.standing": "A damaged controller has caught up, or is a step nearer to it.",
    "quorum.peer": "Another member of the quorum does not answer, or refuses this node.",
    "quorum.unreachable": "No controller of controller.quorum.voters answers.",
    "metadata.trouble": "The metadata log or a snapshot of it could not be written or read.",
    "log.cleaner": "Compaction of a log failed, or left something.",
    "log.move": "A log moves between directories, has moved, or cannot.",
    "log.lost": "A replica lacks records that it had: its log is gone, cut, or cannot be opened.",
    "log.recovery": "What a start after a crash found in a log.",
    "log.upkeep": "Retention or flush of a log.",
    "log.storage": "Another line about logs on disk.",
    "replica.trouble": "A line about replication.",
    "group.trouble": "A line about groups of consumers.",
    "transaction.trouble": "A line about transactions.",
    "node.open": "A listener takes calls from everyone who reaches it, as any node.",
    "certificate.loaded": "A new certificate of this node, or new trusted CAs, hold.",
    "certificate.refused": "A changed certificate could not be taken; the one of before holds.",
    "network.trouble": "A line about connections.",
}
"""Description of every event that nodes log, by the event's name."""

UNNAMED = "log.line"

EVENT_OF_LOGGER: Mapping[str, str] = {
    "ottla.errors": "error.unexpected",
    "ottla.controller.upkeep_driver": "session.ended",
    "ottla.controller.controller_driver": "controller.stall",
    "ottla.node.quorum.quorum_driver": "quorum.peer",
    "ottla.rpc.cluster_id": "quorum.unreachable",
    "ottla.node.quorum.metadata_log": "metadata.trouble",
    "ottla.node.quorum_files": "metadata.trouble",
    "ottla.node.quorum.snapshot_driver": "metadata.trouble",
    "ottla.storage.cleaner": "log.cleaner",
    "ottla.storage.losses": "log.lost",
    "ottla.storage.manager.log_moves_driver": "log.move",
    "ottla.storage.manager.log_recovery_driver": "log.recovery",
    "ottla.storage.manager.log_upkeep_driver": "log.upkeep",
    "ottla.storage": "log.storage",
    "ottla.broker.replicas": "replica.trouble",
    "ottla.broker.groups": "group.trouble",
    "ottla.broker.transactions": "transaction.trouble",
    "ottla.node.network": "network.trouble",
}
"""Event name of log lines that specify none, by the name of their logger. A logger that is not
listed uses the entry of its nearest listed ancestor."""


def event(name: str, **fields: object) -> dict[str, object]:
    """Return the argument `extra` of a log call: the event's name, and the event's values for
    `log.format=json`."""
    assert name in EVENTS, name
    return {"event": name, "fields": fields}


def event_of(record: logging.LogRecord) -> str:
    """Return the event name of a log record: its own name, or the name assigned to its logger."""
    named = getattr(record, "event", None)
    if named is not None:
        return str(named)
    name = record.name
    while name:
        if name in EVENT_OF_LOGGER:
            return EVENT_OF_LOGGER[name]
        name = name.rpartition(".")[0]
    return UNNAMED


def fields_of(record: logging.LogRecord) -> Mapping[str, object]:
    """Return the values that a log line has in addition to its message, by name."""
    found = getattr(record, "fields", None)
    return found if isinstance(found, dict) else {}
